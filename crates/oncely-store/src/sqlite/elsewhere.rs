//! Looking for what other processes have committed, while somebody here waits for it.

use std::sync::{Arc, Weak};
use std::time::Duration;

use oncely_core::{IntentId, Version};

use super::{Shared, rows};
use crate::watch::Lookout;

/// How often the commits of other processes are looked for while somebody waits.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// The lookout of one ledger. It must not keep the ledger open: its thread belongs to it.
pub(crate) struct Elsewhere {
    shared: Weak<Shared>,
    commits: Option<u64>,
}

impl Elsewhere {
    pub(crate) fn new(shared: &Arc<Shared>) -> Self {
        Self { shared: Arc::downgrade(shared), commits: None }
    }
}

impl Lookout for Elsewhere {
    fn interval(&self) -> Duration {
        LOOK_EVERY
    }

    fn stirred(&mut self) -> bool {
        let commits = self.shared.upgrade().and_then(|shared| shared.board.commits().ok());
        let stirred = commits.is_none() || commits != self.commits;
        self.commits = commits;
        stirred
    }

    fn version(&mut self, intent: &IntentId) -> Option<Version> {
        let shared = self.shared.upgrade()?;
        shared.read(|connection| rows::read_version(connection, intent)).ok().flatten()
    }
}
