//! `oncely key`: the identity that a call would have, without a ledger.

use std::io::Read;
use std::process::ExitCode;

use clap::Args;
use oncely_core::fingerprint::identify;
use oncely_core::limits::PAYLOAD_BYTES_MAX;
use oncely_core::{IntentName, Key, Kind, Scope, ToolName};
use serde::Serialize;

use super::view::origin;
use crate::args::Global;
use crate::context::Context;
use crate::exit::Failure;
use crate::output::{self, Tone};

/// Print the key, fingerprint and id that a call would have
#[derive(Debug, Args)]
pub(crate) struct KeyArgs {
    /// What the key is unique within
    #[arg(long)]
    scope: Option<String>,
    /// An explicit key; without one it is derived from the payload, as the tool's policy says
    #[arg(long)]
    key: Option<String>,
    /// The tool; without one there is no id
    #[arg(long, value_name = "NAME")]
    tool: Option<String>,
    /// The payload: JSON, @FILE, or - for standard input
    #[arg(long, value_name = "JSON")]
    payload: String,
}

/// What a call would have.
#[derive(Debug, Serialize)]
struct Identified {
    key: String,
    key_origin: &'static str,
    fingerprint: String,
    scope: Option<String>,
    namespace: String,
    tool: Option<String>,
    id: Option<String>,
    /// Of a first attempt.
    downstream_key: Option<String>,
}

/// Runs the command.
pub(crate) async fn run(global: &Global, args: KeyArgs) -> Result<ExitCode, Failure> {
    let context = Context::load(global)?;
    let identified = identify_call(&context, &args)?;
    if output::wants_json(global.json) {
        output::print_json(&identified);
    } else {
        identified.print();
    }
    Ok(ExitCode::SUCCESS)
}

fn identify_call(context: &Context, args: &KeyArgs) -> Result<Identified, Failure> {
    let tool = args.tool.as_deref().map(ToolName::parse).transpose().map_err(oncely::Error::from)?;
    let scope = args.scope.as_deref().map(Scope::parse).transpose().map_err(oncely::Error::from)?;
    let key = args.key.as_deref().map(Key::explicit).transpose().map_err(oncely::Error::from)?;
    let policy = context.policy.tool(tool.as_ref().map_or("", ToolName::as_str)).policy;
    if let Some(tool) = &tool
        && policy.require_key
        && policy.kind == Kind::Write
        && key.is_none()
    {
        return Err(oncely::Error::KeyRequired { tool: tool.as_str().to_owned() }.into());
    }
    let payload = read_payload(&args.payload)?;
    let identity = identify(key, &payload, &policy).map_err(oncely::Error::from)?;
    let scope = scope.unwrap_or_default();
    let id = tool.clone().map(|tool| {
        let name = IntentName {
            namespace: context.namespace.clone(),
            scope: scope.clone(),
            tool,
            key: identity.key.clone(),
        };
        name.intent_id()
    });
    Ok(Identified {
        key: identity.key.as_str().to_owned(),
        key_origin: origin(identity.key.origin()),
        fingerprint: identity.fingerprint.canonical.to_string(),
        scope: scope.is_named().then(|| scope.as_str().to_owned()),
        namespace: context.namespace.as_str().to_owned(),
        tool: tool.map(|tool| tool.as_str().to_owned()),
        id: id.map(|id| id.to_string()),
        downstream_key: id.map(|id| id.downstream_key(1, 0).to_string()),
    })
}

fn read_payload(said: &str) -> Result<Vec<u8>, Failure> {
    // One byte more than allowed is enough to know that it is too large, whatever its size.
    let limit = PAYLOAD_BYTES_MAX as u64 + 1;
    let mut bytes = Vec::new();
    let read = match said.strip_prefix('@') {
        Some(path) => std::fs::File::open(path).and_then(|file| file.take(limit).read_to_end(&mut bytes)),
        None if said == "-" => std::io::stdin().lock().take(limit).read_to_end(&mut bytes),
        None => return Ok(said.as_bytes().to_vec()),
    };
    match read {
        Ok(_) => Ok(bytes),
        Err(error) => Err(Failure::usage(format!("the payload {said} cannot be read: {error}; nothing ran"))),
    }
}

impl Identified {
    fn print(&self) {
        let none = "(needs --tool)".to_owned();
        for (name, value) in [
            ("key", format!("{} ({})", self.key, self.key_origin)),
            ("fingerprint", self.fingerprint.clone()),
            ("id", self.id.clone().unwrap_or_else(|| none.clone())),
            ("downstream key", self.downstream_key.clone().unwrap_or(none)),
        ] {
            output::print(&format!("{} {value}", output::paint(Tone::Dim, &format!("{name:<15}"))));
        }
    }
}
