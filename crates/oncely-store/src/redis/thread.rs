//! The thread that all connections of a ledger live on, with a runtime of its own: a ledger can be used from any runtime
//! or none, and what was handed in is sent although the caller's runtime is being torn down.

use std::io;
use std::thread::JoinHandle;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// The thread. Dropping it ends it, with whatever is still under way.
pub(crate) struct IoThread {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl IoThread {
    /// Starts it; the handle spawns tasks on it.
    pub(crate) fn start() -> io::Result<(Self, Handle)> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel();
        let run = move || {
            // Told to stop, or left alone: both end it.
            let _ = runtime.block_on(stopped);
            // Not waiting for a name that is being looked up: that can take minutes.
            runtime.shutdown_background();
        };
        let thread = std::thread::Builder::new().name("oncely-redis".into()).spawn(run)?;
        Ok((Self { stop: Some(stop), thread: Some(thread) }, handle))
    }
}

impl Drop for IoThread {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic there has dropped its requests: their callers know.
            let _ = thread.join();
        }
    }
}

/// Waits a while, on any runtime or none.
pub(crate) async fn pause(runtime: &Handle, time: std::time::Duration) {
    let waited = runtime.spawn(tokio::time::sleep(time));
    // It cannot fail, but for a thread that has stopped: then there is nothing to wait for.
    let _ = waited.await;
}
