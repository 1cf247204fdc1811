//! What a move brings: records with their own stamps, events with their own times and in their order, counters.
//!
//! A shard takes what is meant for it in one script, which looks at the gate; a page of events concerns many shards. Its
//! places are chosen beforehand, one after the other over all shards, and the page is remembered in the first shard before
//! it is brought. Whoever takes the move up completes that page first; the places say which shards have their part. So
//! the log is always a beginning of what is brought, without holes.

use std::collections::{BTreeMap, HashSet};

use oncely_core::limits::AUDIT_FOR_MS;
use oncely_core::{
    Draft, Gate, Import, IntentId, LoggedEvent, Millis, Move, Record, Stamp, StoreError, StoreErrorKind,
    Tally,
};

use super::Shared;
use super::calls::{Asked, create_arguments};
use super::errors::{damaged, odd};
use super::gate::refusal;
use super::head::FORMAT_MOVED;
use super::resp::{Value, command};
use super::scripts::Script;
use super::upkeep::field;
use super::value::ENTRY_PLACES_MAX;
use crate::codec::{pack_events, unpack_events};
use crate::wire::{Damaged, Packer, Unpacker};

/// Most records that one call of a script brings, and about how many bytes: the server does nothing else meanwhile.
const RECORDS_MAX: usize = 32;
const BYTES_MAX: usize = 1 << 20;
/// Nothing is dropped from the log while it is brought.
const NO_BOUND: &[u8] = b"9007199254740991";

/// A record, and what the script that creates is told of it.
type Brought = (IntentId, Vec<Vec<u8>>);

impl Shared {
    /// Takes a part of what a move brings.
    pub(crate) async fn import(&self, under: Move, import: Import) -> Result<(), StoreError> {
        self.check_process()?;
        let brought = self.bring(&under, &import).await;
        match brought {
            Err(error) if error.kind == StoreErrorKind::Moved => {
                // Said as it concerns a move, where it still stands so.
                self.gate().await?.admits_import(&self.describe, &under)?;
                Err(error)
            }
            brought => brought,
        }
    }

    async fn bring(&self, under: &Move, import: &Import) -> Result<(), StoreError> {
        self.bring_records(under, &import.records).await?;
        for page in import.events.chunks(ENTRY_PLACES_MAX as usize) {
            self.bring_page(under, page).await?;
        }
        self.raise(under, &import.tallies).await
    }

    /// What the heads of a ledger say that this move fills.
    fn mark_under(&self, under: &Move) -> String {
        self.router.mark_of(FORMAT_MOVED, &Gate::Filling(under.clone()))
    }

    async fn bring_records(
        &self,
        under: &Move,
        records: &[std::sync::Arc<Record>],
    ) -> Result<(), StoreError> {
        let mark = self.mark_under(under);
        let mut by_shard: BTreeMap<u16, Vec<Brought>> = BTreeMap::new();
        let mut seen = HashSet::new();
        // In the order in which they came: their places in listings are given in it.
        for record in records.iter().filter(|record| seen.insert(record.intent)) {
            let draft = Draft {
                created: Stamp::Kept(record.created_at),
                sent: Stamp::Kept(record.sent_at),
                changed: Stamp::Kept(record.changed_at),
                body: record.body.clone(),
            };
            let arguments = create_arguments(&record.intent, &draft, &[]);
            by_shard.entry(self.keys.shard(&record.intent)).or_default().push((record.intent, arguments));
        }
        let mut asked = Vec::new();
        for (shard, records) in by_shard {
            let mut some: Vec<Brought> = Vec::new();
            let mut bytes = 0;
            for record in records {
                let more: usize = record.1.iter().map(Vec::len).sum();
                if some.len() == RECORDS_MAX || (!some.is_empty() && bytes + more > BYTES_MAX) {
                    asked.push(self.ask_bring_records(shard, &mark, &some));
                    some.clear();
                    bytes = 0;
                }
                bytes += more;
                some.push(record);
            }
            asked.push(self.ask_bring_records(shard, &mark, &some));
        }
        for asked in asked {
            let reply = asked.replies().await?.pop().unwrap_or(Value::Nil);
            let refused = reply.items().iter().find(|item| matches!(item, Value::Error(_)));
            if let Some(Value::Error(words)) = refused {
                return Err(refusal(words, &self.describe)
                    .unwrap_or_else(|| odd(&Value::Error(words.clone()), &self.describe)));
            }
        }
        Ok(())
    }

    fn ask_bring_records(&self, shard: u16, mark: &str, records: &[Brought]) -> Asked {
        let terms = self.router.terms(shard, Script::Create);
        let own: Vec<Vec<u8>> = records.iter().map(|(intent, _)| self.keys.record(intent)).collect();
        let keys: Vec<&[u8]> = terms.keys.iter().chain(&own).map(Vec::as_slice).collect();
        let mut arguments = vec![mark.as_bytes(), NO_BOUND];
        arguments.extend(terms.arguments.iter().skip(2).map(Vec::as_slice));
        arguments.extend(records.iter().flat_map(|(_, arguments)| arguments).map(Vec::as_slice));
        self.run(shard, Script::Create, &keys, &arguments)
    }

