//! How a ledger on Redis or Valkey is opened, and the address that says so.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use oncely_core::limits::PAGE_MAX;
use oncely_core::{StoreError, StoreErrorKind};

use super::value::SHARD_BITS;

const PORT: u16 = 6379;
/// Most shards that a ledger can have.
pub(crate) const SHARDS_MAX: u16 = 1 << SHARD_BITS;
const ALLOWED: &str =
    "prefix, durability, wait, wait_timeout, timeout, connections, shards, audit, queue, ca";

/// One server of an address.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RedisServer {
    /// Its name or number.
    pub host: String,
    /// Its port.
    pub port: u16,
}

impl fmt::Display for RedisServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

/// What the servers have to promise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RedisDurability {
    /// Settings that can lose or evict a record are refused.
    Strict,
    /// They are accepted: a record may be lost, and its effect may then happen twice.
    BestEffort,
}

/// One server, or a cluster of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RedisKind {
    /// One server, perhaps with replicas.
    Single,
    /// Redis Cluster.
    Cluster,
}

/// Where a ledger on Redis lies and how it behaves.
#[derive(Clone, PartialEq, Eq)]
pub struct RedisOptions {
    /// The server; of a cluster some of its servers, of which one has to answer.
    pub servers: Vec<RedisServer>,
    /// One server, or a cluster.
    pub kind: RedisKind,
    /// Whether TLS is spoken.
    pub tls: bool,
    /// Certificates to trust instead of the system's.
    pub ca: Option<PathBuf>,
    /// Who to be; empty: the default user.
    pub user: String,
    /// The password.
    pub password: Option<String>,
    /// The number of the database.
    pub database: u32,
    /// What all keys of the ledger begin with.
    pub prefix: String,
    /// What the servers have to promise.
    pub durability: RedisDurability,
    /// How many replicas have to confirm a write; `None`: one, if there are any when the ledger is opened.
    pub wait: Option<u32>,
    /// How long they may take.
    pub wait_timeout: Duration,
    /// How long a server may take to answer, and to be connected to.
    pub timeout: Duration,
    /// Connections to each server.
    pub connections: usize,
    /// In how many shards a new ledger is divided; `None`: one on a single server, 64 in a cluster.
    pub shards: Option<u16>,
    /// How many entries the audit log keeps, of all shards together.
    pub audit_max: u64,
    /// How many requests may wait for one server; more are refused.
    pub queue_max: usize,
    /// How often a caller that waits for a record looks by itself where messages arrive: they can be lost.
    pub look_every: Duration,
}

impl RedisOptions {
    /// The defaults for one server.
    pub fn new(host: impl Into<String>, port: u16) -> Self {
        Self {
            servers: vec![RedisServer { host: host.into(), port }],
            kind: RedisKind::Single,
            tls: false,
            ca: None,
            user: String::new(),
            password: None,
            database: 0,
            prefix: "oncely".to_owned(),
            durability: RedisDurability::Strict,
            wait: None,
            wait_timeout: Duration::from_secs(1),
            timeout: Duration::from_secs(5),
            connections: 8,
            shards: None,
            audit_max: 1_000_000,
            queue_max: 16_384,
            look_every: Duration::from_millis(500),
        }
    }

    /// Reads `redis[s][+cluster]://[USER[:PASSWORD]@]HOST[:PORT][,HOST[:PORT]]...[/DATABASE][?SETTINGS]`.
    pub fn parse(address: &str) -> Result<Self, StoreError> {
        let (scheme, rest) = address.split_once("://").ok_or_else(|| bad("it has to begin with redis://"))?;
        let (tls, kind) = match scheme {
            "redis" => (false, RedisKind::Single),
            "rediss" => (true, RedisKind::Single),
            "redis+cluster" => (false, RedisKind::Cluster),
            "rediss+cluster" => (true, RedisKind::Cluster),
            _ => return Err(bad("allowed: redis, rediss, redis+cluster, rediss+cluster")),
        };
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        // What looks like a port, a database or a setting may then be a part of a password: it must not be repeated.
        if rest[end..].contains('@') || rest[..end].matches('@').count() > 1 {
            return Err(bad(
                "it holds an @ too many; write the characters / ? # @ % of a password as %2F %3F %23 %40 %25",
            ));
        }
        let (place, settings) = rest.split_once('?').unwrap_or((rest, ""));
        let (place, database) = place.split_once('/').unwrap_or((place, ""));
        let (who, hosts) = place.split_once('@').unwrap_or(("", place));
        let mut options = Self { tls, kind, ..Self::new("", PORT) };
        options.servers = hosts.split(',').map(server).collect::<Result<_, _>>()?;
        if kind == RedisKind::Single && options.servers.len() > 1 {
            return Err(bad("it names several servers; write redis+cluster:// for a cluster"));
        }
        let (user, password) = match who.split_once(':') {
            Some((user, password)) => (user, Some(decoded(password)?)),
            None => (who, None),
        };
        options.user = decoded(user)?;
        options.password = password;
        if !database.is_empty() {
            options.database = number("database", database)?;
        }
        for setting in settings.split('&').filter(|s| !s.is_empty()) {
            options.set(setting)?;
        }
        options.checked()
    }

