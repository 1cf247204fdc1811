//! The arguments of a tool, wherever its schema names them: among its own properties, or in the schemas that it is put
//! together from.

use super::json::{self, Members};

/// Most schemas that are looked at for one argument: some refer to themselves.
const LOOKS_MAX: usize = 64;
/// Schemas in lists.
const LISTS: [&str; 3] = ["allOf", "anyOf", "oneOf"];
/// Schemas by themselves.
const SINGLE: [&str; 3] = ["if", "then", "else"];

/// What a schema says of an argument.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Argument {
    /// Nothing.
    Unnamed,
    /// That it is needed.
    Needed,
    /// What it is.
    Described(String),
}

impl Argument {
    /// Whether there is such an argument.
    pub(super) fn is_named(&self) -> bool {
        *self != Self::Unnamed
    }
}

/// What a schema says of an argument.
pub(super) fn argument(schema: &str, name: &str) -> Argument {
    // Most schemas do not even speak of it; one that writes it with escapes does so on purpose.
    if !schema.contains(name) && !schema.contains('\\') {
        return Argument::Unnamed;
    }
    let mut found = Argument::Unnamed;
    let mut left = vec![schema.to_owned()];
    for _ in 0..LOOKS_MAX {
        let Some(text) = left.pop() else { break };
        let Ok(part) = Members::parse(&text) else { continue };
        if let Some(property) = part.object("properties").as_ref().and_then(|all| all.get(name)) {
            return Argument::Described(property.to_owned());
        }
        let needed = part.get("required").and_then(json::items).unwrap_or_default();
        if needed.iter().any(|item| json::text_of(item.get()).as_deref() == Some(name)) {
            found = Argument::Needed;
        }
        left.extend(parts(schema, &part));
    }
    found
}

/// The schemas that one is put together from.
fn parts(whole: &str, schema: &Members<'_>) -> Vec<String> {
    let lists = LISTS.iter().filter_map(|name| json::items(schema.get(name)?));
    let listed = lists.flatten().map(|item| item.get().to_owned());
    let single = SINGLE.iter().filter_map(|name| schema.get(name)).map(str::to_owned);
    let referred = schema.text("$ref").and_then(|to| referred(whole, &to));
    listed.chain(single).chain(referred).collect()
}

/// The schema that a reference within the same document means.
fn referred(whole: &str, to: &str) -> Option<String> {
    let mut here = whole.to_owned();
    for step in to.strip_prefix("#/")?.split('/') {
        let step = step.replace("~1", "/").replace("~0", "~");
        let next = Members::parse(&here).ok()?.get(&step)?.to_owned();
        here = next;
    }
    Some(here)
}

#[cfg(test)]
mod tests {
    use super::{Argument, argument};

    #[test]
    fn an_argument_is_found_wherever_the_schema_names_it() {
        let own = Argument::Described(r#"{"own":1}"#.into());
        for schema in [
            r#"{"properties":{"a":{},"key":{"own":1}}}"#,
            r#"{"properties":{"a":{},"k\u0065y":{"own":1}}}"#,
            r##"{"$ref":"#/$defs/a~1b","$defs":{"a/b":{"properties":{"key":{"own":1}}}}}"##,
            r#"{"allOf":[{"properties":{"a":{}}},{"oneOf":[{"properties":{"key":{"own":1}}}]}]}"#,
            r#"{"if":{},"else":{"anyOf":[true,{"required":["key"],"properties":{"key":{"own":1}}}]}}"#,
        ] {
            assert_eq!(argument(schema, "key"), own, "{schema}");
        }
        assert_eq!(argument(r#"{"required":["a","key"]}"#, "key"), Argument::Needed);
    }

    #[test]
    fn what_only_looks_like_it_is_no_argument() {
        for schema in [
            r#"{"properties":{"a":{"properties":{"key":{}}}}}"#,
            r#"{"description":"key","required":["keys"]}"#,
            r##"{"$ref":"#/$defs/b","$defs":{"a":{"properties":{"key":{}}}}}"##,
            r##"{"$ref":"https://elsewhere/#/key"}"##,
            r##"{"$ref":"#/allOf/0","allOf":[{"$ref":"#"},"key"]}"##,
            r##"{"$ref":"#/$defs/key","$defs":{"key":{"$ref":"#/$defs/key"}}}"##,
            "true",
            r#""key""#,
            "",
        ] {
            assert_eq!(argument(schema, "key"), Argument::Unnamed, "{schema}");
        }
    }
}
