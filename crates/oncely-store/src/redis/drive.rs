//! What drives one connection: it takes what is queued for its server, sends it as one pipeline with at most one `WAIT`
//! behind it, and tells the callers when all that they need has been answered.
//!
//! Who has written nothing is told at once: a duplicate does not wait for replicas. Whether something was written is not
//! known when a pipeline is sent, so the `WAIT` behind it is a short one, long enough where replicas follow. Only what was
//! written and is not confirmed by then is waited for on its own, for as long as the address says, and meanwhile the
//! other connections take what comes.
//!
//! Answers belong to requests by their order on this connection and by nothing else. A caller that goes away leaves its
//! request where it is: the answer is read and dropped. A connection that broke, or was given up half-way, is never used
//! again. So no caller can be handed another one's answer.
//!
//! The server syncs once for all that it has read in one go, and reads about 16 KiB of each connection. So several
//! connections are used, and each has about that much under way. A connection takes nothing while it has little room: a
//! pipeline of one request costs the server nearly as much as one of many.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::connect::Wire;
use super::errors::{Broken, cut_off};
use super::flight::{Flight, Wait, confirmed, replies_of, share, together, wrote};
use super::link::{Asks, Part, Request, encode_together};
use super::options::RedisServer;
use super::queue::{Node, UnderWay};
use super::reach::End;
use super::resp::{Value, command};
use super::router::Router;
use super::telling::{Keep, Teller};

/// Bytes that are under way on one connection, unless a single request is larger.
const WINDOW_BYTES: usize = 16 * 1024;
/// First pause after a failed connection, doubled up to the last.
const PAUSE_FIRST: Duration = Duration::from_millis(50);
const PAUSE_LAST: Duration = Duration::from_secs(1);
/// A pipeline that takes longer is not waited for: nothing that comes later has to be put together with more.
const SLOW: Duration = Duration::from_millis(5);
/// How long a whole pipeline waits for replicas, whether it has written something or not.
const SHORT: Duration = Duration::from_millis(5);

