//! The guide's own check: the same command twice with one key happens once, and says so.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{Home, MUTATING, told};

#[test]
fn a_second_call_with_the_same_key_is_a_noop_and_exits_with_0() {
    let home = Home::new();
    for (words, count) in MUTATING {
        let first = home.keyed(words, "k-1");
        assert_eq!(first.exit, 0, "{first:?}");
        assert!(["created", "sent", "updated"].contains(&first.effect()), "{first:?}");
        for _ in 0..3 {
            let again = home.keyed(words, "k-1");
            assert_eq!((again.exit, again.effect()), (0, "noop"), "{again:?}");
            assert_eq!(again.envelope["data"], first.envelope["data"], "the first answer is replayed");
            assert_eq!(again.envelope["meta"]["first_effect"], first.envelope["effect"]);
        }
        assert_eq!(home.count(count), 1, "{words:?}");
    }
}

#[test]
fn without_a_key_an_equal_call_is_a_retry_and_a_new_key_is_a_new_intent() {
    let home = Home::new();
    let order = MUTATING[0].0;
    assert_eq!(home.run(order).effect(), "created");
    assert_eq!(home.run(order).effect(), "noop");
    assert_eq!(home.count(MUTATING[0].1), 1);
    assert_eq!(home.keyed(order, "another").effect(), "created");
    let other = ["create-order", "--customer", "cust_2", "--amount", "9999"];
    assert_eq!(home.run(&other).effect(), "created");
    assert_eq!(home.count(MUTATING[0].1), 3);
}

#[test]
fn how_a_number_is_spelt_does_not_make_another_intent() {
    let home = Home::new();
    let order = |amount: &str| home.run(&["create-order", "--customer", "c", "--amount", amount]);
    assert_eq!(order("100").effect(), "created");
    for amount in ["0100", "+100", "00100"] {
        assert_eq!(order(amount).effect(), "noop", "{amount}");
    }
    let keyed = |amount| home.keyed(&["create-order", "--customer", "c", "--amount", amount], "k").exit;
    assert_eq!((keyed("7"), keyed("07"), keyed("8")), (0, 0, 6));
    assert_eq!(home.count(MUTATING[0].1), 2);
}

#[test]
fn an_answer_that_cannot_be_written_is_said_to_be() {
    let home = Home::new();
    let full = || std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let order = home.command(MUTATING[0].0).stdout(full()).output().unwrap();
    let said = String::from_utf8(order.stderr).unwrap();
    assert!(
        order.status.success() && said.contains("could not be written") && said.contains("created"),
        "{said}"
    );
    assert_eq!(home.run(MUTATING[0].0).effect(), "noop", "it is replayed to whoever asks again");
    let list = home.command(&["list-orders"]).stdout(full()).output().unwrap();
    assert_eq!(list.status.code(), Some(70));
}

#[test]
fn a_session_separates_what_is_otherwise_equal() {
    let home = Home::new();
    for (session, effect) in [("a", "created"), ("b", "created"), ("a", "noop"), ("b", "noop")] {
        let output = home.command(MUTATING[0].0).env("ORDERS_SESSION", session).output().unwrap();
        assert_eq!(told(output).effect(), effect, "{session}");
        // A key is unique within its session, too.
        let keyed = [MUTATING[0].0, &["--idempotency-key", "k"]].concat();
        let output = home.command(&keyed).env("ORDERS_SESSION", session).output().unwrap();
        assert_eq!(told(output).effect(), effect, "{session}");
    }
    assert_eq!(home.count(MUTATING[0].1), 4);
}

#[test]
fn a_reworded_email_to_the_same_recipient_about_the_same_is_the_same_email() {
    let home = Home::new();
    let email = ["send-email", "--to", "a@example.com", "--subject", "Hello", "--body"];
    assert_eq!(home.run(&[&email[..], &["Dear A"]].concat()).effect(), "sent");
    assert_eq!(home.run(&[&email[..], &["Hi A"]].concat()).effect(), "noop");
    assert_eq!(home.count(MUTATING[1].1), 1);
}

#[test]
fn a_key_that_is_reused_for_something_else_is_refused() {
    let home = Home::new();
    assert_eq!(home.keyed(&["create-order", "--customer", "a", "--amount", "1"], "k").exit, 0);
    let other = home.keyed(&["create-order", "--customer", "a", "--amount", "2"], "k");
    assert_eq!((other.exit, &other.envelope["error"]["code"]), (6, &"KEY_REUSED".into()));
    assert_eq!(home.count("SELECT sum(amount) FROM orders"), 1);
}

