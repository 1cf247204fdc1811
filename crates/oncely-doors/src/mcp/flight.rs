//! A client's request that we answer: where it stands, and whether the client still wants to know.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// A request on its way.
#[derive(Default)]
pub struct Flight {
    /// The id of ours under which it was sent.
    sent_as: Mutex<Option<String>>,
    cancelled: AtomicBool,
    forwards_cancel: AtomicBool,
    changed: Notify,
}

impl Flight {
    fn sent_as(&self) -> MutexGuard<'_, Option<String>> {
        self.sent_as.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that it is about to be sent; `false` if the client has cancelled it.
    pub fn launch(&self, id: &str) -> bool {
        // Under the lock, so that a cancellation finds either an id or nothing sent.
        let mut sent_as = self.sent_as();
        if self.is_cancelled() {
            return false;
        }
        *sent_as = Some(id.to_owned());
        true
    }

    /// The client does not want it any more. Says under which id of ours it was sent, if it was.
    pub fn cancel(&self) -> Option<String> {
        let sent_as = self.sent_as();
        self.cancelled.store(true, Ordering::Release);
        self.changed.notify_waiters();
        sent_as.clone()
    }

    /// Its cancellation is passed on to the server.
    pub fn forward_cancel(&self) {
        self.forwards_cancel.store(true, Ordering::Release);
    }

    /// Whether its cancellation is passed on to the server.
    pub fn forwards_cancel(&self) -> bool {
        self.forwards_cancel.load(Ordering::Acquire)
    }

    /// Whether the client does not want it any more.
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Acquire)
    }

    /// Waits until the client does not want it any more.
    pub async fn cancelled(&self) {
        loop {
            let changed = self.changed.notified();
            if self.is_cancelled() {
                return;
            }
            changed.await;
        }
    }
}
