//! What a server's answer to a write proves: that it happened, that it certainly did not, or neither.

use std::borrow::Cow;

use oncely::policy_file::{IsError, McpPolicy};
use oncely_core::limits::TEXT_BYTES_MAX;
use oncely_core::{Doubt, DoubtCause, Effect, Failure, Outcome};

use super::json::{self, Members};
use super::message::{INVALID_PARAMS, METHOD_NOT_FOUND, Response};

/// The protocol's code for "visit these addresses first, then call again": what `input_required` is among results.
const URL_ELICITATION_REQUIRED: i64 = -32042;

/// What an answer is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The attempt is over.
    Ended(Outcome),
    /// The server asks for more before it acts; the client calls again with it. No outcome.
    InputRequired,
}

/// What went on while a call was under way, which its answer is judged by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Meanwhile {
    /// What passed between the client and the server.
    pub talk: Talk,
    /// Whether the server was told to stop.
    pub cancel: Cancel,
}

/// Whether the client answered requests of the server while the call was under way. Then the tool had been entered, and an
/// error may be the client's own, passed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Talk {
    /// It did not.
    None,
    /// It did, or may have.
    Some,
}

/// Whether a cancellation was passed on to the server. Some SDKs answer that with an error at once, while the tool goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cancel {
    /// It was not.
    None,
    /// It was, or is about to be.
    Passed,
}

/// Classifies an answer.
pub fn verdict(
    tool: &str,
    effect: Effect,
    response: &Response<'_>,
    policy: &McpPolicy,
    meanwhile: Meanwhile,
) -> Verdict {
    if let Some((code, message)) = response.error() {
        if code == URL_ELICITATION_REQUIRED && names_elicitations(response) {
            return Verdict::InputRequired;
        }
        return Verdict::Ended(of_error(code, &message, meanwhile));
    }
    let Some(raw) = response.result() else {
        return Verdict::Ended(Outcome::unknown("the server's answer has neither a result nor an error"));
    };
    let result = Members::parse(raw).unwrap_or_default();
    if result.text("resultType").as_deref() == Some("input_required") {
        return Verdict::InputRequired;
    }
    if result.get("isError") != Some("true") {
        return Verdict::Ended(Outcome::succeeded(effect, raw.as_bytes()));
    }
    let texts = texts(&result);
    let comes_first = meanwhile.talk == Talk::None
        && matches!(texts.as_slice(), [only] if comes_before_the_handler(tool, only));
    let certain = policy.is_error == IsError::Rejected
        || texts.iter().any(|text| policy.rejected_when.iter().any(|pattern| pattern.matches(text)))
        || comes_first;
    let said = oncely_core::limits::clip_to(texts.join(" "), TEXT_BYTES_MAX / 2);
    if certain && meanwhile.cancel == Cancel::None {
        let failure = Failure::new("TOOL_ERROR", format!("the tool answered with an error: {said}"));
        return Verdict::Ended(Outcome::Rejected(with_detail(failure, raw)));
    }
    Verdict::Ended(Outcome::Unknown(with_evidence(
        doubt("the tool", "an error", &said, meanwhile.cancel),
        raw,
    )))
}

/// Whether an error says what the client has to do first. The code alone could be one of the server's own.
fn names_elicitations(response: &Response<'_>) -> bool {
    let error = response.members.object("error").unwrap_or_default();
    let data = error.object("data").unwrap_or_default();
    data.get("elicitations").and_then(json::items).is_some_and(|items| !items.is_empty())
}

fn of_error(code: i64, message: &str, meanwhile: Meanwhile) -> Outcome {
    let about_the_call = code == i64::from(METHOD_NOT_FOUND) || code == i64::from(INVALID_PARAMS);
    // Some SDKs answer so, too, when the *result* of a handler that has run does not fit its schema.
    let about_the_result =
        ["output", "structured content"].iter().any(|w| message.to_lowercase().contains(w));
    let nothing_else = meanwhile == Meanwhile { talk: Talk::None, cancel: Cancel::None };
    if about_the_call && nothing_else && !about_the_result {
        return Outcome::rejected("INVALID_CALL", format!("the server refused the call ({code}): {message}"));
    }
    Outcome::Unknown(doubt("the server", &format!("error {code}"), message, meanwhile.cancel))
}

