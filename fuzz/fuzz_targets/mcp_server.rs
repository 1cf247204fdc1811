//! Lines of an MCP server, as they come.
#![no_main]

libfuzzer_sys::fuzz_target!(|line: &[u8]| oncely_fuzz::properties::server_line(line));
