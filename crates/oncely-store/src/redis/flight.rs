//! A pipeline that was sent over a connection: which requests it holds, in which calls, and the wait for replicas behind it.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use super::link::{Asks, Part, Request, encode_together};
use super::resp::{Value, command};
use super::router::Router;

/// How long a whole pipeline waits for replicas, whether it has written something or not.
const SHORT: Duration = Duration::from_millis(5);
/// Most records in one call of a script: the server does nothing else meanwhile.
const TOGETHER_MAX: usize = 64;

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

/// A pipeline that is about to be sent, and its bytes.
pub(crate) fn departure(router: &Router, batch: Vec<Request>) -> (Flight, Vec<u8>) {
    let wait = short_wait(router, &batch);
    let calls = together(batch);
    let bytes = pipeline(router, &calls, wait);
    (Flight::new(router, calls.into(), Vec::new(), wait, bytes.len()), bytes)
}

impl Flight {
    /// From now on it is under way.
    pub(crate) fn new(
        router: &Router,
        waiting: VecDeque<Vec<Request>>,
        answered: Vec<(Request, Vec<Value>)>,
        wait: Option<Wait>,
        bytes: usize,
    ) -> Self {
        let limit = router.dialer.options.timeout + wait.map_or(Duration::ZERO, |wait| wait.patience);
        Self { waiting, partial: Vec::new(), answered, wait, bytes, deadline: Instant::now() + limit, limit }
    }
}

/// The wait behind a pipeline; none where no replicas are asked for.
fn short_wait(router: &Router, batch: &[Request]) -> Option<Wait> {
    let (replicas, whole) = (wanted(router, batch.iter()), router.dialer.options.wait_timeout);
    let patience = whole.min(SHORT);
    (replicas > 0).then_some(Wait { replicas, patience, is_last: patience == whole })
}

/// How many replicas have to confirm all of these.
pub(crate) fn wanted<'r>(router: &Router, requests: impl Iterator<Item = &'r Request>) -> u32 {
    let every = router.replicas();
    requests.map(|request| request.writes.replicas(every)).max().unwrap_or(0)
}

/// All calls of a batch, and behind them the wait for replicas.
fn pipeline(router: &Router, calls: &[Vec<Request>], wait: Option<Wait>) -> Vec<u8> {
    let bytes = calls.iter().flatten().map(|request| request.len() + 64).sum::<usize>() + 512;
    let mut pipeline = Vec::with_capacity(bytes);
    for call in calls {
        if call.first().is_some_and(|request| request.asking) {
            pipeline.extend_from_slice(&command(&[b"ASKING"]));
        }
        let mut parts: Vec<&Part> = Vec::with_capacity(call.len());
        for request in call {
            match &request.asks {
                Asks::Plain { bytes, .. } => pipeline.extend_from_slice(bytes),
                Asks::Part(part) => parts.push(part),
            }
        }
        if let (Some(part), Some(request)) = (parts.first(), call.first()) {
            let terms = router.terms(request.shard, part.script);
            encode_together(&mut pipeline, &terms, &parts);
        }
    }
    pipeline.extend(wait.map(Wait::encode).unwrap_or_default());
    pipeline
}

/// Puts requests together that can be one call.
fn together(batch: Vec<Request>) -> Vec<Vec<Request>> {
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
        Asks::Plain { replies, .. } => *replies,
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
        // A refusal is for all of them.
        other => call.into_iter().map(|request| (request, vec![other.clone()])).collect(),
    }
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
