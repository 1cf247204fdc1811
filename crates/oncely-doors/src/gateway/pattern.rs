//! Which paths a route matches. A path is read as a service would read it, so that another spelling is no way around a
//! guarded route; what is forwarded stays byte for byte.

use std::borrow::Cow;

/// A pattern for paths: `*` stands for any characters within a segment, `**` for any number of segments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathPattern {
    text: String,
    shape: Shape,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Shape {
    /// Everything.
    All,
    /// This path only.
    Only(String),
    /// This path, and everything below it.
    Below(String),
    /// Segment by segment.
    Segments(Vec<String>),
}

impl PathPattern {
    /// Reads a pattern.
    pub fn parse(text: &str) -> Result<Self, String> {
        if !text.starts_with('/') {
            return Err("a pattern starts with /, such as \"/orders/**\"".to_owned());
        }
        if text.len() > 1024 {
            return Err("a pattern has at most 1024 bytes".to_owned());
        }
        if text.contains(['?', '#', '%', '\\']) || text.chars().any(|c| c.is_control() || c == ' ') {
            return Err("a pattern is a plain path with * and **, without ?, #, %, \\ and spaces".to_owned());
        }
        let plain_text = if text.len() > 1 { text.trim_end_matches('/') } else { text };
        let segments: Vec<String> = plain_text.get(1..).unwrap_or("").split('/').map(str::to_owned).collect();
        if segments.len() > 1 && segments.iter().any(String::is_empty) {
            return Err("a pattern has no empty segments".to_owned());
        }
        if segments.iter().any(|s| s == "." || s == "..") {
            return Err("a pattern has no . and .. segments".to_owned());
        }
        if segments.iter().any(|s| s.contains("**") && s != "**") {
            return Err("** stands for whole segments: /orders/**".to_owned());
        }
        let plain = |segments: &[String]| segments.iter().all(|s| !s.contains('*'));
        let shape = match segments.split_last() {
            Some((end, [])) if end == "**" => Shape::All,
            Some((end, above)) if end == "**" && plain(above) => {
                Shape::Below(format!("/{}", above.join("/")))
            }
            _ if plain(&segments) => Shape::Only(format!("/{}", segments.join("/"))),
            _ => Shape::Segments(segments),
        };
        Ok(Self { text: text.to_owned(), shape })
    }

    /// As it is written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// What stands before the first wildcard: whole segments.
    pub fn literal_prefix(&self) -> String {
        let literal = self.text[1..].split('/').take_while(|s| !s.contains('*') && !s.is_empty());
        literal.map(|segment| format!("/{segment}")).collect()
    }

    /// Whether every path that fits the other one fits this one, too. Tried with samples of the other: with nothing, one thing
    /// and more things than this one names in the place of its wildcards.
    pub fn covers(&self, other: &Self) -> bool {
        let most = self.text.split('/').count() + 1;
        [0, 1, most].into_iter().all(|count| self.matches(&other.sample(count)))
    }

    /// A path that fits, with so many segments for every `**`, and a character that no pattern holds for every `*`.
    fn sample(&self, count: usize) -> String {
        const ANY: &str = "\u{1}";
        let segments = self.text.split('/').filter(|segment| !segment.is_empty());
        let path: String = segments
            .map(|segment| match segment {
                "**" => format!("/{ANY}").repeat(count),
                _ => format!("/{}", segment.replace('*', ANY)),
            })
            .collect();
        if path.is_empty() { "/".to_owned() } else { path }
    }

