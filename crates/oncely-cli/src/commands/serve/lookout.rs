//! Tells the operator of a server when its ledger or a service is lost, and when it is back: one line each, however many
//! requests meet it. Nothing of a request is told.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use oncely::{AnswerKind, Observer, StoreOp};
use oncely_core::limits::clip_to;
use oncely_core::{IntentId, Link, Store, StoreErrorKind, ToolName};
use oncely_doors::admin::Metrics;
use oncely_doors::gateway::{AllCounters, Unreached};

use crate::output::{self, clean};

/// How often one looks, and so how often anything is said of one thing at most.
const EVERY: Duration = Duration::from_secs(1);
/// How long a ledger may take to prove that it can be read.
const PATIENCE: Duration = Duration::from_secs(2);
/// Most services that are told of at a time; the others are told of when one looks next.
const SERVICES_MAX: usize = 8;
/// Longest reason, in bytes.
const WHY_BYTES_MAX: usize = 300;
/// How often the same advice about a route is given at most.
const ADVISE_EVERY: Duration = Duration::from_secs(3_600);

/// The troubles of a ledger that concern everybody, in the words of the line about them. What concerns one request, such as
/// too many at once, is told to whoever made it.
const TROUBLES: [(StoreErrorKind, &str); 5] = [
    (StoreErrorKind::Unavailable, "it does not answer"),
    (StoreErrorKind::Full, "no space is left for new attempts"),
    (StoreErrorKind::ReadOnly, "it cannot be written to"),
    (StoreErrorKind::Moved, "it is moving or has moved"),
    (StoreErrorKind::Unsuitable, "its settings can lose records"),
];

/// Hears what the ledger answers, beside the metrics.
pub(crate) struct Ears {
    metrics: Arc<Metrics>,
    /// The place in `TROUBLES` of what it said last, counted from 1; 0 for nothing.
    trouble: AtomicU8,
}

impl Ears {
    pub(crate) fn beside(metrics: Arc<Metrics>) -> Arc<Self> {
        Arc::new(Self { metrics, trouble: AtomicU8::new(0) })
    }

    fn trouble(&self) -> Option<(StoreErrorKind, &'static str)> {
        let place = usize::from(self.trouble.load(Ordering::Relaxed));
        TROUBLES.get(place.checked_sub(1)?).copied()
    }
}

impl Observer for Ears {
    fn answered(&self, tool: &ToolName, kind: AnswerKind, took: Duration) {
        self.metrics.answered(tool, kind, took);
    }

    fn stored(&self, op: StoreOp, took: Duration, error: Option<StoreErrorKind>) {
        self.metrics.stored(op, took, error);
        match error {
            None => {
                // Whoever can be read again answers; that there is room again shows in a new attempt only.
                let over = |(kind, _)| kind == StoreErrorKind::Unavailable || op == StoreOp::Create;
                if self.trouble().is_some_and(over) {
                    self.trouble.store(0, Ordering::Relaxed);
                }
            }
            Some(kind) => {
                if let Some(at) = TROUBLES.iter().position(|(known, _)| *known == kind) {
                    self.trouble.store(at as u8 + 1, Ordering::Relaxed);
                }
            }
        }
    }
}

/// What is looked at, and what was said of it.
pub(crate) struct Lookout {
    store: Arc<dyn Store>,
    ears: Arc<Ears>,
    services: AllCounters,
    ledger_lost: Option<Instant>,
    services_lost: BTreeMap<String, Instant>,
    advised: BTreeMap<String, Instant>,
}

impl Lookout {
    pub(crate) fn over(store: Arc<dyn Store>, ears: Arc<Ears>, services: AllCounters) -> Self {
        Self {
            store,
            ears,
            services,
            ledger_lost: None,
            services_lost: BTreeMap::new(),
            advised: BTreeMap::new(),
        }
    }

    /// Looks and tells until it is dropped.
    pub(crate) async fn run(mut self) {
        loop {
            tokio::time::sleep(EVERY).await;
            let trouble = self.trouble().await;
            let mut lines: Vec<String> = self.of_ledger(trouble).into_iter().collect();
            lines.extend(self.of_services(self.services.unreached()));
            lines.extend(self.of_routes(self.services.advice(), Instant::now()));
            for line in lines {
                output::say(&format!("oncely: {}", clean(&line)));
            }
        }
    }

    /// Why the ledger cannot be used, if it cannot.
    async fn trouble(&self) -> Option<String> {
        let why = match (self.store.health().link, self.ears.trouble()) {
            (Link::Reconnecting { why, .. } | Link::Refused { why, .. }, _) => why,
            (_, Some((StoreErrorKind::Unavailable, words))) => words.to_owned(),
            (_, Some((_, words))) => return Some(words.to_owned()),
            (_, None) => return None,
        };
        // A connection that was lost and made again is no loss.
        match tokio::time::timeout(PATIENCE, self.store.load(IntentId([0; 32]))).await {
            // One that can be read may have no room.
            Ok(Ok(_)) => match self.store.health().link {
                Link::Refused { why, .. } => Some(why),
                _ => None,
            },
            Ok(Err(error)) => Some(error.to_string()),
            Err(_) => Some(why),
        }
    }

