//! `oncely log`: the audit log, once or as it grows.

use std::collections::{HashMap, VecDeque};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use oncely::policy_file::parse_duration;
use oncely_core::limits::PAGE_MAX;
use oncely_core::{IntentId, LogQuery, LoggedEvent, Millis, Store, StoreErrorKind};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::signal::unix::{SignalKind, signal};

use super::find;
use super::view::{self, EventView, NameView};
use crate::args::Global;
use crate::context::Context;
use crate::exit::Failure;
use crate::output::{self, Clock, Reader};

/// How often a followed log is looked at.
const FOLLOW_PAUSE: Duration = Duration::from_millis(200);
/// Events printed without being asked for a number.
const LIMIT: usize = 50;
/// Most names of records kept while printing.
const NAMES_MAX: usize = 10_000;

/// Print the audit log, oldest first
#[derive(Debug, Args)]
pub(crate) struct LogArgs {
    /// Go on printing what is added, until Ctrl-C
    #[arg(long, short)]
    follow: bool,
    /// Only this record's: its id, or at least 6 digits of its start
    #[arg(long)]
    id: Option<String>,
    /// The newest N events [default: 50, or all with --since]
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// Only what happened within this time
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    since: Option<u64>,
}

/// Runs the command.
pub(crate) async fn run(global: &Global, args: LogArgs) -> Result<ExitCode, Failure> {
    let context = Context::load(global)?;
    let oncely = context.open().await?;
    let store = &**oncely.store();
    let mut log = Log::new(global, &args, store).await?;
    if !args.follow {
        let (_, reader) = log.print_past(&args).await?;
        if reader == Reader::There && log.printed == 0 && !log.json {
            output::say("no event matches");
        }
        return Ok(ExitCode::SUCCESS);
    }
    // Before anything is printed: whoever has seen the first line may want no more.
    let mut interrupt = signal(SignalKind::interrupt())
        .map_err(|e| Failure::internal(format!("signals cannot be caught: {e}")))?;
    tokio::select! {
        _ = interrupt.recv() => {}
        followed = log.follow(&args) => followed?,
    }
    Ok(ExitCode::SUCCESS)
}

/// A log that is being printed.
struct Log<'a> {
    store: &'a dyn Store,
    intent: Option<IntentId>,
    cutoff: Option<Millis>,
    json: bool,
    names: HashMap<IntentId, NameView>,
    printed: usize,
}

impl<'a> Log<'a> {
    async fn new(global: &Global, args: &LogArgs, store: &'a dyn Store) -> Result<Self, Failure> {
        let intent = match &args.id {
            // A full id may name a record that has been forgotten: its events are still there.
            Some(id) => match IntentId::parse(id) {
                Some(intent) => Some(intent),
                None => Some(find::by_id(store, id).await?.record.intent),
            },
            None => None,
        };
        let cutoff = match args.since {
            Some(ms) => Some(Millis(store.now().await?.0.saturating_sub(ms))),
            None => None,
        };
        let json = output::wants_json(global.json);
        Ok(Self { store, intent, cutoff, json, names: HashMap::new(), printed: 0 })
    }

