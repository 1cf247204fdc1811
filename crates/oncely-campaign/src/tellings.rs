//! What the callers of a campaign were told of each key, and every contradiction between two of them; with the keys
//! themselves, and how long a call takes.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use oncely_testkit::sim::Rng;

use crate::Checked;
use crate::judge::{Heard, Judged};
use crate::ledger::States;
use crate::outside::{Counts, Outside};

/// The longest that a call is believed to take: longer than on any machine that is slow or has much else to do, for kills
/// have to spread over all of it, and shorter than a wait.
const CALL_US_MAX: u64 = 3_000_000;

/// What is known of a key.
struct Told<R> {
    /// The result that was acknowledged first.
    succeeded: Option<R>,
    /// Somebody was told that the outcome is unknown.
    unknown: bool,
}

/// What was told of all keys; `R` is a result.
pub(crate) struct Tellings<R> {
    seed: u64,
    shared_keys: AtomicU64,
    told: Mutex<BTreeMap<String, Told<R>>>,
    broken: Mutex<Vec<String>>,
}

impl<R: PartialEq> Tellings<R> {
    /// None yet, of keys that name this seed.
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed, shared_keys: AtomicU64::new(0), told: Mutex::default(), broken: Mutex::default() }
    }

    /// A new key, or with this chance (of 1,000) one that so many calls get at about the same time, so that duplicates
    /// race.
    pub(crate) fn pick_key(
        &self,
        rng: &mut Rng,
        (worker, turn): (u64, u64),
        chance: u32,
        callers: u64,
    ) -> String {
        let name = if rng.chance(chance) {
            format!("shared-{}", self.shared_keys.fetch_add(1, Ordering::Relaxed) / callers)
        } else {
            format!("own-{worker}-{turn}")
        };
        let key = format!("{:x}-{name}", self.seed);
        self.change(&key, |_| {});
        key
    }

    /// A success was acknowledged; `said` is the whole answer, for people.
    pub(crate) fn succeeded(&self, key: &str, result: R, said: &str) {
        let mut contradicts = false;
        self.change(key, |told| match &told.succeeded {
            Some(first) => contradicts = *first != result,
            None => told.succeeded = Some(result),
        });
        if contradicts {
            self.complain(format!("{key}: two results were acknowledged: {said}"));
        }
    }

    /// Somebody was told that the outcome is unknown.
    pub(crate) fn unknown(&self, key: &str) {
        self.change(key, |told| told.unknown = true);
    }

    pub(crate) fn complain(&self, what: String) {
        locked(&self.broken).push(what);
    }

    /// All complaints so far, which are forgotten by that.
    pub(crate) fn complaints(&self) -> Vec<String> {
        std::mem::take(&mut locked(&self.broken))
    }

    /// How many keys there are.
    pub(crate) fn keys(&self) -> u64 {
        locked(&self.told).len() as u64
    }

    /// Holds every key against what was counted and what the ledger says.
    pub(crate) fn judge(
        &self,
        mode_of: fn(&str) -> &'static str,
        counts: &Counts,
        states: &States,
    ) -> Judged {
        let mut judged = Judged::default();
        for (key, told) in locked(&self.told).iter() {
            let heard = Heard { succeeded: told.succeeded.is_some(), unknown: told.unknown };
            judged.key(key, mode_of(key), heard, counts, states);
        }
        judged
    }

    /// Asks once more for results that were acknowledged, spread over all of them: they must come back as they were, which
    /// `ask` looks at, and have no effect. Says how many.
    pub(crate) fn ask_again(
        &self,
        at_most: usize,
        outside: &Outside,
        ask: impl Fn(&str) -> Checked<()>,
    ) -> Checked<u64> {
        let told = locked(&self.told);
        let acknowledged: Vec<String> =
            told.iter().filter(|(_, told)| told.succeeded.is_some()).map(|(key, _)| key.clone()).collect();
        drop(told);
        let step = acknowledged.len().div_ceil(at_most).max(1);
        let mut compared = 0;
        for key in acknowledged.iter().step_by(step) {
            let before = outside.count(key)?;
            ask(key)?;
            if outside.count(key)? != before {
                self.complain(format!("{key}: the replay of an acknowledged success had its effect again"));
            }
            compared += 1;
        }
        Ok(compared)
    }

    fn change(&self, key: &str, change: impl FnOnce(&mut Told<R>)) {
        change(locked(&self.told).entry(key.to_owned()).or_insert(Told { succeeded: None, unknown: false }));
    }
}

/// How long an undisturbed call takes, so that kills spread over all of it.
pub(crate) struct Pace(AtomicU64);

impl Pace {
    /// A first guess, in microseconds.
    pub(crate) fn guess(call_us: u64) -> Self {
        Self(AtomicU64::new(call_us))
    }

    /// A call that nobody disturbed was started then and has just ended.
    pub(crate) fn learn(&self, started: Instant) -> Checked<()> {
        let took_us = u64::try_from(started.elapsed().as_micros())?;
        let before = self.0.load(Ordering::Relaxed);
        self.0.store((before * 7 + took_us.min(CALL_US_MAX)) / 8, Ordering::Relaxed);
        Ok(())
    }

    /// A random moment of a call, or shortly after it.
    pub(crate) fn moment(&self, rng: &mut Rng) -> Duration {
        Duration::from_micros(rng.below((self.0.load(Ordering::Relaxed) * 6 / 5).max(1)))
    }
}

pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
