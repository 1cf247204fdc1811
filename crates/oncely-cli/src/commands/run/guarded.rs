//! Runs the command of a call under the ledger's protection.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use oncely::policy_file::CheckCommand;
use oncely::{Attempt, AttemptInfo, Begun, Call, Finding, Oncely, Outcome, Probe};
use oncely_core::name::hex;
use oncely_core::{AttemptToken, Failure as Rejection, IntentId, IntentName, Record, State, Store};
use oncely_doors::command::child::{self, Ended, Live, PassedSignals, Plan};
use oncely_doors::command::{
    ATTEMPT_VARIABLE, DOWNSTREAM_KEY_PLACE, DOWNSTREAM_KEY_VARIABLE, KEY_VARIABLE, TOKEN_VARIABLE, classify,
    orphans, probe,
};
use tokio::sync::oneshot;

use super::ending::Over;
use super::hurry::Hurry;
use super::{Prepared, ending, report};
use crate::context::actor;
use crate::exit::{self, Failure};
use crate::output::Spinner;

/// How long the end of a command is tried to be recorded when the ledger fails, before we give up and exit.
pub const DRAIN: Duration = Duration::from_secs(30);
/// How long a claim whose answer was lost is tried to be taken back: else the next call could find it in doubt.
const TAKE_BACK: Duration = Duration::from_secs(5);
/// How long a command runs before what is counted of it is written.
const COUNT_AFTER: Duration = Duration::from_millis(250);
/// How long the counters may take to be written.
pub const FLUSH: Duration = Duration::from_secs(5);
/// How long a call waits silently before it says what it waits for.
const QUIET: Duration = Duration::from_millis(300);

/// Runs the command unless an earlier call answers for it.
pub async fn run(oncely: Oncely, mut prepared: Prepared) -> Result<ExitCode, Failure> {
    let mut signals = catch_signals()?;
    let name = oncely.name_of(&prepared.call)?;
    let intent = name.intent_id();
    prepared.call.probe = prepared.check.as_ref().map(|check| probe_of(&oncely, name, check));
    if prepared.retry_unknown {
        prepared.call.checked = vouch(&oncely, intent).await?;
    }
    let begun = tokio::select! {
        biased;
        begun = begin_with_spinner(&oncely, &prepared.call, intent) => match begun {
            Ok(begun) => begun,
            Err(failure) => {
                // A drain tells of effects only, so that its own end is no sign that the claim was taken back.
                let taken_back = tokio::time::timeout(TAKE_BACK, oncely.drain(DRAIN));
                if !matches!(Hurry::heard_by(signals).unless_asked(taken_back).await, Some(Ok(_))) {
                    // Closing it would wait, too.
                    std::mem::forget(oncely);
                }
                return Err(failure);
            }
        },
        // Nothing runs yet: ending the waiter ends only the waiter.
        signal = signals.next() => {
            leave(oncely, TAKE_BACK, Hurry::heard_by(signals)).await;
            return Ok(ExitCode::from(128 + signal as u8));
        }
    };
    match begun {
        Begun::Answered(answer) => {
            let code = report::answered(&answer, prepared.json);
            leave(oncely, DRAIN, Hurry::heard_by(signals)).await;
            Ok(code)
        }
        Begun::Run(attempt) => Ok(execute(oncely, attempt, prepared, signals).await),
    }
}

/// Waits for what is still to be written, then writes the counters and closes the ledger; unless somebody holds it up or asks
/// for the end: counters are no reason to hang, nor to change what the command answered.
async fn leave(oncely: Oncely, patience: Duration, mut hurry: Hurry) {
    hurry.unless_asked(oncely.drain(patience)).await;
    let flushed = hurry.unless_asked(tokio::time::timeout(FLUSH, oncely.store().flush())).await;
    if !matches!(flushed, Some(Ok(_))) {
        // Closing it would wait, too.
        std::mem::forget(oncely);
    }
}

/// That an attempt has begun is counted with its end; where that takes long, before: others look at the counters.
async fn count_in_time(store: Arc<dyn Store>) {
    tokio::time::sleep(COUNT_AFTER).await;
    // They wait for the end then.
    let _ = store.flush().await;
}

