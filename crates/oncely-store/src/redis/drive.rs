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
//! The server syncs once for all that it has read in one go. It reads about 16 KiB of each connection, but runs a call
//! only when it is there as a whole: a call for many records is synced once however long it is. So each connection has
//! room for one, and several connections are used for what cannot go together; nothing waits here while one has room.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::connect::Wire;
use super::desk::{Sent, Watch};
use super::errors::{Broken, cut_off};
use super::flight::{Flight, Wait, confirmed, departure, replies_of, share, wanted, wrote};
use super::link::{Node, Request};
use super::options::RedisServer;
use super::reach::End;
use super::resp::Value;
use super::router::Router;
use super::settle::{Keep, settle};

/// Bytes that are under way on one connection, unless a single request is larger.
const WINDOW_BYTES: usize = 128 * 1024;
/// How long a connection that callers use by themselves lies unseen: what they wait for has its time, too.
const LOOK: Duration = Duration::from_millis(250);
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
                node.reach.gained();
                let mut link = Link::new(wire, &node, &router);
                let broken = link.run(batch).await;
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
    node: &'a Node,
    server: &'a RedisServer,
    router: &'a Arc<Router>,
    flights: VecDeque<Flight>,
    /// What a caller could not send of the last of them.
    rest: Vec<u8>,
    /// Whether a caller has sent something by itself since the connection was last laid on the desk.
    is_used: bool,
    /// Whether it counts as busy.
    is_busy: bool,
    /// Those that have written, and that too few replicas have confirmed so far.
    short: Vec<(Request, Vec<Value>)>,
}

impl<'a> Link<'a> {
    fn new(wire: Wire, node: &'a Node, router: &'a Arc<Router>) -> Self {
        Self {
            wire,
            node,
            server: &node.server,
            router,
            flights: VecDeque::new(),
            rest: Vec::new(),
            is_used: false,
            is_busy: false,
            short: Vec::new(),
        }
    }

    /// Works until the connection is of no use any more; says why, if it broke.
    async fn run(&mut self, first: Vec<Request>) -> Option<Broken> {
        let mut next = Some(first);
        let mut keep = Keep::Yes;
        loop {
            self.count();
            if keep == Keep::No && self.flights.is_empty() && self.short.is_empty() {
                return None;
            }
            if let Err(broken) = self.send(next.take()).await {
                return Some(broken);
            }
            if let Err(broken) = self.wait_on().await {
                return Some(broken);
            }
            self.count();
            match self.event(keep).await {
                // What is under way is still answered here; all else goes elsewhere.
                Ok(Event::Received(value)) => match self.take_all(value) {
                    Ok(Keep::Yes) => {}
                    Ok(Keep::No) => keep = Keep::No,
                    Err(broken) => return Some(broken),
                },
                Ok(Event::Queued(batch)) => next = Some(batch),
                Ok(Event::Looked) => {}
                Err(broken) => return Some(broken),
            }
        }
    }

    /// Waits for what happens next. A caller may have sent something by itself meanwhile: that is under way then.
    async fn event(&mut self, keep: Keep) -> Result<Event, Broken> {
        let node = self.node;
        let free = WINDOW_BYTES.saturating_sub(self.flights.iter().map(|flight| flight.bytes).sum());
        let takes_more = free > 0 && keep == Keep::Yes && !self.waits_on();
        let deadline = self.flights.front().map(|flight| (flight.deadline, flight.limit));
        let lies = self.lay_down(keep);
        let look = lies.flatten();
        let event = tokio::select! {
            biased;
            // Also while nothing is asked: a connection that is closed meanwhile must not be sent anything.
            received = self.wire.receive() => received.map(Event::Received),
            batch = node.next(free), if takes_more => Ok(Event::Queued(batch)),
            () = node.desk.used(), if lies.is_some() => Ok(Event::Looked),
            () = until(look), if look.is_some() => Ok(Event::Looked),
            () = until(deadline.map(|(deadline, _)| deadline)), if deadline.is_some() => {
                Err(Broken::Slow(deadline.map_or(Duration::ZERO, |(_, limit)| limit)))
            }
        };
        if lies.is_some() {
            self.pick_up();
        }
        event
    }

    /// Sends a pipeline, or at least what a caller could not send.
    async fn send(&mut self, batch: Option<Vec<Request>>) -> Result<(), Broken> {
        let Some(batch) = batch else { return self.write(Vec::new()).await };
        self.node.desk.departs(batch.len());
        let (flight, pipeline) = departure(self.router, batch);
        self.take_off(flight, pipeline).await
    }

