//! A store that guesses which records are there: right or wrong, a call has the same answer and as many effects. These are
//! counted outside of the ledger.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use oncely::core::limits::LEASE_MS;
use oncely::core::select::Selector;
use oncely::core::{
    Created, Draft, Event, IntentId, Millis, Policy, Store, StoreError, StoreErrorKind, StoreFuture, Stored,
    hand_on,
};
use oncely::{Answer, CallBuilder, Effect, Error, Forecast, Oncely, Outcome};

/// A ledger that knows nothing by heart, and whose guess is always the same.
struct Guessing {
    store: Arc<dyn Store>,
    expects: AtomicBool,
    fails: AtomicBool,
    /// A claim is written, and its answer gets lost.
    mute: AtomicBool,
    looks: AtomicU32,
    claims: AtomicU32,
    /// How much time seems to have passed to who looks.
    ahead_ms: AtomicU64,
}

impl Store for Guessing {
    fn peek(&self, _: &IntentId) -> Option<Stored> {
        None
    }

    fn expects(&self, _: &IntentId) -> bool {
        self.expects.load(Ordering::SeqCst)
    }

    fn create(&self, intent: IntentId, draft: Draft, events: Vec<Event>) -> StoreFuture<'_, Created> {
        self.claims.fetch_add(1, Ordering::SeqCst);
        let created = self.store.create(intent, draft, events);
        if self.mute.load(Ordering::SeqCst) {
            return Box::pin(std::future::pending());
        }
        created
    }

    fn load(&self, intent: IntentId) -> StoreFuture<'_, Option<Stored>> {
        self.looks.fetch_add(1, Ordering::SeqCst);
        if self.fails.load(Ordering::SeqCst) {
            let lost = StoreError::before(StoreErrorKind::Unavailable, "the connection is lost");
            return Box::pin(async { Err(lost) });
        }
        Box::pin(async move {
            let ahead_ms = self.ahead_ms.load(Ordering::SeqCst);
            let found = self.store.load(intent).await?;
            Ok(found.map(|stored| Stored { now: Millis(stored.now.0 + ahead_ms), ..stored }))
        })
    }

    hand_on!(store: describe replace note watch liveness owner now steady_since scan log purge tally tallies census flush
        health gate turn_gate import);
}

struct World {
    ledger: Arc<Guessing>,
    oncely: Oncely,
    effects: Arc<AtomicU32>,
}

impl World {
    async fn new() -> Self {
        let ledger = Arc::new(Guessing {
            store: oncely_store::open("memory:").await.unwrap(),
            expects: AtomicBool::new(true),
            fails: AtomicBool::new(false),
            mute: AtomicBool::new(false),
            looks: AtomicU32::new(0),
            claims: AtomicU32::new(0),
            ahead_ms: AtomicU64::new(0),
        });
        let oncely = Oncely::new(Arc::clone(&ledger) as Arc<dyn Store>);
        Self { ledger, oncely, effects: Arc::default() }
    }

    async fn run(&self, call: CallBuilder<'_>) -> Result<Answer, Error> {
        let effects = self.effects.clone();
        let effect = move |_| async move {
            effects.fetch_add(1, Ordering::SeqCst);
            Outcome::succeeded(Effect::Created, b"paid".to_vec())
        };
        call.run(effect).await
    }

    async fn charge(&self, payload: &str) -> Result<Answer, Error> {
        self.run(self.oncely.tool("charge").key("k").payload_json(payload)).await
    }

    fn ignoring(&self, payload: &str, fields: &[&str]) -> CallBuilder<'_> {
        let ignore = fields.iter().map(|field| Selector::parse(field).unwrap()).collect();
        let policy = Policy { ignore, ..Policy::default() };
        self.oncely.tool("charge").key("k").payload_json(payload).policy(policy)
    }

    /// Looks and claims since this was last asked, and all effects.
    fn counted(&self) -> (u32, u32, u32) {
        let taken = |count: &AtomicU32| count.swap(0, Ordering::SeqCst);
        (taken(&self.ledger.looks), taken(&self.ledger.claims), self.effects.load(Ordering::SeqCst))
    }
}

