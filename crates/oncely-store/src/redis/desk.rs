//! Where a connection lies that has nothing to do, so that a caller who is alone sends by itself.
//!
//! To hand a request to another thread costs a lone caller more than to send it: that thread has to be woken first. Many
//! callers are better served by the queue, where their requests come together while the thread wakes. So a connection is
//! laid here only after several pipelines with one request each. It stays its driver's: the answer is read there, and
//! whatever the driver does next, it first takes back what was sent meanwhile. Sent is a request as soon as its flight
//! lies here: from then on it is answered like any other.

use std::io::{ErrorKind, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::flight::Flight;
use super::link::Request;

/// So many pipelines with one request each, one after the other, are a lone caller's.
const LONE_MIN: u32 = 4;
/// A larger request is its driver's to send: it may not fit into what the system buffers.
const BYTES_MAX: usize = 16 * 1024;

/// The desk of one server.
#[derive(Default)]
pub(crate) struct Desk {
    offer: Mutex<Option<Offer>>,
    /// Wakes the driver of the connection that lies here.
    used: Notify,
    /// Drivers that have something under way.
    busy: AtomicUsize,
    /// Pipelines with one request each while nothing else was under way, up to now.
    lone: AtomicU32,
}

/// A connection that lies on the desk.
struct Offer {
    socket: Arc<TcpStream>,
    /// Whether its driver looks at it again by itself before long.
    watch: Watch,
    sent: Option<Sent>,
}

/// Whether a driver looks again by itself, or has to be told that its connection was used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Watch {
    /// It looks again.
    Soon,
    /// It has to be told.
    WhenTold,
}

/// What a caller has sent.
pub(crate) struct Sent {
    pub(crate) flight: Flight,
    /// What the system did not take: to be sent before anything else.
    pub(crate) rest: Vec<u8>,
}

