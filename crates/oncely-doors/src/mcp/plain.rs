//! Plain JSON, read quickly: every message is looked at, most of them only to be passed on. This takes in what JSON allows
//! and no more, and leaves whatever is unusual to `serde_json`: names with escapes, and values in many layers. So it says
//! what that would say, or that it does not know.

/// Most layers of a value.
const LAYERS: u32 = 64;
/// Most names and many texts are shorter; a multiple of eight.
const SHORT: usize = 32;

/// A text that is read from its beginning. Whoever gets `None` anywhere leaves all of it to somebody else.
pub(super) struct Plain<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Plain<'a> {
    /// At the beginning of a text.
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    fn rest(&self) -> &'a [u8] {
        &self.text.as_bytes()[self.at..]
    }

    /// The next byte after any white space, which stays where it is.
    fn next(&mut self) -> Option<u8> {
        loop {
            match *self.text.as_bytes().get(self.at)? {
                b' ' | b'\n' | b'\r' | b'\t' => self.at += 1,
                byte => return Some(byte),
            }
        }
    }

    fn take(&mut self, byte: u8) -> Option<()> {
        (self.next()? == byte).then(|| self.at += 1)
    }

    /// Nothing follows.
    pub(super) fn end(&mut self) -> Option<()> {
        self.next().is_none().then_some(())
    }

    /// A text without escapes, without its quotes.
    pub(super) fn word(&mut self) -> Option<&'a str> {
        self.take(b'"')?;
        let from = self.at;
        self.at += unescaped(self.rest());
        let word = &self.text[from..self.at];
        self.take_here(b'"')?;
        Some(word)
    }

    fn take_here(&mut self, byte: u8) -> Option<()> {
        (self.rest().first() == Some(&byte)).then(|| self.at += 1)
    }

    /// An object: for each member its name, which has no escapes, and what reads its value.
    pub(super) fn object(&mut self, mut member: impl FnMut(&'a str, &mut Self) -> Option<()>) -> Option<()> {
        self.take(b'{')?;
        if self.next()? == b'}' {
            return self.take(b'}');
        }
        loop {
            let name = self.word()?;
            self.take(b':')?;
            member(name, self)?;
            if self.more(b'}')?.is_end() {
                return Some(());
            }
        }
    }

    /// Any value, as it is written.
    pub(super) fn value(&mut self) -> Option<&'a str> {
        self.next()?;
        let from = self.at;
        self.skip(LAYERS)?;
        Some(&self.text[from..self.at])
    }

    fn skip(&mut self, layers: u32) -> Option<()> {
        match self.next()? {
            b'"' => self.skip_text(),
            b'{' => self.skip_layer(layers, b'}'),
            b'[' => self.skip_layer(layers, b']'),
            b't' => self.skip_literal("true"),
            b'f' => self.skip_literal("false"),
            b'n' => self.skip_literal("null"),
            _ => self.skip_number(),
        }
    }

    /// An object or an array, up to what ends it.
    fn skip_layer(&mut self, layers: u32, end: u8) -> Option<()> {
        let layers = layers.checked_sub(1)?;
        self.at += 1;
        if self.next()? == end {
            return self.take(end);
        }
        loop {
            if end == b'}' {
                (self.next()? == b'"').then(|| self.skip_text())??;
                self.take(b':')?;
            }
            self.skip(layers)?;
            if self.more(end)?.is_end() {
                return Some(());
            }
        }
    }

    /// What follows an item or a member.
    fn more(&mut self, end: u8) -> Option<Follows> {
        let byte = self.next()?;
        self.at += 1;
        match byte {
            b',' => Some(Follows::More),
            _ if byte == end => Some(Follows::End),
            _ => None,
        }
    }

    fn skip_text(&mut self) -> Option<()> {
        self.at += 1;
        loop {
            self.at += unescaped(self.rest());
            match self.rest() {
                [b'"', ..] => return self.take_here(b'"'),
                [b'\\', b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't', ..] => self.at += 2,
                [b'\\', b'u', digits @ ..] => {
                    let is_one = digits.first_chunk::<4>()?.iter().all(u8::is_ascii_hexdigit);
                    is_one.then(|| self.at += 6)?;
                }
                _ => return None,
            }
        }
    }

    fn skip_literal(&mut self, literal: &str) -> Option<()> {
        self.rest().starts_with(literal.as_bytes()).then(|| self.at += literal.len())
    }

    fn skip_number(&mut self) -> Option<()> {
        // Where there is none, the number has no sign.
        let _ = self.take_here(b'-');
        // A number does not begin with a zero that could be left out.
        if self.take_here(b'0').is_none() {
            self.skip_digits()?;
        }
        if self.take_here(b'.').is_some() {
            self.skip_digits()?;
        }
        if let [b'e' | b'E', after @ ..] = self.rest() {
            self.at += if matches!(after, [b'+' | b'-', ..]) { 2 } else { 1 };
            self.skip_digits()?;
        }
        Some(())
    }

    fn skip_digits(&mut self) -> Option<()> {
        let count = self.rest().iter().take_while(|byte| byte.is_ascii_digit()).count();
        self.at += count;
        (count > 0).then_some(())
    }
}

enum Follows {
    More,
    End,
}

impl Follows {
    fn is_end(&self) -> bool {
        matches!(self, Self::End)
    }
}

