//! The guard: makes a call of the engine out of a `tools/call` that writes, and a tool result out of its answer.

use std::collections::HashMap;
use std::ffi::OsString;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use oncely::policy_file::{ForwardCancel, PolicyFile, ToolPolicy};
use oncely::{Answer, Attempt, AttemptInfo, Begun, Call, Execution, Oncely};
use oncely_core::{Kind, NameError, Namespace, Policy, Scope, State, ToolName};

use super::alert::Alert;
use super::call::{Asked, ToolCall};
use super::catalog::{Catalog, NotAsked};
use super::flight::Flight;
use super::handle;
use super::link::{Client, Link, OwnIds};
use super::message::{self, Response};
use super::probe;
use super::rehearsal;
use super::reply::{self, Era, Form, RecordName, Schema};
use super::sending::{Judge, Seen, Sending};
use super::tools::{Added, Tool, Why, kind_of};

/// How long a caller waits for another's attempt before it hears of progress, and between two such words.
const PROGRESS_EVERY: Duration = Duration::from_secs(1);
/// Most tools whose rules are kept at hand.
const RULES_MAX: usize = 10_000;
/// Who has a record forgotten whose server asked for more input.
const INPUT_ACTOR: &str = "oncely mcp: the server asked for input";

/// What a guard needs to know.
pub struct Settings {
    /// The engine on the ledger.
    pub engine: Oncely,
    /// The tenant.
    pub namespace: Namespace,
    /// What keys are unique within.
    pub scope: Scope,
    /// What tools declare.
    pub policy: PolicyFile,
    /// The server's name, the same in every process that guards it.
    pub server: String,
    /// What can be seen of a server that may still be at work on a lost call.
    pub place: probe::Place,
    /// A command line that starts servers so that they end with us; what follows it is the server's own.
    pub launcher: Vec<OsString>,
    /// A command line that waits for the end of its standard input and then ends its process group.
    pub watcher: Vec<OsString>,
}

/// Guards the tools of one server.
pub struct Guard {
    settings: Arc<Settings>,
    /// Ids of our own.
    pub ids: OwnIds,
    /// The server's tools.
    pub catalog: Catalog,
    rules: Mutex<HashMap<String, Arc<Rules>>>,
    /// How many answers of clients to requests of servers have passed.
    client_answers: Arc<AtomicU64>,
    alert: Arc<Alert>,
}

/// What is declared for a tool.
pub struct Rules {
    /// As the policy file has it.
    pub declared: ToolPolicy,
    /// For the engine; a write.
    pub(super) policy: Arc<Policy>,
    /// The tool's full name, if the engine takes it.
    name: Result<ToolName, NameError>,
}

impl Guard {
    /// A guard of one server.
    pub fn new(settings: Settings) -> Result<Self, getrandom::Error> {
        Self::sharing(Arc::new(settings), Arc::default())
    }

    /// A guard of the same server for callers to whom it may list other tools. What its clients answer to its requests is
    /// counted together: being too careful is harmless.
    pub(super) fn for_others(&self) -> Result<Self, getrandom::Error> {
        Self::sharing(self.settings.clone(), self.client_answers.clone())
    }

    fn sharing(settings: Arc<Settings>, client_answers: Arc<AtomicU64>) -> Result<Self, getrandom::Error> {
        let (ids, catalog, rules) = (OwnIds::new()?, Catalog::default(), Mutex::default());
        Ok(Self { settings, ids, catalog, rules, client_answers, alert: Arc::default() })
    }

    /// The engine.
    pub fn engine(&self) -> &Oncely {
        &self.settings.engine
    }

    /// The server's name.
    pub fn server(&self) -> &str {
        &self.settings.server
    }

    /// What keeps those awake who read messages, where these come thick and fast.
    pub(super) fn alert(&self) -> &Arc<Alert> {
        &self.alert
    }

    /// What servers are started by.
    pub(super) fn launcher(&self) -> &[OsString] {
        &self.settings.launcher
    }

    /// What ends servers if we are killed.
    pub(super) fn watcher(&self) -> &[OsString] {
        &self.settings.watcher
    }

    /// Notes that a client answers a request of a server.
    pub(super) fn client_answers(&self) {
        self.client_answers.fetch_add(1, Ordering::AcqRel);
    }

    /// The full name of a tool, as the policy file and people know it.
    pub fn full_name(&self, tool: &str) -> String {
        format!("mcp:{}/{tool}", self.settings.server)
    }

    /// What is declared for a tool.
    pub fn rules(&self, tool: &str) -> Arc<Rules> {
        let mut rules = self.rules.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(there) = rules.get(tool) {
            return there.clone();
        }
        let name = self.full_name(tool);
        let declared = self.settings.policy.tool(&name);
        let policy = Arc::new(Policy { kind: Kind::Write, ..declared.policy.clone() });
        let made = Arc::new(Rules { declared, policy, name: ToolName::parse(&name) });
        if rules.len() < RULES_MAX {
            rules.insert(tool.to_owned(), made.clone());
        }
        made
    }

