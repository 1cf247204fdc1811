//! `oncely resolve`: a person's word about an unknown outcome.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{ArgGroup, Args};
use oncely::ResolveError;
use oncely_core::limits::RESULT_BYTES_MAX;
use oncely_core::machine::Verdict;
use oncely_core::{Effect, Payload, Store, Stored};
use oncely_doors::command::Captured;

use super::find;
use super::view::{self, RecordView};
use oncely_doors::command::orphans;

use crate::args::Global;
use crate::context::{Context, actor};
use crate::exit::{Failure, PRECONDITION, USAGE};
use crate::output::{self, Clock};

/// Settle an unknown outcome: it happened, or it did not
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("verdict").required(true).args(["succeeded", "rejected"]))]
pub(crate) struct ResolveArgs {
    /// The record's id, or at least 6 digits of its start
    id: String,
    /// It happened: later calls replay it
    #[arg(long)]
    succeeded: bool,
    /// It did not happen: a later call may run it again, unless the tool grants no retry at all
    #[arg(long)]
    rejected: bool,
    /// The result to replay from now on; - for standard input. Of a command: its standard output
    #[arg(long, value_name = "FILE", conflicts_with = "rejected")]
    result: Option<PathBuf>,
    /// What changed: created, updated, deleted, sent, executed or noop [default: what the policy says of the tool]
    #[arg(long, conflicts_with = "rejected")]
    effect: Option<Effect>,
    /// How it is known that nothing happened
    #[arg(long, value_name = "TEXT", conflicts_with = "succeeded")]
    reason: Option<String>,
    /// Do not ask
    #[arg(long, short)]
    yes: bool,
}

/// Runs the command.
pub(crate) async fn run(global: &Global, args: ResolveArgs) -> Result<ExitCode, Failure> {
    let context = Context::load(global)?;
    let oncely = context.open().await?;
    let store = &**oncely.store();
    let stored = find::by_id(store, &args.id).await?;
    let verdict = verdict(&context, &args, &stored)?;
    if args.rejected {
        refuse_while_at_work(store, &stored)?;
    }
    if !args.yes {
        consent(global, store, &stored, &args)?;
    }
    let settled =
        oncely.resolve(&stored.record, &actor(), verdict).await.map_err(|error| refused(&error, &args.id))?;
    let view = RecordView::of(store, &settled, &Clock::reading(settled.now));
    if output::wants_json(global.json) {
        output::print_json(&view);
    } else {
        let next = if args.succeeded {
            "later calls replay it"
        } else {
            "a later call may run it again, unless the tool grants no retry at all"
        };
        output::print(&format!("{}; {next}", view::headline(&view)));
    }
    Ok(ExitCode::SUCCESS)
}

fn verdict(context: &Context, args: &ResolveArgs, stored: &Stored) -> Result<Verdict, Failure> {
    if args.rejected {
        let reason = args.reason.as_deref().unwrap_or("a person checked: it did not happen");
        return Ok(Verdict::Rejected(oncely_core::Failure::new("RESOLVED_REJECTED", reason)));
    }
    let tool = stored.record.body.name.tool.as_str();
    let effect = args.effect.unwrap_or_else(|| context.policy.tool(tool).policy.effect);
    let result = match &args.result {
        Some(path) => Some(result_from(path, tool, args)?),
        None => None,
    };
    Ok(Verdict::Succeeded { effect, result })
}

