//! What a server has to be before anything is entrusted to it: a primary that keeps what it has acknowledged.

use oncely_core::{Millis, StoreError, StoreErrorKind};

use super::connect::Wire;
use super::options::{RedisDurability, RedisKind, RedisOptions, RedisServer};
use super::resp::{Value, command};

/// The oldest Redis whose commands are used. Valkey began later.
const OLDEST: (u32, u32) = (6, 2);

/// The first Redis whose append-only file has several parts.
const SEVEN: (u32, u32) = (7, 0);

/// What a server says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Profile {
    pub(crate) name: String,
    pub(crate) version: (u32, u32),
    pub(crate) replicas: u32,
    is_cluster: bool,
    is_primary: bool,
    aof: bool,
    /// The append-only file is being written for the first time: it was switched on, or its server has copied a primary.
    aof_is_being_made: bool,
    was_replica: bool,
    policy: String,
    maxmemory: u64,
    /// `None`: it may not be asked.
    fsync: Option<String>,
    no_fsync_on_rewrite: bool,
    /// When it was started, by its own clock; 0 if it does not say.
    pub(crate) started_at: Millis,
}

/// One thing that is wrong, and how it is mended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Finding {
    pub(crate) what: String,
    pub(crate) fix: String,
}

/// Asks a server.
pub(crate) async fn look(
    wire: &mut Wire,
    options: &RedisOptions,
    server: &RedisServer,
) -> Result<Profile, StoreError> {
    let commands = [
        command(&[b"INFO"]),
        command(&[b"CONFIG", b"GET", b"appendfsync"]),
        command(&[b"CONFIG", b"GET", b"no-appendfsync-on-rewrite"]),
    ];
    let replies = wire.ask(&commands, options.timeout, server).await?;
    let mut profile = match replies.as_slice() {
        [Value::Error(words), ..] => Err(before(super::errors::refused(words, &server.to_string()))),
        [info, fsync, rewriting] => read_profile(info.text().unwrap_or_default(), [fsync, rewriting])
            .ok_or_else(|| {
                let message =
                    format!("{server} does not say what it is; is it Redis or Valkey? nothing was written");
                StoreError::before(StoreErrorKind::Foreign, message)
            }),
        _ => Err(super::errors::odd(&Value::Nil, &server.to_string())),
    }?;
    if profile.aof_is_being_made && profile.is_seven() && !profile.was_replica {
        // Or it is rewritten for the first time since the server was started with it. Then nobody has switched it on.
        let asked = wire.ask(&[command(&[b"INFO", b"commandstats"])], options.timeout, server).await?;
        let called = asked.first().and_then(Value::text).unwrap_or_default();
        // What was called before the counts were set back is not known, nor where they are not told.
        let may_have_been = ["cmdstat_config|set:", "cmdstat_config|resetstat:"];
        profile.aof_is_being_made =
            called.is_empty() || may_have_been.iter().any(|name| called.contains(name));
    }
    Ok(profile)
}

fn before(mut error: StoreError) -> StoreError {
    error.wrote = oncely_core::Wrote::No;
    error
}

/// How many replicas are connected, as `INFO replication` says.
pub(crate) fn connected_replicas(info: &str) -> u32 {
    let count = info.lines().find_map(|line| line.trim_end().strip_prefix("connected_slaves:"));
    count.and_then(|count| count.parse().ok()).unwrap_or(0)
}

fn read_profile(info: &str, [fsync, rewriting]: [&Value; 2]) -> Option<Profile> {
    let field = |name: &str| {
        info.lines().find_map(|line| line.trim_end().strip_prefix(name)?.strip_prefix(':')).map(str::to_owned)
    };
    let number = |name: &str| field(name).and_then(|n| n.parse().ok()).unwrap_or(0);
    let setting = |reply: &Value| reply.items().get(1).and_then(Value::text).map(str::to_owned);
    let (name, version) = match field("valkey_version") {
        Some(version) => ("Valkey", version),
        None => ("Redis", field("redis_version")?),
    };
    let mut parts = version.split('.').map(|part| part.parse().unwrap_or(0));
    let numbers: (u32, u32) = (parts.next()?, parts.next().unwrap_or(0));
    // Before its first rewrite a file tells of no size that it began with; but before Redis 7 its own is the file's.
    let has_file = number("aof_base_size") > 0 || (numbers < SEVEN && number("aof_current_size") > 0);
    let is_rewritten = number("aof_rewrite_in_progress") > 0 || number("aof_rewrite_scheduled") > 0;
    Some(Profile {
        name: format!("{name} {version}"),
        version: numbers,
        replicas: connected_replicas(info),
        is_cluster: number("cluster_enabled") == 1,
        is_primary: field("role").as_deref() == Some("master"),
        aof: number("aof_enabled") == 1,
        aof_is_being_made: is_rewritten && !has_file,
        was_replica: field("master_replid2").is_some_and(|id| id.bytes().any(|digit| digit != b'0')),
        policy: field("maxmemory_policy").unwrap_or_default(),
        maxmemory: number("maxmemory"),
        fsync: setting(fsync),
        no_fsync_on_rewrite: setting(rewriting).is_some_and(|value| value != "no"),
        started_at: Millis(
            (number("server_time_usec") / 1_000).saturating_sub(number("uptime_in_seconds") * 1_000),
        ),
    })
}

