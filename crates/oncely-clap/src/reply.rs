//! Replies: every answer as an envelope with its exit code, in words that say what happened, whether anything ran, and
//! what to do next.

use oncely::{Answer, AttemptInfo, Execution, Forecast, Outcome, Replay, Unrecorded, Unresolved};
use oncely_core::machine::HaltReason;
use oncely_core::{Effect, KeyOrigin, Record, State, StoreError, StoreErrorKind};
use oncely_doors::envelope::Envelope;
use oncely_doors::tell;
use serde_json::Value;

use crate::answer::Failure;
use crate::exit;
use crate::handler::Problems;
use crate::job::Done;
use crate::plan::Plan;

/// An answer and the code that the program ends with.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) exit: u8,
    pub(crate) envelope: Box<Envelope>,
}

impl Reply {
    fn new(exit: u8, envelope: Envelope) -> Self {
        Self { exit, envelope: Box::new(envelope) }
    }

    /// What went wrong before anything ran.
    pub(crate) fn nothing_ran(exit: u8, code: &str, message: impl Into<String>) -> Self {
        Self::of_nothing(exit, Envelope::failed(code, message, false))
    }

    /// A bad answer for which nothing ran: the effect is known, none.
    fn of_nothing(exit: u8, mut envelope: Envelope) -> Self {
        envelope.effect = Some(Effect::Noop.as_str().to_owned());
        Self::new(exit, envelope)
    }

    pub(crate) fn with_fix(mut self, fix: String) -> Self {
        if let Some(error) = &mut self.envelope.error {
            error.fix = Some(fix);
        }
        self
    }

    /// Everything that is wrong with the arguments.
    pub(crate) fn of_problems(problems: &Problems) -> Self {
        let lines: Vec<String> = problems
            .all
            .iter()
            .map(|problem| match &problem.argument {
                // Clap's own words name the argument.
                Some(argument) if !problem.message.contains(argument.as_str()) => {
                    format!("{argument}: {}", problem.message)
                }
                _ => problem.message.clone(),
            })
            .collect();
        let message = format!("{}; nothing ran", lines.join("; "));
        let mut reply = Self::nothing_ran(exit::USAGE, "BAD_ARGUMENTS", message);
        let list = serde_json::to_value(&problems.all).unwrap_or_default();
        reply.envelope.meta.insert("problems".to_owned(), list);
        reply
    }

    /// What a safe command says.
    pub(crate) fn of_query(answer: Result<Value, Failure>) -> Self {
        match answer {
            Ok(data) => Self::new(exit::DONE, Envelope::done(Effect::Noop.as_str(), data)),
            Err(failure) => Self::nothing_ran(exit::PRECONDITION, &failure.code, failure.message),
        }
    }

    /// Why a call got no answer.
    pub(crate) fn of_error(error: &oncely::Error) -> Self {
        let exit = match error {
            oncely::Error::Store(_) | oncely::Error::Overloaded { .. } => exit::STORE_UNAVAILABLE,
            _ => exit::USAGE,
        };
        Self::of_nothing(exit, Envelope::failed(error.code(), error.to_string(), error.is_retryable()))
    }

    /// Why the ledger could not be used.
    pub(crate) fn of_store(error: &StoreError) -> Self {
        let bad_address = error.kind == StoreErrorKind::BadAddress;
        let exit = if bad_address { exit::USAGE } else { exit::STORE_UNAVAILABLE };
        let message = format!("the ledger cannot be used: {error}; nothing ran");
        Self::of_nothing(exit, Envelope::failed("STORE_UNAVAILABLE", message, !bad_address))
    }

    /// A panic that no handler's attempt answers for.
    pub(crate) fn of_panic(message: &str) -> Self {
        let text = format!("the program panicked: {message}; nothing was changed");
        Self::nothing_ran(exit::INTERNAL, "PANICKED", text)
    }

    /// A panic while a handler was acting, where nothing is left to catch it.
    pub(crate) fn of_panic_while_acting(message: &str) -> Self {
        let text = format!(
            "outcome unknown: the program panicked while it was acting: {message}. A retry with the same key tells how \
             it went, or how to settle it"
        );
        Self::new(exit::UNKNOWN, Envelope::failed("OUTCOME_UNKNOWN", text, false))
    }
}

/// Where a record lies, for the commands that people are told to run.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    pub(crate) address: String,
}

impl Place {
    /// The `oncely` command that does this to a record.
    fn command(&self, words: &str) -> String {
        // Addresses of other kinds of ledgers may hold a password.
        match file_of(&self.address) {
            Some(file) => format!("oncely --store {} {words}", quoted(&format!("sqlite:{file}"))),
            None => format!("oncely {words}"),
        }
    }
}

