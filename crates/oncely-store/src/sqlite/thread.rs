//! Who writes: a thread of its own with a beginning and an end, or the thread that calls.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use oncely_core::{StoreError, StoreErrorKind};

use super::batch::Op;
use super::writer::Writer;

/// How long a ledger that is closed waits for its turn to write the last counters and to shorten the log. What callers
/// were told to be written is written by then; a process that is stopped in its turn must not keep others from ending.
const CLOSING_PATIENCE: Duration = Duration::from_secs(10);
/// Writes on the thread that calls, at most: a claim and its end. Whoever writes more gets a thread, which also keeps the
/// log short and leaves a caller free while the disk takes its time.
const BY_CALLER_MAX: u32 = 2;

/// The writer, for whoever wants something written.
pub(crate) struct Hands(Mutex<Hand>);

impl Hands {
    /// A writer that has no thread yet.
    pub(crate) fn new(writer: Writer, queue: Receiver<Op>) -> Self {
        Self(Mutex::new(Hand::Caller(Idle { writer: Box::new(writer), queue, writes: 0 })))
    }

    /// See [`Hand::take_on`].
    pub(crate) fn take_on(&self, op: Op) -> Result<Option<Op>, StoreError> {
        self.lock().take_on(op)
    }

    /// See [`Hand::start`].
    pub(crate) fn start(&self) -> Result<(), StoreError> {
        self.lock().start()
    }

    /// Whether there is a thread, as far as that can be seen without waiting.
    pub(crate) fn has_thread(&self) -> bool {
        self.0.try_lock().is_ok_and(|hand| matches!(*hand, Hand::Thread(_)))
    }

    /// Whether all that was handed in is on disk: callers write by themselves, and the last one has ended.
    pub(crate) fn have_written_all(&self) -> bool {
        matches!(*self.lock(), Hand::Caller(_))
    }

    /// Takes the writer away, without waiting for anybody: in a forked child nobody is left who could let go of it.
    pub(crate) fn take(&mut self) -> Hand {
        std::mem::replace(self.0.get_mut().unwrap_or_else(PoisonError::into_inner), Hand::Gone)
    }

    fn lock(&self) -> MutexGuard<'_, Hand> {
        self.0.lock().unwrap_or_else(|poisoned| {
            // A writer that panicked in the middle of a transaction goes, and the transaction with it.
            let mut hand = poisoned.into_inner();
            *hand = Hand::Gone;
            hand
        })
    }
}

/// Where the writer works.
pub(crate) enum Hand {
    /// On the thread that calls.
    Caller(Idle),
    /// On a thread of its own.
    Thread(WriterThread),
    /// Nowhere any more.
    Gone,
}

/// A writer without a thread, and the queue for the thread that may follow.
pub(crate) struct Idle {
    writer: Box<Writer>,
    queue: Receiver<Op>,
    writes: u32,
}

impl Hand {
    /// Does what is asked at once, or gives it back for the queue, which a thread then serves: if somebody else writes,
    /// to wait for them would hold up the caller.
    fn take_on(&mut self, mut op: Op) -> Result<Option<Op>, StoreError> {
        let Self::Caller(idle) = self else { return Ok(Some(op)) };
        if idle.writes < BY_CALLER_MAX {
            match idle.writer.commit_at_once(op) {
                None => {
                    idle.writes += 1;
                    return Ok(None);
                }
                Some(left) => op = left,
            }
        }
        self.start().map(|()| Some(op))
    }

    /// Moves the writer to a thread of its own, unless it has one. If that fails, all stays as it was: there may be
    /// room for a thread later, or no need.
    fn start(&mut self) -> Result<(), StoreError> {
        *self = match std::mem::replace(self, Self::Gone) {
            Self::Caller(idle) => match WriterThread::start(idle) {
                Ok(thread) => Self::Thread(thread),
                Err((error, idle)) => {
                    *self = idle.map_or(Self::Gone, Self::Caller);
                    return Err(not_started(&error));
                }
            },
            other => other,
        };
        Ok(())
    }

    /// Waits for the end of what was begun.
    pub(crate) fn end(self) {
        match self {
            Self::Caller(Idle { writer, queue, writes }) => {
                let left =
                    writer.close().err().map(|writer| WriterThread::start(Idle { writer, queue, writes }));
                // Without a thread only counters are lost.
                if let Some(Ok(thread)) = left {
                    thread.end();
                }
            }
            Self::Thread(thread) => thread.end(),
            Self::Gone => {}
        }
    }
}

/// A writing thread, and word of its end.
pub(crate) struct WriterThread {
    thread: JoinHandle<()>,
    ended: Receiver<()>,
}

impl WriterThread {
    /// Starts it. It serves until no sender of the queue is left. If it cannot be started, the writer comes back.
    fn start(idle: Idle) -> Result<Self, (io::Error, Option<Idle>)> {
        let (ending, ended) = channel();
        // Handed over in a place that both can reach: what a thread that never was takes with it is lost.
        let place = Arc::new(Mutex::new(Some(idle)));
        let handed_over = Arc::clone(&place);
        let serve = move || {
            let idle = lock(&handed_over).take();
            if let Some(Idle { writer, queue, .. }) = idle {
                writer.run(&queue);
            }
            // Whoever closed the ledger may have stopped waiting.
            let _ = ending.send(());
        };
        match Builder::new().name("oncely-writer".into()).spawn(serve) {
            Ok(thread) => Ok(Self { thread, ended }),
            Err(error) => Err((error, lock(&place).take())),
        }
    }

    /// Waits for its end, but not for ever.
    fn end(self) {
        if !matches!(self.ended.recv_timeout(CLOSING_PATIENCE), Err(RecvTimeoutError::Timeout)) {
            // If it panicked, its callers were told.
            let _ = self.thread.join();
        }
    }
}

fn lock<T>(place: &Mutex<T>) -> MutexGuard<'_, T> {
    place.lock().unwrap_or_else(PoisonError::into_inner)
}

fn not_started(error: &io::Error) -> StoreError {
    let message = format!("the ledger's writer could not be started: {error}; nothing was written");
    StoreError::before(StoreErrorKind::Unavailable, message)
}
