//! Says how a call went: the command's own output and exit code, a line on standard error, or the envelope.

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use oncely::{Answer, AttemptInfo, Execution, Forecast, Oncely, Outcome, Replay, Unrecorded};
use oncely_core::{State, StoreError};
use oncely_doors::command::Captured;
use oncely_doors::command::child::{Ended, How};
use oncely_doors::command::classify::own_envelope;
use oncely_doors::envelope::Envelope;
use oncely_doors::tell;
use serde_json::Value;

use super::Prepared;
use crate::exit::{self, Failure};
use crate::output::{print, print_failure, print_json, say};

/// What a shell answers for a command that is not there.
pub const NOT_FOUND: u8 = 127;
/// What a shell answers for a command that cannot be executed.
pub const NOT_EXECUTABLE: u8 = 126;

/// Reports a call for which nothing ran.
pub fn answered(answer: &Answer, json: bool) -> ExitCode {
    match answer {
        Answer::Replayed(replay) => replayed(replay, json),
        Answer::Refused(replay) => refused(replay, answer, json),
        Answer::Conflict { .. } => failed(answer, exit::CONFLICT, json),
        Answer::InProgress(_) => failed(answer, exit::IN_PROGRESS, json),
        Answer::Unknown(_) | Answer::Executed(_) => failed(answer, exit::UNKNOWN, json),
    }
}

fn failed(answer: &Answer, exit: u8, json: bool) -> ExitCode {
    match tell::without_running(answer) {
        Some(envelope) => print_failure(&Failure::of(exit, envelope), json),
        None => ExitCode::from(exit),
    }
}

fn replayed(replay: &Replay, json: bool) -> ExitCode {
    let captured = replay.result().and_then(Captured::decode);
    if json {
        let mut envelope = Envelope::done("noop", captured.as_ref().map_or(Value::Null, data_of));
        envelope.reason = Some(tell::replay_line(replay));
        envelope = tell::with_record(envelope, &replay.record).with_meta("replayed", true);
        if let Some(effect) = replay.first_effect() {
            envelope = envelope.with_meta("first_effect", effect.as_str());
        }
        print_json(&envelope.with_meta("age_ms", replay.age_ms()));
        return ExitCode::SUCCESS;
    }
    let code = captured.as_ref().map_or(0, |captured| captured.exit_code);
    if let Some(captured) = captured {
        write_streams(&captured);
    }
    say(&format!("oncely: {}", tell::replay_line(replay)));
    exit_code(code)
}

fn refused(replay: &Replay, answer: &Answer, json: bool) -> ExitCode {
    let captured = match &replay.record.body.state {
        State::Rejected { failure, .. } => failure.detail.as_deref().and_then(Captured::decode),
        _ => None,
    };
    let code = captured.as_ref().map_or(i32::from(exit::PRECONDITION), |captured| captured.exit_code);
    if let (Some(captured), false) = (&captured, json) {
        write_streams(captured);
    }
    failed(answer, u8::try_from(code).unwrap_or(exit::PRECONDITION), json)
}

/// How the end of an attempt came into the ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recorded {
    /// At once; or not at all, which the execution says.
    AsUsual,
    /// After the ledger had been away.
    Late,
}

/// Says what is waited for after the command has ended.
pub fn still_trying(attempt: u32, error: &StoreError, patience: Duration) {
    say(&format!(
        "oncely: the end of attempt {attempt} could not be recorded yet ({error}); trying for up to {} s more; \
         Ctrl-C leaves it, and then it stays running or in doubt",
        patience.as_secs()
    ));
}

/// Reports a command that ran now.
pub fn executed(
    execution: &Execution,
    recorded: Recorded,
    info: &AttemptInfo,
    ended: Option<&Ended>,
    json: bool,
) -> ExitCode {
    let id = info.intent().short();
    let mut warnings = Vec::new();
    if recorded == Recorded::Late {
        warnings.push(format!(
            "the ledger was away when the command ended; the end of attempt {} is recorded now",
            execution.attempt
        ));
    }
    match &execution.unrecorded {
        Some(Unrecorded::StoreFailed(error)) => warnings.push(format!(
            "the end of attempt {} could not be recorded ({error}); unless it comes through after all, the record \
             stays running or in doubt, and no retry will run it again until it is settled: oncely show {id}",
            execution.attempt
        )),
        Some(Unrecorded::Superseded) => warnings.push(format!(
            "another attempt had taken the place of attempt {}: the effect may have happened twice; see oncely log \
             --id {id}",
            execution.attempt
        )),
        Some(Unrecorded::EarlierUnknown) => warnings.push(format!(
            "attempt {} did nothing, but what an attempt before it did is not known; settle it: oncely show {id}",
            execution.attempt
        )),
        None => {}
    }
    if json {
        print_json(&envelope_of(execution, info, ended, warnings));
        return exit_of(execution, ended);
    }
    for warning in &warnings {
        say(&format!("oncely: warning: {warning}"));
    }
    match (&execution.outcome, ended) {
        // The check found it done: what it printed is the result.
        (Outcome::Succeeded { result, .. }, None) => {
            if let Some(captured) = result.as_deref().and_then(Captured::decode) {
                write_streams(&captured);
            }
            say("oncely: already done, the check says; nothing ran");
        }
        (Outcome::Succeeded { result: None, .. }, Some(_)) => say(
            "oncely: the output is larger than what is kept for a replay; a retry will say that it is done, without it",
        ),
        (Outcome::Succeeded { .. }, Some(_)) => {}
        (Outcome::Rejected(failure) | Outcome::NotStarted(failure), None) => {
            say(&format!("oncely: {}", failure.message))
        }
        (Outcome::Rejected(_) | Outcome::NotStarted(_), Some(_)) => {}
        (Outcome::Unknown(doubt), _) => say(&format!(
            "oncely: outcome unknown: {}; a retry will not run it again until you settle it: oncely resolve {id} \
             --succeeded | --rejected, or oncely run --retry-unknown …",
            doubt.message
        )),
    }
    exit_of(execution, ended)
}

