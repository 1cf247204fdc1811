//! Every limit of a measurement, in one place.

/// How long one call of the measured tool may take, by default, in seconds.
pub const CALL_SECONDS: u64 = 30;
/// How long asking a tool for help may take, in seconds.
pub const HELP_SECONDS: u64 = 20;
/// Most output that is kept of each stream of a call, and of each HTTP answer, in bytes; the rest is read and dropped.
pub const OUTPUT_BYTES_MAX: usize = 1024 * 1024;
/// Most times that a tool is asked for help.
pub const HELPS_MAX: usize = 64;
/// Most kills in one measurement.
pub const KILLS_MAX: u32 = 100;
/// Most races of two calls in one measurement.
pub const RACES_MAX: u32 = 100;
/// Longest line that an MCP server may send, in bytes.
pub const LINE_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Most tools of an MCP server that are looked at.
pub const TOOLS_MAX: usize = 1_000;
/// Largest file of an HTTP request, in bytes.
pub const REQUEST_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Most files in a sandbox whose contents are compared.
pub const SANDBOX_FILES_MAX: usize = 10_000;
/// Most bytes in a sandbox whose contents are compared.
pub const SANDBOX_BYTES_MAX: u64 = 256 * 1024 * 1024;
/// Longest piece of a tool's own words in a report, in characters.
pub const QUOTE_CHARS_MAX: usize = 160;
