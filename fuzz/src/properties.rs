//! What must hold for any bytes that a client or a server sends: no panic, and no reading of another message than the one
//! that everybody else reads.

use std::sync::Arc;

use bytes::Bytes;
use oncely::policy_file::{Annotate, PolicyFile};
use oncely::{Answer, Replay};
use oncely_core::{
    AttemptToken, Body, Digest, Effect, Fingerprint, IntentName, Key, Millis, Namespace, Record, Retention,
    Scope, Settled, State, ToolName, Version,
};
use oncely_doors::mcp::call::{self, ToolCall};
use oncely_doors::mcp::classify::{self, Cancel, Meanwhile, Talk};
use oncely_doors::mcp::cut::Cut;
use oncely_doors::mcp::frames::{Frame, Frames, content};
use oncely_doors::mcp::glance::Glance;
use oncely_doors::mcp::http::sse::Parser;
use oncely_doors::mcp::json::Members;
use oncely_doors::mcp::link::{Addressee, OwnIds};
use oncely_doors::mcp::message::{self, Message, Response};
use oncely_doors::mcp::opening::Opening;
use oncely_doors::mcp::reply::{self, Era, Form, Schema};
use oncely_doors::mcp::tools::{Added, Tool, Whose, rewrite};
use serde_json::Value;
use serde_json::value::RawValue;

/// A line of a client: what we take it for is what a JSON parser takes it for, and what the server gets is what the
/// client said, but for the id and our own arguments.
pub fn client_line(line: &[u8]) {
    let line = message::flat(&Bytes::copy_from_slice(line));
    let line = content(&line);
    let value: Option<Value> = serde_json::from_slice(line).ok();
    if let Ok(text) = std::str::from_utf8(line) {
        same_members(text);
    }
    if let Some(seen) = Glance::at(line) {
        serde_json::from_slice::<&RawValue>(line).expect("what was seen is JSON");
        let Ok(Message::Request(request)) = message::read(line) else { panic!("a glance saw a request") };
        assert_eq!((seen.id, seen.method), (request.id.as_str(), request.method.as_str()));
        if request.method == "tools/call" && seen.name.is_some() {
            assert_eq!(call::tool_of(&request).ok().as_deref(), seen.name);
        }
    }
    match message::read(line) {
        Ok(Message::Request(request)) => {
            for whose in [Whose::Ours, Whose::Own, Whose::Unclear] {
                tool_call(&request, value.as_ref(), Added { key: whose, dry_run: whose });
            }
            // A number that no machine has, or half a character, is JSON all the same, but not to everybody.
            let Some(value) = value else { return };
            assert_eq!(value["method"], request.method.as_str());
            assert_eq!(value["id"], serde_json::from_str::<Value>(&request.id).expect("an id is JSON"));
        }
        Ok(Message::Notification { method, .. }) => {
            assert!(
                value.is_none_or(|value| value["method"] == method.as_str() && value.get("id").is_none())
            );
        }
        Ok(Message::Other) => assert!(value.is_none_or(|value| value.get("method").is_none())),
        Ok(Message::Batch) => {
            message::look_into_batch(line);
        }
        Err(bad) => {
            let answer: Value = serde_json::from_slice(&bad.answer()).expect("an answer is JSON");
            assert!(answer["error"]["code"].is_i64());
        }
    }
}

/// What is read quickly is read as `serde_json` reads it, and so are the objects in it.
fn same_members(text: &str) {
    let all = |members: serde_json::Result<Members<'_>>| -> Option<Vec<(String, String)>> {
        Some(members.ok()?.iter().map(|(name, raw)| (name.to_owned(), raw.to_owned())).collect())
    };
    let thorough = all(serde_json::from_str(text));
    assert_eq!(all(Members::parse(text)), thorough);
    for (_, raw) in thorough.iter().flatten() {
        assert_eq!(all(Members::parse(raw)), all(serde_json::from_str(raw)));
    }
}

