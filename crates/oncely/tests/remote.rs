//! Attempts made outside of this process, on a real ledger that is closed and opened in between.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use oncely::core::{AttemptToken, Millis, StoreErrorKind};
use oncely::{
    Answer, AnswerKind, Call, Error, Observer, Oncely, RemoteBegun, RemoteClaim, RemoteEnd, StateName,
    StoreOp, ToolName, outcome,
};
use oncely_store::MemoryStore;
use oncely_testkit::sim::{Faults, World};

fn call(oncely: &Oncely, payload: i32) -> Call {
    let said = oncely.tool("charge").key("order-1").payload(&payload).wait_for(Duration::ZERO);
    said.into_call().unwrap()
}

async fn run(oncely: &Oncely, token: Option<AttemptToken>) -> RemoteClaim {
    match oncely.begin_remote(call(oncely, 1), "worker", token).await.unwrap() {
        RemoteBegun::Run(claim) => claim,
        RemoteBegun::Answered(answer) => panic!("{answer:?}"),
    }
}

async fn answered(oncely: &Oncely) -> Answer {
    match oncely.begin_remote(call(oncely, 1), "other", None).await.unwrap() {
        RemoteBegun::Answered(answer) => answer,
        RemoteBegun::Run(claim) => panic!("{claim:?}"),
    }
}

#[tokio::test]
async fn a_claim_outlives_the_process_that_wrote_it_and_is_completed_by_its_token() {
    let directory = tempfile::tempdir().unwrap();
    let address = directory.path().join("ledger.db").display().to_string();
    let open = || async { Oncely::new(oncely_store::open(&address).await.unwrap()) };

    let first = open().await;
    let claim = run(&first, None).await;
    // Nobody else may run it, in this process or by this process.
    assert!(matches!(answered(&first).await, Answer::InProgress(_)));
    assert_eq!(first.open_effects(), 0, "it holds no place in this process");
    drop(first);

    let second = open().await;
    assert!(matches!(answered(&second).await, Answer::InProgress(_)));
    assert_eq!(
        second.renew(claim.info.intent(), claim.info.token()).await.unwrap(),
        oncely::core::machine::Decision::Renewed
    );
    let end = outcome::created(&"ch_1");
    let ended = second.complete_remote(claim.info.intent(), claim.info.token(), end.clone()).await.unwrap();
    assert!(
        matches!(ended, RemoteEnd::Recorded(stored) if stored.record.body.state.name() == StateName::Succeeded)
    );
    // The answer was lost: the same end again changes nothing.
    let again = second.complete_remote(claim.info.intent(), claim.info.token(), end).await.unwrap();
    assert!(matches!(again, RemoteEnd::Recorded(_)));
    assert!(
        matches!(answered(&second).await, Answer::Replayed(replay) if replay.result() == Some(b"\"ch_1\""))
    );
}

#[tokio::test]
async fn a_lost_answer_to_begin_is_asked_for_again_with_the_same_token() {
    let oncely = Oncely::new(oncely_store::open("memory:").await.unwrap());
    let token = AttemptToken([7; 16]);
    let first = run(&oncely, Some(token)).await;
    let second = run(&oncely, Some(token)).await;
    assert_eq!((first.info.number(), first.info.token()), (second.info.number(), second.info.token()));
    assert_eq!(first.info.downstream_key(), second.info.downstream_key());
    let counted = oncely.store().tallies().await.unwrap();
    let executions = counted.iter().find(|t| t.counter == oncely::core::Counter::Executions).unwrap();
    assert_eq!(executions.count, 1, "it began once");

    // After a rejection a new attempt needs a new token: an end that is reported twice must not be taken for it.
    let rejected = outcome::rejected("NO", "no");
    oncely.complete_remote(first.info.intent(), token, rejected).await.unwrap();
    let refused = oncely.begin_remote(call(&oncely, 1), "worker", Some(token)).await.unwrap_err();
    assert!(matches!(refused, Error::TokenUsed), "{refused}");
    let nobody =
        oncely.begin_remote(call(&oncely, 1), "worker", Some(AttemptToken([0; 16]))).await.unwrap_err();
    assert!(matches!(nobody, Error::TokenUsed), "{nobody}");
    let third = run(&oncely, Some(AttemptToken([8; 16]))).await;
    assert_eq!(third.info.number(), 2);
}

