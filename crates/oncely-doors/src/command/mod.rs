//! The command door: any command line as a tool.
//!
//! - [`CommandLine`]: what makes two command lines the same call.
//! - [`child`]: runs a command, streams and records its output, passes signals on.
//! - [`classify`]: what an exit status proves.
//! - [`Captured`]: what is kept of a run, and replayed.
//! - [`probe`]: runs a check command. [`orphans`]: finds what a killed runner left behind.

mod captured;
pub mod child;
pub mod classify;
mod foreground;
pub mod orphans;
mod payload;
pub mod probe;
mod recording;

pub use captured::{Captured, base64};
pub use payload::{CommandLine, tool_name};

/// The name of the intent, as the child sees it.
pub const KEY_VARIABLE: &str = "ONCELY_KEY";
/// The number of the attempt, as the child sees it.
pub const ATTEMPT_VARIABLE: &str = "ONCELY_ATTEMPT";
/// The key for a downstream that de-duplicates, as the child sees it.
pub const DOWNSTREAM_KEY_VARIABLE: &str = "ONCELY_DOWNSTREAM_KEY";
/// Names the attempt and no other; how a process that outlived its runner is recognised.
pub const TOKEN_VARIABLE: &str = "ONCELY_ATTEMPT_TOKEN";
/// Replaced in the child's arguments.
pub const DOWNSTREAM_KEY_PLACE: &str = "{downstream_key}";
