//! Which server is the primary now: of several that call themselves so, the one that was promoted last.

use tokio::sync::watch;

/// The newest timeline that was met. It grows with every promotion; on an older one nothing counts any more.
#[derive(Debug, Default)]
pub(crate) struct Newest(watch::Sender<u64>);

impl Newest {
    /// Takes note of a primary's timeline; answers which was the newest before, 0 for none.
    pub(crate) fn met(&self, timeline: u64) -> u64 {
        let mut before = 0;
        self.0.send_if_modified(|newest| {
            before = *newest;
            *newest = before.max(timeline);
            *newest > before
        });
        before
    }

    /// Whether another server has taken over from one on this timeline.
    pub(crate) fn is_past(&self, timeline: u64) -> bool {
        timeline < *self.0.borrow()
    }

    /// Returns when another server has taken over from one on this timeline.
    pub(crate) async fn passes(&self, timeline: u64) {
        // The sender is here, so that it does not end without that.
        let _ = self.0.subscribe().wait_for(|newest| timeline < *newest).await;
    }
}

#[cfg(test)]
mod tests {
    use super::Newest;

    #[tokio::test]
    async fn whoever_waits_for_a_newer_one_is_told_and_an_older_one_changes_nothing() {
        let newest = Newest::default();
        assert_eq!((newest.met(2), newest.met(1)), (0, 2));
        assert_eq!((newest.is_past(1), newest.is_past(2)), (true, false));
        newest.passes(1).await;
        let ((), before) = tokio::join!(newest.passes(2), async { newest.met(3) });
        assert_eq!((before, newest.is_past(2)), (2, true));
    }
}
