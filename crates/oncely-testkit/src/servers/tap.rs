//! A tap on the way to a server: TCP is passed on, slowed down, held back, or cut at a chosen byte.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use super::{Trouble, locked};

/// A proxy on a port of its own; everything it holds is closed when it is dropped.
#[derive(Debug)]
pub struct Tap {
    shared: Arc<Shared>,
    address: SocketAddr,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    target: SocketAddr,
    flow: Flow,
    delay: Duration,
    /// How many more bytes of answers pass before everything is cut once.
    answer_budget: Option<usize>,
    /// How often an answer has been cut at its byte.
    cuts: usize,
    /// How often somebody asked, on any connection: pieces of requests with no answer between them are one.
    turns: usize,
    /// The most bytes that went one way on a connection before anything came back.
    largest_request: usize,
    largest_answer: usize,
    /// Both ends of every connection, by its number.
    open: Vec<(u64, TcpStream, TcpStream)>,
    next: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flow {
    Passing,
    Held,
    Refusing,
    Closed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    Request,
    Answer,
}

/// What goes to and fro on one connection.
#[derive(Debug, Default)]
struct Talk {
    /// Which way the last piece went,
    last: Option<Direction>,
    /// and how much has gone that way since the other had its say.
    bytes: usize,
}

impl Tap {
    /// A tap on the way to this address, passing everything.
    pub fn to(target: SocketAddr) -> Result<Self, Trouble> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let address = listener.local_addr()?;
        let state = State {
            target,
            flow: Flow::Passing,
            delay: Duration::ZERO,
            answer_budget: None,
            cuts: 0,
            turns: 0,
            largest_request: 0,
            largest_answer: 0,
            open: Vec::new(),
            next: 0,
        };
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() });
        let accepting = shared.clone();
        thread::spawn(move || accepting.accept(&listener));
        Ok(Self { shared, address })
    }

    /// A tap on the way to a port of this machine.
    pub fn to_port(port: u16) -> Result<Self, Trouble> {
        Self::to(SocketAddr::from(([127, 0, 0, 1], port)))
    }

    /// The port to connect to.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// New connections go to this address.
    pub fn point_at(&self, target: SocketAddr) {
        self.shared.change(|state| state.target = target);
    }

    /// Passes everything, also what was held back.
    pub fn pass(&self) {
        self.shared.change(|state| {
            state.flow = Flow::Passing;
            state.delay = Duration::ZERO;
            state.answer_budget = None;
        });
    }

    /// Holds everything back, as a network that has been parted: connections open and stay open, nothing arrives.
    pub fn black_hole(&self) {
        self.shared.change(|state| state.flow = Flow::Held);
    }

    /// Closes all connections and every new one.
    pub fn cut(&self) {
        self.shared.change(|state| {
            state.flow = Flow::Refusing;
            state.close_all();
        });
    }

    /// Closes all connections; new ones pass.
    pub fn cut_once(&self) {
        self.shared.change(State::close_all);
    }

    /// Every piece of either direction is this much later.
    pub fn delay(&self, delay: Duration) {
        self.shared.change(|state| state.delay = delay);
    }

    /// After so many more bytes of answers, on whichever connections, all are closed; new ones pass. With 0, a request
    /// arrives and its answer does not.
    pub fn cut_after_answered(&self, bytes: usize) {
        self.shared.change(|state| state.answer_budget = Some(bytes));
    }

    /// How often [`Self::cut_after_answered`] has cut: each time an answer was on its way and did not arrive whole.
    pub fn cuts(&self) -> usize {
        locked(&self.shared.state).cuts
    }

    /// Waits for the next such cut if one is pending, and says whether none is pending any more.
    pub fn cut_within(&self, patience: Duration) -> bool {
        let state = locked(&self.shared.state);
        let waited =
            self.shared.changed.wait_timeout_while(state, patience, |state| state.answer_budget.is_some());
        waited.unwrap_or_else(PoisonError::into_inner).0.answer_budget.is_none()
    }

    /// How many round trips were begun, on all connections together: a request that follows an answer, or is the first.
    pub fn turns(&self) -> usize {
        locked(&self.shared.state).turns
    }

    /// The bytes of the largest request since the last time that this was asked: all that was sent before anything came
    /// back.
    pub fn largest_request(&self) -> usize {
        std::mem::take(&mut locked(&self.shared.state).largest_request)
    }

    /// The bytes of the largest answer since then: all that came back before anything more was sent.
    pub fn largest_answer(&self) -> usize {
        std::mem::take(&mut locked(&self.shared.state).largest_answer)
    }

    /// How many connections are open.
    pub fn connections(&self) -> usize {
        locked(&self.shared.state).open.len()
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        self.shared.change(|state| {
            state.flow = Flow::Closed;
            state.close_all();
        });
        // Wakes the thread that waits for connections.
        let _ = TcpStream::connect(self.address);
    }
}

