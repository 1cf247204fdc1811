//! Entries of all shards, read in pieces, as one sequence in the order of their places.

use std::collections::VecDeque;

use oncely_core::{Millis, StoreError, Version};

use super::Shared;
use super::resp::Value;
use super::value::{first_after, place};

/// Entries that are read from a shard at once.
const PIECE: usize = 128;

/// In which direction entries are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Toward {
    /// The oldest first.
    Newest,
    /// The newest first.
    Oldest,
}

/// How entries are asked for and read.
pub(crate) trait Source {
    /// What an entry is.
    type Entry;

    /// The commands that read up to so many entries of a shard from this version on.
    fn ask(&self, shared: &Shared, shard: u16, from: Version, most: usize) -> Vec<Vec<u8>>;

    /// Reads their replies: versions and entries, in the order of reading, and whether there may be more.
    fn read(&self, shared: &Shared, replies: &[Value], most: usize)
    -> Result<Piece<Self::Entry>, StoreError>;
}

/// A piece of a shard.
pub(crate) struct Piece<T> {
    pub(crate) entries: Vec<(Version, T)>,
    /// Where to go on; `None`: that was all.
    pub(crate) next: Option<Version>,
    /// What comes later is stamped with this time or a later one, if that is known.
    pub(crate) as_of: Option<Millis>,
}

struct Lane<T> {
    shard: u16,
    entries: VecDeque<(u64, T)>,
    next: Option<Version>,
    last: Version,
    as_of: Option<Millis>,
}

/// The sequence.
pub(crate) struct Merge<'a, S: Source> {
    shared: &'a Shared,
    source: S,
    toward: Toward,
    lanes: Vec<Lane<S::Entry>>,
}

impl<'a, S: Source> Merge<'a, S> {
    /// Entries of these shards after a place; toward the oldest from the newest on.
    pub(crate) fn new(
        shared: &'a Shared,
        source: S,
        toward: Toward,
        shards: impl Iterator<Item = u16>,
        after: u64,
    ) -> Self {
        let lanes = shards.map(|shard| {
            let from = match toward {
                Toward::Newest => first_after(after, shard),
                Toward::Oldest => Version(u64::MAX),
            };
            Lane { shard, entries: VecDeque::new(), next: Some(from), last: from, as_of: None }
        });
        Self { shared, source, toward, lanes: lanes.collect() }
    }

    /// The next entries, as many as are known to come next; none at the end.
    pub(crate) async fn next(&mut self) -> Result<Vec<(u16, u64, S::Entry)>, StoreError> {
        loop {
            self.refill().await?;
            let found = self.pop();
            if !found.is_empty() || self.lanes.iter().all(|lane| lane.next.is_none()) {
                return Ok(found);
            }
        }
    }

    /// The earliest time of which a shard that was read to its end may still get entries.
    pub(crate) fn horizon(&self) -> Option<Millis> {
        let ended = self.lanes.iter().filter(|lane| lane.next.is_none() && lane.entries.is_empty());
        ended.filter_map(|lane| lane.as_of).min()
    }

    /// Reads those shards on that were read to their end.
    pub(crate) fn look_again(&mut self) {
        for lane in self.lanes.iter_mut().filter(|lane| lane.next.is_none()) {
            lane.next = Some(lane.last);
        }
    }

    async fn refill(&mut self) -> Result<(), StoreError> {
        let mut asked = Vec::new();
        for (at, lane) in self.lanes.iter().enumerate() {
            if let (Some(from), true) = (lane.next, lane.entries.is_empty()) {
                let commands = self.source.ask(self.shared, lane.shard, from, PIECE);
                asked.push((at, self.shared.ask(lane.shard, &commands)));
            }
        }
        for (at, asked) in asked {
            let replies = asked.replies().await?;
            let Some(lane) = self.lanes.get_mut(at) else { continue };
            let piece = self.source.read(self.shared, &replies, PIECE)?;
            if let Some((last, _)) = piece.entries.last() {
                lane.last = Version(last.0 + 1);
            }
            lane.next = piece.next;
            lane.as_of = piece.as_of;
            let shard = lane.shard;
            lane.entries
                .extend(piece.entries.into_iter().map(|(version, entry)| (place(version, shard, 0), entry)));
        }
        Ok(())
    }

    /// Takes entries in their order until a shard has to be read on.
    fn pop(&mut self) -> Vec<(u16, u64, S::Entry)> {
        let mut found = Vec::new();
        loop {
            if self.lanes.iter().any(|lane| lane.entries.is_empty() && lane.next.is_some()) {
                return found;
            }
            let toward = self.toward;
            let key = |place: u64| if toward == Toward::Newest { place } else { !place };
            let filled = self.lanes.iter_mut().filter(|lane| !lane.entries.is_empty());
            let first = filled.min_by_key(|lane| lane.entries.front().map(|(place, _)| key(*place)));
            match first.and_then(|lane| Some((lane.shard, lane.entries.pop_front()?))) {
                Some((shard, (place, entry))) => found.push((shard, place, entry)),
                None => return found,
            }
        }
    }
}
