//! A glance at a message of a client. Most requests are nothing to us, or call a tool that reads, and little has to be seen
//! of those: this sees it in one pass and keeps nothing. Whatever is not plain is left to be read in full, so that a glance
//! never sees what that would not.

use super::message::{is_id, is_lookalike};
use super::plain::Plain;

/// Most members of an object that is taken in at a glance.
const FEW: usize = 8;

/// A request, as far as it was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Glance<'a> {
    /// The id, as it was written.
    pub id: &'a str,
    /// What it asks for.
    pub method: &'a str,
    /// The member `name` of its parameters.
    pub name: Option<&'a str>,
}

impl<'a> Glance<'a> {
    /// Looks at a message; `None` if it has to be read in full.
    pub fn at(line: &'a [u8]) -> Option<Self> {
        let mut plain = Plain::new(std::str::from_utf8(line).ok()?);
        let mut names = Names::default();
        let (mut id, mut method, mut tool) = (None, None, None);
        plain.object(|name, plain| {
            names.note(name)?;
            match name {
                "id" => id = Some(plain.value()?).filter(|id| is_id(id)),
                "method" => method = Some(plain.word()?),
                "params" => tool = tool_in(plain)?,
                _ => drop(plain.value()?),
            }
            Some(())
        })?;
        plain.end()?;
        Some(Self { id: id?, method: method?, name: tool })
    }
}

/// The member `name` of parameters whose arguments and `_meta`, if any, are objects.
fn tool_in<'a>(params: &mut Plain<'a>) -> Option<Option<&'a str>> {
    let mut names = Names::default();
    let mut tool = None;
    params.object(|name, plain| {
        names.note(name)?;
        match name {
            "name" => tool = Some(plain.word()?),
            "arguments" | "_meta" => plain.value()?.starts_with('{').then_some(())?,
            _ => drop(plain.value()?),
        }
        Some(())
    })?;
    Some(tool)
}

/// The names of an object's members so far. One that is there twice, or that only some take for another, needs a closer
/// look.
#[derive(Default)]
struct Names<'a> {
    seen: [&'a str; FEW],
    count: usize,
}

impl<'a> Names<'a> {
    fn note(&mut self, name: &'a str) -> Option<()> {
        let is_plain = !self.seen[..self.count].contains(&name) && !is_lookalike(name);
        *self.seen.get_mut(self.count).filter(|_| is_plain)? = name;
        self.count += 1;
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::Glance;

    fn at(line: &str) -> Option<(&str, &str, Option<&str>)> {
        Glance::at(line.as_bytes()).map(|glance| (glance.id, glance.method, glance.name))
    }

    #[test]
    fn plain_requests_are_seen_at_a_glance() {
        let call = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"get_x","arguments":{"a":[1]},"_meta":{}}}"#;
        assert_eq!(at(call), Some(("1", "tools/call", Some("get_x"))));
        assert_eq!(at(r#" {"params":{},"method":"ping","id":"a"} "#), Some(("\"a\"", "ping", None)));
        assert_eq!(at("{\"id\":1.0,\"method\":\"ping\"}\r\n"), Some(("1.0", "ping", None)));
    }

    #[test]
    fn whatever_could_be_read_in_another_way_needs_a_closer_look() {
        for line in [
            "",
            "[]",
            "7",
            r#"{"method":"ping"}"#,
            r#"{"id":1}"#,
            r#"{"id":null,"method":"ping"}"#,
            r#"{"id":1,"method":"ping"} x"#,
            r#"{"id":1,"method":"ping","method":"tools/call"}"#,
            r#"{"id":1,"method":"ping","Method":"tools/call"}"#,
            r#"{"id":1,"method":"ping","m\u0065thod":"tools/call"}"#,
            r#"{"id":1,"method":"to\u006fls/call","params":{"name":"x"}}"#,
            r#"{"id":1,"method":"tools/call","params":[]}"#,
            r#"{"id":1,"method":"tools/call","params":{"name":"get_x","name":"pay"}}"#,
            r#"{"id":1,"method":"tools/call","params":{"name":"get_x","Name":"pay"}}"#,
            r#"{"id":1,"method":"tools/call","params":{"name":"get_x","n\u0061me":"pay"}}"#,
            r#"{"id":1,"method":"tools/call","params":{"name":"get_x","arguments":[]}}"#,
            r#"{"id":1,"method":"tools/call","params":{"name":"get_x","_meta":3}}"#,
            r#"{"id":1,"method":"x","a":0,"b":0,"c":0,"d":0,"e":0,"f":0,"g":0}"#,
        ] {
            assert_eq!(at(line), None, "{line}");
        }
        assert!(Glance::at(b"{\"id\":\"\xff\",\"method\":\"ping\"}").is_none());
    }
}
