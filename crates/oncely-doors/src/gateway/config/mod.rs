//! `[server]` and `[[route]]` of `oncely.toml`: where to listen, and what becomes of requests.
//!
//! ```toml
//! [server]
//! listen = "127.0.0.1:7300"
//! admin = "127.0.0.1:7301"                  # the admin listener; "off" for none
//! tls = { cert = "cert.pem", key = "key.pem" }
//! upstream_roots = "roots.pem"              # trusted besides the system's roots
//! drain = "30s"                             # how long running requests may take after a SIGTERM
//! idle_timeout = "75s"                      # for a client that sends no request, or takes nothing of its answer
//! threads = 4                               # that serve; left out: one for every core
//! http2_ping = "20s"                        # how often HTTP/2 connections are asked whether they still lead anywhere
//! connections = 16384                       # most at once
//! guarded_calls = 8192                      # most at once, waiting ones included
//! calls_per_key = 2048                      # most at once on one key
//!
//! [[route]]                                 # the first that matches wins
//! match = "/orders/**"
//! upstream = "http://127.0.0.1:9000"
//! methods = ["POST", "PATCH"]               # guarded; the others pass through
//! require_key = true
//! ```
//!
//! Loading never stops at the first problem, and every problem names its place and what is allowed.

mod check;
mod in_force;
mod route;
mod values;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use oncely::policy_file::reading::{Problems, Value, allowed, quote, text, wrong_type};
use oncely::policy_file::{PolicyFile, PolicyFileError};
use oncely::redact::Redaction;
use oncely_core::limits::{HTTP_CALLS_MAX, HTTP_CALLS_PER_KEY_MAX, HTTP_CONNECTIONS_MAX};
use toml::de::DeTable;

pub use self::in_force::InForce;
pub use self::route::RouteConfig;
use crate::gateway::Patience;
use crate::providers::Providers;

/// Most routes of one gateway.
pub const ROUTES_MAX: usize = 1_000;

/// Most threads that serve.
pub const THREADS_MAX: usize = 256;

const SERVER_FIELDS: [&str; 11] = [
    "listen",
    "admin",
    "tls",
    "upstream_roots",
    "threads",
    "drain",
    "idle_timeout",
    "http2_ping",
    "connections",
    "guarded_calls",
    "calls_per_key",
];

/// Where to listen, and what becomes of requests.
#[derive(Clone)]
pub struct GatewayConfig {
    /// Where requests come in.
    pub listen: Option<SocketAddr>,
    /// Where the admin listener is to be: an address, or `off`.
    pub admin: Option<String>,
    /// Our certificate chain and private key.
    pub tls: Option<TlsFiles>,
    /// A file of certificates that are trusted besides the system's roots.
    pub upstream_roots: Option<PathBuf>,
    /// How many threads serve; one for every core if nobody says it.
    pub threads: Option<usize>,
    /// How long running requests may take after a stop is asked for.
    pub drain: Duration,
    /// How much patience there is with clients, and how often connections of HTTP/2 are tried, on both sides.
    pub patience: Patience,
    /// Most connections at once.
    pub connections_max: usize,
    /// Most guarded requests at once, waiting ones included.
    pub calls_max: usize,
    /// Most guarded requests at once on one key.
    pub calls_per_key_max: usize,
    /// The routes, the first that matches wins.
    pub routes: Vec<RouteConfig>,
    /// What is taken out of answers before they are stored; `[redact]`, which is read elsewhere.
    pub redaction: Redaction,
}

/// PEM files of a certificate chain and its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The chain, our own certificate first.
    pub cert: PathBuf,
    /// The private key.
    pub key: PathBuf,
}

impl Default for GatewayConfig {
    fn default() -> Self {
        Self {
            listen: None,
            admin: None,
            tls: None,
            upstream_roots: None,
            threads: None,
            drain: Duration::from_secs(30),
            // Longer than load balancers keep theirs, so that it is they who close.
            patience: Patience { silence: Duration::from_secs(75), ping: Duration::from_secs(20) },
            connections_max: HTTP_CONNECTIONS_MAX,
            calls_max: HTTP_CALLS_MAX,
            calls_per_key_max: HTTP_CALLS_PER_KEY_MAX,
            routes: Vec::new(),
            redaction: Redaction::default(),
        }
    }
}