fn tool_call(request: &message::Request<'_>, sent: Option<&Value>, added: Added) {
    let Ok(call) = ToolCall::read(request) else { return };
    let Ok(asked) = call.ask(added) else { return };
    let forwarded = call.forward("ours", &asked, None);
    assert!(!breaks(content(&forwarded)), "two lines are two messages");
    let Some(sent) = sent else { return };
    assert_eq!(sent["params"]["name"], call.name.as_str());
    let forwarded: Value = serde_json::from_slice(&forwarded).expect("what is forwarded is JSON");
    let mut expected = sent.clone();
    expected["id"] = "ours".into();
    if let Some(arguments) = expected["params"].get_mut("arguments").and_then(Value::as_object_mut) {
        let (key, dry_run) = (added.key == Whose::Ours, added.dry_run != Whose::Own);
        for (name, taken_out) in [("idempotency_key", key), ("dry_run", dry_run)] {
            if taken_out {
                arguments.remove(name);
            }
        }
    }
    assert_eq!(forwarded, expected);
}

/// A line of a server: it is read or left alone, and what we make of it is JSON again.
pub fn server_line(line: &[u8]) {
    if let Ok(text) = std::str::from_utf8(line) {
        same_members(text);
    }
    let ids = OwnIds::new().expect("random numbers");
    assert_eq!(ids.answered_by(line), Addressee::Client, "nobody guesses our ids");
    Cut::of(line, line);
    // What is told from a beginning, or from both ends, holds for the whole, where that is a message at all.
    if let Ok(value) = serde_json::from_slice::<Value>(line)
        && let Ok(members) = serde_json::from_slice::<Members<'_>>(line)
    {
        let ended = [line, b"\n"].concat();
        for end in 0..line.len() {
            match Opening::of(&line[..end]) {
                Opening::Answer(id) => assert_eq!(members.get("id"), Some(id)),
                Opening::Call => assert!(value["method"].is_string()),
                Opening::Unclear => {}
            }
            for from in [end, (end + line.len()) / 2] {
                if let Cut::Answer(id) | Cut::Call(Some(id)) = Cut::of(&line[..end], &ended[from..]) {
                    assert_eq!(members.get("id"), Some(id.as_str()));
                }
            }
        }
    }
    let Ok(text) = std::str::from_utf8(line) else { return };
    if let Some(response) = Response::read(text) {
        let under = response.under("7");
        assert!(
            serde_json::from_slice::<Value>(line).is_err() || serde_json::from_slice::<Value>(&under).is_ok()
        );
        let policy = PolicyFile::empty().tool("pay").mcp;
        for cancel in [Cancel::None, Cancel::Passed] {
            let meanwhile = Meanwhile { talk: Talk::None, cancel };
            classify::verdict("pay", Effect::Executed, &response, &policy, meanwhile);
        }
    }
    Tool::read(text);
    if let Some(changed) = rewrite(text, |name| PolicyFile::empty().tool(name)) {
        let Ok(before) = serde_json::from_str::<Value>(text) else { return };
        let after: Value = serde_json::from_str(&changed).expect("a list stays JSON");
        assert_eq!(before["name"], after["name"]);
    }
}

/// What is kept as a result, by whoever gave it: its replay is one line of JSON, and what a person gave is a tool result.
pub fn kept_result(kept: &[u8]) {
    let forms = [(Annotate::Text, Era::Legacy), (Annotate::Off, Era::Modern)];
    for settled in [Settled::Attempt, Settled::Person("ann".into())] {
        let is_given = settled != Settled::Attempt;
        let answer = Answer::Replayed(replay_of(kept, settled));
        for (annotate, era) in forms {
            let form = Form { annotate, era, schema: Schema::Free };
            let line = message::result("7", &reply::answered(form, &answer));
            assert!(line.ends_with(b"\n") && !breaks(content(&line)), "one line is one message");
            serde_json::from_slice::<&RawValue>(&line).expect("a replay is JSON");
            let Ok(replay) = serde_json::from_slice::<Value>(&line) else { continue };
            let result = &replay["result"];
            let is_one = ["content", "task", "resultType"].iter().any(|name| result.get(name).is_some());
            assert!(!is_given || is_one, "{result}");
        }
    }
}

fn breaks(text: &[u8]) -> bool {
    text.iter().any(|byte| matches!(byte, b'\n' | b'\r'))
}

