//! What the end of a command proves: that it happened, that it certainly did not, or neither.

use std::ops::RangeInclusive;

use oncely_core::limits::RESULT_BYTES_MAX;
use oncely_core::{Doubt, DoubtCause, Effect, Failure, Outcome};

use super::captured::Captured;
use super::child::{Ended, How};
use crate::envelope::Envelope;

/// Exit codes that prove that nothing happened, by convention: usage errors, and what a shell answers for a command
/// that could not be started. They hold where a tool states none of its own: some programs use 2 for any failure.
pub const REJECTED_BY_CONVENTION: [RangeInclusive<u8>; 4] = [2..=2, 64..=64, 126..=126, 127..=127];

/// What an end means.
#[derive(Debug, Clone)]
pub struct Rules {
    /// What a success changes, unless the command itself says otherwise.
    pub effect: Effect,
    /// Exit codes that prove that nothing happened.
    pub rejected_on: Vec<RangeInclusive<u8>>,
}

/// Classifies the end of a command.
pub fn outcome(ended: &Ended, rules: &Rules) -> Outcome {
    // What was cut short cannot be taken at its word.
    let said = own_envelope(&ended.captured.stdout).filter(|_| !ended.cut);
    let code = ended.captured.exit_code;
    match &ended.how {
        How::TimedOut => {
            doubt(ended, DoubtCause::TimedOut, "the command was stopped after its --timeout".into())
        }
        How::Signalled(signal) => {
            doubt(ended, DoubtCause::Reported, format!("the command was ended by signal {signal}"))
        }
        How::Exited => match &said {
            Some(envelope) if is_certain_rejection(envelope) => {
                let error = envelope.error.as_ref();
                let code = error.map_or("REJECTED", |e| e.code.as_str());
                rejected(ended, code, error.map_or("the command says so", |e| e.message.as_str()).to_owned())
            }
            Some(envelope) if code == 0 && !envelope.ok => doubt(
                ended,
                DoubtCause::Reported,
                "the command exited with 0 but says that it is not ok, and not that nothing happened".into(),
            ),
            _ if code == 0 => {
                let effect = said.and_then(|e| e.effect?.parse().ok()).unwrap_or(rules.effect);
                let result = (!ended.cut).then(|| ended.captured.encode().into());
                Outcome::Succeeded { effect, result }
            }
            _ if is_rejected(code, rules) => rejected(
                ended,
                "REJECTED",
                format!("the command exited with {code}, which means that nothing happened"),
            ),
            _ => doubt(
                ended,
                DoubtCause::Reported,
                format!("the command exited with {code}, which does not prove that nothing happened"),
            ),
        },
    }
}

/// The envelope that a command printed as its whole standard output, if it did.
pub fn own_envelope(stdout: &[u8]) -> Option<Envelope> {
    let looks_like_one = stdout.iter().find(|b| !b.is_ascii_whitespace()) == Some(&b'{');
    if !looks_like_one || stdout.len() > RESULT_BYTES_MAX {
        return None;
    }
    let value: serde_json::Value = serde_json::from_slice(stdout).ok()?;
    let object = value.as_object()?;
    let is_ours = object.get("ok").is_some_and(serde_json::Value::is_boolean)
        && ["effect", "data", "error"].iter().any(|name| object.contains_key(*name));
    if is_ours { serde_json::from_value(value).ok() } else { None }
}

fn is_certain_rejection(envelope: &Envelope) -> bool {
    !envelope.ok && envelope.error.as_ref().is_some_and(|error| error.retryable)
}

fn is_rejected(code: i32, rules: &Rules) -> bool {
    let Ok(code) = u8::try_from(code) else { return false };
    rules.rejected_on.iter().any(|range| range.contains(&code))
}

fn rejected(ended: &Ended, code: &str, message: String) -> Outcome {
    let failure = Failure::new(code, message);
    Outcome::Rejected(if ended.cut { failure } else { failure.with_detail(ended.captured.encode()) })
}

