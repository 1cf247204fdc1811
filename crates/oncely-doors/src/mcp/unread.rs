//! Answers of ours that wait for a client to read them: how much they are, and when there is room for more.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use oncely_core::limits::MCP_WAITING_BYTES_MAX;
use tokio::sync::{Mutex, Notify};

/// What an answer takes besides its bytes, so that many short ones are bounded as well.
const EACH_BYTES: usize = 1024;

/// What waits for one client.
#[derive(Default)]
pub(super) struct Unread {
    bytes: AtomicUsize,
    less: Notify,
    /// Whoever is next to be let in holds it: so only one has to be woken, and the others follow in their order.
    next: Mutex<()>,
}

/// An answer that waits, until this is dropped.
pub(super) struct Held {
    unread: Arc<Unread>,
    bytes: usize,
}

impl Unread {
    /// An answer of so many bytes waits from now on. It is made, so it is not refused: it is the next message of the client
    /// that has to wait for room.
    pub(super) fn hold(self: &Arc<Self>, bytes: usize) -> Held {
        let bytes = bytes + EACH_BYTES;
        self.bytes.fetch_add(bytes, Ordering::AcqRel);
        Held { unread: self.clone(), bytes }
    }

    /// Returns when less waits than the limit. Only answers count, and they need nothing but a client that reads, so nobody
    /// who waits here can be waited for: a call that is at work with a server takes no room.
    pub(super) async fn room(&self) {
        if self.is_roomy() {
            return;
        }
        let _next = self.next.lock().await;
        while !self.is_roomy() {
            self.less.notified().await;
        }
    }

    fn is_roomy(&self) -> bool {
        self.bytes.load(Ordering::Acquire) < MCP_WAITING_BYTES_MAX
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.unread.bytes.fetch_sub(self.bytes, Ordering::AcqRel);
        // Kept for whoever is next, if that one has not begun to wait yet.
        self.unread.less.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::future::{Future, poll_fn};
    use std::pin::pin;
    use std::task::Poll;

    use super::*;

    async fn is_ready(future: &mut (impl Future<Output = ()> + Unpin)) -> bool {
        poll_fn(|context| Poll::Ready(std::pin::Pin::new(&mut *future).poll(context).is_ready())).await
    }

    #[tokio::test]
    async fn there_is_room_until_the_limit_and_again_below_it() {
        let unread = Arc::new(Unread::default());
        let small = unread.hold(0);
        let large = unread.hold(MCP_WAITING_BYTES_MAX - 3 * EACH_BYTES);
        unread.room().await;
        let last = unread.hold(0);
        let (mut first, mut second) = (pin!(unread.room()), pin!(unread.room()));
        assert!(!is_ready(&mut first).await && !is_ready(&mut second).await);
        drop(small);
        // The second is not woken for what the first has not looked at yet, and follows it.
        assert!(!is_ready(&mut second).await && is_ready(&mut first).await && is_ready(&mut second).await);
        drop((large, last));
        assert_eq!(unread.bytes.load(Ordering::Acquire), 0);
    }
}
