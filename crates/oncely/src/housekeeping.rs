//! Housekeeping: what is past its retention is dropped a little at a time, so that nobody has to remember to do it.

use std::sync::Arc;
use std::time::Duration;

use oncely_core::{AttemptToken, PurgeReport, StoreError};

use crate::claim::OpenPlace;
use crate::engine::Oncely;

/// One attempt in so many tidies up after itself. Chosen by the attempt's random token, so that short-lived processes
/// share the work as well as long-lived ones.
const ONE_IN: u8 = 64;
/// Steps that such an attempt takes at most: more than the attempts in between have left behind.
const STEPS: u32 = 8;
/// Records that one step looks at: small, so that calls are not held up.
const STEP: usize = 20;
/// Pause between steps, for the same reason.
const PAUSE: Duration = Duration::from_millis(5);

/// What a purge did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Purged {
    /// Results dropped; their keys are still known.
    pub results_dropped: u64,
    /// Records removed.
    pub records_removed: u64,
    /// Audit events removed.
    pub events_removed: u64,
}

impl Oncely {
    /// Drops everything that is due, in small steps; `progress` hears after each. Calls go on meanwhile.
    pub async fn purge(&self, mut progress: impl FnMut(&Purged)) -> Result<Purged, StoreError> {
        let _one = self.inner.purging.lock().await;
        let mut total = Purged::default();
        while self.purge_step(&mut total).await? {
            progress(&total);
            tokio::time::sleep(PAUSE).await;
        }
        progress(&total);
        Ok(total)
    }

    async fn purge_step(&self, total: &mut Purged) -> Result<bool, StoreError> {
        let PurgeReport { results_dropped, records_removed, events_removed, more } =
            self.store().purge(STEP).await?;
        total.results_dropped += results_dropped;
        total.records_removed += records_removed;
        total.events_removed += events_removed;
        Ok(more)
    }

    /// Tidies up in the background if it is this attempt's turn. A drain waits for it; a failure is no one's concern,
    /// the next one in turn tries again.
    pub(crate) fn tidy_after(&self, token: AttemptToken) {
        if !token.0[0].is_multiple_of(ONE_IN) {
            return;
        }
        let Ok(place) = OpenPlace::take(&self.inner) else { return };
        let oncely = Self { inner: Arc::clone(&self.inner) };
        tokio::spawn(async move {
            let _place = place;
            // One at a time: several would hold up calls that none of them holds up alone.
            let Ok(_one) = oncely.inner.purging.try_lock() else { return };
            let mut total = Purged::default();
            for _ in 0..STEPS {
                if !matches!(oncely.purge_step(&mut total).await, Ok(true)) {
                    break;
                }
                tokio::time::sleep(PAUSE).await;
            }
        });
    }
}
