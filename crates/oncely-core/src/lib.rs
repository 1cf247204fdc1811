//! The pure heart of Oncely: no async runtime, no clock, no I/O, no environment.
//!
//! A map of the rooms:
//!
//! - [`name`]: who an intent is: namespace, scope, tool, key, and the [`IntentId`] made of them.
//! - [`canonical`], [`select`], [`fingerprint`]: what a payload *means*, independent of its spelling.
//! - [`outcome`]: the three outcomes of an attempt, and effects.
//! - [`record`]: what is remembered of one intent.
//! - [`policy`], [`limits`]: what a tool declares, and every constant.
//! - [`machine`]: `step(record, event, now) -> Transition`: the only place with state rules.
//! - [`store`]: the contract that every ledger keeps; [`audit`] and [`tally`]: what it writes beside records; [`gate`]:
//!   whether it takes writes; [`health`]: whether it is reached; [`within`]: the same inside the caller's transaction.
//!
//! ```
//! use oncely_core::{Fingerprint, IntentName, Key, Namespace, Scope, ToolName};
//!
//! let name = IntentName {
//!     namespace: Namespace::default(),
//!     scope: Scope::none(),
//!     tool: ToolName::parse("charge_payment")?,
//!     key: Key::explicit("order-42")?,
//! };
//! // The id depends on every part, and on nothing else.
//! assert_eq!(name.intent_id(), name.clone().intent_id());
//!
//! // Spelling does not matter to a fingerprint, meaning does.
//! let a = Fingerprint::of_json(br#"{"amount": 1.0, "to": "a"}"#)?;
//! let b = Fingerprint::of_json(br#"{"to":"\u0061","amount":1}"#)?;
//! assert!(a.matches(&b));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod audit;
pub mod canonical;
pub mod fingerprint;
mod forward;
pub mod gate;
pub mod health;
pub mod limits;
pub mod machine;
pub mod name;
pub mod outcome;
pub mod owner;
pub mod policy;
pub mod record;
pub mod select;
pub mod store;
pub mod tally;
pub mod within;

pub use audit::{Event, EventKind, LoggedEvent};
pub use fingerprint::{Digest, Fingerprint};
pub use gate::{Gate, Import, Move};
pub use health::{Link, StoreHealth};
pub use name::{DownstreamKey, IntentId, IntentName, Key, KeyOrigin, NameError, Namespace, Scope, ToolName};
pub use outcome::{Doubt, DoubtCause, Effect, Failure, Outcome, Payload};
pub use owner::{AttemptToken, Liveness, Owner, ProcessId};
pub use policy::{Cost, Kind, Matching, Policy, WhenUnknown};
pub use record::{Body, Draft, Millis, Record, Retention, Settled, Stamp, State, StateName, Version};
pub use store::{
    Change, Created, Filter, LogQuery, Page, PurgeReport, Replaced, Store, StoreError, StoreErrorKind,
    StoreFuture, Stored, Unreadable, Wrote,
};
pub use tally::{Counter, Tally};
pub use within::Within;