/// The file of a ledger that is one.
pub(crate) fn file_of(address: &str) -> Option<&str> {
    address.strip_prefix("sqlite:").or_else(|| (!address.contains(':')).then_some(address))
}

/// Tells the answer to a call for which nothing ran.
pub(crate) fn answered(answer: &Answer, place: &Place) -> Reply {
    let exit = match answer {
        Answer::Replayed(replay) => return replayed(replay),
        Answer::Unknown(there) => return unknown_before(there, place),
        Answer::Conflict { .. } => exit::CONFLICT,
        Answer::InProgress(_) => exit::IN_PROGRESS,
        Answer::Refused(_) | Answer::Executed(_) => exit::PRECONDITION,
    };
    let envelope =
        tell::without_running(answer).unwrap_or_else(|| Envelope::failed("REFUSED", "nothing ran", false));
    Reply::of_nothing(exit, envelope)
}

fn replayed(replay: &Replay) -> Reply {
    let mut envelope =
        tell::with_record(Envelope::done(Effect::Noop.as_str(), data_of(replay)), &replay.record)
            .with_meta("replayed", true)
            .with_meta("age_ms", replay.age_ms());
    if let Some(effect) = replay.first_effect() {
        envelope = envelope.with_meta("first_effect", effect.as_str());
    }
    envelope.reason = Some(replay_reason(replay));
    Reply::new(exit::DONE, envelope)
}

fn replay_reason(replay: &Replay) -> String {
    let again = match replay.record.body.name.key.origin() {
        KeyOrigin::Explicit => "use another --idempotency-key",
        KeyOrigin::Derived => "pass a new --idempotency-key",
    };
    let kept = if replay.kept { "replayed" } else { "done before, its result is no longer kept" };
    let attempt = replay.record.body.attempts;
    format!(
        "{kept}: attempt {attempt} ran {}; nothing ran now; to run it anew, {again}",
        tell::ago(replay.age_ms())
    )
}

/// The stored result as JSON; what a person put there may be text.
fn data_of(replay: &Replay) -> Value {
    let bytes = replay.result().unwrap_or(b"null");
    serde_json::from_slice(bytes).unwrap_or_else(|_| String::from_utf8_lossy(bytes).into_owned().into())
}

fn unknown_before(there: &Unresolved, place: &Place) -> Reply {
    let known = match &there.record.body.state {
        State::InDoubt { doubt, .. } => doubt.message.clone(),
        _ => "its end is not known".to_owned(),
    };
    let why = match there.reason {
        HaltReason::Policy => "",
        HaltReason::Unsure => " The check could not tell.",
        HaltReason::DownstreamForgot => " What it was handed to no longer remembers the key.",
        HaltReason::BudgetSpent => " The retry budget is spent.",
    };
    let ago = tell::ago(there.now.since(there.record.changed_at));
    let attempt = there.record.body.attempts;
    let message = format!(
        "outcome unknown: attempt {attempt} ({ago}) may have happened: {known}.{why} Nothing ran now. {}",
        ways_out(&there.record, place)
    );
    let envelope = Envelope::failed("OUTCOME_UNKNOWN", message, false).with_fix(show(&there.record, place));
    Reply::new(exit::UNKNOWN, tell::with_record(envelope, &there.record))
}

/// The ways to settle a doubt, once somebody has looked.
fn ways_out(record: &Record, place: &Place) -> String {
    let id = record.intent.short();
    format!(
        "Find out whether it happened, then settle it: `{}` if it did; the same call with --retry-unknown if it did not",
        place.command(&format!("resolve {id} --succeeded"))
    )
}

fn show(record: &Record, place: &Place) -> String {
    place.command(&format!("show {}", record.intent.short()))
}