    fn of_ledger(&mut self, trouble: Option<String>) -> Option<String> {
        match (trouble, self.ledger_lost) {
            (Some(why), None) => {
                self.ledger_lost = Some(Instant::now());
                let why = clip_to(why, WHY_BYTES_MAX);
                Some(format!("the ledger cannot be used: {why}. No new attempt begins until it can"))
            }
            (None, Some(since)) => {
                self.ledger_lost = None;
                Some(format!("the ledger can be used again, after {}", age(since)))
            }
            _ => None,
        }
    }

    fn of_services(&mut self, unreached: Vec<Unreached>) -> Vec<String> {
        let mut lines = Vec::new();
        let back: Vec<String> = self
            .services_lost
            .keys()
            .filter(|service| !unreached.iter().any(|there| there.service == **service))
            .cloned()
            .collect();
        for service in back.into_iter().take(SERVICES_MAX) {
            if let Some(since) = self.services_lost.remove(&service) {
                lines.push(format!("{service} is reached again, after {}", age(since)));
            }
        }
        for Unreached { service, why } in unreached {
            if lines.len() < SERVICES_MAX && !self.services_lost.contains_key(&service) {
                let why = clip_to(why, WHY_BYTES_MAX);
                lines.push(format!("{service} cannot be reached: {why}"));
                self.services_lost.insert(service, Instant::now());
            }
        }
        lines
    }
}

impl Lookout {
    /// Advice that was not given lately. There is one line for a route at most, so that they do not grow without end.
    fn of_routes(&mut self, advice: BTreeSet<String>, now: Instant) -> Vec<String> {
        let is_due = |line: &String| {
            self.advised.get(line).is_none_or(|given| now.duration_since(*given) >= ADVISE_EVERY)
        };
        let due: Vec<String> = advice.into_iter().filter(is_due).collect();
        self.advised.extend(due.iter().map(|line| (line.clone(), now)));
        due
    }
}

fn age(since: Instant) -> String {
    output::age(since.elapsed().as_millis() as u64)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use oncely::{Observer as _, StoreOp};
    use oncely_core::StoreErrorKind;
    use oncely_doors::admin::Metrics;
    use oncely_doors::gateway::{AllCounters, Unreached};

    use super::{ADVISE_EVERY, Ears, Lookout, SERVICES_MAX};

    fn lookout() -> Lookout {
        let ears = Ears::beside(Arc::new(Metrics::default()));
        Lookout::over(Arc::new(oncely_store::MemoryStore::new()), ears, AllCounters::from_iter([]))
    }

    #[tokio::test]
    async fn a_full_disk_is_over_with_the_next_attempt_and_not_with_the_next_read() {
        let lookout = lookout();
        let hear = |op, error| lookout.ears.stored(op, Duration::ZERO, error);
        hear(StoreOp::Create, Some(StoreErrorKind::Full));
        hear(StoreOp::Load, None);
        assert_eq!(lookout.trouble().await.as_deref(), Some("no space is left for new attempts"));
        hear(StoreOp::Create, None);
        assert_eq!(lookout.trouble().await, None);
        hear(StoreOp::Load, Some(StoreErrorKind::Overloaded));
        assert_eq!(lookout.trouble().await, None);
        // A ledger that answers when it is asked is not lost.
        hear(StoreOp::Load, Some(StoreErrorKind::Unavailable));
        assert_eq!(lookout.trouble().await, None);
    }

    #[test]
    fn advice_is_given_once_and_again_after_a_while() {
        let mut lookout = lookout();
        let advice = || ["a".to_owned(), "b".to_owned()].into();
        let now = std::time::Instant::now();
        assert_eq!(lookout.of_routes(advice(), now), ["a", "b"]);
        assert_eq!(lookout.of_routes(advice(), now + ADVISE_EVERY / 2), [""; 0]);
        assert_eq!(lookout.of_routes(advice(), now + ADVISE_EVERY), ["a", "b"]);
    }

    #[test]
    fn everything_is_told_once_when_it_is_lost_and_once_when_it_is_back() {
        let mut lookout = lookout();
        let away = |count: usize| -> Vec<Unreached> {
            (0..count).map(|n| Unreached { service: format!("s{n}"), why: "refused".into() }).collect()
        };
        assert_eq!(lookout.of_services(away(1)).len(), 1);
        assert_eq!(lookout.of_services(away(1)), [""; 0]);
        assert_eq!(lookout.of_services(away(20)).len(), SERVICES_MAX);
        assert_eq!(lookout.of_services(away(20)).len(), SERVICES_MAX);
        assert_eq!(lookout.of_services(away(20)).len(), 20 - 1 - 2 * SERVICES_MAX);
        let back = lookout.of_services(away(19));
        assert!(back.len() == 1 && back[0].starts_with("s19 is reached again"), "{back:?}");
        assert!(lookout.of_ledger(Some("gone".into())).unwrap().contains("gone"));
        assert_eq!(lookout.of_ledger(Some("still gone".into())), None);
        assert!(lookout.of_ledger(None).unwrap().contains("can be used again"));
        assert_eq!(lookout.of_ledger(None), None);
    }
}
