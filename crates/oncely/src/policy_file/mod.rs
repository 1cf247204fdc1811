//! The policy file `oncely.toml`: what each tool declares, read once and checked as a whole.
//!
//! ```toml
//! store = "sqlite:/var/lib/agent/ledger.db"   # optional: where the ledger is
//! namespace = "team-a"                        # optional: the tenant
//! strict = true                               # refuse write tools that are not declared here
//!
//! [defaults]                                  # the same fields as a tool; a tool's own table wins
//! wait_for = "30s"
//!
//! [tool."cmd:charge.sh"]                      # an exact name, or a glob in which * stands for any characters
//! kind = "write"                              # read | write
//! effect = "created"                          # created | updated | deleted | sent | executed | noop
//! key = ["customer_id", "/amount"]            # fields that identify the intent when the caller gives no key
//! ignore = ["requested_at"]                   # fields that never matter
//! match = "payload"                           # payload | key: what has to be equal under a derived key
//! idempotent = false
//! forwards_key_for = "24h"                    # our downstream key is passed on and de-duplicated by for this long
//! when_unknown = "check"                      # halt | retry | check
//! check = ["./was-it-charged.sh", "{key}"]    # a program with arguments, or a string for sh -c
//! max_retries = 3
//! rejected_on = [3, 4, "65-69"]               # the exit codes that prove that nothing happened
//! replay_for = "24h"
//! remember_for = "35d"
//! repeat_after = "10m"
//! wait_for = "30s"
//! require_key = true
//! cost = { amount = 0.30, unit = "USD" }
//! is_error = "unknown"                        # MCP: unknown | rejected: what a result marked as an error proves
//! rejected_when = ["Insufficient funds*"]     # MCP: error texts that prove that nothing happened
//! annotate = "text"                           # MCP: text | meta | off: how a replay says that it is one
//! forward_cancel = false                      # MCP: pass a client's cancellation of a write on
//! dry_run = true                              # MCP: offer a dry_run argument
//! advertise_idempotent = false                # MCP: list the tool with idempotentHint: true
//! ```
//!
//! Which table a tool gets: its exact name wins, then the matching glob with the most literal characters. Two globs
//! that are equally close and can match the same tool are an error, so the answer never depends on their order.
//! `check` without `when_unknown` in the same table implies `when_unknown = "check"`.
//!
//! Loading never stops at the first problem: [`PolicyFileError`] lists all of them with their places. (While the text
//! is not TOML at all, only that is listed: what such a text means is a guess.)
//!
//! ```
//! use oncely::policy_file::PolicyFile;
//!
//! let file = PolicyFile::parse("[tool.\"mail:*\"]\nmax_retries = 2\nwait_for = \"5s\"\n", "oncely.toml")?;
//! assert_eq!(file.tool("mail:send").policy.max_retries, 2);
//! assert_eq!(file.tool("other").declared, None);
//!
//! let error = PolicyFile::parse("[tool.mail]\nwait_for = 5\n", "oncely.toml").unwrap_err();
//! assert_eq!((error.problems[0].line, error.problems[0].column), (2, 12));
//! # Ok::<(), oncely::policy_file::PolicyFileError>(())
//! ```

mod layer;
mod mcp;
mod pattern;
mod problem;
mod read;
#[cfg(test)]
mod tests;
mod units;
mod values;

use std::collections::HashMap;
use std::fs::File;
use std::io::Read as _;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use oncely_core::{Kind, Policy};

use self::layer::Layer;
pub use self::mcp::{Advertise, Annotate, DryRun, ForwardCancel, IsError, McpPolicy, TextPattern};
use self::pattern::Pattern;
use self::problem::Lines;
pub use self::problem::{PolicyFileError, Problem};
pub use self::units::{format_duration, parse_duration, parse_exit_codes};

/// How values of the file are read and problems noted: for doors that have tables of their own in it.
pub mod reading {
    pub use super::problem::{Lines, Problems, allowed, nearest, quote};
    pub use super::values::{
        Fault, Read, Value, boolean, duration, fault, integer, list, one_of, text, wrong_type,
    };
}

/// The name under which a policy file is looked for.
pub const FILE_NAME: &str = "oncely.toml";
/// Largest policy file, in bytes.
pub const FILE_BYTES_MAX: usize = 1024 * 1024;
/// What the names of tools of MCP servers start with.
const MCP_PREFIX: &str = "mcp:";
/// Most tools that one policy file may declare.
pub const TOOLS_MAX: usize = 1_000;

/// A policy file that was read and found right.
#[derive(Debug, Clone, PartialEq)]
pub struct PolicyFile {
    store: Option<String>,
    namespace: Option<String>,
    strict: bool,
    defaults: ToolPolicy,
    /// In file order.
    tools: Vec<(Pattern, ToolPolicy)>,
    /// Exact names, as places in `tools`.
    exact: HashMap<String, usize>,
    /// Globs, the closest first, as places in `tools`.
    globs: Vec<usize>,
}

/// What is declared for one tool, with the defaults filled in.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolPolicy {
    /// What the engine needs to know.
    pub policy: Policy,
    /// The probe that says whether the effect has happened.
    pub check: Option<CheckCommand>,
    /// Exit codes that prove that nothing happened, in place of the conventional ones; `None` where none are stated.
    pub rejected_on: Option<Vec<RangeInclusive<u8>>>,
    /// Whether it changes anything, where the file says so; a door may know better than the default.
    pub stated_kind: Option<Kind>,
    /// What holds at the MCP door.
    pub mcp: McpPolicy,
    /// The name or glob of the table that declares the tool; `None` where only the defaults apply.
    pub declared: Option<String>,
    /// Which of `idempotent`, `max_retries` and `when_unknown` are stated neither for the tool nor in the defaults.
    pub left_out: Vec<&'static str>,
    /// The line of the tool's table, counted from 1; 0 where no table declares it.
    pub line: usize,
}

