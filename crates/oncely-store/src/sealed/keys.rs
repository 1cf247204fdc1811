//! Keys for sealing, each with an id.

/// Most keys.
const KEYS_MAX: usize = 32;

/// Keys; the first seals, all open.
#[derive(Clone, Default)]
pub struct Keys(Vec<(String, [u8; 32])>);

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(id, _)| id)).finish()
    }
}

/// What is wrong with a list of keys. The keys themselves are never shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeysError {
    line: usize,
    what: &'static str,
}

impl std::fmt::Display for KeysError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "the encryption keys, line {}: {}; a line is an id and 64 hexadecimal digits, with a blank between",
            self.line, self.what
        )
    }
}

impl std::error::Error for KeysError {}

impl Keys {
    /// No keys.
    pub fn none() -> Self {
        Self::default()
    }

    /// Reads one key per line (or several in one line, separated by commas): an id and 64 hexadecimal digits. Empty
    /// lines and those that start with `#` are passed over.
    pub fn parse(text: &str) -> Result<Self, KeysError> {
        let mut keys: Vec<(String, [u8; 32])> = Vec::new();
        for (at, line) in text.lines().enumerate() {
            let wrong = |what| Err(KeysError { line: at + 1, what });
            for entry in line.split(',').map(str::trim) {
                if entry.is_empty() || entry.starts_with('#') {
                    continue;
                }
                let Some((id, digits)) = entry.split_once(char::is_whitespace) else {
                    return wrong("there is no blank between id and key");
                };
                let good = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
                if id.is_empty() || id.len() > 64 || !id.bytes().all(good) {
                    return wrong("the id must have 1 to 64 letters, digits and . _ -");
                }
                let Some(key) = key_of(digits.trim()) else {
                    return wrong("the key must have 64 hexadecimal digits");
                };
                if keys.iter().any(|(known, _)| known == id) {
                    return wrong("the id stands twice");
                }
                if keys.len() >= KEYS_MAX {
                    return wrong("there are more than 32 keys");
                }
                keys.push((id.to_owned(), key));
            }
        }
        if keys.is_empty() {
            return Err(KeysError { line: 1, what: "there is no key" });
        }
        Ok(Self(keys))
    }

    pub(super) fn first(&self) -> Option<(&str, &[u8; 32])> {
        self.0.first().map(|(id, key)| (id.as_str(), key))
    }

    pub(super) fn get(&self, id: &str) -> Option<&[u8; 32]> {
        self.0.iter().find(|(known, _)| known == id).map(|(_, key)| key)
    }
}

fn key_of(digits: &str) -> Option<[u8; 32]> {
    if digits.len() != 64 || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    let mut key = [0u8; 32];
    for (byte, at) in key.iter_mut().zip((0..64).step_by(2)) {
        *byte = u8::from_str_radix(&digits[at..at + 2], 16).ok()?;
    }
    Some(key)
}

#[cfg(test)]
mod tests {
    use super::Keys;

    const A: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

    #[test]
    fn a_wrong_line_is_named_and_no_key_is_shown() {
        assert!(Keys::parse(&format!("# old\n\nnew {A}\nold {A}")).is_ok());
        assert!(Keys::parse(&format!("new {A}, old {A}")).is_ok());
        for (text, line) in [
            ("".to_owned(), 1),
            (A.to_owned(), 1),
            (format!("a {A}\na {A}"), 2),
            (format!("a {}", &A[1..]), 1),
            (format!("a {A}0"), 1),
            (format!("{} {A}", "x".repeat(65)), 1),
            (format!("a {}", "g".repeat(64)), 1),
        ] {
            let error = Keys::parse(&text).unwrap_err();
            assert_eq!(error.line, line, "{text}");
            assert!(!error.to_string().contains("0102"), "{error}");
        }
        assert!(!format!("{:?}", Keys::parse(&format!("a {A}")).unwrap()).contains("0102"));
    }
}
