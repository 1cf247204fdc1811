//! What is known of a server's tools, and which of them write.

use oncely::policy_file::{Advertise, DryRun, ToolPolicy};
use oncely_core::Kind;

use super::json::{self, Members};
use super::naming::is_named_like_a_read;
use super::schema::{self, Argument};

/// The argument that names the intent.
pub const KEY_ARGUMENT: &str = "idempotency_key";
/// The argument that asks what would happen.
pub const DRY_RUN_ARGUMENT: &str = "dry_run";

/// What a server says of one of its tools.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tool {
    /// Its name.
    pub name: String,
    /// Its `readOnlyHint`, where it has one.
    pub read_only: Option<bool>,
    /// Whether its name is that of a tool that reads.
    pub is_named_like_a_read: bool,
    /// Whether it has an argument `idempotency_key` of its own.
    pub has_own_key: bool,
    /// Whether it has an argument `dry_run` of its own.
    pub has_own_dry_run: bool,
    /// Whether that argument is a boolean in every call, so that `true` can only mean that nothing is to be done. One that
    /// only a branch of the schema names may be ignored in others: there the call acts.
    pub has_boolean_dry_run: bool,
    /// Whether its results follow a schema.
    pub has_output_schema: bool,
    /// Arguments that are repeated in HTTP headers: the header's name and the argument.
    pub header_arguments: Vec<(String, String)>,
}

impl Tool {
    /// Reads one entry of `tools/list`; `None` if it has no name.
    pub fn read(entry: &str) -> Option<Self> {
        let members = Members::parse(entry).ok()?;
        let name = members.text("name")?.into_owned();
        let annotations = members.object("annotations");
        let read_only = annotations.and_then(|a| serde_json::from_str(a.get("readOnlyHint")?).ok());
        let input = members.object("inputSchema");
        let properties = input.as_ref().and_then(|input| input.object("properties")).unwrap_or_default();
        let in_header = |(argument, property): (&str, &str)| {
            Some((Members::parse(property).ok()?.text("x-mcp-header")?.into_owned(), argument.to_owned()))
        };
        let argument = |name: &str| schema::argument(members.get("inputSchema").unwrap_or_default(), name);
        let dry_run = argument(DRY_RUN_ARGUMENT);
        Some(Self {
            is_named_like_a_read: is_named_like_a_read(&name),
            name,
            read_only,
            has_own_key: argument(KEY_ARGUMENT).is_named(),
            has_own_dry_run: dry_run.is_named(),
            has_boolean_dry_run: is_boolean(&dry_run),
            has_output_schema: members.get("outputSchema").is_some_and(|schema| schema != "null"),
            header_arguments: properties.iter().filter_map(in_header).collect(),
        })
    }
}

/// Whether an argument is a boolean and nothing else.
fn is_boolean(argument: &Argument) -> bool {
    let Argument::Described(property) = argument else { return false };
    Members::parse(property).is_ok_and(|property| property.text("type").as_deref() == Some("boolean"))
}

impl Tool {
    /// Whether these arguments ask for a dry run that the tool itself knows of: nothing is done, so nothing is recorded,
    /// and the key is left for the call that is meant.
    pub fn only_rehearses(&self, arguments: &Members<'_>, policy: &ToolPolicy) -> bool {
        let wants_dry_run = arguments.get(DRY_RUN_ARGUMENT) == Some("true");
        wants_dry_run && self.has_boolean_dry_run && policy.mcp.dry_run == DryRun::Offered
    }
}

/// Why a tool is taken for one that reads or writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// The policy file says so.
    Policy,
    /// The server says so.
    Annotation,
    /// Its name says so.
    Name,
    /// Nobody says otherwise.
    Default,
}

impl Why {
    /// The word used everywhere.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Policy => "policy",
            Self::Annotation => "annotation",
            Self::Name => "name",
            Self::Default => "default",
        }
    }
}

/// Whether a tool reads or writes, and why: the policy file first, then the server's own hint, then the name. A tool that
/// the server has not listed to us writes, whatever its name says.
pub fn kind_of(stated: Option<Kind>, listed: Option<&Tool>) -> (Kind, Why) {
    if let Some(kind) = stated {
        return (kind, Why::Policy);
    }
    let Some(tool) = listed else { return (Kind::Write, Why::Default) };
    match tool.read_only {
        Some(true) => (Kind::Read, Why::Annotation),
        Some(false) => (Kind::Write, Why::Annotation),
        None if tool.is_named_like_a_read => (Kind::Read, Why::Name),
        None => (Kind::Write, Why::Default),
    }
}

/// Whose an argument is that we may have added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whose {
    /// We add it, and take it out before the call is passed on.
    Ours,
    /// The tool's own, which gets it.
    Own,
    /// The server has not listed the tool, so nobody knows. What a call means must not depend on that: a retry after the
    /// server has listed it would be another call.
    Unclear,
}

