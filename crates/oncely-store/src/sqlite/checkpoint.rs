//! Copies the write-ahead log into the file, beside the writers' way.
//!
//! Two steps: the bulk is copied while others write; then, at the turnstile, the little that came in meanwhile, so that
//! the log holds nothing that the file does not. The next commit then starts the log over from its beginning. The log
//! is never truncated: to append to a file costs nearly twice as much as to write over it.

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use rusqlite::Connection;

use super::connect::{Use, open_again};
use super::turnstile::Turnstile;

/// A thread that copies when it is poked; started by the first poke.
pub(crate) struct Checkpointer {
    path: PathBuf,
    idle: Option<Turnstile>,
    running: Option<(SyncSender<()>, JoinHandle<()>)>,
}

impl Checkpointer {
    pub(crate) fn new(path: PathBuf, stile: Turnstile) -> Self {
        Self { path, idle: Some(stile), running: None }
    }

    /// Asks for a copy. Nothing waits for it, and a second request is one with a first that is not served yet.
    pub(crate) fn poke(&mut self) {
        if let Some(stile) = self.idle.take() {
            let (poke, poked) = sync_channel(1);
            let path = self.path.clone();
            let run = move || serve(&path, stile, &poked);
            // Without the thread the log grows until the next start; nothing is lost.
            if let Ok(thread) = std::thread::Builder::new().name("oncely-checkpoint".into()).spawn(run) {
                self.running = Some((poke, thread));
            }
        }
        if let Some((poke, _)) = &self.running {
            // Full: one is waiting already. Gone: the thread could not open the file.
            let _ = poke.try_send(());
        }
    }
}

impl Drop for Checkpointer {
    fn drop(&mut self) {
        if let Some((poke, thread)) = self.running.take() {
            drop(poke);
            // Its end is all that matters.
            let _ = thread.join();
        }
    }
}

fn serve(path: &std::path::Path, mut stile: Turnstile, poked: &Receiver<()>) {
    let Ok(connection) = open_again(path, Use::Reading) else { return };
    while poked.recv().is_ok() {
        // A copy that fails is tried again at the next poke: the log holds everything until then.
        let _ = copy_some(&connection);
        if let Ok(_turn) = stile.enter() {
            let _ = copy_some(&connection);
        }
    }
}

/// Copies as much of the log as readers allow.
pub(crate) fn copy_some(connection: &Connection) -> rusqlite::Result<()> {
    connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))
}

/// How many pages are in the log. Asks for a copy of nothing, which SQLite knows since 3.51 and says it with.
pub(crate) fn pages_in_log(connection: &Connection) -> rusqlite::Result<u32> {
    let mut asking = connection.prepare_cached("PRAGMA wal_checkpoint(NOOP)")?;
    // Less than nothing where there is no log.
    asking.query_row([], |row| row.get(1)).map(|pages: i64| u32::try_from(pages).unwrap_or(0))
}
