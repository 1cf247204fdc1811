//! What is known of a server's tools, and which of them write.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use oncely::policy_file::{Advertise, DryRun, ToolPolicy};
use oncely_core::Kind;
use tokio::time::Instant;

use super::json::{self, Members};

/// The argument that names the intent.
pub const KEY_ARGUMENT: &str = "idempotency_key";
/// The argument that asks what would happen.
pub const DRY_RUN_ARGUMENT: &str = "dry_run";
/// Most tools that are remembered of one server.
pub const TOOLS_MAX: usize = 10_000;
/// A server that did not list its tools is not asked again for this long: others wait meanwhile.
const ASK_AGAIN: Duration = Duration::from_secs(30);

/// First words of names by which tools say that they only read.
const READING_WORDS: [&str; 12] = [
    "get", "list", "read", "search", "query", "describe", "find", "fetch", "show", "view", "count", "lookup",
];
/// Words that say nothing when they stand alone: `query` may be an INSERT, `fetch` a POST.
const NOT_ALONE: [&str; 2] = ["query", "fetch"];
/// Words of acting: a name that holds one of them is not taken for that of a read, whatever it starts with.
const ACTING_WORDS: [&str; 66] = [
    "ack",
    "acknowledge",
    "add",
    "and",
    "append",
    "apply",
    "approve",
    "archive",
    "buy",
    "call",
    "cancel",
    "charge",
    "claim",
    "clear",
    "close",
    "commit",
    "consume",
    "create",
    "delete",
    "deploy",
    "dequeue",
    "edit",
    "enqueue",
    "exec",
    "execute",
    "increment",
    "insert",
    "invoke",
    "lock",
    "mark",
    "merge",
    "modify",
    "move",
    "mutate",
    "next",
    "or",
    "patch",
    "pay",
    "pop",
    "post",
    "publish",
    "purchase",
    "put",
    "refund",
    "remove",
    "rename",
    "replace",
    "reserve",
    "reset",
    "run",
    "sale",
    "sell",
    "send",
    "set",
    "start",
    "stop",
    "submit",
    "take",
    "transfer",
    "trigger",
    "unlock",
    "update",
    "upload",
    "upsert",
    "withdraw",
    "write",
];

/// What a server says of one of its tools.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tool {
    /// Its name.
    pub name: String,
    /// Its `readOnlyHint`, where it has one.
    pub read_only: Option<bool>,
    /// Whether it has an argument `idempotency_key` of its own.
    pub has_own_key: bool,
    /// Whether it has an argument `dry_run` of its own.
    pub has_own_dry_run: bool,
    /// Whether its results follow a schema.
    pub has_output_schema: bool,
    /// Arguments that are repeated in HTTP headers: the header's name and the argument.
    pub header_arguments: Vec<(String, String)>,
}

