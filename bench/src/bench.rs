//! What all sections share: sizes, rounds, the work directory, and the large ledgers, which are filled once.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use oncely::Policy;
use tokio::runtime::Runtime;

use crate::{Result, ours, progress, textbook};

/// Turns per round: short ones, so that whatever else the machine does falls on both sides.
pub(crate) const TURNS: u32 = 10;

/// How much history the ledgers have.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sizes {
    /// Where growth starts.
    pub(crate) small: u64,
    /// The usual large ledger.
    pub(crate) large: u64,
    /// Where growth ends.
    pub(crate) largest: u64,
    /// Records that a purge drops.
    pub(crate) expired: u64,
    /// Replays per round.
    pub(crate) replays: usize,
    /// Waiting duplicates per round.
    pub(crate) wakes: usize,
    /// Commands started per round.
    pub(crate) starts: usize,
    /// Connections that are open and idle.
    pub(crate) connections: usize,
}

impl Sizes {
    /// What the targets ask for.
    pub(crate) fn full() -> Self {
        Self {
            small: 10_000,
            large: 1_000_000,
            largest: 10_000_000,
            expired: 100_000,
            replays: 100_000,
            wakes: 100,
            starts: 100,
            connections: 10_000,
        }
    }

    /// Enough to see that it works.
    pub(crate) fn quick() -> Self {
        Self {
            small: 1_000,
            large: 20_000,
            largest: 40_000,
            expired: 2_000,
            replays: 5_000,
            wakes: 20,
            starts: 20,
            connections: 500,
        }
    }

    /// With another end of growth; the other sizes never exceed it.
    pub(crate) fn with_largest(self, largest: Option<u64>) -> Self {
        let largest = largest.unwrap_or(self.largest).max(1);
        Self { small: self.small.min(largest), large: self.large.min(largest), largest, ..self }
    }
}

/// The run.
pub(crate) struct Bench {
    pub(crate) runtime: Runtime,
    pub(crate) sizes: Sizes,
    pub(crate) rounds: usize,
    pub(crate) duration: Duration,
    /// The command line tool.
    pub(crate) oncely: PathBuf,
    /// The peer's driver.
    pub(crate) peer: PathBuf,
    /// The repository.
    pub(crate) root: PathBuf,
    /// Where Restate is installed.
    pub(crate) restate: PathBuf,
    dir: PathBuf,
    /// Ledgers with history, by records.
    ledgers: BTreeMap<u64, PathBuf>,
    /// The textbook's table with as much history.
    textbook: Option<PathBuf>,
    /// Keys and file names are handed out in blocks that never meet.
    blocks: u64,
}

impl Bench {
    pub(crate) fn new(parent: PathBuf, sizes: Sizes, rounds: usize, duration: Duration) -> Result<Self> {
        std::fs::create_dir_all(&parent).map_err(|e| format!("cannot create {}: {e}", parent.display()))?;
        if file_system(&parent) == "tmpfs" {
            return Err(format!(
                "{} is in memory, where syncing costs nothing; name a directory on a disk with --dir",
                parent.display()
            )
            .into());
        }
        remove_leftovers(&parent)?;
        let dir = parent.join(format!("run-{}", std::process::id()));
        std::fs::create_dir(&dir)?;
        Ok(Self {
            runtime: crate::runtime()?,
            sizes,
            rounds,
            duration,
            oncely: PathBuf::new(),
            peer: PathBuf::new(),
            root: PathBuf::new(),
            restate: PathBuf::new(),
            dir,
            ledgers: BTreeMap::new(),
            textbook: None,
            blocks: 1,
        })
    }

    /// How long a subject works before it is another's turn.
    pub(crate) fn turn(&self) -> Duration {
        self.duration / TURNS
    }

    /// Numbers of keys that nobody else uses: 2^40 of them, from here on.
    pub(crate) fn keys(&mut self) -> u64 {
        self.blocks += 1;
        self.blocks << 40
    }

