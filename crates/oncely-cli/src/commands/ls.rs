//! `oncely ls`: lists what is remembered.

use std::process::ExitCode;

use clap::Args;
use oncely::policy_file::parse_duration;
use oncely_core::limits::PAGE_MAX;
use oncely_core::{Filter, Millis, Namespace, StateName, Store, Unreadable};

use super::view::{RecordView, state_now};
use crate::args::Global;
use crate::context::Context;
use crate::exit::Failure;
use crate::output::{self, Clock, Reader, Tone};

/// Most records looked at for what is in other namespaces: a hint must not cost more than the answer.
const ELSEWHERE_MAX: usize = 200;

/// List what is remembered, oldest first
///
/// Lists one namespace, unless --all-namespaces is given: the gateway has one for each of its tenants.
#[derive(Debug, Args)]
pub(crate) struct LsArgs {
    /// Only this state: running, succeeded, rejected or in_doubt
    #[arg(long, value_name = "STATE")]
    state: Option<StateName>,
    /// Only tools that match; * stands for any characters
    #[arg(long, value_name = "GLOB")]
    tool: Option<String>,
    /// Only this scope
    #[arg(long)]
    scope: Option<String>,
    /// Only this key
    #[arg(long)]
    key: Option<String>,
    /// Only what last changed longer ago than this
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    older_than: Option<u64>,
    /// Only what changed within this time
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    newer_than: Option<u64>,
    /// At most this many
    #[arg(long, default_value_t = 50, value_name = "N")]
    limit: usize,
    /// Everything that matches
    #[arg(long, conflicts_with = "limit")]
    all: bool,
    /// Every namespace, not just the current one
    #[arg(long)]
    all_namespaces: bool,
}

/// Runs the command.
pub(crate) async fn run(global: &Global, args: LsArgs) -> Result<ExitCode, Failure> {
    let context = Context::load(global)?;
    let oncely = context.open().await?;
    let store = &**oncely.store();
    let filter = filter(&args, &context, store.now().await?);
    let mut listing = Listing::new(global, &args);
    for recorded in recorded_states(args.state) {
        let filter = Filter { state: recorded, ..filter.clone() };
        if listing.list(store, filter, args.state).await? == Reader::Gone {
            return Ok(ExitCode::SUCCESS);
        }
    }
    let nothing_here = listing.listed == 0;
    listing.finish();
    if !args.all_namespaces && (nothing_here || args.is_broad()) {
        // A hint that cannot be given is no reason to fail.
        if let Ok(found) = look_elsewhere(store, filter, &context.namespace, args.state).await {
            say_elsewhere(&found, args.state);
        }
    }
    Ok(ExitCode::SUCCESS)
}

impl LsArgs {
    /// Whether a few records tell what there is: to look for what matches a narrow question is a pass over the ledger.
    fn is_broad(&self) -> bool {
        let narrow = self.tool.is_some() || self.scope.is_some() || self.key.is_some();
        !narrow && self.older_than.is_none() && self.newer_than.is_none()
    }
}

fn filter(args: &LsArgs, context: &Context, now: Millis) -> Filter {
    let ago = |ms: u64| Millis(now.0.saturating_sub(ms));
    Filter {
        namespace: (!args.all_namespaces).then(|| context.namespace.clone()),
        state: None,
        tool: args.tool.clone(),
        scope: args.scope.clone(),
        key: args.key.clone(),
        id_prefix: None,
        changed_since: args.newer_than.map(ago),
        changed_before: args.older_than.map(ago),
    }
}

/// The states that the ledger may have written for a state asked for: a running attempt whose owner is gone is in
/// doubt, whether or not somebody has found that out yet.
fn recorded_states(asked: Option<StateName>) -> Vec<Option<StateName>> {
    match asked {
        Some(StateName::InDoubt) => vec![Some(StateName::InDoubt), Some(StateName::Running)],
        other => vec![other],
    }
}

/// What matches in other namespaces, as far as one looked.
#[derive(Debug, Default)]
struct Elsewhere {
    count: usize,
    /// There is more that was not looked at.
    more: bool,
}