impl Tool {
    /// Reads one entry of `tools/list`; `None` if it has no name.
    pub fn read(entry: &str) -> Option<Self> {
        let members = Members::parse(entry).ok()?;
        let name = members.text("name")?;
        let annotations = members.object("annotations");
        let read_only = annotations.and_then(|a| serde_json::from_str(a.get("readOnlyHint")?).ok());
        let schema = members.object("inputSchema");
        let properties = schema.as_ref().and_then(|schema| schema.object("properties")).unwrap_or_default();
        let in_header = |(argument, property): (&str, &str)| {
            Some((Members::parse(property).ok()?.text("x-mcp-header")?, argument.to_owned()))
        };
        Some(Self {
            name,
            read_only,
            has_own_key: properties.has(KEY_ARGUMENT),
            has_own_dry_run: properties.has(DRY_RUN_ARGUMENT),
            has_output_schema: members.get("outputSchema").is_some_and(|schema| schema != "null"),
            header_arguments: properties.iter().filter_map(in_header).collect(),
        })
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
pub fn kind_of(name: &str, stated: Option<Kind>, listed: Option<&Tool>) -> (Kind, Why) {
    match (stated, listed.map(|tool| tool.read_only)) {
        (Some(kind), _) => (kind, Why::Policy),
        (None, Some(Some(true))) => (Kind::Read, Why::Annotation),
        (None, Some(Some(false))) => (Kind::Write, Why::Annotation),
        (None, Some(None)) if is_named_like_a_read(name) => (Kind::Read, Why::Name),
        (None, Some(None) | None) => (Kind::Write, Why::Default),
    }
}

/// Whether a name (`get_user`, `list-files`, `searchIssues`) starts with a word of reading and holds none of acting.
fn is_named_like_a_read(name: &str) -> bool {
    let words = words(name);
    let Some(first) = words.first().map(String::as_str) else { return false };
    let alone = words.len() == 1 && NOT_ALONE.contains(&first);
    READING_WORDS.contains(&first)
        && !alone
        && words.iter().all(|word| !ACTING_WORDS.contains(&word.as_str()))
}

/// The words of a name, lower case: split where it is not a letter or digit, and before capitals.
fn words(name: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut before = ' ';
    for c in name.chars() {
        let begins = !before.is_alphanumeric() || (c.is_uppercase() && !before.is_uppercase());
        if c.is_alphanumeric() {
            match words.last_mut() {
                Some(word) if !begins => word.extend(c.to_lowercase()),
                _ => words.push(c.to_lowercase().collect()),
            }
        }
        before = c;
    }
    words
}

/// The arguments that we add to a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Added {
    /// `idempotency_key` is ours: it is taken out before the call is passed on.
    pub key: bool,
    /// `dry_run` is ours.
    pub dry_run: bool,
}

impl Added {
    /// What is added to a write tool. Of one that was never listed nothing is known: whatever it gets is its own.
    pub fn to(tool: Option<&Tool>, policy: &ToolPolicy) -> Self {
        Self {
            key: tool.is_some_and(|tool| !tool.has_own_key),
            dry_run: policy.mcp.dry_run == DryRun::Offered && tool.is_some_and(|tool| !tool.has_own_dry_run),
        }
    }
}

/// The tools of a server, as far as they have been seen.
#[derive(Default)]
pub struct Catalog {
    seen: Mutex<Seen>,
    /// Held by whoever asks the server.
    pub(super) asking: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Seen {
    tools: HashMap<String, Arc<Tool>>,
    /// Whether these are all.
    complete: bool,
    /// Whether there were more than are remembered.
    dropped: bool,
    /// Grows whenever the server says that they have changed.
    edition: u64,
    /// When the server last did not answer, and for which edition.
    failed: Option<(u64, Instant)>,
}

impl Catalog {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A tool; `Err` if it is not known and the server has not been asked for all of them.
    pub fn find(&self, name: &str) -> Result<Option<Arc<Tool>>, NotAsked> {
        let seen = self.seen();
        match seen.tools.get(name) {
            Some(tool) => Ok(Some(tool.clone())),
            None if seen.complete => Ok(None),
            None => Err(NotAsked),
        }
    }

    /// The edition that is current.
    pub fn edition(&self) -> u64 {
        self.seen().edition
    }

    /// All that are known, by name.
    pub fn all(&self) -> Vec<Arc<Tool>> {
        let mut all: Vec<Arc<Tool>> = self.seen().tools.values().cloned().collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }

    /// Whether all tools are known.
    pub fn is_complete(&self) -> bool {
        self.seen().complete
    }

    /// Takes in what the server listed, unless it has changed since it was asked.
    pub fn learn(&self, tools: impl IntoIterator<Item = Tool>, edition: u64) {
        let mut seen = self.seen();
        if seen.edition != edition {
            return;
        }
        for tool in tools {
            if seen.tools.len() < TOOLS_MAX || seen.tools.contains_key(&tool.name) {
                seen.tools.insert(tool.name.clone(), Arc::new(tool));
            } else {
                seen.dropped = true;
            }
        }
    }

    /// Notes that the server did not list its tools.
    pub fn failed(&self, edition: u64) {
        self.seen().failed = Some((edition, Instant::now()));
    }

    /// Whether it makes sense to ask the server: it has not listed all of them, nor just failed to.
    pub fn is_worth_asking(&self) -> bool {
        let seen = self.seen();
        let just_failed =
            seen.failed.is_some_and(|(edition, at)| edition == seen.edition && at.elapsed() < ASK_AGAIN);
        !seen.complete && !just_failed
    }

    /// Notes that all of this edition have been listed.
    pub fn complete(&self, edition: u64) {
        let mut seen = self.seen();
        // Of one that is not remembered nothing may be concluded from its absence.
        seen.complete |= seen.edition == edition && !seen.dropped;
    }