/// Runs a command that changes nothing: it is neither recorded nor replayed.
pub async fn run_read(prepared: Prepared) -> Result<ExitCode, Failure> {
    let mut signals = catch_signals()?;
    let plan = plan_of(&prepared, Vec::new(), prepared.argv.clone());
    let ended = match child::start(&plan) {
        Ok(running) => running.attend(&plan, &mut signals).await,
        Err(error) => {
            let (code, message) = not_started(&prepared.argv, &error);
            return Err(Failure::new(code, "SPAWN_FAILED", message));
        }
    };
    let ended =
        ended.map_err(|e| Failure::internal(format!("the command's end could not be awaited: {e}")))?;
    Ok(report::read(&ended, prepared.json))
}

fn catch_signals() -> Result<PassedSignals, Failure> {
    PassedSignals::catch()
        .map_err(|e| Failure::internal(format!("signals cannot be caught: {e}; nothing ran")))
}

async fn begin_with_spinner(oncely: &Oncely, call: &Call, intent: IntentId) -> Result<Begun, Failure> {
    let mut begin = std::pin::pin!(oncely.begin(call));
    tokio::select! {
        biased;
        begun = &mut begin => return Ok(begun?),
        () = tokio::time::sleep(QUIET) => {}
    }
    let stored = oncely.store().load(intent).await.ok().flatten();
    let spinner = stored.and_then(|stored| match &stored.record.body.state {
        State::Running { owner, .. } => Some(Spinner::start(&format!(
            "waiting for attempt {} of {} (pid {} on {})",
            stored.record.body.attempts,
            stored.record.body.name.tool.as_str(),
            owner.process.pid,
            owner.host
        ))),
        _ => None,
    });
    let begun = begin.await;
    drop(spinner);
    Ok(begun?)
}

async fn execute(
    oncely: Oncely,
    attempt: Attempt,
    mut prepared: Prepared,
    signals: PassedSignals,
) -> ExitCode {
    let seen: Arc<Mutex<Option<Ended>>> = Arc::default();
    let json = prepared.json;
    let (record, probe) = (attempt.info().clone(), prepared.call.probe.take());
    let keep = seen.clone();
    let (over, told) = oneshot::channel();
    let effect = move |info: AttemptInfo| async move {
        let outcome = run_child(info, prepared, signals, keep.clone()).await;
        let asked = keep.lock().is_ok_and(|ended| ended.as_ref().is_some_and(|ended| ended.asked));
        // Nobody hears it who has gone.
        let _ = over.send(Over { outcome: outcome.clone(), asked });
        outcome
    };
    let counted = tokio::spawn(count_in_time(oncely.store().clone()));
    let (mut execution, mut hurry) =
        ending::attend(oncely.execute(attempt, probe, effect), told, &record).await;
    counted.abort();
    // It holds the ledger until then. That it was told to end is no failure.
    let _ = counted.await;
    let recorded = ending::record_late(&oncely, &mut execution, &record, &mut hurry).await;
    let ended = seen.lock().ok().and_then(|mut seen| seen.take());
    let code = report::executed(&execution, recorded, &record, ended.as_ref(), json);
    leave(oncely, Duration::ZERO, hurry).await;
    code
}

async fn run_child(
    info: AttemptInfo,
    prepared: Prepared,
    mut signals: PassedSignals,
    keep: Arc<Mutex<Option<Ended>>>,
) -> Outcome {
    let downstream = info.downstream_key().to_string();
    let argv = prepared.argv.iter().map(|arg| fill(arg, &downstream)).collect();
    let plan = plan_of(&prepared, variables(&info), argv);
    let running = match child::start(&plan) {
        Ok(running) => running,
        Err(error) if child::is_certainly_not_started(&error) => {
            let (exit, message) = not_started(&prepared.argv, &error);
            let code = if exit == report::NOT_FOUND { "COMMAND_NOT_FOUND" } else { "SPAWN_FAILED" };
            return Outcome::NotStarted(Rejection::new(code, message));
        }
        Err(error) => return Outcome::unknown(format!("the command may have been started: {error}")),
    };
    match running.attend(&plan, &mut signals).await {
        Ok(ended) => {
            let outcome = classify::outcome(&ended, &prepared.rules);
            if let Ok(mut keep) = keep.lock() {
                *keep = Some(ended);
            }
            outcome
        }
        Err(error) => Outcome::unknown(format!("the command's end could not be awaited: {error}")),
    }
}

fn plan_of(prepared: &Prepared, env: Vec<(String, String)>, argv: Vec<OsString>) -> Plan {
    Plan {
        argv,
        env,
        stdin: prepared.stdin.clone(),
        timeout: prepared.timeout,
        stdout: if prepared.json { Live::Held } else { Live::PassedOn },
    }
}

