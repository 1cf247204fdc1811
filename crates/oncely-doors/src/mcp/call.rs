//! A `tools/call`: which tool, which key, which payload, and the message that the server gets.

use oncely_core::{Key, NameError};

use super::json::{self, Members};
use super::message::{self, INVALID_PARAMS, Request, is_lookalike};
use super::tools::{Added, DRY_RUN_ARGUMENT, KEY_ARGUMENT, Whose};

/// Where a client may put a key under `_meta` or beside `arguments`.
const KEY_SPELLINGS: [&str; 4] =
    ["dev.oncely/idempotency-key", "idempotencyKey", "idempotency-key", "idempotency_key"];
/// What a client adds when it repeats a call that asked for input; part of what the call means.
const INPUT: [&str; 2] = ["inputResponses", "requestState"];
/// What requests of the era without `initialize` say about themselves start with.
pub(super) const SELF_DESCRIPTION: &str = "io.modelcontextprotocol/";
/// What they say under it that their client can do.
const CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
/// Stands in the payload for what is not an argument; holds a character that keeps it apart from arguments.
const EXTRA: &str = "dev.oncely/";

/// A call of a tool, read.
#[derive(Debug)]
pub struct ToolCall<'a> {
    /// The client's id, as it was written.
    pub id: String,
    /// The tool.
    pub name: String,
    /// Whether its client said in a handshake that it knows of tasks.
    pub(super) client_knows_tasks: bool,
    message: &'a Members<'a>,
    params: Members<'a>,
    arguments: Members<'a>,
    meta: Members<'a>,
}

/// What a call asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// The caller's key.
    pub key: Option<Key>,
    /// What is fingerprinted.
    pub payload: Vec<u8>,
    /// Whether it only wants to know what would happen.
    pub dry_run: bool,
    /// The arguments to pass on, where they are not those that came.
    arguments: Option<String>,
}

/// Why a call cannot be taken. Nothing ran.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadCall {
    /// The key is not acceptable.
    #[error(
        "{0}; nothing ran. Use 1 to 255 visible ASCII characters, the same for every retry of one intent"
    )]
    Key(#[from] NameError),
    /// The key is not a text.
    #[error("the idempotency key is not a text; nothing ran")]
    KeyIsNoText,
    /// `dry_run` is not a boolean.
    #[error("dry_run is neither true nor false; nothing ran. Pass one of them, or leave it out")]
    DryRunIsNoBoolean,
    /// Whose an argument is, is not known.
    #[error(
        "the server has not listed this tool, so it is not known whether {0} is meant for it; nothing ran. Leave that \
         argument out, or call again in half a minute"
    )]
    NotListed(&'static str),
}

impl BadCall {
    /// The code that callers are told.
    pub fn code(&self) -> &'static str {
        if self.is_retryable() { "TOOL_NOT_LISTED" } else { "BAD_ARGUMENTS" }
    }

    /// Whether the same call may be taken later.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::NotListed(_))
    }
}

fn bad(request: &Request<'_>, why: &str) -> Vec<u8> {
    message::error(&request.id, INVALID_PARAMS, &format!("{why}; nothing ran"))
}

/// The parameters of a `tools/call` and the tool's name, which nobody can read in another way; the error is the JSON-RPC
/// answer.
fn params_of<'a>(request: &'a Request<'_>) -> Result<(Members<'a>, String), Vec<u8>> {
    let bad = |why: &str| bad(request, why);
    let params = request.members.get("params").ok_or_else(|| bad("tools/call has no params"))?;
    let params =
        Members::parse(params).map_err(|e| bad(&format!("the params of tools/call cannot be used: {e}")))?;
    if let Some(name) = params.names().find(|name| is_lookalike(name)) {
        return Err(bad(&format!("the member {name:?} of params is not spelled right")));
    }
    let name = params.text("name").ok_or_else(|| bad("tools/call has no name that is a text"))?;
    let name = name.into_owned();
    Ok((params, name))
}

