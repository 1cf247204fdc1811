//! The writing thread's beginning and end.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use super::batch::Op;
use super::writer::Writer;

/// How long a ledger that is closed waits for its turn to write the last counters and to shorten the log. What callers
/// were told to be written is written by then; a process that is stopped in its turn must not keep others from ending.
const CLOSING_PATIENCE: Duration = Duration::from_secs(10);

/// A writing thread, and word of its end.
pub(crate) struct WriterThread {
    thread: JoinHandle<()>,
    ended: Receiver<()>,
}

impl WriterThread {
    /// Starts it. It serves until no sender of the queue is left.
    pub(crate) fn start(writer: Writer, queue: Receiver<Op>) -> io::Result<Self> {
        let (ending, ended) = channel();
        let serve = move || {
            writer.run(&queue);
            // Whoever closed the ledger may have stopped waiting.
            let _ = ending.send(());
        };
        let thread = Builder::new().name("oncely-writer".into()).spawn(serve)?;
        Ok(Self { thread, ended })
    }

    /// Waits for its end, but not for ever.
    pub(crate) fn end(self) {
        if !matches!(self.ended.recv_timeout(CLOSING_PATIENCE), Err(RecvTimeoutError::Timeout)) {
            // If it panicked, its callers were told.
            let _ = self.thread.join();
        }
    }
}