    /// Whether a path, as [`read_path`] gave it, fits.
    pub fn matches(&self, path: &str) -> bool {
        match &self.shape {
            Shape::All => true,
            Shape::Only(this) => path == this,
            Shape::Below(above) => {
                path.strip_prefix(above.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            }
            Shape::Segments(pattern) => {
                let segments: Vec<&str> = path.trim_start_matches('/').split('/').collect();
                segments_match(pattern, &segments)
            }
        }
    }
}

/// Where a segment does not fit, only the latest `**` has to take one more: what an earlier one could take, that one can, too.
/// So a long path costs little, whatever the pattern.
fn segments_match(pattern: &[String], path: &[&str]) -> bool {
    let (mut at, mut seen) = (0, 0);
    let mut latest = None;
    while let Some(segment) = path.get(seen) {
        match (pattern.get(at), latest) {
            (Some(piece), _) if piece == "**" => {
                at += 1;
                latest = Some((at, seen));
            }
            (Some(piece), _) if glob(piece, segment) => {
                at += 1;
                seen += 1;
            }
            (_, Some((after, taken))) => {
                latest = Some((after, taken + 1));
                (at, seen) = (after, taken + 1);
            }
            (_, None) => return false,
        }
    }
    pattern[at..].iter().all(|piece| piece == "**")
}

/// `*` stands for any characters, also none.
fn glob(pattern: &str, text: &str) -> bool {
    let Some((start, after)) = pattern.split_once('*') else { return pattern == text };
    let Some(rest) = text.strip_prefix(start) else { return false };
    let mut pieces: Vec<&str> = after.split('*').collect();
    let end = pieces.pop().unwrap_or("");
    let Some(mut rest) = rest.strip_suffix(end) else { return false };
    for piece in pieces {
        let Some((_, after)) = rest.split_once(piece) else { return false };
        rest = after;
    }
    true
}

/// Reads a path as a service would: escapes that need not be are taken off, slashes in a row count as one, a slash at the
/// end and parameters after `;` do not count. A path that walks upward is refused: whatever it means to the service, it
/// is not what a route meant.
pub fn read_path(path: &str) -> Result<Cow<'_, str>, &'static str> {
    let odd = |byte: &u8| matches!(byte, b'%' | b'\\' | b';');
    let ends_in_slash = path.len() > 1 && path.ends_with('/');
    let odd = ends_in_slash || path.as_bytes().iter().any(odd) || path.contains("//") || path.contains("/.");
    if !odd && path.starts_with('/') {
        return Ok(Cow::Borrowed(path));
    }
    if !path.starts_with('/') {
        return Err("the path does not start with /");
    }
    let decoded = decode(path)?;
    let mut read = String::with_capacity(decoded.len());
    for segment in decoded.split(['/', '\\']) {
        let name = segment.split(';').next().unwrap_or("");
        if name == "." || name == ".." {
            return Err("the path holds . or .. segments");
        }
        if !name.is_empty() {
            read.push('/');
            read.push_str(name);
        }
    }
    Ok(if read.is_empty() { Cow::Borrowed("/") } else { Cow::Owned(read) })
}

fn decode(path: &str) -> Result<String, &'static str> {
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let pair = after.get(..2).and_then(|pair| std::str::from_utf8(pair).ok());
        let byte = pair.filter(|p| p.bytes().all(|b| b.is_ascii_hexdigit()));
        let Some(byte) = byte.and_then(|pair| u8::from_str_radix(pair, 16).ok()) else {
            return Err("the path holds a % that is no escape");
        };
        if byte == 0 {
            return Err("the path holds an escaped NUL");
        }
        bytes.push(byte);
        rest = &after[2..];
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::{PathPattern, read_path};

    fn fits(pattern: &str, path: &str) -> bool {
        PathPattern::parse(pattern).unwrap().matches(&read_path(path).unwrap())
    }

