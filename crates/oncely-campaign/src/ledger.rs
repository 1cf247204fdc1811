//! What a ledger says through the command line of the program that keeps it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::Checked;
use crate::programs::Programs;

/// Each key's state: `succeeded`, `rejected`, `in_doubt` or `running`.
pub type States = BTreeMap<String, String>;

/// A program that runs commands once per key, and the ledger it keeps: oncely, or one that is wrong on purpose.
#[derive(Debug, Clone)]
pub struct Runner {
    /// The program.
    pub program: PathBuf,
    /// The address of its ledger.
    pub store: String,
}

impl Runner {
    /// Oncely on a ledger file.
    pub fn oncely(programs: &Programs, file: &Path) -> Self {
        Self { program: programs.oncely.clone(), store: format!("sqlite:{}?min_free=0", file.display()) }
    }

    /// The command line that runs a command under a key.
    pub fn run(&self, key: &str, command: &[&str]) -> Command {
        self.run_with(&[], key, command)
    }

    /// The same with options of `run`.
    pub fn run_with(&self, options: &[&str], key: &str, command: &[&str]) -> Command {
        let mut line = self.subcommand("run");
        line.args(options).args(["--key", key, "--"]).args(command);
        line
    }

    /// The state of every key.
    pub fn states(&self) -> Checked<States> {
        let output = self.subcommand("ls").args(["--all", "--json"]).output()?;
        if !output.status.success() {
            return Err(format!("ls: {}", String::from_utf8_lossy(&output.stderr)).into());
        }
        let mut states = States::new();
        for line in output.stdout.split(|b| *b == b'\n').filter(|line| !line.is_empty()) {
            let record: serde_json::Value = serde_json::from_slice(line)?;
            let text = |name: &str| {
                record[name].as_str().map(str::to_owned).ok_or(format!("a record has no {name}"))
            };
            states.insert(text("key")?, text("state")?);
        }
        Ok(states)
    }

    fn subcommand(&self, name: &str) -> Command {
        let mut line = Command::new(&self.program);
        line.arg(name).args(["--store", &self.store]);
        line.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        line.env_remove("ONCELY_SCOPE").env_remove("ONCELY_CONFIG").env_remove("ONCELY_NAMESPACE");
        line
    }
}
