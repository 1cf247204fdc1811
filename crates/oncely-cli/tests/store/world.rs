//! Two ledgers, a file in which effects are counted, and a program that calls through the binary.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use oncely::{Begun, Oncely, Outcome, outcome};
use oncely_core::machine::Verdict;
use oncely_core::{Effect, Failure, Filter, LogQuery, Store};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Two places for a ledger.
pub(crate) struct World {
    directory: TempDir,
    pub(crate) from: String,
    pub(crate) to: String,
}

impl World {
    /// Both are files.
    pub(crate) fn new() -> Self {
        let directory = TempDir::new().unwrap();
        let url = |name: &str| format!("sqlite:{}", directory.path().join(name).display());
        Self { from: url("old.db"), to: url("new.db"), directory }
    }

    /// From a file to this place.
    pub(crate) fn to(address: &str) -> Self {
        Self { to: address.to_owned(), ..Self::new() }
    }

    /// From this place to a file.
    pub(crate) fn from(address: &str) -> Self {
        Self { from: address.to_owned(), ..Self::new() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_oncely"));
        command
            .args(arguments)
            .current_dir(self.directory.path())
            .env_clear()
            .env("HOME", self.directory.path())
            .env("PATH", std::env::var_os("PATH").unwrap())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Runs what has to end with this code; what it printed, as JSON.
    #[track_caller]
    pub(crate) fn json(&self, arguments: &[&str], code: i32) -> Value {
        let output = self.run(arguments);
        let said = format!("{}{}", text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
        serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{arguments:?}: {e}: {said}"))
    }

    /// The arguments of a copy, with more.
    pub(crate) fn copy_args<'a>(&'a self, more: &[&'a str]) -> Vec<&'a str> {
        let mut arguments = vec!["store", "copy", "--from", &self.from, "--to", &self.to, "--json"];
        arguments.extend(more);
        arguments
    }

    /// Copies, which has to end with this code.
    #[track_caller]
    pub(crate) fn copy(&self, more: &[&str], code: i32) -> Value {
        self.json(&self.copy_args(more), code)
    }

    /// Calls a tool whose effect is one line in a file. How the binary ended.
    pub(crate) fn pay(&self, ledger: &str, key: &str) -> i32 {
        let effect = format!("echo {key} >> effects");
        let arguments = ["run", "--store", ledger, "--tool", "pay", "--key", key, "--", "sh", "-c", &effect];
        self.run(&arguments).status.code().unwrap()
    }

    /// How often the effect of a key has happened.
    pub(crate) fn effects(&self, key: &str) -> usize {
        let all = std::fs::read_to_string(self.path("effects")).unwrap_or_default();
        all.lines().filter(|line| *line == key).count()
    }

    pub(crate) async fn open(&self, ledger: &str) -> Oncely {
        Oncely::new(oncely_store::open(ledger).await.unwrap())
    }
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub(crate) async fn begin(oncely: &Oncely, key: &str) -> oncely::Attempt {
    match oncely.tool("pay").key(key).payload(&json!(1)).begin().await.unwrap() {
        Begun::Run(attempt) => attempt,
        Begun::Answered(answer) => panic!("{answer:?}"),
    }
}

async fn end(oncely: &Oncely, key: &str, outcome: Outcome) -> std::sync::Arc<oncely_core::Record> {
    let attempt = begin(oncely, key).await;
    let intent = attempt.info().intent();
    assert!(attempt.complete(outcome).await.is_none());
    oncely.store().load(intent).await.unwrap().unwrap().record
}

/// Records in every state but running, settled in every way, with everything that an audit log knows.
pub(crate) async fn fill(oncely: &Oncely) {
    end(oncely, "succeeded", outcome::created(&json!({ "charge": "ch_1" }))).await;
    end(oncely, "without-result", Outcome::Succeeded { effect: Effect::Sent, result: None }).await;
    end(oncely, "rejected", Outcome::rejected("BAD_CARD", "no")).await;
    end(oncely, "in-doubt", Outcome::unknown("the line went dead")).await;
    let doubted = end(oncely, "resolved", Outcome::unknown("?")).await;
    let verdict = Verdict::Succeeded { effect: Effect::Created, result: Some(b"{}"[..].into()) };
    oncely.resolve(&doubted, "ann", verdict).await.unwrap();
    let doubted = end(oncely, "refuted", Outcome::unknown("?")).await;
    oncely.resolve(&doubted, "bob", Verdict::Rejected(Failure::new("NOT_THERE", "it is not"))).await.unwrap();
    let forgotten = end(oncely, "forgotten", outcome::created(&1)).await;
    oncely.forget(&forgotten, "ann").await.unwrap();
    // A second attempt after a rejection, and duplicates to count.
    end(oncely, "rejected", outcome::created(&2)).await;
    for _ in 0..3 {
        let call = oncely.tool("pay").key("succeeded").payload(&json!(1));
        assert!(matches!(call.begin().await.unwrap(), Begun::Answered(_)));
    }
    let elsewhere = oncely.tool("mail:send").namespace("other").scope("s").payload(&json!({ "to": "a@b.c" }));
    elsewhere.run(|_| async { outcome::sent(&"msg_1") }).await.unwrap();
    oncely.store().flush().await.unwrap();
}

/// Everything that a ledger remembers, less its versions and places, times less `shift`.
pub(crate) async fn contents(store: &dyn Store, shift_ms: i64) -> (Vec<String>, Vec<String>, Vec<String>) {
    let back = |at: oncely_core::Millis| at.0 as i64 - shift_ms;
    let (mut records, mut place) = (Vec::new(), 0);
    loop {
        let page = store.scan(Filter::default(), place, 1_000).await.unwrap();
        for stored in page.items {
            let r = stored.record;
            records.push(format!("{} {} {} {:?}", r.intent, back(r.created_at), back(r.changed_at), r.body));
        }
        match page.next {
            Some(next) => place = next,
            None => break,
        }
    }
    records.sort();
    let (mut events, mut after) = (Vec::new(), 0);
    loop {
        let page = store.log(LogQuery { after, limit: 1_000, ..LogQuery::default() }).await.unwrap();
        events.extend(page.items.iter().map(|e| format!("{} {:?}", back(e.at), e.event)));
        match page.next {
            Some(next) => after = next,
            None => break,
        }
    }
    let tallies = store.tallies().await.unwrap().iter().map(|t| format!("{t:?}")).collect();
    (records, events, tallies)
}