impl Desk {
    /// A driver is about to send a pipeline of so many requests.
    pub(crate) fn departs(&self, requests: usize) {
        let is_used = self.lock().as_ref().is_some_and(|offer| offer.sent.is_some());
        if requests != 1 || is_used || self.busy.load(Ordering::Relaxed) > 0 {
            self.lone.store(0, Ordering::Relaxed);
        } else if self.lone.load(Ordering::Relaxed) < LONE_MIN {
            self.lone.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A driver has something under way from now on.
    pub(crate) fn begins(&self) {
        self.busy.fetch_add(1, Ordering::Relaxed);
    }

    /// It has no longer.
    pub(crate) fn ends(&self) {
        self.busy.fetch_sub(1, Ordering::Relaxed);
    }

    /// Lays a connection here that has nothing to do, if callers are alone and none lies here; answers whether it does.
    pub(crate) fn lay(&self, socket: &Arc<TcpStream>, watch: Watch) -> bool {
        if self.lone.load(Ordering::Relaxed) < LONE_MIN || self.busy.load(Ordering::Relaxed) > 0 {
            return false;
        }
        let mut offer = self.lock();
        if offer.is_some() {
            return false;
        }
        *offer = Some(Offer { socket: Arc::clone(socket), watch, sent: None });
        true
    }

    /// Returns when somebody has used a connection whose driver has to be told.
    pub(crate) async fn used(&self) {
        self.used.notified().await;
    }

    /// Takes a connection back, and what was sent over it.
    pub(crate) fn take_back(&self, socket: &Arc<TcpStream>) -> Option<Sent> {
        let mut offer = self.lock();
        offer.take_if(|offer| Arc::ptr_eq(&offer.socket, socket)).and_then(|offer| offer.sent)
    }

    /// Sends a request over the connection that lies here. Gives it back if there is none, or it is in use, or something
    /// has arrived that its driver has not seen yet: then it may be closed.
    pub(crate) fn send(
        &self,
        request: Request,
        prepare: impl FnOnce(Request) -> (Flight, Vec<u8>),
    ) -> Result<(), Box<Request>> {
        let mut offer = self.lock();
        let Some(Offer { socket, watch, sent: sent @ None }) = offer.as_mut() else {
            return Err(Box::new(request));
        };
        if self.busy.load(Ordering::Relaxed) > 0 || request.len() > BYTES_MAX || !is_quiet(socket) {
            return Err(Box::new(request));
        }
        let (flight, mut bytes) = prepare(request);
        let written = match (&**socket).write(&bytes) {
            Ok(written) => written,
            Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
            Err(_) => {
                // It is broken: its driver gives up what is under way. It may be gone entirely, which is as well.
                let _ = socket.shutdown(Shutdown::Both);
                bytes.len()
            }
        };
        bytes.drain(..written);
        let tell = *watch == Watch::WhenTold || !bytes.is_empty();
        *sent = Some(Sent { flight, rest: bytes });
        drop(offer);
        if tell {
            self.used.notify_one();
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Option<Offer>> {
        self.offer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether nothing has arrived on a socket, not even its end.
fn is_quiet(socket: &TcpStream) -> bool {
    matches!(socket.peek(&mut [0]), Err(error) if error.kind() == ErrorKind::WouldBlock)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::sync::Arc;
    use std::time::Duration;

    use tokio::sync::oneshot;
    use tokio::time::Instant;

    use super::{Desk, LONE_MIN, Sent, Watch};
    use crate::redis::flight::Flight;
    use crate::redis::link::{Asks, Request, Writes};
    use crate::redis::outstanding::Outstanding;

    fn request() -> Request {
        let (caller, _) = oneshot::channel();
        let ticket = Arc::<Outstanding>::default().enter();
        let asks = Asks::Plain { bytes: b"PING\r\n".to_vec(), replies: 1 };
        Request { shard: 0, asks, writes: Writes::No, hops: 0, asking: false, caller, ticket }
    }

    fn flight(request: Request) -> (Flight, Vec<u8>) {
        let limit = Duration::from_secs(1);
        let waiting = [vec![request]].into();
        let (partial, answered) = (Vec::new(), Vec::new());
        let deadline = Instant::now() + limit;
        let flight = Flight { waiting, partial, answered, wait: None, bytes: 6, deadline, limit };
        (flight, b"PING\r\n".to_vec())
    }

    /// A desk whose callers are alone, a connection, and the server's end of it.
    fn lone() -> (Desk, Arc<TcpStream>, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let server = listener.accept().unwrap().0;
        socket.set_nonblocking(true).unwrap();
        let desk = Desk::default();
        (0..LONE_MIN).for_each(|_| desk.departs(1));
        (desk, Arc::new(socket), server)
    }

    #[test]
    fn a_lone_caller_sends_once_over_a_connection_that_lies_there() {
        let (desk, socket, mut server) = lone();
        assert!(desk.send(request(), flight).is_err(), "none lies there");
        assert!(desk.lay(&socket, Watch::Soon));
        assert!(desk.send(request(), flight).is_ok());
        assert!(desk.send(request(), flight).is_err(), "it is in use");
        let mut arrived = [0; 6];
        server.read_exact(&mut arrived).unwrap();
        assert_eq!(&arrived, b"PING\r\n");
        let Sent { flight: sent, rest } = desk.take_back(&socket).unwrap();
        assert_eq!((sent.waiting.len(), rest.len()), (1, 0));
        assert!(desk.send(request(), flight).is_err(), "it was taken back");
        assert!(desk.take_back(&socket).is_none());
    }

    #[test]
    fn callers_who_are_not_alone_meet_in_the_queue() {
        let (desk, socket, _server) = lone();
        desk.departs(2);
        assert!(!desk.lay(&socket, Watch::Soon), "two went together");
        (0..LONE_MIN).for_each(|_| desk.departs(1));
        desk.begins();
        assert!(!desk.lay(&socket, Watch::Soon), "another one is under way");
        desk.ends();
        assert!(desk.lay(&socket, Watch::Soon));
        desk.begins();
        assert!(desk.send(request(), flight).is_err(), "another one is under way meanwhile");
    }

    #[test]
    fn nothing_is_sent_over_a_connection_on_which_something_has_arrived() {
        let (desk, socket, mut server) = lone();
        assert!(desk.lay(&socket, Watch::Soon));
        server.write_all(b"?").unwrap();
        // It is there once it can be seen.
        socket.set_nonblocking(false).unwrap();
        socket.peek(&mut [0]).unwrap();
        socket.set_nonblocking(true).unwrap();
        assert!(desk.send(request(), flight).is_err(), "an answer to nothing");
        socket.as_ref().read_exact(&mut [0]).unwrap();
        drop(server);
        socket.set_nonblocking(false).unwrap();
        assert_eq!(socket.peek(&mut [0]).unwrap(), 0);
        socket.set_nonblocking(true).unwrap();
        assert!(desk.send(request(), flight).is_err(), "it is closed");
        assert!(desk.take_back(&socket).is_none());
    }
}