    /// A place for a new file.
    pub(crate) fn fresh(&mut self) -> PathBuf {
        self.blocks += 1;
        self.dir.join(format!("{}.db", self.blocks))
    }

    /// Removes a file and what SQLite and the ledger keep beside it.
    pub(crate) fn remove(&self, path: &Path) -> Result<()> {
        for file in beside(path)? {
            std::fs::remove_file(file)?;
        }
        Ok(())
    }

    /// A ledger with so many ended records; keys 0 and up, filled once per run and then only added to.
    pub(crate) fn ledger(&mut self, records: u64) -> Result<PathBuf> {
        if let Some(path) = self.ledgers.get(&records) {
            return Ok(path.clone());
        }
        progress(&format!("filling a ledger with {records} records"));
        let path = self.fresh();
        self.runtime.block_on(ours::fill(&path, Policy::default(), 0, records))?;
        self.ledgers.insert(records, path.clone());
        Ok(path)
    }

    /// Forgets and removes a ledger with history, so that the next one is new.
    pub(crate) fn drop_ledger(&mut self, records: u64) -> Result<()> {
        match self.ledgers.remove(&records) {
            Some(path) => self.remove(&path),
            None => Ok(()),
        }
    }

    /// The textbook's table with as many records as the usual large ledger.
    pub(crate) fn large_textbook(&mut self) -> Result<PathBuf> {
        if let Some(path) = &self.textbook {
            return Ok(path.clone());
        }
        let path = self.fresh();
        textbook::fill(&path, self.sizes.large)?;
        self.textbook = Some(path.clone());
        Ok(path)
    }

    /// One line on what was measured where.
    pub(crate) fn describe(&self, root: &Path) -> String {
        let cores = std::thread::available_parallelism().map_or(0, usize::from);
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        format!(
            "{} rounds, {} s for each subject; {cores} cores, Linux {}, {}, SQLite {}, commit {}.",
            self.rounds,
            self.duration.as_secs_f64(),
            kernel.trim().split('-').next().unwrap_or_default(),
            file_system(&self.dir),
            rusqlite::version(),
            commit(root)
        )
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        // Nothing to be done if it fails: the next run removes it.
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// The file and its companions.
pub(crate) fn beside(path: &Path) -> Result<Vec<PathBuf>> {
    let (Some(dir), Some(name)) = (path.parent(), path.file_name().and_then(|n| n.to_str())) else {
        return Ok(Vec::new());
    };
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_name().to_str().is_some_and(|n| n.starts_with(name)) {
            found.push(entry.path());
        }
    }
    Ok(found)
}

/// Bytes on disk of the file and its companions.
pub(crate) fn bytes(path: &Path) -> Result<u64> {
    let mut sum = 0;
    for file in beside(path)? {
        sum += std::fs::metadata(file)?.len();
    }
    Ok(sum)
}

/// Work directories of runs that were killed.
fn remove_leftovers(parent: &Path) -> Result<()> {
    for entry in std::fs::read_dir(parent)? {
        let entry = entry?;
        let name = entry.file_name();
        let pid = name.to_str().and_then(|n| n.strip_prefix("run-"));
        if pid.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            std::fs::remove_dir_all(entry.path())?;
        }
    }
    Ok(())
}

fn file_system(path: &Path) -> &'static str {
    match rustix::fs::statfs(path).map(|s| s.f_type as u32) {
        Ok(0xef53) => "ext4",
        Ok(0x5846_5342) => "xfs",
        Ok(0x9123_683e) => "btrfs",
        Ok(0x794c_7630) => "overlayfs",
        Ok(0x0102_1994) => "tmpfs",
        _ => "another file system",
    }
}

fn commit(root: &Path) -> String {
    let git = Command::new("git").arg("-C").arg(root).args(["describe", "--always", "--dirty"]).output();
    let text = git
        .ok()
        .filter(|out| out.status.success())
        .map(|out| String::from_utf8_lossy(&out.stdout).trim().to_owned());
    text.unwrap_or_else(|| "unknown".to_owned())
}