    #[test]
    fn patterns_match_segments() {
        for (pattern, path, expected) in [
            ("/**", "/", true),
            ("/**", "/a/b", true),
            ("/orders/**", "/orders", true),
            ("/orders/**", "/orders/", true),
            ("/orders/**", "/orders/1/items", true),
            ("/orders/**", "/orders2", false),
            ("/orders", "/orders", true),
            ("/orders", "/orders/1", false),
            ("/orders/*", "/orders/1", true),
            ("/orders/*", "/orders/1/2", false),
            ("/v*/orders/**/items", "/v2/orders/1/2/items", true),
            ("/v*/orders/**/items", "/v2/orders/items", true),
            ("/v*/orders/**/items", "/w/orders/items", false),
            ("/a*b*c", "/axxbyyc", true),
            ("/a*b*c", "/axxc", false),
            ("/", "/", true),
            ("/", "/a", false),
            ("//", "/", true),
            ("/**/a/**/b", "/a/x/a/b/b", true),
            ("/**/a/**/b", "/a/x/b/c", false),
            ("/**/a/b", "/a/c/a/b", true),
            ("/a/**/**", "/a", true),
            ("/**/a*/**/c/**", "/x/ab/y/c", true),
            ("/**/*", "/", true),
        ] {
            assert_eq!(fits(pattern, path), expected, "{pattern} {path}");
        }
    }

    /// Tried one by one, the ways to divide this path among the wildcards would outlast anybody's patience.
    #[test]
    fn a_long_path_costs_little_whatever_the_pattern() {
        let path = "/a".repeat(30_000);
        assert!(!fits("/**/a/**/a/**/a/**/a/**/b", &path));
        assert!(fits("/**/a/**/a/**/a/**/a/**", &path));
    }

    #[test]
    fn another_spelling_of_a_path_is_no_way_around_a_route() {
        for path in ["/%6frders/1", "//orders/1", "/orders%2F1", "/orders//1", "/orders\\1", "/orders;v=1/1"]
        {
            assert!(fits("/orders/**", path), "{path}");
        }
        for path in ["/orders", "/orders/", "/orders//", "/orders;v=1", "/orders%3Bv=1", "/%6frders"] {
            assert!(fits("/orders", path) && fits("/orders/", path), "{path}");
        }
        for path in [
            "/a/../orders",
            "/a/%2e%2e/orders",
            "/./orders",
            "/a%2f..%2forders",
            "/..;x/a",
            "/%zz",
            "/%0",
            "/a%00",
            "x",
        ] {
            assert!(read_path(path).is_err(), "{path}");
        }
        assert!(read_path("/.well-known/x").is_ok());
        assert!(read_path("/a..b/...").is_ok());
    }

    #[test]
    fn bad_patterns_are_refused() {
        for pattern in ["", "orders", "/a//b", "/a**", "/../a", "/a?b", "/%41", "/a b"] {
            assert!(PathPattern::parse(pattern).is_err(), "{pattern}");
        }
    }

    #[test]
    fn the_literal_prefix_ends_before_the_first_wildcard() {
        for (pattern, prefix) in
            [("/stripe/**", "/stripe"), ("/a/b*/c", "/a"), ("/**", ""), ("/a/b", "/a/b"), ("/a/", "/a")]
        {
            assert_eq!(PathPattern::parse(pattern).unwrap().literal_prefix(), prefix);
        }
    }

    #[test]
    fn a_pattern_covers_another_where_no_path_is_left_to_it() {
        for (first, second, covered) in [
            ("/**", "/orders/**", true),
            ("/**", "/", true),
            ("/orders/**", "/orders/**", true),
            ("/orders/**", "/orders", true),
            ("/orders/**", "/orders/*/items", true),
            ("/orders/**", "/orders/v*/**", true),
            ("/orders/*", "/orders/42", true),
            ("/*/items", "/orders/items/", true),
            ("/**/items", "/orders/*/items", true),
            ("/orders/**", "/**", false),
            ("/orders/*", "/orders/**", false),
            ("/orders/*", "/orders", false),
            ("/orders", "/orders/**", false),
            ("/orders/**", "/ordersheet", false),
            ("/orders/v*", "/orders/*", false),
            ("/*/*/**", "/**", false),
            ("/a/*/c", "/a/**/c", false),
        ] {
            let pattern = |text: &str| PathPattern::parse(text).unwrap();
            assert_eq!(pattern(first).covers(&pattern(second)), covered, "{first} before {second}");
        }
    }
}
