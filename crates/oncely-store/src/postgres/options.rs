//! How a PostgreSQL ledger is reached, and the address that says so.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use oncely_core::{StoreError, StoreErrorKind};
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};

use super::limits::{ANSWER_WITHIN, POOL_MAX};

/// The settings that an address may carry, for messages.
const ALLOWED: &str = "schema, pool, durability, prepared, listen, wait, queue, sslmode, sslrootcert, and what a \
                       PostgreSQL address takes: host, port, dbname, user, password, connect_timeout, application_name";
/// Longest name that PostgreSQL keeps whole, in bytes.
const NAME_BYTES_MAX: usize = 63;

/// Whom to trust on the other end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tls {
    /// No encryption.
    Disable,
    /// Encrypted where the server offers it; whoever answers is believed.
    Prefer,
    /// Encrypted or not at all; whoever answers is believed.
    Require,
    /// Encrypted, and the certificate must be valid for the host's name.
    VerifyFull,
}

/// What is asked of the server's settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// A setting that can lose an acknowledged record is refused.
    Strict,
    /// Such settings are accepted.
    BestEffort,
}

/// Whether statements are prepared under a name, which only works where a connection has a session of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prepared {
    /// Where the server itself is at the other end; not where something stands between that may be a pooler.
    Auto,
    /// Always: what stands between is known to leave sessions alone.
    Always,
    /// Never: a pooler gives each transaction another session.
    Never,
}

/// Where a PostgreSQL ledger lies and how it behaves. Its `Debug` form and its description hold no password.
#[derive(Clone)]
pub struct PostgresOptions {
    /// Servers, database, user, password.
    pub(crate) config: Config,
    /// The same for the one connection that listens, where that must go another way.
    pub(crate) listen: Option<Config>,
    /// The schema that holds the ledger's tables.
    pub schema: String,
    /// Most connections for calls. One more listens.
    pub pool: usize,
    /// What is asked of the server's settings.
    pub durability: Durability,
    /// Whether statements are prepared under a name.
    pub prepared: Prepared,
    /// Whom to trust.
    pub tls: Tls,
    /// A file with the certificates to trust instead of the system's.
    pub root_cert: Option<PathBuf>,
    /// How long a request waits for a connection before it fails.
    pub wait: Duration,
    /// How many requests may wait; more are refused.
    pub queue_max: usize,
    /// How often a caller that waits for a record looks by itself where messages arrive: one can be lost with its sender.
    /// Whoever waits may see that long after it that an owner is lost: leave it short.
    pub look_every: Duration,
    /// How long an answer of the server is awaited before a caller is told that it is not known what was written. To be left
    /// below what a caller waits for its claim.
    pub answer_within: Duration,
}

impl PostgresOptions {
    /// Reads `postgres://USER:PASSWORD@HOST[:PORT][,HOST...]/DATABASE[?schema=oncely&pool=8&...]`.
    pub fn parse(address: &str) -> Result<Self, StoreError> {
        let (server, settings) = address.split_once('?').unwrap_or((address, ""));
        let mut own = Vec::new();
        let mut plain = Vec::new();
        for setting in settings.split('&').filter(|setting| !setting.is_empty()) {
            let (name, value) = form_urlencoded::parse(setting.as_bytes())
                .next()
                .map(|(name, value)| (name.into_owned(), value.into_owned()))
                .unwrap_or_default();
            if OWN.contains(&name.as_str()) { own.push((name, value)) } else { plain.push(setting) }
        }
        let mut options = Self::new(config(&format!("{server}?{}", plain.join("&")))?);
        for (name, value) in own {
            options.set(&name, &value)?;
        }
        options.finish();
        Ok(options)
    }

