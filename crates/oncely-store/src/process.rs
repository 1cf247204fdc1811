//! Who this process is, and whether another one still lives: exact on one machine, without timers.

use std::hash::{BuildHasher, RandomState};
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

/// Set in a start time that stands for none: the system does not show it. What is below it is random, so that processes
/// on two such machines are not taken for one another.
const START_NOT_SEEN: u64 = 1 << 63;

fn look_at_this_process(pid: u32) -> Owner {
    let started_ticks = platform::look_at_self(pid)
        .map_or_else(|| RandomState::new().hash_one(pid) | START_NOT_SEEN, |seen| seen.started_ticks);
    Owner {
        process: ProcessId { boot: boot_id(), pid_namespace: platform::pid_namespace(), pid, started_ticks },
        host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
    }
}

/// The id of this boot of the machine; all zero where the system has none.
pub(crate) fn boot_id() -> [u8; 16] {
    platform::boot_id().unwrap_or_default()
}

/// What can be seen of an owner from this process, where all owners are on this machine: with its restart all are gone.
pub fn liveness(owner: &Owner) -> Liveness {
    judge(&this_process().process, &owner.process, Elsewhere::Gone, platform::look_at, platform::exists)
}

/// What can be seen of an owner from this process, where owners may be on other machines. Only one of this boot and this
/// process-number namespace can be looked at; of all others the lease decides. It also decides of another process that
/// lives: the end that it wrote may have been lost with a server, and it would be waited for as long as it lives.
pub fn liveness_across_hosts(owner: &Owner) -> Liveness {
    let this = this_process();
    // A machine that was copied while it ran has the boot id of the original.
    if this.host != owner.host {
        return Liveness::ByLease;
    }
    match judge(&this.process, &owner.process, Elsewhere::Unseen, platform::look_at, platform::exists) {
        Liveness::Alive if this.process != owner.process => Liveness::ByLease,
        seen => seen,
    }
}

/// What an owner of another boot is.
#[derive(Debug, Clone, Copy)]
enum Elsewhere {
    /// One of before this machine's restart.
    Gone,
    /// Perhaps one on another machine.
    Unseen,
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
    elsewhere: Elsewhere,
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
    if this.boot != owner.boot {
        return match elsewhere {
            // A ledger file is not shared between machines: network file systems are refused.
            Elsewhere::Gone => Liveness::Lost,
            Elsewhere::Unseen => Liveness::ByLease,
        };
    }
    let start_seen =
        |process: &ProcessId| process.started_ticks != 0 && process.started_ticks < START_NOT_SEEN;
    if this.pid_namespace != owner.pid_namespace || !start_seen(this) || !start_seen(owner) {
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

    /// Nothing, if `/proc` shows the processes of another namespace than the one this process lives in (as after
    /// `unshare --pid --fork` without a `/proc` of its own): the same number is somebody else's there.
    pub(super) fn look_at_self(pid: u32) -> Option<Seen> {
        let shown = std::fs::read_link("/proc/self").ok()?;
        if shown.as_os_str() == pid.to_string().as_str() { look_at(pid) } else { None }
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

    pub(super) fn look_at_self(_pid: u32) -> Option<Seen> {
        None
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
    use super::{
        Elsewhere, START_NOT_SEEN, Seen, judge, liveness, liveness_across_hosts, parse_stat, this_process,
    };
    use oncely_core::{Liveness, Owner, ProcessId};

    const THIS: ProcessId = ProcessId { boot: [1; 16], pid_namespace: 7, pid: 10, started_ticks: 100 };
    const OTHER: ProcessId = ProcessId { pid: 11, started_ticks: 200, ..THIS };

    fn check(owner: ProcessId, seen: Option<Seen>, exists: bool, expected: Liveness) {
        assert_eq!(judge(&THIS, &owner, Elsewhere::Gone, |_| seen, |_| exists), expected);
        // Where machines share a ledger, another boot is another machine, and all else is the same.
        let expected = if owner.boot == THIS.boot { expected } else { Liveness::ByLease };
        assert_eq!(judge(&THIS, &owner, Elsewhere::Unseen, |_| seen, |_| exists), expected);
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
        check(ProcessId { started_ticks: 0, ..OTHER }, None, false, Liveness::ByLease);
        check(ProcessId { started_ticks: START_NOT_SEEN | 200, ..OTHER }, None, false, Liveness::ByLease);
    }

    #[test]
    fn who_cannot_look_at_processes_judges_nobody_by_their_number() {
        let blind = ProcessId { started_ticks: START_NOT_SEEN | 1, ..THIS };
        for seen in [
            None,
            Some(Seen { dead: false, started_ticks: 200 }),
            Some(Seen { dead: true, started_ticks: 7 }),
        ] {
            for elsewhere in [Elsewhere::Gone, Elsewhere::Unseen] {
                assert_eq!(judge(&blind, &OTHER, elsewhere, |_| seen, |_| false), Liveness::ByLease);
            }
        }
    }

    #[test]
    fn an_owner_of_the_same_number_on_another_host_is_judged_by_its_lease() {
        let this = this_process();
        assert_eq!(liveness_across_hosts(&this), Liveness::Alive);
        let mut parent = this.clone();
        parent.process.pid = std::os::unix::process::parent_id();
        parent.process.started_ticks = super::platform::look_at(parent.process.pid).unwrap().started_ticks;
        assert_eq!(liveness(&parent), Liveness::Alive);
        assert_eq!(liveness_across_hosts(&parent), Liveness::ByLease, "its lease tells more than its life");
        let copied = Owner { host: format!("{}-copy", this.host), ..this.clone() };
        assert_eq!(liveness_across_hosts(&copied), Liveness::ByLease);
        let mut gone = this;
        gone.process.pid = u32::MAX - 1;
        assert_eq!(liveness_across_hosts(&gone), Liveness::Lost);
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
