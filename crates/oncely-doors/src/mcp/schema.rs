//! The arguments of a tool, wherever its schema names them: among its own properties, or in the schemas that it is put
//! together from.

use std::collections::HashSet;

use super::json::{self, Members};

/// Most schemas that are looked at for one argument.
const LOOKS_MAX: usize = 64;
/// Lists of schemas of which an argument need not follow each.
const BRANCHES: [&str; 2] = ["anyOf", "oneOf"];
/// Schemas that hold for some arguments only.
const CONDITIONS: [&str; 3] = ["if", "then", "else"];

/// What a schema says of an argument.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Argument {
    /// Nothing.
    Unnamed,
    /// It is named, but what it means is not said for every call: it is only needed, or described in a branch that other
    /// calls do not take, or the schema is too large to tell.
    Named,
    /// What it is, in every call.
    Described(String),
}

impl Argument {
    /// Whether there is such an argument.
    pub(super) fn is_named(&self) -> bool {
        *self != Self::Unnamed
    }
}

/// A schema that has to be looked at.
struct Part {
    text: String,
    /// Whether every call follows it.
    always: bool,
}

/// What a schema says of an argument.
pub(super) fn argument(schema: &str, name: &str) -> Argument {
    // Most schemas do not even speak of it; one that writes it with escapes does so on purpose.
    if !schema.contains(name) && !schema.contains('\\') {
        return Argument::Unnamed;
    }
    let mut found = Argument::Unnamed;
    let mut left = vec![Part { text: schema.to_owned(), always: true }];
    // Some refer to themselves.
    let mut followed: HashSet<(String, bool)> = HashSet::new();
    for _ in 0..LOOKS_MAX {
        let Some(part) = left.pop() else { return found };
        let Ok(members) = Members::parse(&part.text) else { continue };
        match members.object("properties").as_ref().and_then(|all| all.get(name)) {
            Some(property) if part.always => return Argument::Described(property.to_owned()),
            Some(_) => found = Argument::Named,
            None => {}
        }
        let needed = members.get("required").and_then(json::items).unwrap_or_default();
        if needed.iter().any(|item| json::text_of(item.get()).as_deref() == Some(name)) {
            found = Argument::Named;
        }
        left.extend(parts(schema, &members, part.always, &mut followed));
    }
    if left.is_empty() { found } else { Argument::Named }
}

/// The schemas that one is put together from.
fn parts(
    whole: &str,
    schema: &Members<'_>,
    always: bool,
    followed: &mut HashSet<(String, bool)>,
) -> Vec<Part> {
    let list = |name: &&str| schema.get(name).and_then(json::items).unwrap_or_default();
    let part = |text: &str, always: bool| Part { text: text.to_owned(), always };
    let branches = BRANCHES.iter().flat_map(list).map(|item| part(item.get(), false));
    let conditions = CONDITIONS.iter().filter_map(|name| schema.get(name)).map(|text| part(text, false));
    let all = list(&"allOf").into_iter().map(|item| part(item.get(), always));
    let referred = schema.text("$ref").filter(|to| followed.insert((to.as_ref().to_owned(), always)));
    let referred = referred.and_then(|to| referred_to(whole, &to)).map(|text| Part { text, always });
    branches.chain(conditions).chain(all).chain(referred).collect()
}

/// The schema that a reference within the same document means.
fn referred_to(whole: &str, to: &str) -> Option<String> {
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
            r#"{"oneOf":[{"properties":{"key":{}}}],"allOf":[{"properties":{"a":{}}},{"properties":{"key":{"own":1}}}]}"#,
        ] {
            assert_eq!(argument(schema, "key"), own, "{schema}");
        }
    }

    #[test]
    fn what_not_every_call_follows_names_an_argument_and_does_not_say_what_it_is() {
        for schema in [
            r#"{"required":["a","key"]}"#,
            r#"{"oneOf":[{"properties":{"key":{"type":"boolean"}}},{"properties":{"a":{}}}]}"#,
            r#"{"allOf":[{"properties":{"a":{}}},{"oneOf":[{"properties":{"key":{"own":1}}}]}]}"#,
            r#"{"if":{},"else":{"anyOf":[true,{"required":["key"],"properties":{"key":{"own":1}}}]}}"#,
            r##"{"anyOf":[{"$ref":"#/$defs/b"}],"$defs":{"b":{"allOf":[{"properties":{"key":{}}}]}}}"##,
        ] {
            assert_eq!(argument(schema, "key"), Argument::Named, "{schema}");
        }
    }

    #[test]
    fn what_is_too_large_to_tell_is_the_tools_own_and_not_believed() {
        let many =
            |last: &str| format!(r#"{{"allOf":[{last}{}{{"description":"key"}}]}}"#, "{},".repeat(100));
        assert_eq!(argument(&many(r#"{"properties":{"key":{}}},"#), "key"), Argument::Named);
        assert_eq!(argument(&many(""), "key"), Argument::Named);
    }

    #[test]
    fn a_reference_counts_for_every_call_also_where_a_branch_makes_it_too() {
        let schema = r##"{"$ref":"#/$defs/a","oneOf":[{"$ref":"#/$defs/a"}],"$defs":{"a":{"properties":{"key":{"own":1}}}}}"##;
        assert_eq!(argument(schema, "key"), Argument::Described(r#"{"own":1}"#.into()));
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
