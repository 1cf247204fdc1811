//! The three outcomes, as a caller sees them.

use crate::room::{Room, Told};
use crate::shop::Cli;

fn buy(room: &Room, how: &str, more: &[&str]) -> Told {
    let book = room.book().display().to_string();
    room.run::<Cli>(&[&["my-shop", "buy", "--book", &book, "--how", how], more].concat())
}

#[test]
fn what_succeeded_is_replayed_without_running() {
    let room = Room::new();
    let first = buy(&room, "created", &["--idempotency-key", "k"]);
    assert_eq!((first.exit, first.effect()), (0, "created"), "{first:?}");
    assert_eq!(first.envelope["meta"]["tool"], "my-shop:buy");
    // What is declared to be of no meaning may differ.
    let again = buy(&room, "created", &["--idempotency-key", "k", "--note", "please"]);
    assert_eq!((again.exit, again.effect()), (0, "noop"));
    assert_eq!(again.envelope["data"], first.envelope["data"]);
    assert_eq!(again.envelope["meta"]["replayed"], true);
    assert_eq!(room.effects(), 1);
}

#[test]
fn what_was_rejected_may_run_again_within_its_budget() {
    let room = Room::new();
    for attempt in 1..=3 {
        let told = buy(&room, "rejected", &[]);
        assert_eq!((told.exit, told.effect(), told.code()), (4, "noop", "SOLD_OUT"), "{told:?}");
        assert_eq!(told.envelope["error"]["retryable"], true);
        assert_eq!(told.envelope["meta"]["attempt"], attempt);
    }
    let spent = buy(&room, "rejected", &[]);
    assert_eq!((spent.exit, spent.code()), (4, "SOLD_OUT"));
    assert_eq!(spent.envelope["error"]["retryable"], false);
    assert!(spent.envelope["error"]["message"].as_str().unwrap().contains("budget is spent"), "{spent:?}");
}

#[test]
fn what_is_unknown_never_runs_again_by_itself() {
    for how in ["unknown", "panic"] {
        let room = Room::new();
        let first = buy(&room, how, &["--idempotency-key", "k"]);
        assert_eq!((first.exit, first.effect(), first.code()), (16, "null", "OUTCOME_UNKNOWN"), "{first:?}");
        assert_eq!(first.envelope["error"]["retryable"], false);
        for _ in 0..2 {
            let again = buy(&room, how, &["--idempotency-key", "k"]);
            assert_eq!((again.exit, again.effect(), again.code()), (16, "null", "OUTCOME_UNKNOWN"));
            let fix = again.envelope["error"]["fix"].as_str().unwrap();
            assert!(fix.starts_with("oncely --store sqlite:/") && fix.contains(" show "), "{fix}");
        }
        assert_eq!(buy(&room, how, &["--idempotency-key", "k", "--dry-run"]).exit, 16);
        assert_eq!(room.effects(), 1, "{how}");
        // A person has looked.
        buy(&room, how, &["--idempotency-key", "k", "--retry-unknown"]);
        assert_eq!(room.effects(), 2, "{how}");
    }
}

#[test]
fn a_panic_of_an_asynchronous_handler_is_unknown_and_what_is_declared_idempotent_runs_again() {
    let room = Room::new();
    let book = room.book().display().to_string();
    let line = ["my-shop", "later", "--book", &book, "--idempotency-key", "k", "--how", "panic"];
    let first = room.run::<Cli>(&line);
    assert_eq!((first.exit, first.effect()), (16, "null"), "{first:?}");
    let again = room.run::<Cli>(&line);
    assert_eq!((again.exit, again.effect()), (0, "noop"), "the check sees what the first one did: {again:?}");
    assert_eq!(again.envelope["data"], "there");
    assert_eq!(room.effects(), 1);
}

#[test]
fn an_unknown_outcome_is_settled_by_the_check() {
    let room = Room::new();
    let book = room.book().display().to_string();
    let line =
        |found| ["my-shop", "checked", "--book", &book, "--idempotency-key", "k", "--found", found].to_vec();
    assert_eq!(room.run::<Cli>(&line("out")).exit, 16);
    let again = room.run::<Cli>(&line("out"));
    assert_eq!(
        (again.exit, again.effect(), &again.envelope["data"]),
        (0, "noop", &"found".into()),
        "{again:?}"
    );
    assert_eq!(room.effects(), 1);
}

