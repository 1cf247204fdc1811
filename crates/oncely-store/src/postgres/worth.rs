//! What an answer is worth: which server gave it, whether that still takes writes, and what its commits wait for.
//!
//! All of it can change under a living connection: a reload, an `ALTER ROLE`, another session behind a pooler, or another
//! server there. So every answer brings it along, last, or a look that was sent right behind the request does.

use std::time::SystemTime;

use tokio_postgres::Row;

use super::errors::{Said, Trouble};
use super::settings::Server;

/// Which server answers, and what a commit waits for there; last in every answer to a write.
pub(crate) const COMMIT: &str =
    "{born}, current_setting('synchronous_commit'), current_setting('synchronous_standby_names') <> ''";
/// Whether the server takes writes, and then the same; last in every answer to a read. A server that has become a standby, or
/// was fenced, answers reads as before: with what was true once.
pub(crate) const STANDING: &str = "current_setting('transaction_read_only'), {born}, \
     current_setting('synchronous_commit'), current_setting('synchronous_standby_names') <> ''";

/// When the server was started, which tells it from every other that can be the primary: roles change with a restart, or
/// with the server. This stands for `{born}` where something may stand between that passes on to another one.
pub(crate) const BORN: &str = "pg_postmaster_start_time()";
/// And this where nothing can, or where the server lacks that function.
pub(crate) const UNTOLD: &str = "NULL::timestamptz";

/// What an answer says of its server, compared with what was found when the connection was made.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Worth {
    Same,
    /// Other settings, which lose no more than those that were judged. The server is to be judged anew.
    Other,
    /// What was acknowledged can be lost that could not be before.
    Less(String),
}

/// Compares the end of an answer with what was judged.
pub(crate) fn of(row: &Row, judged: &Server) -> Result<Worth, Trouble> {
    let at = row.len().saturating_sub(2);
    Ok(compare(judged, row.try_get(at)?, row.try_get(at + 1)?))
}

/// Refuses the answer of another server than the one that was judged. What it keeps, which ledger it has, whether it is past,
/// and by which clock it stamps, nobody has asked.
pub(crate) fn refuse_another(row: &Row, judged: &Server) -> Result<(), Trouble> {
    let born: Option<SystemTime> = row.try_get(row.len().saturating_sub(3))?;
    match born.is_none() || born == judged.born {
        true => Ok(()),
        false => {
            let what = "another server answers than the one that was judged, or it was started anew";
            Err(Trouble::Warned(what.to_owned()))
        }
    }
}

/// Refuses the answer of a server that does not take writes.
pub(crate) fn refuse_read_only(row: &Row) -> Result<(), Trouble> {
    match row.try_get::<_, &str>(row.len().saturating_sub(4))? {
        "off" => Ok(()),
        // As it refuses a write.
        _ => Err(Trouble::Server(Box::new(Said {
            is_error: true,
            code: "25006".to_owned(),
            message: "the server does not take writes any more, so that what it says may be past".to_owned(),
            detail: None,
        }))),
    }
}

fn compare(judged: &Server, commit: &str, has_standbys: bool) -> Worth {
    let known = judged.synchronous_commit.as_str();
    if strength(commit, has_standbys) < strength(known, judged.has_standbys) {
        let what = match commit {
            "off" | "local" | "remote_write" => format!("synchronous_commit has been set to {commit}"),
            _ => "commits have stopped waiting for a standby".to_owned(),
        };
        return Worth::Less(what);
    }
    match (commit, has_standbys) == (known, judged.has_standbys) {
        true => Worth::Same,
        false => Worth::Other,
    }
}

/// How many of its places a commit has reached: none, the server's disk, a standby's memory, a standby's disk.
fn strength(commit: &str, has_standbys: bool) -> u8 {
    match (commit, has_standbys) {
        ("off", _) => 0,
        ("local", _) | (_, false) => 1,
        ("remote_write", true) => 2,
        _ => 3,
    }
}

#[cfg(test)]
mod tests {
    use super::{Worth, compare};
    use crate::postgres::settings::Server;
    use oncely_core::Millis;

    #[test]
    fn only_what_loses_more_than_was_judged_is_less() {
        let less = |worth: Worth| matches!(worth, Worth::Less(_));
        for (judged, answered, is_less) in [
            (("on", false), ("off", false), true),
            (("on", true), ("off", true), true),
            (("on", true), ("on", false), true),
            (("on", true), ("local", true), true),
            (("on", true), ("remote_write", true), true),
            (("remote_apply", true), ("on", true), false),
            (("on", false), ("local", false), false),
            (("on", false), ("on", true), false),
            (("local", false), ("local", true), false),
        ] {
            let server = Server {
                is_direct: true,
                is_ours_alone: true,
                timeline: 1,
                born: None,
                started: Millis(0),
                now: Millis(0),
                has_standbys: judged.1,
                synchronous_commit: judged.0.to_owned(),
            };
            assert_eq!(compare(&server, judged.0, judged.1), Worth::Same);
            let worth = compare(&server, answered.0, answered.1);
            assert_eq!(less(worth), is_less, "{judged:?} {answered:?}");
            assert_ne!(compare(&server, answered.0, answered.1), Worth::Same);
        }
    }
}
