//! A Redis server of its own: started, stopped, killed, paused, followed by a replica.

use std::io::Write;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

use rustix::process::Signal;

use super::keeper::{Kept, Slot};
use super::place::{Folder, free_port, output, program, write_private};
use super::{Trouble, until};

/// Settings for a server; [`start`](Self::start) starts it.
#[derive(Debug, Clone, Default)]
pub struct RedisBuilder {
    settings: Vec<(String, String)>,
    tls: Option<(String, String)>,
    moves_its_clock: bool,
}

/// The library that moves a server's wall clock.
const WALL_CLOCK: &str = include_str!("wall_clock.c");

impl RedisBuilder {
    /// A line of `redis.conf`; the last one of a name counts.
    pub fn setting(mut self, name: &str, value: &str) -> Self {
        self.settings.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Speaks TLS with this certificate and key (PEM), and nothing else.
    pub fn tls(mut self, certificate: &str, key: &str) -> Self {
        self.tls = Some((certificate.to_owned(), key.to_owned()));
        self
    }

    /// Has a wall clock of its own, which [`Redis::move_clock`] moves. Takes a C compiler.
    pub fn movable_clock(mut self) -> Self {
        self.moves_its_clock = true;
        self
    }

    /// Starts the server, and returns when it answers.
    pub fn start(self) -> Result<Redis, Trouble> {
        let redis = Redis {
            server: Slot::default(),
            port: free_port()?,
            options: self,
            folder: Folder::new("redis", None)?,
        };
        if redis.options.moves_its_clock {
            redis.set_clock(0)?;
            let (source, library) = (redis.file("wall_clock.c"), redis.file("wall_clock.so"));
            write_private(&source, WALL_CLOCK, None)?;
            let mut line = Command::new(program("cc", "gcc")?);
            output(line.args(["-shared", "-fPIC", "-o"]).args([&library, &source]))?;
        }
        redis.start_again()?;
        Ok(redis)
    }

    fn value(&self, name: &str) -> Option<&str> {
        self.settings.iter().rev().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// A Redis server. The folder goes last: it is dropped when the server is gone.
#[derive(Debug)]
pub struct Redis {
    server: Slot,
    port: u16,
    options: RedisBuilder,
    folder: Folder,
}

impl Redis {
    /// Starts a server that syncs every write to its append-only file and evicts nothing, on a free port of 127.0.0.1.
    pub fn start() -> Result<Self, Trouble> {
        Self::builder().start()
    }

    /// Settings for a server.
    pub fn builder() -> RedisBuilder {
        RedisBuilder::default()
    }

    /// One server for all tests of this process.
    pub fn shared() -> Result<&'static Self, Trouble> {
        static SHARED: OnceLock<Result<Redis, Trouble>> = OnceLock::new();
        SHARED.get_or_init(Self::start).as_ref().map_err(Clone::clone)
    }

    /// The port it listens on.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its address.
    pub fn url(&self) -> String {
        self.url_through(self.port)
    }

    /// Its address through something that stands before it on another port.
    pub fn url_through(&self, port: u16) -> String {
        let password = self.options.value("requirepass").map_or(String::new(), |p| format!(":{p}@"));
        let scheme = if self.options.tls.is_some() { "rediss" } else { "redis" };
        format!("{scheme}://{password}127.0.0.1:{port}")
    }

    /// Runs one command with `redis-cli`; an error reply is an error.
    pub fn cli(&self, arguments: &[&str]) -> Result<String, Trouble> {
        output(self.cli_line()?.arg("-e").args(arguments))
    }

    pub(super) fn cli_line(&self) -> Result<Command, Trouble> {
        let mut line = Command::new(program("redis-cli", "redis-tools")?);
        line.args(["-h", "127.0.0.1", "-p", &self.port.to_string()]);
        if let Some(password) = self.options.value("requirepass") {
            line.args(["--no-auth-warning", "-a", password]);
        }
        if self.options.tls.is_some() {
            line.args(["--tls", "--insecure"]);
        }
        Ok(line)
    }

    /// Another server that follows this one; returns when it has caught up.
    pub fn replica(&self) -> Result<Self, Trouble> {
        let mut options = self.options.clone().setting("replicaof", &format!("127.0.0.1 {}", self.port));
        if let Some(password) = self.options.value("requirepass") {
            options = options.setting("masterauth", password);
        }
        let replica = options.start()?;
        until("the replica has caught up", || replica.has_caught_up())?;
        Ok(replica)
    }

    /// Whether it follows its primary, and has written down what it copied: before that nothing would come back.
    pub(super) fn has_caught_up(&self) -> Result<bool, Trouble> {
        let told = self.cli(&["INFO"])?;
        let says = |word: &str| told.lines().any(|line| line.trim_end() == word);
        Ok(["master_link_status:up", "aof_rewrite_in_progress:0", "aof_rewrite_scheduled:0"]
            .into_iter()
            .all(says))
    }

    pub(super) fn is_alive(&self) -> bool {
        self.server.is_alive()
    }

    /// Ends it in order.
    pub fn stop(&self) -> Result<(), Trouble> {
        self.server.stop(Signal::TERM)
    }

    /// Kills it.
    pub fn kill(&self) -> Result<(), Trouble> {
        self.server.kill()
    }

    /// Stops it where it is: connections stay open, nothing is answered.
    pub fn pause(&self) {
        self.server.signal_all(Signal::STOP);
    }

    /// Lets it go on.
    pub fn resume(&self) {
        self.server.signal_all(Signal::CONT);
    }

    /// Moves its wall clock so far from the true time; returns when it tells that time, since some look at it only now and then.
    pub fn move_clock(&self, seconds: i64) -> Result<(), Trouble> {
        self.set_clock(seconds)?;
        until("the clock has moved", || {
            let told = self.cli(&["TIME"])?;
            let told: i64 = told.lines().next().and_then(|line| line.parse().ok()).unwrap_or(0);
            let now = std::time::UNIX_EPOCH.elapsed().map_or(0, |now| now.as_secs() as i64);
            Ok((told - now - seconds).abs() < 60)
        })
    }

    /// Written in place: the server has the file mapped.
    fn set_clock(&self, seconds: i64) -> Result<(), Trouble> {
        let mut open = std::fs::OpenOptions::new();
        let mut file = open.create(true).truncate(false).write(true).open(self.file("moved_by"))?;
        Ok(file.write_all(&(seconds * 1_000).to_ne_bytes())?)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Stops and starts it.
    pub fn restart(&self) -> Result<(), Trouble> {
        self.stop()?;
        self.start_again()
    }

    /// Starts it on its data and its port, and returns when it answers.
    pub fn start_again(&self) -> Result<(), Trouble> {
        let settings = self.folder.path().join("redis.conf");
        write_private(&settings, &self.settings()?, None)?;
        let server = program("redis-server", "redis-server")?;
        let mut line = Command::new("env");
        if self.options.moves_its_clock {
            for (name, file) in [("LD_PRELOAD", "wall_clock.so"), ("ONCELY_MOVED_BY", "moved_by")] {
                line.arg(format!("{name}={}", self.file(file).display()));
            }
        }
        line.arg(server).arg(&settings);
        let kept = Kept::start(&line, &self.folder.path().join("log"), "KILL")?;
        // While it reads its data in, it answers with an error.
        self.server.fill("Redis", kept, || self.cli(&["PING"]).is_ok_and(|answer| answer == "PONG"))
    }

    /// What it has written to its log lately.
    pub fn last_words(&self) -> String {
        self.server.last_words()
    }

    fn settings(&self) -> Result<String, Trouble> {
        let folder = self.folder.path();
        let mut text = format!(
            "bind 127.0.0.1\nprotected-mode no\ndir {}\nsave \"\"\nappendonly yes\nappendfsync always\n\
            maxmemory-policy noeviction\n",
            folder.display()
        );
        match &self.options.tls {
            None => text.push_str(&format!("port {}\n", self.port)),
            Some((certificate, key)) => {
                write_private(&folder.join("redis.crt"), certificate, None)?;
                write_private(&folder.join("redis.key"), key, None)?;
                text.push_str(&format!(
                    "port 0\ntls-port {}\ntls-cert-file redis.crt\ntls-key-file redis.key\ntls-auth-clients no\n\
                    tls-ca-cert-file redis.crt\n",
                    self.port
                ));
            }
        }
        for (name, value) in &self.options.settings {
            let value = if value.is_empty() { "\"\"" } else { value };
            text.push_str(&format!("{name} {value}\n"));
        }
        Ok(text)
    }
}
