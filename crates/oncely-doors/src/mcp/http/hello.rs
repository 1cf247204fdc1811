//! How a session begins: what is agreed on, what is said then, and what is asked first.

use hyper::header::HeaderValue;

use crate::mcp::json::Members;
use crate::mcp::link::NoAnswer;
use crate::mcp::message::Response;

/// What a client says when it is ready.
pub(super) const READY: &[u8] = br#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;

/// Whether a request is for the list of all tools, from its beginning.
pub(super) fn asks_for_all_tools(request: &[u8]) -> bool {
    let message: Members<'_> = serde_json::from_slice(request).unwrap_or_default();
    let goes_on = message.object("params").is_some_and(|params| params.has("cursor"));
    message.text("method").as_deref() == Some("tools/list") && !goes_on
}

/// Which protocol was agreed on, as the answer to `initialize` has it.
pub(super) fn agreed_on(answer: &[u8]) -> Option<HeaderValue> {
    let members: Members<'_> = serde_json::from_slice(answer).unwrap_or_default();
    let result = members.object("result").unwrap_or_default();
    HeaderValue::from_str(&result.text("protocolVersion")?).ok()
}

/// Whether the answer to `initialize` begins another session like the one before.
pub(super) fn agrees_again(answer: &[u8], version: Option<&HeaderValue>) -> Result<(), NoAnswer> {
    let text = String::from_utf8_lossy(answer);
    if let Some((code, why)) = Response::read(&text).and_then(|answer| answer.error()) {
        return Err(format!("the server refused it: {why} ({code})").into());
    }
    // The client speaks the version that it agreed on, and cannot be asked.
    if agreed_on(answer).as_ref() != version {
        return Err("the server speaks another version of the protocol now; restart the client".into());
    }
    Ok(())
}
