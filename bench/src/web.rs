//! The programs of the section http: a service, nginx and `oncely serve` before it, Restate, and wrk, which asks them.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::Result;

/// How long a program may take to answer for the first time.
const START_PATIENCE: Duration = Duration::from_secs(60);

/// A program that listens; killed when dropped.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    child: Child,
    /// What else belongs to it.
    _with: Vec<Server>,
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself.
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(rustix::process::Pid::from_raw) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        let _ = self.child.wait();
    }
}

/// A port that nobody uses.
fn free() -> Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}

/// Started, once its port accepts connections.
fn listening(mut command: Command, address: SocketAddr, with: Vec<Server>) -> Result<Server> {
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn()?;
    let server = Server { address, child, _with: with };
    let deadline = Instant::now() + START_PATIENCE;
    while TcpStream::connect(address).is_err() {
        if Instant::now() > deadline {
            return Err(format!("{command:?} does not listen on {address}").into());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(server)
}

/// The service behind the proxies.
pub(crate) fn upstream() -> Result<Server> {
    own(&["upstream"])
}

/// The least that hyper can be as a proxy.
pub(crate) fn bare(to: SocketAddr) -> Result<Server> {
    own(&["proxy", &to.to_string()])
}

/// A part of this program as a process of its own, once it says where it listens.
fn own(words: &[&str]) -> Result<Server> {
    let mut command = Command::new(std::env::current_exe()?);
    let mut child = command.args(words).stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let mut line = String::new();
    BufReader::new(child.stdout.take().ok_or("no output")?).read_line(&mut line)?;
    Ok(Server { address: line.trim().parse()?, child, _with: Vec::new() })
}

/// nginx as a plain reverse proxy that keeps its connections, on both sides.
pub(crate) fn nginx(dir: &Path, to: SocketAddr) -> Result<Server> {
    let address = free()?;
    let place = dir.display();
    let user = if rustix::process::getuid().is_root() { "user root;" } else { "" };
    let config = format!(
        "{user} worker_processes auto; daemon off; pid {place}/nginx.pid; error_log {place}/nginx.log;
         events {{ worker_connections 16384; }}
         http {{
           access_log off; keepalive_requests 1000000000; client_body_temp_path {place}/b; proxy_temp_path {place}/p;
           fastcgi_temp_path {place}/f; uwsgi_temp_path {place}/u; scgi_temp_path {place}/s;
           upstream service {{ server {to}; keepalive 256; keepalive_requests 1000000000; }}
           server {{ listen {address} backlog=4096; location / {{
             proxy_pass http://service; proxy_http_version 1.1; proxy_set_header Connection \"\"; }} }}
         }}"
    );
    let file = dir.join("nginx.conf");
    std::fs::write(&file, config)?;
    let program = ["/usr/sbin/nginx", "/usr/bin/nginx"].into_iter().find(|path| Path::new(path).exists());
    let mut command = Command::new(program.unwrap_or("nginx"));
    command.arg("-e").arg(dir.join("nginx.log")).arg("-c").arg(file);
    listening(command, address, Vec::new())
}

/// `oncely serve` with a route that passes everything through, and one that guards it.
pub(crate) fn gateway(
    oncely: &Path,
    dir: &Path,
    ledger: &Path,
    to: SocketAddr,
) -> Result<(Server, SocketAddr)> {
    let (address, admin) = (free()?, free()?);
    let config = format!(
        "[server]\nlisten = \"{address}\"\nadmin = \"{admin}\"\n\
         [[route]]\nmatch = \"/pass\"\nupstream = \"http://{to}\"\nmethods = []\n\
         [[route]]\nmatch = \"/guard\"\nupstream = \"http://{to}\"\n"
    );
    let file = dir.join("oncely.toml");
    std::fs::write(&file, config)?;
    let mut command = Command::new(oncely);
    command.arg("--config").arg(file).arg("--store").arg(ledger).arg("serve").stderr(Stdio::null());
    Ok((listening(command, address, Vec::new())?, admin))
}

/// Restate with a service that does nothing; none where it is not installed.
pub(crate) fn restate(installed: &Path, dir: &Path) -> Result<Option<Server>> {
    let program = installed.join("node_modules/.bin/restate-server");
    if !program.exists() {
        return Ok(None);
    }
    let (service, ingress, admin, node) = (free()?, free()?, free()?, free()?);
    let mut command = Command::new("node");
    command.arg(installed.join("service.mjs")).arg(service.port().to_string()).stderr(Stdio::null());
    let service = listening(command, service, Vec::new())?;
    let uri = format!("http://{}", service.address);
    let mut command = Command::new(program);
    command
        .env("RESTATE_BASE_DIR", dir.join("restate"))
        .env("RESTATE_BIND_ADDRESS", node.to_string())
        .env("RESTATE_INGRESS__BIND_ADDRESS", ingress.to_string())
        .env("RESTATE_ADMIN__BIND_ADDRESS", admin.to_string())
        .env("RESTATE_LOG_FILTER", "error")
        .stderr(Stdio::null());
    let server = listening(command, ingress, vec![service])?;
    let body = serde_json::json!({ "uri": uri }).to_string();
    let deadline = Instant::now() + START_PATIENCE;
    loop {
        match ask(
            admin,
            &format!(
                "POST /deployments HTTP/1.1\r\nhost: restate\r\nconnection: close\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            ),
        ) {
            Ok(answer) if answer.starts_with("HTTP/1.1 201") || answer.starts_with("HTTP/1.1 200") => {
                return Ok(Some(server));
            }
            answer if Instant::now() > deadline => {
                return Err(format!("Restate does not take its service: {answer:?}").into());
            }
            _ => std::thread::sleep(Duration::from_millis(200)),
        }
    }
}

/// One request whose answer ends with the connection.
pub(crate) fn ask(to: SocketAddr, request: &str) -> Result<String> {
    let mut stream = TcpStream::connect(to)?;
    stream.set_read_timeout(Some(START_PATIENCE))?;
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// One of the gateway's metrics.
pub(crate) fn metric(admin: SocketAddr, name: &str) -> Result<f64> {
    let text = ask(admin, "GET /metrics HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n")?;
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    Ok(line.ok_or_else(|| format!("no metric {name}"))?.trim().parse()?)
}

impl Server {
    /// Its memory in bytes: `VmRSS` now, `VmHWM` at most so far.
    pub(crate) fn memory(&self, field: &str) -> Result<f64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        let kib = line.and_then(|line| line.trim().strip_suffix(" kB")).ok_or("no such field")?;
        Ok(kib.trim().parse::<f64>()? * 1024.0)
    }
}

/// What keys a load has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keys {
    /// A thousand, again and again.
    Same,
    /// Never the same again.
    Fresh,
}

/// A load for wrk.
pub(crate) struct Load {
    pub(crate) script: PathBuf,
}

/// How long a load lasts: the shortest that wrk can do.
const TURN: &str = "1s";

/// What wrk has seen.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Loaded {
    pub(crate) rate: f64,
    pub(crate) p50: f64,
    pub(crate) p99: f64,
}

impl Load {
    /// Asks for a turn over so many connections. `name` sets these keys apart from others.
    pub(crate) fn run(
        &self,
        to: SocketAddr,
        path: &str,
        keys: Keys,
        name: &str,
        connections: usize,
    ) -> Result<Loaded> {
        let threads = connections.min(2);
        let output = Command::new("wrk")
            .args(["--latency", "--timeout", "30s"])
            .args(["-t", &threads.to_string(), "-c", &connections.to_string(), "-d", TURN])
            .arg("-s")
            .arg(&self.script)
            .arg(format!("http://{to}{path}"))
            .args(["--", if keys == Keys::Same { "same" } else { "fresh" }, path, name])
            .output()
            .map_err(|e| format!("wrk cannot be started: {e}"))?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        // Figures of errors are worth nothing.
        if !output.status.success() || text.contains("Non-2xx") || text.contains("Socket errors") {
            return Err(format!("{to}{path}: {text}{}", String::from_utf8_lossy(&output.stderr)).into());
        }
        let word = |start: &str| {
            let line = text.lines().find_map(|line| line.trim().strip_prefix(start));
            line.map(|line| line.trim().to_owned()).ok_or_else(|| format!("wrk did not say {start}: {text}"))
        };
        let rate = word("Requests/sec:")?.parse()?;
        Ok(Loaded { rate, p50: seconds(&word("50%")?)?, p99: seconds(&word("99%")?)? })
    }
}

/// `45.00us`, `1.20ms`, `2.00s`.
fn seconds(text: &str) -> Result<f64> {
    let units = [("us", 1e-6), ("ms", 1e-3), ("s", 1.0), ("m", 60.0)];
    let found = units.into_iter().find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, factor)));
    let (number, factor) = found.ok_or_else(|| format!("{text:?} is no time"))?;
    Ok(number.parse::<f64>()? * factor)
}

#[cfg(test)]
mod tests {
    use super::seconds;

    #[test]
    fn times_are_read_as_wrk_writes_them() {
        for (text, expected) in [("45.00us", 45e-6), ("1.25ms", 1.25e-3), ("2.00s", 2.0), ("1.50m", 90.0)] {
            assert!((seconds(text).unwrap() - expected).abs() < 1e-12, "{text}");
        }
        assert!(seconds("fast").is_err());
    }
}
