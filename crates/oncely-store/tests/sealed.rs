//! Encryption at rest: a sealed ledger keeps every promise, its files hold no result, and a row copied over another one
//! does not open.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::sync::Arc;

use oncely_core::machine::{Begin, Input, Write, step};
use oncely_core::{
    AttemptToken, Change, Created, Draft, Effect, Filter, Fingerprint, IntentId, IntentName, Key, Liveness,
    Millis, Namespace, Outcome, Owner, Page, Policy, Record, Replaced, Scope, State, Store, StoreErrorKind,
    StoreFuture, Stored, ToolName,
};
use oncely_store::sealed::{Keys, Sealed};
use oncely_testkit::conformance::Ledger;

const FIRST: &str = "first 000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
const SECOND: &str = "second f0f102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
const OTHER_FIRST: &str = "first aaaa02030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

async fn open(path: &Path, keys: &str) -> Arc<dyn Store> {
    let store = oncely_store::open(&path.display().to_string()).await.unwrap();
    let keys = if keys.is_empty() { Keys::none() } else { Keys::parse(keys).unwrap() };
    Arc::new(Sealed::new(store, keys))
}

mod promises {
    oncely_testkit::conformance_suite!(|| async {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ledger.db");
        let first = super::open(&path, super::FIRST).await;
        let reopen = move || {
            let path = path.clone();
            async move { super::open(&path, super::FIRST).await }
        };
        super::Ledger::shared(first, reopen).keeping(directory)
    });
}

fn name(key: &str) -> IntentName {
    IntentName {
        namespace: Namespace::default(),
        scope: Scope::none(),
        tool: ToolName::parse("charge").unwrap(),
        key: Key::explicit(key).unwrap(),
    }
}

fn drafts(key: &str, outcome: Outcome) -> (IntentId, Draft, Draft) {
    let (name, policy, owner) = (name(key), Policy::default(), Owner::default());
    let intent = name.intent_id();
    let token = AttemptToken([1; 16]);
    let begin = Input::Begin(Begin {
        intent,
        name: &name,
        fingerprint: Fingerprint::of_json(b"1").unwrap(),
        token,
        owner: &owner,
        liveness: Liveness::ByLease,
        policy: &policy,
        steady_since: Millis(0),
        checked: None,
    });
    let put = |write: Write| match write {
        Write::Put(draft) => *draft,
        other => panic!("{other:?}"),
    };
    let running = put(step(None, &begin, Millis(0)).write);
    let record = running.clone().stamped(intent, oncely_core::Version(1), Millis(0));
    let ended = put(step(Some(&record), &Input::Complete { token, outcome }, Millis(0)).write);
    (intent, running, ended)
}

/// Writes a record that has ended like this.
async fn remember(store: &dyn Store, key: &str, outcome: Outcome) -> IntentId {
    let (intent, running, ended) = drafts(key, outcome);
    let Created::New(stored) = store.create(intent, running, Vec::new()).await.unwrap() else { panic!() };
    let change = Change::Put(Box::new(ended));
    let done = store.replace(intent, stored.record.version, change, Vec::new()).await.unwrap();
    assert!(matches!(done, Replaced::Done(Some(_))));
    intent
}

fn result_of(record: &Record) -> &[u8] {
    match &record.body.state {
        State::Succeeded { result: Some(result), .. } => result,
        State::Rejected { failure, .. } => failure.detail.as_deref().unwrap(),
        State::InDoubt { doubt, .. } => doubt.evidence.as_deref().unwrap(),
        other => panic!("{other:?}"),
    }
}

fn succeeded(text: &str) -> Outcome {
    Outcome::succeeded(Effect::Created, text.as_bytes().to_vec())
}

fn every_byte(directory: &Path) -> Vec<u8> {
    let files = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    files.filter(|path| path.is_file()).flat_map(|path| std::fs::read(path).unwrap()).collect()
}

fn holds(bytes: &[u8], wanted: &str) -> bool {
    bytes.windows(wanted.len()).any(|window| window == wanted.as_bytes())
}

#[tokio::test]
async fn nothing_of_a_result_is_in_the_files_and_all_of_it_comes_back() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ledger.db");
    let secret = "card-4242-4242";
    let failure = oncely_core::Failure::new("NO", "no").with_detail(secret.as_bytes().to_vec());
    let doubt = oncely_core::Doubt::new(oncely_core::DoubtCause::TimedOut, "?");
    let doubt = doubt.with_evidence(secret.as_bytes().to_vec());
    let outcomes = [succeeded(secret), Outcome::Rejected(failure), Outcome::Unknown(doubt)];
    let store = open(&path, FIRST).await;
    for (number, outcome) in outcomes.into_iter().enumerate() {
        let intent = remember(&*store, &format!("visible-{number}"), outcome).await;
        assert_eq!(result_of(&store.load(intent).await.unwrap().unwrap().record), secret.as_bytes());
    }
    let peeked = store.peek(&name("visible-0").intent_id()).unwrap();
    assert_eq!(result_of(&peeked.record), secret.as_bytes(), "from memory, too");
    for stored in store.scan(Filter::default(), 0, 10).await.unwrap().items {
        assert_eq!(result_of(&stored.record), secret.as_bytes());
    }
    drop((store, peeked));
    let bytes = every_byte(directory.path());
    assert!(holds(&bytes, "visible-0"), "names stay readable");
    assert!(!holds(&bytes, secret), "results do not");
}