    fn set(&mut self, setting: &str) -> Result<(), StoreError> {
        let (name, value) = setting.split_once('=').unwrap_or((setting, ""));
        match name {
            "prefix" => self.prefix = decoded(value)?,
            "durability" => {
                self.durability = match value {
                    "strict" => RedisDurability::Strict,
                    "best-effort" => RedisDurability::BestEffort,
                    _ => return Err(bad(&format!("durability={value:?}; allowed: strict, best-effort"))),
                }
            }
            "wait" => self.wait = Some(count(name, value)?),
            "wait_timeout" => self.wait_timeout = duration(name, value)?,
            "timeout" => self.timeout = duration(name, value)?,
            "connections" => self.connections = count(name, value)?,
            "shards" => self.shards = Some(count(name, value)?),
            "audit" => self.audit_max = count(name, value)?,
            "queue" => self.queue_max = count(name, value)?,
            "ca" => self.ca = Some(PathBuf::from(decoded(value)?)),
            _ => {
                return Err(bad(&format!("{name:?} is not a setting of a Redis ledger; allowed: {ALLOWED}")));
            }
        }
        Ok(())
    }

    /// Refuses what cannot work.
    pub(crate) fn checked(self) -> Result<Self, StoreError> {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.:".contains(c);
        if self.prefix.is_empty() || self.prefix.len() > 64 || !self.prefix.chars().all(plain) {
            return Err(bad("prefix: 1 to 64 letters, digits, '-', '_', '.' or ':'"));
        }
        if self.kind == RedisKind::Cluster && self.database != 0 {
            return Err(bad("a cluster has only the database 0"));
        }
        for (name, number, least, most) in [
            ("connections", self.connections as u64, 1, 64),
            ("shards", u64::from(self.shards.unwrap_or(1)), 1, u64::from(SHARDS_MAX)),
            // A page of a listing is asked for at once.
            ("queue", self.queue_max as u64, 2 * PAGE_MAX as u64, 1 << 24),
            ("audit", self.audit_max, 1, 1 << 40),
        ] {
            if !(least..=most).contains(&number) {
                return Err(bad(&format!("{name}={number}; allowed: {least} to {most}")));
            }
        }
        let most = Duration::from_secs(3_600);
        for (name, time) in [("timeout", self.timeout), ("wait_timeout", self.wait_timeout)] {
            if time < Duration::from_millis(1) || time > most {
                return Err(bad(&format!("{name}: allowed: 1ms to 3600s")));
            }
        }
        Ok(self)
    }

    /// The address without secrets.
    pub fn describe(&self) -> String {
        let tls = if self.tls { "s" } else { "" };
        let cluster = if self.kind == RedisKind::Cluster { "+cluster" } else { "" };
        let servers: Vec<String> = self.servers.iter().map(RedisServer::to_string).collect();
        let database = if self.database == 0 { String::new() } else { format!("/{}", self.database) };
        let prefix = if self.prefix == "oncely" { String::new() } else { format!("?prefix={}", self.prefix) };
        format!("redis{tls}{cluster}://{}{database}{prefix}", servers.join(","))
    }
}

impl fmt::Debug for RedisOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RedisOptions({})", self.describe())
    }
}

/// Reads `HOST[:PORT]`, `[IPV6]:PORT` as well as an IPv6 number that a cluster gives without brackets.
pub(crate) fn server(text: &str) -> Result<RedisServer, StoreError> {
    let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, rest)) => (host, rest.strip_prefix(':').unwrap_or("")),
        None => text.rsplit_once(':').unwrap_or((text, "")),
    };
    if host.is_empty() {
        return Err(bad("it names no server; write redis://HOST:PORT"));
    }
    let port = if port.is_empty() { PORT } else { number("port", port)? };
    Ok(RedisServer { host: decoded(host)?, port })
}

/// The words never hold the address: it may carry a password.
fn bad(why: &str) -> StoreError {
    let message = format!("the address of the Redis ledger is not one: {why}; nothing was opened");
    StoreError::before(StoreErrorKind::BadAddress, message)
}

/// A number that may be a part of a password instead: it is not repeated.
fn number<T: std::str::FromStr>(what: &str, value: &str) -> Result<T, StoreError> {
    value.parse().map_err(|_| bad(&format!("its {what} is not a number, or too large")))
}

fn count<T: std::str::FromStr>(name: &str, value: &str) -> Result<T, StoreError> {
    value.parse().map_err(|_| bad(&format!("{name}={value:?} is not a number, or too large")))
}

fn duration(name: &str, value: &str) -> Result<Duration, StoreError> {
    let digits = value.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number: u64 = count(name, digits)?;
    match &value[digits.len()..] {
        "ms" => Ok(Duration::from_millis(number)),
        "s" => Ok(Duration::from_secs(number)),
        _ => Err(bad(&format!("{name}={value:?} has no known unit; allowed: ms, s"))),
    }
}

/// Undoes percent encoding.
fn decoded(text: &str) -> Result<String, StoreError> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let digits = rest.get(..2).and_then(|two| std::str::from_utf8(two).ok());
        let byte = digits.and_then(|two| u8::from_str_radix(two, 16).ok());
        bytes.push(byte.ok_or_else(|| bad("a % is not followed by two hexadecimal digits"))?);
        rest = &rest[2..];
    }
    String::from_utf8(bytes).map_err(|_| bad("a part of it is not UTF-8"))
}

#[cfg(test)]
mod tests;
