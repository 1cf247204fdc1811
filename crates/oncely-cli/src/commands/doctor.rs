//! `oncely doctor`: examines the ledger and its surroundings, changing nothing.

mod records;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::ExitCode;

use clap::Args;
use oncely_core::limits::PAGE_MAX;
use oncely_core::{
    Change, Counter, Filter, IntentId, Link, Replaced, StateName, Store, StoreError, StoreHealth, Version,
};
use oncely_store::SqliteOptions;
use serde::Serialize;

use super::serve::settings;
use super::view::state_now;
use crate::args::Global;
use crate::context::Context;
use crate::exit::{Failure, PRECONDITION, STORE_UNAVAILABLE};
use crate::output::{self, Clock, Tone};

/// Below this much free space somebody should look; the ledger itself refuses new attempts at its own, lower floor.
const FREE_BYTES_WARN: u64 = 256 << 20;
/// How far the ledger's clock may differ from the wall clock before somebody should look.
const CLOCK_WARN_MS: u64 = 60_000;

/// File systems that people have, by the number that the kernel gives them.
const FILE_SYSTEMS: [(u32, &str); 8] = [
    (0xef53, "ext4"),
    (0x5846_5342, "XFS"),
    (0x9123_683e, "btrfs"),
    (0x2fc1_2fc1, "ZFS"),
    (0xf2f5_2010, "F2FS"),
    (0x0102_1994, "tmpfs"),
    (0x794c_7630, "overlayfs"),
    (0x6969, "NFS"),
];
/// What is here is gone after a restart of the machine.
const TMPFS: u32 = 0x0102_1994;

/// Check the policy file, the ledger, and the disk or server that it is on
#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {}

/// Runs the command.
pub(crate) async fn run(global: &Global, _args: DoctorArgs) -> Result<ExitCode, Failure> {
    let mut report = Report::default();
    match Context::load(global) {
        Ok(context) => examine(&context, &mut report).await,
        Err(failure) => {
            let message = failure.envelope.error.map(|error| error.message).unwrap_or_default();
            report.add("policy", Health::Fail, message);
        }
    }
    report.ok = report.checks.iter().all(|check| check.health != Health::Fail);
    if output::wants_json(global.json) {
        output::print_json(&report);
    } else {
        report.print();
    }
    let ledger_fails = report.checks.iter().any(|c| c.health == Health::Fail && c.check != "policy");
    Ok(match (report.ok, ledger_fails) {
        (true, _) => ExitCode::SUCCESS,
        (false, true) => ExitCode::from(STORE_UNAVAILABLE),
        (false, false) => ExitCode::from(PRECONDITION),
    })
}

async fn examine(context: &Context, report: &mut Report) {
    match &context.policy_path {
        Some(path) => examine_policy(context, path, report),
        None => {
            report.add("policy", Health::Ok, "no policy file: every tool has the careful defaults".to_owned())
        }
    }
    let from = format!("{} (from {})", oncely_store::without_secrets(&context.store_url), context.store_from);
    report.add("ledger", Health::Ok, from);
    if let Some(file) = file_of(&context.store_url) {
        if !file.path.exists() {
            examine_absent(&file, report);
            return;
        }
        examine_permissions(&file.path, report);
        examine_ground(&file.path, file.min_free_bytes, report);
    }
    match context.open().await {
        Ok(oncely) => examine_store(&**oncely.store(), report).await,
        Err(failure) => {
            let message = failure.envelope.error.map(|error| error.message).unwrap_or_default();
            report.add("open", Health::Fail, message);
        }
    }
}

/// Reads the policy file as a server would, too.
fn examine_policy(context: &Context, path: &Path, report: &mut Report) {
    let findings = match settings::examine(context) {
        Ok(findings) => findings,
        Err(failure) => {
            let message = failure.envelope.error.map(|error| error.message).unwrap_or_default();
            report.add("policy", Health::Fail, message);
            return;
        }
    };
    if findings.problems.is_empty() {
        report.add("policy", Health::Ok, format!("{} is right", path.display()));
    }
    for problem in findings.problems {
        report.add("policy", Health::Fail, problem);
    }
    for warning in findings.warnings {
        report.add("policy", Health::Warn, warning);
    }
}