#[tokio::test]
async fn a_duplicate_that_is_expected_is_looked_for_and_never_claimed() {
    let world = World::new().await;
    world.ledger.expects.store(false, Ordering::SeqCst);
    assert!(matches!(world.charge(r#"{"a":1}"#).await.unwrap(), Answer::Executed(_)));
    assert_eq!(world.counted(), (0, 1, 1), "a fresh key is claimed at once");
    world.ledger.expects.store(true, Ordering::SeqCst);
    for same in [r#"{"a":1}"#, r#"{ "a" : 1.0 }"#] {
        let Answer::Replayed(replay) = world.charge(same).await.unwrap() else { panic!("{same}") };
        assert_eq!(replay.result().unwrap(), &b"paid"[..]);
        assert_eq!(world.counted(), (1, 0, 1), "{same}");
    }
    assert!(matches!(world.charge(r#"{"a":2}"#).await.unwrap(), Answer::Conflict { .. }));
    assert_eq!(world.counted(), (1, 0, 1));
    let error = world.charge("{").await.unwrap_err();
    assert!(matches!(error, Error::Payload(_)), "{error}");
    assert_eq!(world.counted(), (1, 0, 1));
}

/// However a duplicate is found, and in a dry run as well.
#[tokio::test]
async fn the_same_bytes_are_a_duplicate_also_where_the_policy_counts_other_fields_by_now() {
    let world = World::new().await;
    let payload = r#"{"a":1,"at":5}"#;
    assert!(matches!(world.run(world.ignoring(payload, &[])).await.unwrap(), Answer::Executed(_)));
    for expects in [false, true] {
        world.ledger.expects.store(expects, Ordering::SeqCst);
        let answer = world.run(world.ignoring(payload, &["at"])).await.unwrap();
        assert!(matches!(answer, Answer::Replayed(_)), "expects={expects}");
        let forecast = world.ignoring(payload, &["at"]).dry_run().await.unwrap();
        assert!(matches!(forecast, Forecast::WouldAnswer(Answer::Replayed(_))), "{forecast:?}");
        let other = world.run(world.ignoring(r#"{"a":2,"at":5}"#, &["at"])).await.unwrap();
        assert!(matches!(other, Answer::Conflict { .. }), "expects={expects}");
    }
}

/// A fingerprint that was only borrowed for the comparison is not what the next generation is known by.
#[tokio::test]
async fn a_key_that_is_new_again_is_known_by_what_the_policy_counts_now() {
    let world = World::new().await;
    let (payload, without) = (r#"{"to":1,"amount":5}"#, r#"{"to":1}"#);
    assert!(matches!(world.run(world.ignoring(payload, &["amount"])).await.unwrap(), Answer::Executed(_)));
    world.ledger.ahead_ms.store(40 * 86_400_000, Ordering::SeqCst);
    assert!(matches!(world.run(world.ignoring(payload, &[])).await.unwrap(), Answer::Executed(_)));
    world.ledger.ahead_ms.store(0, Ordering::SeqCst);
    assert!(matches!(world.run(world.ignoring(payload, &[])).await.unwrap(), Answer::Replayed(_)));
    assert!(matches!(world.run(world.ignoring(without, &[])).await.unwrap(), Answer::Conflict { .. }));
}

#[tokio::test]
async fn a_wrong_guess_costs_a_look_and_nothing_else() {
    let world = World::new().await;
    assert!(matches!(world.charge("{}").await.unwrap(), Answer::Executed(_)));
    assert_eq!(world.counted(), (1, 1, 1));
    let unnamed = || world.oncely.tool("charge").payload_json("[1]");
    assert!(matches!(world.run(unnamed()).await.unwrap(), Answer::Executed(_)));
    assert_eq!(world.counted(), (1, 1, 2));
    assert!(matches!(world.run(unnamed()).await.unwrap(), Answer::Replayed(_)));
    assert_eq!(world.counted(), (1, 0, 2), "its key is derived");
}

#[tokio::test]
async fn where_the_look_fails_nothing_runs_and_the_key_is_not_used_up() {
    let world = World::new().await;
    world.ledger.fails.store(true, Ordering::SeqCst);
    let error = world.charge("{}").await.unwrap_err();
    assert!(error.is_retryable(), "{error}");
    assert_eq!(world.counted(), (1, 0, 0));
    world.ledger.fails.store(false, Ordering::SeqCst);
    assert!(matches!(world.charge("{}").await.unwrap(), Answer::Executed(_)));
}

/// Its lease counts from when it was written: it must not have lapsed when the effect begins.
#[tokio::test(start_paused = true)]
async fn a_claim_that_is_not_acknowledged_while_its_lease_is_young_starts_nothing() {
    let world = World::new().await;
    world.ledger.mute.store(true, Ordering::SeqCst);
    let from = tokio::time::Instant::now();
    let error = world.charge("{}").await.unwrap_err();
    assert!(matches!(error, Error::Store(_)), "{error}");
    assert!(from.elapsed() <= Duration::from_millis(LEASE_MS / 2), "{:?}", from.elapsed());
    world.ledger.mute.store(false, Ordering::SeqCst);
    assert!(matches!(world.charge("{}").await.unwrap(), Answer::Executed(_)), "nothing ran, so it may run");
    assert_eq!(world.effects.load(Ordering::SeqCst), 1);
}