#[tokio::test]
async fn a_lapsed_lease_is_in_doubt_for_everybody_and_a_late_end_settles_it() {
    let now = Arc::new(AtomicU64::new(1_000));
    let clock = Arc::clone(&now);
    let store = MemoryStore::with_clock(move || Millis(clock.load(Ordering::SeqCst)));
    let oncely = Oncely::new(Arc::new(store));
    let claim = run(&oncely, None).await;
    now.fetch_add(claim.lease_ms - 1, Ordering::SeqCst);
    assert!(matches!(answered(&oncely).await, Answer::InProgress(_)));
    oncely.renew(claim.info.intent(), claim.info.token()).await.unwrap();
    now.fetch_add(claim.lease_ms - 1, Ordering::SeqCst);
    assert!(matches!(answered(&oncely).await, Answer::InProgress(_)), "a renewal prolongs the lease");
    now.fetch_add(1, Ordering::SeqCst);
    assert!(matches!(answered(&oncely).await, Answer::Unknown(_)));
    let ended = oncely
        .complete_remote(claim.info.intent(), claim.info.token(), outcome::created(&"late"))
        .await
        .unwrap();
    assert!(matches!(ended, RemoteEnd::Recorded(_)));
    assert!(matches!(answered(&oncely).await, Answer::Replayed(_)));
}

