//! Headers: which of them concern the two ends, and whether they say the same as the message.

use std::borrow::Cow;

use hyper::HeaderMap;
use hyper::header::{
    CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderName, HeaderValue,
};

use super::exchange::{METHOD, NAME, VERSION};
use crate::command::base64;
use crate::mcp::call::ToolCall;
use crate::mcp::json::Members;
use crate::mcp::message::Request;
use crate::mcp::reply::Era;
use crate::mcp::tools::Tool;

/// What concerns one connection only.
const HOP_BY_HOP: [&str; 8] = [
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];
/// What headers that repeat an argument start with.
pub(super) const PARAM_PREFIX: &str = "mcp-param-";
/// Where a request says which protocol it speaks.
pub(super) const VERSION_META: &str = "io.modelcontextprotocol/protocolVersion";
/// The protocol's code for headers that contradict the message.
pub(super) const MISMATCH: i32 = -32020;
/// How a text is marked that does not fit into a header.
const ENCODED: (&str, &str) = ("=?base64?", "?=");

/// Which member of a request's `params` is repeated in the header `Mcp-Name`, by method.
const NAMED: [(&str, &str); 6] = [
    ("tools/call", "name"),
    ("prompts/get", "name"),
    ("resources/read", "uri"),
    ("tasks/get", "taskId"),
    ("tasks/update", "taskId"),
    ("tasks/cancel", "taskId"),
];

/// What is said where a message may be read in two ways.
pub(super) const NOT_UTF8: &str = "messages are UTF-8 and not compressed; nothing ran";

/// Whether a request says that its body is in another encoding than UTF-8, or compressed: then the server would read
/// another message than we do.
pub(super) fn is_not_utf8(headers: &HeaderMap) -> bool {
    let is_identity = |value: &HeaderValue| value.as_bytes().trim_ascii().eq_ignore_ascii_case(b"identity");
    if !headers.get_all(CONTENT_ENCODING).iter().all(is_identity) {
        return true;
    }
    headers.get_all(CONTENT_TYPE).iter().any(|value| {
        let Ok(value) = value.to_str() else { return true };
        let value = value.to_ascii_lowercase();
        let mut charsets = value.split("charset").skip(1).map(|rest| {
            rest.trim_start_matches([' ', '\t', '=', '"', '*', '\'']).split(['"', ';', ' ', ',', '\'']).next()
        });
        charsets.any(|charset| !matches!(charset, Some("utf-8" | "utf8")))
    })
}

/// The headers that concern the two ends.
pub(super) fn end_to_end(headers: &HeaderMap) -> HeaderMap {
    let named: Vec<String> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(',').map(|name| name.trim().to_ascii_lowercase()))
        .collect();
    let concerns_the_ends = |name: &HeaderName| {
        let name = name.as_str();
        !HOP_BY_HOP.contains(&name)
            && name != HOST
            && name != CONTENT_LENGTH
            && !named.iter().any(|n| n == name)
    };
    let kept = headers.iter().filter(|(name, _)| concerns_the_ends(name));
    let mut ends = HeaderMap::new();
    for (name, value) in kept {
        ends.append(name.clone(), value.clone());
    }
    ends
}

/// What a request is about, as the header `Mcp-Name` repeats it.
pub(super) fn named<'a>(method: &str, params: &'a Members<'_>) -> Option<Cow<'a, str>> {
    let (_, member) = NAMED.iter().find(|(known, _)| *known == method)?;
    params.text(member)
}

/// What of a message is repeated in headers.
struct Repeated<'a> {
    version: Option<Cow<'a, str>>,
    method: &'a str,
    /// The tool, the prompt, the resource or the task that it is about.
    name: Option<Cow<'a, str>>,
}

impl Repeated<'_> {
    /// Why headers do not say the same, in the era that wants them to.
    fn contradiction(&self, headers: &HeaderMap) -> Option<String> {
        let name = self.name.as_deref();
        let wrong = if self.version.as_deref().is_some_and(|version| !says(headers, &VERSION, version)) {
            "the header MCP-Protocol-Version is not the version that the message names"
        } else if !says(headers, &METHOD, self.method) {
            "the header Mcp-Method is not the method of the message"
        } else if name.is_some_and(|name| !says(headers, &NAME, name)) {
            "the header Mcp-Name is not what the message names"
        } else {
            return None;
        };
        Some(wrong.to_owned())
    }
}

/// What one header says. Of two nobody knows which one counts, and some bytes are no text to everybody.
fn said(headers: &HeaderMap, name: &HeaderName) -> Option<Option<String>> {
    let mut all = headers.get_all(name).iter();
    let first = all.next()?;
    Some(all.next().map_or_else(|| decode(first.as_bytes()), |_| None))
}

fn says(headers: &HeaderMap, name: &HeaderName, text: &str) -> bool {
    said(headers, name).flatten().as_deref() == Some(text)
}