    /// Waits on for replicas that have not confirmed yet what was written.
    async fn wait_on(&mut self) -> Result<(), Broken> {
        if self.short.is_empty() {
            return Ok(());
        }
        let short = std::mem::take(&mut self.short);
        let replicas = wanted(self.router, short.iter().map(|(request, _)| request));
        // Nothing else is sent behind such a wait: one that is under way waits for these as well.
        let covers = |flight: &&mut Flight| flight.is_last_wait_for(replicas);
        if let Some(flight) = self.flights.back_mut().filter(covers) {
            flight.answered.extend(short);
            return Ok(());
        }
        let patience = self.router.dialer.options.wait_timeout;
        let wait = Wait { replicas, patience, is_last: true };
        let bytes = wait.encode();
        let flight = Flight::new(self.router, VecDeque::new(), short, Some(wait), bytes.len());
        self.take_off(flight, bytes).await
    }

    /// Whether replicas are waited for, and nothing else is sent.
    fn waits_on(&self) -> bool {
        self.flights.back().is_some_and(|flight| flight.waiting.is_empty() && flight.is_last_wait_for(0))
    }

    /// From the first byte on a pipeline is under way.
    async fn take_off(&mut self, flight: Flight, bytes: Vec<u8>) -> Result<(), Broken> {
        self.flights.push_back(flight);
        self.write(bytes).await
    }

    /// Writes what is left over, and behind it these bytes, before the last flight's time is up.
    async fn write(&mut self, bytes: Vec<u8>) -> Result<(), Broken> {
        let mut all = std::mem::take(&mut self.rest);
        all.extend(bytes);
        let Some(flight) = self.flights.back().filter(|_| !all.is_empty()) else { return Ok(()) };
        let limit = flight.limit;
        match tokio::time::timeout_at(flight.deadline, self.wire.send(&all)).await {
            Ok(sent) => sent,
            Err(_) => Err(Broken::Slow(limit)),
        }
    }

    /// Says whether something is under way here.
    fn count(&mut self) {
        let is_busy = !self.flights.is_empty() || !self.short.is_empty();
        match (self.is_busy, is_busy) {
            (false, true) => self.node.desk.begins(),
            (true, false) => self.node.desk.ends(),
            _ => {}
        }
        self.is_busy = is_busy;
    }

    /// Lays the connection on the desk if it has nothing to do; says until when it may lie there unseen.
    fn lay_down(&self, keep: Keep) -> Option<Option<Instant>> {
        let is_idle = self.flights.is_empty() && self.short.is_empty() && keep == Keep::Yes;
        let socket = self.wire.socket.as_ref().filter(|_| is_idle)?;
        let is_used = self.is_used;
        let watch = if is_used { Watch::Soon } else { Watch::WhenTold };
        let look = is_used.then(|| Instant::now() + LOOK.min(self.router.dialer.options.timeout));
        self.node.desk.lay(socket, watch).then_some(look)
    }

    /// Takes the connection back from the desk, and what was sent over it.
    fn pick_up(&mut self) {
        let Some(socket) = &self.wire.socket else { return };
        let sent = self.node.desk.take_back(socket);
        self.is_used = sent.is_some();
        if let Some(Sent { flight, rest }) = sent {
            self.flights.push_back(flight);
            self.rest = rest;
        }
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
        let Some(call) = flight.waiting.front() else { return Ok(self.take_wait(&value)) };
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
            } else if settle(request, replies, &Ok(()), self.server, self.router) == Keep::No {
                keep = Keep::No;
            }
        }
        if flight.waiting.is_empty() && flight.wait.is_none() {
            self.flights.pop_front();
        }
        Ok(keep)
    }

    /// All calls of the first flight have answered: this is what the wait for replicas came to.
    fn take_wait(&mut self, value: &Value) -> Keep {
        let mut keep = Keep::Yes;
        let Some(Flight { answered, wait: Some(wait), .. }) = self.flights.pop_front() else { return keep };
        let confirmed = confirmed(value, wait);
        if confirmed.is_err() && !wait.is_last {
            self.short.extend(answered);
            return keep;
        }
        for (request, replies) in answered {
            if settle(request, replies, &confirmed, self.server, self.router) == Keep::No {
                keep = Keep::No;
            }
        }
        keep
    }

    /// Tells those who are still under way that the connection is gone.
    fn give_up(&mut self, broken: &Broken) {
        let why = broken.to_string();
        let confirmed = Err(why.clone());
        for (request, replies) in self.short.drain(..) {
            settle(request, replies, &confirmed, self.server, self.router);
        }
        for flight in self.flights.drain(..) {
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

impl Drop for Link<'_> {
    /// However its driver ends: nobody may find the connection on the desk any more, or wait for an answer that nobody reads.
    fn drop(&mut self) {
        self.pick_up();
        if !self.flights.is_empty() || !self.short.is_empty() {
            self.give_up(&Broken::Closed);
        }
        self.count();
    }
}

/// What a connection meets.
enum Event {
    /// A reply.
    Received(Value),
    /// Requests that were queued for its server.
    Queued(Vec<Request>),
    /// It was time to look at what callers have sent by themselves.
    Looked,
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