impl GatewayConfig {
    /// Reads the tables from the text of a policy file; `policy` is the same file, for what tools declare.
    pub fn parse(
        text: &str,
        file_name: &str,
        policy: &PolicyFile,
        providers: &Providers,
    ) -> Result<Self, PolicyFileError> {
        // That it is TOML was found when the policy was read.
        let (root, _) = DeTable::parse_recoverable(text);
        let mut problems = Problems::default();
        let mut config = Self::default();
        for (name, value) in root.get_ref() {
            match name.get_ref().as_ref() {
                "server" => config.read_server(value, &mut problems),
                "route" => config.read_routes(value, policy, providers, &mut problems),
                _ => {}
            }
        }
        problems.into_result(file_name, text)?;
        Ok(config)
    }

    fn read_server(&mut self, value: &Value<'_>, problems: &mut Problems) {
        let Some(table) = value.get_ref().as_table() else {
            problems.add(value.span().start, "server", "must be a table: [server]");
            return;
        };
        for (name, value) in table {
            let field = name.get_ref().as_ref();
            let read = match field {
                "listen" => values::socket(value).map(|address| self.listen = Some(address)),
                "admin" => values::socket_or_off(value).map(|address| self.admin = Some(address)),
                "tls" => tls_files(value, problems).map(|files| self.tls = files),
                "upstream_roots" => text(value).map(|path| self.upstream_roots = Some(path.into())),
                "threads" => values::threads(value).map(|n| self.threads = Some(n)),
                "drain" => values::duration(value).map(|time| self.drain = time),
                "idle_timeout" => values::positive(value).map(|time| self.patience.silence = time),
                "http2_ping" => values::positive(value).map(|time| self.patience.ping = time),
                "connections" => values::count(value).map(|n| self.connections_max = n),
                "guarded_calls" => values::count(value).map(|n| self.calls_max = n),
                "calls_per_key" => values::count(value).map(|n| self.calls_per_key_max = n),
                _ => {
                    let message =
                        format!("unknown field {}; {}", quote(field), allowed(field, &SERVER_FIELDS));
                    problems.add(name.span().start, "server", message);
                    Ok(())
                }
            };
            values::note(read, &format!("server.{field}"), problems);
        }
    }

    fn read_routes(
        &mut self,
        value: &Value<'_>,
        policy: &PolicyFile,
        providers: &Providers,
        problems: &mut Problems,
    ) {
        let Some(routes) = value.get_ref().as_array() else {
            problems.add(value.span().start, "route", "must be one table for each route: [[route]]");
            return;
        };
        if routes.len() > ROUTES_MAX {
            let message = format!("{} routes are declared; at most {ROUTES_MAX} may be", routes.len());
            problems.add(value.span().start, "route", message);
            return;
        }
        for (at, route) in routes.iter().enumerate() {
            let place = format!("route[{at}]");
            let Some(table) = route.get_ref().as_table() else {
                problems.add(route.span().start, place, "must be a table: [[route]]");
                continue;
            };
            let start = route.span().start;
            self.routes.extend(route::read(table, start, &place, policy, providers, problems));
        }
    }
}

fn tls_files(
    value: &Value<'_>,
    problems: &mut Problems,
) -> oncely::policy_file::reading::Read<Option<TlsFiles>> {
    const EXPECTED: &str = "a table such as { cert = \"cert.pem\", key = \"key.pem\" }";
    let Some(table) = value.get_ref().as_table() else { return wrong_type(value, EXPECTED) };
    let (mut cert, mut key) = (None, None);
    for (name, value) in table {
        let read = match name.get_ref().as_ref() {
            "cert" => text(value).map(|path| cert = Some(path)),
            "key" => text(value).map(|path| key = Some(path)),
            other => {
                let message = format!("unknown field {}; {}", quote(other), allowed(other, &["cert", "key"]));
                problems.add(name.span().start, "server.tls", message);
                Ok(())
            }
        };
        values::note(read, "server.tls", problems);
    }
    match (cert, key) {
        (Some(cert), Some(key)) => Ok(Some(TlsFiles { cert: cert.into(), key: key.into() })),
        _ => oncely::policy_file::reading::fault(value, format!("needs both cert and key: {EXPECTED}")),
    }
}

#[cfg(test)]
mod tests;