/// Which tool a `tools/call` calls: as much as has to be known of one that reads. The error is the JSON-RPC answer.
pub fn tool_of(request: &Request<'_>) -> Result<String, Vec<u8>> {
    let (params, name) = params_of(request)?;
    for object in ["arguments", "_meta"] {
        if params.get(object).is_some_and(|raw| !raw.starts_with('{') && raw != "null") {
            return Err(bad(request, &format!("the {object} of tools/call cannot be used: it is no object")));
        }
    }
    Ok(name)
}

impl<'a> ToolCall<'a> {
    /// Reads the parameters of a `tools/call`; the error is the JSON-RPC answer.
    pub fn read(request: &'a Request<'_>) -> Result<Self, Vec<u8>> {
        let bad = |why: &str| bad(request, why);
        let (params, name) = params_of(request)?;
        let object = |name: &str| match params.came(name).filter(|raw| *raw != "null").map(Members::parse) {
            Some(Err(e)) => Err(bad(&format!("the {name} of tools/call cannot be used: {e}"))),
            read => Ok(read.and_then(Result::ok).unwrap_or_default()),
        };
        let (arguments, meta) = (object("arguments")?, object("_meta")?);
        Ok(Self {
            id: request.id.clone(),
            name,
            client_knows_tasks: false,
            message: &request.members,
            params,
            arguments,
            meta,
        })
    }

