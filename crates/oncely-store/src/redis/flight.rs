//! A pipeline that was sent over a connection: which requests it holds, in which calls, and the wait for replicas behind it.

use std::collections::VecDeque;
use std::time::Duration;

use oncely_core::Version;
use tokio::time::Instant;

use super::link::{Asks, Request};
use super::queue::UnderWay;
use super::resp::{Value, command};
use super::value::{read_version, version_text};

/// Most records in one call of a script: the server does nothing else meanwhile.
const TOGETHER_MAX: usize = 32;

/// A pipeline that was sent.
pub(crate) struct Flight {
    /// Requests by call: several of one script go together.
    pub(crate) waiting: VecDeque<Vec<Request>>,
    /// Replies to the first call so far.
    pub(crate) partial: Vec<Value>,
    /// Those that have written, and are not yet confirmed.
    pub(crate) answered: Vec<(Request, Vec<Value>)>,
    /// The wait for replicas behind it.
    pub(crate) wait: Option<Wait>,
    pub(crate) bytes: usize,
    pub(crate) deadline: Instant,
    pub(crate) limit: Duration,
    /// While others wait for it to be over, and until when they do at most.
    pub(crate) under_way: Option<(UnderWay, Instant)>,
}

/// A wait for replicas.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wait {
    /// How many have to confirm.
    pub(crate) replicas: u32,
    /// How long they may take.
    pub(crate) patience: Duration,
    /// Whether what is not confirmed by then is given up.
    pub(crate) is_last: bool,
}

impl Wait {
    /// As a command.
    pub(crate) fn encode(self) -> Vec<u8> {
        let (replicas, patience) = (self.replicas.to_string(), self.patience.as_millis().to_string());
        command(&[b"WAIT", replicas.as_bytes(), patience.as_bytes()])
    }
}

impl Flight {
    /// Whether what so many replicas have not confirmed is given up when this one has waited for them.
    pub(crate) fn is_last_wait_for(&self, replicas: u32) -> bool {
        self.wait.is_some_and(|wait| wait.is_last && wait.replicas >= replicas)
    }
}

/// Puts requests together that can be one call.
pub(crate) fn together(batch: Vec<Request>) -> Vec<Vec<Request>> {
    let mut calls: Vec<Vec<Request>> = Vec::new();
    for request in batch {
        let fits = |call: &&mut Vec<Request>| {
            call.len() < TOGETHER_MAX && call.iter().all(|other| other.goes_with(&request))
        };
        match calls.iter_mut().find(fits) {
            Some(call) => call.push(request),
            None => calls.push(vec![request]),
        }
    }
    calls
}

/// How many replies a call gets.
pub(crate) fn replies_of(call: &[Request]) -> usize {
    let Some(first) = call.first() else { return 0 };
    let replies = match &first.asks {
        Asks::Plain { replies, .. } | Asks::Values { replies, .. } => *replies,
        Asks::Part(_) => 1,
    };
    replies + usize::from(first.asking)
}

/// Gives each request of a call its own replies: a script answers for each of its records.
pub(crate) fn share(mut call: Vec<Request>, mut replies: Vec<Value>) -> Vec<(Request, Vec<Value>)> {
    if !matches!(call.first().map(|request| &request.asks), Some(Asks::Part(_))) {
        return call.pop().map(|request| (request, replies)).into_iter().collect();
    }
    match replies.pop().unwrap_or(Value::Nil) {
        Value::Array(items) if items.len() == call.len() => {
            call.into_iter().zip(items.into_iter().map(|item| vec![item])).collect()
        }
        Value::Bytes(first) => match read_version(&first) {
            Ok((first, _)) => share_places(call, first),
            Err(_) => call.into_iter().map(|request| (request, vec![Value::Nil])).collect(),
        },
        // A refusal is for all of them.
        other => call.into_iter().map(|request| (request, vec![other.clone()])).collect(),
    }
}

/// All were written: each has taken its places, one after the other from the first, and the last of them is its version.
fn share_places(call: Vec<Request>, first: Version) -> Vec<(Request, Vec<Value>)> {
    let mut next = first.0;
    call.into_iter()
        .map(|request| {
            if let Asks::Part(part) = &request.asks {
                next += part.places;
            }
            let version = version_text(Version(next - 1)).into_bytes();
            (request, vec![Value::Array(vec![Value::Int(1), Value::Bytes(version)])])
        })
        .collect()
}

/// Whether enough replicas have what was written on this connection before.
pub(crate) fn confirmed(reply: &Value, wait: Wait) -> Result<(), String> {
    let Wait { replicas, patience, .. } = wait;
    match reply {
        Value::Int(count) if *count >= i64::from(replicas) => Ok(()),
        Value::Int(count) => Err(format!(
            "{count} of {replicas} replicas confirmed it within {} ms; with a failover it could be lost",
            patience.as_millis()
        )),
        other => Err(format!("the wait for replicas was answered with {other:?}")),
    }
}

/// Whether a request has written something, by its replies.
pub(crate) fn wrote(request: &Request, replies: &[Value]) -> bool {
    let first = replies.first().unwrap_or(&Value::Nil);
    request.writes.may() && !matches!(first, Value::Error(_)) && first.items().first() != Some(&Value::Int(0))
}

// A call's entry in the log has a place for each record, or for each part of its events if there are more of them.
const _: () =
    assert!((TOGETHER_MAX * super::EVENTS_MAX.div_ceil(32)) as u64 <= super::value::ENTRY_PLACES_MAX);

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{Asks, Request, Value, share};
    use crate::redis::link::{Part, Writes};
    use crate::redis::outstanding::Outstanding;
    use crate::redis::scripts::Script;

    fn part(entries: usize) -> Request {
        let asks = Asks::Part(Part::new(Script::Create, &[b"key"], &[], entries));
        let (caller, ticket) =
            (crate::courier::Reply::homeward().0, Arc::new(Outstanding::default()).enter());
        Request { shard: 0, asks, writes: Writes::Yes, hops: 0, asking: false, caller, ticket }
    }

    #[test]
    fn each_of_those_that_were_written_together_has_the_last_of_its_own_places() {
        let call = vec![part(2), part(0), part(1), part(3)];
        let shared = share(call, vec![Value::Bytes(b"1794796800123-7".to_vec())]);
        for ((_, replies), sequence) in shared.into_iter().zip([8, 9, 10, 13]) {
            let version = format!("1794796800123-{sequence}").into_bytes();
            assert_eq!(replies, [Value::Array(vec![Value::Int(1), Value::Bytes(version)])]);
        }
        // What is no place is nobody's answer.
        let odd = share(vec![part(1)], vec![Value::Bytes(b"OK".to_vec())]);
        assert!(odd.iter().all(|(_, replies)| *replies == [Value::Nil]));
    }
}
