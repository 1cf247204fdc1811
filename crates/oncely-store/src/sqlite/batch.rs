//! What one commit does: the requests of many callers, applied one after the other inside one transaction.
//!
//! Every record written in a batch gets the batch's place in the log as its version. No caller can know that number
//! before the commit, so of two changes to one record in one batch the second finds another version than it expects
//! and is stale: a record changes at most once, except that one may be removed and another made in its place, which
//! still has a higher version than the removed one.

use std::sync::Arc;

use oncely_core::limits::AUDIT_FOR_MS;
use oncely_core::machine::{Input, Write, step};
use oncely_core::{
    Change, Created, Draft, Event, EventKind, Gate, Import, IntentId, Millis, Move, PurgeReport, Record,
    Replaced, State, StoreError, Stored, Tally, Version,
};
use rusqlite::{Connection, OptionalExtension};

use super::crowd::{Wanted, withdrawn};
use super::errors::Trouble;
use super::gate;
use super::rows::{self, DUE_FIRST, Slot, Tools, select_records};
use crate::codec::{count_events, extend_trail, pack_events, pack_trail, unpack_trail};
use crate::courier;
use crate::unreadable;

/// How much later the purge looks again at a record that it was told to keep.
const LOOK_AGAIN_MS: u64 = 60_000;

/// What a caller asks of the writer.
pub(crate) enum Request {
    Create {
        intent: IntentId,
        draft: Box<Draft>,
        events: Vec<Event>,
        /// For one that its asker may withdraw.
        wanted: Option<Wanted>,
    },
    Replace {
        intent: IntentId,
        expected: Version,
        change: Change,
        events: Vec<Event>,
    },
    Note {
        events: Vec<Event>,
    },
    Purge {
        limit: usize,
    },
    TurnGate {
        from: Gate,
        to: Gate,
    },
    /// What a move brings.
    Import {
        under: Move,
        import: Import,
    },
    /// Write the counters, whether or not it is time.
    Flush,
    /// Counters have come in: see to it that they are written in time.
    Wake,
}

/// What the writer answers once the batch is durable.
pub(crate) enum Answer {
    Created(Created),
    Replaced(Replaced),
    Purged(PurgeReport),
    Gate(Gate),
    Done,
}

/// What a request is answered with, and the way to who made it.
pub(crate) type Answered = Result<Answer, StoreError>;
pub(crate) type Reply = courier::Reply<Answered>;

/// A request and whom to answer.
pub(crate) struct Op {
    pub(crate) request: Request,
    pub(crate) reply: Reply,
}

impl Request {
    /// Whether an effect would be started: such requests are refused when space runs short.
    pub(crate) fn is_claim(&self) -> bool {
        match self {
            Self::Create { .. } => true,
            Self::Replace { change: Change::Put(draft), events, .. } => {
                matches!(draft.body.state, State::Running { .. })
                    && events.iter().any(|event| event.kind == EventKind::Began)
            }
            _ => false,
        }
    }

    /// Whether the gate lets this in; else the refusal.
    fn passes(&self, gate: &Gate, ledger: &str) -> Result<(), StoreError> {
        match self {
            Self::Create { events, .. } | Self::Replace { events, .. } | Self::Note { events } => {
                gate.admits(ledger, events)
            }
            Self::Purge { .. } => gate.admits_purge(ledger),
            Self::Import { under, .. } => gate.admits_import(ledger, under),
            Self::TurnGate { .. } | Self::Flush | Self::Wake => Ok(()),
        }
    }
}

/// A record that a batch changed, and what it is now.
pub(crate) struct Changed {
    pub(crate) intent: IntentId,
    pub(crate) now: Option<Arc<Record>>,
}

