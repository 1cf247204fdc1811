//! The audit log, read over all shards in the order of time, or only what tells of one record.
//!
//! Shards have clocks of their own. What a page shows of several is complete: an event is shown only once no shard can
//! still get an earlier one, so that who reads on after it misses nothing.

use std::time::Duration;

use oncely_core::limits::PAGE_MAX;
use oncely_core::{Gate, IntentId, LogQuery, LoggedEvent, Millis, Page, StoreError, Version};

use super::Shared;
use super::errors::{damaged, odd};
use super::head::Head;
use super::merge::{Merge, Piece, Source, Toward};
use super::resp::{Value, command};
use super::value::{
    ENTRY_PLACES_MAX, PLACE_BITS, SEQUENCE_BITS, TRAIL_MAX, place, read_trail, read_version, version_text,
};
use crate::codec::unpack_events;

/// How long, and how often, a page waits for clocks that are behind.
const PAUSE: Duration = Duration::from_millis(2);
const PAUSES_MAX: usize = 25;

/// What stands at a place of the log: events, packed; and their own time, if a move brought them.
struct Packed {
    version: Version,
    at: Option<Millis>,
    events: Vec<u8>,
}

impl Shared {
    /// One page of events.
    pub(crate) async fn log(&self, query: LogQuery) -> Result<Page<LoggedEvent>, StoreError> {
        let limit = query.limit.clamp(1, PAGE_MAX);
        let mut found = match query.intent {
            Some(intent) => match self.trail(&intent).await? {
                Some(trail) => self.walk_trail(&intent, &trail, &query).await?,
                None => self.walk(&query, limit, std::iter::once(self.keys.shard(&intent))).await?,
            },
            None => self.walk(&query, limit, 0..self.keys.shards()).await?,
        };
        let now = self.now().await?;
        if query.newest {
            found.drain(..found.len().saturating_sub(limit));
            return Ok(Page::of(found, None, now));
        }
        let more = found.len() > limit;
        found.truncate(limit);
        let next = found.last().filter(|_| more).map(|event| event.seq);
        Ok(Page::of(found, next, now))
    }

    /// The places of all events of a record; `None` if some may be missing: of a record that cannot be read, the log itself
    /// says more than what can be read of it.
    async fn trail(&self, intent: &IntentId) -> Result<Option<Vec<Version>>, StoreError> {
        let commands =
            [&self.keys.record(intent), &self.keys.gone(intent)].map(|key| command(&[b"GET", key]));
        let replies = self.ask_values(self.keys.shard(intent), &commands).replies().await?;
        let [record, gone] = replies.as_slice() else { return Err(odd(&Value::Nil, &self.describe)) };
        if *record == Value::Nil && *gone == Value::Nil {
            return Ok(None);
        }
        let of_gone = match gone {
            Value::Nil => Some(Vec::new()),
            other => other.bytes().and_then(|gone| read_trail(gone).ok()),
        };
        let of_record = match record {
            Value::Nil => Some(Vec::new()),
            other => self.found(intent, other).ok().map(|found| found.trail),
        };
        let (Some(mut trail), Some(of_record)) = (of_gone, of_record) else { return Ok(None) };
        if trail.len() >= TRAIL_MAX || of_record.len() >= TRAIL_MAX {
            return Ok(None);
        }
        trail.extend(of_record);
        trail.sort_unstable();
        trail.dedup();
        Ok(Some(trail))
    }

    async fn walk_trail(
        &self,
        intent: &IntentId,
        trail: &[Version],
        query: &LogQuery,
    ) -> Result<Vec<LoggedEvent>, StoreError> {
        let shard = self.keys.shard(intent);
        let key = self.keys.log(shard);
        let commands: Vec<Vec<u8>> = trail
            .iter()
            .map(|version| {
                let id = version_text(*version);
                command(&[b"XRANGE", &key, id.as_bytes(), id.as_bytes()])
            })
            .collect();
        let mut found = Vec::new();
        if commands.is_empty() {
            return Ok(found);
        }
        for reply in self.ask(shard, &commands).replies().await? {
            for packed in read_entries(self, &reply)?.into_iter().flat_map(|(_, packed)| packed) {
                found.extend(self.unpack(shard, packed, query)?);
            }
        }
        Ok(found)
    }

    /// Reads the log of some shards until there are more events than the page holds.
    async fn walk(
        &self,
        query: &LogQuery,
        limit: usize,
        shards: impl Iterator<Item = u16>,
    ) -> Result<Vec<LoggedEvent>, StoreError> {
        let toward = if query.newest { Toward::Oldest } else { Toward::Newest };
        let source = Entries { toward };
        let mut merge = Merge::new(self, source, toward, shards, entry_before(query.after));
        // One shard is in order by itself.
        let careful = !query.newest && query.intent.is_none() && self.keys.shards() > 1;
        let (mut found, mut pauses) = (Vec::new(), 0);
        let mut held: Vec<(u16, u64, Packed)> = Vec::new();
        while found.len() <= limit {
            let entries = merge.next().await?;
            let is_end = entries.is_empty();
            held.extend(entries);
            held.sort_by_key(|(_, place, _)| if query.newest { !*place } else { *place });
            let horizon = merge.horizon().filter(|_| careful);
            let early =
                |packed: &Packed| horizon.is_none_or(|horizon| packed.version.0 >> SEQUENCE_BITS < horizon.0);
            let ready = held.iter().take_while(|(_, _, packed)| early(packed)).count();
            for (shard, _, packed) in held.drain(..ready) {
                let mut events = self.unpack(shard, packed, query)?;
                if query.newest {
                    events.reverse();
                }
                found.extend(events);
            }
            if is_end && held.is_empty() {
                break;
            }
            if !held.is_empty() {
                // A clock is behind what another shard has written. It is waited for, a little.
                pauses += 1;
                if pauses > PAUSES_MAX {
                    break;
                }
                super::thread::pause(&self.runtime, PAUSE).await;
                merge.look_again();
            }
        }
        if query.newest {
            found.reverse();
        }
        Ok(found)
    }

