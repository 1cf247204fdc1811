//! Ends of attempts that have lost their place: loud where something may have happened twice, and only there.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use oncely::core::{Change, Counter, State, WhenUnknown};
use oncely::{Attempt, Begun, Oncely, Outcome, Policy, RemoteEnd, Unrecorded, outcome};

async fn begin(oncely: &Oncely) -> Attempt {
    begin_under(oncely, Policy::default()).await
}

async fn begin_under(oncely: &Oncely, policy: Policy) -> Attempt {
    match oncely.tool("charge").key("k").policy(policy).begin().await.unwrap() {
        Begun::Run(attempt) => attempt,
        Begun::Answered(answer) => panic!("nothing was to be run: {answer:?}"),
    }
}

/// An attempt whose rejection was recorded, though it never heard of that, and the one that was begun after it.
async fn replaced(oncely: &Oncely) -> (Attempt, Attempt) {
    let first = begin(oncely).await;
    let (intent, token) = (first.info().intent(), first.info().token());
    oncely.complete(intent, token, outcome::rejected("NO", "no")).await.unwrap();
    (first, begin(oncely).await)
}

async fn counted(oncely: &Oncely) -> u64 {
    let tallies = oncely.store().tallies().await.unwrap();
    tallies.iter().filter(|t| t.counter == Counter::Superseded).map(|t| t.count).sum()
}

fn succeeded() -> Outcome {
    outcome::created(&1)
}

#[tokio::test]
async fn a_success_that_comes_too_late_is_said_and_counted() {
    let oncely = Oncely::new(oncely_store::open("memory:").await.unwrap());
    let (first, second) = replaced(&oncely).await;
    assert!(matches!(first.complete(succeeded()).await, Some(Unrecorded::Superseded)));
    assert_eq!(counted(&oncely).await, 1);
    assert!(second.complete(succeeded()).await.is_none(), "it has its place");
}

#[tokio::test]
async fn a_rejection_that_is_reported_once_more_is_no_sign_of_a_second_effect() {
    let oncely = Oncely::new(oncely_store::open("memory:").await.unwrap());
    let (first, second) = replaced(&oncely).await;
    let unrecorded = first.complete(outcome::rejected("NO", "no")).await;
    assert!(unrecorded.is_none(), "{unrecorded:?}");
    assert_eq!(counted(&oncely).await, 0);
    assert!(second.complete(succeeded()).await.is_none(), "it has its place");
}

#[tokio::test]
async fn a_rejection_that_is_reported_once_more_does_not_speak_for_an_unknown_attempt_before_it() {
    let oncely = Oncely::new(oncely_store::open("memory:").await.unwrap());
    let harmless = Policy { when_unknown: WhenUnknown::Retry, idempotent: true, ..Policy::default() };
    let unknown = begin_under(&oncely, harmless.clone()).await;
    assert!(unknown.complete(Outcome::unknown("?")).await.is_none());
    let second = begin_under(&oncely, harmless.clone()).await;
    let (intent, token) = (second.info().intent(), second.info().token());
    oncely.complete(intent, token, outcome::rejected("NO", "no")).await.unwrap();
    let third = begin_under(&oncely, harmless).await;
    let unrecorded = second.complete(outcome::rejected("NO", "no")).await;
    assert!(matches!(unrecorded, Some(Unrecorded::EarlierUnknown)), "{unrecorded:?}");
    assert_eq!(counted(&oncely).await, 0);
    assert!(third.complete(succeeded()).await.is_none(), "it has its place");
}

#[tokio::test]
async fn an_end_whose_record_was_forgotten_is_said_whatever_it_was() {
    for late in [outcome::rejected("NO", "no"), succeeded()] {
        let oncely = Oncely::new(oncely_store::open("memory:").await.unwrap());
        let attempt = begin(&oncely).await;
        let intent = attempt.info().intent();
        let version = oncely.store().load(intent).await.unwrap().unwrap().record.version;
        oncely.store().replace(intent, version, Change::Remove, Vec::new()).await.unwrap();
        assert!(matches!(attempt.complete(late).await, Some(Unrecorded::Superseded)));
    }
}

#[tokio::test]
async fn over_http_both_are_superseded_and_only_one_is_counted() {
    let oncely = Oncely::new(oncely_store::open("memory:").await.unwrap());
    let (first, second) = replaced(&oncely).await;
    let (intent, token) = (first.info().intent(), first.info().token());
    for (late, alarms) in [(outcome::rejected("NO", "no"), 0), (succeeded(), 1)] {
        let late = oncely.complete_remote(intent, token, late).await.unwrap();
        assert!(matches!(late, RemoteEnd::Superseded));
        assert_eq!(counted(&oncely).await, alarms);
    }
    let stored = oncely.store().load(intent).await.unwrap().unwrap();
    assert!(matches!(stored.record.body.state, State::Running { .. }));
    assert_eq!(stored.record.body.token, second.info().token());
}