fn replay_of(kept: &[u8], settled: Settled) -> Replay {
    let digest = Digest([1; 32]);
    let name = IntentName {
        namespace: Namespace::default(),
        scope: Scope::none(),
        tool: ToolName::parse("mcp:server/pay").expect("a tool"),
        key: Key::explicit("k").expect("a key"),
    };
    let body = Body {
        name: name.clone(),
        fingerprint: Fingerprint { canonical: digest, raw: digest },
        generation: 1,
        attempts: 1,
        tries: 1,
        rejections: 0,
        token: AttemptToken([1; 16]),
        retention: Retention { replay_for_ms: 1, remember_for_ms: 1 },
        state: State::Succeeded { effect: Effect::Executed, result: Some(kept.into()), settled },
    };
    let at = Millis(1);
    let intent = name.intent_id();
    let record = Record { intent, version: Version(1), created_at: at, sent_at: at, changed_at: at, body };
    Replay { record: Arc::new(record), now: at, kept: true }
}

/// A stream, cut anywhere: the same lines and events come out as if it had come at once.
pub fn stream(bytes: &[u8], cut: usize) {
    let cut = cut.min(bytes.len());
    assert_eq!(events(&[bytes]), events(&[&bytes[..cut], &bytes[cut..]]));
    let whole: Vec<u8> = lines(bytes, usize::MAX).concat();
    assert_eq!(whole, bytes, "no byte is lost");
    for line in lines(bytes, 64) {
        assert!(line.len() <= 64);
    }
    // Several at a time, they are the same.
    for limit in [64, usize::MAX] {
        assert_eq!(pieces(bytes, limit).concat(), lines(bytes, limit).concat());
    }
    // And so are those whose long ones come in pieces, or are passed over from a piece on.
    assert_eq!(passed(bytes, cut, 1 << 20).concat(), bytes);
    for line in passed(bytes, cut, 64) {
        assert!(line.len() <= 64);
    }
    let flat = message::flat(&Bytes::copy_from_slice(bytes));
    assert!(!content(&flat).contains(&b'\n'));
    // What separates lines for some readers is written as an escape; everything else keeps its length.
    let separates = |three: &&[u8]| matches!(*three, [0xe2, 0x80, 0xa8 | 0xa9]);
    assert_eq!(flat.windows(3).filter(separates).count(), 0);
    let longer = 3 * bytes.windows(3).filter(separates).count();
    assert_eq!(flat.len(), bytes.len() + longer);
}

fn events(chunks: &[&[u8]]) -> Vec<oncely_doors::mcp::http::sse::Event> {
    let mut parser = Parser::default();
    let mut seen = Vec::new();
    for chunk in chunks {
        parser.feed(chunk);
        while let Ok(Some(event)) = parser.next(1 << 20) {
            seen.push(event);
        }
    }
    seen
}

fn lines(bytes: &[u8], limit: usize) -> Vec<Vec<u8>> {
    let mut frames = Frames::new(bytes, limit);
    all_of(async || frames.next().await.expect("memory can be read"))
}

fn pieces(bytes: &[u8], limit: usize) -> Vec<Vec<u8>> {
    let mut frames = Frames::new(bytes, limit);
    all_of(async || frames.next_lines().await.expect("memory can be read"))
}

/// The lines of a stream, the long ones in pieces put together; one that is longer than the limit ends where it is.
fn passed(bytes: &[u8], cut: usize, limit: usize) -> Vec<Vec<u8>> {
    let from = tokio::io::AsyncReadExt::chain(&bytes[..cut], &bytes[cut..]);
    let mut frames = Frames::new(from, limit).telling(16);
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(async {
        let mut seen = Vec::new();
        while let Some(frame) = frames.next_lines().await.expect("memory can be read") {
            match frame {
                Frame::Line(lines) => {
                    seen.extend(lines.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec));
                }
                Frame::TooLong { .. } => {}
                Frame::Begun => {
                    let mut line = Vec::new();
                    while let Some(piece) = frames.piece().await.expect("memory can be read") {
                        if line.len() + piece.len() > limit {
                            frames.pass_over_from(&piece, Bytes::copy_from_slice(&line));
                            break;
                        }
                        line.extend_from_slice(&piece);
                        if line.ends_with(b"\n") {
                            break;
                        }
                    }
                    seen.push(line);
                }
            }
        }
        seen
    })
}

fn all_of(mut next: impl AsyncFnMut() -> Option<Frame>) -> Vec<Vec<u8>> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(async {
        let mut seen = Vec::new();
        while let Some(frame) = next().await {
            if let Frame::Line(line) = frame {
                seen.push(line.to_vec());
            }
        }
        seen
    })
}
