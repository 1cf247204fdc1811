//! What went wrong, told as the contract wants it: what kind, in words, and whether something may have been written.

use oncely_core::{StoreError, StoreErrorKind, Wrote};

use super::resp::{Garbled, Value};
use crate::wire::Damaged;

/// How servers before Redis 7 begin to tell of what a command in a script was refused with.
const IN_SCRIPT: &str = "ERR Error running script";

/// Where a request has to go instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Redirect {
    /// There, from now on.
    Moved(String),
    /// There, this once: its shard is being moved.
    Ask(String),
    /// To whom the map says after another look at it.
    Lost,
    /// The same way again, in a moment.
    Again,
    /// The same way again, once the server has learned the scripts.
    NoScript,
}

/// What a refusal asks for. Everything here is said before the server has begun with the request.
pub(crate) fn redirect(words: &str) -> Option<Redirect> {
    let mut parts = words.split(' ');
    let (code, address) = (parts.next()?, parts.nth(1));
    Some(match (code, address) {
        ("MOVED", Some(address)) => Redirect::Moved(address.to_owned()),
        ("ASK", Some(address)) => Redirect::Ask(address.to_owned()),
        ("CLUSTERDOWN" | "READONLY", _) => Redirect::Lost,
        ("TRYAGAIN", _) => Redirect::Again,
        ("NOSCRIPT", _) => Redirect::NoScript,
        _ => return None,
    })
}

/// The code that a refusal begins with. Before Redis 7 that of a command in a script stands behind the place of the
/// command in the script.
fn code(words: &str) -> &str {
    let own = match words.starts_with(IN_SCRIPT) {
        true => words.rsplit_once("@user_script:").and_then(|(_, place)| place.split_once(": ")),
        false => None,
    };
    let words = own.map_or(words, |(_, words)| words.trim_start_matches('-'));
    words.split([' ', ':']).next().unwrap_or("")
}

/// Whether a server says that a key is of another type than the command is for.
pub(crate) fn is_other_type(words: &str) -> bool {
    code(words) == "WRONGTYPE"
}

/// A refusal as an error. Scripts write only after they have read, and the server refuses a script's first write or
/// none of them (memory, replicas, a broken log), so these codes mean that nothing was written.
pub(crate) fn refused(words: &str, server: &str) -> StoreError {
    use StoreErrorKind::{BadAddress, Corrupt, Full, ReadOnly, Unavailable, Unsuitable};
    let (kind, wrote, fix) = match code(words) {
        "OOM" => (Full, Wrote::No, "its memory is full; give it more (maxmemory) or purge"),
        "READONLY" => (ReadOnly, Wrote::No, "it is a replica now; its primary takes writes"),
        "MISCONF" => (Full, Wrote::No, "it cannot save to its disk; look at its log"),
        "NOREPLICAS" => (Unavailable, Wrote::No, "too few of its replicas are connected"),
        "LOADING" => (Unavailable, Wrote::No, "it is still loading; try again"),
        "TRYAGAIN" | "ASK" => (
            Unavailable,
            Wrote::No,
            "the key's slot is being moved to another server; try again when it is there",
        ),
        "MASTERDOWN" | "CLUSTERDOWN" | "MOVED" => {
            (Unavailable, Wrote::No, "the cluster is being rearranged; try again")
        }
        "BUSY" => (Unavailable, Wrote::No, "somebody's script has been running for too long"),
        "NOAUTH" | "WRONGPASS" => (BadAddress, Wrote::No, "give the user and password in the address"),
        "NOPERM" => {
            (Unsuitable, Wrote::Maybe, "let its user run scripts, and all commands on keys of the ledger")
        }
        "LOSTHEAD" => {
            (Corrupt, Wrote::No, "it was emptied, or another ledger took its place; restore its data")
        }
        "CROSSSLOT" => (Unsuitable, Wrote::No, "the ledger's keys are not where they belong"),
        "WRONGTYPE" => (Corrupt, Wrote::Maybe, "a key of the ledger holds something else"),
        _ => (Unavailable, Wrote::Maybe, "look at its log"),
    };
    let nothing = if wrote == Wrote::No { "; nothing was written" } else { "" };
    let words = oncely_core::limits::clip_to(words.to_owned(), 300);
    StoreError { kind, message: format!("{server} refused: {words}{nothing}; {fix}"), wrote }
}

/// Bytes of the ledger that make no sense, and are no record's.
pub(crate) fn damaged(damage: Damaged, server: &str) -> StoreError {
    StoreError::before(StoreErrorKind::Corrupt, format!("a record in {server} is damaged: {}", damage.0))
}

