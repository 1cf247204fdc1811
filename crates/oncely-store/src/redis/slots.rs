//! The map of a cluster: which server keeps which slots.

use oncely_core::{StoreError, StoreErrorKind};

use super::connect::Dialer;
use super::keys::SLOTS;
use super::options::{RedisKind, RedisServer};
use super::resp::{Value, command};

/// Who serves which slots, first and last.
pub(crate) type Ranges = Vec<(u16, u16, RedisServer)>;

/// Who serves which slots, first and last.
pub(crate) async fn ranges(dialer: &Dialer) -> Result<Ranges, StoreError> {
    let options = &dialer.options;
    match options.kind {
        RedisKind::Single => Ok(vec![(0, SLOTS - 1, options.servers[0].clone())]),
        RedisKind::Cluster => look_anywhere(dialer, &options.servers).await,
    }
}

/// The servers of all slots.
pub(crate) fn primaries(ranges: &Ranges) -> Vec<RedisServer> {
    let mut primaries: Vec<RedisServer> = Vec::new();
    for (_, _, server) in ranges {
        if !primaries.contains(server) {
            primaries.push(server.clone());
        }
    }
    primaries
}

/// Asks one server after the other for the map.
pub(crate) async fn look_anywhere(dialer: &Dialer, servers: &[RedisServer]) -> Result<Ranges, StoreError> {
    let mut last = StoreError::before(StoreErrorKind::Unavailable, "the cluster has no servers");
    for server in servers {
        let asked = async {
            let mut wire = dialer.dial(server).await?;
            let replies =
                wire.ask(&[command(&[b"CLUSTER", b"SLOTS"])], dialer.options.timeout, server).await?;
            read_slots(replies.first().unwrap_or(&Value::Nil), server)
        };
        match asked.await {
            Ok(ranges) => return Ok(ranges),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn read_slots(reply: &Value, asked: &RedisServer) -> Result<Ranges, StoreError> {
    if let Value::Error(words) = reply {
        let why = format!("{asked} is not part of a cluster ({words}); write redis:// for a single server");
        return Err(StoreError::before(StoreErrorKind::BadAddress, format!("{why}; nothing was written")));
    }
    let range = |item: &Value| {
        let [first, last, primary, ..] = item.items() else { return None };
        let slot = |value: &Value| value.number().and_then(|n| u16::try_from(n).ok());
        let [host, port, ..] = primary.items() else { return None };
        let host = match host.text() {
            Some("" | "?") | None => asked.host.clone(),
            Some(host) => host.to_owned(),
        };
        Some((slot(first)?, slot(last)?, RedisServer { host, port: slot(port)? }))
    };
    let ranges: Vec<_> = reply.items().iter().filter_map(range).collect();
    if ranges.is_empty() {
        let why = format!("{asked} knows of no slots; is the cluster made? nothing was written");
        return Err(StoreError::before(StoreErrorKind::Unavailable, why));
    }
    Ok(ranges)
}