/// Reports a command that changes nothing.
pub fn read(ended: &Ended, json: bool) -> ExitCode {
    if json {
        let mut envelope = Envelope::done("noop", data_of(&ended.captured)).with_meta("kind", "read");
        envelope.ok = ended.how == How::Exited && ended.captured.exit_code == 0;
        print_json(&envelope);
    }
    if ended.how == How::TimedOut { ExitCode::from(124) } else { exit_code(ended.captured.exit_code) }
}

fn exit_of(execution: &Execution, ended: Option<&Ended>) -> ExitCode {
    match (ended, &execution.outcome) {
        (Some(ended), _) if ended.how != How::TimedOut => exit_code(ended.captured.exit_code),
        (_, Outcome::Succeeded { .. }) => ExitCode::SUCCESS,
        (_, Outcome::Rejected(failure) | Outcome::NotStarted(failure)) => match failure.code.as_str() {
            "COMMAND_NOT_FOUND" => ExitCode::from(NOT_FOUND),
            "SPAWN_FAILED" => ExitCode::from(NOT_EXECUTABLE),
            _ => ExitCode::from(exit::PRECONDITION),
        },
        (_, Outcome::Unknown(_)) => ExitCode::from(exit::UNKNOWN),
    }
}

fn envelope_of(
    execution: &Execution,
    info: &AttemptInfo,
    ended: Option<&Ended>,
    warnings: Vec<String>,
) -> Envelope {
    let id = info.intent().short();
    let mut envelope = match &execution.outcome {
        Outcome::Succeeded { effect, result } => {
            let captured = ended.map(|e| e.captured.clone());
            let captured = captured.or_else(|| result.as_deref().and_then(Captured::decode));
            Envelope::done(effect.as_str(), captured.as_ref().map_or(Value::Null, data_of))
        }
        Outcome::Rejected(failure) | Outcome::NotStarted(failure) => {
            // "Retryable" says that nothing happened, which an attempt before this one may have made untrue.
            let certain = !matches!(execution.unrecorded, Some(Unrecorded::EarlierUnknown));
            Envelope::failed(&failure.code, &failure.message, certain)
        }
        Outcome::Unknown(doubt) => {
            Envelope::failed("OUTCOME_UNKNOWN", &doubt.message, false).with_fix(format!("oncely show {id}"))
        }
    };
    if let (false, Some(ended)) = (envelope.ok, ended) {
        envelope.data = data_of(&ended.captured);
    }
    if ended.is_none() && envelope.ok {
        envelope.reason = Some("the check found that it had happened already; nothing ran".into());
    }
    let name = info.name();
    envelope.warnings = warnings;
    envelope
        .with_meta("id", info.intent().to_string())
        .with_meta("tool", name.tool.as_str())
        .with_meta("key", name.key.as_str())
        .with_meta("attempt", execution.attempt)
        .with_meta("downstream_key", info.downstream_key().to_string())
        .with_meta("replayed", false)
}

/// The data of a command's own envelope, or its output as it was.
fn data_of(captured: &Captured) -> Value {
    match own_envelope(&captured.stdout) {
        Some(own) => own.data,
        None => captured.to_json(),
    }
}

/// Says what a call would do now.
pub async fn dry_run(oncely: &Oncely, prepared: Prepared) -> Result<ExitCode, Failure> {
    let tool = prepared.call.tool.as_str().to_owned();
    let envelope = match oncely.dry_run(&prepared.call).await? {
        Forecast::WouldRun { attempt, effect } => {
            let mut envelope = Envelope::done(effect.would(), Value::Null).with_meta("attempt", attempt);
            envelope.reason = Some(format!("a call now would run {tool} (attempt {attempt}); nothing ran"));
            envelope
        }
        Forecast::WouldCheck { record } => {
            let envelope = Envelope::done("noop", Value::Null);
            let mut envelope = tell::with_record(envelope, &record);
            envelope.reason = Some(
                "a call now would ask the check about an attempt in doubt, and then run or not; nothing ran"
                    .into(),
            );
            envelope
        }
        Forecast::WouldAnswer(Answer::Replayed(replay)) => {
            let data = replay.result().and_then(Captured::decode).as_ref().map_or(Value::Null, data_of);
            let mut envelope = tell::with_record(Envelope::done("noop", data), &replay.record);
            envelope.reason = Some(format!("a call now would be {}", tell::replay_line(&replay)));
            envelope
        }
        Forecast::WouldAnswer(answer) => {
            let code = match &answer {
                Answer::Conflict { .. } => exit::CONFLICT,
                Answer::InProgress(_) => exit::IN_PROGRESS,
                Answer::Unknown(_) => exit::UNKNOWN,
                _ => exit::PRECONDITION,
            };
            return Ok(failed(&answer, code, prepared.json));
        }
    };
    let envelope = envelope.with_meta("dry_run", true);
    if prepared.json {
        print_json(&envelope);
    } else {
        let effect = envelope.effect.unwrap_or_default();
        print(&format!("{effect}: {}", envelope.reason.unwrap_or_default()));
    }
    Ok(ExitCode::SUCCESS)
}

fn write_streams(captured: &Captured) {
    // A reader that went away is no reason to fail a replay.
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(&captured.stdout).and_then(|()| out.flush());
    let _ = std::io::stderr().lock().write_all(&captured.stderr);
}

fn exit_code(code: i32) -> ExitCode {
    ExitCode::from(u8::try_from(code).unwrap_or(255))
}
