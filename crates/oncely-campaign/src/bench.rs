//! One ledger, one outside ledger, and runs that report to it.

use std::path::Path;
use std::process::{Command, Output};
use std::thread;
use std::time::{Duration, Instant};

use crate::Checked;
use crate::ledger::Runner;
use crate::outside::Outside;
use crate::programs::Programs;

/// How long an effect is waited for.
const PATIENCE: Duration = Duration::from_secs(180);

/// What a test of single runs needs.
#[derive(Debug)]
pub struct Bench {
    /// The binaries.
    pub programs: Programs,
    /// Counts effects.
    pub outside: Outside,
    /// Runs commands once per key.
    pub runner: Runner,
    /// For whatever else the test keeps.
    pub directory: tempfile::TempDir,
}

impl Bench {
    /// On the ledger of this address, which may lie in the directory.
    pub fn new(ledger: impl FnOnce(&Path) -> String) -> Checked<Self> {
        let (programs, directory) = (Programs::find()?, tempfile::tempdir()?);
        let outside = Outside::start(&programs, directory.path())?;
        let runner = Runner { program: programs.oncely.clone(), store: ledger(directory.path()) };
        Ok(Self { programs, outside, runner, directory })
    }

    /// The command line of a run.
    pub fn line(&self, key: &str) -> Command {
        self.line_with(&[], key)
    }

    /// The same with options of `run`.
    pub fn line_with(&self, options: &[&str], key: &str) -> Command {
        let (effect, socket) =
            (self.programs.effect.to_string_lossy(), self.outside.socket().to_string_lossy());
        self.runner.run_with(options, key, &[&effect, &socket, key, "succeeds"])
    }

    /// The command line of a run that ends only when it is [released](Self::release): its effect has taken place by then.
    pub fn held(&self, key: &str) -> Command {
        let mut line = self.line(key);
        line.env("EFFECT_UNTIL", self.sign_of(key));
        line
    }

    /// Lets a run end.
    pub fn release(&self, key: &str) -> Checked<()> {
        Ok(std::fs::write(self.sign_of(key), "")?)
    }

    fn sign_of(&self, key: &str) -> std::path::PathBuf {
        self.directory.path().join(format!("{key}.released"))
    }

    /// Returns when the effect of a key has been counted.
    pub fn await_effect(&self, key: &str) -> Checked<()> {
        let deadline = Instant::now() + PATIENCE;
        while self.outside.count(key)? == 0 {
            if Instant::now() > deadline {
                return Err(format!("{key}: no effect for {} s", PATIENCE.as_secs()).into());
            }
            thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Runs a key to its end.
    pub fn run(&self, key: &str) -> Checked<Output> {
        Ok(self.line(key).output()?)
    }

    /// The run is refused with exit 12 and these words, and nothing happens.
    pub fn refuses(&self, key: &str, words: &str) -> Checked<()> {
        let output = self.run(key)?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.code() != Some(12) || !said.contains(words) || !said.contains("nothing") {
            return Err(
                format!("{key}: a refusal with {words:?} was expected: {}, {said}", output.status).into()
            );
        }
        if self.outside.count(key)? != 0 {
            return Err(format!("{key}: it was refused and took place").into());
        }
        Ok(())
    }

    /// The run succeeds, or replays a success, and there was one effect; what it printed.
    pub fn succeeds(&self, key: &str) -> Checked<Vec<u8>> {
        let output = self.run(key)?;
        if output.status.code() != Some(0) {
            return Err(format!("{key}: {}", said(&output)).into());
        }
        match self.outside.count(key)? {
            1 => Ok(output.stdout),
            count => Err(format!("{key}: {count} effects").into()),
        }
    }
}

/// How a run ended, in its own words.
pub fn said(output: &Output) -> String {
    format!("{}, {}", output.status, String::from_utf8_lossy(&output.stderr))
}
