//! What is asked of a server before anything is entrusted to it. Asked on every new connection: after a failover it is
//! another server, with settings of its own.

use std::net::SocketAddr;
use std::time::SystemTime;

use oncely_core::{Millis, StoreError, StoreErrorKind};
use tokio_postgres::Client;
use tokio_postgres::types::{ToSql, Type};

use super::errors::{Doing, Trouble};
use super::options::{Durability, PostgresOptions};
use super::worth::{BORN, UNTOLD};

/// The oldest server that is supported.
const OLDEST: i32 = 130_000;

/// How it tells what grows with every change of roles, and since when its clock is the one that stamps. A standby that is
/// promoted goes on without a restart, and then still tells when the last commit that it took over was made, by the clock of
/// the server before it; commits are in the log nearly in the order of their times.
const TIMELINE: &str = "CASE WHEN pg_is_in_recovery() THEN 0 ELSE \
     ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::int8 END";
const STARTED: &str =
    "greatest(pg_postmaster_start_time(), pg_last_xact_replay_timestamp() + interval '1 second')";

/// For one that is not PostgreSQL itself, and has no such functions: no change of roles can be seen, and as it may have been
/// started just now, no age is certain.
const NO_TIMELINE: &str = "0::int8";
const STARTED_NOW: &str = "clock_timestamp()";

/// What the server says of a function that it does not have.
const NO_FUNCTION: &str = "42883";

const ASK: &str = "SELECT current_setting('server_version_num')::int4, current_setting('server_encoding'), \
     pg_is_in_recovery(), current_setting('transaction_read_only'), current_setting('synchronous_commit'), \
     current_setting('fsync'), current_setting('full_page_writes'), current_setting('synchronous_standby_names'), \
     current_setting('statement_timeout'), current_setting('transaction_timeout', true), \
     current_setting('client_min_messages'), \
     {timeline}, floor(date_part('epoch', {started}) * 1000)::int8, \
     floor(date_part('epoch', clock_timestamp()) * 1000)::int8, \
     coalesce(host(inet_client_addr()) = $1 AND inet_client_port() = $2, false), \
     coalesce(host(inet_server_addr()) = $3 AND inet_server_port() = $4, false), {born}";

/// What a server says of itself.
#[derive(Debug, Clone)]
struct Answers {
    version: i32,
    encoding: String,
    is_standby: bool,
    read_only: String,
    synchronous_commit: String,
    fsync: String,
    full_page_writes: String,
    standbys: String,
    statement_timeout: String,
    transaction_timeout: Option<String>,
    client_min_messages: String,
    /// How many servers the address names.
    servers: usize,
}

/// What is remembered of a server that was found fit.
#[derive(Debug, Clone)]
pub(crate) struct Server {
    /// Whether it sees us at the very address that we speak from. If not, something may stand between, and give each
    /// transaction another session.
    pub(crate) is_direct: bool,
    /// And it has the address that we speak to, so that it cannot be somebody else's connection whose port happens to be
    /// ours: what is set in the session stays with us.
    pub(crate) is_ours_alone: bool,
    /// Grows with every change of roles: of two that both call themselves primary, the older one is past.
    pub(crate) timeline: u64,
    /// When it was started, by which its answers are told from another one's. A relative of PostgreSQL may not say so.
    pub(crate) born: Option<SystemTime>,
    /// Since when its clock is the one that stamps: it was started, or took over.
    pub(crate) started: Millis,
    /// What its clock says.
    pub(crate) now: Millis,
    /// Whether commits wait for a standby.
    pub(crate) has_standbys: bool,
    /// For what they wait.
    pub(crate) synchronous_commit: String,
}

/// The two ends of a connection over TCP.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Way {
    pub(crate) from: SocketAddr,
    pub(crate) to: SocketAddr,
}

