//! Headers: which of them concern the two ends, and whether they say the same as the message.

use hyper::HeaderMap;
use hyper::header::{
    CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderName, HeaderValue,
};

use super::exchange::{METHOD, NAME};
use crate::command::base64;
use crate::mcp::call::ToolCall;
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
/// The protocol's code for headers that contradict the message.
pub(super) const MISMATCH: i32 = -32020;
/// How a text is marked that does not fit into a header.
const ENCODED: (&str, &str) = ("=?base64?", "?=");

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

/// Why the headers of a call do not say the same as its message, in the era that wants them to. A server would refuse
/// it; we may answer in its place.
pub(super) fn contradiction(headers: &HeaderMap, call: &ToolCall<'_>, tool: Option<&Tool>) -> Option<String> {
    call.self_description()?;
    let said = |name: &HeaderName| headers.get(name).map(|value| decode(value.as_bytes()));
    if said(&METHOD) != Some(Some("tools/call".to_owned())) {
        return Some("the header Mcp-Method is not the method of the message".to_owned());
    }
    if said(&NAME) != Some(Some(call.name.clone())) {
        return Some("the header Mcp-Name is not the tool that the message names".to_owned());
    }
    let arguments = call.arguments();
    for (header, argument) in tool.iter().flat_map(|tool| &tool.header_arguments) {
        let Ok(name) = HeaderName::try_from(format!("{PARAM_PREFIX}{}", header.to_ascii_lowercase())) else {
            continue;
        };
        let meant = arguments.get(argument).filter(|raw| *raw != "null").map(as_text);
        let agrees = match (said(&name), &meant) {
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
    let text = std::str::from_utf8(value).ok()?;
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
    use super::{contradiction, decode, encode, end_to_end, is_not_utf8};
    use crate::mcp::call::ToolCall;
    use crate::mcp::message::{Message, read};
    use crate::mcp::tools::Tool;
    use hyper::HeaderMap;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
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
        let good = [("mcp-method", "tools/call"), ("mcp-name", "pay"), ("mcp-param-region", "eu")];
        assert!(check(&good, MODERN) && check(&[], "{}"));
        assert!(!check(&good[..1], MODERN) && !check(&good[..2], MODERN) && !check(&[], MODERN));
        assert!(!check(&[good[0], ("mcp-name", "other"), good[2]], MODERN));
        assert!(!check(&[good[0], good[1], ("mcp-param-region", "us")], MODERN));
        assert!(check(&[good[0], ("mcp-name", "=?base64?cGF5?="), good[2]], MODERN));
    }
}
