//! Work that a caller can stop waiting for, but cannot stop.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::runtime::Handle;

/// Runs in the caller's own task for as long as that waits for it, which spares a lone caller two changes of threads. If it
/// is let go of before its end, also before its beginning, it goes on in a task of its own.
pub(crate) struct Unstoppable<T: Send + 'static> {
    work: Option<Pin<Box<dyn Future<Output = T> + Send>>>,
    runtime: Handle,
}

impl<T: Send + 'static> Unstoppable<T> {
    /// To be called on a tokio runtime.
    pub(crate) fn new(work: impl Future<Output = T> + Send + 'static) -> Self {
        Self { work: Some(Box::pin(work)), runtime: Handle::current() }
    }
}

impl<T: Send + 'static> Future for Unstoppable<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        // Taken out meanwhile: what panics is not run again.
        let Some(mut work) = self.work.take() else { return Poll::Pending };
        let polled = work.as_mut().poll(cx);
        if polled.is_pending() {
            self.work = Some(work);
        }
        polled
    }
}

impl<T: Send + 'static> Drop for Unstoppable<T> {
    fn drop(&mut self) {
        if let Some(work) = self.work.take() {
            // Nobody is left to hear of its end.
            drop(self.runtime.spawn(work));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::sync::{Semaphore, oneshot};

    use super::Unstoppable;

    /// Work that goes on when it may, and then says so.
    fn work(go_on: &Arc<Semaphore>) -> (Unstoppable<u8>, oneshot::Receiver<()>) {
        let (done, told) = oneshot::channel();
        let go_on = Arc::clone(go_on);
        let work = async move {
            let _permit = go_on.acquire_owned().await;
            let _ = done.send(());
            7
        };
        (Unstoppable::new(work), told)
    }

    #[tokio::test]
    async fn who_waits_gets_its_end() {
        let (work, told) = work(&Arc::new(Semaphore::new(1)));
        assert_eq!(work.await, 7);
        assert!(told.await.is_ok());
    }

    #[tokio::test]
    async fn it_goes_on_when_it_is_let_go_of_before_its_beginning_or_in_the_middle() {
        for polls in [0, 1] {
            let go_on = Arc::new(Semaphore::new(0));
            let (mut work, told) = work(&go_on);
            for _ in 0..polls {
                assert!(poll_once(&mut work).await);
            }
            drop(work);
            go_on.add_permits(1);
            assert!(told.await.is_ok(), "after {polls} polls");
        }
    }

    /// Polls once; says whether it is still under way.
    async fn poll_once(work: &mut Unstoppable<u8>) -> bool {
        std::future::poll_fn(|cx| {
            std::task::Poll::Ready(std::pin::Pin::new(&mut *work).poll(cx).is_pending())
        })
        .await
    }
}