/// Counts what the same question finds in other namespaces: the gateway has one for every tenant, and somebody who looks
/// for doubts here must not go away believing that there are none.
async fn look_elsewhere(
    store: &dyn Store,
    filter: Filter,
    here: &Namespace,
    asked: Option<StateName>,
) -> Result<Elsewhere, Failure> {
    let mut found = Elsewhere::default();
    for recorded in recorded_states(asked) {
        let filter = Filter { namespace: None, state: recorded, ..filter.clone() };
        let page = store.scan(filter, 0, ELSEWHERE_MAX).await?;
        let others = page.items.iter().filter(|stored| stored.record.body.name.namespace != *here);
        found.count +=
            others.filter(|stored| asked.is_none_or(|asked| asked == state_now(store, stored))).count();
        found.more |= page.next.is_some();
    }
    Ok(found)
}

/// On standard error in any case: what programs read is records and nothing else.
fn say_elsewhere(found: &Elsewhere, asked: Option<StateName>) {
    match (found.count, found.more) {
        (0, true) if asked == Some(StateName::InDoubt) => {
            output::say("there may be some in other namespaces: add --all-namespaces");
        }
        (0, _) => {}
        (count, more) => {
            let or_more = if more { " or more" } else { "" };
            output::say(&format!("{count}{or_more} in other namespaces: add --all-namespaces"));
        }
    }
}

/// What has been listed so far.
struct Listing {
    left: usize,
    listed: usize,
    more: bool,
    rows: Option<comfy_table::Table>,
}

impl Listing {
    fn new(global: &Global, args: &LsArgs) -> Self {
        let columns = ["ID", "STATE", "TOOL", "KEY", "SCOPE", "ATTEMPTS", "AGE", "EFFECT/WHY"];
        let rows = (!output::wants_json(global.json)).then(|| output::table(&columns));
        Self { left: if args.all { usize::MAX } else { args.limit }, listed: 0, more: false, rows }
    }

    async fn list(
        &mut self,
        store: &dyn Store,
        filter: Filter,
        asked: Option<StateName>,
    ) -> Result<Reader, Failure> {
        let mut from = 0;
        loop {
            let page = store.scan(filter.clone(), from, PAGE_MAX).await?;
            let clock = Clock::reading(page.now);
            for unreadable in &page.unreadable {
                if self.tell(unreadable)? == Reader::Gone {
                    return Ok(Reader::Gone);
                }
            }
            for stored in &page.items {
                let state = state_now(store, stored);
                if asked.is_some_and(|asked| asked != state) {
                    continue;
                }
                if self.left == 0 {
                    self.more = true;
                    return Ok(Reader::There);
                }
                self.left -= 1;
                self.listed += 1;
                if self.add(&RecordView::of(store, stored, &clock), state)? == Reader::Gone {
                    return Ok(Reader::Gone);
                }
            }
            match page.next {
                Some(next) => from = next,
                None => return Ok(Reader::There),
            }
        }
    }

    /// What cannot be read is never silently left out: it may be what somebody looks for.
    fn tell(&mut self, unreadable: &Unreadable) -> Result<Reader, Failure> {
        let Unreadable { intent, state, why, .. } = unreadable;
        if self.rows.is_none() {
            let (id, state) = (intent.to_string(), state.as_str());
            // Not under `id`: a line of another kind must not slip into what is done with listed ids.
            let found = serde_json::json!({ "id": id, "state": state, "why": why });
            return output::stream_json(&serde_json::json!({ "unreadable": found }));
        }
        let line = format!(
            "the record {intent}, filed as {}, cannot be read: {why}; see oncely doctor",
            state.as_str()
        );
        output::say(&output::clean(&line));
        Ok(Reader::There)
    }

    fn add(&mut self, view: &RecordView, state: StateName) -> Result<Reader, Failure> {
        let Some(rows) = &mut self.rows else { return output::stream_json(view) };
        rows.add_row([
            output::cell(Tone::Plain, view.seen.short_id()),
            output::cell(output::tone_of(state), view.seen.state),
            output::cell(Tone::Plain, &view.seen.name.tool),
            output::cell(Tone::Plain, &view.seen.name.key_short()),
            output::cell(Tone::Dim, view.seen.name.scope.as_deref().unwrap_or("-")),
            output::cell(Tone::Plain, &view.seen.attempts.to_string()),
            output::cell(Tone::Dim, &output::age(view.age_ms)),
            output::cell(Tone::Plain, &view.seen.effect_or_why()),
        ]);
        Ok(Reader::There)
    }

    fn finish(self) {
        let Some(rows) = self.rows else { return };
        if rows.is_empty() {
            output::say("nothing is remembered that matches");
        } else {
            output::print_table(&rows);
        }
        if self.more {
            output::say("there is more: --limit N, or --all");
        }
    }
}