#[tokio::test]
async fn the_largest_result_and_an_empty_one_come_back_whole() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(&directory.path().join("ledger.db"), FIRST).await;
    for (key, size) in [("largest", oncely_core::limits::RESULT_BYTES_MAX), ("empty", 0)] {
        let text = "x".repeat(size);
        let intent = remember(&*store, key, succeeded(&text)).await;
        assert_eq!(result_of(&store.load(intent).await.unwrap().unwrap().record), text.as_bytes());
    }
}

#[tokio::test]
async fn keys_change_by_putting_a_new_one_in_front() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ledger.db");
    let plain = remember(&*open(&path, "").await, "plain", succeeded("before sealing began")).await;
    let old = remember(&*open(&path, FIRST).await, "old", succeeded("old")).await;
    let both = format!("{SECOND}\n{FIRST}");
    let new = remember(&*open(&path, &both).await, "new", succeeded("new")).await;

    let store = open(&path, &both).await;
    for (intent, text) in [(plain, "before sealing began"), (old, "old"), (new, "new")] {
        assert_eq!(result_of(&store.load(intent).await.unwrap().unwrap().record), text.as_bytes());
    }
    // The old key alone opens what it sealed and not what the new one did.
    let store = open(&path, FIRST).await;
    assert!(store.load(old).await.is_ok());
    let error = store.load(new).await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Corrupt);
    assert!(error.message.contains("\"second\""), "{error}");
    assert!(store.peek(&new).is_none());
    assert_eq!(store.scan(Filter::default(), 0, 10).await.unwrap().items.len(), 3, "still listed");
    // Another key under the same id is not mistaken for it.
    assert!(open(&path, OTHER_FIRST).await.load(old).await.is_err());
    // And without any key sealed bytes are not told for a result.
    assert!(open(&path, "").await.load(old).await.is_err());
}

#[tokio::test]
async fn without_keys_nothing_is_stored_in_plain_beside_what_is_sealed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ledger.db");
    remember(&*open(&path, FIRST).await, "sealed", succeeded("under a key")).await;
    let forgetful = Sealed::new(oncely_store::open(&path.display().to_string()).await.unwrap(), Keys::none());
    assert!(forgetful.look_for_seals().await.unwrap());
    let intent = remember(&forgetful, "later", succeeded("plain-to-see")).await;
    let stored = forgetful.load(intent).await.unwrap().unwrap();
    assert!(
        matches!(stored.record.body.state, State::Succeeded { result: None, .. }),
        "it happened, no result is kept"
    );
    drop((forgetful, stored));
    assert!(!holds(&every_byte(directory.path()), "plain-to-see"));
    // With its keys, or where nothing is sealed, all is as always.
    let keys = Keys::parse(FIRST).unwrap();
    let store = Sealed::new(oncely_store::open(&path.display().to_string()).await.unwrap(), keys);
    assert!(!store.look_for_seals().await.unwrap());
}

/// A ledger whose pages end after one record, as if each were large.
struct OneByOne {
    store: Arc<dyn Store>,
}

impl Store for OneByOne {
    fn scan(&self, filter: Filter, from: u64, limit: usize) -> StoreFuture<'_, Page<Stored>> {
        self.store.scan(filter, from, limit.min(1))
    }

    oncely_core::hand_on!(store: describe peek expects create load replace note watch liveness owner now steady_since log purge tally
        tallies census flush health gate turn_gate import);
}

#[tokio::test]
async fn seals_are_looked_for_on_more_than_one_page() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ledger.db");
    for (key, keys) in [("plain", ""), ("too", ""), ("sealed", FIRST)] {
        remember(&*open(&path, keys).await, key, succeeded("large")).await;
    }
    let store = oncely_store::open(&path.display().to_string()).await.unwrap();
    let forgetful = Sealed::new(Arc::new(OneByOne { store }), Keys::none());
    assert!(forgetful.look_for_seals().await.unwrap());
}

#[tokio::test]
async fn a_row_copied_over_another_one_or_changed_does_not_open() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ledger.db");
    let rich = remember(&*open(&path, FIRST).await, "rich", succeeded("secret of the rich")).await;
    // As somebody would who can write the ledger but has no key: past the seal.
    let raw = oncely_store::open(&path.display().to_string()).await.unwrap();
    let sealed = raw.load(rich).await.unwrap().unwrap();
    let taken = result_of(&sealed.record).to_vec();
    assert!(!holds(&taken, "secret of the rich"));
    let poor = remember(&*raw, "poor", Outcome::succeeded(Effect::Created, taken.clone())).await;
    let mut bent = taken;
    let last = bent.len() - 1;
    bent[last] ^= 1;
    let changed = remember(&*raw, "bent", Outcome::succeeded(Effect::Created, bent)).await;
    for cut in [8, 9, 14, 20, 40] {
        remember(
            &*raw,
            &format!("cut-{cut}"),
            Outcome::succeeded(Effect::Created, result_of(&sealed.record)[..cut].to_vec()),
        )
        .await;
    }
    drop(raw);
    let store = open(&path, FIRST).await;
    assert_eq!(result_of(&store.load(rich).await.unwrap().unwrap().record), b"secret of the rich");
    for intent in [poor, changed] {
        let error = store.load(intent).await.unwrap_err();
        assert!(error.message.contains("cannot be decrypted"), "{error}");
    }
    for cut in [8, 9, 14, 20, 40] {
        assert!(store.load(name(&format!("cut-{cut}")).intent_id()).await.is_err(), "{cut}");
    }
}
