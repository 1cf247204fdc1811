//! The library as its users meet it, on both embedded ledgers. Effects are counted outside of the ledger.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test fails by panicking")]

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use oncely::core::machine::Verdict;
use oncely::core::{Failure, Kind, Retention, State, WhenUnknown};
use oncely::{
    Answer, Begun, Effect, Error, Finding, Forecast, Oncely, Outcome, Policy, ResolveError, outcome,
};
use serde_json::json;
use tokio::sync::oneshot;

/// An engine on a fresh ledger, and the world in which effects happen.
struct Bench {
    oncely: Oncely,
    effects: Arc<AtomicU32>,
    _directory: tempfile::TempDir,
}

impl Bench {
    async fn all() -> Vec<Self> {
        let mut benches = Vec::new();
        for sqlite in [false, true] {
            let directory = tempfile::tempdir().unwrap();
            let url = match sqlite {
                true => format!("sqlite:{}", directory.path().join("ledger.db").display()),
                false => "memory:".to_owned(),
            };
            let oncely = Oncely::new(oncely_store::open(&url).await.unwrap());
            benches.push(Self { oncely, effects: Arc::default(), _directory: directory });
        }
        benches
    }

    fn count(&self) -> u32 {
        self.effects.load(Ordering::SeqCst)
    }

    /// Calls a tool whose effect is one more in the world, and which then ends as told.
    async fn call(&self, key: &str, policy: &Policy, end: Outcome) -> Answer {
        self.call_with(key, json!({ "amount": 1 }), policy, end).await
    }

    async fn call_with(
        &self,
        key: &str,
        payload: serde_json::Value,
        policy: &Policy,
        end: Outcome,
    ) -> Answer {
        let effects = self.effects.clone();
        self.oncely
            .tool("charge")
            .key(key)
            .payload(&payload)
            .policy(policy.clone())
            .run(move |_| async move {
                effects.fetch_add(1, Ordering::SeqCst);
                end
            })
            .await
            .unwrap()
    }
}

fn word(answer: &Answer) -> &'static str {
    match answer {
        Answer::Executed(e) if e.succeeded() => "executed",
        Answer::Executed(e) if e.outcome.failure().is_some() => "rejected",
        Answer::Executed(_) => "ended unknown",
        Answer::Replayed(_) => "replayed",
        Answer::Refused(_) => "refused",
        Answer::InProgress(_) => "in progress",
        Answer::Conflict { .. } => "conflict",
        Answer::Unknown(_) => "unknown",
    }
}

#[tokio::test]
async fn a_duplicate_gets_the_first_result_and_nothing_runs() {
    for bench in Bench::all().await {
        let policy = Policy::default();
        let first = bench.call("k", &policy, outcome::created("receipt")).await;
        assert_eq!(word(&first), "executed");
        let Answer::Replayed(replay) = bench.call("k", &policy, outcome::created("other")).await else {
            panic!("not replayed")
        };
        assert_eq!(replay.result(), Some(&b"\"receipt\""[..]));
        assert_eq!(replay.first_effect(), Some(Effect::Created));
        assert_eq!(bench.count(), 1);
    }
}

#[tokio::test]
async fn empty_and_null_results_are_replayed_as_they_were() {
    for bench in Bench::all().await {
        let policy = Policy::default();
        for (key, result) in [("empty", &b""[..]), ("null", b"null"), ("false", b"false")] {
            bench.call(key, &policy, Outcome::succeeded(Effect::Sent, result)).await;
            let Answer::Replayed(replay) = bench.call(key, &policy, outcome::sent("x")).await else {
                panic!()
            };
            assert_eq!(replay.result(), Some(result), "{key}");
        }
    }
}

#[tokio::test]
async fn a_key_reused_for_another_payload_is_a_conflict_in_every_state() {
    for bench in Bench::all().await {
        let policy = Policy::default();
        for (key, end) in
            [("s", outcome::sent("")), ("r", outcome::rejected("NO", "")), ("u", outcome::unknown(""))]
        {
            bench.call(key, &policy, end).await;
            let other = bench.call_with(key, json!({ "amount": 2 }), &policy, outcome::sent("")).await;
            assert_eq!(word(&other), "conflict", "{key}");
        }
        assert_eq!(bench.count(), 3);
        let spelled = bench.call_with("s", json!({ "amount": 1.0 }), &policy, outcome::sent("")).await;
        assert_eq!(word(&spelled), "replayed");
    }
}