/// A doubt about a call that was answered with an error. After a cancellation that error does not even say that the server is
/// done: it may still be at work.
fn doubt(who: &str, with: &str, said: &str, cancel: Cancel) -> Doubt {
    match cancel {
        Cancel::None => Doubt::new(
            DoubtCause::Reported,
            format!("{who} answered with {with}, which does not prove that nothing happened: {said}"),
        ),
        Cancel::Passed => Doubt::new(
            DoubtCause::Abandoned,
            format!("it was cancelled, and {who} answered with {with}, but may still be at work: {said}"),
        ),
    }
}

/// Texts that SDKs answer with before the tool itself is entered: the arguments do not fit, there is no such tool. Only
/// wordings that cannot come from a handler's own errors are taken.
fn comes_before_the_handler(tool: &str, text: &str) -> bool {
    // Python: low-level server, and FastMCP.
    let starts = ["Input validation error: ".to_owned()];
    let whole = [format!("Unknown tool: {tool}"), format!("Unknown tool: '{tool}'")];
    // TypeScript: McpServer.
    let invalid = format!("MCP error -32602: Input validation error: Invalid arguments for tool {tool}: ");
    let typescript = ["not found", "disabled"].map(|why| format!("MCP error -32602: Tool {tool} {why}"));
    whole.iter().chain(&typescript).any(|known| text == known)
        || starts.iter().any(|start| text.starts_with(start))
        || text.starts_with(&invalid)
}

/// The texts of a result's content.
fn texts(result: &Members<'_>) -> Vec<String> {
    let items = result.get("content").and_then(json::items).unwrap_or_default();
    items
        .iter()
        .filter_map(|item| {
            let item = Members::parse(item.get()).ok()?;
            if item.text("type").as_deref() == Some("text") {
                item.text("text").map(Cow::into_owned)
            } else {
                None
            }
        })
        .collect()
}

fn with_detail(failure: Failure, raw: &str) -> Failure {
    if raw.len() <= EVIDENCE_BYTES_MAX { failure.with_detail(raw.as_bytes()) } else { failure }
}

fn with_evidence(doubt: Doubt, raw: &str) -> Doubt {
    if raw.len() <= EVIDENCE_BYTES_MAX { doubt.with_evidence(raw.as_bytes()) } else { doubt }
}

/// Largest answer that is kept as evidence, in bytes.
const EVIDENCE_BYTES_MAX: usize = 32 * 1024;

#[cfg(test)]
mod tests {
    use super::{Cancel, Meanwhile, Talk, Verdict, verdict};
    use crate::mcp::message::Response;
    use oncely::policy_file::PolicyFile;
    use oncely_core::{DoubtCause, Effect, Outcome};

    const NOTHING: Meanwhile = Meanwhile { talk: Talk::None, cancel: Cancel::None };

