//! Makes side effects safe to retry: remembers each intent durably before it acts, replays the first result to
//! duplicates, refuses a key reused for something else, and says *unknown* where others guess.
//!
//! ```
//! use oncely::{Answer, Oncely, outcome};
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let oncely = Oncely::new(oncely_store::open("memory:").await?);
//!
//! for _ in 0..2 {
//!     let answer = oncely
//!         .tool("charge_payment")
//!         .scope("task-7")
//!         .key("order-42")
//!         .payload(&serde_json::json!({ "customer": "cust_123", "amount": 99.99 }))
//!         .run(|attempt| async move {
//!             // Pass attempt.downstream_key() on to a provider that de-duplicates by it.
//!             outcome::created(&serde_json::json!({ "charge": format!("ch_{}", attempt.number()) }))
//!         })
//!         .await?;
//!     match answer {
//!         Answer::Executed(execution) => assert!(execution.succeeded()),
//!         Answer::Replayed(replay) => assert_eq!(replay.result(), Some(&br#"{"charge":"ch_1"}"#[..])),
//!         other => panic!("{other:?}"),
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! A map of the rooms:
//!
//! - [`Oncely`] (`engine`): interprets the transitions of [`oncely_core::machine`] against a [`Store`].
//! - [`CallBuilder`] (`call`): reads like a sentence; [`CallBuilder::run`] (`run`) executes an effect in its own task.
//! - [`Attempt`] (`attempt`): permission to run one effect: the lower level for bindings and doors.
//! - [`Answer`], [`Forecast`], [`Error`]: what a caller is told.
//! - [`RemoteClaim`] (`remote`): an attempt that somebody outside of this process makes, known by a lease alone.
//! - [`Observer`] (`observe`): hears what an engine does, for metrics.
//! - [`outcome`]: how an effect says how it went.
//! - [`within`]: one transaction with the caller's own data.
//! - [`transfer`]: moves a ledger to another place, without any key being claimed in both.
//! - [`redact`]: what is taken out of results before they are stored.
//! - [`policy_file`]: what tools declare, read from `oncely.toml`.
//! - `tower`, with the feature of that name: the HTTP layer.
//!
//! The library never prints and never reads the environment.

/// The program in the README compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

mod answer;
mod attempt;
mod call;
mod claim;
mod disown;
mod engine;
mod error;
mod forecast;
mod housekeeping;
mod inspect;
mod known;
mod observe;
pub mod outcome;
pub mod policy_file;
pub mod redact;
mod remote;
mod run;
#[cfg(feature = "tower")]
pub mod tower;
pub mod transfer;
mod unstoppable;
pub mod within;

pub use answer::{Answer, Execution, Forecast, InProgress, Replay, Unrecorded, Unresolved};
pub use attempt::{Attempt, AttemptInfo};
pub use call::{Call, CallBuilder, Holds, Probe};
pub use engine::{Begun, Oncely};
pub use error::Error;
pub use housekeeping::Purged;
pub use inspect::ResolveError;
pub use observe::{AnswerKind, Observer, StoreOp};
pub use oncely_core as core;
pub use oncely_core::{
    Effect, IntentId, Key, Namespace, Outcome, Policy, Record, Scope, StateName, Store, StoreError, ToolName,
    machine::Finding,
};
pub use remote::{RemoteBegun, RemoteClaim, RemoteEnd};
