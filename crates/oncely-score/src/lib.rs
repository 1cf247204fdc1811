//! Measures from outside how safe somebody else's tool is to retry, and says what it saw.
//!
//! ```text
//!   driver (cli, http, mcp)   runs the tool, counts effects outside of it      -> what was seen
//!   judge  (pure)             what was seen                                    -> one finding per criterion
//!   rubric (pure)             findings                                         -> a score from 0 to 3, and what raises it
//!   render (pure)             a report                                         -> Markdown, JUnit XML
//! ```
//!
//! What a tool claims is read only to find out how to call it. The score rests on what its calls were seen to do, and
//! what was not measured counts for nothing. Nothing here depends on the ledger: any tool can be measured.
//!
//! ```
//! use oncely_score::{Finding, Status, rubric};
//!
//! let seen = vec![Finding::new("dry_run", Status::Holds, "count 3 before and after")];
//! let report = rubric::CLI.report("tool create-order".to_owned(), seen);
//! assert_eq!((report.score, report.at_most), (1, 3));
//! ```

pub mod cli;
pub mod exec;
pub mod http;
mod intent;
pub mod limits;
pub mod mcp;
pub mod probe;
pub mod render;
mod report;
pub mod rubric;
mod words;

pub use report::{Finding, Raise, Report, Row, Status};
pub use words::split;

/// Whether anything that may change state may be called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effects {
    /// Only what can be learnt safely.
    Forbidden,
    /// The user has said that this is a place where effects may happen.
    Allowed,
}

/// Why nothing could be measured.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// What was asked for makes no sense.
    #[error("{0}")]
    Asked(String),
    /// The tool, the server or the count could not be used.
    #[error("{0}")]
    Measuring(String),
}

impl Error {
    pub(crate) fn asked(message: impl Into<String>) -> Self {
        Self::Asked(message.into())
    }

    pub(crate) fn measuring(message: impl Into<String>) -> Self {
        Self::Measuring(message.into())
    }
}