    /// Whether a tool reads or writes; `Err` if the server has to be asked first.
    pub fn kind(&self, tool: &str) -> Result<(Kind, Why), NotAsked> {
        let stated = self.rules(tool).declared.stated_kind;
        if stated == Some(Kind::Read) {
            return Ok((Kind::Read, Why::Policy));
        }
        let seen = self.catalog.find(tool)?;
        Ok(kind_of(stated, seen.as_deref()))
    }

    /// The same with what was last known; for when the server could not be asked. A tool that it never listed writes.
    pub fn kind_as_known(&self, tool: &str) -> (Kind, Why) {
        let stated = self.rules(tool).declared.stated_kind;
        self.kind(tool).unwrap_or_else(|NotAsked| {
            let listed = self.catalog.last_known(tool);
            kind_of(stated, listed.as_deref())
        })
    }

    /// Answers a call that writes: the whole message for the client, under its id.
    pub async fn answer(&self, call: &ToolCall<'_>, caller: &Caller<'_>, flight: &Arc<Flight>) -> Vec<u8> {
        let rules = self.rules(&call.name);
        if rules.declared.mcp.forward_cancel == ForwardCancel::Yes {
            flight.forward_cancel();
        }
        let tool = self.catalog.last_known(&call.name);
        let form = form_of(call, &rules, tool.as_deref());
        let refused = |code: &str, why: &str, retryable: bool| {
            message::result(&call.id, &reply::refused(form, code, why, retryable))
        };
        if self.settings.policy.is_strict() && rules.declared.declared.is_none() {
            return refused("TOOL_UNDECLARED", &undeclared(&self.full_name(&call.name)), false);
        }
        let asked = match call.ask(Added::to(tool.as_deref(), &rules.declared)) {
            Ok(asked) => asked,
            Err(bad) => return refused(bad.code(), &bad.to_string(), bad.is_retryable()),
        };
        if tool.is_some_and(|tool| tool.only_rehearses(call.arguments(), &rules.declared)) {
            return rehearsal::answer(&self.ids, call, &asked, caller, flight).await;
        }
        let engine_call = match self.engine_call(call, &rules, &asked, caller) {
            Ok(engine_call) => engine_call,
            Err(error) => return refused(error.code(), &error.to_string(), false),
        };
        if asked.dry_run {
            return match self.engine().dry_run(&engine_call).await {
                Ok(forecast) => message::result(&call.id, &reply::forecast(form, &call.name, &forecast)),
                Err(error) => refused(error.code(), &error.to_string(), error.is_retryable()),
            };
        }
        let _at_ledger = self.alert().at_ledger();
        match self.begin(&engine_call, call, caller.client).await {
            Ok(Begun::Answered(answer)) => {
                let refused = match &answer {
                    Answer::Replayed(replay) => handle::refusal(call, form, replay),
                    _ => None,
                };
                refused.unwrap_or_else(|| message::result(&call.id, &reply::answered(form, &answer)))
            }
            Ok(Begun::Run(attempt)) => {
                self.execute(attempt, &engine_call, (call, &asked, form), caller.link, flight).await
            }
            Err(error) => refused(error.code(), &error.to_string(), error.is_retryable()),
        }
    }

    fn engine_call(
        &self,
        call: &ToolCall<'_>,
        rules: &Rules,
        asked: &Asked,
        caller: &Caller<'_>,
    ) -> Result<Call, oncely::Error> {
        // Callers that are told apart never see each other's results.
        let tool = match caller.principal {
            Some(principal) => {
                ToolName::parse(&format!("mcp:{}@{principal}/{}", self.settings.server, call.name))
            }
            None => rules.name.clone(),
        }?;
        let mut engine_call = Call {
            namespace: self.settings.namespace.clone(),
            scope: self.settings.scope.clone(),
            tool,
            key: asked.key.clone(),
            payload: asked.payload.clone(),
            policy: rules.policy.clone(),
            wait_for: None,
            checked: None,
            probe: None,
            holds: Some(handle::holds),
        };
        if let Some(check) = &rules.declared.check {
            let name = self.engine().name_of(&engine_call)?;
            let probe = probe::of(self.engine(), name, check, self.settings.place);
            engine_call.probe = Some(probe);
        }
        Ok(engine_call)
    }

