//! `oncely show`: one record with its attempts, audit trail and result.

use std::process::ExitCode;

use clap::Args;
use oncely_core::limits::PAGE_MAX;
use oncely_core::{EventKind, Filter, IntentId, LogQuery, LoggedEvent, State, StateName, Store, Stored};
use serde::Serialize;
use serde_json::Value;

use super::find;
use super::view::{self, EventView, RecordView};
use crate::args::Global;
use crate::context::Context;
use crate::exit::Failure;
use crate::output::{self, Clock, Tone};

/// Most audit events shown for one record: the newest.
const EVENTS_MAX: usize = PAGE_MAX;

/// Show one record: its state, attempts, audit trail and result
#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// The record's id, or at least 6 digits of its start
    #[arg(required_unless_present = "key", conflicts_with_all = ["key", "scope", "tool"])]
    id: Option<String>,
    /// The record with this key instead
    #[arg(long)]
    key: Option<String>,
    /// ... in this scope
    #[arg(long, requires = "key")]
    scope: Option<String>,
    /// ... of this tool; * stands for any characters
    #[arg(long, requires = "key", value_name = "GLOB")]
    tool: Option<String>,
}

/// Runs the command.
pub(crate) async fn run(global: &Global, args: ShowArgs) -> Result<ExitCode, Failure> {
    let context = Context::load(global)?;
    let oncely = context.open().await?;
    let store = &**oncely.store();
    let stored = find_one(store, &context, args).await?;
    let detail = Detail::read(global, store, &stored).await?;
    if output::wants_json(global.json) {
        output::print_json(&detail);
    } else {
        detail.print(&stored);
    }
    Ok(ExitCode::SUCCESS)
}

async fn find_one(store: &dyn Store, context: &Context, args: ShowArgs) -> Result<Stored, Failure> {
    if let Some(id) = &args.id {
        return find::by_id(store, id).await;
    }
    let said = format!("with the key {:?}", args.key.as_deref().unwrap_or_default());
    let filter = Filter {
        namespace: Some(context.namespace.clone()),
        key: args.key,
        scope: args.scope,
        tool: args.tool,
        ..Filter::default()
    };
    find::by_filter(store, filter, &said).await
}

/// Everything there is to say of one record.
#[derive(Debug, Serialize)]
struct Detail {
    #[serde(flatten)]
    record: RecordView,
    downstream_key: String,
    /// When the result, or then the record, is dropped; `null` while it is running or in doubt.
    expires_in_ms: Option<u64>,
    /// Ends of attempts that had been superseded: each is a possible double effect.
    superseded: usize,
    tries: Vec<TryView>,
    events: Vec<EventView>,
    result: Option<Value>,
    evidence: Option<Value>,
    /// The commands that settle a doubt.
    settle: Vec<String>,
}

/// One attempt, as the audit trail tells it.
#[derive(Debug, Serialize)]
struct TryView {
    attempt: u32,
    began_at: Option<String>,
    ended_at: Option<String>,
    /// `succeeded`, `rejected`, `in_doubt`, or `running`.
    outcome: &'static str,
}

impl Detail {
    async fn read(global: &Global, store: &dyn Store, stored: &Stored) -> Result<Self, Failure> {
        let query =
            LogQuery { after: 0, intent: Some(stored.record.intent), limit: EVENTS_MAX, newest: true };
        let logged = store.log(query).await?.items;
        let clock = Clock::reading(stored.now);
        let record = RecordView::of(store, stored, &clock);
        let body = &stored.record.body;
        let in_doubt = view::state_now(store, stored) == StateName::InDoubt;
        let age = clock.age_ms(stored.record.changed_at);
        Ok(Self {
            downstream_key: stored.record.intent.downstream_key(body.generation, body.rejections).to_string(),
            expires_in_ms: body.due_after_ms().map(|due| due.saturating_sub(age)),
            superseded: logged.iter().filter(|logged| logged.event.kind == EventKind::Superseded).count(),
            tries: tries(&logged, &clock),
            events: logged.iter().map(|logged| EventView::of(logged, None, &clock)).collect(),
            result: result_of(stored).map(view::bytes_json),
            evidence: evidence_of(stored).map(view::bytes_json),
            settle: if in_doubt { settling(global, &stored.record.intent) } else { Vec::new() },
            record,
        })
    }

    fn print(&self, stored: &Stored) {
        let clock = Clock::reading(stored.now);
        self.print_record(stored, &clock);
        self.print_tries();
        if self.superseded > 0 {
            let loud = "A superseded attempt ended: the effect may have happened more than once.";
            output::print(&format!("\n{}", output::paint(Tone::Loud, loud)));
        }
        if !self.events.is_empty() {
            output::print(&format!("\n{}", output::paint(Tone::Head, "Audit trail")));
            self.events.iter().for_each(|event| output::print(&format!("  {}", view::event_line(event))));
        }
        for (heading, bytes) in [("Result", result_of(stored)), ("Evidence", evidence_of(stored))] {
            if let Some(bytes) = bytes {
                let size = output::size(bytes.len() as u64);
                output::print(&format!("\n{} ({size})", output::paint(Tone::Head, heading)));
                view::bytes_lines(bytes).iter().for_each(|line| output::print(&format!("  {line}")));
            }
        }
        if !self.settle.is_empty() {
            output::print(&format!("\n{}", output::paint(Tone::Loud, "The outcome is unknown.")));
            output::print("Find out whether it happened, then say so with one of:");
            self.settle.iter().for_each(|line| output::print(&format!("  {line}")));
        }
    }

