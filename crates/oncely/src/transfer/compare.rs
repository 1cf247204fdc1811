//! Comparing what arrived with what was sent: every record, every event, every counter, and how many there are.

use std::sync::Arc;

use oncely_core::{Filter, Import, LoggedEvent, Move, Record, StateName, StoreError, Stored, Tally};
use tokio::task::JoinSet;

use super::carry::{Events, differs, moved, shifted};
use super::{PAGE, Progress, Report, Stage, Transfer, TransferError, is_running};

/// Most bytes of results that are asked for at once.
const PART_BYTES_MAX: usize = 4 * 1024 * 1024;

impl Transfer {
    pub(super) async fn compare(
        &self,
        of: &Move,
        counters: &[Tally],
        progress: &mut impl FnMut(&Progress),
    ) -> Result<Report, TransferError> {
        let mut report = Report {
            from: self.from().describe(),
            to: self.to.describe(),
            records: 0,
            states: StateName::ALL.map(|state| (state, 0)).to_vec(),
            events: 0,
            counters: 0,
            shift_ms: of.shift_ms,
            resumed: false,
        };
        self.compare_records(of, &mut report, progress).await?;
        let there = self.count_there().await?;
        if there != report.records {
            let message = format!("{} records were sent and {there} are there", report.records);
            return Err(TransferError::Differs(message));
        }
        report.events = self.compare_events(of).await?;
        report.counters = self.compare_counters(counters).await?;
        Ok(report)
    }

    async fn compare_records(
        &self,
        of: &Move,
        report: &mut Report,
        progress: &mut impl FnMut(&Progress),
    ) -> Result<(), TransferError> {
        let total = self.count_here().await?;
        let mut place = 0;
        loop {
            let page = self.readable(place).await?;
            let sent: Vec<Arc<Record>> = page.items.iter().map(|s| Arc::new(moved(&s.record, of))).collect();
            if let Some(running) = sent.iter().find(|record| is_running(record)) {
                let id = running.intent.short();
                return Err(TransferError::Differs(format!("{id} is running in a ledger that is closed")));
            }
            let missing = self.missing(&sent).await?;
            if !missing.is_empty() {
                // A ledger that does not write a page in one step may have been stopped within it.
                self.to.import(of.clone(), Import { records: missing, ..Import::default() }).await?;
                if let Some(lost) = self.missing(&sent).await?.first() {
                    return Err(TransferError::Differs(format!("{} did not arrive", lost.intent.short())));
                }
            }
            for record in &sent {
                if let Some((_, count)) =
                    report.states.iter_mut().find(|(s, _)| *s == record.body.state.name())
                {
                    *count += 1;
                }
            }
            report.records += sent.len() as u64;
            progress(&Progress { stage: Stage::Comparing, done: report.records, of: Some(total) });
            match page.next {
                Some(next) => place = next,
                None => return Ok(()),
            }
        }
    }

    /// Those of these records that are not there; one that is there and different ends the comparison.
    async fn missing(&self, sent: &[Arc<Record>]) -> Result<Vec<Arc<Record>>, TransferError> {
        let mut missing = Vec::new();
        for part in parts(sent) {
            missing.extend(self.missing_in(part).await?);
        }
        Ok(missing)
    }

    /// The same of a part of them, all of which are asked for at once.
    async fn missing_in(&self, sent: &[Arc<Record>]) -> Result<Vec<Arc<Record>>, TransferError> {
        let mut loads = JoinSet::new();
        for record in sent {
            let (store, record) = (Arc::clone(&self.to), Arc::clone(record));
            loads.spawn(async move { (store.load(record.intent).await, record) });
        }
        let mut missing = Vec::new();
        while let Some(loaded) = loads.join_next().await {
            let (found, record) = loaded.map_err(|_| stopped())?;
            match found? {
                None => missing.push(record),
                Some(Stored { record: found, .. }) => {
                    if *found != (Record { version: found.version, ..(*record).clone() }) {
                        let message = format!("the record {} arrived changed", record.intent.short());
                        return Err(TransferError::Differs(message));
                    }
                }
            }
        }
        Ok(missing)
    }

