//! Other machines, as far as a program can tell: a network of its own, a host name of its own, process numbers of its own.
//! The way between them can be parted. They share this machine's boot id, which makes it harder: a process number seen
//! there must not be looked up here.

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::Checked;

/// Where the networks between this machine and the others are: four addresses each.
const NETWORK: [u8; 2] = [10, 213];

/// Another machine; gone when dropped.
#[derive(Debug)]
pub struct Host {
    name: String,
    gateway: String,
}

impl Host {
    /// Makes one. It needs root.
    pub fn new() -> Checked<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        for _ in 0..200 {
            let number = COUNT.fetch_add(1, Ordering::Relaxed);
            // Numbers that another test is using are taken there; then the next are tried.
            let place = std::process::id().wrapping_mul(31).wrapping_add(number) % (1 << 14);
            let (third, fourth) = (place >> 6, (place & 63) << 2);
            let address = |last| format!("{}.{}.{third}.{}", NETWORK[0], NETWORK[1], fourth + last);
            let host = Self { name: format!("oncely-{place}"), gateway: address(1) };
            if run(&["ip", "netns", "add", &host.name]).is_err() {
                std::mem::forget(host);
                continue;
            }
            host.connect(&format!("on{place}"), &address(2))?;
            return Ok(host);
        }
        Err("no free name for a host".into())
    }

    fn connect(&self, link: &str, own: &str) -> Checked<()> {
        let (near, far) = (format!("{link}a"), format!("{link}b"));
        run(&["ip", "link", "add", &near, "type", "veth", "peer", "name", &far, "netns", &self.name])?;
        run(&["ip", "addr", "add", &format!("{}/30", self.gateway), "dev", &near])?;
        run(&["ip", "link", "set", &near, "up"])?;
        run(&["ip", "-n", &self.name, "addr", "add", &format!("{own}/30"), "dev", &far])?;
        run(&["ip", "-n", &self.name, "link", "set", &far, "up"])?;
        run(&["ip", "-n", &self.name, "link", "set", "lo", "up"])
    }

    /// The address of this machine as the other sees it.
    pub fn gateway(&self) -> &str {
        &self.gateway
    }

    /// The same command line on the other machine.
    pub fn line(&self, line: &Command) -> Command {
        let mut there = Command::new("ip");
        there.args([
            "netns",
            "exec",
            &self.name,
            "unshare",
            "--pid",
            "--fork",
            "--kill-child",
            "--mount-proc",
        ]);
        there.args(["--uts", "sh", "-c", r#"hostname "$0" && exec "$@""#, &self.name]);
        there.arg(line.get_program()).args(line.get_args());
        for (name, value) in line.get_envs() {
            match value {
                Some(value) => there.env(name, value),
                None => there.env_remove(name),
            };
        }
        there.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        there
    }

    /// From now on nothing arrives, in either direction, and nobody is told.
    pub fn part(&self) -> Checked<()> {
        let rules = "add table inet parted; \
            add chain inet parted sent { type filter hook output priority 0; policy drop; }; \
            add chain inet parted got { type filter hook input priority 0; policy drop; }";
        run(&["ip", "netns", "exec", &self.name, "nft", rules])
    }

    /// Everything arrives again.
    pub fn heal(&self) -> Checked<()> {
        run(&["ip", "netns", "exec", &self.name, "nft", "delete table inet parted"])
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // With the network the link goes, too.
        let _ = run(&["ip", "netns", "del", &self.name]);
    }
}

fn run(words: &[&str]) -> Checked<()> {
    let (program, arguments) = words.split_first().ok_or("no command")?;
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{}: {}", words.join(" "), String::from_utf8_lossy(&output.stderr)).into())
}
