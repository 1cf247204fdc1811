//! How many are at work, for whoever waits until nobody is.

use tokio::sync::watch;
use tokio::time::{Duration, timeout};

/// A count of what is at work.
pub(super) struct Busy(watch::Sender<usize>);

impl Default for Busy {
    fn default() -> Self {
        Self(watch::Sender::new(0))
    }
}

impl Busy {
    /// One more is at work. Nobody waits for that.
    pub(super) fn begin(&self) {
        self.0.send_if_modified(|count| {
            *count += 1;
            false
        });
    }

    /// One less is.
    pub(super) fn end(&self) {
        self.0.send_if_modified(|count| {
            *count -= 1;
            *count == 0
        });
    }

    /// Whether anything is.
    pub(super) fn is_any(&self) -> bool {
        *self.0.borrow() > 0
    }

    /// Waits until nothing is at work, at most for so long. Says whether that was reached.
    pub(super) async fn is_idle_within(&self, patience: Duration) -> bool {
        timeout(patience, self.0.subscribe().wait_for(|count| *count == 0)).await.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_waits_hears_of_the_last_end_and_not_before() {
        let busy = Arc::new(Busy::default());
        let moment = Duration::from_millis(1);
        assert!(!busy.is_any() && busy.is_idle_within(moment).await);
        busy.begin();
        busy.begin();
        let waiting = tokio::spawn({
            let busy = Arc::clone(&busy);
            async move { busy.is_idle_within(Duration::from_secs(60)).await }
        });
        tokio::task::yield_now().await;
        busy.end();
        assert!(busy.is_any() && !busy.is_idle_within(moment).await && !waiting.is_finished());
        busy.end();
        assert!(waiting.await.is_ok_and(|reached| reached));
    }
}