fn doubt(ended: &Ended, cause: DoubtCause, message: String) -> Outcome {
    Outcome::Unknown(Doubt::new(cause, message).with_evidence(evidence(&ended.captured)))
}

/// The last of both streams: what a person wants to see first.
fn evidence(captured: &Captured) -> Vec<u8> {
    const KEPT: usize = 16 * 1024;
    let tail = |stream: &[u8]| stream[stream.len().saturating_sub(KEPT)..].to_vec();
    let (stdout, stderr) = (tail(&captured.stdout), tail(&captured.stderr));
    Captured { stdout, stderr, exit_code: captured.exit_code }.encode()
}

#[cfg(test)]
mod tests {
    use super::{REJECTED_BY_CONVENTION, Rules, outcome};
    use crate::command::captured::Captured;
    use crate::command::child::{Ended, How};
    use oncely_core::{Effect, Outcome};

    fn end(exit_code: i32, stdout: &str) -> Ended {
        let captured = Captured { stdout: stdout.into(), stderr: Vec::new(), exit_code };
        Ended { how: How::Exited, captured, cut: false, asked: false }
    }

    fn word(ended: &Ended, rejected_on: &[std::ops::RangeInclusive<u8>]) -> String {
        let rejected_on =
            if rejected_on.is_empty() { REJECTED_BY_CONVENTION.to_vec() } else { rejected_on.to_vec() };
        let rules = Rules { effect: Effect::Executed, rejected_on };
        match outcome(ended, &rules) {
            Outcome::Succeeded { effect, .. } => effect.to_string(),
            Outcome::Rejected(failure) | Outcome::NotStarted(failure) => format!("rejected {}", failure.code),
            Outcome::Unknown(_) => "unknown".into(),
        }
    }

    #[test]
    fn an_exit_code_proves_success_a_usage_error_or_nothing() {
        assert_eq!(word(&end(0, "ok"), &[]), "executed");
        for code in [2, 64, 126, 127] {
            assert_eq!(word(&end(code, ""), &[]), "rejected REJECTED", "{code}");
        }
        for code in [1, 3, 65, 255, 137] {
            assert_eq!(word(&end(code, ""), &[]), "unknown", "{code}");
        }
        assert_eq!(word(&end(2, ""), &[3..=3]), "unknown", "what is stated replaces the convention");
        for code in [3, 65, 69] {
            assert_eq!(word(&end(code, ""), &[3..=3, 65..=69]), "rejected REJECTED", "{code}");
        }
    }

    #[test]
    fn a_signal_and_a_timeout_prove_nothing() {
        assert_eq!(word(&Ended { how: How::Signalled(9), ..end(137, "") }, &[137..=137]), "unknown");
        assert_eq!(word(&Ended { how: How::TimedOut, ..end(0, "") }, &[]), "unknown");
    }

    #[test]
    fn the_commands_own_envelope_is_taken_over() {
        assert_eq!(word(&end(0, r#"{"ok":true,"effect":"created","data":1}"#), &[]), "created");
        assert_eq!(word(&end(0, r#"{"ok":true,"effect":"odd","data":1}"#), &[]), "executed");
        let certain = r#"{"ok":false,"error":{"code":"RATE_LIMITED","message":"later","retryable":true}}"#;
        assert_eq!(word(&end(1, certain), &[]), "rejected RATE_LIMITED");
        let unsure = r#"{"ok":false,"error":{"code":"BOOM","message":"?","retryable":false}}"#;
        assert_eq!(word(&end(1, unsure), &[]), "unknown");
        assert_eq!(word(&end(0, unsure), &[]), "unknown");
        assert_eq!(word(&end(1, "{not json"), &[]), "unknown");
    }

    #[test]
    fn output_beyond_the_limit_is_a_success_without_a_result() {
        let rules = Rules { effect: Effect::Sent, rejected_on: Vec::new() };
        let ended = Ended { cut: true, ..end(0, "") };
        assert_eq!(outcome(&ended, &rules), Outcome::Succeeded { effect: Effect::Sent, result: None });
    }
}