/// Reads the result in the form in which the tool's door replays it.
fn result_from(path: &Path, tool: &str, args: &ResolveArgs) -> Result<Payload, Failure> {
    let from_stdin = path.as_os_str() == "-";
    if from_stdin && !args.yes {
        let message = "standard input is the result, so nobody can be asked; nothing was changed. Add --yes";
        return Err(Failure::usage(message));
    }
    // One byte more than allowed is enough to know that it is too large, whatever its size.
    let limit = RESULT_BYTES_MAX as u64 + 1;
    let mut bytes = Vec::new();
    let read = if from_stdin {
        std::io::stdin().lock().take(limit).read_to_end(&mut bytes)
    } else {
        std::fs::File::open(path).and_then(|file| file.take(limit).read_to_end(&mut bytes))
    };
    read.map_err(|error| {
        Failure::usage(format!("the result {} cannot be read: {error}; nothing was changed", path.display()))
    })?;
    if tool.starts_with("cmd:") {
        bytes = Captured { stdout: bytes, stderr: Vec::new(), exit_code: 0 }.encode();
    }
    if bytes.len() > RESULT_BYTES_MAX {
        return Err(Failure::usage(format!(
            "the result {} is larger than {RESULT_BYTES_MAX} bytes, the most that is kept; nothing was changed. \
             Without --result the success is remembered, and replayed without a result",
            path.display()
        )));
    }
    Ok(bytes.into())
}

fn consent(global: &Global, store: &dyn Store, stored: &Stored, args: &ResolveArgs) -> Result<(), Failure> {
    let (flag, claim) =
        if args.succeeded { ("--succeeded", "it happened") } else { ("--rejected", "it did not happen") };
    let question = format!("Say for good that {claim}?");
    let result = args.result.as_ref().map(|path| path.to_string_lossy().into_owned());
    let mut words = vec!["resolve", &args.id, flag];
    if let Some(result) = &result {
        words.extend(["--result", result]);
    }
    if let Some(effect) = &args.effect {
        words.extend(["--effect", effect.as_str()]);
    }
    if let Some(reason) = &args.reason {
        words.extend(["--reason", reason]);
    }
    words.push("--yes");
    ask_about(store, &[stored], &question, &output::command_line(global, &words))
}

/// Shows records and asks about them; without a person to ask, says which command needs none.
pub(crate) fn ask_about(
    store: &dyn Store,
    records: &[&Stored],
    question: &str,
    fix: &str,
) -> Result<(), Failure> {
    if !output::can_ask() {
        let message =
            "this is for good and nobody can be asked here; nothing was changed. Confirm it with --yes";
        return Err(Failure::new(USAGE, "CONFIRMATION_NEEDED", message).with_fix(fix));
    }
    for stored in records {
        let view = RecordView::of(store, stored, &Clock::reading(stored.now));
        output::say(&view::headline(&view));
        output::say(&format!("  {} ago, attempt {}", output::age(view.age_ms), view.seen.attempts));
        output::say(&format!("  {}", output::clean(&view.seen.effect_or_why())));
    }
    if output::ask(question) {
        return Ok(());
    }
    Err(Failure::new(PRECONDITION, "NOT_CONFIRMED", "not confirmed; nothing was changed"))
}

/// While what an attempt started is still at work, nobody can say that it did not happen.
pub(crate) fn refuse_while_at_work(store: &dyn Store, stored: &Stored) -> Result<(), Failure> {
    let left = orphans::look(&stored.record, store);
    match left.objection() {
        // A machine that is gone for good can never be looked at: then the person's word is all there is.
        Some(objection) if left == orphans::Left::CannotTell => {
            output::say(&format!("careful: {objection}"));
            Ok(())
        }
        Some(objection) => Err(Failure::new(
            PRECONDITION,
            "STILL_AT_WORK",
            format!("{objection}; nothing was changed. Wait for its end or stop it, then look again"),
        )),
        None => Ok(()),
    }
}

/// A wish that was not carried out.
pub(crate) fn refused(error: &ResolveError, id: &str) -> Failure {
    let said = |code: &str| Failure::new(PRECONDITION, code, format!("{error} ({id}); nothing was changed"));
    match error {
        ResolveError::Store(error) => error.clone().into(),
        ResolveError::NoRecord => said("NO_RECORD"),
        ResolveError::NotInDoubt => said("NOT_IN_DOUBT"),
        ResolveError::Running => said("RUNNING"),
        ResolveError::Moved => said("MOVED"),
        ResolveError::Kept(_) => said("UNREADABLE"),
    }
}
