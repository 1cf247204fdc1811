//! A tool as a server lists it.

use serde_json::{Map, Value};

/// Names of properties that mean "the name of the intent", without case, hyphens and underscores.
const KEY_NAMES: [&str; 9] = [
    "idempotencykey",
    "idempotencytoken",
    "idempotentkey",
    "idempotencyid",
    "clienttoken",
    "clientrequesttoken",
    "requesttoken",
    "dedupekey",
    "deduplicationid",
];

/// What a tool says about itself.
#[derive(Debug, Clone)]
pub(super) struct Tool {
    /// Its name.
    pub(super) name: String,
    /// What it says for people and models.
    pub(super) description: String,
    /// `readOnlyHint`
    pub(super) read_only: Option<bool>,
    /// `destructiveHint`
    pub(super) destructive: Option<bool>,
    /// `idempotentHint`
    pub(super) idempotent: Option<bool>,
    /// The property for a key, and what is said about it.
    pub(super) key: Option<(String, String)>,
}

impl Tool {
    /// Reads one entry of a list; `None` if it has no name.
    pub(super) fn read(entry: &Value) -> Option<Self> {
        let hint = |name: &str| entry["annotations"][name].as_bool();
        let properties = entry["inputSchema"]["properties"].as_object();
        Some(Self {
            name: entry["name"].as_str()?.to_owned(),
            description: entry["description"].as_str().unwrap_or_default().to_owned(),
            read_only: hint("readOnlyHint"),
            destructive: hint("destructiveHint"),
            idempotent: hint("idempotentHint"),
            key: properties.and_then(key),
        })
    }

    /// Whether it says what a client has to know before it repeats a call.
    pub(super) fn is_annotated(&self) -> bool {
        self.read_only == Some(true) || self.destructive.is_some() && self.idempotent.is_some()
    }

    /// Whether it says that it changes nothing.
    pub(super) fn says_read_only(&self) -> bool {
        self.read_only == Some(true)
    }

    /// Whether it says that it changes something, and the same call again does not.
    pub(super) fn says_idempotent(&self) -> bool {
        !self.says_read_only() && self.idempotent == Some(true)
    }
}

fn key(properties: &Map<String, Value>) -> Option<(String, String)> {
    let plain = |name: &str| name.replace(['-', '_'], "").to_ascii_lowercase();
    let found = properties.iter().find(|(name, _)| KEY_NAMES.contains(&plain(name).as_str()));
    found.map(|(name, schema)| (name.clone(), schema["description"].as_str().unwrap_or_default().to_owned()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::Tool;

    #[test]
    fn a_tool_is_read_as_it_is_listed() {
        let tool = Tool::read(&json!({
            "name": "pay", "annotations": { "destructiveHint": true, "idempotentHint": false },
            "inputSchema": { "properties": { "Idempotency-Key": { "description": "same for a retry" } } },
        }));
        let tool = tool.unwrap();
        assert!(tool.is_annotated() && !tool.says_idempotent() && !tool.says_read_only());
        assert_eq!(tool.key, Some(("Idempotency-Key".into(), "same for a retry".into())));
        let silent = Tool::read(&json!({ "name": "x", "annotations": { "readOnlyHint": false } })).unwrap();
        assert!(!silent.is_annotated() && silent.key.is_none());
        assert!(Tool::read(&json!({ "annotations": {} })).is_none());
    }
}
