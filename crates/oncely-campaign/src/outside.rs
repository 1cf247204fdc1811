//! The outside ledger: a process of its own that counts effects per key, and never hears of oncely.
//!
//! One line per request over a Unix socket: `effect KEY` counts one and answers `receipt N`, `dump` answers every key
//! with its count and then `end`, `count KEY` answers one count. Each effect is appended to a log before it is answered.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::programs::Programs;
use crate::{Checked, Trouble};

/// How long commands whose runner was killed may go on.
const PATIENCE: Duration = Duration::from_secs(180);

/// How often each key's effect took place.
pub type Counts = BTreeMap<String, u64>;

/// A running outside ledger; ended when dropped.
#[derive(Debug)]
pub struct Outside {
    socket: PathBuf,
    server: Child,
}

impl Outside {
    /// Starts one whose socket and log lie in this directory.
    pub fn start(programs: &Programs, directory: &Path) -> Checked<Self> {
        let socket = directory.join("outside.sock");
        let mut server = Command::new(&programs.effect_ledger)
            .arg(&socket)
            .arg(directory.join("outside.log"))
            .stdout(Stdio::piped())
            .spawn()?;
        let mut ready = String::new();
        if let Some(out) = server.stdout.take() {
            BufReader::new(out).read_line(&mut ready)?;
        }
        let outside = Self { socket, server };
        if ready == "ready\n" { Ok(outside) } else { Err("the outside ledger did not start".into()) }
    }

    /// Where effects are reported.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Every key's count.
    pub fn counts(&self) -> Checked<Counts> {
        let mut stream = UnixStream::connect(&self.socket)?;
        stream.write_all(b"dump\n")?;
        let mut counts = Counts::new();
        for line in BufReader::new(stream).lines() {
            let line = line?;
            if line == "end" {
                return Ok(counts);
            }
            let (key, count) = line.split_once(' ').ok_or("the outside ledger answers nonsense")?;
            counts.insert(key.to_owned(), count.parse()?);
        }
        Err("the outside ledger ended early".into())
    }

    /// One key's count.
    pub fn count(&self, key: &str) -> Checked<u64> {
        let mut stream = UnixStream::connect(&self.socket)?;
        stream.write_all(format!("count {key}\n").as_bytes())?;
        let mut count = String::new();
        BufReader::new(stream).read_line(&mut count)?;
        Ok(count.trim_end().parse()?)
    }

    /// Waits until no command that reports here is alive: one whose runner was killed works on by itself.
    pub fn settle(&self) -> Checked<()> {
        self.settle_telling(|_, _| {})
    }

    /// The same; every look tells who is still alive, with its number and its command line.
    pub fn settle_telling(&self, mut alive: impl FnMut(i32, &[u8])) -> Checked<()> {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            let awaited = self.awaited()?;
            if awaited.is_empty() {
                return Ok(());
            }
            for (pid, line) in &awaited {
                alive(*pid, line);
            }
            thread::sleep(Duration::from_millis(5));
        }
        Err(format!("commands are still alive after {} s", PATIENCE.as_secs()).into())
    }

    /// Those that name this ledger in their command lines.
    fn awaited(&self) -> Checked<Vec<(i32, Vec<u8>)>> {
        use std::os::unix::ffi::OsStrExt;
        let (socket, server) = (self.socket.as_os_str().as_bytes(), i32::try_from(self.server.id())?);
        let mut awaited = Vec::new();
        for entry in std::fs::read_dir("/proc")? {
            let entry = entry?;
            let pid = entry.file_name().to_str().and_then(|name| name.parse().ok());
            if let Some(pid) = pid.filter(|pid| *pid != server)
                && let Ok(line) = std::fs::read(entry.path().join("cmdline"))
                && line.split(|b| *b == 0).any(|argument| argument == socket)
            {
                awaited.push((pid, line));
            }
        }
        Ok(awaited)
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        // It may have ended by itself; there is nobody to tell.
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// Reports one effect and returns its receipt.
pub fn report(socket: &Path, key: &str) -> Checked<String> {
    let mut stream = UnixStream::connect(socket)?;
    stream.write_all(format!("effect {key}\n").as_bytes())?;
    let mut receipt = String::new();
    BufReader::new(stream).read_line(&mut receipt)?;
    if receipt.starts_with("receipt ") { Ok(receipt) } else { Err("no receipt".into()) }
}

struct Book {
    counts: Counts,
    receipts: u64,
    log: File,
}

/// Serves until killed. `ready` is called once requests are answered.
pub fn serve(socket: &Path, log: &Path, ready: impl FnOnce()) -> Checked<()> {
    let listener = UnixListener::bind(socket)?;
    let log = File::options().create(true).append(true).open(log)?;
    let book = Arc::new(Mutex::new(Book { counts: Counts::new(), receipts: 0, log }));
    ready();
    for stream in listener.incoming() {
        let (stream, book) = (stream?, book.clone());
        thread::spawn(move || {
            // A command that is killed while it reports is what we are here for.
            let _ = answer(stream, &book);
        });
    }
    Ok(())
}

fn answer(mut stream: UnixStream, book: &Mutex<Book>) -> Result<(), Trouble> {
    let mut line = String::new();
    BufReader::new(stream.try_clone()?).read_line(&mut line)?;
    let reply = {
        let mut book = book.lock().unwrap_or_else(PoisonError::into_inner);
        // A line without its end comes from a command that was killed while it wrote: nothing is counted.
        match line.strip_suffix('\n').map(|line| line.split_once(' ').unwrap_or((line, ""))) {
            Some(("effect", key)) => book.count(key)?,
            Some(("count", key)) => format!("{}\n", book.counts.get(key).unwrap_or(&0)),
            Some(("dump", _)) => book.dump()?,
            _ => return Ok(()),
        }
    };
    Ok(stream.write_all(reply.as_bytes())?)
}

impl Book {
    fn count(&mut self, key: &str) -> Checked<String> {
        self.receipts += 1;
        writeln!(self.log, "{} {key}", self.receipts)?;
        *self.counts.entry(key.to_owned()).or_default() += 1;
        Ok(format!("receipt {}\n", self.receipts))
    }

    fn dump(&mut self) -> Checked<String> {
        self.log.sync_all()?;
        let mut text: String = self.counts.iter().map(|(key, count)| format!("{key} {count}\n")).collect();
        text.push_str("end\n");
        Ok(text)
    }
}
