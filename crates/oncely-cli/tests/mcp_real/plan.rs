//! What a client is told to do, and what it tells of it; the other half is `tests/mcp/clients/plan.py`.

use std::process::{Command, Stdio};

use serde::Deserialize;
use serde_json::{Value, json};

use crate::software::{Software, script};
use crate::world::{Server, World};

/// A client that somebody else wrote.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Client {
    /// `ClientSession` of the Python SDK, first generation.
    PythonV1,
    /// `Client` of the Python SDK, second generation.
    Python,
    /// FastMCP's.
    FastMcp,
    /// openai-agents, which retries by itself.
    OpenAiAgents,
    /// LangChain's adapter, which starts a server for every call.
    LangChain,
    /// `@modelcontextprotocol/client`.
    TypeScript,
}

/// One call of a tool.
#[derive(Debug, Clone)]
pub(crate) struct Call(Value);

impl Call {
    /// Without a limit of time.
    pub(crate) fn new(tool: &str, arguments: Value) -> Self {
        Self(json!({ "tool": tool, "arguments": arguments }))
    }

    /// The client gives up after so long.
    pub(crate) fn giving_up_after(mut self, seconds: f64) -> Self {
        self.0["timeout_s"] = json!(seconds);
        self
    }

    /// With an idempotency key under `_meta`.
    pub(crate) fn key(mut self, key: &str) -> Self {
        self.0["key"] = json!(key);
        self
    }
}

/// What the client's caller got.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(untagged)]
pub(crate) enum Told {
    /// A result.
    Result {
        /// Its texts.
        text: Vec<String>,
        /// Whether it is marked as an error.
        is_error: bool,
    },
    /// The client raised.
    Failed {
        /// With these words.
        failed: String,
    },
}

impl Told {
    /// The first text of a result that is no error.
    pub(crate) fn success(&self) -> &str {
        match self {
            Self::Result { text, is_error: false } => &text[0],
            other => panic!("no success: {other:?}"),
        }
    }

    /// Whether it is a success.
    pub(crate) fn is_success(&self) -> bool {
        matches!(self, Self::Result { is_error: false, .. })
    }
}

/// The calls, one after the other unless it says otherwise.
#[derive(Debug, Clone)]
pub(crate) struct Plan(Value);

impl Plan {
    /// All on one connection.
    pub(crate) fn new(calls: &[Call]) -> Self {
        let calls: Vec<&Value> = calls.iter().map(|call| &call.0).collect();
        Self(json!({ "calls": calls }))
    }

    /// In one protocol era: `legacy` or a version, for clients that let one choose.
    pub(crate) fn era(mut self, era: &str) -> Self {
        self.0["era"] = json!(era);
        self
    }

    /// Each call on a connection of its own.
    pub(crate) fn reconnecting(mut self) -> Self {
        self.0["connections"] = json!("each");
        self
    }

    /// All at once, each on a connection of its own.
    pub(crate) fn together(mut self) -> Self {
        self.0["together"] = json!(true);
        self
    }

    /// Has a client make the calls.
    pub(crate) fn run(&self, client: Client, world: &World, server: &Server) -> Vec<Told> {
        let mut plan = self.0.clone();
        plan["connect"] = match server {
            Server::Command(command) => json!({ "command": command }),
            Server::Url(url) => json!({ "url": url }),
        };
        let (program, file) = client.files(&world.software);
        let output = Command::new(program)
            .arg(file)
            .arg(plan.to_string())
            .current_dir(world.path(""))
            .env_clear()
            .env("HOME", world.path(""))
            .env("PATH", std::env::var_os("PATH").unwrap())
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|e| panic!("{client:?} told nothing: {e}; {}: {said}", output.status))
    }
}

impl Client {
    fn files(self, software: &Software) -> (String, String) {
        let python = |name: &str| script(&format!("clients/{name}.py"));
        match self {
            Self::PythonV1 => (software.legacy("python"), python("mcp_sdk_v1")),
            Self::Python => (software.modern("python"), python("mcp_sdk")),
            Self::FastMcp => (software.modern("python"), python("fastmcp_client")),
            Self::OpenAiAgents => (software.modern("python"), python("openai_agents")),
            Self::LangChain => (software.legacy("python"), python("langchain")),
            Self::TypeScript => (software.node(), software.script_for_node("clients", "typescript.mjs")),
        }
    }
}
