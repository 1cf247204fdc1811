//! Takes in what clients post: not more than memory allows, and not from one who has stopped in the middle.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::StatusCode;
use hyper::body::Body;
use oncely_core::limits::{HTTP_STALL_MS, MCP_BUFFERED_BYTES_MAX};

use super::body::Refusal;

/// How long a message may pause before it counts as broken off.
const STALL: Duration = Duration::from_millis(HTTP_STALL_MS);

/// So much of every message is taken in, however many long ones there are: a cancellation, or the answer that one of those
/// waits for, must not wait for their end. The number of connections bounds it.
const ALWAYS: usize = 64 * 1024;

/// Where the messages of all clients are read.
pub(super) struct Intake {
    /// Longest message.
    limit: usize,
    /// What is taken in of each, whatever the others take.
    always: usize,
    /// Most bytes of all together.
    most: usize,
    /// How many there are now.
    bytes: Arc<AtomicUsize>,
}

/// A message that was taken in, or is being so. It counts until this is dropped.
pub(super) struct TakenIn {
    bytes: Bytes,
    _counted: Counted,
}

impl TakenIn {
    /// The message.
    pub(super) fn bytes(&self) -> Bytes {
        self.bytes.clone()
    }
}

/// A part of what is counted.
struct Counted {
    own: usize,
    all: Arc<AtomicUsize>,
}

impl Counted {
    /// Counts some more; `false` if that is too much together, and then it is not counted.
    fn add(&mut self, more: usize, always: usize, most: usize) -> bool {
        let all = self.all.fetch_add(more, Ordering::AcqRel).saturating_add(more);
        if self.own + more > always && all > most {
            self.all.fetch_sub(more, Ordering::AcqRel);
            return false;
        }
        self.own += more;
        true
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.all.fetch_sub(self.own, Ordering::AcqRel);
    }
}

impl Intake {
    /// For messages of at most `limit` bytes.
    pub(super) fn new(limit: usize) -> Self {
        // The longest message has to fit.
        Self { limit, always: ALWAYS, most: MCP_BUFFERED_BYTES_MAX.max(limit), bytes: Arc::default() }
    }

    /// Reads a message. It is counted as it comes: what a client announces is not yet there.
    pub(super) async fn read<B>(&self, mut body: B) -> Result<TakenIn, Refusal>
    where
        B: Body<Data = Bytes> + Unpin,
    {
        let mut counted = Counted { own: 0, all: self.bytes.clone() };
        // Hardly any message comes in pieces, and that one is not copied.
        let (mut first, mut rest) = (Bytes::new(), BytesMut::new());
        loop {
            let frame = match tokio::time::timeout(STALL, body.frame()).await {
                Ok(Some(Ok(frame))) => frame,
                Ok(None) => break,
                Ok(Some(Err(_))) => {
                    let why = "the message could not be read; nothing ran";
                    return Err(Refusal::new(StatusCode::BAD_REQUEST, why));
                }
                Err(_) => {
                    let why = format!("no more of the message came for {} s; nothing ran", STALL.as_secs());
                    return Err(Refusal::new(StatusCode::REQUEST_TIMEOUT, &why));
                }
            };
            let Ok(piece) = frame.into_data() else { continue };
            if counted.own + piece.len() > self.limit {
                let why = "the message is longer than allowed (--max-message); nothing ran";
                return Err(Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, why));
            }
            if !counted.add(piece.len(), self.always, self.most) {
                let why = "too many long messages at once; nothing ran, try again later";
                return Err(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, why));
            }
            if first.is_empty() {
                first = piece;
                continue;
            }
            if rest.is_empty() {
                rest.extend_from_slice(&first);
            }
            rest.extend_from_slice(&piece);
        }
        let bytes = if rest.is_empty() { first } else { rest.freeze() };
        Ok(TakenIn { bytes, _counted: counted })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use tokio::sync::mpsc::Sender;

    use super::{Bytes, Intake, STALL};
    use crate::mcp::http::body::{AnyBody, Waiting, chunks};

    /// Room for ten bytes, and for eight of one message; one of each always.
    fn small() -> Intake {
        Intake { always: 1, most: 10, ..Intake::new(8) }
    }

    fn open() -> (Sender<Bytes>, AnyBody) {
        let (to, from) = Waiting::next_in_line();
        (to, chunks(from))
    }

    async fn whole(text: &'static str) -> AnyBody {
        let (to, body) = open();
        to.send(text.into()).await.unwrap();
        body
    }

    #[tokio::test]
    async fn messages_count_as_they_come_and_until_they_are_done_with() {
        let intake = small();
        let (to, slow) = open();
        let mut reading = Box::pin(intake.read(slow));
        for piece in ["123", "456"] {
            to.send(piece.into()).await.unwrap();
            // As far as it goes.
            tokio::select! { biased; _ = &mut reading => panic!("it has not ended"), () = async {} => {} }
        }
        let refused = intake.read(whole("12345").await).await.err().unwrap();
        assert_eq!(refused.status(), 503);
        let full = intake.read(whole("1234").await).await.unwrap();
        assert_eq!(intake.read(whole("!").await).await.unwrap().bytes(), "!", "a short one is never refused");
        drop(full);
        drop(intake.read(whole("1234").await).await.unwrap());
        drop(to);
        let taken_in = reading.await.unwrap();
        assert_eq!(taken_in.bytes(), "123456");
        assert_eq!(intake.read(whole("12345").await).await.err().unwrap().status(), 503);
        drop(taken_in);
        assert_eq!(intake.read(whole("12345").await).await.unwrap().bytes(), "12345");
        assert_eq!(intake.read(whole("123456789").await).await.err().unwrap().status(), 413);
        assert_eq!(intake.bytes.load(Ordering::Acquire), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_message_that_stops_in_the_middle_is_given_up() {
        let intake = small();
        let (to, body) = open();
        let begun = tokio::time::Instant::now();
        let sending = async {
            for piece in ["1", "2", "3"] {
                tokio::time::sleep(STALL / 2).await;
                to.send(piece.into()).await.unwrap();
            }
        };
        let (taken_in, ()) = tokio::join!(intake.read(body), sending);
        assert_eq!(taken_in.err().unwrap().status(), 408);
        assert_eq!(begun.elapsed(), 3 * STALL / 2 + STALL, "a slow one is not given up");
        assert_eq!(intake.bytes.load(Ordering::Acquire), 0);
    }
}
