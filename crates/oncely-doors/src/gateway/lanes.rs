//! Lanes: a thread for every core, and on each of them everything that a request needs.
//!
//! A connection stays on the thread that it was given to, and so do its requests, their effects and the connections to
//! the services. Nothing is stolen from a neighbour and no other core is woken on the way of a request, which costs more
//! than all the rest of it. A lane is a runtime without a pool: a bare proxy takes a tenth less of the processor on one than
//! on a pool's only worker.

use std::future::Future;
use std::num::NonZeroUsize;
use std::sync::Arc;

use tokio::runtime::{Builder, Handle};
use tokio::sync::watch;

use super::config::THREADS_MAX;
use super::courtesy::Courtesy;
use super::handle::Gateway;

/// The threads that serve, each with a gateway of its own. What runs on them ends when this is dropped.
pub struct Lanes {
    lanes: Vec<Lane>,
    /// Dropped when they shall end.
    _going: watch::Sender<()>,
}

/// One of them.
pub(super) struct Lane {
    runtime: Handle,
    gateway: Arc<Gateway>,
}

impl Lanes {
    /// How many there should be where nobody says it: one for every core that this process may use.
    pub fn wanted() -> usize {
        std::thread::available_parallelism().map_or(1, NonZeroUsize::get).min(THREADS_MAX)
    }

    /// Starts a thread for each of these gateways, and `beside` on each of them.
    pub fn start<F>(
        gateways: impl IntoIterator<Item = Gateway>,
        beside: impl Fn() -> F,
    ) -> std::io::Result<Self>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (going, ended) = watch::channel(());
        let mut lanes = Vec::new();
        for gateway in gateways {
            let courtesy = Courtesy::new(gateway.counters().clone());
            let runtime = Builder::new_current_thread()
                .enable_all()
                .on_thread_park(move || courtesy.offer())
                .build()?;
            let (alert, beside, mut ended) = (gateway.alert().clone(), beside(), ended.clone());
            lanes.push(Lane { runtime: runtime.handle().clone(), gateway: Arc::new(gateway) });
            std::thread::Builder::new().name("oncely-lane".to_owned()).spawn(move || {
                runtime.block_on(async move {
                    tokio::spawn(alert.look());
                    tokio::spawn(beside);
                    // An error is what it waits for: nobody wants it to go on.
                    while ended.changed().await.is_ok() {}
                });
                // What is still running is not waited for.
                runtime.shutdown_background();
            })?;
        }
        Ok(Self { lanes, _going: going })
    }

    /// The lane with the fewest connections that are not at rest, and of those with as few the one with the fewest at all;
    /// none if there is no lane.
    pub(super) fn emptiest(&self) -> Option<&Lane> {
        self.lanes.iter().min_by_key(|lane| {
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