/// The arguments that we add to a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Added {
    /// `idempotency_key`.
    pub key: Whose,
    /// `dry_run`.
    pub dry_run: Whose,
}

impl Added {
    /// What is added to a write tool.
    pub fn to(tool: Option<&Tool>, policy: &ToolPolicy) -> Self {
        let whose = |has_own: fn(&Tool) -> bool| match tool {
            Some(tool) if has_own(tool) => Whose::Own,
            Some(_) => Whose::Ours,
            None => Whose::Unclear,
        };
        let dry_run = match policy.mcp.dry_run {
            DryRun::Offered => whose(|tool| tool.has_own_dry_run),
            // Listed or not, it is never ours.
            DryRun::Off => Whose::Own,
        };
        Self { key: whose(|tool| tool.has_own_key), dry_run }
    }
}

const KEY_PROPERTY: &str = r#"{"type":"string","description":"Optional. Names the intent of this call: the same value for every retry of one intent, a new one only for a new intent. Without it, an equal call shortly after is taken for a retry and gets the first result."}"#;
const DRY_RUN_PROPERTY: &str = r#"{"type":"boolean","description":"Optional. If true, nothing is done; the answer says what a call would do now."}"#;

/// One entry of `tools/list` as the client should see it; `None` if nothing changes.
pub fn rewrite(entry: &str, policy: impl FnOnce(&str) -> ToolPolicy) -> Option<String> {
    let tool = Tool::read(entry)?;
    let policy = policy(&tool.name);
    let (kind, _) = kind_of(policy.stated_kind, Some(&tool));
    if kind == Kind::Read {
        return None;
    }
    let mut members = Members::parse(entry).ok()?;
    let added = Added::to(Some(&tool), &policy);
    let adds = [added.key, added.dry_run].contains(&Whose::Ours);
    let schema = members.object("inputSchema").filter(|_| adds);
    let schema = schema.map(|schema| with_properties(schema, added));
    let annotations = members.object("annotations").unwrap_or_default();
    let annotations = (policy.mcp.advertise_idempotent == Advertise::Idempotent).then(|| {
        let mut annotations = annotations.clone();
        annotations.set("idempotentHint", json::raw(&true));
        annotations.render()
    });
    if let Some(schema) = schema {
        members.set("inputSchema", schema);
    }
    if let Some(annotations) = annotations {
        members.set("annotations", annotations);
    }
    Some(members.render())
}

fn with_properties(mut schema: Members<'_>, added: Added) -> String {
    let properties = match (schema.has("properties"), schema.object("properties")) {
        // Not an object: nothing that we would know how to add to.
        (true, None) => return schema.render(),
        (_, properties) => properties.unwrap_or_default(),
    };
    let mut properties = properties.clone();
    if added.key == Whose::Ours {
        properties.set(KEY_ARGUMENT, KEY_PROPERTY.to_owned());
    }
    if added.dry_run == Whose::Ours {
        properties.set(DRY_RUN_ARGUMENT, DRY_RUN_PROPERTY.to_owned());
    }
    let properties = properties.render();
    schema.set("properties", properties);
    schema.render()
}

#[cfg(test)]
mod tests {
    use super::{Added, Tool, Whose, Why, kind_of, rewrite};
    use crate::mcp::json::Members;
    use oncely::policy_file::PolicyFile;
    use oncely_core::Kind;

