//! What the writer does for a move: the gate is turned, and what is brought is written with its own times.

use std::sync::Arc;

use oncely_core::{Event, Gate, Import, LoggedEvent, Millis, Record, Tally, Version};

use super::batch::Batch;
use super::errors::Trouble;
use super::{gate, rows};
use crate::codec::{extend_trail, pack_events};

impl Batch<'_> {
    pub(super) fn turn_gate(&mut self, from: &Gate, to: Gate) -> Result<Gate, Trouble> {
        if self.gate == *from {
            gate::write(self.connection, &to)?;
            self.gate = to;
            // The newest row tells the time of the ledger, and a move brings old ones.
            self.log_row(self.now, &[])?;
        }
        Ok(self.gate.clone())
    }

    /// Records first, so that the events find them and become part of their trails.
    pub(super) fn import(&mut self, import: Import) -> Result<(), Trouble> {
        for record in import.records {
            let record = Arc::new(Record { version: Version(self.seq), ..(*record).clone() });
            let name = &record.body.name;
            let tool = self.tools.number(self.connection, &name.namespace, &name.tool)?;
            if rows::insert(self.connection, &record, tool, &[])? {
                self.put(&record, Vec::new());
            }
        }
        for at_once in import.events.chunk_by(|a, b| a.at == b.at) {
            let events: Vec<Event> = at_once.iter().map(|logged| logged.event.clone()).collect();
            let seq = self.log_row(at_once[0].at, &events)?;
            for LoggedEvent { event, .. } in at_once {
                if let Some(slot) = rows::find(self.connection, &event.intent)? {
                    rows::update_trail(self.connection, slot.id, &extend_trail(&slot.trail, seq)?)?;
                }
            }
        }
        self.raise(&import.tallies)
    }

    /// Writes a row of the log above all that are there, and above this batch's own.
    fn log_row(&mut self, at: Millis, events: &[Event]) -> Result<u64, Trouble> {
        self.last += 1;
        self.connection
            .prepare_cached("INSERT INTO audit (seq, at, events) VALUES (?1, ?2, ?3)")?
            .execute((self.last as i64, at.0 as i64, pack_events(events)))?;
        Ok(self.last)
    }

    fn raise(&mut self, tallies: &[Tally]) -> Result<(), Trouble> {
        for tally in tallies {
            let tool = self.tools.number(self.connection, &tally.namespace, &tally.tool)?;
            self.connection
                .prepare_cached(
                    "INSERT INTO tally (tool, counter, count) VALUES (?1, ?2, ?3) \
                     ON CONFLICT (tool, counter) DO UPDATE SET count = max(count, excluded.count)",
                )?
                .execute((tool, tally.counter as u8, tally.count as i64))?;
        }
        Ok(())
    }
}