    /// The arguments.
    pub fn arguments(&self) -> &Members<'a> {
        &self.arguments
    }

    /// The call's `_meta`.
    pub fn meta(&self) -> &Members<'a> {
        &self.meta
    }

    /// The client's progress token, as it was written, if it wants to hear of progress.
    pub fn progress_token(&self) -> Option<String> {
        self.meta().get("progressToken").filter(|token| *token != "null").map(str::to_owned)
    }

    /// What the request says of itself, in the era without `initialize`: as an object to send along with our own.
    pub fn self_description(&self) -> Option<String> {
        self_description(&self.meta)
    }

    /// Whether the request says anything of itself, as those of that era do.
    pub(super) fn describes_itself(&self) -> bool {
        self.meta.names().any(|name| name.starts_with(SELF_DESCRIPTION))
    }

    /// Whether the request says of itself that its client knows an extension of the protocol.
    pub(super) fn declares_extension(&self, extension: &str) -> bool {
        let able = self.meta.object(CLIENT_CAPABILITIES).unwrap_or_default();
        able.object("extensions").is_some_and(|known| known.has(extension))
    }

    /// Whether it asks to become a task, as the era with `initialize` does.
    pub(super) fn asks_for_task(&self) -> bool {
        self.params.has("task")
    }

    /// Works out key, payload and what to pass on.
    pub fn ask(&self, added: Added) -> Result<Asked, BadCall> {
        let named = self.named_key()?;
        if !self.arguments.has(KEY_ARGUMENT) && !self.arguments.has(DRY_RUN_ARGUMENT) {
            let payload = self.counted(named.as_ref(), None);
            return Ok(Asked { key: named, payload, dry_run: false, arguments: None });
        }
        let mut arguments = self.arguments.clone();
        let argument_key = arguments.get(KEY_ARGUMENT).map(str::to_owned);
        let own = match &argument_key {
            Some(raw) if added.key == Whose::Ours => key_of(raw)?,
            // An argument of the tool's own may hold what is no key of ours; then it is just an argument.
            Some(raw) => key_of(raw).ok().flatten(),
            None => None,
        };
        let key_argument_used = named.is_none() && own.is_some();
        // As the key it counts for nothing else, whosever it is.
        if added.key == Whose::Unclear && argument_key.is_some() && !key_argument_used {
            return Err(BadCall::NotListed(KEY_ARGUMENT));
        }
        let key = named.or(own);
        let mut changed = added.key == Whose::Ours && arguments.remove(KEY_ARGUMENT);
        let mut dry_run = false;
        if added.dry_run != Whose::Own
            && let Some(raw) = arguments.get(DRY_RUN_ARGUMENT)
        {
            dry_run = match raw {
                // A forecast does nothing, so it may be given in any case.
                "true" => true,
                _ if added.dry_run == Whose::Unclear => return Err(BadCall::NotListed(DRY_RUN_ARGUMENT)),
                "false" | "null" => false,
                _ => return Err(BadCall::DryRunIsNoBoolean),
            };
            changed |= arguments.remove(DRY_RUN_ARGUMENT);
        }
        let rendered = changed.then(|| arguments.render());
        // What was used as the key is the name of the intent and no part of it, also where the tool gets it, too.
        let counted = (key_argument_used && arguments.remove(KEY_ARGUMENT)).then(|| arguments.render());
        let counted = counted.as_deref().or(rendered.as_deref());
        let payload = self.counted(key.as_ref(), counted);
        Ok(Asked { key, payload, dry_run, arguments: rendered })
    }

    /// What is fingerprinted, with these arguments where they are not those that came.
    fn counted(&self, key: Option<&Key>, arguments: Option<&str>) -> Vec<u8> {
        match key {
            Some(_) => self.payload(arguments),
            None => self.arguments_or(arguments).as_bytes().to_vec(),
        }
    }

    /// A key under `_meta` or beside the arguments.
    fn named_key(&self) -> Result<Option<Key>, BadCall> {
        for members in [&self.meta, &self.params] {
            for spelling in KEY_SPELLINGS {
                if let Some(key) = members.get(spelling).map(key_of).transpose()?.flatten() {
                    return Ok(Some(key));
                }
            }
        }
        Ok(None)
    }

    /// The arguments as text.
    fn arguments_or<'t>(&'t self, changed: Option<&'t str>) -> &'t str {
        changed.or(self.params.get("arguments").filter(|raw| *raw != "null")).unwrap_or("{}")
    }

    /// Under a key that the caller gave: the arguments, and what else makes it another call, which is answers to what the
    /// server asked, and being a task. Without such a key only the arguments count: a caller that starts over after a lost
    /// answer is asked again and answers under a new state, and must still find the call that went through.
    fn payload(&self, arguments: Option<&str>) -> Vec<u8> {
        let arguments = self.arguments_or(arguments);
        let mut extra = Members::default();
        for name in INPUT {
            if let Some(raw) = self.params.get(name) {
                extra.set(name, raw.to_owned());
            }
        }
        if self.asks_for_task() {
            extra.set("task", json::raw(&true));
        }
        if extra.names().next().is_none() {
            return arguments.as_bytes().to_vec();
        }
        let mut payload = Members::parse(arguments).unwrap_or_default();
        payload.set(EXTRA, extra.render());
        payload.render().into_bytes()
    }

    /// The message for the server, under an id of ours.
    pub fn forward(&self, id: &str, asked: &Asked, downstream_key: Option<&str>) -> Vec<u8> {
        let mut params = self.params.clone();
        if let Some(arguments) = &asked.arguments {
            params.set("arguments", arguments.clone());
        }
        if let Some(key) = downstream_key {
            let mut meta = self.meta.clone();
            meta.set("dev.oncely/downstream-key", json::raw(&key));
            let meta = meta.render();
            params.set("_meta", meta);
        }
        let mut message = self.message.clone();
        message.set("id", json::raw(&id));
        message.set("params", params.render());
        message::line(message.render())
    }
}

/// What a request says of itself under `_meta`, in the era without `initialize`.
pub(super) fn self_description(meta: &Members<'_>) -> Option<String> {
    let mut described = Members::default();
    for (name, raw) in meta.iter().filter(|(name, _)| name.starts_with(SELF_DESCRIPTION)) {
        described.set(name, raw.to_owned());
    }
    described.names().next().is_some().then(|| described.render())
}

/// A key as a client wrote it; `null` is none.
fn key_of(raw: &str) -> Result<Option<Key>, BadCall> {
    match json::text_of(raw) {
        Some(text) => Ok(Some(Key::explicit(&text)?)),
        None if raw == "null" => Ok(None),
        None => Err(BadCall::KeyIsNoText),
    }
}

#[cfg(test)]
mod tests;
