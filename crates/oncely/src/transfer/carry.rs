//! Bringing records, events and counters over. What is there already stays, so that all of it can be repeated.

use std::sync::Arc;

use oncely_core::{
    Filter, Import, LogQuery, LoggedEvent, Millis, Move, Page, Record, Store, StoreError, Stored, Tally,
    Unreadable,
};

use super::{PAGE, Progress, Stage, Transfer, TransferError, is_running};

impl Transfer {
    pub(super) async fn bring_records(
        &self,
        of: &Move,
        progress: &mut impl FnMut(&Progress),
    ) -> Result<(), TransferError> {
        let total = self.count_here().await?;
        let (mut place, mut done) = (0, 0);
        loop {
            let page = self.readable(place).await?;
            done += page.items.len() as u64;
            let records: Vec<Arc<Record>> =
                page.items.iter().map(|stored| Arc::new(moved(&stored.record, of))).collect();
            if let Some(running) = records.iter().find(|record| is_running(record)) {
                let id = running.intent.short();
                return Err(TransferError::Differs(format!("{id} is running in a ledger that is closed")));
            }
            if !self.has_both_ends(&records).await? {
                self.to.import(of.clone(), Import { records, ..Import::default() }).await?;
            }
            progress(&Progress { stage: Stage::Records, done, of: Some(total) });
            match page.next {
                Some(next) => place = next,
                None => return Ok(()),
            }
        }
    }

    /// A page of the old ledger, of which nothing is left behind.
    pub(super) async fn readable(&self, place: u64) -> Result<Page<Stored>, TransferError> {
        let page = self.from().scan(Filter::default(), place, PAGE).await?;
        match page.unreadable.first() {
            None => Ok(page),
            Some(Unreadable { intent, why, .. }) => {
                Err(TransferError::Differs(format!("the record {intent} cannot be read: {why}")))
            }
        }
    }

    /// Whether a page has arrived before, as far as its ends tell: what lies between is compared later.
    async fn has_both_ends(&self, records: &[Arc<Record>]) -> Result<bool, StoreError> {
        let (Some(first), Some(last)) = (records.first(), records.last()) else { return Ok(true) };
        Ok(self.to.load(last.intent).await?.is_some() && self.to.load(first.intent).await?.is_some())
    }

    /// The log there has to be the beginning of the log here: a move appends, in order.
    pub(super) async fn bring_events(
        &self,
        of: &Move,
        progress: &mut impl FnMut(&Progress),
    ) -> Result<(), TransferError> {
        let (mut here, mut there) = (Events::of(self.from()), Events::of(&self.to));
        let mut missing = Vec::new();
        let mut done = 0;
        while let Some(event) = here.next().await? {
            let event = LoggedEvent { at: shifted(event.at, of), ..event };
            match there.next().await? {
                Some(found) if found.at == event.at && found.event == event.event => {}
                Some(found) => return Err(TransferError::Differs(differs(&event, &found))),
                None => missing.push(event),
            }
            done += 1;
            if missing.len() == PAGE {
                self.bring(of, std::mem::take(&mut missing)).await?;
                progress(&Progress { stage: Stage::Events, done, of: None });
            }
        }
        self.bring(of, missing).await?;
        progress(&Progress { stage: Stage::Events, done, of: Some(done) });
        Ok(())
    }

    async fn bring(&self, of: &Move, events: Vec<LoggedEvent>) -> Result<(), TransferError> {
        if !events.is_empty() {
            self.to.import(of.clone(), Import { events, ..Import::default() }).await?;
        }
        Ok(())
    }

    /// Brings the counters, and answers what was sent: they have to be there when everything is compared.
    pub(super) async fn bring_counters(&self, of: &Move) -> Result<Vec<Tally>, TransferError> {
        let sent = self.from().tallies().await?;
        self.to.import(of.clone(), Import { tallies: sent.clone(), ..Import::default() }).await?;
        Ok(sent)
    }

    pub(super) async fn count_here(&self) -> Result<u64, StoreError> {
        Ok(self.from().census().await?.iter().map(|(_, count)| count).sum())
    }
}

/// A log, event by event. Once it has come to its end it stays there, whatever is written meanwhile.
pub(super) struct Events {
    store: Arc<dyn Store>,
    page: std::vec::IntoIter<LoggedEvent>,
    after: Option<u64>,
}

impl Events {
    pub(super) fn of(store: &Arc<dyn Store>) -> Self {
        Self { store: Arc::clone(store), page: Vec::new().into_iter(), after: Some(0) }
    }

    pub(super) async fn next(&mut self) -> Result<Option<LoggedEvent>, StoreError> {
        loop {
            if let Some(event) = self.page.next() {
                return Ok(Some(event));
            }
            let Some(after) = self.after else { return Ok(None) };
            let page = self.store.log(LogQuery { after, limit: PAGE, ..LogQuery::default() }).await?;
            self.after = page.next;
            self.page = page.items.into_iter();
        }
    }
}

/// A record as it is to be there: as old by the clock of the new ledger as it was here.
pub(super) fn moved(record: &Record, of: &Move) -> Record {
    let sent_at = match record.sent_at < of.steady_since {
        // Nobody knows how long ago that was, and the new ledger's clock has no gap to tell of it: long ago, then.
        true => Millis(0),
        false => shifted(record.sent_at, of),
    };
    Record {
        created_at: shifted(record.created_at, of),
        sent_at,
        changed_at: shifted(record.changed_at, of),
        ..record.clone()
    }
}

pub(super) fn shifted(at: Millis, of: &Move) -> Millis {
    Millis(at.0.saturating_add_signed(of.shift_ms))
}

pub(super) fn differs(sent: &LoggedEvent, found: &LoggedEvent) -> String {
    format!(
        "the log differs: {} of {} at {} was sent, {} of {} at {} is there",
        sent.event.kind.as_str(),
        sent.event.intent.short(),
        sent.at.0,
        found.event.kind.as_str(),
        found.event.intent.short(),
        found.at.0
    )
}