#[tokio::test]
async fn an_unknown_outcome_never_runs_again_by_itself_and_a_person_can_settle_it() {
    for bench in Bench::all().await {
        let policy = Policy::default();
        assert_eq!(word(&bench.call("k", &policy, outcome::unknown("?")).await), "ended unknown");
        for _ in 0..3 {
            assert_eq!(word(&bench.call("k", &policy, outcome::sent("")).await), "unknown");
        }
        assert_eq!(bench.count(), 1);
        let Answer::Unknown(there) = bench.call("k", &policy, outcome::sent("")).await else { panic!() };
        let verdict = Verdict::Succeeded { effect: Effect::Sent, result: Some(b"found"[..].into()) };
        bench.oncely.resolve(&there.record, "ada", verdict.clone()).await.unwrap();
        assert!(matches!(
            bench.oncely.resolve(&there.record, "ada", verdict).await,
            Err(ResolveError::NotInDoubt)
        ));
        let Answer::Replayed(replay) = bench.call("k", &policy, outcome::sent("")).await else { panic!() };
        assert_eq!(replay.result(), Some(&b"found"[..]));
        assert_eq!(bench.count(), 1);
    }
}

#[tokio::test]
async fn what_a_person_settled_as_rejected_or_checked_runs_again() {
    for bench in Bench::all().await {
        let policy = Policy::default();
        bench.call("k", &policy, outcome::unknown("?")).await;
        let Answer::Unknown(there) = bench.call("k", &policy, outcome::sent("")).await else { panic!() };
        let verdict = Verdict::Rejected(Failure::new("CHECKED", "not in the bank's list"));
        bench.oncely.resolve(&there.record, "ada", verdict.clone()).await.unwrap();
        assert_eq!(word(&bench.call("k", &policy, outcome::unknown("?")).await), "ended unknown");
        let Answer::Unknown(doubt) = bench.call("k", &policy, outcome::sent("")).await else { panic!() };
        let effects = bench.effects.clone();
        let again = bench
            .oncely
            .tool("charge")
            .key("k")
            .payload(&json!({ "amount": 1 }))
            .checked_by("ada", &doubt.record)
            .run(move |attempt| async move {
                effects.fetch_add(1, Ordering::SeqCst);
                outcome::sent(&attempt.number())
            })
            .await
            .unwrap();
        assert_eq!(word(&again), "executed");
        // What was seen of the first attempt says nothing of a later one.
        let late = bench.oncely.resolve(&there.record, "ada", verdict).await;
        assert!(matches!(late, Err(ResolveError::Moved)));
        assert_eq!(bench.count(), 3);
    }
}

#[tokio::test]
async fn a_rejection_runs_again_until_the_budget_is_spent() {
    for bench in Bench::all().await {
        let policy = Policy { max_retries: 2, ..Policy::default() };
        for _ in 0..3 {
            assert_eq!(word(&bench.call("k", &policy, outcome::rejected("BUSY", "later")).await), "rejected");
        }
        let answer = bench.call("k", &policy, outcome::sent("")).await;
        let Answer::Refused(replay) = answer else { panic!("{answer:?}") };
        assert!(
            matches!(&replay.record.body.state, State::Rejected { failure, .. } if failure.code == "BUSY")
        );
        assert_eq!(bench.count(), 3);
    }
}

#[tokio::test]
async fn a_panic_and_a_dropped_attempt_are_unknown_and_not_lost() {
    for bench in Bench::all().await {
        let panicked =
            bench.oncely.tool("charge").key("panic").run(|_| async { panic!("half-way") }).await.unwrap();
        let Answer::Executed(execution) = panicked else { panic!() };
        assert!(matches!(execution.outcome, Outcome::Unknown(doubt) if doubt.message.contains("half-way")));
        let again =
            bench.oncely.tool("charge").key("panic").run(|_| async { outcome::sent("") }).await.unwrap();
        assert_eq!(word(&again), "unknown");

        let Begun::Run(attempt) = bench.oncely.tool("charge").key("drop").begin().await.unwrap() else {
            panic!()
        };
        drop(attempt);
        let again =
            bench.oncely.tool("charge").key("drop").run(|_| async { outcome::sent("") }).await.unwrap();
        assert_eq!(word(&again), "unknown");
    }
}