/// One open transaction.
pub(crate) struct Batch<'a> {
    pub(super) connection: &'a Connection,
    pub(super) tools: &'a mut Tools,
    pub(super) gate: Gate,
    pub(super) seq: u64,
    /// The highest place in the log that is taken so far: a move brings rows of its own.
    pub(super) last: u64,
    pub(super) now: Millis,
    events: Vec<Event>,
    /// The records that were written or removed.
    pub(crate) changed: Vec<Changed>,
    /// Those of them that had succeeded before: caches must let go of them.
    pub(crate) unsettled: Vec<IntentId>,
}

impl<'a> Batch<'a> {
    /// To be made inside a write transaction: the gate is read in it.
    pub(crate) fn new(
        connection: &'a Connection,
        tools: &'a mut Tools,
        seq: u64,
        now: Millis,
    ) -> Result<Self, Trouble> {
        Ok(Self {
            connection,
            tools,
            gate: gate::read(connection)?,
            seq,
            last: seq,
            now,
            events: Vec::new(),
            changed: Vec::new(),
            unsettled: Vec::new(),
        })
    }

    /// Does what is asked. An error other than SQLite's own concerns this request alone: it is found before anything
    /// of the request is written.
    pub(crate) fn apply(&mut self, request: Request, ledger: &str) -> Result<Answer, Trouble> {
        request.passes(&self.gate, ledger)?;
        match request {
            Request::Create { wanted: Some(wanted), .. } if !wanted.is_decided_here() => {
                Err(withdrawn().into())
            }
            Request::Create { intent, draft, events, .. } => {
                self.create(intent, *draft, events).map(Answer::Created)
            }
            Request::Replace { intent, expected, change, events } => {
                self.replace(intent, expected, change, events).map(Answer::Replaced)
            }
            Request::Note { events } => self.note(events).map(|()| Answer::Done),
            Request::Purge { limit } => self.purge(limit).map(Answer::Purged),
            Request::TurnGate { from, to } => self.turn_gate(&from, to).map(Answer::Gate),
            Request::Import { import, .. } => self.import(import).map(|()| Answer::Done),
            Request::Flush | Request::Wake => Ok(Answer::Done),
        }
    }

    /// Adds to the counters.
    pub(crate) fn count(&mut self, tallies: &[Tally]) -> Result<(), Trouble> {
        for tally in tallies {
            let tool = self.tools.number(self.connection, &tally.namespace, &tally.tool)?;
            self.connection
                .prepare_cached(
                    "INSERT INTO tally (tool, counter, count) VALUES (?1, ?2, ?3) \
                     ON CONFLICT (tool, counter) DO UPDATE SET count = count + excluded.count",
                )?
                .execute((tool, tally.counter as u8, tally.count as i64))?;
        }
        Ok(())
    }

    /// Writes the log. Every batch that changed a record has its row, so that its number is never used again.
    pub(crate) fn finish(&mut self) -> Result<(), Trouble> {
        if !self.changed.is_empty() || !self.events.is_empty() {
            self.connection
                .prepare_cached("INSERT INTO audit (seq, at, events) VALUES (?1, ?2, ?3)")?
                .execute((self.seq as i64, self.now.0 as i64, pack_events(&self.events)))?;
        }
        Ok(())
    }

    fn create(&mut self, intent: IntentId, draft: Draft, events: Vec<Event>) -> Result<Created, Trouble> {
        let record = Arc::new(draft.stamped(intent, Version(self.seq), self.now));
        let name = &record.body.name;
        let tool = self.tools.number(self.connection, &name.namespace, &name.tool)?;
        let trail = if events.is_empty() { Vec::new() } else { pack_trail(&[self.seq]) };
        if rows::insert(self.connection, &record, tool, &trail)? {
            self.put(&record, events);
            return Ok(Created::New(self.stored(record)));
        }
        match rows::read(self.connection, &intent)? {
            Some(there) => Ok(Created::Exists(self.stored(Arc::new(there)))),
            None => Err(rusqlite::Error::QueryReturnedNoRows.into()),
        }
    }

