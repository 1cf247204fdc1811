//! A folder for one test, in which tools are measured.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

pub(crate) const ONCELY: &str = env!("CARGO_BIN_EXE_oncely");

/// A folder with an empty file of orders.
pub(crate) struct Place(tempfile::TempDir);

impl Place {
    pub(crate) fn new() -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        place.write("orders", "");
        place
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    /// How many orders there are.
    pub(crate) fn orders(&self) -> usize {
        std::fs::read_to_string(self.path("orders")).unwrap().lines().count()
    }

    /// `oncely …`, in this folder, with a home of its own. Tools are found in these folders before the usual ones.
    pub(crate) fn command(&self, arguments: &[&str], tools: &[PathBuf]) -> Command {
        let mut command = self.program(ONCELY, tools);
        command.args(arguments);
        command
    }

    fn program(&self, program: &str, tools: &[PathBuf]) -> Command {
        let usual = std::env::var_os("PATH").unwrap();
        let path = std::env::join_paths(tools.iter().cloned().chain(std::env::split_paths(&usual))).unwrap();
        let mut command = Command::new(program);
        command
            .current_dir(self.0.path())
            .env_clear()
            .env("HOME", self.0.path())
            .env("PATH", path)
            .env("LC_ALL", "C.UTF-8")
            .stdin(Stdio::null());
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments, &[]).output().unwrap()
    }

    /// A shell script for setting things up; it has to succeed.
    pub(crate) fn sh(&self, script: &str, tools: &[PathBuf]) {
        let output = self.program("sh", tools).args(["-ec", script]).output().unwrap();
        assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// The report of a measurement.
    pub(crate) fn report(&self, arguments: &[&str]) -> Report {
        self.report_with(arguments, &[])
    }

    /// The same with tools on the path.
    pub(crate) fn report_with(&self, arguments: &[&str], tools: &[PathBuf]) -> Report {
        let mut all = vec!["score"];
        all.extend(arguments);
        let output = self.command(&all, tools).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let value = serde_json::from_str(&text)
            .unwrap_or_else(|e| panic!("{e}: {text}{}", String::from_utf8_lossy(&output.stderr)));
        Report(value)
    }

    /// The report on a shop of these tests, with effects allowed.
    pub(crate) fn shop(&self, name: &str, options: &[&str]) -> Report {
        let shop = shop(name);
        let mut arguments = vec!["cli", "--allow-effects", "--count", "wc -l < orders"];
        arguments.extend(options);
        arguments.extend(["--", &shop, "create-order", "--amount", "100"]);
        self.report(&arguments)
    }
}

/// Where a shop of these tests is.
pub(crate) fn shop(name: &str) -> String {
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/score/tools");
    tools.join(name).to_str().unwrap().to_owned()
}

/// A report in JSON.
#[derive(Debug)]
pub(crate) struct Report(pub(crate) Value);

impl Report {
    pub(crate) fn score(&self) -> u64 {
        self.0["score"].as_u64().unwrap_or_else(|| panic!("{self:#?}"))
    }

    pub(crate) fn at_most(&self) -> u64 {
        self.0["at_most"].as_u64().unwrap()
    }

    fn row(&self, id: &str) -> &Value {
        let rows = self.0["rows"].as_array().unwrap();
        rows.iter().find(|row| row["id"] == id).unwrap_or_else(|| panic!("no row {id}: {self:#?}"))
    }

    pub(crate) fn status(&self, id: &str) -> &str {
        self.row(id)["status"].as_str().unwrap()
    }

    pub(crate) fn evidence(&self, id: &str) -> String {
        let lines = self.row(id)["evidence"].as_array().unwrap();
        lines.iter().map(|line| line.as_str().unwrap()).collect::<Vec<_>>().join("\n")
    }

    /// Compares all of these rows at once, so that a failure shows the whole report.
    #[track_caller]
    pub(crate) fn expect(&self, score: u64, rows: &[(&str, &str)]) {
        let wrong: Vec<&(&str, &str)> =
            rows.iter().filter(|(id, status)| self.status(id) != *status).collect();
        assert!(
            self.score() == score && wrong.is_empty(),
            "wanted {score}; not as wanted: {wrong:?}\n{:#}",
            self.0
        );
    }
}
