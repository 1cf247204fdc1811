//! Exit codes, and failures that carry one.

use std::process::ExitCode;

use oncely_core::{StoreError, StoreErrorKind};
use oncely_doors::envelope::Envelope;

/// Bad arguments, a bad name, a bad payload or a bad policy file; nothing ran.
pub const USAGE: u8 = 2;
/// A precondition does not hold; nothing ran.
pub const PRECONDITION: u8 = 4;
/// The key was used for another payload; nothing ran.
pub const CONFLICT: u8 = 6;
/// The ledger cannot be used; nothing ran.
pub const STORE_UNAVAILABLE: u8 = 12;
/// An attempt is under way elsewhere; nothing ran here.
pub const IN_PROGRESS: u8 = 15;
/// The outcome of an earlier attempt is unknown; nothing ran.
pub const UNKNOWN: u8 = 16;
/// Something is wrong with oncely itself.
const INTERNAL: u8 = 70;

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