#[tokio::test]
async fn a_caller_that_gives_up_waiting_claims_nothing() {
    let oncely = Oncely::new(oncely_store::open("memory:").await.unwrap());
    let first = run(&oncely, None).await;
    let patient = Call { wait_for: Some(Duration::from_secs(600)), ..call(&oncely, 1) };
    let mut waiting = Box::pin(oncely.begin_remote(patient, "other", None));
    while oncely.waiting() == 0 {
        tokio::select! {
            biased;
            begun = &mut waiting => panic!("{begun:?}"),
            () = tokio::task::yield_now() => {}
        }
    }
    drop(waiting);
    assert_eq!(oncely.waiting(), 0, "somebody waits in its place");
    let (intent, token) = (first.info.intent(), first.info.token());
    oncely.complete_remote(intent, token, outcome::rejected("NO", "no")).await.unwrap();
    let record = oncely.store().load(intent).await.unwrap().unwrap().record;
    assert_eq!((record.body.state.name(), record.body.attempts), (StateName::Rejected, 1));
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_goes_away_while_it_claims_can_ask_again_and_nobody_else_acts() {
    // Gone at every moment that there is, from the first look to the answer.
    for moments in 1..30 {
        let world = World::new(7, Faults::none(), None);
        let (_, store) = world.start(1);
        let oncely = Oncely::new(Arc::new(store));
        let token = Some(AttemptToken([moments; 16]));
        let begin = |token| oncely.begin_remote(call(&oncely, 1), "worker", token);
        let mut leaving = Box::pin(begin(token));
        for _ in 0..moments {
            tokio::select! {
                biased;
                _ = &mut leaving => break,
                () = tokio::task::yield_now() => world.tick(),
            }
        }
        drop(leaving);
        let begun = driven(&world, begin(token)).await.unwrap();
        assert!(matches!(begun, RemoteBegun::Run(_)), "{moments}: {begun:?}");
        driven(&world, tokio::time::sleep(Duration::from_secs(6))).await;
        let others = driven(&world, begin(None)).await.unwrap();
        assert!(matches!(others, RemoteBegun::Answered(Answer::InProgress(_))), "{moments}: {others:?}");
    }
}

/// Goes on until the future is done, while the simulated ledger and time go on.
async fn driven<T>(world: &World, future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    loop {
        tokio::select! {
            biased;
            done = &mut future => return done,
            () = tokio::task::yield_now() => {
                world.tick();
                tokio::time::advance(Duration::from_millis(1)).await;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_may_have_been_written_is_not_taken_back_from_one_who_knows_its_token() {
    for faults in [
        Faults { lost_ack: 1_000, ..Faults::none() },
        Faults { late: 1_000, ..Faults::none() },
        Faults { never: 1_000, ..Faults::none() },
    ] {
        let world = World::new(7, faults, None);
        let (_, store) = world.start(1);
        let oncely = Oncely::new(Arc::new(store));
        let token = Some(AttemptToken([7; 16]));
        let begin = |token| oncely.begin_remote(call(&oncely, 1), "worker", token);
        let error = driven(&world, begin(token)).await.unwrap_err();
        assert!(matches!(error, Error::Store(_)), "{error}");
        world.set_faults(Faults::none());
        // The same request again, as it is meant: it is told to act.
        let RemoteBegun::Run(claim) = driven(&world, begin(token)).await.unwrap() else {
            panic!("{faults:?}")
        };
        // Whatever was left to do about the first is done by now; nobody else may act.
        driven(&world, tokio::time::sleep(Duration::from_secs(20))).await;
        let RemoteBegun::Answered(answer) = driven(&world, begin(None)).await.unwrap() else {
            panic!("{faults:?}: a second effect was started")
        };
        assert!(matches!(answer, Answer::InProgress(_)), "{answer:?}");
        let end = oncely.complete_remote(claim.info.intent(), claim.info.token(), outcome::created(&1));
        assert!(matches!(driven(&world, end).await.unwrap(), RemoteEnd::Recorded(_)));
    }
}

#[tokio::test(start_paused = true)]
async fn an_effect_goes_on_while_a_hanging_ledger_does_not_take_its_heartbeat() {
    let world = World::new(7, Faults::none(), None);
    let (_, store) = world.start(1);
    let oncely = Oncely::new(Arc::new(store));
    let (started, has_started) = tokio::sync::oneshot::channel();
    let (ended, mut has_ended) = tokio::sync::oneshot::channel();
    let running = oncely.clone();
    tokio::spawn(async move {
        let effect = |_| async move {
            started.send(()).unwrap();
            // Beyond the first heartbeat.
            tokio::time::sleep(Duration::from_secs(15)).await;
            ended.send(()).unwrap();
            outcome::created(&1)
        };
        running.tool("t").key("k").payload(&1).run(effect).await
    });
    driven(&world, has_started).await.unwrap();
    // From here on the ledger answers nothing: no moment passes in it.
    for _ in 0..200 {
        tokio::time::advance(Duration::from_millis(100)).await;
        tokio::task::yield_now().await;
    }
    assert!(has_ended.try_recv().is_ok(), "the effect waited for the ledger");
}

#[derive(Default)]
struct Heard {
    answers: Mutex<Vec<(String, AnswerKind)>>,
    stored: Mutex<Vec<StoreOp>>,
}

impl Observer for Heard {
    fn answered(&self, tool: &ToolName, kind: AnswerKind, _: Duration) {
        self.answers.lock().unwrap().push((tool.as_str().to_owned(), kind));
    }

    fn stored(&self, op: StoreOp, _: Duration, error: Option<StoreErrorKind>) {
        assert_eq!(error, None);
        self.stored.lock().unwrap().push(op);
    }
}

#[tokio::test]
async fn an_observer_hears_every_answer_and_what_the_store_was_asked() {
    let heard = Arc::new(Heard::default());
    let oncely = Oncely::observed(
        oncely_store::open("memory:").await.unwrap(),
        Arc::clone(&heard) as Arc<dyn Observer>,
    );
    for payload in [1, 1, 2] {
        let said = oncely.tool("t").key("k").payload(&payload);
        said.run(|_| async { outcome::created(&1) }).await.unwrap();
    }
    let kinds: Vec<AnswerKind> = heard.answers.lock().unwrap().iter().map(|(_, kind)| *kind).collect();
    assert_eq!(kinds, [AnswerKind::Began, AnswerKind::Replayed, AnswerKind::Conflict]);
    let stored = heard.stored.lock().unwrap();
    assert!(stored.contains(&StoreOp::Create) && stored.contains(&StoreOp::Replace));
}