/// A probe: how to ask whether the effect has happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CheckCommand {
    /// A program and its arguments, started without a shell; `{key}` in an argument stands for the key. Never empty.
    Argv(Vec<String>),
    /// A line for `sh -c`. Nothing is put into it: the key is in the environment.
    Shell(String),
}

impl PolicyFile {
    /// No file: every tool has the defaults, and none is declared.
    pub fn empty() -> Self {
        Self::assemble(Header::default(), &Layer::default(), Vec::new())
    }

    /// Reads the file at a path.
    pub fn load(path: &Path) -> Result<Self, PolicyFileError> {
        let name = path.display().to_string();
        let mut bytes = Vec::new();
        // One byte more than allowed is enough to know that a file is too large, whatever its size.
        let limit = FILE_BYTES_MAX as u64 + 1;
        File::open(path)
            .and_then(|file| file.take(limit).read_to_end(&mut bytes))
            .map_err(|e| PolicyFileError::whole(&name, format!("cannot be read: {e}")))?;
        check_size(bytes.len(), &name)?;
        let text = String::from_utf8(bytes).map_err(|e| not_utf8(&name, &e))?;
        Self::parse(&text, &name)
    }

    /// Reads a text; `file_name` is what messages call it.
    pub fn parse(text: &str, file_name: &str) -> Result<Self, PolicyFileError> {
        check_size(text.len(), file_name)?;
        read::document(text, file_name)
    }

    /// Looks for `oncely.toml` in a directory and then in each one above it.
    ///
    /// Anything of that name but a directory is found, even where it cannot be read: to pass over a policy that is
    /// there would be to run without it.
    pub fn find(start_dir: &Path) -> Option<PathBuf> {
        // Resolved first: above `a/../b` or a link, the parents as written are not the parents that are meant.
        let start = start_dir.canonicalize().unwrap_or_else(|_| start_dir.to_owned());
        let found = |path: &PathBuf| path.symlink_metadata().is_ok_and(|meta| !meta.is_dir());
        start.ancestors().map(|dir| dir.join(FILE_NAME)).find(found)
    }

    /// Where the ledger is, if the file says so.
    pub fn store(&self) -> Option<&str> {
        self.store.as_deref()
    }

    /// The tenant, if the file names one.
    pub fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    /// Whether write tools that are not declared are refused.
    pub fn is_strict(&self) -> bool {
        self.strict
    }

    /// What applies to a tool; the defaults, if no table declares it.
    ///
    /// A tool of an MCP server, `mcp:server/tool`, may also be declared by the name that the server gives it, `tool`.
    pub fn tool(&self, name: &str) -> ToolPolicy {
        let bare = name.strip_prefix(MCP_PREFIX).and_then(|rest| Some(rest.split_once('/')?.1));
        let fits =
            |pattern: &Pattern| pattern.matches(name) || bare.is_some_and(|bare| pattern.matches(bare));
        let exact = || self.exact.get(name).or_else(|| self.exact.get(bare?)).copied();
        let glob = || self.globs.iter().copied().find(|at| fits(&self.tools[*at].0));
        let at = exact().or_else(glob);
        at.map_or(&self.defaults, |at| &self.tools[at].1).clone()
    }

    /// Every declared name or glob with what applies to it, in file order.
    pub fn declared(&self) -> impl Iterator<Item = (&str, &ToolPolicy)> {
        self.tools.iter().map(|(pattern, policy)| (pattern.as_str(), policy))
    }

    /// Puts a checked file together.
    fn assemble(header: Header, defaults: &Layer, tools: Vec<(Pattern, ToolPolicy)>) -> Self {
        let (exact, mut globs): (Vec<usize>, Vec<usize>) =
            (0..tools.len()).partition(|at| tools[*at].0.is_exact());
        // Of two that are equally close, one by a tool's full name and one by its bare one, the full name wins.
        globs.sort_by_key(|at| {
            let pattern = &tools[*at].0;
            (std::cmp::Reverse(pattern.literal_chars()), !pattern.as_str().starts_with(MCP_PREFIX))
        });
        Self {
            store: header.store,
            namespace: header.namespace,
            strict: header.strict,
            defaults: defaults.tool_policy(None, 0),
            exact: exact.into_iter().map(|at| (tools[at].0.as_str().to_owned(), at)).collect(),
            globs,
            tools,
        }
    }
}

/// The fields that belong to no tool.
#[derive(Debug, Default)]
struct Header {
    store: Option<String>,
    namespace: Option<String>,
    strict: bool,
}

fn check_size(len: usize, file_name: &str) -> Result<(), PolicyFileError> {
    if len > FILE_BYTES_MAX {
        let message = format!("is larger than {FILE_BYTES_MAX} bytes, the most that a policy file may have");
        return Err(PolicyFileError::whole(file_name, message));
    }
    Ok(())
}

fn not_utf8(file_name: &str, error: &std::string::FromUtf8Error) -> PolicyFileError {
    let before = &error.as_bytes()[..error.utf8_error().valid_up_to()];
    let before = String::from_utf8_lossy(before);
    let (line, column) = Lines::of(&before).position(before.len());
    let message = "is not UTF-8 text from here on".to_owned();
    let problem = Problem { line, column, field: String::new(), message };
    PolicyFileError { file: file_name.to_owned(), problems: vec![problem] }
}