/// Why the headers of a request do not say the same as its message. In the era in which requests describe themselves they have
/// to be there; in the one before, those that are there must not be wrong: somebody on the way may go by them.
pub(super) fn mismatch(headers: &HeaderMap, request: &Request<'_>, era: Era) -> Option<String> {
    let params = request.members.object("params").unwrap_or_default();
    let named = named(&request.method, &params);
    let is_meant = |header: HeaderName| era == Era::Modern || headers.contains_key(header);
    let version = params.object("_meta").filter(|_| era == Era::Modern);
    let version = version.and_then(|meta| meta.text(VERSION_META).map(|text| text.into_owned()));
    let repeated = Repeated {
        version: version.map(Cow::Owned),
        method: &request.method,
        name: named.filter(|_| is_meant(NAME)),
    };
    if era == Era::Modern || headers.contains_key(METHOD) {
        return repeated.contradiction(headers);
    }
    let wrong = repeated.name.is_some_and(|name| !says(headers, &NAME, &name));
    wrong.then(|| "the header Mcp-Name is not what the message names".to_owned())
}

/// Why the headers of a call do not say the same as its message, in the era that wants them to. A server would refuse
/// it; we may answer in its place.
pub(super) fn contradiction(headers: &HeaderMap, call: &ToolCall<'_>, tool: Option<&Tool>) -> Option<String> {
    call.self_description()?;
    let repeated = Repeated {
        version: call.meta().text(VERSION_META),
        method: "tools/call",
        name: Some(Cow::Borrowed(&call.name)),
    };
    if let Some(wrong) = repeated.contradiction(headers) {
        return Some(wrong);
    }
    let arguments = call.arguments();
    for (header, argument) in tool.iter().flat_map(|tool| &tool.header_arguments) {
        let Ok(name) = HeaderName::try_from(format!("{PARAM_PREFIX}{}", header.to_ascii_lowercase())) else {
            continue;
        };
        let meant = arguments.get(argument).filter(|raw| *raw != "null").map(as_text);
        let agrees = match (said(headers, &name), &meant) {
            (None, None) => true,
            (Some(Some(said)), Some(meant)) => said == *meant || same_number(&said, meant),
            _ => false,
        };
        if !agrees {
            return Some(format!("the header {name} is not the argument {argument}"));
        }
    }
    None
}

/// A raw argument as a header has it.
pub(super) fn as_text(raw: &str) -> String {
    serde_json::from_str::<String>(raw).unwrap_or_else(|_| raw.to_owned())
}

fn same_number(a: &str, b: &str) -> bool {
    matches!((a.parse::<f64>(), b.parse::<f64>()), (Ok(a), Ok(b)) if a == b)
}

/// A text as a header's value; what does not fit there is written in base64, as the protocol says.
pub(super) fn encode(text: &str) -> Option<HeaderValue> {
    let is_plain = text.trim() == text
        && text.bytes().all(|b| (0x20..0x7f).contains(&b))
        && !text.starts_with(ENCODED.0);
    let encoded = || format!("{}{}{}", ENCODED.0, base64(text.as_bytes()), ENCODED.1);
    HeaderValue::from_str(&if is_plain { text.to_owned() } else { encoded() }).ok()
}

/// The text of a header's value; `None` if it is none.
fn decode(value: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(value).ok().filter(|text| text.is_ascii())?;
    // Without both marks it is a text like any other.
    match text.strip_prefix(ENCODED.0).and_then(|rest| rest.strip_suffix(ENCODED.1)) {
        Some(coded) => String::from_utf8(from_base64(coded)?).ok(),
        None => Some(text.to_owned()),
    }
}

