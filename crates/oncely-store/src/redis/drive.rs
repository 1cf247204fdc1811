//! What drives one connection: it takes what is queued for its server, sends it as one pipeline with at most one `WAIT`
//! behind it, and tells the callers when all that they need has been answered.
//!
//! Answers belong to requests by their order on this connection and by nothing else. A caller that goes away leaves its
//! request where it is: the answer is read and dropped. A connection that broke, or was given up half-way, is never used
//! again. So no caller can be handed another one's answer.
//!
//! The server syncs once for all that it has read in one go, and reads about 16 KiB of each connection. So several
//! connections are used, and each has about that much under way; nothing waits here while a connection has room.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use oncely_core::{StoreError, StoreErrorKind};
use tokio::time::{Instant, sleep_until};

use super::connect::Wire;
use super::errors::{Broken, Redirect, cut_off, odd, redirect, refused};
use super::link::{Asks, Node, Part, Request, encode_together};
use super::options::RedisServer;
use super::resp::{Value, command};
use super::router::Router;

/// Bytes that are under way on one connection, unless a single request is larger.
const WINDOW_BYTES: usize = 16 * 1024;
/// Most records in one call of a script: the server does nothing else meanwhile.
const TOGETHER_MAX: usize = 32;
/// First pause after a failed connection, doubled up to the last.
const PAUSE_FIRST: Duration = Duration::from_millis(50);
const PAUSE_LAST: Duration = Duration::from_secs(1);

/// Drives one connection for as long as the ledger is open.
pub(crate) async fn drive(node: Arc<Node>, router: Arc<Router>) {
    let mut pause = PAUSE_FIRST;
    loop {
        let batch = node.next(WINDOW_BYTES).await;
        match router.connect(&node.server).await {
            Ok(wire) => {
                pause = PAUSE_FIRST;
                let mut link = Link { wire, server: &node.server, router: &router, flights: VecDeque::new() };
                if let Some(broken) = link.run(&node, batch).await {
                    link.give_up(&broken);
                }
            }
            Err(error) => {
                router.unreached(batch, &error);
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(PAUSE_LAST);
            }
        }
    }
}

/// One connection and what is under way on it.
struct Link<'a> {
    wire: Wire,
    server: &'a RedisServer,
    router: &'a Arc<Router>,
    flights: VecDeque<Flight>,
}

/// A pipeline that was sent.
struct Flight {
    /// Requests by call: several of one script go together.
    waiting: VecDeque<Vec<Request>>,
    /// Replies to the first call so far.
    partial: Vec<Value>,
    /// Those whose replies are there, but not yet confirmed.
    answered: Vec<(Request, Vec<Value>)>,
    /// How many replicas have to confirm.
    replicas: u32,
    bytes: usize,
    deadline: Instant,
    limit: Duration,
}