    fn judged(meanwhile: Meanwhile, answer: &str, policy: &str) -> Verdict {
        let policy = PolicyFile::parse(&format!("[tool.pay]\n{policy}"), "p").unwrap().tool("pay").mcp;
        let text = format!(r#"{{"jsonrpc":"2.0","id":1,{answer}}}"#);
        verdict("pay", Effect::Executed, &Response::read(&text).unwrap(), &policy, meanwhile)
    }

    fn word(answer: &str, policy: &str) -> String {
        word_after(NOTHING, answer, policy)
    }

    fn word_after(meanwhile: Meanwhile, answer: &str, policy: &str) -> String {
        match judged(meanwhile, answer, policy) {
            Verdict::InputRequired => "input required".into(),
            Verdict::Ended(Outcome::Succeeded { .. }) => "succeeded".into(),
            Verdict::Ended(Outcome::Rejected(_) | Outcome::NotStarted(_)) => "rejected".into(),
            Verdict::Ended(Outcome::Unknown(doubt)) if doubt.cause == DoubtCause::Abandoned => {
                "abandoned".into()
            }
            Verdict::Ended(Outcome::Unknown(_)) => "unknown".into(),
        }
    }

    fn is_error(text: &str, policy: &str) -> String {
        let text = serde_json::Value::from(text);
        word(&format!(r#""result":{{"content":[{{"type":"text","text":{text}}}],"isError":true}}"#), policy)
    }

    #[test]
    fn a_result_is_a_success_and_a_question_is_no_outcome() {
        assert_eq!(word(r#""result":{"content":[]}"#, ""), "succeeded");
        assert_eq!(word(r#""result":{"content":[],"isError":false}"#, ""), "succeeded");
        assert_eq!(word(r#""result":{"resultType":"task","task":{"taskId":"t"}}"#, ""), "succeeded");
        assert_eq!(
            word(r#""result":{"resultType":"input_required","inputRequests":{}}"#, ""),
            "input required"
        );
    }

    #[test]
    fn an_error_of_the_tool_proves_nothing_unless_somebody_says_so() {
        assert_eq!(is_error("connection reset", ""), "unknown");
        assert_eq!(is_error("connection reset", "is_error = \"rejected\""), "rejected");
        let policy = "rejected_when = [\"Insufficient funds*\"]";
        assert_eq!(is_error("Insufficient funds: 3 EUR", policy), "rejected");
        assert_eq!(is_error("charged, then: Insufficient funds", policy), "unknown");
    }

    #[test]
    fn what_sdks_say_before_they_enter_a_handler_is_a_rejection() {
        for text in [
            "Input validation error: 'amount' is a required property",
            "Unknown tool: pay",
            "MCP error -32602: Tool pay not found",
            "MCP error -32602: Input validation error: Invalid arguments for tool pay: [ … ]",
        ] {
            assert_eq!(is_error(text, ""), "rejected", "{text}");
        }
        for text in [
            "Output validation error: 'id' is a required property",
            "MCP error -32602: Output validation error: Invalid structured content for tool pay: []",
            "Error executing tool pay: 1 validation error for payArguments",
            "Unknown tool: other",
            "MCP error -32602: Tool other not found",
        ] {
            assert_eq!(is_error(text, ""), "unknown", "{text}");
        }
    }

    #[test]
    fn only_two_protocol_errors_prove_that_nothing_happened() {
        let error =
            |code: i64, text: &str| word(&format!(r#""error":{{"code":{code},"message":"{text}"}}"#), "");
        assert_eq!(error(-32601, "Method not found"), "rejected");
        assert_eq!(error(-32602, "Invalid arguments"), "rejected");
        assert_eq!(
            error(-32602, "Tool pay has an output schema but no structured content was provided"),
            "unknown"
        );
        assert_eq!(error(-32020, "Header mismatch"), "unknown");
        assert_eq!(error(-32022, "Unsupported protocol version"), "unknown");
        assert_eq!(error(-32600, "Invalid request"), "unknown");
        assert_eq!(error(-32603, "Internal error"), "unknown");
        assert_eq!(error(0, "Request cancelled"), "unknown");
        assert_eq!(error(-32001, "Request timed out"), "unknown");
    }

    #[test]
    fn an_error_that_asks_for_a_visit_elsewhere_first_is_a_question_too() {
        let error = |code: i64, data: &str| {
            word(&format!(r#""error":{{"code":{code},"message":"log in first","data":{data}}}"#), "")
        };
        let visit = r#"{"elicitations":[{"mode":"url","url":"https://a.example","elicitationId":"e"}]}"#;
        assert_eq!(error(-32042, visit), "input required");
        assert_eq!(error(-32043, visit), "unknown");
        for data in ["null", "{}", r#"{"elicitations":[]}"#, r#"{"elicitations":"x"}"#, "[]"] {
            assert_eq!(error(-32042, data), "unknown", "{data}");
        }
    }

    #[test]
    fn after_the_server_has_asked_the_client_an_error_may_be_the_clients_own() {
        let talked = Meanwhile { talk: Talk::Some, ..NOTHING };
        let error = r#""error":{"code":-32601,"message":"Method not found"}"#;
        assert_eq!(word_after(talked, error, ""), "unknown");
        let text =
            r#""result":{"content":[{"type":"text","text":"Input validation error: x"}],"isError":true}"#;
        assert_eq!((word(text, "").as_str(), word_after(talked, text, "").as_str()), ("rejected", "unknown"));
        assert_eq!(word_after(talked, text, "is_error = \"rejected\""), "rejected");
    }

    #[test]
    fn after_a_cancellation_an_error_does_not_say_that_the_server_is_done() {
        let cancelled = Meanwhile { cancel: Cancel::Passed, ..NOTHING };
        for code in [0, -32601, -32603] {
            let error = format!(r#""error":{{"code":{code},"message":"Request cancelled"}}"#);
            assert_eq!(word_after(cancelled, &error, ""), "abandoned", "{code}");
        }
        let is_error = r#""result":{"content":[{"type":"text","text":"cancelled"}],"isError":true}"#;
        for policy in ["", "is_error = \"rejected\"", "rejected_when = [\"cancelled\"]"] {
            assert_eq!(word_after(cancelled, is_error, policy), "abandoned", "{policy}");
        }
        // What it did it did.
        assert_eq!(word_after(cancelled, r#""result":{"content":[]}"#, ""), "succeeded");
        assert_eq!(
            word_after(cancelled, r#""result":{"resultType":"input_required"}"#, ""),
            "input required"
        );
    }
}
