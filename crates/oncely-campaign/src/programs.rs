//! Where the programs under test are: beside the program that asks, built by cargo if they are not there yet.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::Checked;

/// The binaries of one build.
#[derive(Debug, Clone)]
pub struct Programs {
    /// The program under test.
    pub oncely: PathBuf,
    /// The command that it runs: reports one effect to the outside ledger.
    pub effect: PathBuf,
    /// Counts effects.
    pub effect_ledger: PathBuf,
    /// Wrong on purpose: what the harness must catch.
    pub careless: PathBuf,
    /// Writes and acknowledges, for power cuts.
    pub cut_writer: PathBuf,
    /// Makes calls while the server of its ledger is taken away.
    pub store_worker: PathBuf,
    /// An MCP client that makes one call.
    pub mcp_client: PathBuf,
    /// An MCP server whose tool reports one effect to the outside ledger.
    pub mcp_server: PathBuf,
}

impl Programs {
    /// Finds them, and has cargo bring them up to date once per process.
    pub fn find() -> Checked<Self> {
        static FOUND: OnceLock<Result<Programs, String>> = OnceLock::new();
        FOUND.get_or_init(|| build().map_err(|e| e.to_string())).clone().map_err(Into::into)
    }
}

fn build() -> Checked<Programs> {
    let here = std::env::current_exe()?;
    // Tests lie one directory below the binaries.
    let directory =
        here.ancestors().skip(1).find(|d| !d.ends_with("deps")).ok_or("this program lies nowhere")?;
    let release = directory.ends_with("release");
    let target = directory.parent().ok_or("the build has no directory")?;
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| env!("CARGO").into()));
    cargo.current_dir(env!("CARGO_MANIFEST_DIR")).args([
        "build",
        "--quiet",
        "-p",
        "oncely-cli",
        "-p",
        "oncely-campaign",
    ]);
    cargo.arg("--bins").arg("--target-dir").arg(target);
    if release {
        cargo.arg("--release");
    }
    if !cargo.status()?.success() {
        return Err("the programs under test cannot be built".into());
    }
    Ok(Programs {
        oncely: there(directory, "oncely")?,
        effect: there(directory, "effect")?,
        effect_ledger: there(directory, "effect-ledger")?,
        careless: there(directory, "careless")?,
        cut_writer: there(directory, "cut-writer")?,
        store_worker: there(directory, "store-worker")?,
        mcp_client: there(directory, "mcp-client")?,
        mcp_server: there(directory, "mcp-server")?,
    })
}

fn there(directory: &Path, name: &str) -> Checked<PathBuf> {
    let path = directory.join(name);
    if path.is_file() { Ok(path) } else { Err(format!("{} is not there", path.display()).into()) }
}

/// Whether what needs root or Debian packages may run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Privilege {
    /// It may.
    Granted,
    /// Somebody chose to skip it.
    Skipped,
}

/// Checks for these programs. Without them it is an error, unless `ONCELY_SKIP_PRIVILEGED=1` is set.
pub fn installed(what: &str, programs: &[&str]) -> Checked<Privilege> {
    let missing = programs.iter().find(|p| which(p).is_none());
    judge(what, missing.map(|program| format!("the program {program} is not installed")))
}

/// Checks for root and for these programs. Without them it is an error, unless `ONCELY_SKIP_PRIVILEGED=1` is set.
pub fn privileged(what: &str, programs: &[&str]) -> Checked<Privilege> {
    if nix::unistd::geteuid().is_root() {
        return installed(what, programs);
    }
    judge(what, Some("it needs root".to_owned()))
}

fn judge(what: &str, lack: Option<String>) -> Checked<Privilege> {
    let Some(lack) = lack else { return Ok(Privilege::Granted) };
    if std::env::var_os("ONCELY_SKIP_PRIVILEGED").is_some_and(|v| v == "1") {
        say(&format!("skipped: {what}: {lack}, and ONCELY_SKIP_PRIVILEGED=1 is set"));
        return Ok(Privilege::Skipped);
    }
    let packages = "strace, e2fsprogs, mount and python3";
    Err(format!("{what}: {lack}; install Debian's {packages}, run as root, or set ONCELY_SKIP_PRIVILEGED=1")
        .into())
}

/// Finds a program on the path.
pub fn which(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .map(|d| d.join(program))
        .find(|p| p.is_file())
}

#[allow(clippy::print_stderr, reason = "a skipped proof must be seen")]
fn say(line: &str) {
    eprintln!("{line}");
}
