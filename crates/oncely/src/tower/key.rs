//! The `Idempotency-Key` header: bare, or quoted as an RFC 8941 string; both forms of one key are the same key.

use http::header::{HeaderMap, HeaderName, HeaderValue};
use oncely_core::limits::KEY_BYTES_MAX;
use oncely_core::{Key, NameError};

/// The header that carries a caller's key.
pub const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// Longest header value that is looked at: a quoted key may escape every character, and carry parameters.
const VALUE_BYTES_MAX: usize = 4 * KEY_BYTES_MAX;

/// Which forms of the header are accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum KeyForm {
    /// Bare or quoted: what clients send in practice.
    #[default]
    Either,
    /// Quoted only: what the draft asks for.
    Quoted,
}

/// A key as a caller gave it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GivenKey {
    /// The key, the same for both forms.
    pub key: Key,
    /// As it was written, to be shown back.
    pub written: HeaderValue,
}

/// Why a key was refused. Nothing has run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyFault {
    /// The header is there more than once: which one counts would be a guess.
    #[error("the header Idempotency-Key is there {0} times; send it once")]
    Repeated(usize),
    /// Two keys in one line, or one with a comma outside of quotes: it cannot be told which, since whatever is in between
    /// may have joined two lines into one.
    #[error("a key with a comma in it has to be quoted: Idempotency-Key: \"your,key\"; of two keys send one")]
    Joined,
    /// Only the quoted form is accepted here.
    #[error(
        "the key is not quoted, and only the quoted form is accepted here: Idempotency-Key: \"your-key\""
    )]
    Bare,
    /// The quoted form is not that of RFC 8941.
    #[error("the quoted key is not a string after RFC 8941: {0}")]
    BadQuoting(&'static str),
    /// The key itself is empty, too long, or holds characters that no key may hold.
    #[error("{0}")]
    Name(#[from] NameError),
}

/// The key of a request, if it has one.
pub fn key_of(headers: &HeaderMap, form: KeyForm) -> Result<Option<GivenKey>, KeyFault> {
    let mut values = headers.get_all(IDEMPOTENCY_KEY).iter();
    let Some(written) = values.next() else { return Ok(None) };
    let more = values.count();
    if more > 0 {
        return Err(KeyFault::Repeated(more + 1));
    }
    let value = written.as_bytes();
    if value.contains(&b',') && value.trim_ascii_start().first() != Some(&b'"') {
        return Err(KeyFault::Joined);
    }
    Ok(Some(GivenKey { key: parse_key(written.as_bytes(), form)?, written: written.clone() }))
}

/// Reads one header value.
pub fn parse_key(value: &[u8], form: KeyForm) -> Result<Key, KeyFault> {
    let value = value.trim_ascii();
    if value.len() > VALUE_BYTES_MAX {
        return Err(NameError::TooLong { what: "key", len: value.len(), max: KEY_BYTES_MAX }.into());
    }
    match value.split_first() {
        Some((b'"', rest)) => Ok(Key::explicit(&quoted(rest)?)?),
        _ if form == KeyForm::Quoted && !value.is_empty() => Err(KeyFault::Bare),
        // Bytes that are no UTF-8 become a character that no key may hold.
        _ => Ok(Key::explicit(&String::from_utf8_lossy(value))?),
    }
}

/// The text of an RFC 8941 string whose opening quote is taken off already. Parameters may follow; they mean nothing.
fn quoted(mut rest: &[u8]) -> Result<String, KeyFault> {
    let mut text = String::with_capacity(rest.len());
    loop {
        rest = match rest {
            [b'"', after @ ..] => {
                check_parameters(after)?;
                return Ok(text);
            }
            [b'\\', escaped @ (b'"' | b'\\'), after @ ..] => {
                text.push(char::from(*escaped));
                after
            }
            [b'\\', ..] => return Err(KeyFault::BadQuoting("a backslash may stand only before \" and \\")),
            [byte @ 0x20..=0x7e, after @ ..] => {
                text.push(char::from(*byte));
                after
            }
            [_, ..] => return Err(KeyFault::BadQuoting("only printable ASCII may stand between the quotes")),
            [] => return Err(KeyFault::BadQuoting("the closing quote is missing")),
        };
    }
}

/// Parameters are allowed after an item, and ignored; anything else there is a mistake, such as a second key.
fn check_parameters(mut rest: &[u8]) -> Result<(), KeyFault> {
    const WRONG: KeyFault = KeyFault::BadQuoting("after the closing quote only parameters may follow");
    while let Some((first, after)) = rest.split_first() {
        if *first != b';' {
            return Err(WRONG);
        }
        let after = after.trim_ascii_start();
        let name =
            after.iter().take_while(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'.' | b'*'));
        let name_len = name.count();
        if !matches!(after.first(), Some(b'a'..=b'z' | b'*')) {
            return Err(WRONG);
        }
        rest = &after[name_len..];
        if let Some(value) = rest.strip_prefix(b"=") {
            rest = match value.strip_prefix(b"\"") {
                Some(text) => after_string(text).ok_or(WRONG)?,
                None => {
                    let len =
                        value.iter().take_while(|b| matches!(b, 0x21..=0x7e if !b"\",;".contains(b))).count();
                    if len == 0 {
                        return Err(WRONG);
                    }
                    &value[len..]
                }
            };
        }
    }
    Ok(())
}

