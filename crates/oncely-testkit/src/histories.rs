//! Recorded histories of a ledger: several clients at once on a few records, everything asked and answered written down,
//! and then a search for an order in which it could all have happened one after the other.
//!
//! That is linearizability, the strongest thing that can be said of a register: every answer fits one order, and the order
//! keeps what came before what. An answer that never came is a write that may take effect at any time later, or never; an
//! error that says [`Wrote::No`](oncely_core::Wrote::No) is one that must not.
//!
//! ```
//! use std::sync::Arc;
//! use oncely_testkit::histories::{Plan, record};
//! use oncely_testkit::reference::Reference;
//!
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! let store = Arc::new(Reference::new());
//! let history = record(&[store], Plan { seed: 7, ..Plan::default() }).await;
//! history.check().expect("the reference is linearizable");
//! # });
//! ```

mod client;
mod linear;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use oncely_core::{IntentId, IntentName, Key, Namespace, Scope, Store, ToolName};

use crate::sim::Rng;

/// What to record.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// Everything that clients choose follows from it.
    pub seed: u64,
    /// Records: few, so that clients meet.
    pub keys: usize,
    /// Clients of each handle on the ledger.
    pub clients: usize,
    /// Operations of each client.
    pub operations: usize,
    /// The longest pause of a client between two operations.
    pub pause: Duration,
    /// How long an answer is awaited. One that comes later is as one that never came.
    pub patience: Duration,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            seed: 1,
            keys: 3,
            clients: 3,
            operations: 60,
            pause: Duration::ZERO,
            patience: Duration::from_secs(60),
        }
    }
}

/// What a ledger showed of a record: the token of its latest write, and its version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Seen {
    token: u64,
    version: u64,
}

/// What was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    Create { token: u64 },
    Load,
    Put { from: Seen, token: u64 },
    Remove { from: Seen },
}

/// What was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Said {
    /// The write was done; what is there now.
    Done(Option<Seen>),
    /// Nothing was written; what is there.
    Found(Option<Seen>),
    /// An error that says that nothing was written.
    Refused,
    /// An error that says nothing, or none at all.
    Nothing,
}

/// One operation. The stamps are in the order of real time.
#[derive(Debug, Clone, Copy)]
struct Operation {
    client: usize,
    key: usize,
    invoked: u64,
    answered: u64,
    asked: Asked,
    said: Said,
}

/// Everything that was asked and answered.
#[derive(Debug)]
pub struct History {
    seed: u64,
    keys: usize,
    operations: Vec<Operation>,
}

/// Why a history cannot have happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Impossible(pub String);

impl fmt::Display for Impossible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Impossible {}

/// Records the history of clients on these handles, which are all on one ledger.
pub async fn record(stores: &[Arc<dyn Store>], plan: Plan) -> History {
    let stamps = Arc::new(AtomicU64::new(1));
    let names = (0..plan.keys).map(|key| name_of(plan.seed, key)).collect::<Vec<_>>();
    let mut clients = Vec::new();
    for (number, store) in stores.iter().flat_map(|s| vec![s; plan.clients]).enumerate() {
        let rng = Rng::split(plan.seed, number as u64);
        let client = client::Client::new(number, store.clone(), names.clone(), stamps.clone(), rng, plan);
        clients.push(tokio::spawn(client.run()));
    }
    let mut operations = Vec::new();
    for client in clients {
        // A client that panicked has no history; the ledger under test made it panic, and that shows as a panic.
        operations.extend(client.await.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic())));
    }
    History { seed: plan.seed, keys: plan.keys, operations }
}

impl History {
    /// Looks for an order in which all this could have happened; if there is none, says for which record.
    pub fn check(&self) -> Result<(), Impossible> {
        for key in 0..self.keys {
            let of_key: Vec<Operation> =
                self.operations.iter().filter(|operation| operation.key == key).copied().collect();
            linear::check(&of_key)
                .map_err(|why| Impossible(format!("seed {}, record {key}: {why}", self.seed)))?;
        }
        Ok(())
    }

    /// How many operations there were.
    pub fn len(&self) -> usize {
        self.operations.len()
    }

    /// Whether there were none.
    pub fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    /// How many writes were acknowledged.
    pub fn writes(&self) -> usize {
        self.operations.iter().filter(|operation| matches!(operation.said, Said::Done(_))).count()
    }

    /// How many operations got no answer that says anything.
    pub fn unanswered(&self) -> usize {
        self.operations.iter().filter(|operation| operation.said == Said::Nothing).count()
    }

    /// How many operations were refused with certainty that nothing was written.
    pub fn refused(&self) -> usize {
        self.operations.iter().filter(|operation| operation.said == Said::Refused).count()
    }
}

/// The names cannot be refused: they are short and plain.
fn name_of(seed: u64, key: usize) -> Option<(IntentId, IntentName)> {
    let name = IntentName {
        namespace: Namespace::parse("histories").ok()?,
        scope: Scope::none(),
        tool: ToolName::parse("register").ok()?,
        key: Key::explicit(&format!("{seed}-{key}")).ok()?,
    };
    Some((name.intent_id(), name))
}

fn stamp(stamps: &AtomicU64) -> u64 {
    stamps.fetch_add(1, Ordering::SeqCst)
}