impl Link<'_> {
    /// Works until the connection is of no use any more; says why, if it broke.
    async fn run(&mut self, node: &Node, first: Vec<Request>) -> Option<Broken> {
        let mut next = Some(first);
        let mut keep = Keep::Yes;
        loop {
            if keep == Keep::No && self.flights.is_empty() {
                return None;
            }
            if let Some(batch) = next.take()
                && let Err(broken) = self.send(batch).await
            {
                return Some(broken);
            }
            let free = WINDOW_BYTES.saturating_sub(self.flights.iter().map(|flight| flight.bytes).sum());
            let deadline = self.flights.front().map(|flight| (flight.deadline, flight.limit));
            tokio::select! {
                biased;
                // Also while nothing is asked: a connection that is closed meanwhile must not be sent anything.
                received = self.wire.receive() => match received.and_then(|value| self.take_all(value)) {
                    Ok(Keep::Yes) => {}
                    // What is under way is still answered here; all else goes elsewhere.
                    Ok(Keep::No) => keep = Keep::No,
                    Err(broken) => return Some(broken),
                },
                batch = node.next(free), if free > 0 && keep == Keep::Yes => next = Some(batch),
                () = until(deadline), if deadline.is_some() => {
                    return Some(Broken::Slow(deadline.map_or(Duration::ZERO, |(_, limit)| limit)));
                }
            }
        }
    }

    /// Sends a pipeline. From the first byte on it is under way.
    async fn send(&mut self, batch: Vec<Request>) -> Result<(), Broken> {
        let options = &self.router.dialer.options;
        let replicas = if batch.iter().any(|request| request.writes) { self.router.replicas() } else { 0 };
        let limit = options.timeout + if replicas > 0 { options.wait_timeout } else { Duration::ZERO };
        let calls = together(batch);
        let pipeline = self.pipeline(&calls, replicas, options.wait_timeout);
        let deadline = Instant::now() + limit;
        self.flights.push_back(Flight {
            answered: Vec::new(),
            waiting: calls.into(),
            partial: Vec::new(),
            replicas,
            bytes: pipeline.len(),
            deadline,
            limit,
        });
        match tokio::time::timeout_at(deadline, self.wire.send(&pipeline)).await {
            Ok(sent) => sent,
            Err(_) => Err(Broken::Slow(limit)),
        }
    }

    /// All calls of a batch, and behind them the wait for replicas.
    fn pipeline(&self, calls: &[Vec<Request>], replicas: u32, patience: Duration) -> Vec<u8> {
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
                let terms = self.router.terms(request.shard, part.script);
                encode_together(&mut pipeline, &terms, &parts);
            }
        }
        if replicas > 0 {
            let (replicas, patience) = (replicas.to_string(), patience.as_millis().to_string());
            pipeline.extend_from_slice(&command(&[b"WAIT", replicas.as_bytes(), patience.as_bytes()]));
        }
        pipeline
    }

    /// Takes a reply and all that have arrived behind it.
    fn take_all(&mut self, first: Value) -> Result<Keep, Broken> {
        let mut keep = self.take(first)?;
        while let Some(value) = self.wire.received()? {
            if self.take(value)? == Keep::No {
                keep = Keep::No;
            }
        }
        Ok(keep)
    }

    fn take(&mut self, value: Value) -> Result<Keep, Broken> {
        // An answer to nothing: whose is it?
        let flight = self.flights.front_mut().ok_or(Broken::Closed)?;
        let mut keep = Keep::Yes;
        match flight.waiting.front() {
            Some(call) => {
                flight.partial.push(value);
                if flight.partial.len() < replies_of(call) {
                    return Ok(keep);
                }
                let mut replies = std::mem::take(&mut flight.partial);
                // Told that it was sent here for once, the server answers that, too.
                if call.first().is_some_and(|request| request.asking) {
                    replies.remove(0);
                }
                let call = flight.waiting.pop_front().unwrap_or_default();
                for (request, replies) in share(call, replies) {
                    if flight.replicas > 0 {
                        flight.answered.push((request, replies));
                    } else if settle(request, replies, &Ok(()), self.server, self.router) == Keep::No {
                        keep = Keep::No;
                    }
                }
                if flight.waiting.is_empty() && flight.replicas == 0 {
                    self.flights.pop_front();
                }
            }
            // All have answered: this is what the wait for replicas came to.
            None => {
                let patience = self.router.dialer.options.wait_timeout;
                let confirmed = confirmed(&value, flight.replicas, patience);
                for (request, replies) in std::mem::take(&mut flight.answered) {
                    if settle(request, replies, &confirmed, self.server, self.router) == Keep::No {
                        keep = Keep::No;
                    }
                }
                self.flights.pop_front();
            }
        }
        Ok(keep)
    }

    /// Tells those who are still under way that the connection is gone.
    fn give_up(&mut self, broken: &Broken) {
        let why = broken.to_string();
        for flight in self.flights.drain(..) {
            let confirmed = Err(why.clone());
            for (request, replies) in flight.answered {
                settle(request, replies, &confirmed, self.server, self.router);
            }
            for request in flight.waiting.into_iter().flatten() {
                let error = cut_off(&why, &self.server.to_string(), request.may_have_written());
                request.answer(Err(error));
            }
        }
        self.router.lost();
    }
}

/// Whether a connection is still good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Keep {
    Yes,
    No,
}

async fn until(deadline: Option<(Instant, Duration)>) {
    match deadline {
        Some((deadline, _)) => sleep_until(deadline).await,
        None => std::future::pending().await,
    }
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
fn replies_of(call: &[Request]) -> usize {
    let Some(first) = call.first() else { return 0 };
    let replies = match &first.asks {
        Asks::Plain { replies, .. } => *replies,
        Asks::Part(_) => 1,
    };
    replies + usize::from(first.asking)
}

/// Gives each request of a call its own replies: a script answers for each of its records.
fn share(mut call: Vec<Request>, mut replies: Vec<Value>) -> Vec<(Request, Vec<Value>)> {
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
fn confirmed(reply: &Value, wanted: u32, patience: Duration) -> Result<(), String> {
    match reply {
        Value::Int(count) if *count >= i64::from(wanted) => Ok(()),
        Value::Int(count) => Err(format!(
            "{count} of {wanted} replicas confirmed it within {} ms; with a failover it could be lost",
            patience.as_millis()
        )),
        other => Err(format!("the wait for replicas was answered with {other:?}")),
    }
}

/// Tells a caller, or sends the request elsewhere.
fn settle(
    request: Request,
    replies: Vec<Value>,
    confirmed: &Result<(), String>,
    server: &RedisServer,
    router: &Arc<Router>,
) -> Keep {
    let refusal = replies.iter().find_map(|reply| match reply {
        Value::Error(words) => Some(words.as_str()),
        _ => None,
    });
    if let Some(words) = refusal {
        let error = refused(words, &server.to_string());
        return match redirect(words) {
            Some(redirect) => {
                // The scripts are taught when a connection is made; a replica is left for its primary.
                let keep = matches!(redirect, Redirect::Moved(_) | Redirect::Ask(_) | Redirect::Again);
                router.reroute(request, redirect, error);
                if keep { Keep::Yes } else { Keep::No }
            }
            None => {
                request.answer(Err(error));
                Keep::Yes
            }
        };
    }
    let first = replies.first().unwrap_or(&Value::Nil);
    let wrote = request.writes && first.items().first() != Some(&Value::Int(0));
    let answer = match confirmed {
        _ if request.writes && first.items().is_empty() => Err(odd(first, &server.to_string())),
        Err(why) if wrote => {
            let message = format!("{server} has written it, but {why}; nothing was started");
            Err(StoreError::ambiguous(StoreErrorKind::Unavailable, message))
        }
        _ => Ok(replies),
    };
    request.answer(answer);
    Keep::Yes
}
