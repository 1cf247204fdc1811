//! How far the body of a request has got on its way to a service: however long it takes, only its pauses are limited.

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use tokio::time::Instant;

use super::upstream::SendFailure;

/// A body that passes through.
#[derive(Debug)]
pub struct Upload {
    began: Instant,
    /// When a piece of it, or its end, last went on: milliseconds after it began.
    moved: AtomicU64,
    stage: AtomicU8,
}

/// Who paused for too long while a request went out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pause {
    /// The client sent nothing more.
    Client,
    /// The service took nothing more.
    Service,
}

impl Pause {
    pub(super) fn why(self) -> &'static str {
        match self {
            Self::Client => "the rest of the request did not come in time",
            Self::Service => "the service did not take the rest of the request in time",
        }
    }
}

/// What the body was last seen to wait for.
const CLIENT: u8 = 0;
const SERVICE: u8 = 1;
const NOTHING: u8 = 2;

impl Upload {
    pub(super) fn begin() -> Self {
        Self { began: Instant::now(), moved: AtomicU64::new(0), stage: AtomicU8::new(CLIENT) }
    }

    /// Notes what became of asking for the next piece; `ended`: there will be no other.
    pub(super) fn note<T>(&self, polled: &Poll<T>, ended: impl FnOnce(&T) -> bool) {
        let stage = match polled {
            Poll::Pending => CLIENT,
            Poll::Ready(piece) => {
                let ms = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
                self.moved.store(ms, Ordering::Relaxed);
                if ended(piece) { NOTHING } else { SERVICE }
            }
        };
        self.stage.store(stage, Ordering::Relaxed);
    }

    fn moved(&self) -> Instant {
        self.began + Duration::from_millis(self.moved.load(Ordering::Relaxed))
    }

    /// Why there is no answer, after nothing has moved for so long.
    fn failure(&self, waited: Duration) -> SendFailure {
        match self.stage.load(Ordering::Relaxed) {
            CLIENT => SendFailure::CutShort(Pause::Client),
            SERVICE => SendFailure::CutShort(Pause::Service),
            _ => SendFailure::TimedOut(waited),
        }
    }
}

/// Waits for the head of an answer. The clock starts when the request has gone out, or stops going out: with every piece of
/// its body it starts anew.
pub(super) async fn answer_in_time<T>(
    patience: Duration,
    upload: Option<&Upload>,
    answer: impl Future<Output = T>,
) -> Result<T, SendFailure> {
    let mut answer = pin!(answer);
    let mut until = Instant::now() + patience;
    loop {
        if let Ok(answer) = tokio::time::timeout_at(until, answer.as_mut()).await {
            return Ok(answer);
        }
        let Some(upload) = upload else { return Err(SendFailure::TimedOut(patience)) };
        let later = upload.moved() + patience;
        if later <= until {
            return Err(upload.failure(patience));
        }
        until = later;
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::sync::Arc;
    use std::task::Poll;
    use std::time::Duration;

    use tokio::time::{Instant, sleep};

    use super::{Pause, Upload, answer_in_time};
    use crate::gateway::upstream::SendFailure;

    const PATIENCE: Duration = Duration::from_secs(60);

    /// A body in pieces, each half as long after the one before as is allowed, and what the last of them looks like.
    fn goes_out(pieces: u32, last: Poll<bool>) -> Arc<Upload> {
        let upload = Arc::new(Upload::begin());
        let noted = upload.clone();
        tokio::spawn(async move {
            for _ in 0..pieces {
                sleep(PATIENCE / 2).await;
                noted.note(&Poll::Ready(false), |ended| *ended);
            }
            noted.note(&last, |ended| *ended);
        });
        upload
    }

    #[tokio::test(start_paused = true)]
    async fn the_clock_starts_anew_with_every_piece_of_the_request() {
        let began = Instant::now();
        let upload = goes_out(10, Poll::Ready(true));
        let answer = async {
            sleep(PATIENCE * 5 + PATIENCE / 2).await;
            "made"
        };
        assert_eq!(answer_in_time(PATIENCE, Some(&upload), answer).await, Ok("made"));
        assert!(began.elapsed() > PATIENCE * 5);
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_ends_it_and_what_is_said_of_it_is_true() {
        for (last, failure) in [
            (Poll::Pending, SendFailure::CutShort(Pause::Client)),
            (Poll::Ready(false), SendFailure::CutShort(Pause::Service)),
            (Poll::Ready(true), SendFailure::TimedOut(PATIENCE)),
        ] {
            let began = Instant::now();
            let upload = goes_out(4, last);
            let none = answer_in_time(PATIENCE, Some(&upload), pending::<()>()).await;
            assert_eq!(none, Err(failure));
            assert_eq!(began.elapsed(), PATIENCE * 3, "it waits no longer than it should");
        }
        let none = answer_in_time(PATIENCE, None, pending::<()>()).await;
        assert_eq!(none, Err(SendFailure::TimedOut(PATIENCE)));
    }
}
