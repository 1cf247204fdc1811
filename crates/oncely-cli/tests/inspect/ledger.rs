//! A ledger in a directory of its own, filled through the library and looked at through the binary.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use oncely::{Answer, Begun, Oncely, Outcome};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A ledger and the directory that it lies in.
pub(crate) struct Ledger {
    directory: TempDir,
}

/// What the binary answered.
pub(crate) struct Answered {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ledger {
    /// An empty one: not even a file.
    pub(crate) fn new() -> Self {
        Self { directory: TempDir::new().unwrap() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn url(&self) -> String {
        format!("sqlite:{}", self.path("ledger.db").display())
    }

    pub(crate) async fn open(&self) -> Oncely {
        Oncely::new(oncely_store::open(&self.url()).await.unwrap())
    }

    /// The binary on this ledger, away from whatever the environment says.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_oncely"));
        // Before the command's own arguments: what follows `--` belongs to somebody else.
        command.args(["--store", &self.url()]).args(arguments).current_dir(self.directory.path());
        command.env("HOME", self.directory.path()).env_remove("XDG_STATE_HOME");
        for name in ["ONCELY_STORE", "ONCELY_CONFIG", "ONCELY_NAMESPACE", "NO_COLOR"] {
            command.env_remove(name);
        }
        command.stdin(Stdio::null());
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Answered {
        Answered::of(self.command(arguments).output().unwrap())
    }

    /// Runs what has to succeed and to answer with one JSON value.
    #[track_caller]
    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        let answered = self.run(arguments);
        assert_eq!(answered.code, 0, "{arguments:?}: {}{}", answered.stdout, answered.stderr);
        serde_json::from_str(&answered.stdout).unwrap()
    }

    /// Runs what has to succeed and to answer with JSON Lines.
    #[track_caller]
    pub(crate) fn lines(&self, arguments: &[&str]) -> Vec<Value> {
        let answered = self.run(arguments);
        assert_eq!(answered.code, 0, "{arguments:?}: {}{}", answered.stdout, answered.stderr);
        answered.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Runs what has to fail with this exit code; the error that `--json` prints.
    #[track_caller]
    pub(crate) fn error(&self, arguments: &[&str], code: i32) -> Value {
        let mut arguments = arguments.to_vec();
        arguments.push("--json");
        let answered = self.run(&arguments);
        assert_eq!(answered.code, code, "{arguments:?}: {}{}", answered.stdout, answered.stderr);
        let envelope: Value = serde_json::from_str(&answered.stdout).unwrap();
        assert_eq!(envelope["ok"], false);
        envelope
    }
}

impl Answered {
    fn of(output: Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

/// Calls a tool once, with its key as the payload, and lets it end like this; the record's id.
pub(crate) async fn call(oncely: &Oncely, tool: &str, key: &str, outcome: Outcome) -> String {
    let call = oncely.tool(tool).scope("task-7").key(key).payload(&json!({ "key": key }));
    match call.run(|_| async move { outcome }).await.unwrap() {
        Answer::Executed(execution) => execution.intent.to_string(),
        Answer::Replayed(replay) => replay.record.intent.to_string(),
        other => panic!("{other:?}"),
    }
}

/// Begins an attempt that this process keeps running for as long as it holds what is returned.
pub(crate) async fn begin(oncely: &Oncely, tool: &str, key: &str) -> oncely::Attempt {
    match oncely.tool(tool).key(key).payload(&json!(1)).begin().await.unwrap() {
        Begun::Run(attempt) => attempt,
        Begun::Answered(answer) => panic!("{answer:?}"),
    }
}

/// One record in each state but running; their ids.
pub(crate) async fn fill(oncely: &Oncely) -> [String; 3] {
    [
        call(oncely, "pay", "k1", oncely::outcome::created(&json!({ "charge": "ch_1" }))).await,
        call(oncely, "mail:send", "k2", Outcome::rejected("BAD_ADDRESS", "no such mailbox")).await,
        call(oncely, "pay", "k3", Outcome::unknown("the line went dead")).await,
    ]
}