/// The file of a ledger that is one; what is wrong with any other address, opening it says.
fn file_of(url: &str) -> Option<SqliteOptions> {
    let address = match url.split_once(':') {
        Some(("sqlite", address)) => address,
        Some((scheme, _)) if scheme.bytes().all(|b| b.is_ascii_alphanumeric()) => return None,
        _ => url,
    };
    SqliteOptions::parse(address).ok()
}

/// To open a ledger that is not there would make it, and an examination changes nothing.
fn examine_absent(file: &SqliteOptions, report: &mut Report) {
    let path = std::path::absolute(&file.path).unwrap_or_else(|_| file.path.clone());
    report.add("open", Health::Warn, format!("{} is not there yet; the first call makes it", path.display()));
    let Some(there) = path.ancestors().skip(1).find(|dir| dir.is_dir()) else { return };
    match rustix::fs::access(there, rustix::fs::Access::WRITE_OK) {
        Ok(()) => report.add("directory", Health::Ok, format!("{} can be written to", there.display())),
        Err(error) => {
            let message = format!(
                "{} cannot be written to: {error}; name another ledger with --store",
                there.display()
            );
            report.add("directory", Health::Fail, message);
        }
    }
    examine_ground(there, file.min_free_bytes, report);
}

fn examine_permissions(path: &Path, report: &mut Report) {
    match std::fs::metadata(path) {
        Ok(meta) => {
            let mode = meta.permissions().mode() & 0o777;
            let size = output::size(meta.len());
            if mode & 0o077 == 0 {
                report.add("permissions", Health::Ok, format!("{mode:04o}: only its owner reads it; {size}"));
            } else {
                let fix = format!("others can read or write results: chmod 600 {}", path.display());
                report.add("permissions", Health::Warn, format!("{mode:04o}: {fix}"));
            }
        }
        Err(error) => report.add("permissions", Health::Fail, format!("{}: {error}", path.display())),
    }
}

fn examine_ground(path: &Path, floor_bytes: u64, report: &mut Report) {
    match rustix::fs::statvfs(path) {
        Ok(room) => {
            let free = room.f_bavail.saturating_mul(room.f_frsize);
            let (health, meaning) = match free {
                _ if free < floor_bytes => (Health::Fail, ": new attempts are refused; free some space"),
                _ if free < FREE_BYTES_WARN => {
                    (Health::Warn, ": soon new attempts are refused; free some space")
                }
                _ => (Health::Ok, ""),
            };
            report.add("space", health, format!("{} free{meaning}", output::size(free)));
        }
        Err(error) => report.add("space", Health::Warn, format!("cannot be told: {error}")),
    }
    examine_file_system(path, report);
}

fn examine_file_system(path: &Path, report: &mut Report) {
    match rustix::fs::statfs(path) {
        Ok(stat) => {
            let kind = stat.f_type as u32;
            let known =
                FILE_SYSTEMS.into_iter().find(|(magic, _)| *magic == kind).map(|(_, name)| name.to_owned());
            let name = known.unwrap_or_else(|| format!("file system 0x{kind:x}"));
            match kind {
                TMPFS => {
                    let message =
                        format!("{name}: what is remembered is gone after a restart of the machine");
                    report.add("file_system", Health::Warn, message);
                }
                _ => report.add("file_system", Health::Ok, name),
            }
        }
        Err(error) => report.add("file_system", Health::Warn, format!("cannot be told: {error}")),
    }
}

async fn examine_store(store: &dyn Store, report: &mut Report) {
    report.add("open", Health::Ok, store.describe());
    report.hear("write", try_writing(store).await);
    // After the ledger was asked for something: only then it is known how the way to it is.
    if let Some((health, message)) = tell_link(&store.health()) {
        report.add("connection", health, message);
    }
    report.hear("clock", read_clock(store).await);
    report.hear("records", records::find_unreadable(store).await);
    report.hear("in_doubt", count_in_doubt(store).await);
    report.hear("superseded", count_superseded(store).await);
}

type Finding = Result<(Health, String), StoreError>;