/// Drives one connection for as long as the ledger is open.
pub(crate) async fn drive(node: Arc<Node>, router: Arc<Router>) {
    let (mut pause, mut taken) = (PAUSE_FIRST, None);
    loop {
        node.wants_more().await;
        match router.connect(&node.server).await {
            Ok(wire) => {
                (pause, taken) = (PAUSE_FIRST, None);
                node.reach.gained();
                let mut link = Link::new(wire, &node.server, &router);
                let broken = link.run(&node).await;
                let is_idle = link.flights.is_empty() && link.short.is_empty();
                let is_lost = node.reach.ended(if broken.is_some() { End::Broken } else { End::GivenUp });
                match &broken {
                    Some(broken) if is_lost && !is_idle => {
                        node.reach.lost(format!("{}: {broken}", node.server));
                        link.give_up(broken);
                    }
                    Some(broken) => link.give_up(broken),
                    None => {}
                }
                drop(link);
                node.nudge();
                // Servers close what is idle. Whether one is gone is not known before it is tried.
                if is_lost
                    && is_idle
                    && let Err(error) = router.connect(&node.server).await
                {
                    node.reach.failed(&error);
                }
            }
            Err(error) => {
                node.reach.failed(&error);
                let before = taken.replace(node.taken());
                if !node.reach.is_connected() {
                    // Nobody else is there for the others: they would be given up later, without knowing what became of them.
                    router.unreached(node.take(usize::MAX), &error);
                } else if before == taken {
                    // Other connections are there, and take nothing.
                    router.unreached(node.take(WINDOW_BYTES), &error);
                }
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
    /// Those that have written, and that too few replicas have confirmed so far.
    short: Vec<(Request, Vec<Value>)>,
}

impl<'a> Link<'a> {
    fn new(wire: Wire, server: &'a RedisServer, router: &'a Arc<Router>) -> Self {
        Self { wire, server, router, flights: VecDeque::new(), short: Vec::new() }
    }

    /// Works until the connection is of no use any more; says why, if it broke.
    async fn run(&mut self, node: &Arc<Node>) -> Option<Broken> {
        let mut next = None;
        let mut keep = Keep::Yes;
        loop {
            if keep == Keep::No && self.flights.is_empty() && self.short.is_empty() {
                return None;
            }
            if let Some((batch, under_way)) = next.take()
                && let Err(broken) = self.send(batch, under_way).await
            {
                return Some(broken);
            }
            if let Err(broken) = self.wait_on().await {
                return Some(broken);
            }
            let free = WINDOW_BYTES.saturating_sub(self.flights.iter().map(|flight| flight.bytes).sum());
            let deadline = self.flights.front().map(|flight| (flight.deadline, flight.limit));
            let has_room = self.flights.is_empty() || free >= WINDOW_BYTES / 2;
            let takes = has_room && keep == Keep::Yes && !self.waits_on();
            if !takes {
                // What may start meanwhile starts elsewhere.
                node.nudge();
            }
            let slow =
                self.flights.iter().find_map(|flight| flight.under_way.as_ref().map(|(_, slow)| *slow));
            tokio::select! {
                biased;
                // Also while nothing is asked: a connection that is closed meanwhile must not be sent anything.
                received = self.wire.receive() => match received.and_then(|value| self.take_all(value)) {
                    Ok(Keep::Yes) => {}
                    // What is under way is still answered here; all else goes elsewhere.
                    Ok(Keep::No) => keep = Keep::No,
                    Err(broken) => return Some(broken),
                },
                batch = node.next(free), if takes => next = Some(batch),
                () = until(deadline.map(|(deadline, _)| deadline)), if deadline.is_some() => {
                    return Some(Broken::Slow(deadline.map_or(Duration::ZERO, |(_, limit)| limit)));
                }
                () = until(slow), if slow.is_some() => self.wait_no_longer(),
            }
        }
    }

    /// Sends a pipeline.
    async fn send(&mut self, batch: Vec<Request>, under_way: UnderWay) -> Result<(), Broken> {
        let wait = self.short_wait(&batch);
        let calls = together(batch);
        let pipeline = self.pipeline(&calls, wait);
        let under_way = Some((under_way, Instant::now() + SLOW));
        self.take_off(calls.into(), Vec::new(), wait, pipeline, under_way).await
    }

    /// What has been under way for long is a reason for others to wait no more.
    fn wait_no_longer(&mut self) {
        let now = Instant::now();
        for flight in &mut self.flights {
            flight.under_way.take_if(|(_, slow)| *slow <= now);
        }
    }

    /// Waits on for replicas that have not confirmed yet what was written.
    async fn wait_on(&mut self) -> Result<(), Broken> {
        if self.short.is_empty() {
            return Ok(());
        }
        let short = std::mem::take(&mut self.short);
        let replicas = self.wanted(short.iter().map(|(request, _)| request));
        // Nothing else is sent behind such a wait: one that is under way waits for these as well.
        let covers = |flight: &&mut Flight| flight.is_last_wait_for(replicas);
        if let Some(flight) = self.flights.back_mut().filter(covers) {
            flight.answered.extend(short);
            return Ok(());
        }
        let patience = self.router.dialer.options.wait_timeout;
        let wait = Wait { replicas, patience, is_last: true };
        self.take_off(VecDeque::new(), short, Some(wait), wait.encode(), None).await
    }

    /// Whether replicas are waited for, and nothing else is sent.
    fn waits_on(&self) -> bool {
        self.flights.back().is_some_and(|flight| flight.waiting.is_empty() && flight.is_last_wait_for(0))
    }

    /// The wait behind a pipeline; none where no replicas are asked for.
    fn short_wait(&self, batch: &[Request]) -> Option<Wait> {
        let (replicas, whole) = (self.wanted(batch.iter()), self.router.dialer.options.wait_timeout);
        let patience = whole.min(SHORT);
        (replicas > 0).then_some(Wait { replicas, patience, is_last: patience == whole })
    }

    /// How many replicas have to confirm all of these.
    fn wanted<'r>(&self, requests: impl Iterator<Item = &'r Request>) -> u32 {
        let every = self.router.replicas();
        requests.map(|request| request.writes.replicas(every)).max().unwrap_or(0)
    }

    /// From the first byte on a pipeline is under way.
    async fn take_off(
        &mut self,
        waiting: VecDeque<Vec<Request>>,
        answered: Vec<(Request, Vec<Value>)>,
        wait: Option<Wait>,
        pipeline: Vec<u8>,
        under_way: Option<(UnderWay, Instant)>,
    ) -> Result<(), Broken> {
        let limit = self.router.dialer.options.timeout + wait.map_or(Duration::ZERO, |wait| wait.patience);
        let deadline = Instant::now() + limit;
        let (partial, bytes) = (Vec::new(), pipeline.len());
        self.flights.push_back(Flight {
            waiting,
            partial,
            answered,
            wait,
            bytes,
            deadline,
            limit,
            under_way,
        });
        match tokio::time::timeout_at(deadline, self.wire.send(&pipeline)).await {
            Ok(sent) => sent,
            Err(_) => Err(Broken::Slow(limit)),
        }
    }

    /// All calls of a batch, and behind them the wait for replicas.
    fn pipeline(&self, calls: &[Vec<Request>], wait: Option<Wait>) -> Vec<u8> {
        let bytes = calls.iter().flatten().map(|request| request.len() + 64).sum::<usize>() + 512;
        let mut pipeline = Vec::with_capacity(bytes);
        for call in calls {
            if call.first().is_some_and(|request| request.asking) {
                pipeline.extend_from_slice(&command(&[b"ASKING"]));
            }
            let mut parts: Vec<&Part> = Vec::with_capacity(call.len());
            for request in call {
                match &request.asks {
                    Asks::Plain { bytes, .. } | Asks::Values { bytes, .. } => {
                        pipeline.extend_from_slice(bytes);
                    }
                    Asks::Part(part) => parts.push(part),
                }
            }
            if let (Some(part), Some(request)) = (parts.first(), call.first()) {
                let terms = self.router.terms(request.shard, part.script);
                encode_together(&mut pipeline, &terms, &parts);
            }
        }
        pipeline.extend(wait.map(Wait::encode).unwrap_or_default());
        pipeline
    }

    /// Takes a reply and all that have arrived behind it.
    fn take_all(&mut self, first: Value) -> Result<Keep, Broken> {
        let mut teller = Teller::new(self.server, self.router);
        let mut keep = self.take(first, &mut teller)?;
        while let Some(value) = self.wire.received()? {
            if self.take(value, &mut teller)? == Keep::No {
                keep = Keep::No;
            }
        }
        Ok(keep)
    }

    fn take(&mut self, value: Value, teller: &mut Teller<'_>) -> Result<Keep, Broken> {
        // An answer to nothing: whose is it?
        let flight = self.flights.front_mut().ok_or(Broken::Closed)?;
        let Some(call) = flight.waiting.front() else { return Ok(self.take_wait(&value, teller)) };
        flight.partial.push(value);
        if flight.partial.len() < replies_of(call) {
            return Ok(Keep::Yes);
        }
        let mut replies = std::mem::take(&mut flight.partial);
        // Told that it was sent here for once, the server answers that, too.
        if call.first().is_some_and(|request| request.asking) {
            replies.remove(0);
        }
        let call = flight.waiting.pop_front().unwrap_or_default();
        let mut keep = Keep::Yes;
        for (request, replies) in share(call, replies) {
            if flight.wait.is_some() && wrote(&request, &replies) {
                flight.answered.push((request, replies));
            } else if teller.settle(request, replies, &Ok(())) == Keep::No {
                keep = Keep::No;
            }
        }
        if flight.waiting.is_empty() && flight.wait.is_none() {
            self.flights.pop_front();
        }
        Ok(keep)
    }

    /// All calls of the first flight have answered: this is what the wait for replicas came to.
    fn take_wait(&mut self, value: &Value, teller: &mut Teller<'_>) -> Keep {
        let mut keep = Keep::Yes;
        let Some(Flight { answered, wait: Some(wait), .. }) = self.flights.pop_front() else { return keep };
        let confirmed = confirmed(value, wait);
        if confirmed.is_err() && !wait.is_last {
            self.short.extend(answered);
            return keep;
        }
        for (request, replies) in answered {
            if teller.settle(request, replies, &confirmed) == Keep::No {
                keep = Keep::No;
            }
        }
        keep
    }

    /// Tells those who are still under way that the connection is gone.
    fn give_up(&mut self, broken: &Broken) {
        let why = broken.to_string();
        let confirmed = Err(why.clone());
        let mut teller = Teller::new(self.server, self.router);
        for (request, replies) in self.short.drain(..) {
            teller.settle(request, replies, &confirmed);
        }
        for flight in self.flights.drain(..) {
            for (request, replies) in flight.answered {
                teller.settle(request, replies, &confirmed);
            }
            for request in flight.waiting.into_iter().flatten() {
                let error = cut_off(&why, &self.server.to_string(), request.may_have_written());
                teller.tell(request, Err(error));
            }
        }
        self.router.lost();
    }
}

async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => std::future::pending().await,
    }
}