    /// Brings a page of events: first it is remembered, then each shard takes its part.
    async fn bring_page(&self, under: &Move, events: &[LoggedEvent]) -> Result<(), StoreError> {
        let standings = self.standings().await?;
        let lasts = standings.iter().filter_map(|standing| standing.head.last.as_deref());
        // A millisecond of its own, after all that the shards have used.
        let after = lasts.filter_map(|last| last.split_once('-')?.0.parse::<u64>().ok()).max().unwrap_or(0);
        let plan = Plan { ms: after + 1, events: events.to_vec() };
        let mark = self.mark_under(under);
        let names = [self.keys.head(0), self.keys.plan(0)];
        let planned = self.run(0, Script::Plan, &[&names[0], &names[1]], &[mark.as_bytes(), &plan.pack()]);
        planned.replies().await?;
        self.carry_out(under, &plan).await
    }

    /// Completes the page that a move was bringing when it was broken off.
    pub(crate) async fn complete_plan(&self, under: &Move) -> Result<(), StoreError> {
        let asked = self.ask(0, &[command(&[b"GET", &self.keys.plan(0)])]);
        match asked.replies().await?.pop().unwrap_or(Value::Nil).bytes() {
            Some(packed) => {
                let plan = Plan::unpack(packed).map_err(|damage| damaged(damage, &self.describe))?;
                self.carry_out(under, &plan).await
            }
            None => Ok(()),
        }
    }

    async fn carry_out(&self, under: &Move, plan: &Plan) -> Result<(), StoreError> {
        let mut by_shard: BTreeMap<u16, Vec<(usize, &LoggedEvent)>> = BTreeMap::new();
        for (place, event) in plan.events.iter().enumerate() {
            by_shard.entry(self.keys.shard(&event.event.intent)).or_default().push((place, event));
        }
        let mark = self.mark_under(under);
        let asked: Vec<Asked> =
            by_shard.iter().map(|(shard, part)| self.ask_bring(*shard, &mark, plan, part)).collect();
        for asked in asked {
            asked.replies().await?;
        }
        Ok(())
    }

    fn ask_bring(&self, shard: u16, mark: &str, plan: &Plan, part: &[(usize, &LoggedEvent)]) -> Asked {
        let mut intents: Vec<IntentId> = part.iter().map(|(_, event)| event.event.intent).collect();
        intents.sort_unstable();
        intents.dedup();
        let mut names = vec![self.keys.log(shard), self.keys.head(shard)];
        names.extend(intents.iter().flat_map(|intent| [self.keys.record(intent), self.keys.gone(intent)]));
        let last = plan.events.len().saturating_sub(1);
        let mut arguments: Vec<Vec<u8>> = [
            mark.to_owned(),
            format!("{}-0", plan.ms),
            format!("{}-{last}", plan.ms),
            AUDIT_FOR_MS.to_string(),
        ]
        .map(String::into_bytes)
        .to_vec();
        for (place, event) in part {
            arguments.push(format!("{place}@{}", event.at.0).into_bytes());
            arguments.push(pack_events(std::slice::from_ref(&event.event)));
        }
        let names: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
        let arguments: Vec<&[u8]> = arguments.iter().map(Vec::as_slice).collect();
        self.run(shard, Script::Bring, &names, &arguments)
    }

    async fn raise(&self, under: &Move, tallies: &[Tally]) -> Result<(), StoreError> {
        let mark = self.mark_under(under);
        for some in tallies.chunks(RECORDS_MAX) {
            let parts: Vec<(String, String)> = some.iter().map(field).collect();
            let mut arguments = vec![mark.as_bytes()];
            for (name, count) in &parts {
                arguments.extend([name.as_bytes(), count.as_bytes()]);
            }
            let names = [self.keys.counters(), self.keys.head(0)];
            self.run(0, Script::Raise, &[&names[0], &names[1]], &arguments).replies().await?;
        }
        Ok(())
    }
}

/// A page of events that is brought, and the millisecond whose places it takes.
#[derive(Debug, Clone, PartialEq)]
struct Plan {
    ms: u64,
    events: Vec<LoggedEvent>,
}

impl Plan {
    fn pack(&self) -> Vec<u8> {
        let mut out = Packer::with_capacity(16 + self.events.len() * 128);
        out.number(self.ms);
        out.number(self.events.len() as u64);
        for event in &self.events {
            out.number(event.at.0);
            out.bytes(&pack_events(std::slice::from_ref(&event.event)));
        }
        out.finish()
    }

    fn unpack(bytes: &[u8]) -> Result<Self, Damaged> {
        let mut from = Unpacker::new(bytes);
        let ms = from.number()?;
        let mut events = Vec::new();
        for _ in 0..from.number()? {
            let at = Millis(from.number()?);
            events.extend(unpack_events(0, at, from.bytes()?)?);
        }
        Ok(Self { ms, events })
    }
}

#[cfg(test)]
mod tests {
    use super::Plan;
    use oncely_core::{Event, EventKind, IntentId, LoggedEvent, Millis};

    #[test]
    fn a_plan_reads_back_and_damage_is_told() {
        let event = |n: u8| LoggedEvent {
            seq: 0,
            at: Millis(u64::from(n) << 40),
            event: Event::new(IntentId([n; 32]), u32::from(n), EventKind::Began).by("ann").with_note("ü"),
        };
        let plan = Plan { ms: 1_794_796_800_123, events: vec![event(1), event(2), event(0)] };
        let packed = plan.pack();
        assert_eq!(Plan::unpack(&packed).unwrap(), plan);
        for end in 0..packed.len() {
            assert!(Plan::unpack(&packed[..end]).is_err(), "{end}");
        }
    }
}