/// Refuses a server that cannot keep the ledger's promises; answers what is to be remembered of it.
pub(crate) async fn check(
    client: &Client,
    options: &PostgresOptions,
    way: Option<Way>,
) -> Result<Server, StoreError> {
    let address = options.describe();
    let ends = |of: fn(&Way) -> SocketAddr| {
        let end = way.as_ref().map(of);
        end.map(|end| (end.ip().to_canonical().to_string(), i32::from(end.port()))).unzip()
    };
    let ((from, from_port), (to, to_port)) = (ends(|way| way.from), ends(|way| way.to));
    let params = [
        (&from as &(dyn ToSql + Sync), Type::TEXT),
        (&from_port, Type::INT4),
        (&to, Type::TEXT),
        (&to_port, Type::INT4),
    ];
    let ask = async |timeline: &str, started: &str, born: &str| {
        let sql = ASK.replace("{timeline}", timeline).replace("{started}", started).replace("{born}", born);
        client.query_typed(&sql, &params).await.map_err(Trouble::from)
    };
    let asked = match ask(TIMELINE, STARTED, BORN).await {
        Err(trouble) if trouble.code() == Some(NO_FUNCTION) => match options.durability {
            Durability::Strict => return Err(not_postgres(&trouble, &address)),
            Durability::BestEffort => ask(NO_TIMELINE, STARTED_NOW, UNTOLD).await,
        },
        asked => asked,
    };
    let rows = asked.map_err(|trouble| trouble.at(&address, Doing::Reading))?;
    let fail = |error: tokio_postgres::Error| Trouble::from(error).at(&address, Doing::Reading);
    let Some(row) = rows.first() else {
        return Err(refusal(
            &address,
            StoreErrorKind::Foreign,
            "it does not say what it is",
            "name another server",
        ));
    };
    let answers = Answers {
        version: row.try_get(0).map_err(fail)?,
        encoding: row.try_get(1).map_err(fail)?,
        is_standby: row.try_get(2).map_err(fail)?,
        read_only: row.try_get(3).map_err(fail)?,
        synchronous_commit: row.try_get(4).map_err(fail)?,
        fsync: row.try_get(5).map_err(fail)?,
        full_page_writes: row.try_get(6).map_err(fail)?,
        standbys: row.try_get(7).map_err(fail)?,
        statement_timeout: row.try_get(8).map_err(fail)?,
        transaction_timeout: row.try_get(9).map_err(fail)?,
        client_min_messages: row.try_get(10).map_err(fail)?,
        servers: options.config.get_hosts().len(),
    };
    judge(&answers, options.durability, &address)?;
    let number = |at: usize| row.try_get::<_, i64>(at).map_err(fail).map(|n| u64::try_from(n).unwrap_or(0));
    Ok(Server {
        is_direct: row.try_get(14).map_err(fail)?,
        is_ours_alone: row.try_get::<_, bool>(14).map_err(fail)? && row.try_get(15).map_err(fail)?,
        timeline: number(11)?,
        born: row.try_get(16).map_err(fail)?,
        started: Millis(number(12)?),
        now: Millis(number(13)?),
        has_standbys: answers.has_standbys(),
        synchronous_commit: answers.synchronous_commit,
    })
}

/// What cannot be asked cannot be trusted.
fn not_postgres(trouble: &Trouble, address: &str) -> StoreError {
    let StoreError { message, .. } = trouble.at(address, Doing::Reading);
    let what = format!(
        "it is not PostgreSQL itself, as it lacks what tells of a change of roles, so that what a failover loses would \
         not be noticed ({message})"
    );
    let next = "use PostgreSQL; or accept the loss with ?durability=best-effort";
    refusal(address, StoreErrorKind::Unsuitable, &what, next)
}

impl Answers {
    fn has_standbys(&self) -> bool {
        !self.standbys.trim().is_empty()
    }
}

fn judge(answers: &Answers, durability: Durability, address: &str) -> Result<(), StoreError> {
    let refuse = |kind, what: &str, next: &str| Err(refusal(address, kind, what, next));
    if answers.is_standby {
        return refuse(StoreErrorKind::ReadOnly, "the server is a standby", "name the primary");
    }
    if answers.read_only != "off" {
        return refuse(
            StoreErrorKind::ReadOnly,
            "default_transaction_read_only is on",
            "ALTER ROLE … SET default_transaction_read_only = off",
        );
    }
    if answers.version < OLDEST {
        let what = format!("the server has version {}", answers.version / 10_000);
        return refuse(StoreErrorKind::Unsuitable, &what, "use PostgreSQL 13 or later");
    }
    if answers.encoding != "UTF8" {
        let what = format!("the database has the encoding {}", answers.encoding);
        return refuse(StoreErrorKind::Unsuitable, &what, "name a database with the encoding UTF8");
    }
    if durability == Durability::BestEffort {
        return Ok(());
    }
    match risk(answers) {
        Some((what, next)) => {
            let next = format!("{next}; or accept the loss with ?durability=best-effort");
            refuse(StoreErrorKind::Unsuitable, &what, &next)
        }
        None => Ok(()),
    }
}