    fn print_record(&self, stored: &Stored, clock: &Clock) {
        let record = &self.record.seen;
        let state: StateName = record.state.parse().unwrap_or(StateName::InDoubt);
        let when = |at| format!("{} ({} ago)", clock.local(at), clock.ago(at));
        let mut lines = vec![
            ("id", record.id.clone()),
            ("state", output::paint(output::tone_of(state), record.state)),
            ("tool", output::clean(&record.name.tool)),
            ("key", format!("{} ({})", output::clean(&record.name.key), record.name.key_origin)),
            ("scope", output::clean(record.name.scope.as_deref().unwrap_or("-"))),
            ("namespace", record.name.namespace.clone()),
            ("attempts", format!("{} (generation {})", record.attempts, record.generation)),
            ("first seen", when(stored.record.created_at)),
            ("changed", when(stored.record.changed_at)),
        ];
        let why = record.effect_or_why();
        match state {
            StateName::Succeeded => lines.push(("effect", why)),
            StateName::Running => {}
            StateName::Rejected | StateName::InDoubt => lines.push(("why", output::clean(&why))),
        }
        if let Some(owner) = &record.owner {
            let alive = match owner.alive {
                Some(true) => ", alive",
                Some(false) => ", gone",
                None => "",
            };
            let line = format!("{}{alive}", output::clean(&owner.line()));
            lines.push(("owner", line));
        }
        if let Some(by) = &record.settled_by {
            lines.push(("settled by", output::clean(by)));
        }
        lines.push(("downstream", self.downstream_key.clone()));
        if let Some(ms) = self.expires_in_ms {
            let what = if record.result_bytes.is_some() { "result dropped" } else { "forgotten" };
            lines.push((what, format!("in {}", output::age(ms))));
        }
        for (name, value) in lines {
            output::print(&format!("{} {value}", output::paint(Tone::Dim, &format!("{name:<14}"))));
        }
    }

    fn print_tries(&self) {
        if self.tries.is_empty() {
            return;
        }
        output::print(&format!("\n{}", output::paint(Tone::Head, "Attempts")));
        for attempt in &self.tries {
            let began = attempt.began_at.as_deref().unwrap_or("(no longer in the log)");
            let ended = attempt.ended_at.as_deref().map(|at| format!(" at {at}")).unwrap_or_default();
            output::print(&format!("  {:>3}  began {began}  {}{ended}", attempt.attempt, attempt.outcome));
        }
    }
}

/// The commands that settle a doubt.
pub(crate) fn settling(global: &Global, intent: &IntentId) -> Vec<String> {
    let id = intent.to_string();
    vec![
        format!("{} [--result FILE]", output::command_line(global, &["resolve", &id, "--succeeded"])),
        output::command_line(global, &["resolve", &id, "--rejected"]),
    ]
}

fn result_of(stored: &Stored) -> Option<&[u8]> {
    match &stored.record.body.state {
        State::Succeeded { result, .. } => result.as_deref(),
        State::Rejected { failure, .. } => failure.detail.as_deref(),
        _ => None,
    }
}

fn evidence_of(stored: &Stored) -> Option<&[u8]> {
    match &stored.record.body.state {
        State::InDoubt { doubt, .. } => doubt.evidence.as_deref(),
        _ => None,
    }
}

/// The attempts, as the audit trail tells them.
fn tries(logged: &[LoggedEvent], clock: &Clock) -> Vec<TryView> {
    let mut tries: Vec<TryView> = Vec::new();
    for LoggedEvent { at, event, .. } in logged.iter().filter(|logged| logged.event.attempt > 0) {
        let at_place = tries.iter().position(|t| t.attempt == event.attempt).unwrap_or_else(|| {
            tries.push(TryView {
                attempt: event.attempt,
                began_at: None,
                ended_at: None,
                outcome: "running",
            });
            tries.len() - 1
        });
        let attempt = &mut tries[at_place];
        let outcome = match event.kind {
            EventKind::Began => {
                attempt.began_at = Some(clock.rfc3339(*at));
                continue;
            }
            EventKind::Succeeded | EventKind::ProbeHappened | EventKind::ResolvedSucceeded => "succeeded",
            EventKind::Rejected | EventKind::ResolvedRejected | EventKind::ProbeNotHappened => "rejected",
            // Only a rejection is logged with its reason.
            EventKind::LateTruth if event.note.is_some() => "rejected",
            EventKind::LateTruth => "succeeded",
            EventKind::InDoubt => "in_doubt",
            // None of these ends the attempt that it is logged with.
            EventKind::ProbeUnsure
            | EventKind::Forgotten
            | EventKind::RetriedUnknown
            | EventKind::Purged
            | EventKind::Superseded => continue,
        };
        attempt.outcome = outcome;
        attempt.ended_at = Some(clock.rfc3339(*at));
    }
    tries
}
