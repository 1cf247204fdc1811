//! Lanes: a thread for every core, and on each of them everything that a request needs.
//!
//! A connection stays on the thread that it was given to, and so do its requests, their effects and the connections to
//! the services. Nothing is stolen from a neighbour and no other core is woken on the way of a request, which costs more
//! than all the rest of it. A lane is a runtime with one worker: others, such as the ledger's thread, wake it only when it
//! sleeps.

use std::future::Future;
use std::num::NonZeroUsize;
use std::sync::Arc;

use tokio::runtime::{Builder, Runtime};

use super::config::THREADS_MAX;
use super::handle::Gateway;

/// The threads that serve, each with a gateway of its own. What runs on them ends when this is dropped.
pub struct Lanes(Vec<Lane>);

/// One of them.
pub(super) struct Lane {
    runtime: Runtime,
    gateway: Arc<Gateway>,
}

impl Lanes {
    /// How many there should be where nobody says it: one for every core that this process may use.
    pub fn wanted() -> usize {
        std::thread::available_parallelism().map_or(1, NonZeroUsize::get).min(THREADS_MAX)
    }

    /// Starts a thread for each of these gateways.
    pub fn start(gateways: impl IntoIterator<Item = Gateway>) -> std::io::Result<Self> {
        let mut lanes = Self(Vec::new());
        for gateway in gateways {
            let mut builder = Builder::new_multi_thread();
            let runtime = builder.worker_threads(1).thread_name("oncely-lane").enable_all().build()?;
            lanes.0.push(Lane { runtime, gateway: Arc::new(gateway) });
        }
        Ok(lanes)
    }

    /// The lane with the fewest connections that are not at rest, and of those with as few the one with the fewest at all;
    /// none if there is no lane.
    pub(super) fn emptiest(&self) -> Option<&Lane> {
        self.0.iter().min_by_key(|lane| {
            let counters = lane.gateway.counters();
            (counters.awake(), counters.opened())
        })
    }
}

impl Lane {
    pub(super) fn gateway(&self) -> &Arc<Gateway> {
        &self.gateway
    }

    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.runtime.spawn(task);
    }
}

impl Drop for Lanes {
    fn drop(&mut self) {
        for lane in self.0.drain(..) {
            // A runtime that is waited for must not be dropped where waiting is not allowed.
            lane.runtime.shutdown_background();
        }
    }
}
