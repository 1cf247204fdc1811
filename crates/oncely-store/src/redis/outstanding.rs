//! What was handed in and is not answered yet, so that a flush can wait for it.

use std::collections::BTreeSet;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

/// The requests that are under way.
#[derive(Default)]
pub(crate) struct Outstanding {
    open: Mutex<Open>,
    quiet: Condvar,
}

#[derive(Default)]
struct Open {
    next: u64,
    numbers: BTreeSet<u64>,
    /// Threads that wait until there are none.
    waiting: usize,
    /// Who waits for everything before a number.
    flushes: Vec<(u64, oneshot::Sender<()>)>,
}

/// One request that is under way; gone when it is dropped.
pub(crate) struct Ticket {
    number: u64,
    of: Arc<Outstanding>,
}

impl Outstanding {
    /// Counts a request.
    pub(crate) fn enter(self: &Arc<Self>) -> Ticket {
        let mut open = self.lock();
        let number = open.next;
        open.next += 1;
        open.numbers.insert(number);
        Ticket { number, of: Arc::clone(self) }
    }

    /// Returns when everything that was handed in before is answered.
    pub(crate) fn all_before_now(&self) -> oneshot::Receiver<()> {
        let (done, wait) = oneshot::channel();
        let mut open = self.lock();
        let next = open.next;
        open.flushes.push((next, done));
        open.settle();
        wait
    }

    /// Waits on this thread until nothing is under way; answers whether that came about in time.
    pub(crate) fn wait(&self, patience: Duration) -> bool {
        let until = Instant::now() + patience;
        let mut open = self.lock();
        open.waiting += 1;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if open.numbers.is_empty() || left.is_zero() {
                open.waiting -= 1;
                return open.numbers.is_empty();
            }
            open = self.quiet.wait_timeout(open, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Open {
    fn settle(&mut self) {
        let first = self.numbers.first().copied().unwrap_or(u64::MAX);
        for (_, done) in self.flushes.extract_if(.., |(before, _)| *before <= first) {
            // Nobody waits any more: the call was dropped.
            let _ = done.send(());
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut open = self.of.lock();
        open.numbers.remove(&self.number);
        if !open.flushes.is_empty() {
            open.settle();
        }
        // To tell nobody is a call of the system, too: for a lone caller one with every request.
        if open.numbers.is_empty() && open.waiting > 0 {
            self.of.quiet.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, mpsc};
    use std::time::Duration;

    use super::Outstanding;

    #[test]
    fn a_flush_waits_for_what_was_handed_in_before_it_and_not_for_later_ones() {
        let all = Arc::new(Outstanding::default());
        let (first, second) = (all.enter(), all.enter());
        let mut flush = all.all_before_now();
        let later = all.enter();
        drop(second);
        assert!(flush.try_recv().is_err());
        drop(first);
        assert!(flush.try_recv().is_ok());
        assert!(!all.wait(Duration::ZERO));
        drop(later);
        assert!(all.wait(Duration::ZERO));
        assert!(all.all_before_now().try_recv().is_ok());
    }

    #[test]
    fn a_thread_that_waits_is_told_when_the_last_one_is_answered() {
        let all = Arc::new(Outstanding::default());
        let (first, last) = (all.enter(), all.enter());
        let (told, tells) = mpsc::channel();
        let waits = Arc::clone(&all);
        let thread = std::thread::spawn(move || told.send(waits.wait(Duration::from_secs(3_600))));
        while all.lock().waiting == 0 && !thread.is_finished() {
            std::thread::yield_now();
        }
        drop(first);
        drop(last);
        assert_eq!(tells.recv_timeout(Duration::from_secs(60)), Ok(true), "nobody has told it");
        assert!(thread.join().unwrap().is_ok());
        assert_eq!(all.lock().waiting, 0);
    }
}