    /// Whether every key that the old ledger knows is known in the new one.
    pub(super) async fn all_is_there(&self) -> Result<bool, StoreError> {
        let mut place = 0;
        loop {
            let page = self.from().scan(Filter::default(), place, PAGE).await?;
            if !page.unreadable.is_empty() {
                return Ok(false);
            }
            for stored in page.items {
                if self.to.load(stored.record.intent).await?.is_none() {
                    return Ok(false);
                }
            }
            match page.next {
                Some(next) => place = next,
                None => return Ok(true),
            }
        }
    }

    /// How many records are there; counted one by one where the quick answer is not the expected one.
    async fn count_there(&self) -> Result<u64, StoreError> {
        let quick: u64 = self.to.census().await?.iter().map(|(_, count)| count).sum();
        if quick == self.count_here().await? {
            return Ok(quick);
        }
        let (mut count, mut place) = (0, 0);
        loop {
            let page = self.to.scan(Filter::default(), place, PAGE).await?;
            count += (page.items.len() + page.unreadable.len()) as u64;
            match page.next {
                Some(next) => place = next,
                None => return Ok(count),
            }
        }
    }

    async fn compare_events(&self, of: &Move) -> Result<u64, TransferError> {
        let (mut here, mut there) = (Events::of(self.from()), Events::of(&self.to));
        let mut count = 0;
        loop {
            match (here.next().await?, there.next().await?) {
                (None, None) => return Ok(count),
                (Some(sent), Some(found)) => {
                    let sent = LoggedEvent { at: shifted(sent.at, of), ..sent };
                    if sent.at != found.at || sent.event != found.event {
                        return Err(TransferError::Differs(differs(&sent, &found)));
                    }
                    count += 1;
                }
                (here, _) => {
                    let which = if here.is_some() { "shorter" } else { "longer" };
                    let message = format!("the log that arrived is {which}, after {count} equal events");
                    return Err(TransferError::Differs(message));
                }
            }
        }
    }

    /// Replays go on in the old ledger while it is read, so its counters may be ahead: each lies between what was sent and
    /// what the old ledger counts by now.
    async fn compare_counters(&self, sent: &[Tally]) -> Result<u64, TransferError> {
        let there = self.to.tallies().await?;
        let here = self.from().tallies().await?;
        let count_in = |tallies: &[Tally], of: &Tally| {
            let same =
                |a: &&Tally| (&a.namespace, &a.tool, a.counter) == (&of.namespace, &of.tool, of.counter);
            tallies.iter().find(same).map(|tally| tally.count)
        };
        let differs = |of: &Tally, how: &str| {
            let message = format!("the counter {} of {} {how}", of.counter.as_str(), of.tool.as_str());
            Err(TransferError::Differs(message))
        };
        for sent in sent {
            match count_in(&there, sent) {
                None => return differs(sent, "did not arrive"),
                Some(found) if found < sent.count => return differs(sent, "is too low"),
                Some(_) => {}
            }
        }
        for found in &there {
            if count_in(&here, found).is_none_or(|counted| counted < found.count) {
                return differs(found, "is too high");
            }
        }
        Ok(there.len() as u64)
    }
}

/// Splits records so that what they keep is not all asked for at once: a ledger may answer such requests together.
fn parts(mut records: &[Arc<Record>]) -> Vec<&[Arc<Record>]> {
    let mut parts = Vec::new();
    while !records.is_empty() {
        let mut bytes = 0;
        let fits = |record: &&Arc<Record>| {
            bytes += record.body.state.kept().map_or(0, |kept| kept.len());
            bytes <= PART_BYTES_MAX
        };
        let fit = records.iter().take_while(fits).count();
        let (part, rest) = records.split_at(fit.max(1));
        parts.push(part);
        records = rest;
    }
    parts
}

fn stopped() -> TransferError {
    TransferError::Differs("the runtime was stopped".to_owned())
}