/// How many bytes there are before one that ends a text, begins an escape or may not be in a text.
fn unescaped(bytes: &[u8]) -> usize {
    let is_special = |byte: u8| byte < b' ' || matches!(byte, b'"' | b'\\');
    let mut at = 0;
    while let Some(eight) = bytes[at..].first_chunk() {
        let special = special(u64::from_le_bytes(*eight));
        if special != 0 {
            return at + special.trailing_zeros() as usize / 8;
        }
        at += 8;
        if at == SHORT {
            return at + unescaped_long(&bytes[at..]);
        }
    }
    at + bytes[at..].iter().take_while(|byte| !is_special(**byte)).count()
}

/// The same for what is worth a second look at every byte, if each of the two is quicker.
fn unescaped_long(bytes: &[u8]) -> usize {
    let end = memchr::memchr2(b'"', b'\\', bytes).unwrap_or(bytes.len());
    let has_control = bytes[..end].iter().fold(false, |has, byte| has | (*byte < b' '));
    match has_control {
        false => end,
        true => bytes.iter().take_while(|byte| **byte >= b' ').count(),
    }
}

/// Of eight bytes, the first of which is the lowest: the highest bit of those that are a quote, a backslash or a control
/// character. Exact up to the first such byte, which is all that is asked for: a borrow only goes upwards.
fn special(eight: u64) -> u64 {
    const EACH: u64 = u64::MAX / 0xff;
    let is_below = |bytes: u64, bound: u8| bytes.wrapping_sub(EACH * u64::from(bound)) & !bytes;
    let is = |byte: u8| is_below(eight ^ (EACH * u64::from(byte)), 1);
    (is_below(eight, b' ') | is(b'"') | is(b'\\')) & (EACH << 7)
}

#[cfg(test)]
mod tests {
    use super::Plain;

    /// Whether this is one value.
    fn is_value(text: &str) -> bool {
        let mut plain = Plain::new(text);
        plain.value().is_some() && plain.end().is_some()
    }

    #[test]
    fn json_is_taken_and_nothing_else() {
        for text in [
            "{}",
            " [ ] ",
            "{ \"a\" : [ 1 , -0.5e+10 , 0 , 1E5 , true , false , null ] ,\t\"b\"\r:\n{} }",
            r#""a\"\\\/\b\f\n\r\tb\u00e9\uD800""#,
            "\"0123456\\n89012345678901234567890 é \u{10ffff}\u{7f}\"",
            "-0",
        ] {
            assert!(is_value(text), "{text}");
            serde_json::from_str::<serde::de::IgnoredAny>(text).unwrap();
        }
        for text in [
            "",
            " ",
            "{",
            "}",
            "[1",
            "[1,]",
            "[,1]",
            "{,}",
            r#"{"a"}"#,
            r#"{"a":}"#,
            r#"{"a":1,}"#,
            r#"{"a" 1}"#,
            "{1:1}",
            "{'a':1}",
            "[1 2]",
            "[1}",
            r#"{"a":1]"#,
            "01",
            "-",
            "1.",
            ".5",
            "1e",
            "1e+",
            "+1",
            "0x1",
            "1_0",
            "tru",
            "nul",
            "True",
            "NaN",
            "1 2",
            "{} {}",
            "\"a",
            "\"\\\"",
            r#""\x""#,
            r#""\u12g4""#,
            r#""\u12""#,
            "\"a\nb\"",
            "\"12345678\u{1f}\"",
            "/**/1",
            "\u{feff}1",
            "\u{a0}1",
        ] {
            assert!(!is_value(text), "{text}");
            assert!(serde_json::from_str::<serde::de::IgnoredAny>(text).is_err(), "{text}");
        }
        let layers = |count: usize| "[".repeat(count) + &"]".repeat(count);
        assert!(is_value(&layers(64)) && !is_value(&layers(65)));
    }

    #[test]
    fn every_byte_of_a_text_is_seen_wherever_it_is() {
        for length in (0..40).chain([64, 65, 79]) {
            for at in 0..length {
                for byte in 0..=0x7f_u8 {
                    let mut text = vec![b'x'; length];
                    text[at] = byte;
                    let text = format!("\"{}\"", String::from_utf8(text).unwrap());
                    let is_json = serde_json::from_str::<serde::de::IgnoredAny>(&text).is_ok();
                    assert_eq!(is_value(&text), is_json, "{text:?}");
                }
            }
        }
    }

    #[test]
    fn a_name_with_an_escape_is_left_to_others() {
        let names = |text: &'static str| {
            let mut plain = Plain::new(text);
            let mut names = Vec::new();
            plain.object(|name, plain| {
                names.push((name, plain.value()?));
                Some(())
            })?;
            plain.end().map(|()| names)
        };
        assert_eq!(
            names(r#" { "a" : "\u0061" ,"é":[1, 2]} "#).unwrap(),
            [("a", r#""\u0061""#), ("é", "[1, 2]")]
        );
        assert_eq!(names("{}").unwrap(), []);
        for text in [r#"{"\u0061":1}"#, r#"{"a":1} x"#, "[]", "{\"a\u{1}\":1}", r#"{"a":1"#] {
            assert!(names(text).is_none(), "{text}");
        }
    }
}
