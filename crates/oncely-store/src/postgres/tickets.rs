//! Tells when all that was asked for before a moment is done.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// The requests that are out, counted by the epoch in which they were taken in.
#[derive(Default)]
pub(crate) struct Tickets {
    out: Mutex<(u64, BTreeMap<u64, usize>)>,
    done: Notify,
}

/// Held by a request until its answer is known.
pub(crate) struct Ticket {
    tickets: Arc<Tickets>,
    epoch: u64,
}

impl Tickets {
    /// One for a request that is taken in.
    pub(crate) fn draw(tickets: &Arc<Self>) -> Ticket {
        let mut out = tickets.lock();
        let epoch = out.0;
        *out.1.entry(epoch).or_default() += 1;
        drop(out);
        Ticket { tickets: Arc::clone(tickets), epoch }
    }

    /// Returns when all that have been drawn so far are back.
    pub(crate) async fn all_back(&self) {
        let before = self.next_epoch();
        loop {
            let done = self.done.notified();
            tokio::pin!(done);
            done.as_mut().enable();
            if self.are_back(before) {
                return;
            }
            done.await;
        }
    }

    /// Begins a new epoch; answers the one that ends.
    fn next_epoch(&self) -> u64 {
        let mut out = self.lock();
        out.0 += 1;
        out.0 - 1
    }

    fn are_back(&self, up_to: u64) -> bool {
        self.lock().1.range(..=up_to).next().is_none()
    }

    fn lock(&self) -> MutexGuard<'_, (u64, BTreeMap<u64, usize>)> {
        self.out.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut out = self.tickets.lock();
        let last = match out.1.get_mut(&self.epoch) {
            Some(count) if *count > 1 => {
                *count -= 1;
                false
            }
            _ => out.1.remove(&self.epoch).is_some(),
        };
        drop(out);
        if last {
            self.tickets.done.notify_waiters();
        }
    }
}