/// A reply that a script of ours does not give.
pub(crate) fn odd(reply: &Value, server: &str) -> StoreError {
    match reply {
        Value::Error(words) => refused(words, server),
        _ => StoreError::ambiguous(
            StoreErrorKind::Corrupt,
            format!("{server} gave an answer that makes no sense; is it Redis or Valkey?"),
        ),
    }
}

/// Why a connection is of no use any more.
#[derive(Debug)]
pub(crate) enum Broken {
    /// The system says so.
    Io(std::io::Error),
    /// It was closed.
    Closed,
    /// Too much time has passed.
    Slow(std::time::Duration),
    /// The peer does not speak the protocol.
    Garbled(Garbled),
}

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Io(error) => write!(f, "{error}"),
            Self::Closed => f.write_str("the connection was closed"),
            Self::Slow(after) => write!(f, "no answer within {} ms", after.as_millis()),
            Self::Garbled(how) => write!(f, "not the protocol of Redis: {how}"),
        }
    }
}

impl From<std::io::Error> for Broken {
    fn from(error: std::io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<Garbled> for Broken {
    fn from(garbled: Garbled) -> Self {
        Self::Garbled(garbled)
    }
}

/// The server was not reached: nothing was sent.
pub(crate) fn unreached(why: &dyn std::fmt::Display, server: &str) -> StoreError {
    StoreError::before(
        StoreErrorKind::Unavailable,
        format!(
            "{server} cannot be reached: {why}; nothing was written; it is tried again with the next call"
        ),
    )
}

/// The connection broke after the request was sent.
pub(crate) fn cut_off(why: &dyn std::fmt::Display, server: &str, wrote: Wrote) -> StoreError {
    let what = match wrote {
        Wrote::No => "nothing was written",
        Wrote::Maybe => "it may have been written",
    };
    let message = format!("the answer of {server} did not arrive: {why}; {what}");
    StoreError { kind: StoreErrorKind::Unavailable, message, wrote }
}

#[cfg(test)]
mod tests {
    use super::{Redirect, is_other_type, redirect, refused};
    use oncely_core::{StoreErrorKind, Wrote};

    #[test]
    fn refusals_say_where_to_go_instead() {
        assert_eq!(redirect("MOVED 3999 127.0.0.1:6381"), Some(Redirect::Moved("127.0.0.1:6381".into())));
        assert_eq!(redirect("ASK 3999 [::1]:6381"), Some(Redirect::Ask("[::1]:6381".into())));
        assert_eq!(redirect("CLUSTERDOWN The cluster is down"), Some(Redirect::Lost));
        assert_eq!(redirect("TRYAGAIN Multiple keys"), Some(Redirect::Again));
        assert_eq!(redirect("NOSCRIPT No matching script."), Some(Redirect::NoScript));
        assert_eq!(redirect("ERR unknown"), None);
        assert_eq!(redirect("MOVED"), None);
    }

    /// As Redis 6.2.14 said it.
    #[test]
    fn a_refusal_in_a_script_of_an_older_server_is_read_like_any_other() {
        let run =
            "ERR Error running script (call to f_d3c21d0c2b9ca22f82737626a27bcaf5d288f99f): @user_script:1: ";
        let other_type = format!("{run}WRONGTYPE Operation against a key holding the wrong kind of value");
        assert!(is_other_type(&other_type) && is_other_type("WRONGTYPE Operation against a key"));
        assert!(!is_other_type(&format!("{run}ERR syntax error, not WRONGTYPE")));
        assert_eq!(refused(&other_type, "redis://x").kind, StoreErrorKind::Corrupt);
        for (words, kind, wrote) in [
            ("@user_script: 1: -OOM command not allowed", StoreErrorKind::Full, Wrote::No),
            ("@user_script: 1: -NOREPLICAS Not enough good replicas", StoreErrorKind::Unavailable, Wrote::No),
            ("ERR syntax error", StoreErrorKind::Unavailable, Wrote::Maybe),
        ] {
            let error = refused(&format!("{run}{words}"), "redis://x");
            assert_eq!((error.kind, error.wrote), (kind, wrote), "{words}");
        }
    }

    #[test]
    fn a_refusal_says_whether_something_was_written() {
        for (words, kind, wrote) in [
            ("OOM command not allowed", StoreErrorKind::Full, Wrote::No),
            ("READONLY You can't write", StoreErrorKind::ReadOnly, Wrote::No),
            ("LOADING Redis is loading", StoreErrorKind::Unavailable, Wrote::No),
            ("NOAUTH Authentication required.", StoreErrorKind::BadAddress, Wrote::No),
            ("ERR something new", StoreErrorKind::Unavailable, Wrote::Maybe),
        ] {
            let error = refused(words, "redis://x");
            assert_eq!((error.kind, error.wrote), (kind, wrote), "{words}");
            assert!(error.message.contains("redis://x refused"), "{}", error.message);
        }
    }
}
