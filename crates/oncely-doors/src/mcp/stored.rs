//! Results that are kept: a server's own are replayed as they are; what a person or a check gave in place of one is made a
//! result that clients can read.

use oncely_core::{Settled, State};

use super::json::{self, Members};

/// The result of a record that succeeded.
pub(super) fn result_of<'a>(kept: &'a str, state: &State) -> Members<'a> {
    match state {
        State::Succeeded { settled: Settled::Person(_), .. } => given(kept),
        _ => as_it_is(kept),
    }
}

/// A result as it was kept; text, where it is no object.
pub(super) fn as_it_is(kept: &str) -> Members<'_> {
    Members::parse(kept).unwrap_or_else(|_| as_text(kept))
}

/// What a person or a check gave as a result: a tool result is taken as it is, anything else as text. Most objects that a
/// person has at hand are what a service answered, which clients would take for a broken result.
pub(super) fn given(text: &str) -> Members<'_> {
    let Some(mut result) = Members::parse(text).ok().filter(is_tool_result) else { return as_text(text) };
    if let Some(structured) = result.get("structuredContent").filter(|_| !result.has("content")) {
        // Clients want the one beside the other, as the protocol advises servers to do.
        let content = format!("[{}]", text_item(structured));
        result.set("content", content);
    }
    result
}

fn is_tool_result(members: &Members<'_>) -> bool {
    match members.get("content") {
        Some(content) => json::items(content).is_some(),
        None => {
            let is_object = |name: &str| members.object(name).is_some();
            is_object("structuredContent") || is_object("task") || members.text("resultType").is_some()
        }
    }
}

fn as_text(text: &str) -> Members<'_> {
    let mut result = Members::default();
    result.set("content", format!("[{}]", text_item(text.trim_end())));
    result
}

/// An item of a result's content.
pub(super) fn text_item(text: &str) -> String {
    format!(r#"{{"type":"text","text":{}}}"#, json::quote(text))
}

#[cfg(test)]
mod tests {
    use super::given;

    #[test]
    fn only_what_is_a_tool_result_is_taken_for_one() {
        for result in [
            r#"{"content":[]}"#,
            r#"{"content":[{"type":"text","text":"x"}],"structuredContent":{"a":1}}"#,
            r#"{"task":{"taskId":"t"}}"#,
            r#"{"resultType":"complete","x":1}"#,
        ] {
            assert_eq!(given(result).render(), result);
        }
        assert_eq!(
            given(r#"{"structuredContent":{"a":1}}"#).render(),
            r#"{"structuredContent":{"a":1},"content":[{"type":"text","text":"{\"a\":1}"}]}"#
        );
        for (other, text) in [
            (r#"{"id":1}"#, r#"{\"id\":1}"#),
            (r#"{"content":"x"}"#, r#"{\"content\":\"x\"}"#),
            (r#"{"task":"dishes"}"#, r#"{\"task\":\"dishes\"}"#),
            (r#"{"content":[],"content":[]}"#, r#"{\"content\":[],\"content\":[]}"#),
            ("[1]\n", "[1]"),
            ("done\n", "done"),
            ("", ""),
        ] {
            let expected = format!(r#"{{"content":[{{"type":"text","text":"{text}"}}]}}"#);
            assert_eq!(given(other).render(), expected, "{other}");
        }
    }
}