fn variables(info: &AttemptInfo) -> Vec<(String, String)> {
    vec![
        (KEY_VARIABLE.into(), info.name().key.as_str().into()),
        (ATTEMPT_VARIABLE.into(), info.number().to_string()),
        (DOWNSTREAM_KEY_VARIABLE.into(), info.downstream_key().to_string()),
        (TOKEN_VARIABLE.into(), hex(&info.token().0)),
    ]
}

/// Puts the downstream key in its place in an argument.
fn fill(argument: &OsString, downstream_key: &str) -> OsString {
    let place = DOWNSTREAM_KEY_PLACE.as_bytes();
    let bytes = argument.as_bytes();
    let mut filled = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some(at) = rest.windows(place.len()).position(|window| window == place) {
        filled.extend_from_slice(&rest[..at]);
        filled.extend_from_slice(downstream_key.as_bytes());
        rest = &rest[at + place.len()..];
    }
    filled.extend_from_slice(rest);
    OsString::from_vec(filled)
}

/// The exit code and words for a command that could not be started, as a shell has them.
fn not_started(argv: &[OsString], error: &io::Error) -> (u8, String) {
    let program = argv.first().map(|p| p.to_string_lossy().into_owned()).unwrap_or_default();
    let code =
        if error.kind() == io::ErrorKind::NotFound { report::NOT_FOUND } else { report::NOT_EXECUTABLE };
    (code, format!("{program:?} could not be started: {error}; nothing happened"))
}

/// Asks the check command, unless what the attempt in doubt started is still at work: then nobody can tell.
fn probe_of(oncely: &Oncely, name: IntentName, check: &CheckCommand) -> Probe {
    let (oncely, check) = (oncely.clone(), check.clone());
    Arc::new(move || {
        let (oncely, name, check) = (oncely.clone(), name.clone(), check.clone());
        Box::pin(async move {
            let intent = name.intent_id();
            // Without the record nobody knows what to look for.
            let stored = match oncely.store().load(intent).await {
                Ok(stored) => stored,
                Err(error) => return Finding::Unsure(format!("the record cannot be read: {error}")),
            };
            // Before the check is asked: what works on meanwhile could act right after it has looked.
            if let Some(objection) = stored.as_ref().and_then(|s| left_by(&oncely, &s.record).objection()) {
                return Finding::Unsure(objection);
            }
            let (generation, rejections) =
                stored.map_or((1, 0), |s| (s.record.body.generation, s.record.body.rejections));
            let downstream_key = intent.downstream_key(generation, rejections).to_string();
            let argv = check_argv(&check, name.key.as_str(), &downstream_key);
            let env = vec![
                (KEY_VARIABLE.to_owned(), name.key.as_str().to_owned()),
                (DOWNSTREAM_KEY_VARIABLE.to_owned(), downstream_key),
            ];
            probe::ask(&argv, &env).await
        })
    })
}

/// The check's arguments. Nothing is put into a shell's text: there the environment carries the keys.
fn check_argv(check: &CheckCommand, key: &str, downstream_key: &str) -> Vec<OsString> {
    match check {
        CheckCommand::Shell(line) => ["sh", "-c", line].iter().map(OsString::from).collect(),
        CheckCommand::Argv(argv) => argv
            .iter()
            .map(|arg| arg.replace("{key}", key).replace(DOWNSTREAM_KEY_PLACE, downstream_key).into())
            .collect(),
    }
}

/// What a record's latest attempt left behind, unless it is our own and only about to start.
fn left_by(oncely: &Oncely, record: &Record) -> orphans::Left {
    if oncely.is_under_way(record) { orphans::Left::Nobody } else { orphans::look(record, &**oncely.store()) }
}

/// Who vouches for which attempt: the latest, if it is not under way any more.
async fn vouch(oncely: &Oncely, intent: IntentId) -> Result<Option<(String, AttemptToken)>, Failure> {
    let Some(stored) = oncely.store().load(intent).await? else { return Ok(None) };
    if stored.record.body.state.has_ended() || oncely.is_under_way(&stored.record) {
        return Ok(None);
    }
    match left_by(oncely, &stored.record).objection() {
        Some(objection) => Err(Failure::new(
            exit::UNKNOWN,
            "OUTCOME_UNKNOWN",
            format!("{objection}; nothing ran. Wait for its end or stop it, check, then try again"),
        )),
        None => Ok(Some((actor(), stored.record.body.token))),
    }
}