/// Tells how an attempt went that ran now.
pub(crate) fn executed(
    execution: &Execution,
    info: &AttemptInfo,
    done: Option<Done>,
    place: &Place,
) -> Reply {
    let show = place.command(&format!("show {}", info.intent().short()));
    let mut reply = match &execution.outcome {
        Outcome::Succeeded { effect, result } => succeeded(*effect, result.as_deref(), done),
        Outcome::Rejected(failure) | Outcome::NotStarted(failure) => {
            // "Retryable" and a known effect say that nothing happened, which an attempt before may have made untrue.
            match execution.unrecorded {
                Some(Unrecorded::EarlierUnknown) => {
                    let envelope = Envelope::failed(&failure.code, &failure.message, false);
                    Reply::new(exit::UNKNOWN, envelope.with_fix(show.clone()))
                }
                _ => Reply::of_nothing(
                    exit::PRECONDITION,
                    Envelope::failed(&failure.code, &failure.message, true),
                ),
            }
        }
        Outcome::Unknown(doubt) => {
            let message = format!(
                "outcome unknown: {}. It may have happened, and a retry will not run it again until that is settled",
                doubt.message
            );
            let envelope = Envelope::failed("OUTCOME_UNKNOWN", message, false).with_fix(show.clone());
            Reply::new(exit::UNKNOWN, envelope)
        }
    };
    let name = info.name();
    reply.envelope.warnings.extend(warning(execution, &show));
    for (member, value) in [
        ("id", Value::from(info.intent().to_string())),
        ("tool", name.tool.as_str().into()),
        ("key", name.key.as_str().into()),
        ("attempt", execution.attempt.into()),
        ("downstream_key", info.downstream_key().to_string().into()),
        ("replayed", false.into()),
    ] {
        reply.envelope.meta.insert(member.to_owned(), value);
    }
    if name.scope.is_named() {
        reply.envelope.meta.insert("scope".to_owned(), name.scope.as_str().into());
    }
    reply
}

fn succeeded(effect: Effect, result: Option<&[u8]>, done: Option<Done>) -> Reply {
    let stored = || result.and_then(|bytes| serde_json::from_slice(bytes).ok()).unwrap_or(Value::Null);
    let (data, reason) = match done {
        Some(done) => (done.data.unwrap_or(Value::Null), done.reason),
        // The handler was not called.
        None => (stored(), Some("the check found that it had happened already; nothing ran".to_owned())),
    };
    let mut envelope = Envelope::done(effect.as_str(), data);
    envelope.reason = reason;
    if result.is_none() {
        envelope.warnings.push(
            "the answer is larger than what is kept for a replay; a retry will say that it is done, without it".into(),
        );
    }
    Reply::new(exit::DONE, envelope)
}

fn warning(execution: &Execution, show: &str) -> Option<String> {
    let attempt = execution.attempt;
    match &execution.unrecorded {
        None => None,
        Some(Unrecorded::StoreFailed(error)) => Some(format!(
            "the end of attempt {attempt} could not be recorded ({error}); no retry will run it again until it is \
             settled: {show}"
        )),
        Some(Unrecorded::Superseded) => Some(format!(
            "another attempt had taken the place of attempt {attempt}: the effect may have happened twice: {show}"
        )),
        Some(Unrecorded::EarlierUnknown) => Some(format!(
            "attempt {attempt} did nothing, but what an attempt before it did is not known; settle it: {show}"
        )),
    }
}

/// Tells what a call would do now.
pub(crate) fn forecast(forecast: &Forecast, tool: &str, plan: Option<Plan>, place: &Place) -> Reply {
    let mut reply = match forecast {
        Forecast::WouldRun { attempt, effect } => would_run(*attempt, *effect, tool, plan),
        Forecast::WouldCheck { record } => {
            let mut envelope = tell::with_record(Envelope::done(Effect::Noop.as_str(), Value::Null), record);
            envelope.reason = Some(
                "a call now would ask the check about an attempt in doubt, and then run or not; nothing ran"
                    .into(),
            );
            Reply::new(exit::DONE, envelope)
        }
        Forecast::WouldAnswer(answer) => {
            let mut reply = answered(answer, place);
            if let Some(reason) = reply.envelope.reason.take() {
                reply.envelope.reason = Some(format!("a call now would be {reason}"));
            }
            reply
        }
    };
    reply.envelope.meta.insert("dry_run".to_owned(), true.into());
    reply
}

fn would_run(attempt: u32, declared: Effect, tool: &str, plan: Option<Plan>) -> Reply {
    let call = format!("a call now would run {tool} (attempt {attempt}); nothing ran");
    let envelope = match plan {
        Some(plan) => {
            let mut envelope = Envelope::done(plan.effect.would(), Value::Null);
            envelope.reason = Some(plan.reason.unwrap_or(call));
            envelope.changes = Some(plan.changes.into());
            envelope.with_meta("planned_by", "command")
        }
        None => {
            let mut envelope = Envelope::done(declared.would(), Value::Null);
            envelope.reason =
                Some(format!("{call}; the command has no plan, so what would change is not known"));
            envelope.with_meta("planned_by", "framework")
        }
    };
    Reply::new(exit::DONE, envelope.with_meta("attempt", attempt))
}

/// A word for a shell.
pub(crate) fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@%+,".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}