    /// Forgets everything: the server says that its tools have changed.
    pub fn changed(&self) {
        let mut seen = self.seen();
        seen.tools.clear();
        (seen.complete, seen.dropped) = (false, false);
        seen.edition += 1;
    }
}

/// The server has not been asked for all its tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotAsked;

const KEY_PROPERTY: &str = r#"{"type":"string","description":"Optional. Names the intent of this call: the same value for every retry of one intent, a new one only for a new intent. Without it, an equal call shortly after is taken for a retry and gets the first result."}"#;
const DRY_RUN_PROPERTY: &str = r#"{"type":"boolean","description":"Optional. If true, nothing is done; the answer says what a call would do now."}"#;

/// One entry of `tools/list` as the client should see it; `None` if nothing changes.
pub fn rewrite(entry: &str, policy: impl FnOnce(&str) -> ToolPolicy) -> Option<String> {
    let tool = Tool::read(entry)?;
    let policy = policy(&tool.name);
    let (kind, _) = kind_of(&tool.name, policy.stated_kind, Some(&tool));
    if kind == Kind::Read {
        return None;
    }
    let mut members = Members::parse(entry).ok()?;
    let added = Added::to(Some(&tool), &policy);
    let schema = members.object("inputSchema").map(|schema| with_properties(schema, added));
    let annotations = members.object("annotations").unwrap_or_default();
    let annotations = (policy.mcp.advertise_idempotent == Advertise::Idempotent).then(|| {
        let mut annotations = annotations.clone();
        annotations.set("idempotentHint", json::raw(&true));
        annotations.raw()
    });
    if let Some(schema) = schema {
        members.set("inputSchema", schema);
    }
    if let Some(annotations) = annotations {
        members.set("annotations", annotations);
    }
    Some(members.render())
}

fn with_properties(mut schema: Members<'_>, added: Added) -> Box<serde_json::value::RawValue> {
    let properties = match (schema.has("properties"), schema.object("properties")) {
        // Not an object: nothing that we would know how to add to.
        (true, None) => return schema.raw(),
        (_, properties) => properties.unwrap_or_default(),
    };
    let mut properties = properties.clone();
    if added.key {
        properties.set(KEY_ARGUMENT, json::raw_text(KEY_PROPERTY.to_owned()));
    }
    if added.dry_run {
        properties.set(DRY_RUN_ARGUMENT, json::raw_text(DRY_RUN_PROPERTY.to_owned()));
    }
    let properties = properties.raw();
    schema.set("properties", properties);
    schema.raw()
}

#[cfg(test)]
mod tests {
    use super::{Catalog, Tool, Why, kind_of, rewrite};
    use oncely::policy_file::PolicyFile;
    use oncely_core::Kind;

    fn kind(name: &str, stated: Option<Kind>, read_only: Option<bool>) -> (Kind, Why) {
        let tool = Tool { name: name.into(), read_only, ..Tool::default() };
        kind_of(name, stated, Some(&tool))
    }

    #[test]
    fn the_policy_wins_over_the_hint_and_the_hint_over_the_name() {
        assert_eq!(kind("get_x", Some(Kind::Write), Some(true)), (Kind::Write, Why::Policy));
        assert_eq!(kind("charge", None, Some(true)), (Kind::Read, Why::Annotation));
        assert_eq!(kind("get_x", None, Some(false)), (Kind::Write, Why::Annotation));
        assert_eq!(kind("get_x", None, None), (Kind::Read, Why::Name));
        assert_eq!(kind("charge", None, None), (Kind::Write, Why::Default));
        assert_eq!(kind_of("get_x", None, None), (Kind::Write, Why::Default), "never listed");
        assert_eq!(kind_of("get_x", Some(Kind::Read), None), (Kind::Read, Why::Policy));
    }

    #[test]
    fn a_name_is_that_of_a_read_if_it_starts_so_and_says_nothing_else() {
        for name in [
            "get_user",
            "list-files",
            "searchIssues",
            "read_query",
            "list",
            "query.rows",
            "describe_table",
            "GetURL",
            "lookup/order",
            "count_rows",
            "fetch_page",
            "query_rows",
        ] {
            assert_eq!(kind(name, None, None).0, Kind::Read, "{name}");
        }
        for name in [
            "getaway",
            "budget_get",
            "listen_in",
            "create_list",
            "",
            "é",
            "read_and_delete",
            "get-and-set",
            "query",
            "fetch",
            "findOneAndUpdate",
            "findAndModify",
            "get_or_create_customer",
            "search_replace",
            "read_write_query",
            "list_item_for_sale",
            "fetch_next_job",
            "GetOrCreate",
            "list.delete",
            "_get",
        ] {
            let expected = if name == "_get" { Kind::Read } else { Kind::Write };
            assert_eq!(kind(name, None, None).0, expected, "{name}");
        }
    }

    #[test]
    fn more_tools_than_are_remembered_are_never_all() {
        let catalog = Catalog::default();
        let many = (0..=super::TOOLS_MAX).map(|i| Tool { name: format!("t{i}"), ..Tool::default() });
        catalog.learn(many, 0);
        catalog.complete(0);
        assert!(catalog.find("another").is_err());
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
    fn what_was_listed_before_a_change_is_not_believed_after_it() {
        let catalog = Catalog::default();
        let edition = catalog.edition();
        catalog.changed();
        catalog.learn([Tool { name: "a".into(), ..Tool::default() }], edition);
        catalog.complete(edition);
        assert!(catalog.find("a").is_err());
    }
}
