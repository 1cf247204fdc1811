//! What is known of a server's tools, and which of them write.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use oncely::policy_file::{Advertise, DryRun, ToolPolicy};
use oncely_core::Kind;

use super::json::{self, Members};

/// The argument that names the intent.
pub const KEY_ARGUMENT: &str = "idempotency_key";
/// The argument that asks what would happen.
pub const DRY_RUN_ARGUMENT: &str = "dry_run";
/// Most tools that are remembered of one server.
const TOOLS_MAX: usize = 10_000;

/// First words of names by which tools say that they only read.
const READING_WORDS: [&str; 12] = [
    "get", "list", "read", "search", "query", "describe", "find", "fetch", "show", "view", "count", "lookup",
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

/// Whether a tool reads or writes, and why: the policy file first, then the server's own hint, then the name.
pub fn kind_of(name: &str, stated: Option<Kind>, read_only: Option<bool>) -> (Kind, Why) {
    match (stated, read_only) {
        (Some(kind), _) => (kind, Why::Policy),
        (None, Some(true)) => (Kind::Read, Why::Annotation),
        (None, Some(false)) => (Kind::Write, Why::Annotation),
        (None, None) if is_named_like_a_read(name) => (Kind::Read, Why::Name),
        (None, None) => (Kind::Write, Why::Default),
    }
}

/// Whether the first word of a name (`get_user`, `list-files`, `searchIssues`) is one of reading.
fn is_named_like_a_read(name: &str) -> bool {
    let end = name.char_indices().skip(1).find(|(_, c)| !c.is_ascii_lowercase());
    let Some((end, _)) = end else { return READING_WORDS.contains(&name) };
    let does_more = name.to_ascii_lowercase().replace('-', "_").contains("_and_");
    READING_WORDS.contains(&name[..end].to_ascii_lowercase().as_str()) && !does_more
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
    /// What is added to a write tool.
    pub fn to(tool: Option<&Tool>, policy: &ToolPolicy) -> Self {
        Self {
            key: !tool.is_some_and(|tool| tool.has_own_key),
            dry_run: policy.mcp.dry_run == DryRun::Offered && !tool.is_some_and(|tool| tool.has_own_dry_run),
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
    /// Grows whenever the server says that they have changed.
    edition: u64,
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
            }
        }
    }

    /// Notes that all of this edition have been listed.
    pub fn complete(&self, edition: u64) {
        let mut seen = self.seen();
        seen.complete |= seen.edition == edition;
    }

    /// Forgets everything: the server says that its tools have changed.
    pub fn changed(&self) {
        let mut seen = self.seen();
        seen.tools.clear();
        seen.complete = false;
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
    let (kind, _) = kind_of(&tool.name, policy.stated_kind, tool.read_only);
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

    #[test]
    fn the_policy_wins_over_the_hint_and_the_hint_over_the_name() {
        assert_eq!(kind_of("get_x", Some(Kind::Write), Some(true)), (Kind::Write, Why::Policy));
        assert_eq!(kind_of("charge", None, Some(true)), (Kind::Read, Why::Annotation));
        assert_eq!(kind_of("get_x", None, Some(false)), (Kind::Write, Why::Annotation));
        assert_eq!(kind_of("get_x", None, None), (Kind::Read, Why::Name));
        assert_eq!(kind_of("charge", None, None), (Kind::Write, Why::Default));
    }

    #[test]
    fn only_the_first_word_of_a_name_counts() {
        for name in
            ["get_user", "list-files", "searchIssues", "read_query", "list", "query.run", "describe_table"]
        {
            assert_eq!(kind_of(name, None, None).0, Kind::Read, "{name}");
        }
        for name in
            ["getaway", "budget_get", "listen_in", "create_list", "", "é", "read_and_delete", "get-and-set"]
        {
            assert_eq!(kind_of(name, None, None).0, Kind::Write, "{name}");
        }
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
