//! Staying awake for a moment where messages come thick and fast: to be woken takes longer than most of what we do for a
//! message, above all on machines that put idle processors to rest.
//!
//! Before the one thread that does everything goes to sleep, it looks for a little while whether a message has come, or the
//! ledger has answered, and lets others run meanwhile. It does so only while that has lately been worth it.

use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::runtime::RuntimeMetrics;

/// How long it looks before it sleeps.
const LOOK: Duration = Duration::from_micros(100);
/// The same while somebody waits for the ledger, which takes as long as a disk does.
const LOOK_FOR_LEDGER: Duration = Duration::from_micros(500);
/// Woken within this time, it had better looked a little longer.
const SOON: Duration = Duration::from_micros(300);
/// How often in a row it looks in vain before it looks no more.
const KEEN: u32 = 16;

/// Whether, and for what, the thread stays awake.
#[derive(Default)]
pub struct Alert {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    watched: Option<Watched>,
    /// How often it may still look in vain.
    keen: u32,
    /// Since when it sleeps.
    asleep: Option<Instant>,
    /// How many wait for the ledger.
    at_ledger: isize,
}

/// What is looked at.
struct Watched {
    /// Where messages come from.
    sources: [OwnedFd; 2],
    /// Where answers of the ledger queue up, which come from another thread.
    runtime: RuntimeMetrics,
}

impl Alert {
    /// Only the one thread ever asks for it.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says where messages come from, until the result is dropped; of several, the last counts.
    pub(super) fn watch(&self, sources: [OwnedFd; 2]) -> Watching<'_> {
        let runtime = tokio::runtime::Handle::current().metrics();
        self.state().watched = Some(Watched { sources, runtime });
        Watching(self)
    }

    /// To be called before the thread sleeps.
    pub fn before_sleep(&self) {
        let mut state = self.state();
        let State { watched: Some(watched), keen, at_ledger, .. } = &mut *state else { return };
        if *keen > 0 {
            let patience = if *at_ledger > 0 { LOOK_FOR_LEDGER } else { LOOK };
            if watched.look(patience) {
                *keen = KEEN;
                return;
            }
            *keen -= 1;
        }
        state.asleep = Some(Instant::now());
    }

    /// To be called after it has slept.
    pub fn after_sleep(&self) {
        let mut state = self.state();
        let Some(since) = state.asleep.take() else { return };
        if since.elapsed() < SOON {
            state.keen = KEEN;
        }
    }

    /// Somebody waits for the ledger for as long as this is kept.
    pub(super) fn at_ledger(&self) -> Counted<'_> {
        Counted::new(self, 1)
    }

    /// One of those waits for the server instead.
    pub(super) fn at_server(&self) -> Counted<'_> {
        Counted::new(self, -1)
    }
}

/// Messages are looked for as long as this is kept. What they come from is let go of with it: a server that writes to
/// nobody has to notice.
pub(super) struct Watching<'a>(&'a Alert);

impl Drop for Watching<'_> {
    fn drop(&mut self) {
        self.0.state().watched = None;
    }
}

/// Counts for as long as it is kept.
pub(super) struct Counted<'a> {
    alert: &'a Alert,
    by: isize,
}

impl<'a> Counted<'a> {
    fn new(alert: &'a Alert, by: isize) -> Self {
        alert.state().at_ledger += by;
        Self { alert, by }
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.alert.state().at_ledger -= self.by;
    }
}

impl Watched {
    /// Looks for a while whether anything has come.
    fn look(&self, patience: Duration) -> bool {
        let until = Instant::now() + patience;
        loop {
            let mut sources = self.sources.each_ref().map(|source| PollFd::new(source, PollFlags::IN));
            let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
            // A source that cannot be looked at is left to whoever reads from it.
            let _ = poll(&mut sources, Some(&at_once));
            if sources.iter().any(|source| source.revents().contains(PollFlags::IN))
                || self.runtime.global_queue_depth() > 0
            {
                return true;
            }
            if Instant::now() >= until {
                return false;
            }
            std::thread::yield_now();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Write};

    use super::{Alert, KEEN};

    fn keen(alert: &Alert) -> u32 {
        alert.state().keen
    }

    fn set_keen(alert: &Alert, to: u32) {
        alert.state().keen = to;
    }

    #[tokio::test]
    async fn it_looks_only_for_as_long_as_that_was_lately_worth_it() {
        let (one, mut to_one) = std::io::pipe().unwrap();
        let (other, _to_other) = std::io::pipe().unwrap();
        let alert = Alert::default();
        let _watching = alert.watch([one.into(), other.into()]);
        set_keen(&alert, 2);
        for left in [1, 0, 0] {
            alert.before_sleep();
            assert_eq!(keen(&alert), left);
        }
        to_one.write_all(b"x").unwrap();
        alert.before_sleep();
        assert_eq!(keen(&alert), 0, "it does not look any more");
        set_keen(&alert, 1);
        alert.before_sleep();
        assert_eq!(keen(&alert), KEEN);
        let at_ledger = alert.at_ledger();
        let at_server = alert.at_server();
        drop((at_ledger, at_server));
        assert_eq!(alert.state().at_ledger, 0);
    }

    #[tokio::test]
    async fn an_answer_from_another_thread_is_seen() {
        let (one, _to_one) = std::io::pipe().unwrap();
        let (other, _to_other) = std::io::pipe().unwrap();
        let alert = Alert::default();
        let _watching = alert.watch([one.into(), other.into()]);
        let (answer, answered) = tokio::sync::oneshot::channel();
        let waiting = tokio::spawn(answered);
        tokio::task::yield_now().await;
        std::thread::spawn(move || answer.send(7)).join().unwrap().unwrap();
        set_keen(&alert, 1);
        alert.before_sleep();
        assert_eq!(keen(&alert), KEEN);
        assert_eq!(waiting.await.unwrap().unwrap(), 7);
    }

    #[tokio::test]
    async fn what_is_not_watched_any_more_is_not_held_open() {
        let (one, mut to_one) = std::io::pipe().unwrap();
        let (other, _to_other) = std::io::pipe().unwrap();
        let alert = Alert::default();
        let watching = alert.watch([one.into(), other.into()]);
        to_one.write_all(b"x").unwrap();
        drop(watching);
        assert_eq!(to_one.write_all(b"x").unwrap_err().kind(), ErrorKind::BrokenPipe);
        // There is nothing to look at.
        set_keen(&alert, 1);
        alert.before_sleep();
        assert_eq!(keen(&alert), 1);
    }
}
