//! What a handler says: what it changed, or that nothing happened, or that it cannot tell. The type makes it choose.

use std::fmt::Display;

use oncely::Effect;

/// What a handler returns: what it changed, or a fault that says whether anything happened.
pub type Answer<D> = Result<Changed<D>, Fault>;

/// What a handler changed; made by [`created`], [`updated`], [`deleted`], [`sent`], [`executed`], [`noop`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changed<D> {
    pub(crate) effect: Effect,
    pub(crate) data: Option<D>,
    pub(crate) reason: Option<String>,
}

/// Why a handler did not do what it was asked. There is no conversion from other errors: only the author knows whether
/// anything can have happened when one occurs.
///
/// ```compile_fail,E0277
/// fn send() -> oncely_clap::Answer<()> {
///     std::fs::write("/dev/full", "hello")?; // Did it happen? Say .or_rejected("CODE")? or .or_unknown()?
///     oncely_clap::sent(())
/// }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// It is certain that nothing happened: a later call may run it again.
    Rejected {
        /// UPPER_SNAKE, for programs.
        code: String,
        /// For people.
        message: String,
    },
    /// It may have happened: it is never started again by itself.
    Unknown {
        /// What is known.
        message: String,
    },
}

/// Something new exists.
pub fn created<D>(data: D) -> Answer<D> {
    changed(Effect::Created, data)
}

/// Something changed.
pub fn updated<D>(data: D) -> Answer<D> {
    changed(Effect::Updated, data)
}

/// Something is gone.
pub fn deleted<D>(data: D) -> Answer<D> {
    changed(Effect::Deleted, data)
}

/// A message left.
pub fn sent<D>(data: D) -> Answer<D> {
    changed(Effect::Sent, data)
}

/// Something ran; what it changed is not known more closely.
pub fn executed<D>(data: D) -> Answer<D> {
    changed(Effect::Executed, data)
}

/// Nothing had to change, and why.
pub fn noop<D>(reason: impl Into<String>) -> Answer<D> {
    Ok(Changed { effect: Effect::Noop, data: None, reason: Some(reason.into()) })
}

/// Nothing had to change, why, and what is there.
pub fn noop_with<D>(reason: impl Into<String>, data: D) -> Answer<D> {
    Ok(Changed { effect: Effect::Noop, data: Some(data), reason: Some(reason.into()) })
}

fn changed<D>(effect: Effect, data: D) -> Answer<D> {
    Ok(Changed { effect, data: Some(data), reason: None })
}

/// It is certain that nothing happened.
pub fn rejected(code: impl Into<String>, message: impl Into<String>) -> Fault {
    Fault::Rejected { code: code.into(), message: message.into() }
}

/// It may have happened.
pub fn unknown(message: impl Into<String>) -> Fault {
    Fault::Unknown { message: message.into() }
}

/// Says of an error whether anything can have happened.
///
/// ```
/// use oncely_clap::{Fault, OrFault};
///
/// fn parse(text: &str) -> Result<u32, Fault> {
///     // Nothing has been sent yet.
///     text.parse::<u32>().or_rejected("BAD_NUMBER")
/// }
/// assert!(matches!(parse("x"), Err(Fault::Rejected { .. })));
/// ```
pub trait OrFault<T> {
    /// It is certain that nothing happened.
    fn or_rejected(self, code: &str) -> Result<T, Fault>;
    /// It may have happened.
    fn or_unknown(self) -> Result<T, Fault>;
}

impl<T, E: Display> OrFault<T> for Result<T, E> {
    fn or_rejected(self, code: &str) -> Result<T, Fault> {
        self.map_err(|error| rejected(code, error.to_string()))
    }

    fn or_unknown(self) -> Result<T, Fault> {
        self.map_err(|error| unknown(error.to_string()))
    }
}

/// Whether the wished state holds already, or an attempt has happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Check<D> {
    /// It does; this is what is there.
    Holds(D),
    /// It does not: acting is called for.
    Missing,
    /// It cannot be told, and why: then nothing runs.
    Unsure(String),
}

impl<D> From<Option<D>> for Check<D> {
    fn from(found: Option<D>) -> Self {
        found.map_or(Self::Missing, Self::Holds)
    }
}

/// A check that failed cannot tell.
impl<D, E: Display> From<Result<Option<D>, E>> for Check<D> {
    fn from(found: Result<Option<D>, E>) -> Self {
        match found {
            Ok(found) => found.into(),
            Err(error) => Self::Unsure(error.to_string()),
        }
    }
}

/// Check, then act: answers `noop` if the wished state holds, and acts only if it does not.
///
/// A check that cannot tell is a rejection: nothing happened. Where nobody else undoes what the act did (an order that is
/// deleted stays so), declare the command [`idempotent`](crate::Declaration::idempotent): a retry after an unknown
/// outcome then looks first and acts only if it has to. Where somebody may (a release that is followed by the next), a
/// look at the state does not tell whether the attempt happened:
/// [`check_first`](crate::Declaration::check_first) by the downstream key does.
///
/// ```
/// use oncely_clap::{Check, created, ensure};
///
/// let mut shelf = vec!["a"];
/// let answer = ensure(|| shelf.iter().find(|s| **s == "a").copied().into(), || created("a"));
/// assert_eq!(answer, oncely_clap::noop_with("it is so already", "a"));
/// ```
pub fn ensure<D>(check: impl FnOnce() -> Check<D>, act: impl FnOnce() -> Answer<D>) -> Answer<D> {
    match found(check())? {
        Some(there) => there,
        None => act(),
    }
}

/// [`ensure`] for asynchronous checks and acts.
pub async fn ensure_async<D>(
    check: impl Future<Output = Check<D>>,
    act: impl AsyncFnOnce() -> Answer<D>,
) -> Answer<D> {
    match found(check.await)? {
        Some(there) => there,
        None => act().await,
    }
}

fn found<D>(check: Check<D>) -> Result<Option<Answer<D>>, Fault> {
    match check {
        Check::Holds(data) => Ok(Some(noop_with("it is so already", data))),
        Check::Missing => Ok(None),
        Check::Unsure(why) => Err(rejected(
            "CHECK_UNSURE",
            format!("whether it is so already cannot be told: {why}; nothing ran"),
        )),
    }
}

/// Why a safe command has no answer. It changes nothing, so any error converts into it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub(crate) code: String,
    pub(crate) message: String,
}

impl Failure {
    /// A failure with a code for programs (UPPER_SNAKE) and a message for people.
    pub fn new(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self { code: code.into(), message: message.into() }
    }
}

impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::new("FAILED", error.to_string())
    }
}