    fn kind(name: &str, stated: Option<Kind>, read_only: Option<bool>) -> (Kind, Why) {
        let hint =
            read_only.map_or(String::new(), |hint| format!(r#","annotations":{{"readOnlyHint":{hint}}}"#));
        let tool = Tool::read(&format!(r#"{{"name":"{name}"{hint}}}"#)).unwrap();
        kind_of(stated, Some(&tool))
    }

    #[test]
    fn the_policy_wins_over_the_hint_and_the_hint_over_the_name() {
        assert_eq!(kind("get_x", Some(Kind::Write), Some(true)), (Kind::Write, Why::Policy));
        assert_eq!(kind("charge", None, Some(true)), (Kind::Read, Why::Annotation));
        assert_eq!(kind("get_x", None, Some(false)), (Kind::Write, Why::Annotation));
        assert_eq!(kind("get_x", None, None), (Kind::Read, Why::Name));
        assert_eq!(kind("charge", None, None), (Kind::Write, Why::Default));
        assert_eq!(kind_of(None, None), (Kind::Write, Why::Default), "never listed");
        assert_eq!(kind_of(Some(Kind::Read), None), (Kind::Read, Why::Policy));
    }

    #[test]
    fn a_write_tool_gets_two_arguments_and_everything_else_stays() {
        let entry = r#"{"name":"pay","x":{"big":12345678901234567890},"inputSchema":{"type":"object","properties":{"a":{"type":"string"}},"additionalProperties":false}}"#;
        let policy = PolicyFile::empty();
        let text = rewrite(entry, |name| policy.tool(name)).unwrap();
        assert!(text.starts_with(r#"{"name":"pay","x":{"big":12345678901234567890},"inputSchema":{"type":"object","properties":{"a":{"type":"string"},"idempotency_key":{"#), "{text}");
        assert!(
            text.contains(r#""dry_run":{"type":"boolean""#)
                && text.ends_with(r#""additionalProperties":false}}"#)
        );
        assert!(rewrite(r#"{"name":"get_x","inputSchema":{}}"#, |name| policy.tool(name)).is_none());
        assert!(rewrite(r#"{"inputSchema":{}}"#, |name| policy.tool(name)).is_none());
        let odd = r#"{"name":"pay","inputSchema":{"properties":7}}"#;
        assert_eq!(rewrite(odd, |name| policy.tool(name)).unwrap(), odd);
    }

    #[test]
    fn a_tool_with_such_arguments_of_its_own_keeps_them() {
        let entry = r#"{"name":"pay","inputSchema":{"properties":{"idempotency_key":{"own":1},"dry_run":{"own":2}}}}"#;
        assert_eq!(rewrite(entry, |name| PolicyFile::empty().tool(name)).unwrap(), entry);
        let composed = r##"{"name":"pay","inputSchema":{"$ref":"#/$defs/a","required":["dry_run"],"$defs":{"a":{"properties":{"idempotency_key":{}}}}}}"##;
        let tool = Tool::read(composed).unwrap();
        assert!(tool.has_own_key && tool.has_own_dry_run && !tool.has_boolean_dry_run);
        assert_eq!(rewrite(composed, |name| PolicyFile::empty().tool(name)).unwrap(), composed);
    }

    #[test]
    fn advertising_is_asked_for() {
        let policy =
            PolicyFile::parse("[tool.pay]\nadvertise_idempotent = true\ndry_run = false\n", "p").unwrap();
        let text =
            rewrite(r#"{"name":"pay","annotations":{"idempotentHint":false,"title":"Pay"}}"#, |name| {
                policy.tool(&format!("mcp:srv/{name}"))
            });
        assert_eq!(text.unwrap(), r#"{"name":"pay","annotations":{"idempotentHint":true,"title":"Pay"}}"#);
    }

    #[test]
    fn whose_the_arguments_of_a_tool_are_that_was_never_listed_is_unclear() {
        let policy = PolicyFile::parse("[tool.off]\ndry_run = false\n", "p").unwrap();
        let added = |tool: Option<&Tool>, name: &str| {
            let added = Added::to(tool, &policy.tool(name));
            (added.key, added.dry_run)
        };
        assert_eq!(added(None, "pay"), (Whose::Unclear, Whose::Unclear));
        assert_eq!(added(None, "off"), (Whose::Unclear, Whose::Own), "the policy says whose it is");
        assert_eq!(added(Some(&Tool::default()), "pay"), (Whose::Ours, Whose::Ours));
        assert_eq!(added(Some(&Tool::default()), "off"), (Whose::Ours, Whose::Own));
    }

    #[test]
    fn only_a_boolean_dry_run_of_the_tools_own_is_a_rehearsal() {
        let policy = PolicyFile::parse("[tool.off]\ndry_run = false\n", "p").unwrap();
        let rehearses = |kind: &str, name: &str, arguments: &str| {
            let entry = format!(
                r#"{{"name":"{name}","inputSchema":{{"properties":{{"dry_run":{{"type":"{kind}"}}}}}}}}"#
            );
            let tool = Tool::read(&entry).unwrap();
            tool.only_rehearses(&Members::parse(arguments).unwrap(), &policy.tool(name))
        };
        assert!(rehearses("boolean", "pay", r#"{"dry_run":true}"#));
        assert!(!rehearses("boolean", "pay", r#"{"dry_run":false}"#));
        assert!(!rehearses("boolean", "pay", "{}"));
        assert!(!rehearses("string", "pay", r#"{"dry_run":true}"#));
        assert!(!rehearses("boolean", "off", r#"{"dry_run":true}"#), "the policy does not want it");
    }

    #[test]
    fn a_dry_run_that_only_a_branch_of_the_schema_names_is_the_tools_own_and_no_rehearsal() {
        let branch = r#"{"properties":{"dry_run":{"type":"boolean"}}}"#;
        let policy = PolicyFile::empty().tool("pay");
        let arguments = Members::parse(r#"{"action":"execute","dry_run":true}"#).unwrap();
        for (schema, rehearses) in [
            (format!(r#"{{"oneOf":[{branch},{{"properties":{{"action":{{}}}}}}]}}"#), false),
            (format!(r#"{{"if":{{}},"then":{branch}}}"#), false),
            (format!(r#"{{"allOf":[{branch}]}}"#), true),
        ] {
            let tool = Tool::read(&format!(r#"{{"name":"pay","inputSchema":{schema}}}"#)).unwrap();
            assert_eq!(Added::to(Some(&tool), &policy).dry_run, Whose::Own, "{schema}");
            assert_eq!(tool.only_rehearses(&arguments, &policy), rehearses, "{schema}");
        }
    }
}
