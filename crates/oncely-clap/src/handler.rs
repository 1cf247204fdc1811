//! Handlers: what a program writes for each command, once.

use std::future::Future;
use std::sync::Arc;

use oncely::{AttemptInfo, IntentId};
use oncely_core::{DownstreamKey, IntentName};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use crate::answer::{Answer, Check, Failure};
use crate::declare::Declaration;
use crate::plan::Planned;

/// A safe command: it changes nothing, opens no ledger, and may be run at any time.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is marked safe and has no handler",
    label = "needs `impl Query<{A}> for {Self}`"
)]
pub trait Query<A: Send + Sync + 'static>: Send + Sync {
    /// What it answers.
    type Data: Serialize + JsonSchema;

    /// Answers.
    fn run(&self, app: &A) -> Result<Self::Data, Failure>;

    /// Says everything that is wrong with the arguments, before anything runs.
    fn validate(&self, _app: &A, _problems: &mut Problems) {}

    /// The answer for people; without one its fields are listed.
    fn show(_data: &Value) -> Option<String> {
        None
    }
}

/// A mutating or destructive command.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is marked mutating or destructive and has no handler",
    label = "needs `impl Handler<{A}> for {Self}`"
)]
pub trait Handler<A: Send + Sync + 'static>: Send + Sync {
    /// What it answers.
    type Data: Serialize + JsonSchema;

    /// What it does, and what makes a retry safe.
    fn declare() -> Declaration;

    /// Acts, and says what changed. Called only after the attempt is durably on record. A panic is an unknown outcome, and
    /// so is a handler that ends the process (`std::process::exit`): return instead.
    fn run(&self, cx: &Cx<A>) -> Answer<Self::Data>;

    /// Says what it would do. Changes nothing.
    fn plan(&self, _app: &A) -> Planned {
        Ok(None)
    }

    /// Tells whether it has happened; asked where the command is declared [`check_first`](Declaration::check_first).
    fn check(&self, _cx: &Cx<A>) -> Check<Self::Data> {
        Check::Unsure("the command is declared check_first but has no check".to_owned())
    }

    /// Says everything that is wrong with the arguments, before anything runs.
    fn validate(&self, _app: &A, _problems: &mut Problems) {}

    /// The answer for people; without one its fields are listed.
    fn show(_data: &Value) -> Option<String> {
        None
    }
}

/// A safe command that is asynchronous: `#[oncely(safe, async)]`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is marked safe, async and has no handler",
    label = "needs `impl AsyncQuery<{A}> for {Self}`"
)]
pub trait AsyncQuery<A: Send + Sync + 'static>: Send + Sync {
    /// What it answers.
    type Data: Serialize + JsonSchema + Send;

    /// Answers.
    fn run(&self, app: &A) -> impl Future<Output = Result<Self::Data, Failure>> + Send;

    /// Says everything that is wrong with the arguments, before anything runs.
    fn validate(&self, _app: &A, _problems: &mut Problems) {}

    /// The answer for people; without one its fields are listed.
    fn show(_data: &Value) -> Option<String> {
        None
    }
}

/// A mutating or destructive command that is asynchronous: `#[oncely(mutating, async)]`. It runs on a tokio runtime.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is marked mutating or destructive, async and has no handler",
    label = "needs `impl AsyncHandler<{A}> for {Self}`"
)]
pub trait AsyncHandler<A: Send + Sync + 'static>: Send + Sync {
    /// What it answers.
    type Data: Serialize + JsonSchema + Send;

    /// What it does, and what makes a retry safe.
    fn declare() -> Declaration;

    /// Acts, and says what changed. Called only after the attempt is durably on record. A panic is an unknown outcome, and
    /// so is a handler that ends the process (`std::process::exit`): return instead.
    fn run(&self, cx: &Cx<A>) -> impl Future<Output = Answer<Self::Data>> + Send;

    /// Says what it would do. Changes nothing.
    fn plan(&self, _app: &A) -> impl Future<Output = Planned> + Send {
        async { Ok(None) }
    }

    /// Tells whether it has happened; asked where the command is declared [`check_first`](Declaration::check_first).
    fn check(&self, _cx: &Cx<A>) -> impl Future<Output = Check<Self::Data>> + Send {
        async { Check::Unsure("the command is declared check_first but has no check".to_owned()) }
    }

    /// Says everything that is wrong with the arguments, before anything runs.
    fn validate(&self, _app: &A, _problems: &mut Problems) {}

    /// The answer for people; without one its fields are listed.
    fn show(_data: &Value) -> Option<String> {
        None
    }
}

/// What a handler may know: the program's own arguments, and the attempt that it is.
#[derive(Debug)]
pub struct Cx<A> {
    app: Arc<A>,
    intent: IntentId,
    key: String,
    attempt: u32,
    downstream_key: DownstreamKey,
}

impl<A> Cx<A> {
    pub(crate) fn of_attempt(app: Arc<A>, info: &AttemptInfo) -> Self {
        Self {
            app,
            intent: info.intent(),
            key: info.name().key.as_str().to_owned(),
            attempt: info.number(),
            downstream_key: info.downstream_key(),
        }
    }

    pub(crate) fn of_check(app: Arc<A>, name: &IntentName, attempt: u32, key: DownstreamKey) -> Self {
        let key_text = name.key.as_str().to_owned();
        Self { app, intent: name.intent_id(), key: key_text, attempt, downstream_key: key }
    }

    /// The program's arguments.
    pub fn app(&self) -> &A {
        &self.app
    }

    /// The number of the attempt, from 1; in a check the one that is asked about.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// The intent's id in the ledger.
    pub fn intent(&self) -> IntentId {
        self.intent
    }

    /// The key as it is on record.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Names this intent to whatever the handler calls or writes to: the same for every attempt after an unknown
    /// outcome. Store it with what you create, or send it to a provider that de-duplicates by it.
    pub fn downstream_key(&self) -> String {
        self.downstream_key.to_string()
    }
}

/// What is wrong with the arguments: all of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Problems {
    pub(crate) all: Vec<Problem>,
}

/// One thing that is wrong with the arguments.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Problem {
    /// The argument as the caller writes it, if it is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) argument: Option<String>,
    pub(crate) message: String,
}

impl Problems {
    /// Adds what is wrong with an argument, named as the caller writes it (`--amount`).
    pub fn add(&mut self, argument: &str, message: impl Into<String>) {
        self.all.push(Problem { argument: Some(argument.to_owned()), message: message.into() });
    }
}