#[tokio::test]
async fn a_caller_that_hangs_up_does_not_cancel_the_effect_and_its_retry_replays() {
    for bench in Bench::all().await {
        let (started, has_started) = oneshot::channel();
        let (go_on, may_go_on) = oneshot::channel::<()>();
        let oncely = bench.oncely.clone();
        let effects = bench.effects.clone();
        let caller = tokio::spawn(async move {
            oncely
                .tool("charge")
                .key("k")
                .run(move |_| async move {
                    started.send(()).unwrap();
                    may_go_on.await.unwrap();
                    effects.fetch_add(1, Ordering::SeqCst);
                    outcome::created("late")
                })
                .await
        });
        has_started.await.unwrap();
        caller.abort();
        assert!(caller.await.unwrap_err().is_cancelled());
        go_on.send(()).unwrap();
        assert_eq!(bench.oncely.drain(Duration::from_secs(30)).await, 0);
        let again = bench.oncely.tool("charge").key("k").run(|_| async { outcome::sent("") }).await.unwrap();
        let Answer::Replayed(replay) = again else { panic!("{again:?}") };
        assert_eq!(replay.result(), Some(&b"\"late\""[..]));
        assert_eq!(bench.count(), 1);
    }
}

#[tokio::test]
async fn many_at_once_with_one_key_are_one_effect_and_equal_answers() {
    for bench in Bench::all().await {
        let mut calls = tokio::task::JoinSet::new();
        for _ in 0..200 {
            let (oncely, effects) = (bench.oncely.clone(), bench.effects.clone());
            calls.spawn(async move {
                let effect = move |_| async move {
                    effects.fetch_add(1, Ordering::SeqCst);
                    tokio::task::yield_now().await;
                    outcome::created("one")
                };
                oncely.tool("charge").key("k").run(effect).await.unwrap()
            });
        }
        let answers = calls.join_all().await;
        assert_eq!(bench.count(), 1);
        assert_eq!(answers.iter().filter(|a| word(a) == "executed").count(), 1);
        assert_eq!(answers.iter().filter(|a| word(a) == "replayed").count(), 199);
    }
}

#[tokio::test]
async fn a_call_that_will_not_wait_is_told_that_it_is_in_progress() {
    for bench in Bench::all().await {
        let Begun::Run(attempt) = bench.oncely.tool("charge").key("k").begin().await.unwrap() else {
            panic!()
        };
        let second = || bench.oncely.tool("charge").key("k").wait_for(Duration::ZERO);
        let answer = second().run(|_| async { outcome::sent("") }).await.unwrap();
        assert_eq!(word(&answer), "in progress");
        // Another engine of the same process must not take the attempt for abandoned.
        let other = Oncely::new(bench.oncely.store().clone());
        let answer =
            other.tool("charge").key("k").wait_for(Duration::ZERO).run(|_| async { outcome::sent("") });
        assert_eq!(word(&answer.await.unwrap()), "in progress");
        assert!(attempt.complete(outcome::created("x")).await.is_none());
        let answer = second().run(|_| async { outcome::sent("") }).await.unwrap();
        assert_eq!(word(&answer), "replayed");
    }
}

