//! How an effect says how it went: it happened, it certainly did not, or it may have.
//!
//! ```
//! use oncely::outcome;
//! use oncely::{Effect, Outcome};
//!
//! let outcome = outcome::sent(&"msg_1");
//! assert!(matches!(outcome, Outcome::Succeeded { effect: Effect::Sent, result: Some(_) }));
//! ```

use oncely_core::{Effect, Outcome};
use serde::Serialize;

/// Something new exists.
pub fn created(result: &(impl Serialize + ?Sized)) -> Outcome {
    succeeded(Effect::Created, result)
}

/// Something changed.
pub fn updated(result: &(impl Serialize + ?Sized)) -> Outcome {
    succeeded(Effect::Updated, result)
}

/// Something is gone.
pub fn deleted(result: &(impl Serialize + ?Sized)) -> Outcome {
    succeeded(Effect::Deleted, result)
}

/// A message left.
pub fn sent(result: &(impl Serialize + ?Sized)) -> Outcome {
    succeeded(Effect::Sent, result)
}

/// Something ran.
pub fn executed(result: &(impl Serialize + ?Sized)) -> Outcome {
    succeeded(Effect::Executed, result)
}

/// Nothing had to change.
pub fn noop(result: &(impl Serialize + ?Sized)) -> Outcome {
    succeeded(Effect::Noop, result)
}

/// It is certain that nothing happened: a later call may run it again.
pub fn rejected(code: impl Into<String>, message: impl Into<String>) -> Outcome {
    Outcome::rejected(code, message)
}

/// Nothing was even begun, such as a service that could not be reached: a later call may run it again, and that costs
/// nothing of the budget for retries.
pub fn not_started(code: impl Into<String>, message: impl Into<String>) -> Outcome {
    Outcome::not_started(code, message)
}

/// It may have happened: it is never started again by itself.
pub fn unknown(message: impl Into<String>) -> Outcome {
    Outcome::unknown(message)
}

/// The effect happened even if its result has no JSON form: it is then remembered without a result.
fn succeeded(effect: Effect, result: &(impl Serialize + ?Sized)) -> Outcome {
    match serde_json::to_vec(result) {
        Ok(bytes) => Outcome::succeeded(effect, bytes),
        Err(_) => Outcome::Succeeded { effect, result: None },
    }
}
