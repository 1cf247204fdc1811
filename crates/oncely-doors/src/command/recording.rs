//! One stream of a command: recorded, and passed on as it comes.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use oncely_core::limits::RESULT_BYTES_MAX;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::Notify;
use tokio::time::Instant;

/// How long silence is borne after the command itself has ended: something that it left in the background may hold the
/// streams open for ever.
const OUTPUT_GRACE: Duration = Duration::from_millis(500);
/// Most output that is kept, both streams together; room is left for what [`super::Captured`] adds.
pub(super) const OUTPUT_BYTES_MAX: usize = RESULT_BYTES_MAX - 64;

/// One stream being recorded, and passed on as it comes.
pub(super) struct Recording {
    task: tokio::task::JoinHandle<()>,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    kept: Mutex<Vec<u8>>,
    /// Grows with every chunk that came and was passed on.
    progress: AtomicUsize,
    /// Nothing has come yet that was not passed on.
    is_reading: AtomicBool,
    /// Told once, when the stream has ended.
    ended: Notify,
}

impl Recording {
    pub(super) fn start(
        from: Option<impl AsyncRead + Unpin + Send + 'static>,
        to: Option<impl AsyncWrite + Unpin + Send + 'static>,
        spent: &Arc<AtomicUsize>,
    ) -> Self {
        let shared = Arc::new(Shared::default());
        let (copied, spent) = (shared.clone(), spent.clone());
        let task = tokio::spawn(async move {
            if let Some(from) = from {
                copied.copy(from, to, &spent).await;
            }
            copied.ended.notify_one();
        });
        Self { task, shared }
    }

    /// Returns once the stream has ended, has been silent for a while after the command's end, or goes on for too long.
    /// A reader of ours that is slow is waited for, as any filter does.
    pub(super) async fn finish(&self, deadline: Instant) {
        loop {
            let progress = self.shared.progress.load(Ordering::Acquire);
            let pause = tokio::time::sleep(OUTPUT_GRACE);
            tokio::select! {
                () = self.shared.ended.notified() => return,
                () = pause => {}
            }
            let went_on = self.shared.progress.load(Ordering::Acquire) != progress;
            let silent = self.shared.is_reading.load(Ordering::Acquire) && !went_on;
            if self.task.is_finished() || silent || (went_on && Instant::now() >= deadline) {
                return;
            }
        }
    }

    /// What came until now; nothing more is taken.
    pub(super) fn take(self) -> Vec<u8> {
        self.task.abort();
        std::mem::take(&mut *self.shared.kept())
    }
}

impl Shared {
    fn kept(&self) -> MutexGuard<'_, Vec<u8>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn copy(
        &self,
        mut from: impl AsyncRead + Unpin,
        mut to: Option<impl AsyncWrite + Unpin>,
        spent: &AtomicUsize,
    ) {
        let mut chunk = vec![0u8; 16 * 1024];
        loop {
            self.is_reading.store(true, Ordering::Release);
            let read = match from.read(&mut chunk).await {
                Ok(0) | Err(_) => return,
                Ok(read) => &chunk[..read],
            };
            self.is_reading.store(false, Ordering::Release);
            let before = spent.fetch_add(read.len(), Ordering::Relaxed);
            if before + read.len() <= OUTPUT_BYTES_MAX {
                self.kept().extend_from_slice(read);
            }
            if let Some(writer) = &mut to {
                let passed = async {
                    writer.write_all(read).await?;
                    writer.flush().await
                };
                // A reader of ours that went away must not end the command; its output is recorded all the same.
                if passed.await.is_err() {
                    to = None;
                }
            }
            self.progress.fetch_add(1, Ordering::AcqRel);
        }
    }
}
