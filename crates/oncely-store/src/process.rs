//! Who this process is, and whether another one still lives: exact on one machine, without timers.

use std::sync::{Mutex, PoisonError};

use oncely_core::{Liveness, Owner, ProcessId};

/// This process, as an owner of attempts. Looked up anew in a forked child, which must not take itself for its parent.
pub fn this_process() -> Owner {
    static THIS: Mutex<Option<Owner>> = Mutex::new(None);
    let pid = rustix::process::getpid().as_raw_nonzero().get().unsigned_abs();
    let mut this = THIS.lock().unwrap_or_else(PoisonError::into_inner);
    match &*this {
        Some(owner) if owner.process.pid == pid => owner.clone(),
        _ => this.insert(look_at_this_process(pid)).clone(),
    }
}

fn look_at_this_process(pid: u32) -> Owner {
    let started_ticks = platform::look_at(pid).map_or(0, |seen| seen.started_ticks);
    Owner {
        process: ProcessId { boot: boot_id(), pid_namespace: platform::pid_namespace(), pid, started_ticks },
        host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
    }
}

/// The id of this boot of the machine; all zero where the system has none.
pub(crate) fn boot_id() -> [u8; 16] {
    platform::boot_id().unwrap_or_default()
}

/// What can be seen of an owner from this process.
pub fn liveness(owner: &Owner) -> Liveness {
    judge(&this_process().process, &owner.process, platform::look_at, platform::exists)
}

/// What `/proc/<pid>/stat` says of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Seen {
    dead: bool,
    started_ticks: u64,
}

fn judge(
    this: &ProcessId,
    owner: &ProcessId,
    look_at: impl Fn(u32) -> Option<Seen>,
    exists: impl Fn(u32) -> bool,
) -> Liveness {
    if this == owner {
        return Liveness::Alive;
    }
    let comparable = this.boot != [0; 16] && owner.boot != [0; 16];
    if !comparable {
        return Liveness::ByLease;
    }
    // The machine was restarted since: a ledger is not shared between machines, network file systems are refused.
    if this.boot != owner.boot {
        return Liveness::Lost;
    }
    if this.pid_namespace != owner.pid_namespace || owner.started_ticks == 0 {
        return Liveness::ByLease;
    }
    match look_at(owner.pid) {
        Some(seen) if seen.dead || seen.started_ticks != owner.started_ticks => Liveness::Lost,
        Some(_) => Liveness::Alive,
        // Hidden from us (hidepid) is not the same as gone.
        None if exists(owner.pid) => Liveness::ByLease,
        None => Liveness::Lost,
    }
}

/// Reads state, thread count and start time out of a line of `/proc/<pid>/stat`.
#[cfg_attr(not(target_os = "linux"), allow(dead_code))]
fn parse_stat(line: &str) -> Option<Seen> {
    // The command's name stands in brackets and may itself hold brackets and spaces: the last one closes it.
    let rest = &line[line.rfind(')')? + 1..];
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let state = *fields.first()?;
    let threads: u64 = fields.get(17)?.parse().ok()?;
    let started_ticks = fields.get(19)?.parse().ok()?;
    // A first thread that has ended shows as a zombie while other threads live on.
    let dead = matches!(state, "X" | "x") || (state == "Z" && threads <= 1);
    Some(Seen { dead, started_ticks })
}

#[cfg(target_os = "linux")]
mod platform {
    use std::os::unix::fs::MetadataExt;

    use super::{Seen, parse_stat};

    pub(super) fn boot_id() -> Option<[u8; 16]> {
        let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
        u128::from_str_radix(&digits, 16).ok().map(u128::to_be_bytes)
    }

    pub(super) fn pid_namespace() -> u64 {
        std::fs::metadata("/proc/self/ns/pid").map_or(0, |m| m.ino())
    }

    pub(super) fn look_at(pid: u32) -> Option<Seen> {
        let bytes = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
        parse_stat(&String::from_utf8_lossy(&bytes))
    }

    pub(super) fn exists(pid: u32) -> bool {
        let Some(pid) = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw) else {
            return false;
        };
        rustix::process::test_kill_process(pid) != Err(rustix::io::Errno::SRCH)
    }
}

#[cfg(not(target_os = "linux"))]
mod platform {
    use super::Seen;

    pub(super) fn boot_id() -> Option<[u8; 16]> {
        None
    }

    pub(super) fn pid_namespace() -> u64 {
        0
    }

    pub(super) fn look_at(_pid: u32) -> Option<Seen> {
        None
    }

    pub(super) fn exists(_pid: u32) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::{Seen, judge, liveness, parse_stat, this_process};
    use oncely_core::{Liveness, Owner, ProcessId};

    const THIS: ProcessId = ProcessId { boot: [1; 16], pid_namespace: 7, pid: 10, started_ticks: 100 };
    const OTHER: ProcessId = ProcessId { pid: 11, started_ticks: 200, ..THIS };

    fn check(owner: ProcessId, seen: Option<Seen>, exists: bool, expected: Liveness) {
        assert_eq!(judge(&THIS, &owner, |_| seen, |_| exists), expected);
    }

    #[test]
    fn life_is_judged_by_boot_namespace_number_and_start() {
        let living = Some(Seen { dead: false, started_ticks: 200 });
        check(THIS, None, false, Liveness::Alive);
        check(OTHER, living, true, Liveness::Alive);
        check(OTHER, None, false, Liveness::Lost);
        check(OTHER, None, true, Liveness::ByLease);
        check(OTHER, Some(Seen { dead: true, started_ticks: 200 }), true, Liveness::Lost);
        check(OTHER, Some(Seen { dead: false, started_ticks: 201 }), true, Liveness::Lost);
        check(ProcessId { boot: [2; 16], ..OTHER }, living, true, Liveness::Lost);
        check(ProcessId { boot: [0; 16], ..OTHER }, living, true, Liveness::ByLease);
        check(ProcessId { pid_namespace: 8, ..OTHER }, None, false, Liveness::ByLease);
    }

    #[test]
    fn a_command_name_with_brackets_and_spaces_does_not_confuse_the_reader() {
        let tail = "1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 3 0 4242 0";
        assert_eq!(
            parse_stat(&format!("7 (a) b (c)) S {tail}")),
            Some(Seen { dead: false, started_ticks: 4242 })
        );
        // The first thread has ended, two others live.
        assert_eq!(parse_stat(&format!("7 (x) Z {tail}")).map(|s| s.dead), Some(false));
        let tail = tail.replacen("20 0 3", "20 0 1", 1);
        assert_eq!(parse_stat(&format!("7 (x) Z {tail}")).map(|s| s.dead), Some(true));
        assert_eq!(parse_stat("nonsense"), None);
    }

    #[test]
    fn a_child_is_alive_until_it_is_killed() {
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let pid = child.id();
        let seen = super::platform::look_at(pid).unwrap();
        let process = ProcessId { pid, started_ticks: seen.started_ticks, ..this_process().process };
        let owner = Owner { process, host: String::new() };
        assert_eq!(liveness(&owner), Liveness::Alive);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(liveness(&owner), Liveness::Lost);
        assert_eq!(liveness(&this_process()), Liveness::Alive);
    }
}