#[test]
fn a_check_before_acting_finds_what_is_there_and_stops_where_it_cannot_tell() {
    for (found, exit, code) in [("there", 0, "none"), ("unsure", 4, "CHECK_UNSURE")] {
        let room = Room::new();
        let book = room.book().display().to_string();
        let told = room.run::<Cli>(&["my-shop", "checked", "--book", &book, "--found", found]);
        assert_eq!((told.exit, told.effect(), told.code()), (exit, "noop", code), "{told:?}");
        assert_eq!(room.effects(), 0);
    }
}

#[test]
fn an_attempt_that_is_under_way_is_said_to_be() {
    let room = Room::new();
    let (started, until) = (room.directory.path().join("started"), room.directory.path().join("until"));
    let (started_text, until_text) = (started.display().to_string(), until.display().to_string());
    let book = room.book().display().to_string();
    let line = ["my-shop", "hurry", "--book", &book, "--started", &started_text, "--until", &until_text]
        .map(str::to_owned);
    let variables = room.variables.clone();
    let first = std::thread::spawn({
        let line = line.clone();
        move || {
            let mut other = Room::new();
            other.variables = variables;
            other.run::<Cli>(&line.each_ref().map(String::as_str)).effect().to_owned()
        }
    });
    while !started.exists() {
        std::thread::yield_now();
    }
    let second = room.run::<Cli>(&line.each_ref().map(String::as_str));
    assert_eq!((second.exit, second.effect(), second.code()), (15, "noop", "IN_PROGRESS"), "{second:?}");
    assert!(second.envelope["error"]["retry_after_ms"].is_u64());
    std::fs::write(&until, "").unwrap();
    assert_eq!(first.join().unwrap(), "executed");
    assert_eq!(room.run::<Cli>(&line.each_ref().map(String::as_str)).effect(), "noop");
    assert_eq!(room.effects(), 1);
}

#[test]
fn an_answer_that_is_too_large_to_keep_is_done_all_the_same() {
    let room = Room::new();
    let first = buy(&room, "large", &[]);
    assert_eq!((first.exit, first.effect()), (0, "created"));
    assert!(first.envelope["warnings"][0].as_str().unwrap().contains("larger than what is kept"));
    let again = buy(&room, "large", &[]);
    assert_eq!((again.exit, again.effect(), &again.envelope["data"]), (0, "noop", &serde_json::Value::Null));
    assert_eq!(room.effects(), 1);
}

#[test]
fn what_a_person_settles_is_replayed() {
    let room = Room::new();
    let told = buy(&room, "unknown", &["--idempotency-key", "k"]);
    let intent = oncely::IntentId::parse(told.envelope["meta"]["id"].as_str().unwrap()).unwrap();
    let ledger = room.directory.path().join("state/oncely/my-shop.db").display().to_string();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let oncely = oncely::Oncely::new(oncely_store::open(&ledger).await.unwrap());
        let seen = oncely.store().load(intent).await.unwrap().unwrap();
        let result = Some(br#"{"found":"in the cellar"}"#[..].into());
        let verdict = oncely_core::machine::Verdict::Succeeded { effect: oncely::Effect::Created, result };
        oncely.resolve(&seen.record, "somebody", verdict).await.unwrap();
    });
    let again = buy(&room, "unknown", &["--idempotency-key", "k"]);
    assert_eq!((again.exit, again.effect()), (0, "noop"), "{again:?}");
    assert_eq!(again.envelope["data"]["found"], "in the cellar");
    assert_eq!(room.effects(), 1);
}

#[test]
fn a_noop_says_why() {
    let room = Room::new();
    let told = buy(&room, "noop", &[]);
    assert_eq!((told.exit, told.effect(), &told.envelope["reason"]), (0, "noop", &"there is enough".into()));
}