#[tokio::test]
async fn equal_calls_without_a_key_are_one_intent_only_for_a_while_unless_in_a_scope() {
    for bench in Bench::all().await {
        let policy = Policy { repeat_after_ms: 0, ..Policy::default() };
        let call = |scope: Option<&'static str>, policy: &Policy| {
            let effects = bench.effects.clone();
            let builder =
                bench.oncely.tool("email").payload(&json!({ "to": "a@b.c" })).policy(policy.clone());
            let builder = match scope {
                Some(scope) => builder.scope(scope),
                None => builder,
            };
            builder.run(move |_| async move {
                effects.fetch_add(1, Ordering::SeqCst);
                outcome::sent("ok")
            })
        };
        assert_eq!(word(&call(None, &Policy::default()).await.unwrap()), "executed");
        assert_eq!(word(&call(None, &Policy::default()).await.unwrap()), "replayed");
        assert_eq!(word(&call(None, &policy).await.unwrap()), "executed");
        assert_eq!(word(&call(Some("task-7"), &policy).await.unwrap()), "executed");
        assert_eq!(word(&call(Some("task-7"), &policy).await.unwrap()), "replayed");
        assert_eq!(bench.count(), 3);
    }
}

#[tokio::test]
async fn a_check_answers_before_acting_and_settles_a_doubt() {
    for bench in Bench::all().await {
        let policy = Policy { when_unknown: WhenUnknown::Check, ..Policy::default() };
        let call = |key: &'static str, finding: Finding, end: Outcome| {
            let effects = bench.effects.clone();
            bench
                .oncely
                .tool("deploy")
                .key(key)
                .policy(policy.clone())
                .check(move || std::future::ready(finding.clone()))
                .run(move |_| async move {
                    effects.fetch_add(1, Ordering::SeqCst);
                    end
                })
        };
        let happened = || Finding::Happened(Some(b"v2"[..].into()));
        let Answer::Executed(held) = call("held", happened(), outcome::sent("")).await.unwrap() else {
            panic!()
        };
        assert!(matches!(held.outcome, Outcome::Succeeded { effect: Effect::Noop, .. }));
        let unsure = call("unsure", Finding::Unsure("?".into()), outcome::sent("")).await.unwrap();
        assert_eq!(word(&unsure), "rejected");
        assert_eq!(bench.count(), 0);

        assert_eq!(
            word(&call("k", Finding::NotHappened, outcome::unknown("?")).await.unwrap()),
            "ended unknown"
        );
        let halted = call("k", Finding::Unsure("?".into()), outcome::sent("")).await.unwrap();
        assert_eq!(word(&halted), "unknown");
        assert_eq!(bench.count(), 1);
        let again = call("k", Finding::NotHappened, outcome::unknown("?")).await.unwrap();
        assert_eq!(word(&again), "ended unknown");
        let settled = call("k", happened(), outcome::sent("")).await.unwrap();
        let Answer::Replayed(replay) = settled else { panic!("{settled:?}") };
        assert_eq!(replay.result(), Some(&b"v2"[..]));
        assert_eq!(bench.count(), 2);
    }
}

#[tokio::test]
async fn a_harmless_tool_runs_again_after_an_unknown_with_the_same_downstream_key() {
    for bench in Bench::all().await {
        let policy = Policy {
            when_unknown: WhenUnknown::Retry,
            forwards_key_for_ms: Some(3_600_000),
            ..Policy::default()
        };
        let keys = Arc::new(std::sync::Mutex::new(Vec::new()));
        let ends = [
            ("u", outcome::unknown("?")),
            ("u", outcome::rejected("BUSY", "")),
            ("u", outcome::sent("ok")),
            ("r", outcome::rejected("BUSY", "")),
            ("r", outcome::sent("ok")),
        ];
        for (key, end) in ends {
            let keys = keys.clone();
            let call = bench.oncely.tool("charge").key(key).policy(policy.clone());
            let answer = call.run(move |attempt| async move {
                keys.lock().unwrap().push(attempt.downstream_key());
                end
            });
            assert!(matches!(answer.await.unwrap(), Answer::Executed(_)));
        }
        let keys = keys.lock().unwrap();
        assert_eq!(keys[0], keys[1], "after an unknown the key stays");
        assert_eq!(keys[0], keys[2], "a rejection says nothing of the unknown before it: the key stays");
        assert_ne!(keys[3], keys[4], "after a certain rejection it is new");
    }
}