    fn unpack(&self, shard: u16, packed: Packed, query: &LogQuery) -> Result<Vec<LoggedEvent>, StoreError> {
        let Packed { version, at, events } = packed;
        let at = at.unwrap_or(Millis(version.0 >> SEQUENCE_BITS));
        let mut events = unpack_events(0, at, &events).map_err(|damage| damaged(damage, &self.describe))?;
        for (index, event) in events.iter_mut().enumerate() {
            event.seq = place(version, shard, index);
        }
        events.retain(|event| {
            event.seq > query.after && query.intent.is_none_or(|intent| intent == event.event.intent)
        });
        Ok(events)
    }
}

/// A place from which on no entry is missed that holds later places than this one.
fn entry_before(after: u64) -> u64 {
    let version = after >> PLACE_BITS;
    let sequence = version & ((1 << SEQUENCE_BITS) - 1);
    (version - sequence.min(ENTRY_PLACES_MAX)) << PLACE_BITS
}

/// The entries of a shard's log.
struct Entries {
    toward: Toward,
}

impl Source for Entries {
    type Entry = Packed;

    fn ask(&self, shared: &Shared, shard: u16, from: Version, most: usize) -> Vec<Vec<u8>> {
        let (key, most) = (shared.keys.log(shard), most.to_string());
        let from = if from.0 == u64::MAX { "+".to_owned() } else { version_text(from) };
        let range: &[&[u8]] = match self.toward {
            Toward::Newest => &[b"XRANGE", &key, from.as_bytes(), b"+", b"COUNT", most.as_bytes()],
            Toward::Oldest => &[b"XREVRANGE", &key, from.as_bytes(), b"-", b"COUNT", most.as_bytes()],
        };
        // The time first: whatever is written after the range was read is stamped later. Before it the head, which may say
        // that nothing is written any more.
        vec![command(&[b"GET", &shared.keys.head(shard)]), command(&[b"TIME"]), command(range)]
    }

    fn read(&self, shared: &Shared, replies: &[Value], most: usize) -> Result<Piece<Packed>, StoreError> {
        let [head, time, range] = replies else { return Err(odd(&Value::Nil, &shared.describe)) };
        let gate = head.text().and_then(|text| Head::parse(text).ok()).map(|head| head.gate);
        let is_final = matches!(gate, Some(Gate::Closed(_) | Gate::Filling(_)));
        let seconds = time.items().first().and_then(Value::number);
        let micros = time.items().get(1).and_then(Value::number);
        let as_of =
            seconds.zip(micros).map(|(s, us)| Millis(s.saturating_mul(1_000).saturating_add(us / 1_000)));
        let as_of = as_of.filter(|_| !is_final);
        let entries = read_entries(shared, range)?;
        let last = entries.last().filter(|_| entries.len() >= most).map(|(first, _)| first.0);
        let next = match self.toward {
            // The places of an entry are its own: the next one begins after all of them.
            Toward::Newest => last.map(|last| Version(last + 1)),
            Toward::Oldest => last.and_then(|last| last.checked_sub(1)).map(Version),
        };
        let in_order = |(_, mut packed): (Version, Vec<Packed>)| {
            if self.toward == Toward::Oldest {
                packed.reverse();
            }
            packed.into_iter().map(|packed| (packed.version, packed))
        };
        let entries = entries.into_iter().flat_map(in_order).collect();
        Ok(Piece { entries, next, as_of })
    }
}

/// Reads the name of a field: how many places after its entry's id it stands, and its own time.
fn read_place(name: &str) -> Option<(u64, Option<Millis>)> {
    match name.split_once('@') {
        Some((offset, at)) => Some((offset.parse().ok()?, Some(Millis(at.parse().ok()?)))),
        None => Some((name.parse().ok()?, None)),
    }
}

/// Reads entries: each with its id, and with what it holds by place.
fn read_entries(shared: &Shared, reply: &Value) -> Result<Vec<(Version, Vec<Packed>)>, StoreError> {
    let mut entries = Vec::with_capacity(reply.items().len());
    for entry in reply.items() {
        let [id, fields] = entry.items() else { return Err(odd(reply, &shared.describe)) };
        let id = id.bytes().unwrap_or_default();
        let (first, _) = read_version(id).map_err(|damage| damaged(damage, &shared.describe))?;
        let mut packed = Vec::with_capacity(fields.items().len() / 2);
        for field in fields.items().chunks_exact(2) {
            let place = field[0].text().and_then(read_place);
            let (Some((offset, at)), Some(events)) = (place, field[1].bytes()) else {
                return Err(odd(reply, &shared.describe));
            };
            let version = Version(first.0.saturating_add(offset));
            packed.push(Packed { version, at, events: events.to_vec() });
        }
        entries.push((first, packed));
    }
    Ok(entries)
}
