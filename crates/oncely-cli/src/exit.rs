//! Exit codes, and failures that carry one.

use std::process::ExitCode;

use oncely_core::{StoreError, StoreErrorKind};
use oncely_doors::envelope::Envelope;
use oncely_doors::exit::INTERNAL;
pub use oncely_doors::exit::{CONFLICT, IN_PROGRESS, PRECONDITION, STORE_UNAVAILABLE, UNKNOWN, USAGE};

/// Why a command ends without doing what it was asked.
#[derive(Debug)]
pub struct Failure {
    /// The exit code.
    pub exit: u8,
    /// What is said, on standard error as text or on standard output as JSON.
    pub envelope: Box<Envelope>,
}

impl Failure {
    /// A failure with its code, for programs and people.
    pub fn new(exit: u8, code: &str, message: impl Into<String>) -> Self {
        Self::of(exit, Envelope::failed(code, message, false))
    }

    /// A failure with an envelope of its own.
    pub fn of(exit: u8, envelope: Envelope) -> Self {
        Self { exit, envelope: Box::new(envelope) }
    }

    /// Bad arguments.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(USAGE, "BAD_ARGUMENTS", message)
    }

    /// A fault of ours.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(INTERNAL, "INTERNAL", message)
    }

    /// Adds the exact command to run.
    pub fn with_fix(mut self, fix: impl Into<String>) -> Self {
        if let Some(error) = &mut self.envelope.error {
            error.fix = Some(fix.into());
        }
        self
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        let exit = if error.kind == StoreErrorKind::BadAddress { USAGE } else { STORE_UNAVAILABLE };
        let message = format!("the ledger cannot be used: {error}");
        Self::of(exit, Envelope::failed("STORE_UNAVAILABLE", message, exit == STORE_UNAVAILABLE))
    }
}

impl From<oncely::Error> for Failure {
    fn from(error: oncely::Error) -> Self {
        let exit = match &error {
            oncely::Error::Store(_) | oncely::Error::Overloaded { .. } => STORE_UNAVAILABLE,
            _ => USAGE,
        };
        Self::of(exit, Envelope::failed(error.code(), error.to_string(), error.is_retryable()))
    }
}

/// Prints clap's own message, in clap's own way, with our exit code.
pub fn of_usage(error: &clap::Error) -> ExitCode {
    // Nothing can be done about a closed standard error.
    let _ = error.print();
    if error.use_stderr() { ExitCode::from(USAGE) } else { ExitCode::SUCCESS }
}