/// Reads base64 with its padding; `None` if it is none.
fn from_base64(text: &str) -> Option<Vec<u8>> {
    const ALPHABET: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digits = text.trim_end_matches('=');
    if !text.len().is_multiple_of(4) || text.len() - digits.len() > 2 {
        return None;
    }
    let mut bytes = Vec::with_capacity(digits.len());
    let (mut bits, mut count) = (0u32, 0);
    for digit in digits.bytes() {
        let value = ALPHABET.iter().position(|known| *known == digit)?;
        bits = (bits << 6) | u32::try_from(value).ok()?;
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push(u8::try_from((bits >> count) & 0xff).ok()?);
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::{contradiction, decode, encode, end_to_end, is_not_utf8, mismatch};
    use crate::mcp::call::ToolCall;
    use crate::mcp::message::{Message, read};
    use crate::mcp::reply::Era;
    use crate::mcp::tools::Tool;
    use hyper::HeaderMap;
    use hyper::header::HeaderValue;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let value = |text: &str| HeaderValue::from_bytes(text.as_bytes()).unwrap();
        pairs.iter().map(|(name, text)| (name.parse().unwrap(), value(text))).collect()
    }

    #[test]
    fn what_concerns_one_connection_is_not_passed_on() {
        let all = headers(&[
            ("connection", "close, X-Mine"),
            ("x-mine", "1"),
            ("host", "h"),
            ("authorization", "a"),
            ("te", "x"),
        ]);
        let kept = end_to_end(&all);
        assert_eq!(kept.keys().map(|n| n.as_str()).collect::<Vec<_>>(), ["authorization"]);
    }

    #[test]
    fn a_body_in_another_encoding_is_noticed_however_it_is_said() {
        let odd = |kind: &str| is_not_utf8(&headers(&[("content-type", kind)]));
        for kind in
            ["application/json", "application/json; charset=utf-8", "application/json;Charset=\"UTF-8\"; x=1"]
        {
            assert!(!odd(kind), "{kind}");
        }
        for kind in [
            "application/json; charset=utf-7",
            "application/json; CHARSET = \"utf-16\"",
            "application/json; charset=utf-8; charset=utf-7",
            "application/json; charset=",
            "application/json; charset*=utf-7''x",
        ] {
            assert!(odd(kind), "{kind}");
        }
        assert!(!is_not_utf8(&HeaderMap::new()));
        assert!(!is_not_utf8(&headers(&[("content-encoding", "identity")])));
        assert!(is_not_utf8(&headers(&[("content-encoding", "gzip")])));
    }

    #[test]
    fn any_text_comes_back_from_a_header() {
        for text in ["plain", " space ", "é", "=?base64?x?=", "a\nb", ""] {
            assert_eq!(decode(encode(text).unwrap().as_bytes()).as_deref(), Some(text), "{text:?}");
        }
        assert_eq!(decode(b"=?base64?!!?="), None);
        assert_eq!(decode(b"=?base64?QQ").as_deref(), Some("=?base64?QQ"));
    }

    #[test]
    fn headers_have_to_say_what_the_message_says_in_the_era_that_wants_it() {
        let check = |pairs: &[(&'static str, &str)], meta: &str| {
            let line = format!(
                r#"{{"id":1,"method":"tools/call","params":{{"name":"pay","arguments":{{"region":"eu","n":5}},"_meta":{meta}}}}}"#
            );
            let Ok(Message::Request(request)) = read(line.as_bytes()) else { panic!("{line}") };
            let tool = Tool { header_arguments: vec![("Region".into(), "region".into())], ..Tool::default() };
            let call = ToolCall::read(&request).unwrap();
            contradiction(&headers(pairs), &call, Some(&tool)).is_none()
        };
        const MODERN: &str = r#"{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}"#;
        let good = [
            ("mcp-protocol-version", "2026-07-28"),
            ("mcp-method", "tools/call"),
            ("mcp-name", "pay"),
            ("mcp-param-region", "eu"),
        ];
        let with = |at: usize, value: &'static str| {
            let mut pairs = good;
            pairs[at].1 = value;
            pairs
        };
        assert!(check(&good, MODERN) && check(&[], "{}"));
        for at in 0..good.len() {
            let mut fewer = good.to_vec();
            fewer.remove(at);
            assert!(!check(&fewer, MODERN), "without {:?}", good[at]);
            assert!(!check(&with(at, "other"), MODERN), "{:?}", good[at]);
            assert!(!check(&with(at, "p\u{e4}y"), MODERN), "{:?}", good[at]);
        }
        assert!(check(&with(2, "=?base64?cGF5?="), MODERN));
        let mut twice = headers(&good);
        twice.append("mcp-name", "balance".parse().unwrap());
        assert_eq!(super::said(&twice, &super::NAME), Some(None), "nobody knows which one counts");
    }

    #[test]
    fn headers_of_every_request_have_to_agree_and_in_the_older_era_those_that_are_there() {
        let check = |method: &str, pairs: &[(&'static str, &str)], era: Era| {
            let line = format!(
                r#"{{"id":1,"method":"{method}","params":{{"name":"n","uri":"u","taskId":"t","_meta":{{"io.modelcontextprotocol/protocolVersion":"v"}}}}}}"#
            );
            let Ok(Message::Request(request)) = read(line.as_bytes()) else { panic!("{line}") };
            mismatch(&headers(pairs), &request, era).is_none()
        };
        let version = ("mcp-protocol-version", "v");
        let named = [("tools/call", "n"), ("prompts/get", "n"), ("resources/read", "u")];
        let tasks = [("tasks/get", "t"), ("tasks/update", "t"), ("tasks/cancel", "t")];
        for (method, name) in named.into_iter().chain(tasks) {
            let all = [version, ("mcp-method", method), ("mcp-name", name)];
            assert!(check(method, &all, Era::Modern) && check(method, &all, Era::Legacy));
            assert!(!check(method, &all[1..], Era::Modern) && check(method, &all[1..], Era::Legacy));
            assert!(!check(method, &all[..2], Era::Modern) && check(method, &all[..2], Era::Legacy));
            assert!(!check(method, &[all[0], all[2]], Era::Modern) && check(method, &[], Era::Legacy));
            for era in [Era::Modern, Era::Legacy] {
                assert!(!check(method, &[all[0], all[1], ("mcp-name", "other")], era));
                assert!(!check(method, &[all[0], ("mcp-name", "other")], era));
                assert!(!check(method, &[all[0], ("mcp-method", "ping"), all[2]], era));
            }
        }
        assert!(check("ping", &[version, ("mcp-method", "ping")], Era::Modern));
    }
}
