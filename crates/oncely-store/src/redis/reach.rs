//! Whether one server is reached: counted where connections are made and lost, told in metrics.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use oncely_core::{Link, StoreError, StoreErrorKind, StoreHealth};

use super::router::Router;

/// How a connection has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// It broke, or was closed by the server.
    Broken,
    /// It is of no use any more, and others are.
    GivenUp,
}

/// What is known of the connections to one server.
#[derive(Default)]
pub(crate) struct Reach {
    connected: AtomicUsize,
    /// Connections that broke, and have no other in their place yet.
    broken: AtomicU64,
    reconnects: AtomicU64,
    /// Since when there is no connection, and what happened last.
    lost: Mutex<Option<(Instant, StoreError)>>,
}

impl Reach {
    /// A connection was made.
    pub(crate) fn gained(&self) {
        self.connected.fetch_add(1, Ordering::Relaxed);
        let replaces = |broken: u64| broken.checked_sub(1);
        if self.broken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, replaces).is_ok() {
            self.reconnects.fetch_add(1, Ordering::Relaxed);
        }
        *self.lock() = None;
    }

    /// A connection has ended: it broke, or it was given up. Whether it was the last one that broke.
    pub(crate) fn ended(&self, how: End) -> bool {
        let was_last = self.connected.fetch_sub(1, Ordering::Relaxed) == 1;
        self.broken.fetch_add(u64::from(how == End::Broken), Ordering::Relaxed);
        how == End::Broken && was_last
    }

    /// The last connection broke while it was in use.
    pub(crate) fn lost(&self, why: String) {
        self.failed(&StoreError::before(StoreErrorKind::Unavailable, why));
    }

    /// No connection could be made.
    pub(crate) fn failed(&self, error: &StoreError) {
        if self.connected.load(Ordering::Relaxed) == 0 {
            let mut lost = self.lock();
            let since = lost.as_ref().map_or_else(Instant::now, |(since, _)| *since);
            *lost = Some((since, error.clone()));
        }
    }

    /// Whether there is a connection.
    pub(crate) fn is_connected(&self) -> bool {
        self.connected.load(Ordering::Relaxed) > 0
    }

    fn link(&self) -> Link {
        match self.lock().as_ref() {
            Some((since, error)) => Link::lost(error, since.elapsed()),
            None => Link::Connected,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<(Instant, StoreError)>> {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Router {
    /// How the way to the servers is: as bad as that to the one that has been away for longest.
    pub(crate) fn health(&self) -> StoreHealth {
        let queue_max = self.dialer.options.queue_max;
        let mut all = StoreHealth {
            link: Link::Connected,
            connected: 0,
            reconnects: 0,
            queued: 0,
            queue_max,
            hears: true,
        };
        for (node, serves) in self.nodes() {
            let reach = &node.reach;
            all.connected += reach.connected.load(Ordering::Relaxed);
            all.reconnects += reach.reconnects.load(Ordering::Relaxed);
            all.queued += node.len();
            let link = reach.link();
            // A server that was replaced is not missed.
            if serves && link.down_for() > all.link.down_for() {
                all.link = link;
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::{End, Reach};
    use oncely_core::{StoreError, StoreErrorKind};
    use std::sync::atomic::Ordering;

    #[test]
    fn a_server_is_missed_from_its_last_connection_on_until_the_next_one() {
        let reach = Reach::default();
        let word = || reach.link().as_str();
        assert_eq!(word(), "connected", "nobody has asked for it yet");
        reach.gained();
        reach.gained();
        assert!(!reach.ended(End::Broken), "there is another one");
        assert!(reach.ended(End::Broken));
        assert_eq!(word(), "connected", "an idle connection is closed by many, and proves nothing");
        reach.lost("closed".into());
        assert_eq!(word(), "reconnecting");
        let since = reach.link().down_for();
        reach.failed(&StoreError::before(StoreErrorKind::Unsuitable, "appendonly is no"));
        assert_eq!(word(), "refused");
        assert!(reach.link().down_for() >= since, "it counts from the loss on");
        reach.gained();
        assert_eq!((word(), reach.reconnects.load(Ordering::Relaxed)), ("connected", 1));
        assert!(!reach.ended(End::GivenUp), "it was not lost, but given up");
        assert_eq!(word(), "connected");
    }
}