impl Profile {
    /// Whether it has what came with Redis 7: channels that belong to a shard, and flags of scripts.
    pub(crate) fn is_seven(&self) -> bool {
        self.version >= SEVEN
    }

    /// What can lose or evict a record.
    pub(crate) fn risks(&self) -> Vec<Finding> {
        let mut found = Vec::new();
        let mut risk = |what: &str, fix: &str| found.push(Finding { what: what.into(), fix: fix.into() });
        if !self.aof {
            risk("appendonly is no: a restart loses records", "CONFIG SET appendonly yes");
        } else if self.aof_is_being_made {
            risk(
                "the append-only file is being written for the first time: until it is complete a restart loses records",
                "wait until INFO persistence says aof_rewrite_in_progress:0 and aof_rewrite_scheduled:0 (if it says \
                 aof_last_bgrewrite_status:err, look at the server's log)",
            );
        }
        match self.fsync.as_deref() {
            Some("always") => {}
            Some(fsync) => risk(
                &format!("appendfsync is {fsync}: a power cut loses acknowledged records"),
                "CONFIG SET appendfsync always",
            ),
            None => risk(
                "CONFIG GET is forbidden, so that appendfsync cannot be read",
                "let the user run CONFIG GET, or see to it that appendfsync is always",
            ),
        }
        if self.no_fsync_on_rewrite {
            risk(
                "no-appendfsync-on-rewrite is yes: a power cut while the file is rewritten loses acknowledged records",
                "CONFIG SET no-appendfsync-on-rewrite no",
            );
        }
        if self.policy != "noeviction" {
            risk(
                &format!("maxmemory-policy is {}: records are evicted when memory is full", self.policy),
                "CONFIG SET maxmemory-policy noeviction",
            );
        }
        found
    }

    /// What to know of a server that is not refused, where so many replicas have to confirm a write.
    pub(crate) fn remarks(&self, wait: Option<u32>) -> Vec<Finding> {
        let mut found = Vec::new();
        let mut remark = |what: &str, fix: &str| found.push(Finding { what: what.into(), fix: fix.into() });
        if self.maxmemory == 0 {
            remark(
                "maxmemory is 0: when the machine's memory is full, the system ends the server",
                "CONFIG SET maxmemory to less than the machine has",
            );
        }
        if self.replicas == 0 {
            remark(
                "no replica is connected: with the server's disk all records are gone",
                "add a replica, and ?wait=1 to the address",
            );
        }
        let confirming = wait.unwrap_or(1);
        if self.replicas > confirming {
            let connected = match self.replicas {
                1 => "a replica is connected".to_owned(),
                several => format!("{several} replicas are connected"),
            };
            let what = match confirming {
                0 => format!("{connected}, and none has to confirm a write: a failover can lose it"),
                _ => format!(
                    "{connected}, and wait is {confirming}: one that has not confirmed may be the one that is promoted"
                ),
            };
            remark(&what, &format!("add ?wait={} to the address", self.replicas));
        }
        found
    }

    /// Refuses a server that must not keep a ledger.
    pub(crate) fn check(&self, options: &RedisOptions, server: &RedisServer) -> Result<(), StoreError> {
        self.check_kind(options, server)?;
        let risks = self.risks();
        if risks.is_empty() || options.durability == RedisDurability::BestEffort {
            return Ok(());
        }
        let (what, fixes): (Vec<_>, Vec<_>) = risks.into_iter().map(|risk| (risk.what, risk.fix)).unzip();
        let why = format!(
            "could lose a record, and then an effect could happen twice: {}; to mend it: {}; to accept the risk add \
             ?durability=best-effort to the address",
            what.join("; "),
            fixes.join("; ")
        );
        Err(self.refuse(StoreErrorKind::Unsuitable, server, &why))
    }

    fn refuse(&self, kind: StoreErrorKind, server: &RedisServer, why: &str) -> StoreError {
        StoreError::before(kind, format!("{server} ({}) {why}; nothing was written", self.name))
    }

