//! A folder of its own for each run of a scenario, and the processes that it starts, which end with it.

use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use crate::software::{Software, script};

const ONCELY: &str = env!("CARGO_BIN_EXE_oncely");
const START_MAX: Duration = Duration::from_secs(180);

/// Whether oncely stands between client and server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// The client talks to the server: the control, in which the trouble must be seen.
    Direct,
    /// Through oncely, over the same transport on both sides.
    Guarded,
    /// Through oncely, which speaks HTTP to the client whatever the server speaks.
    Listening,
    /// Through oncely, which speaks stdio to the client whatever the server speaks.
    Stdio,
}

/// How a server is reached.
#[derive(Debug, Clone)]
pub(crate) enum Server {
    /// Started by whoever talks to it, over stdio.
    Command(Vec<String>),
    /// Over streamable HTTP.
    Url(String),
}

/// One run of a scenario.
#[derive(Debug)]
pub(crate) struct World {
    /// What is installed.
    pub(crate) software: Software,
    folder: tempfile::TempDir,
    children: Mutex<Vec<Child>>,
}

impl Drop for World {
    fn drop(&mut self) {
        for child in self.children.get_mut().unwrap() {
            // Most are killed here; some have ended by themselves.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl World {
    /// An empty one.
    pub(crate) fn new(software: &Software) -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self { software: software.clone(), folder, children: Mutex::default() }
    }

    /// A path in its folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The same as text.
    pub(crate) fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    /// How many lines a file has; none if it is not there.
    pub(crate) fn lines(&self, name: &str) -> usize {
        std::fs::read_to_string(self.path(name)).map_or(0, |text| text.lines().count())
    }

    /// How often a text occurs in a file.
    pub(crate) fn occurrences(&self, name: &str, text: &str) -> usize {
        let bytes = std::fs::read(self.path(name)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).matches(text).count()
    }

    /// A policy file that oncely finds in the working directory.
    pub(crate) fn policy(&self, text: &str) {
        std::fs::write(self.path("oncely.toml"), text).unwrap();
    }

    /// The server as the client is to reach it.
    pub(crate) fn through(&self, way: Way, server: Server) -> Server {
        match (way, &server) {
            (Way::Direct, _) => server,
            (Way::Guarded | Way::Stdio, Server::Command(_)) | (Way::Stdio, Server::Url(_)) => {
                Server::Command(self.proxy(&[], &server))
            }
            (Way::Guarded, Server::Url(_)) | (Way::Listening, _) => {
                Server::Url(self.serve(&self.proxy(&["--listen", "127.0.0.1:0"], &server), &[]))
            }
        }
    }

    fn proxy(&self, options: &[&str], server: &Server) -> Vec<String> {
        let mut line = vec![ONCELY.to_owned(), "mcp".to_owned(), "--store".to_owned()];
        line.push(format!("sqlite:{}?min_free=0", self.text("ledger.db")));
        line.extend(options.iter().map(|&option| option.to_owned()));
        match server {
            Server::Command(command) => {
                line.push("--".to_owned());
                line.extend(command.clone());
            }
            Server::Url(url) => line.extend(["--url".to_owned(), url.clone()]),
        }
        line
    }

    /// Starts a process that says at which address it listens, and returns the address.
    pub(crate) fn serve(&self, line: &[String], environment: &[(&str, &str)]) -> String {
        let mut child =
            self.start(line, environment).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (say, said) = std::sync::mpsc::channel();
        let streams: [Box<dyn std::io::Read + Send>; 2] =
            [Box::new(child.stdout.take().unwrap()), Box::new(child.stderr.take().unwrap())];
        self.children.lock().unwrap().push(child);
        for stream in streams {
            let say = say.clone();
            // Both streams are read to their end, so that the process never waits for us.
            thread::spawn(move || {
                for line in BufReader::new(stream).lines().map_while(Result::ok) {
                    let _ = say.send(line);
                }
            });
        }
        let by = Instant::now() + START_MAX;
        let mut heard = Vec::new();
        while let Ok(line) = said.recv_timeout(by.saturating_duration_since(Instant::now())) {
            if let Some(address) = address_in(&line) {
                return address;
            }
            heard.push(line);
        }
        panic!("{line:?} did not say where it listens: {heard:?}");
    }

    /// Starts a server that is told its port, and waits until it accepts connections.
    pub(crate) fn serve_on_port(&self, line: &[String]) -> u16 {
        let port = oncely_testkit::servers::free_port().unwrap();
        let mut command = self.start(line, &[("PORT", &port.to_string())]);
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        self.children.lock().unwrap().push(child);
        let by = Instant::now() + START_MAX;
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(Instant::now() < by, "{line:?} does not listen");
            thread::sleep(Duration::from_millis(20));
        }
        port
    }

    fn start(&self, line: &[String], environment: &[(&str, &str)]) -> Command {
        let mut command = Command::new(&line[0]);
        command
            .args(&line[1..])
            .current_dir(self.folder.path())
            .env_clear()
            .env("HOME", self.folder.path())
            .env("PATH", std::env::var_os("PATH").unwrap())
            .envs(environment.iter().copied())
            .stdin(Stdio::null());
        command
    }

    /// A server over stdio, with a tap that keeps what it is sent in the file `tapped`.
    pub(crate) fn tapped(&self, command: Vec<String>) -> Server {
        let tap = [script("servers/tap.py"), "stdio".to_owned(), self.text("tapped")];
        Server::Command([vec![self.software.modern("python")], tap.to_vec(), command].concat())
    }

    /// The same for a server on a port of this machine.
    pub(crate) fn tapped_port(&self, port: u16) -> Server {
        let tap = [script("servers/tap.py"), "tcp".to_owned(), self.text("tapped"), port.to_string()];
        Server::Url(self.serve(&[vec![self.software.modern("python")], tap.to_vec()].concat(), &[]))
    }

    /// The server whose tool `charge` appends a line to the file `charges`, and then takes its time.
    pub(crate) fn charges(&self, transport: Transport) -> Server {
        let mut line =
            vec![self.software.modern("python"), script("servers/charge.py"), self.text("charges")];
        match transport {
            Transport::Stdio => {
                line.push("stdio".to_owned());
                Server::Command(line)
            }
            Transport::Http => {
                line.push("http".to_owned());
                Server::Url(self.serve(&line, &[]))
            }
        }
    }
}

/// What a scenario comes to without oncely and with it, tried at the same time.
pub(crate) fn both_ways<T: Send>(scenario: impl Fn(Way) -> T + Sync) -> [T; 2] {
    thread::scope(|scope| {
        let scenario = &scenario;
        [Way::Direct, Way::Guarded]
            .map(|way| scope.spawn(move || scenario(way)))
            .map(|run| run.join().unwrap())
    })
}

/// What a server speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transport {
    /// Lines over pipes.
    Stdio,
    /// Streamable HTTP.
    Http,
}

/// The address in a line that a server prints.
fn address_in(line: &str) -> Option<String> {
    let from = line.find("http://127.0.0.1:")?;
    let address: String = line[from..].chars().take_while(|c| c.is_ascii_graphic()).collect();
    let address = address.trim_end_matches(['.', ',', ')', '"']);
    // The path is the same everywhere; who says only where he listens means it.
    Some(if address.ends_with("/mcp") {
        address.to_owned()
    } else {
        format!("{}/mcp", address.trim_end_matches('/'))
    })
}