/// Takes the writer's way without leaving anything: removes a record that is not there, and reads it.
async fn try_writing(store: &dyn Store) -> Finding {
    let nobody = IntentId([0; 32]);
    let removed = store.replace(nobody, Version(0), Change::Remove, Vec::new()).await?;
    store.flush().await?;
    let there = store.load(nobody).await?;
    Ok(match (removed, there) {
        (Replaced::Stale(None), None) => (Health::Ok, "the ledger takes writes and answers reads".to_owned()),
        _ => (Health::Fail, "the ledger holds a record that nobody can have written".to_owned()),
    })
}

/// How the way to a ledger is that is elsewhere.
fn tell_link(health: &StoreHealth) -> Option<(Health, String)> {
    let StoreHealth { connected, reconnects, queued, queue_max, .. } = health;
    match &health.link {
        Link::Local => None,
        Link::Connected => Some((
            Health::Ok,
            format!("{connected} open, {reconnects} made again; {queued} of {queue_max} requests wait"),
        )),
        Link::Reconnecting { for_how_long, why } | Link::Refused { for_how_long, why } => {
            let since = output::age(for_how_long.as_millis() as u64);
            Some((Health::Fail, format!("not reached for {since}: {why}")))
        }
    }
}

async fn read_clock(store: &dyn Store) -> Finding {
    let first = store.now().await?;
    let second = store.now().await?;
    if second < first {
        return Ok((Health::Fail, "the ledger's clock runs backwards".to_owned()));
    }
    let ahead_ms = Clock::reading(second).ahead_ms();
    let side = if ahead_ms < 0 { "behind" } else { "ahead of" };
    let apart_ms = ahead_ms.unsigned_abs();
    let health = if apart_ms > CLOCK_WARN_MS { Health::Warn } else { Health::Ok };
    Ok((health, format!("the ledger's clock is {} {side} the wall clock", output::age(apart_ms))))
}

async fn count_in_doubt(store: &dyn Store) -> Finding {
    let mut count: u64 = 0;
    for state in [StateName::InDoubt, StateName::Running] {
        let filter = Filter { state: Some(state), ..Filter::default() };
        let mut from = Some(0);
        while let Some(at) = from {
            let page = store.scan(filter.clone(), at, PAGE_MAX).await?;
            let doubted = page.items.iter().filter(|stored| state_now(store, stored) == StateName::InDoubt);
            count += doubted.count() as u64;
            from = page.next;
        }
    }
    Ok(match count {
        0 => (Health::Ok, "no outcome is unknown".to_owned()),
        n => (Health::Warn, format!("{n} outcomes are unknown: oncely ls --state in_doubt --all-namespaces")),
    })
}

async fn count_superseded(store: &dyn Store) -> Finding {
    let tallies = store.tallies().await?;
    let count: u64 = tallies.iter().filter(|t| t.counter == Counter::Superseded).map(|t| t.count).sum();
    Ok(match count {
        0 => (Health::Ok, "no superseded attempt has ended".to_owned()),
        n => (
            Health::Warn,
            format!("{n} superseded attempts ended: effects may have happened twice; see oncely log"),
        ),
    })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Health {
    Ok,
    Warn,
    Fail,
}

#[derive(Debug, Serialize)]
struct Check {
    check: &'static str,
    health: Health,
    message: String,
}

#[derive(Debug, Default, Serialize)]
struct Report {
    ok: bool,
    checks: Vec<Check>,
}

impl Report {
    fn add(&mut self, check: &'static str, health: Health, message: String) {
        self.checks.push(Check { check, health, message });
    }

    fn hear(&mut self, check: &'static str, finding: Finding) {
        match finding {
            Ok((health, message)) => self.add(check, health, message),
            Err(error) => self.add(check, Health::Fail, error.to_string()),
        }
    }

    fn print(&self) {
        for check in &self.checks {
            let mark = match check.health {
                Health::Ok => output::paint(Tone::Good, "ok  "),
                Health::Warn => output::paint(Tone::Warn, "warn"),
                Health::Fail => output::paint(Tone::Loud, "FAIL"),
            };
            output::print(&format!("{mark}  {:<12}  {}", check.check, output::clean_block(&check.message)));
        }
    }
}
