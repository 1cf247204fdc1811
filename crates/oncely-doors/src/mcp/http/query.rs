//! The query of an address: its parameters, as whoever is asked with it may read them.

/// A parameter of a query, as it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Parameter<'a> {
    pub(super) name: &'a str,
    pub(super) value: &'a str,
}

/// The parameters of a query. Some servers take a semicolon for an ampersand.
pub(super) fn parameters(query: &str) -> impl Iterator<Item = Parameter<'_>> {
    let pieces = query.split(['&', ';']).filter(|piece| !piece.is_empty());
    pieces.map(|piece| {
        let (name, value) = piece.split_once('=').unwrap_or((piece, ""));
        Parameter { name, value }
    })
}

impl Parameter<'_> {
    /// The one name that servers read here, however they treat its case, brackets and dots; `None` if it may be another name
    /// to some of them.
    pub(super) fn plain_name(&self) -> Option<String> {
        let name = String::from_utf8(decoded(self.name)).ok()?;
        // A bad escape, one within another, or what ends a name for those who decode it before they cut the query up.
        if name.contains(['%', '&', ';', '=']) || name.contains(|c: char| c.is_control()) {
            return None;
        }
        let name = name.trim().split('[').next().unwrap_or_default();
        Some(name.replace([' ', '.'], "_").to_lowercase())
    }

    /// The name and the value that most servers read here.
    pub(super) fn read(&self) -> (String, Vec<u8>) {
        (String::from_utf8_lossy(&decoded(self.name)).to_lowercase(), decoded(self.value))
    }
}

/// A text without its escapes; what is no escape stays.
fn decoded(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let escaped = after.first_chunk::<2>().filter(|_| *first == b'%').and_then(escape);
        rest = if escaped.is_some() { &after[2..] } else { after };
        bytes.push(escaped.unwrap_or(if *first == b'+' { b' ' } else { *first }));
    }
    bytes
}

fn escape(digits: &[u8; 2]) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    u8::try_from(digit(digits[0])? * 16 + digit(digits[1])?).ok()
}

#[cfg(test)]
mod tests {
    use super::{Parameter, parameters};

    fn named(name: &str) -> Option<String> {
        Parameter { name, value: "" }.plain_name()
    }

    #[test]
    fn a_name_is_the_same_however_it_is_spelt() {
        for spelt in
            ["project", "%70roject", "%70%52oject", "PROJECT", "project[]", "+project", "project%5B0%5D"]
        {
            assert_eq!(named(spelt).as_deref(), Some("project"), "{spelt}");
        }
        assert_eq!(named("a.b"), named("a_b"));
        assert_eq!(named("a+b"), named("a%20b"));
        assert_ne!(named("project"), named("projects"));
    }

    #[test]
    fn a_name_that_may_be_read_in_two_ways_is_none() {
        for odd in ["%2570roject", "%zz", "a%", "a%7", "%ff", "project%00", "x%26project", "project%3Db"] {
            assert_eq!(named(odd), None, "{odd}");
        }
    }

    #[test]
    fn parameters_are_read_as_most_servers_do() {
        let read: Vec<_> = parameters("a=1&&%62=x%3Dy+z;C&=").map(|one| one.read()).collect();
        let expected: [(&str, &[u8]); 4] = [("a", b"1"), ("b", b"x=y z"), ("c", b""), ("", b"")];
        assert_eq!(read, expected.map(|(name, value)| (name.to_owned(), value.to_vec())));
    }
}