#[test]
fn a_dry_run_says_what_would_change_and_changes_nothing_at_all() {
    let home = Home::new();
    for (words, _) in MUTATING {
        let plan = home.run(&[words, &["--dry-run", "--idempotency-key", "k-1"]].concat());
        assert_eq!(plan.exit, 0, "{plan:?}");
        assert!(plan.effect().starts_with("would_"), "{plan:?}");
        let planned = words[0] != "increment-counter";
        assert_eq!(plan.envelope["changes"].is_array(), planned, "{plan:?}");
        let by = if planned { "command" } else { "framework" };
        assert_eq!(plan.envelope["meta"]["planned_by"], by);
    }
    assert_eq!(home.directory.path().read_dir().unwrap().count(), 0, "not even a file was made");
    for (words, count) in MUTATING {
        home.keyed(words, "k-1");
        let replay = home.run(&[words, &["--dry-run", "--idempotency-key", "k-1"]].concat());
        assert_eq!((replay.exit, replay.effect()), (0, "noop"), "{replay:?}");
        assert_eq!(home.count(count), 1);
    }
}

#[test]
fn sixteen_at_once_with_one_key_are_one() {
    let home = Home::new();
    for (words, count) in MUTATING {
        let all: Vec<_> = (0..16).map(|_| home.start(words, "all-at-once")).collect();
        let told: Vec<_> = all.into_iter().map(|child| told(child.wait_with_output().unwrap())).collect();
        assert!(told.iter().all(|t| t.exit == 0), "{told:?}");
        assert_eq!(told.iter().filter(|t| t.effect() != "noop").count(), 1, "{told:?}");
        assert_eq!(home.count(count), 1, "{words:?}");
    }
}

#[test]
fn a_deployment_that_is_there_is_a_noop_whatever_the_key() {
    let home = Home::new();
    let (deploy, count) = MUTATING[3];
    assert_eq!(home.keyed(deploy, "monday").effect(), "updated");
    let tuesday = home.keyed(deploy, "tuesday");
    assert_eq!((tuesday.exit, tuesday.effect()), (0, "noop"));
    assert_eq!(tuesday.envelope["reason"], "it is so already");
    assert_eq!(home.count(count), 1);
}

#[test]
fn what_destroys_something_wants_a_confirmation_where_nobody_can_be_asked() {
    let home = Home::new();
    home.run(MUTATING[0].0);
    let refused = home.run(&["cancel-order", "--id", "1"]);
    assert_eq!((refused.exit, refused.effect()), (4, "noop"));
    assert_eq!(refused.envelope["error"]["code"], "CONFIRMATION_REQUIRED");
    assert!(refused.envelope["error"]["fix"].as_str().unwrap().ends_with("cancel-order --id 1 --confirm"));
    let refused = home.run(&["cancel-order", "--id=1", "--"]);
    assert!(
        refused.envelope["error"]["fix"].as_str().unwrap().ends_with("--id=1 --confirm --"),
        "{refused:?}"
    );
    assert_eq!(home.count(MUTATING[0].1), 1);
    assert_eq!(home.run(&["cancel-order", "--id", "1", "--dry-run"]).effect(), "would_delete");
    assert_eq!(home.count(MUTATING[0].1), 1);
    for effect in ["deleted", "noop"] {
        assert_eq!(home.run(&["cancel-order", "--id", "1", "--confirm"]).effect(), effect);
    }
    assert_eq!(home.count(MUTATING[0].1), 0);
}

#[test]
fn everything_that_is_wrong_is_said_at_once_and_nothing_runs() {
    let home = Home::new();
    let wrong = home.run(&["create-order", "--amount", "much", "--colour", "red", "--idempotency-key", ""]);
    assert_eq!((wrong.exit, &wrong.envelope["error"]["code"]), (2, &"BAD_ARGUMENTS".into()));
    let problems = wrong.envelope["meta"]["problems"].as_array().unwrap();
    assert_eq!(problems.len(), 4, "{problems:?}");
    let wrong = home.run(&["create-order", "--amount", "0", "--customer", " "]);
    assert_eq!(wrong.exit, 2);
    assert_eq!(wrong.envelope["meta"]["problems"].as_array().unwrap().len(), 2);
    assert_eq!(home.directory.path().read_dir().unwrap().count(), 0, "no ledger, no database");
}

#[test]
fn safe_commands_open_no_ledger() {
    let home = Home::new();
    for safe in ["list-orders", "list-emails", "counters", "status"] {
        let told = home.run(&[safe]);
        assert_eq!((told.exit, told.effect()), (0, "noop"), "{told:?}");
    }
    assert_eq!(home.directory.path().read_dir().unwrap().count(), 0);
}

#[test]
fn without_a_ledger_nothing_runs() {
    let home = Home::new();
    home.warm_up();
    let store = home.directory.path().join("orders.db/not-a-directory/ledger.db");
    let output = home.command(MUTATING[0].0).env("ORDERS_STORE", store).output().unwrap();
    let told = told(output);
    assert_eq!((told.exit, &told.envelope["error"]["retryable"]), (12, &true.into()), "{told:?}");
    assert_eq!(home.count(MUTATING[0].1), 0);
}