    fn replace(
        &mut self,
        intent: IntentId,
        expected: Version,
        change: Change,
        events: Vec<Event>,
    ) -> Result<Replaced, Trouble> {
        let Some(slot) = rows::find(self.connection, &intent)? else { return Ok(Replaced::Stale(None)) };
        if slot.version != Some(expected) {
            let there = rows::read(self.connection, &intent)?;
            return Ok(Replaced::Stale(there.map(|record| self.stored(Arc::new(record)))));
        }
        let trail = if events.is_empty() { slot.trail.clone() } else { self.longer(&slot.trail) };
        if slot.succeeded {
            self.unsettled.push(intent);
        }
        match change {
            Change::Put(draft) => {
                let record = Arc::new(draft.stamped(intent, Version(self.seq), self.now));
                self.overwrite(&slot, &record, &trail)?;
                self.put(&record, events);
                Ok(Replaced::Done(Some(self.stored(record))))
            }
            Change::Remove => {
                self.keep_trail(&intent, &trail)?;
                rows::delete(self.connection, slot.id)?;
                self.changed.push(Changed { intent, now: None });
                self.events.extend(events);
                Ok(Replaced::Done(None))
            }
        }
    }

    fn note(&mut self, events: Vec<Event>) -> Result<(), Trouble> {
        for event in events {
            if let Some(slot) = rows::find(self.connection, &event.intent)? {
                rows::update_trail(self.connection, slot.id, &self.longer(&slot.trail))?;
            }
            self.events.push(event);
        }
        Ok(())
    }

    pub(super) fn put(&mut self, record: &Arc<Record>, events: Vec<Event>) {
        self.changed.push(Changed { intent: record.intent, now: Some(Arc::clone(record)) });
        self.events.extend(events);
    }

    fn overwrite(&mut self, slot: &Slot, record: &Record, trail: &[u8]) -> Result<(), Trouble> {
        let name = &record.body.name;
        let tool = self.tools.number(self.connection, &name.namespace, &name.tool)?;
        rows::update(self.connection, slot.id, record, tool, trail)
    }

    /// A trail that goes on here. One that cannot be read begins anew: it only says where in the log to look, and must not
    /// keep an end from being recorded.
    fn longer(&self, trail: &[u8]) -> Vec<u8> {
        extend_trail(trail, self.seq).unwrap_or_else(|_| pack_trail(&[self.seq]))
    }

    fn stored(&self, record: Arc<Record>) -> Stored {
        Stored { record, now: self.now }
    }

    /// Keeps the trail of a record that a person had forgotten: what was done must stay readable.
    fn keep_trail(&mut self, intent: &IntentId, trail: &[u8]) -> Result<(), Trouble> {
        let mut batches = match read_forgotten(self.connection, intent)? {
            Some(older) => unpack_trail(&older).unwrap_or_default(),
            None => Vec::new(),
        };
        batches.extend(unpack_trail(trail).unwrap_or_default());
        self.connection
            .prepare_cached("INSERT OR REPLACE INTO forgotten (head, at, trail) VALUES (?1, ?2, ?3)")?
            .execute((rows::head(intent), self.now.0 as i64, pack_trail(&batches)))?;
        Ok(())
    }

    fn purge(&mut self, limit: usize) -> Result<PurgeReport, Trouble> {
        let due = self.due(limit)?;
        let mut report = PurgeReport { more: due.len() >= limit, ..PurgeReport::default() };
        for (id, record) in due {
            // What cannot be read may be all that tells of an effect: it stays, out of the way of the others.
            let Some(record) = record else {
                report.unreadable += 1;
                self.look_again(id, unreadable::LOOK_AGAIN_MS)?;
                continue;
            };
            match step(Some(&record), &Input::Expire, self.now).write {
                Write::Remove => {
                    rows::delete(self.connection, id)?;
                    report.records_removed += 1;
                    self.changed.push(Changed { intent: record.intent, now: None });
                }
                Write::Put(draft) => {
                    let Some(slot) = rows::find(self.connection, &record.intent)? else { continue };
                    let lighter = Arc::new(draft.stamped(record.intent, Version(self.seq), self.now));
                    self.overwrite(&slot, &lighter, &slot.trail)?;
                    report.results_dropped += 1;
                    self.put(&lighter, Vec::new());
                }
                Write::Nothing => {
                    self.look_again(id, LOOK_AGAIN_MS)?;
                    continue;
                }
            }
            if matches!(record.body.state, State::Succeeded { .. }) {
                self.unsettled.push(record.intent);
            }
        }
        self.purge_log(limit, &mut report)?;
        Ok(report)
    }