#[tokio::test]
async fn a_dry_run_says_what_would_happen_and_leaves_no_trace() {
    for bench in Bench::all().await {
        let policy = Policy { effect: Effect::Created, ..Policy::default() };
        let dry = |key: &'static str, amount: u32| {
            let payload = json!({ "amount": amount });
            bench.oncely.tool("charge").key(key).payload(&payload).policy(policy.clone()).dry_run()
        };
        let would = dry("k", 1).await.unwrap();
        assert!(matches!(would, Forecast::WouldRun { attempt: 1, effect: Effect::Created }));
        assert_eq!(word(&bench.call("k", &policy, outcome::created("")).await), "executed");
        assert!(matches!(dry("k", 1).await.unwrap(), Forecast::WouldAnswer(Answer::Replayed(_))));
        assert!(matches!(dry("k", 2).await.unwrap(), Forecast::WouldAnswer(Answer::Conflict { .. })));
        bench.call("u", &policy, outcome::unknown("?")).await;
        assert!(matches!(dry("u", 1).await.unwrap(), Forecast::WouldAnswer(Answer::Unknown(_))));
        assert_eq!(bench.count(), 2);
    }
}

#[tokio::test]
async fn reads_pass_and_bad_calls_run_nothing() {
    for bench in Bench::all().await {
        let read = Policy { kind: Kind::Read, ..Policy::default() };
        for _ in 0..2 {
            assert_eq!(word(&bench.call("r", &read, outcome::noop("fresh")).await), "executed");
        }
        assert_eq!(bench.count(), 2);
        let strict = Policy { require_key: true, ..Policy::default() };
        let run = |builder: oncely::CallBuilder<'_>| {
            let future = builder.into_call();
            future.err()
        };
        assert!(matches!(run(bench.oncely.tool("")), Some(Error::Name(_))));
        assert!(matches!(run(bench.oncely.tool("t").key("")), Some(Error::Name(_))));
        assert!(matches!(run(bench.oncely.tool("t").scope("a\nb")), Some(Error::Name(_))));
        let no_key = bench.oncely.tool("t").policy(strict).run(|_| async { panic!("ran") }).await;
        assert!(matches!(no_key, Err(Error::KeyRequired { .. })));
        let malformed =
            bench.oncely.tool("t").key("k").payload_json("{").run(|_| async { panic!("ran") }).await;
        assert!(matches!(malformed, Err(Error::Payload(_))));
    }
}

#[tokio::test]
async fn a_result_past_its_time_is_replayed_without_it_and_a_forgotten_key_is_new() {
    for bench in Bench::all().await {
        let gone = Retention { replay_for_ms: 0, remember_for_ms: 86_400_000 };
        let policy = Policy { retention: gone, ..Policy::default() };
        bench.call("k", &policy, outcome::created("x")).await;
        let again = async || {
            let answer = bench.call("k", &policy, outcome::created("y")).await;
            let Answer::Replayed(replay) = answer else { panic!("{answer:?}") };
            assert!(!replay.kept);
            assert_eq!(replay.result(), None);
            replay
        };
        again().await;
        // Dropped now, if no attempt has tidied up yet: the record does not change any more.
        bench.oncely.purge(|_| ()).await.unwrap();
        let replay = again().await;
        bench.oncely.forget(&replay.record, "ada").await.unwrap();
        assert_eq!(word(&bench.call("k", &policy, outcome::created("z")).await), "executed");
        assert_eq!(bench.count(), 2);
    }
}

#[tokio::test]
async fn a_call_that_is_dropped_while_it_claims_leaves_the_key_usable() {
    for bench in Bench::all().await {
        for round in 0..50u32 {
            let key = format!("k{round}");
            let mut begin = Box::pin(bench.oncely.tool("charge").key(&key).begin());
            // Polled a few times, then dropped wherever it stands.
            for _ in 0..round % 5 {
                let polled = std::future::poll_fn(|cx| std::task::Poll::Ready(begin.as_mut().poll(cx))).await;
                if polled.is_ready() {
                    break;
                }
                tokio::task::yield_now().await;
            }
            drop(begin);
            let again =
                bench.oncely.tool("charge").key(&key).run(|_| async { outcome::sent("") }).await.unwrap();
            // A claim that was answered just then is an attempt that was dropped: unknown. Else it runs.
            assert!(["executed", "unknown"].contains(&word(&again)), "{key}: {again:?}");
        }
    }
}
