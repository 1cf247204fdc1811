//! The newest time seen of each shard.
//!
//! Each shard has the clock of its server: to judge a record by another one's would end leases too early.

use oncely_core::Millis;

use crate::leap::{Asked, Leapt, ServerClock};

/// The clocks of all shards.
pub(crate) struct Clocks(Vec<ServerClock>);

impl Clocks {
    pub(crate) fn new(shards: u16) -> Self {
        Self((0..shards).map(|_| ServerClock::default()).collect())
    }

    /// Takes note of a shard's clock, and returns the newest time known of it.
    pub(crate) fn told(&self, shard: u16, now: Millis, asked: Asked) -> Result<Millis, Leapt> {
        self.0.get(usize::from(shard)).map_or(Ok(now), |clock| clock.told(now, asked))
    }

    /// Takes note of a stamp that was read together with the shard's clock.
    pub(crate) fn stamped(&self, shard: u16, at: Millis) {
        if let Some(clock) = self.0.get(usize::from(shard)) {
            clock.stamped(at);
        }
    }

    /// Before this the clock of some shard was another one: it has been set far back since.
    pub(crate) fn doubted(&self) -> Millis {
        self.0.iter().map(ServerClock::doubted).max().unwrap_or_default()
    }

    /// The time of a write to a record that was there. It is the record's, whatever it is; but a leap is not taken for the
    /// time. A claim is another matter: whether there was no record is the server's word, and it forgets by its clock.
    pub(crate) fn written(&self, shard: u16, at: Millis, asked: Asked) -> Millis {
        self.0.get(usize::from(shard)).map_or(at, |clock| clock.written(at, asked))
    }
}