    fn new(config: Config) -> Self {
        Self {
            config,
            listen: None,
            schema: "oncely".to_owned(),
            pool: 8,
            durability: Durability::Strict,
            prepared: Prepared::Auto,
            tls: Tls::Prefer,
            root_cert: None,
            wait: Duration::from_secs(10),
            queue_max: 16_384,
            look_every: Duration::from_millis(250),
            answer_within: ANSWER_WITHIN,
        }
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), StoreError> {
        match name {
            "schema" => self.schema = schema_name(value)?,
            "pool" => self.pool = number(name, value, POOL_MAX)?,
            "queue" => self.queue_max = number(name, value, 1_000_000)?,
            "wait" => self.wait = Duration::from_secs(number(name, value, 600)? as u64),
            "durability" => {
                self.durability = choice(
                    name,
                    value,
                    &[("strict", Durability::Strict), ("best-effort", Durability::BestEffort)],
                )?;
            }
            "prepared" => {
                let all =
                    [("auto", Prepared::Auto), ("always", Prepared::Always), ("never", Prepared::Never)];
                self.prepared = choice(name, value, &all)?;
            }
            "sslmode" => {
                let all = [
                    ("disable", Tls::Disable),
                    ("prefer", Tls::Prefer),
                    ("require", Tls::Require),
                    ("verify-full", Tls::VerifyFull),
                ];
                self.tls = choice(name, value, &all)?;
            }
            "sslrootcert" => self.root_cert = Some(PathBuf::from(value)),
            _ => self.listen = Some(config(value)?),
        }
        Ok(())
    }

    /// What follows from several settings together.
    fn finish(&mut self) {
        let mode = match self.tls {
            Tls::Disable => SslMode::Disable,
            Tls::Prefer => SslMode::Prefer,
            Tls::Require | Tls::VerifyFull => SslMode::Require,
        };
        for config in [Some(&mut self.config), self.listen.as_mut()].into_iter().flatten() {
            config.ssl_mode(mode);
        }
    }

    /// Whether the address names several servers, of which one takes over from another.
    pub(crate) fn names_several(&self) -> bool {
        self.config.get_hosts().len() > 1
    }

    /// The address without its secrets.
    pub fn describe(&self) -> String {
        let (config, mut servers) = (&self.config, Vec::new());
        for (at, host) in config.get_hosts().iter().enumerate() {
            let port = port(config, at);
            servers.push(match host {
                Host::Tcp(name) if name.contains(':') => format!("[{name}]:{port}"),
                Host::Tcp(name) => format!("{name}:{port}"),
                Host::Unix(folder) => format!("{}:{port}", folder.display().to_string().replace('/', "%2F")),
            });
        }
        let user = config.get_user().map(|user| format!("{user}@")).unwrap_or_default();
        let database = config.get_dbname().or(config.get_user()).unwrap_or("");
        format!("postgres://{user}{}/{database}?schema={}", servers.join(","), self.schema)
    }
}

impl fmt::Debug for PostgresOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresOptions")
            .field("address", &self.describe())
            .field("pool", &self.pool)
            .field("durability", &self.durability)
            .field("prepared", &self.prepared)
            .field("tls", &self.tls)
            .finish_non_exhaustive()
    }
}

/// The settings that are ours and not the client library's.
const OWN: [&str; 9] =
    ["schema", "pool", "durability", "prepared", "listen", "wait", "queue", "sslmode", "sslrootcert"];

/// The port of the server at this place in the list.
pub(crate) fn port(config: &Config, at: usize) -> u16 {
    config.get_ports().get(at).or_else(|| config.get_ports().first()).copied().unwrap_or(5432)
}

fn config(address: &str) -> Result<Config, StoreError> {
    // The address is not repeated: it may hold a password.
    let mut config: Config = address.parse().map_err(|error: tokio_postgres::Error| {
        let why = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
        bad(format!(
            "the address of the PostgreSQL ledger cannot be read ({why}); nothing was opened; write \
             postgres://USER@HOST/DATABASE; settings allowed: {ALLOWED}"
        ))
    })?;
    if config.get_hosts().is_empty() {
        return Err(bad("the address names no server; write postgres://USER@HOST/DATABASE".to_owned()));
    }
    // An address whose password holds an `@` of its own is cut in the wrong place: what then looks like a host is none.
    let is_host = |host: &Host| match host {
        Host::Tcp(name) => !name.is_empty() && !name.contains(|c: char| "@?/ \t".contains(c)),
        Host::Unix(_) => true,
    };
    if !config.get_hosts().iter().all(is_host) {
        return Err(bad(
            "the address names a server that cannot be one; write special characters in the password as %40 (@), \
             %2F (/), %3F (?); nothing was opened"
                .to_owned(),
        ));
    }
    if config.get_ports().len() > 1 && config.get_ports().len() != config.get_hosts().len() {
        return Err(bad("the address names more ports than servers, or fewer".to_owned()));
    }
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(Duration::from_secs(5));
    }
    if config.get_application_name().is_none() {
        config.application_name("oncely");
    }
    Ok(config)
}