/// The first setting with which a record that was acknowledged can be lost, and what to set.
fn risk(answers: &Answers) -> Option<(String, String)> {
    let has_standbys = answers.has_standbys();
    let lost = |setting: &str, value: &str, when: &str, next: &str| {
        let what = format!("with {setting} = {value} a record that was acknowledged can be lost {when}");
        Some((what, next.to_owned()))
    };
    if answers.fsync != "on" {
        return lost("fsync", &answers.fsync, "when the server's machine stops", "set fsync = on");
    }
    if answers.full_page_writes != "on" {
        let next = "set full_page_writes = on";
        return lost("full_page_writes", &answers.full_page_writes, "when the server's machine stops", next);
    }
    let next = "set synchronous_commit = on, for the ledger's role at least: ALTER ROLE … SET synchronous_commit = on";
    let commit = answers.synchronous_commit.as_str();
    match commit {
        "off" => return lost("synchronous_commit", commit, "when the server stops", next),
        "local" | "remote_write" if has_standbys => {
            return lost("synchronous_commit", commit, "when the standby takes over", next);
        }
        _ => {}
    }
    if !has_standbys && answers.servers > 1 {
        let next = "set synchronous_standby_names, so that whoever takes over has what was acknowledged";
        return lost("synchronous_standby_names", "''", "when another of the servers takes over", next);
    }
    // What says that a commit did not wait for its standby is a warning.
    if has_standbys && matches!(answers.client_min_messages.as_str(), "error" | "fatal" | "panic") {
        let next = "ALTER ROLE … SET client_min_messages = warning, for the ledger's role";
        let value = &answers.client_min_messages;
        return lost("client_min_messages", value, "unnoticed when the standby takes over", next);
    }
    // A time limit that strikes while the commit waits for its standby lets the commit stand, unreplicated.
    let limits = [
        ("statement_timeout", Some(answers.statement_timeout.as_str())),
        ("transaction_timeout", answers.transaction_timeout.as_deref()),
    ];
    let limit = limits.into_iter().find(|(_, value)| has_standbys && value.is_some_and(|value| value != "0"));
    let (setting, value) = limit?;
    let next = format!("ALTER ROLE … SET {setting} = 0, for the ledger's role");
    lost(setting, value.unwrap_or_default(), "when the standby takes over", &next)
}

fn refusal(address: &str, kind: StoreErrorKind, what: &str, next: &str) -> StoreError {
    StoreError::before(kind, format!("the ledger {address} is refused: {what}; nothing was written; {next}"))
}

#[cfg(test)]
mod tests {
    use oncely_core::StoreErrorKind;

    use super::{Answers, judge};
    use crate::postgres::options::Durability;

    fn good() -> Answers {
        Answers {
            version: 150_018,
            encoding: "UTF8".into(),
            is_standby: false,
            read_only: "off".into(),
            synchronous_commit: "on".into(),
            fsync: "on".into(),
            full_page_writes: "on".into(),
            standbys: String::new(),
            statement_timeout: "0".into(),
            transaction_timeout: None,
            client_min_messages: "notice".into(),
            servers: 1,
        }
    }

    #[test]
    fn a_server_that_keeps_what_it_acknowledges_is_taken() {
        let synchronous = Answers { standbys: "FIRST 1 (b)".into(), ..good() };
        let applied = Answers { synchronous_commit: "remote_apply".into(), ..synchronous.clone() };
        let alone = Answers { synchronous_commit: "local".into(), ..good() };
        let limited = Answers { statement_timeout: "5s".into(), ..good() };
        let several = Answers { servers: 2, ..synchronous.clone() };
        for answers in [good(), synchronous, applied, alone, limited, several] {
            assert!(judge(&answers, Durability::Strict, "a").is_ok(), "{answers:?}");
        }
    }

    #[test]
    fn what_can_lose_a_record_is_refused_unless_it_is_accepted() {
        let standbys = || "*".to_owned();
        for (answers, expected) in [
            (Answers { fsync: "off".into(), ..good() }, "set fsync = on"),
            (Answers { full_page_writes: "off".into(), ..good() }, "set full_page_writes = on"),
            (Answers { synchronous_commit: "off".into(), ..good() }, "set synchronous_commit = on"),
            (
                Answers { synchronous_commit: "local".into(), standbys: standbys(), ..good() },
                "when the standby takes over",
            ),
            (
                Answers { synchronous_commit: "remote_write".into(), standbys: standbys(), ..good() },
                "set synchronous_commit = on",
            ),
            (
                Answers { statement_timeout: "5s".into(), standbys: standbys(), ..good() },
                "SET statement_timeout = 0",
            ),
            (
                Answers { transaction_timeout: Some("1min".into()), standbys: standbys(), ..good() },
                "SET transaction_timeout = 0",
            ),
            (Answers { servers: 2, ..good() }, "set synchronous_standby_names"),
            (
                Answers { client_min_messages: "error".into(), standbys: standbys(), ..good() },
                "SET client_min_messages = warning",
            ),
        ] {
            let error = judge(&answers, Durability::Strict, "a").unwrap_err();
            assert!(error.message.contains(expected), "{}", error.message);
            assert!(error.message.contains("?durability=best-effort"), "{}", error.message);
            assert_eq!(error.kind, StoreErrorKind::Unsuitable);
            assert!(judge(&answers, Durability::BestEffort, "a").is_ok(), "{answers:?}");
        }
    }

    #[test]
    fn a_server_that_cannot_hold_a_ledger_is_refused_whatever_is_accepted() {
        for (answers, expected) in [
            (Answers { is_standby: true, ..good() }, "name the primary"),
            (Answers { read_only: "on".into(), ..good() }, "default_transaction_read_only"),
            (Answers { version: 120_022, ..good() }, "PostgreSQL 13"),
            (Answers { encoding: "SQL_ASCII".into(), ..good() }, "UTF8"),
        ] {
            let error = judge(&answers, Durability::BestEffort, "a").unwrap_err();
            assert!(error.message.contains(expected), "{}", error.message);
        }
    }
}
