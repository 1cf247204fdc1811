//! Staying awake for a moment where messages come thick and fast: to be woken takes longer than most of what we do for a
//! message, above all on machines that put idle processors to rest.
//!
//! Before the one thread that does everything goes to sleep, it looks for a little while whether a message has come, and
//! lets others run meanwhile. It does so only while that has lately been worth it, and not while somebody waits for the
//! ledger, whose answer would not be seen.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicIsize, AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// How long it looks before it sleeps.
const LOOK: Duration = Duration::from_micros(100);
/// Woken within this time, it had better looked a little longer.
const SOON: Duration = Duration::from_micros(300);
/// How often in a row it looks in vain before it looks no more.
const KEEN: u32 = 16;

/// Whether, and for what, the thread stays awake.
#[derive(Default)]
pub struct Alert {
    /// Where messages come from.
    watched: OnceLock<[OwnedFd; 2]>,
    /// How often it may still look in vain.
    keen: AtomicU32,
    /// Since when it sleeps.
    asleep: Mutex<Option<Instant>>,
    /// How many wait for the ledger.
    at_ledger: AtomicIsize,
}

impl Alert {
    /// Says where messages come from; once.
    pub(super) fn watch(&self, sources: [OwnedFd; 2]) {
        // Whoever came first is served.
        let _ = self.watched.set(sources);
    }

    /// To be called before the thread sleeps.
    pub fn before_sleep(&self) {
        if let Some(watched) = self.watched.get()
            && self.keen.load(Ordering::Relaxed) > 0
            && self.at_ledger.load(Ordering::Relaxed) <= 0
        {
            if look(watched) {
                self.keen.store(KEEN, Ordering::Relaxed);
                return;
            }
            self.keen.fetch_sub(1, Ordering::Relaxed);
        }
        *self.asleep.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// To be called after it has slept.
    pub fn after_sleep(&self) {
        let since = self.asleep.lock().unwrap_or_else(PoisonError::into_inner).take();
        if since.is_some_and(|since| since.elapsed() < SOON) {
            self.keen.store(KEEN, Ordering::Relaxed);
        }
    }

    /// Somebody waits for the ledger for as long as this is kept.
    pub(super) fn at_ledger(&self) -> Counted<'_> {
        Counted::new(&self.at_ledger, 1)
    }

    /// One of those waits for the server instead.
    pub(super) fn at_server(&self) -> Counted<'_> {
        Counted::new(&self.at_ledger, -1)
    }
}

/// Counts for as long as it is kept.
pub(super) struct Counted<'a> {
    count: &'a AtomicIsize,
    by: isize,
}

impl<'a> Counted<'a> {
    fn new(count: &'a AtomicIsize, by: isize) -> Self {
        count.fetch_add(by, Ordering::Relaxed);
        Self { count, by }
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.count.fetch_sub(self.by, Ordering::Relaxed);
    }
}

/// Looks for a while whether a message has come.
fn look(watched: &[OwnedFd; 2]) -> bool {
    let until = Instant::now() + LOOK;
    loop {
        let mut sources = watched.each_ref().map(|source| PollFd::new(source, PollFlags::IN));
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        // A source that cannot be looked at is left to whoever reads from it.
        let _ = poll(&mut sources, Some(&at_once));
        if sources.iter().any(|source| source.revents().contains(PollFlags::IN)) {
            return true;
        }
        if Instant::now() >= until {
            return false;
        }
        std::thread::yield_now();
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::atomic::Ordering;

    use super::{Alert, KEEN};

    fn keen(alert: &Alert) -> u32 {
        alert.keen.load(Ordering::Relaxed)
    }

    #[test]
    fn it_looks_only_for_as_long_as_that_was_lately_worth_it() {
        let (one, mut to_one) = std::io::pipe().unwrap();
        let (other, _to_other) = std::io::pipe().unwrap();
        let alert = Alert::default();
        alert.watch([one.into(), other.into()]);
        alert.keen.store(2, Ordering::Relaxed);
        for left in [1, 0, 0] {
            alert.before_sleep();
            assert_eq!(keen(&alert), left);
        }
        to_one.write_all(b"x").unwrap();
        alert.before_sleep();
        assert_eq!(keen(&alert), 0, "it does not look any more");
        alert.keen.store(1, Ordering::Relaxed);
        alert.before_sleep();
        assert_eq!(keen(&alert), KEEN);
        let at_ledger = alert.at_ledger();
        alert.keen.store(1, Ordering::Relaxed);
        alert.before_sleep();
        assert_eq!(keen(&alert), 1, "somebody waits for the ledger");
        let at_server = alert.at_server();
        alert.before_sleep();
        assert_eq!(keen(&alert), KEEN);
        drop((at_ledger, at_server));
        assert_eq!(alert.at_ledger.load(Ordering::Relaxed), 0);
    }
}