    /// Prints what is there and what is added, until nobody reads it any more.
    async fn follow(&mut self, args: &LogArgs) -> Result<(), Failure> {
        let (mut after, mut reader) = self.print_past(args).await?;
        while reader == Reader::There {
            (after, reader) = self.print_new(after).await?;
            tokio::time::sleep(FOLLOW_PAUSE).await;
            // Without this, a reader that left would only be noticed at the next event.
            if reader_left() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Prints the newest events that were asked for; returns the place to go on from.
    async fn print_past(&mut self, args: &LogArgs) -> Result<(u64, Reader), Failure> {
        let limit = args.limit.unwrap_or(if args.since.is_some() { usize::MAX } else { LIMIT });
        let newest = self.read(0, limit.clamp(1, PAGE_MAX), Which::Newest).await?;
        let last = newest.last().map_or(0, |logged| logged.seq);
        // One page tells it all, unless more were asked for and the page does not reach back far enough.
        let reaches_back =
            newest.len() < PAGE_MAX || newest.first().is_some_and(|logged| !self.accepts(logged));
        let mut events: VecDeque<LoggedEvent> =
            if limit <= PAGE_MAX || reaches_back { newest.into() } else { self.walk(limit, newest).await? };
        events.retain(|logged| self.accepts(logged));
        events.drain(..events.len().saturating_sub(limit));
        let clock = Clock::reading(self.store.now().await?);
        for logged in &events {
            if self.print(logged, &clock).await? == Reader::Gone {
                return Ok((last, Reader::Gone));
            }
        }
        Ok((last, Reader::There))
    }

    /// Prints what was added after a place in the log.
    async fn print_new(&mut self, mut after: u64) -> Result<(u64, Reader), Failure> {
        loop {
            let events = self.read(after, PAGE_MAX, Which::After).await?;
            let Some(last) = events.last() else { return Ok((after, Reader::There)) };
            after = last.seq;
            let clock = Clock::reading(self.store.now().await?);
            for logged in &events {
                if self.print(logged, &clock).await? == Reader::Gone {
                    return Ok((after, Reader::Gone));
                }
            }
        }
    }

    /// Walks the log from its start to the newest events, which are known, and keeps the last `limit`.
    async fn walk(&self, limit: usize, newest: Vec<LoggedEvent>) -> Result<VecDeque<LoggedEvent>, Failure> {
        let seq_of = |logged: Option<&LoggedEvent>| logged.map_or(0, |logged| logged.seq);
        let (first, last) = (seq_of(newest.first()), seq_of(newest.last()));
        let mut kept = VecDeque::new();
        let mut after = 0;
        while after < last {
            let events = self.read(after, PAGE_MAX, Which::After).await?;
            let Some(end) = events.last() else { break };
            after = end.seq;
            kept.extend(events.into_iter().filter(|logged| logged.seq <= last && self.accepts(logged)));
            kept.drain(..kept.len().saturating_sub(limit));
        }
        if after < first {
            output::say(
                "oncely: somebody's open transaction holds back a part of the log; try again when it has ended",
            );
        }
        kept.extend(newest.into_iter().filter(|logged| logged.seq > after && self.accepts(logged)));
        Ok(kept)
    }

    async fn read(&self, after: u64, limit: usize, which: Which) -> Result<Vec<LoggedEvent>, Failure> {
        let query = LogQuery { after, intent: self.intent, limit, newest: which == Which::Newest };
        Ok(self.store.log(query).await?.items)
    }

    fn accepts(&self, logged: &LoggedEvent) -> bool {
        self.cutoff.is_none_or(|cutoff| logged.at >= cutoff)
    }

    async fn print(&mut self, logged: &LoggedEvent, clock: &Clock) -> Result<Reader, Failure> {
        let name = self.name_of(logged.event.intent).await?;
        let event = EventView::of(logged, name, clock);
        self.printed += 1;
        if self.json {
            return output::stream_json(&event);
        }
        let id = event.id.get(..IntentId::SHORT_CHARS).unwrap_or(&event.id);
        output::stream(&format!("{id}  {}", view::event_line(&event)))
    }

    /// The name behind an id never changes, so it is read once. A forgotten record has none, and one that cannot be read tells
    /// none: its events are what is left to look at.
    async fn name_of(&mut self, intent: IntentId) -> Result<Option<NameView>, Failure> {
        if let Some(name) = self.names.get(&intent) {
            return Ok(Some(name.clone()));
        }
        let stored = match self.store.load(intent).await {
            Err(error) if error.kind == StoreErrorKind::Corrupt => None,
            loaded => loaded?,
        };
        let Some(stored) = stored else { return Ok(None) };
        let name = NameView::of(&stored.record.body.name);
        if self.names.len() >= NAMES_MAX {
            self.names.clear();
        }
        self.names.insert(intent, name.clone());
        Ok(Some(name))
    }
}

/// Which end of the log to read from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Which {
    Newest,
    After,
}

/// Whether the other end of a pipe is closed.
fn reader_left() -> bool {
    let stdout = std::io::stdout();
    let mut fds = [PollFd::new(&stdout, PollFlags::empty())];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut fds, Some(&at_once)).is_ok() && fds[0].revents().intersects(PollFlags::ERR | PollFlags::HUP)
}
