//! Surroundings for tests: an environment, streams that are kept, and a file that effects are counted in.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::OsString;
use std::path::PathBuf;

use oncely_clap::{App, Runner, Surroundings};
use serde_json::Value;

/// Where a program of a test runs.
pub struct Room {
    pub directory: tempfile::TempDir,
    pub variables: HashMap<String, String>,
    pub watched: bool,
    /// What a person answers, where there is one.
    pub person: Option<&'static str>,
    pub out: RefCell<String>,
    pub err: RefCell<String>,
}

impl Surroundings for Room {
    fn variable(&self, name: &str) -> Option<OsString> {
        self.variables.get(name).cloned().map(Into::into)
    }

    fn is_watched(&self) -> bool {
        self.watched
    }

    fn can_ask(&self) -> bool {
        self.person.is_some()
    }

    fn ask(&self, question: &str) -> Option<String> {
        self.say(question);
        self.person.map(str::to_owned)
    }

    fn print(&self, text: &str) -> std::io::Result<()> {
        self.out.borrow_mut().push_str(text);
        Ok(())
    }

    fn say(&self, line: &str) {
        *self.err.borrow_mut() += &format!("{line}\n");
    }
}

/// What came of a line.
#[derive(Debug)]
pub struct Told {
    pub exit: u8,
    pub envelope: Value,
}

impl Told {
    pub fn effect(&self) -> &str {
        self.envelope["effect"].as_str().unwrap_or("null")
    }

    pub fn code(&self) -> &str {
        self.envelope["error"]["code"].as_str().unwrap_or("none")
    }
}

impl Room {
    pub fn new() -> Self {
        Self::at(tempfile::tempdir().unwrap())
    }

    fn at(directory: tempfile::TempDir) -> Self {
        let state = directory.path().join("state").display().to_string();
        let variables = HashMap::from([("XDG_STATE_HOME".to_owned(), state)]);
        let (out, err) = (RefCell::default(), RefCell::default());
        Self { directory, variables, watched: false, person: None, out, err }
    }

    /// The file to which effects append a line.
    pub fn book(&self) -> PathBuf {
        self.directory.path().join("book")
    }

    /// How many effects there were.
    pub fn effects(&self) -> usize {
        std::fs::read_to_string(self.book()).map_or(0, |text| text.lines().count())
    }

    /// Runs a line of a program; its answer has to be one line of JSON.
    pub fn run<A: App>(&self, words: &[&str]) -> Told {
        self.run_with(Runner::<A>::new(), words)
    }

    pub fn run_with<A: App>(&self, runner: Runner<A>, words: &[&str]) -> Told {
        let (exit, out, err) = self.raw(runner, words);
        assert_eq!(out.lines().count(), 1, "{words:?}: one line of JSON: {out:?}, {err:?}");
        Told { exit: exit.unwrap(), envelope: serde_json::from_str(&out).unwrap() }
    }

    /// Runs a line of a program; what it printed and said as it was.
    pub fn raw<A: App>(&self, runner: Runner<A>, words: &[&str]) -> (Option<u8>, String, String) {
        let exit = runner.run_in(words, self);
        (exit, self.out.take(), self.err.take())
    }
}
