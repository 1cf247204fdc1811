//! How workers are woken: each has a bell, which hangs here while it has nothing to do.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::Notify;

/// What a worker waits for when there is nothing to do.
pub(crate) struct Bell {
    number: usize,
    rings: Arc<Notify>,
}

impl Bell {
    pub(crate) async fn rings(&self) {
        self.rings.notified().await;
    }
}

/// Those of the workers that have nothing to do. They are woken one at a time: who is woken takes all that may leave together,
/// and then wakes the next for what is left. To wake one for every request that comes meanwhile would pass the work around
/// among all connections, each of which has memory of its own on the server.
#[derive(Default)]
pub(crate) struct Bells {
    hung: BTreeMap<usize, Arc<Notify>>,
    handed_out: usize,
    /// Whether one was rung and its worker has not looked yet.
    rung: bool,
}

impl Bells {
    /// One more.
    pub(crate) fn hand_out(&mut self) -> Bell {
        self.handed_out += 1;
        Bell { number: self.handed_out, rings: Arc::default() }
    }

    /// Its worker has nothing to do.
    pub(crate) fn hang(&mut self, bell: &Bell) {
        self.hung.insert(bell.number, Arc::clone(&bell.rings));
    }

    /// Somebody has looked what there is to do, or whoever was to look cannot.
    pub(crate) fn looked(&mut self) {
        self.rung = false;
    }

    /// Whether a worker is on its way already.
    pub(crate) fn is_rung(&self) -> bool {
        self.rung
    }

    /// The bell to ring next: that of the longest-serving worker.
    pub(crate) fn next(&mut self) -> Option<Arc<Notify>> {
        let (_, bell) = self.hung.pop_first()?;
        self.rung = true;
        Some(bell)
    }

    /// All that hang here.
    pub(crate) fn all(&mut self) -> impl Iterator<Item = Arc<Notify>> + use<> {
        std::mem::take(&mut self.hung).into_values()
    }
}