    /// Asks the engine, and tells a client that wants to know that it is still waiting.
    async fn begin(
        &self,
        engine_call: &Call,
        call: &ToolCall<'_>,
        client: &Arc<dyn Client>,
    ) -> Result<Begun, oncely::Error> {
        let mut begin = std::pin::pin!(self.engine().begin(engine_call));
        let Some(token) = call.progress_token() else { return begin.await };
        let mut said = 0u32;
        loop {
            tokio::select! {
                biased;
                begun = &mut begin => return begun,
                () = tokio::time::sleep(PROGRESS_EVERY) => {}
            }
            said += 1;
            // Small steps: if the call runs after all, the server's own numbers go on from there.
            let progress = f64::from(said) / 1_000_000.0;
            let notification = format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{token},"progress":{progress},"message":"waiting for another attempt of the same call"}}}}"#
            );
            // A client that does not read, or a server that is in the middle of a line, does not hold up the call itself.
            tokio::select! {
                biased;
                begun = &mut begin => return begun,
                () = client.send(Bytes::from(message::line(notification))) => {}
            }
        }
    }

    async fn execute(
        &self,
        attempt: Attempt,
        engine_call: &Call,
        (call, asked, form): (&ToolCall<'_>, &Asked, Form),
        link: &Arc<dyn Link>,
        flight: &Arc<Flight>,
    ) -> Vec<u8> {
        let info = attempt.info().clone();
        let id = self.ids.next();
        let downstream = engine_call.policy.forwards_key_for_ms.map(|_| info.downstream_key().to_string());
        let line = call.forward(&id, asked, downstream.as_deref());
        let seen: Arc<Mutex<Seen>> = Arc::default();
        let sending = Sending {
            id,
            line,
            link: link.clone(),
            flight: flight.clone(),
            judge: Judge {
                seen: seen.clone(),
                tool: call.name.clone(),
                rules: self.rules(&call.name),
                client_answers: self.client_answers.clone(),
                answers_before: self.client_answers.load(Ordering::Acquire),
                flight: flight.clone(),
            },
            engine: self.engine().clone(),
            alert: self.alert().clone(),
        };
        let effect = move |info| sending.run(info);
        let execution = self.engine().execute(attempt, engine_call.probe.clone(), effect).await;
        self.alert().came();
        let seen = std::mem::take(&mut *seen.lock().unwrap_or_else(PoisonError::into_inner));
        if seen.asks_for_input {
            self.leave_no_claim(&info, &execution, &engine_call.policy).await;
        }
        let name =
            RecordName { tool: info.name().tool.as_str().into(), key: info.name().key.as_str().into() };
        message_of(&call.id, form, &execution, &name, &seen)
    }

    /// A server that asks for input has not acted, and the client's next call carries its answers: another payload, and
    /// under an explicit key that would be a conflict with this one. So the record goes, if it still is what this
    /// attempt left. If we are killed before that, the record is a rejection: a later call is refused or runs, as the
    /// rules for it say, and never twice.
    ///
    /// Not where a downstream de-duplicates by a key of ours that such a record counts on: forgetting would start its
    /// numbers again, and the downstream would replay what it did for an earlier intent.
    async fn leave_no_claim(&self, info: &AttemptInfo, execution: &Execution, policy: &Policy) {
        if execution.unrecorded.is_some() {
            return;
        }
        let Ok(Some(stored)) = self.engine().store().load(info.intent()).await else { return };
        let body = &stored.record.body;
        let is_first = body.generation == 1 && body.rejections == 1;
        let may_go = is_first || policy.forwards_key_for_ms.is_none();
        if may_go && body.token == info.token() && matches!(body.state, State::Rejected { .. }) {
            // Somebody who came in between has the record now; it is theirs.
            let _ = self.engine().forget(&stored.record, INPUT_ACTOR).await;
        }
    }
}

/// Who calls, and how the server is reached.
pub struct Caller<'a> {
    /// The way to the server.
    pub link: &'a Arc<dyn Link>,
    /// The way back.
    pub client: &'a Arc<dyn Client>,
    /// What tells this caller from others that share the guard.
    pub principal: Option<&'a str>,
}

/// The message for the client of a call that ran now, under its id: the server's own, as far as that says it all.
fn message_of(id: &str, form: Form, execution: &Execution, record: &RecordName, seen: &Seen) -> Vec<u8> {
    let answer = seen.answer.as_ref().and_then(|bytes| std::str::from_utf8(bytes).ok());
    let Some(response) = answer.and_then(Response::read) else {
        return message::result(id, &reply::without_answer(form, execution, record));
    };
    // A question goes to the client as it is.
    if seen.asks_for_input {
        return response.under(id);
    }
    if let Some(error) = response.members.object("error") {
        return match reply::executed_with_error(execution, record, &error) {
            Some(ours) => response.with("error", ours).under(id),
            None => response.under(id),
        };
    }
    match reply::executed(form, execution, record, response.result()) {
        Some(ours) => message::result(id, &ours),
        None => response.under(id),
    }
}

fn form_of(call: &ToolCall<'_>, rules: &Rules, tool: Option<&Tool>) -> Form {
    Form {
        annotate: rules.declared.mcp.annotate,
        era: if call.describes_itself() { Era::Modern } else { Era::Legacy },
        schema: if tool.is_some_and(|tool| tool.has_output_schema) { Schema::Bound } else { Schema::Free },
    }
}

fn undeclared(tool: &str) -> String {
    format!(
        "the policy is strict and does not declare the tool {tool:?}; nothing ran. A person declares it in oncely.toml: \
         [tool.{tool:?}] with idempotent, max_retries and when_unknown"
    )
}