/// Any name that PostgreSQL takes; it is quoted wherever it is used.
fn schema_name(value: &str) -> Result<String, StoreError> {
    let fits =
        (1..=NAME_BYTES_MAX).contains(&value.len()) && !value.contains('\0') && !value.starts_with("pg_");
    if fits {
        return Ok(value.to_owned());
    }
    Err(bad(format!("schema={value:?} is no name for a schema; it needs 1 to {NAME_BYTES_MAX} bytes")))
}

fn number(name: &str, value: &str, most: usize) -> Result<usize, StoreError> {
    let parsed = value.parse().ok().filter(|number| (1..=most).contains(number));
    parsed.ok_or_else(|| bad(format!("{name}={value:?} is not a number from 1 to {most}")))
}

fn choice<T: Copy>(name: &str, value: &str, all: &[(&str, T)]) -> Result<T, StoreError> {
    let names: Vec<&str> = all.iter().map(|(name, _)| *name).collect();
    let found = all.iter().find(|(name, _)| *name == value).map(|(_, choice)| *choice);
    found.ok_or_else(|| bad(format!("{name}={value:?} is not known; allowed: {}", names.join(", "))))
}

fn bad(message: String) -> StoreError {
    StoreError::before(StoreErrorKind::BadAddress, message)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Durability, PostgresOptions, Prepared, Tls};

    #[test]
    fn an_address_sets_what_it_names_and_nothing_else() {
        let address = "postgres://me:pw@a:1,b:2/shop?schema=My%20Ledger&pool=3&durability=best-effort&prepared=never\
                       &wait=2&sslmode=verify-full&connect_timeout=7&application_name=x";
        let options = PostgresOptions::parse(address).unwrap();
        assert_eq!((options.schema.as_str(), options.pool), ("My Ledger", 3));
        assert_eq!((options.durability, options.prepared), (Durability::BestEffort, Prepared::Never));
        assert_eq!((options.wait, options.tls), (Duration::from_secs(2), Tls::VerifyFull));
        assert_eq!(options.config.get_connect_timeout(), Some(&Duration::from_secs(7)));
        assert_eq!(options.config.get_application_name(), Some("x"));
        assert_eq!(options.describe(), "postgres://me@a:1,b:2/shop?schema=My Ledger");
        let plain = PostgresOptions::parse("postgresql://h/d").unwrap();
        assert_eq!((plain.schema.as_str(), plain.pool, plain.tls), ("oncely", 8, Tls::Prefer));
        assert_eq!((plain.durability, plain.prepared), (Durability::Strict, Prepared::Auto));
    }

    #[test]
    fn the_listener_may_go_another_way() {
        let options =
            PostgresOptions::parse("postgres://p@pooler:6432/d?listen=postgres://p:s3cret@direct:5432/d")
                .unwrap();
        let listen = options.listen.as_ref().unwrap();
        assert_eq!(listen.get_ports(), [5432]);
        assert!(!format!("{options:?}").contains("s3cret"));
    }

    #[test]
    fn a_bad_setting_is_refused_with_what_is_allowed_and_without_the_password() {
        for (address, expected) in [
            ("postgres://u:s3cret@h/d?pool=0", "from 1 to 256"),
            ("postgres://u:s3cret@h/d?pool=many", "from 1 to 256"),
            ("postgres://u:s3cret@h/d?colour=red", "settings allowed: schema"),
            ("postgres://u:s3cret@h/d?durability=some", "allowed: strict, best-effort"),
            ("postgres://u:s3cret@h/d?sslmode=allow", "verify-full"),
            ("postgres://u:s3cret@h/d?schema=", "1 to 63 bytes"),
            ("postgres://u:s3cret@h/d?schema=pg_ledger", "no name for a schema"),
            ("postgres://u:s3cret@h:port/d", "cannot be read"),
            ("postgres:///d", "names no server"),
            ("postgres://u:p@s3cret@h/d", "in the password as %40"),
        ] {
            let message = PostgresOptions::parse(address).unwrap_err().message;
            assert!(message.contains(expected), "{address}: {message}");
            assert!(!message.contains("s3cret"), "{message}");
        }
    }
}