    /// Refuses a server that is not what the address says, or not a primary.
    pub(crate) fn check_kind(&self, options: &RedisOptions, server: &RedisServer) -> Result<(), StoreError> {
        let refuse = |kind, why: &str| self.refuse(kind, server, why);
        if self.version < OLDEST {
            return Err(refuse(StoreErrorKind::Unsuitable, "is too old; Redis 6.2 or Valkey is needed"));
        }
        match (options.kind, self.is_cluster) {
            (RedisKind::Single, true) => {
                let why = "is part of a cluster; write redis+cluster:// instead of redis://";
                return Err(refuse(StoreErrorKind::BadAddress, why));
            }
            (RedisKind::Cluster, false) => {
                let why = "is not part of a cluster; write redis:// instead of redis+cluster://";
                return Err(refuse(StoreErrorKind::BadAddress, why));
            }
            _ => {}
        }
        if !self.is_primary {
            return Err(refuse(StoreErrorKind::ReadOnly, "is a replica; name its primary"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Profile, Value, read_profile};

    fn profile(info: &str) -> Option<Profile> {
        let pair = |texts: [&str; 2]| Value::Array(texts.map(|t| Value::Bytes(t.into())).to_vec());
        read_profile(info, [&pair(["appendfsync", "always"]), &pair(["no-appendfsync-on-rewrite", "no"])])
    }

    const GOOD: &str = "# Server\r\nredis_version:7.0.15\r\nrole:master\r\nconnected_slaves:2\r\naof_enabled:1\r\n\
                        maxmemory:0\r\nmaxmemory_policy:noeviction\r\ncluster_enabled:0\r\n";

    #[test]
    fn a_server_is_read_by_what_it_says() {
        let good = profile(GOOD).unwrap();
        assert_eq!((good.version, good.replicas), ((7, 0), 2));
        assert_eq!(good.risks(), []);
        let valkey = profile(&GOOD.replace("role", "valkey_version:8.1.3\r\nrole")).unwrap();
        assert_eq!((valkey.name.as_str(), valkey.version), ("Valkey 8.1.3", (8, 1)));
        assert_eq!(profile("hello"), None);
    }

    #[test]
    fn replicas_that_need_not_confirm_are_remarked_on() {
        let remarks = |wait| {
            let found = profile(GOOD).unwrap().remarks(wait);
            found.into_iter().map(|f| format!("{}|{}", f.what, f.fix)).collect::<Vec<_>>().join("\n")
        };
        for (wait, words) in [(None, "wait is 1"), (Some(1), "wait is 1"), (Some(0), "none has to confirm")] {
            let told = remarks(wait);
            assert!(told.contains(words) && told.contains("?wait=2"), "{wait:?}: {told}");
        }
        assert!(!remarks(Some(2)).contains("replica"), "all of them confirm");
    }

    #[test]
    fn each_risk_is_named_with_what_mends_it() {
        let risks = |info: &str| {
            let found = profile(info).unwrap().risks();
            found.into_iter().map(|f| format!("{}|{}", f.what, f.fix)).collect::<Vec<_>>().join("\n")
        };
        assert!(risks(&GOOD.replace("aof_enabled:1", "aof_enabled:0")).contains("CONFIG SET appendonly yes"));
        let evicting = risks(&GOOD.replace("noeviction", "allkeys-lru"));
        assert!(
            evicting.contains("allkeys-lru") && evicting.contains("CONFIG SET maxmemory-policy noeviction")
        );
        let made = GOOD.replace("aof_enabled:1", "aof_enabled:1\r\naof_rewrite_in_progress:1");
        for (version, sizes, is_being_made) in [
            ("7.0.15", "aof_current_size:0\r\naof_base_size:0", true),
            ("7.0.15", "aof_current_size:70\r\naof_base_size:0", true),
            ("7.0.15", "aof_current_size:88\r\naof_base_size:88", false),
            ("6.2.14", "aof_current_size:0\r\naof_base_size:0", true),
            ("6.2.14", "aof_current_size:70\r\naof_base_size:0", false),
        ] {
            let info = made.replace("7.0.15", version).replace("maxmemory:0", sizes);
            let told = risks(&info);
            assert_eq!(
                told.contains("wait until INFO persistence"),
                is_being_made,
                "{version} {sizes}: {told}"
            );
        }
        let hidden = read_profile(GOOD, [&Value::Error("NOPERM".into()); 2]).unwrap().risks();
        assert!(hidden[0].what.contains("CONFIG GET is forbidden"));
    }
}