    /// Leaves a record for a later purge.
    fn look_again(&self, id: i64, after_ms: u64) -> Result<(), Trouble> {
        let later = self.now.plus(after_ms).0 as i64;
        self.connection.prepare_cached("UPDATE record SET due = ?2 WHERE id = ?1")?.execute((id, later))?;
        Ok(())
    }

    /// The first records of which something is due, except those that this very batch has written; `None` for one that
    /// cannot be read.
    fn due(&self, limit: usize) -> Result<Vec<(i64, Option<Record>)>, Trouble> {
        let mut statement = self.connection.prepare_cached(select_records!(
            "WHERE r.due BETWEEN ?1 AND ?2 AND r.version < ?3 ORDER BY r.due LIMIT ?4"
        ))?;
        let mut rows = statement.query((DUE_FIRST, self.now.0 as i64, self.seq as i64, limit as i64))?;
        let mut due = Vec::new();
        while let Some(row) = rows.next()? {
            due.push(match rows::read_row(row) {
                Err(Trouble::Unreadable(..)) => (row.get(0)?, None),
                read => read.map(|(id, record)| (id, Some(record)))?,
            });
        }
        Ok(due)
    }

    /// The log is in order of time: as soon as one is young, all that follow are. The memory of what was forgotten goes
    /// first: as long as some of it is old, so is the log.
    fn purge_log(&mut self, limit: usize, report: &mut PurgeReport) -> Result<(), Trouble> {
        let before = self.now.0.saturating_sub(AUDIT_FOR_MS) as i64;
        let oldest: Option<i64> = self
            .connection
            .prepare_cached("SELECT at FROM audit ORDER BY seq LIMIT 1")?
            .query_row([], |row| row.get(0))
            .optional()?;
        if oldest.is_none_or(|at| at >= before) {
            return Ok(());
        }
        let forgotten = self
            .connection
            .prepare_cached(
                "DELETE FROM forgotten WHERE head IN (SELECT head FROM forgotten WHERE at < ?1 LIMIT ?2)",
            )?
            .execute((before, limit as i64))?;
        if forgotten >= limit {
            report.more = true;
            return Ok(());
        }
        let mut statement = self.connection.prepare_cached(
            "SELECT seq, events FROM audit WHERE at < ?1 AND seq < (SELECT max(seq) FROM audit) ORDER BY seq LIMIT ?2",
        )?;
        let mut last = 0;
        let mut count = 0;
        let mut rows = statement.query((before, limit as i64))?;
        while let Some(row) = rows.next()? {
            last = row.get::<_, i64>(0)?;
            // They go, whether or not they can be read.
            let events = row.get_ref(1)?.as_blob().unwrap_or_default();
            report.events_removed += count_events(events).unwrap_or(0);
            count += 1;
        }
        report.more |= count >= limit;
        self.connection.prepare_cached("DELETE FROM audit WHERE seq <= ?1")?.execute([last])?;
        Ok(())
    }
}

/// The trail of a forgotten record.
pub(crate) fn read_forgotten(connection: &Connection, intent: &IntentId) -> Result<Option<Vec<u8>>, Trouble> {
    let mut statement = connection.prepare_cached("SELECT trail FROM forgotten WHERE head = ?1")?;
    let mut rows = statement.query([rows::head(intent)])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    // One of another type cannot be read either.
    Ok(Some(row.get_ref(0)?.as_blob().unwrap_or_default().to_vec()))
}