impl State {
    fn close_all(&mut self) {
        for (_, client, server) in self.open.drain(..) {
            // The other side may have closed it already.
            let _ = client.shutdown(Shutdown::Both);
            let _ = server.shutdown(Shutdown::Both);
        }
    }
}

impl Shared {
    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut locked(&self.state));
        self.changed.notify_all();
    }

    fn accept(self: Arc<Self>, listener: &TcpListener) {
        for client in listener.incoming() {
            match locked(&self.state).flow {
                Flow::Closed => return,
                Flow::Refusing => continue,
                Flow::Passing | Flow::Held => {}
            }
            let Ok(client) = client else { continue };
            let shared = self.clone();
            thread::spawn(move || shared.serve(client));
        }
    }

    /// A connection that cannot be made is one that is closed at once.
    fn serve(self: Arc<Self>, client: TcpStream) {
        let Some((target, _)) = self.when_it_flows() else { return };
        let Ok(server) = TcpStream::connect(target) else { return };
        let both = || Some((client.try_clone().ok()?, server.try_clone().ok()?));
        let (Some(kept), Some((from_client, to_server))) = (both(), both()) else { return };
        let _ = (client.set_nodelay(true), server.set_nodelay(true));
        let number = {
            let mut state = locked(&self.state);
            if matches!(state.flow, Flow::Refusing | Flow::Closed) {
                return;
            }
            state.next += 1;
            let number = state.next;
            state.open.push((number, kept.0, kept.1));
            number
        };
        let (requests, talk) = (self.clone(), Arc::new(Mutex::new(Talk::default())));
        let talked = talk.clone();
        let pump = thread::spawn(move || requests.pump(from_client, to_server, Direction::Request, &talked));
        self.pump(server, client, Direction::Answer, &talk);
        let _ = pump.join();
        locked(&self.state).open.retain(|(known, _, _)| *known != number);
    }

    fn pump(&self, mut from: TcpStream, mut to: TcpStream, direction: Direction, talk: &Mutex<Talk>) {
        let mut piece = vec![0; 64 * 1024];
        while let Ok(read @ 1..) = from.read(&mut piece) {
            let Some((_, delay)) = self.when_it_flows() else { break };
            if !delay.is_zero() {
                thread::sleep(delay);
            }
            self.count(&mut locked(talk), direction, read);
            let passed = if direction == Direction::Answer { self.spend(read) } else { read };
            if to.write_all(&piece[..passed]).is_err() {
                break;
            }
            if passed < read {
                self.change(|state| {
                    state.cuts += 1;
                    state.close_all();
                });
                break;
            }
        }
        // An end of either direction ends both: the servers here know no half-open connections.
        let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
    }

    fn count(&self, talk: &mut Talk, direction: Direction, read: usize) {
        let turned = talk.last != Some(direction);
        *talk = Talk { last: Some(direction), bytes: if turned { read } else { talk.bytes + read } };
        let mut state = locked(&self.state);
        match direction {
            Direction::Request => {
                state.turns += usize::from(turned);
                state.largest_request = state.largest_request.max(talk.bytes);
            }
            Direction::Answer => state.largest_answer = state.largest_answer.max(talk.bytes),
        }
    }

    /// How much of an answer of this length passes.
    fn spend(&self, read: usize) -> usize {
        let mut state = locked(&self.state);
        match state.answer_budget {
            Some(left) if left < read => {
                state.answer_budget = None;
                left
            }
            Some(left) => {
                state.answer_budget = Some(left - read);
                read
            }
            None => read,
        }
    }

    /// Waits while everything is held back. `None`: there is nothing to pass to any more.
    fn when_it_flows(&self) -> Option<(SocketAddr, Duration)> {
        let mut state = locked(&self.state);
        loop {
            match state.flow {
                Flow::Passing => return Some((state.target, state.delay)),
                Flow::Refusing | Flow::Closed => return None,
                Flow::Held => state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }
}