fn after_string(text: &[u8]) -> Option<&[u8]> {
    let mut at = 0;
    loop {
        match text.get(at)? {
            b'"' => return text.get(at + 1..),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;
    use oncely_core::NameError;

    use super::{IDEMPOTENCY_KEY, KeyFault, KeyForm, key_of, parse_key};

    fn either(value: &str) -> Result<String, KeyFault> {
        parse_key(value.as_bytes(), KeyForm::Either).map(|key| key.as_str().to_owned())
    }

    #[test]
    fn bare_and_quoted_forms_of_one_key_are_the_same_key() {
        for value in
            ["order-42", "\"order-42\"", "  order-42 ", "\"order-42\";v=1", "\"order-42\"; a; b=\"x;y\""]
        {
            assert_eq!(either(value).as_deref(), Ok("order-42"), "{value}");
        }
        assert_eq!(either(r#""a\"b\\c""#).as_deref(), Ok(r#"a"b\c"#));
        assert_eq!(
            either("a\"b").as_deref(),
            Ok("a\"b"),
            "a quote inside a bare key is a character like any other"
        );
    }

    #[test]
    fn a_strict_door_refuses_bare_keys() {
        assert_eq!(parse_key(b"order-42", KeyForm::Quoted), Err(KeyFault::Bare));
        assert!(parse_key(b"\"order-42\"", KeyForm::Quoted).is_ok());
        assert!(matches!(parse_key(b"", KeyForm::Quoted), Err(KeyFault::Name(NameError::Empty { .. }))));
    }

    #[test]
    fn bad_keys_are_refused_with_the_reason() {
        for value in [
            "\"a",
            "\"",
            "\"a\\x\"",
            "\"a\" \"b\"",
            "\"a\", \"b\"",
            "\"a\";",
            "\"a\";=1",
            "\"a\";B",
            "\"a\";b=",
        ] {
            assert!(matches!(either(value), Err(KeyFault::BadQuoting(_))), "{value}: {:?}", either(value));
        }
        for value in ["", "\"\"", "a b", "\"a b\"", "a\tb", "ключ", &"k".repeat(256), &"k".repeat(5_000)]
        {
            assert!(matches!(either(value), Err(KeyFault::Name(_))), "{value}");
        }
        assert!(matches!(parse_key(b"a\xffb", KeyForm::Either), Err(KeyFault::Name(_))));
        assert!(matches!(parse_key(b"\"a\xffb\"", KeyForm::Either), Err(KeyFault::BadQuoting(_))));
        assert!(either(&"k".repeat(255)).is_ok());
        assert!(either(&format!("\"{}\"", "\\\"".repeat(255))).is_ok());
    }

    #[test]
    fn a_header_that_is_there_twice_is_refused() {
        let mut headers = HeaderMap::new();
        assert_eq!(key_of(&headers, KeyForm::Either), Ok(None));
        headers.append(IDEMPOTENCY_KEY, "a".parse().unwrap());
        assert_eq!(key_of(&headers, KeyForm::Either).unwrap().unwrap().key.as_str(), "a");
        headers.append(IDEMPOTENCY_KEY, "a".parse().unwrap());
        assert_eq!(key_of(&headers, KeyForm::Either), Err(KeyFault::Repeated(2)));
    }

    #[test]
    fn two_keys_that_were_joined_into_one_line_are_refused_in_every_spelling() {
        let of = |value: &str| {
            let headers: HeaderMap = [(IDEMPOTENCY_KEY, value.parse().unwrap())].into_iter().collect();
            key_of(&headers, KeyForm::Either).map(|given| given.unwrap().key.as_str().to_owned())
        };
        for joined in ["a,b", "a, b", " a ,b", "a,", ",a"] {
            assert_eq!(of(joined), Err(KeyFault::Joined), "{joined}");
        }
        for joined in ["\"a\",\"b\"", "\"a\", \"b\""] {
            assert!(matches!(of(joined), Err(KeyFault::BadQuoting(_))), "{joined}");
        }
        assert_eq!(of("\"a,b\"").as_deref(), Ok("a,b"), "in quotes it is a character like any other");
    }

    /// Whatever the bytes: an answer, no panic, and both forms agree.
    #[test]
    fn random_bytes_never_do_harm() {
        let seed: u64 = 0x0dd_ba11;
        println!("seed {seed:#x}");
        let mut state = seed;
        let mut next = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        const ALPHABET: &[u8] = b"ab\"\\;=, \t*?\x00\x7f\xc3\xa9";
        for _ in 0..200_000 {
            let len = (next() % 12) as usize;
            let value: Vec<u8> =
                (0..len).map(|_| ALPHABET[(next() % ALPHABET.len() as u64) as usize]).collect();
            if let Ok(key) = parse_key(&value, KeyForm::Either) {
                let escaped = key.as_str().replace('\\', "\\\\").replace('"', "\\\"");
                assert_eq!(parse_key(format!("\"{escaped}\"").as_bytes(), KeyForm::Quoted), Ok(key));
            }
        }
    }
}
