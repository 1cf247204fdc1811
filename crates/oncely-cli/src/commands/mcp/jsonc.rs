//! JSON with comments, as editors write it: blanked so that a JSON parser reads it and every byte keeps its place.

/// What some editors put before everything else.
const BYTE_ORDER_MARK: &str = "\u{feff}";

/// The text with comments and trailing commas turned into spaces. Its length stays the same.
pub fn blank(text: &str) -> String {
    let mut bytes = text.as_bytes().to_vec();
    let mut at = if text.starts_with(BYTE_ORDER_MARK) { BYTE_ORDER_MARK.len() } else { 0 };
    bytes[..at].fill(b' ');
    let mut last_comma = None;
    while at < bytes.len() {
        match (bytes[at], bytes.get(at + 1)) {
            (b'"', _) => {
                last_comma = None;
                at = end_of_string(&bytes, at);
            }
            (b'/', Some(b'/')) => at = fill(&mut bytes, at, |rest| find(rest, b"\n").unwrap_or(rest.len())),
            (b'/', Some(b'*')) => {
                at = fill(&mut bytes, at, |rest| find(rest, b"*/").map_or(rest.len(), |end| end + 2))
            }
            (b',', _) => {
                last_comma = Some(at);
                at += 1;
            }
            (b'}' | b']', _) => {
                if let Some(comma) = last_comma.take() {
                    bytes[comma] = b' ';
                }
                at += 1;
            }
            (byte, _) => {
                if !byte.is_ascii_whitespace() {
                    last_comma = None;
                }
                at += 1;
            }
        }
    }
    // Only whole characters were blanked, byte by byte.
    String::from_utf8(bytes).unwrap_or_else(|_| text.to_owned())
}

/// Where a string ends, after its closing quote.
fn end_of_string(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

/// Blanks a comment, but for its line breaks; returns where it ends.
fn fill(bytes: &mut [u8], start: usize, length: impl Fn(&[u8]) -> usize) -> usize {
    let end = start + length(&bytes[start..]);
    for byte in &mut bytes[start..end] {
        if *byte != b'\n' && *byte != b'\r' {
            *byte = b' ';
        }
    }
    end
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|window| window == needle)
}

#[cfg(test)]
mod tests {
    use super::blank;

    #[test]
    fn comments_and_trailing_commas_become_spaces_of_the_same_length() {
        let text = "{ // é, \"no\"\n \"a\": [1, 2, /* , */ ], \"b\": \"// no /* comment */ ,}\\\"\", \n}";
        let blanked = blank(text);
        assert_eq!(blanked.len(), text.len());
        let value: serde_json::Value = serde_json::from_str(&blanked).unwrap();
        assert_eq!(value, serde_json::json!({ "a": [1, 2], "b": "// no /* comment */ ,}\"" }));
        assert_eq!(blank("{\"a\":1}"), "{\"a\":1}");
        assert_eq!(blank("\"open"), "\"open");
        assert_eq!(blank("\u{feff}{}"), "   {}");
    }
}
