//! Lists a server's tools, and calls those that the user has named twice each.

use std::path::Path;

use serde_json::Value;

use super::client::{Client, Era, Reply};
use super::tool::Tool;
use super::{Call, Plan};
use crate::intent::{Intent, Intents, fill_text};
use crate::probe::{self, State};
use crate::words::clip;
use crate::{Effects, Error};

/// Everything that was seen.
#[derive(Debug)]
pub(super) struct Seen {
    /// How the server began the conversation.
    pub(super) era: Era,
    /// Its tools.
    pub(super) tools: Vec<Tool>,
    /// Tools that were called twice.
    pub(super) called: Vec<Called>,
}

/// A tool that was called twice with the same arguments.
#[derive(Debug, Clone)]
pub(super) struct Called {
    /// Its name.
    pub(super) tool: String,
    /// The state before, between and after the calls.
    pub(super) states: [State; 3],
    /// What was answered: `Ok`, or what went wrong.
    pub(super) answers: [Result<(), String>; 2],
}

/// Starts the server, lists its tools, and calls those that are named.
pub(super) async fn drive(plan: &Plan) -> Result<Seen, Error> {
    let sandbox = plan.sandbox.as_deref().map(absolute).transpose()?;
    let sandbox = sandbox.as_deref().unwrap_or_default();
    let words: Vec<String> = plan.command.iter().map(|word| word.replace("{sandbox}", sandbox)).collect();
    let mut client = Client::start(plan, &words).await?;
    let seen = converse(plan, &mut client, sandbox).await;
    client.close().await;
    seen
}

async fn converse(plan: &Plan, client: &mut Client, sandbox: &str) -> Result<Seen, Error> {
    let listed = client.tools().await?;
    let tools: Vec<Tool> = listed.iter().filter_map(Tool::read).collect();
    if tools.is_empty() {
        return Err(Error::measuring(
            "the server lists no tools that have a name, so there is nothing to measure",
        ));
    }
    let mut called = Vec::new();
    if plan.effects == Effects::Allowed && !plan.calls.is_empty() {
        if let Some(count) = &plan.count {
            count.is_steady().await?;
        }
        let mut intents = Intents::new()?;
        for call in &plan.calls {
            let tool =
                tools.iter().find(|tool| tool.name == call.tool).ok_or_else(|| no_such(call, &tools))?;
            called.push(twice(plan, client, tool, call, sandbox, &intents.next()).await?);
        }
    }
    Ok(Seen { era: client.era(), tools, called })
}

async fn twice(
    plan: &Plan,
    client: &mut Client,
    tool: &Tool,
    call: &Call,
    sandbox: &str,
    intent: &Intent,
) -> Result<Called, Error> {
    let mut arguments = filled(&call.arguments, intent, sandbox);
    if let (Some((name, _)), Some(members)) = (&tool.key, arguments.as_object_mut()) {
        members.entry(name.clone()).or_insert_with(|| intent.key.clone().into());
    }
    let before = state(plan).await?;
    let first = client.call(&tool.name, &arguments).await?;
    let between = state(plan).await?;
    let second = client.call(&tool.name, &arguments).await?;
    let after = state(plan).await?;
    let answers = [outcome(first), outcome(second)];
    Ok(Called { tool: tool.name.clone(), states: [before, between, after], answers })
}

async fn state(plan: &Plan) -> Result<State, Error> {
    match (&plan.count, &plan.sandbox) {
        (Some(count), _) => count.now().await.map(State::Count),
        (None, Some(sandbox)) => probe::folder(sandbox),
        (None, None) => Err(Error::asked("neither a sandbox nor a count is given; nothing ran")),
    }
}

fn outcome(reply: Reply) -> Result<(), String> {
    let result = reply.map_err(|message| clip(&message))?;
    if result["resultType"] == "input_required" {
        return Err("asks for input, and was not run".to_owned());
    }
    if result["isError"] == true {
        return Err(clip(result["content"][0]["text"].as_str().unwrap_or("an error without a text")));
    }
    Ok(())
}

/// The arguments with an intent put into their texts.
fn filled(value: &Value, intent: &Intent, sandbox: &str) -> Value {
    match value {
        Value::String(text) => fill_text(text, intent).replace("{sandbox}", sandbox).into(),
        Value::Array(items) => items.iter().map(|item| filled(item, intent, sandbox)).collect(),
        Value::Object(members) => {
            members.iter().map(|(name, value)| (name.clone(), filled(value, intent, sandbox))).collect()
        }
        other => other.clone(),
    }
}

fn no_such(call: &Call, tools: &[Tool]) -> Error {
    let names: Vec<&str> = tools.iter().map(|tool| tool.name.as_str()).collect();
    Error::asked(format!("the server has no tool `{}`; it has {}", call.tool, clip(&names.join(", "))))
}

fn absolute(path: &Path) -> Result<String, Error> {
    let found = std::fs::canonicalize(path).map_err(|e| {
        Error::asked(format!("the sandbox {} cannot be used: {e}; nothing ran", path.display()))
    })?;
    if !found.is_dir() {
        return Err(Error::asked(format!("the sandbox {} is no folder; nothing ran", path.display())));
    }
    let text = found.into_os_string().into_string();
    text.map_err(|_| Error::asked("the sandbox has a name that is not UTF-8; nothing ran"))
}
