//! resolve, forget and purge.

use std::io::Write;
use std::process::Stdio;
use std::time::Duration;

use oncely::{Answer, Oncely, Outcome, outcome};
use oncely_core::{Body, Change, Draft, IntentId, Replaced, Retention, Stamp};
use serde_json::json;

use crate::ledger::{Ledger, begin, call, fill};

#[tokio::test]
async fn resolving_without_a_person_needs_yes_and_says_the_exact_command() {
    let ledger = Ledger::new();
    let oncely = ledger.open().await;
    let [_, _, doubted] = fill(&oncely).await;
    let refused = ledger.error(&["resolve", &doubted[..8], "--rejected", "--reason", "it's not there"], 2);
    assert_eq!(refused["error"]["code"], "CONFIRMATION_NEEDED");
    let fix = refused["error"]["fix"].as_str().unwrap();
    let expected =
        format!("oncely resolve {} --rejected --reason 'it'\\''s not there' --yes --store ", &doubted[..8]);
    assert!(fix.starts_with(&expected), "{fix}");
    assert_eq!(ledger.json(&["show", &doubted])["state"], "in_doubt");
}

#[tokio::test]
async fn a_doubt_that_is_resolved_as_succeeded_is_replayed_and_audited() {
    let ledger = Ledger::new();
    let oncely = ledger.open().await;
    let [paid, _, doubted] = fill(&oncely).await;
    std::fs::write(ledger.path("result.json"), r#"{"charge":"ch_9"}"#).unwrap();
    let args =
        ["resolve", &doubted, "--succeeded", "--result", "result.json", "--effect", "created", "--yes"];
    let settled = ledger.json(&args);
    assert_eq!((&settled["state"], &settled["effect"]), (&json!("succeeded"), &json!("created")));

    let again = oncely.tool("pay").scope("task-7").key("k3").payload(&json!({ "key": "k3" }));
    match again.run(|_| async { panic!("it must not run again") }).await.unwrap() {
        Answer::Replayed(replay) => assert_eq!(replay.result(), Some(&br#"{"charge":"ch_9"}"#[..])),
        other => panic!("{other:?}"),
    }
    let events = ledger.lines(&["log", "--id", &doubted]);
    let last = events.last().unwrap();
    assert_eq!(last["event"], "resolved_succeeded");
    assert!(last["actor"].as_str().unwrap().contains('@'), "{last}");
    assert_eq!(settled["settled_by"], last["actor"]);

    assert_eq!(ledger.error(&["resolve", &paid, "--rejected", "--yes"], 4)["error"]["code"], "NOT_IN_DOUBT");
    assert_eq!(ledger.error(&args, 4)["error"]["code"], "NOT_IN_DOUBT");
}

#[tokio::test]
async fn a_resolved_command_replays_the_given_standard_output() {
    let ledger = Ledger::new();
    let line = ["run", "--key", "k", "--", "sh", "-c", "exit 9"];
    assert_eq!(ledger.run(&line).code, 9);
    assert_eq!(ledger.run(&line).code, 16);
    let id = ledger.json(&["show", "--key", "k"])["id"].as_str().unwrap().to_owned();
    let mut child = ledger
        .command(&["resolve", &id, "--succeeded", "--result", "-", "--yes"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"charged\n").unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let replayed = ledger.run(&line);
    assert_eq!((replayed.code, replayed.stdout.as_str()), (0, "charged\n"));
}

#[tokio::test]
async fn results_that_cannot_be_kept_or_read_change_nothing() {
    let ledger = Ledger::new();
    let oncely = ledger.open().await;
    let [_, _, doubted] = fill(&oncely).await;
    std::fs::write(ledger.path("large"), vec![b'x'; oncely_core::limits::RESULT_BYTES_MAX + 1]).unwrap();
    for (file, expected) in [("large", "larger than"), ("missing", "cannot be read"), ("-", "--yes")] {
        let yes = if file == "-" { "--json" } else { "--yes" };
        let answered = ledger.run(&["resolve", &doubted, "--succeeded", "--result", file, yes]);
        assert_eq!(answered.code, 2, "{file}");
        assert!((answered.stdout + &answered.stderr).contains(expected), "{file}");
    }
    for wrong in [&["resolve", &doubted][..], &["resolve", &doubted, "--succeeded", "--rejected"]] {
        assert_eq!(ledger.run(wrong).code, 2);
    }
    assert_eq!(ledger.json(&["show", &doubted])["state"], "in_doubt");
}

#[tokio::test]
async fn a_running_attempt_can_neither_be_settled_nor_forgotten() {
    let ledger = Ledger::new();
    let oncely = ledger.open().await;
    let attempt = begin(&oncely, "slow", "k").await;
    let id = attempt.info().intent().to_string();
    assert_eq!(ledger.error(&["resolve", &id, "--succeeded", "--yes"], 4)["error"]["code"], "RUNNING");
    assert_eq!(ledger.error(&["forget", &id, "--yes"], 4)["error"]["code"], "RUNNING");
    attempt.complete(outcome::created(&1)).await;
    assert_eq!(ledger.json(&["forget", &id, "--yes"])["forgotten"], true);
}

#[tokio::test]
async fn forgetting_needs_yes_and_every_id_to_be_right() {
    let ledger = Ledger::new();
    let oncely = ledger.open().await;
    let [paid, refused, doubted] = fill(&oncely).await;
    let asked = ledger.error(&["forget", &paid], 2);
    assert!(asked["error"]["fix"].as_str().unwrap().starts_with(&format!("oncely forget {paid} --yes")));
    for missing in
        [&["forget", &paid, "abcdef", "--yes"][..], &["show", "abcdef"], &["resolve", "abcdef", "--rejected"]]
    {
        let error = ledger.error(missing, 4)["error"].clone();
        assert_eq!(error["code"], "NO_RECORD");
        let expected = format!("there is no record abcdef in the ledger {};", ledger.url());
        assert!(error["message"].as_str().unwrap().starts_with(&expected), "{error}");
    }
    assert_eq!(ledger.lines(&["ls"]).len(), 3);

    assert_eq!(ledger.lines(&["forget", &paid, &refused[..10], &paid, "--yes"]).len(), 2);
    let left = ledger.lines(&["ls"]);
    assert_eq!((left.len(), &left[0]["id"]), (1, &json!(doubted)));
    let last = ledger.lines(&["log", "--id", &paid]).pop().unwrap();
    assert_eq!((&last["event"], &last["tool"]), (&json!("forgotten"), &json!(null)));
    // This process sees it too: the key is new.
    let again = call(&oncely, "pay", "k1", Outcome::rejected("SEEN", "it ran again")).await;
    assert_eq!(ledger.json(&["show", &again])["error"]["code"], "SEEN");
}

#[tokio::test]
async fn purging_drops_what_is_due_and_a_dry_run_only_counts_it() {
    let ledger = Ledger::new();
    let oncely = ledger.open().await;
    let result = call(&oncely, "pay", "result", outcome::created(&1)).await;
    let record = call(&oncely, "pay", "record", outcome::created(&1)).await;
    let doubted = call(&oncely, "pay", "doubt", Outcome::unknown("?")).await;
    // Some attempts tidy up after themselves, so nothing may be due before the last of them is done.
    assert_eq!(oncely.drain(Duration::from_secs(180)).await, 0);
    make_due(&oncely, &result, Retention { replay_for_ms: 0, remember_for_ms: u64::MAX }).await;
    make_due(&oncely, &record, Retention { replay_for_ms: 0, remember_for_ms: 0 }).await;

    let counted = ledger.json(&["purge", "--dry-run"]);
    let due = |v: &serde_json::Value| (v["results_dropped"].clone(), v["records_removed"].clone());
    assert_eq!(due(&counted), (json!(1), json!(1)));
    assert_eq!(ledger.lines(&["ls"]).len(), 3);
    assert_eq!(due(&ledger.json(&["purge"])), (json!(1), json!(1)));
    assert_eq!(due(&ledger.json(&["purge"])), (json!(0), json!(0)));
    let purged = ledger.lines(&["log"]).into_iter().filter(|event| event["event"] == "purged");
    assert!(purged.map(|event| event["actor"].is_string()).eq([true, true]), "who asked is audited");
    let left = ledger.lines(&["ls"]);
    assert_eq!(left.len(), 2);
    assert_eq!(left[0]["result_bytes"], json!(null));
    assert_eq!(left[1]["id"], json!(doubted));
}

/// Writes a record again with another retention, past the engine.
async fn make_due(oncely: &Oncely, id: &str, retention: Retention) {
    let intent = IntentId::parse(id).unwrap();
    let record = oncely.store().load(intent).await.unwrap().unwrap().record;
    let draft = Draft {
        created: Stamp::Kept(record.created_at),
        sent: Stamp::Kept(record.sent_at),
        changed: Stamp::Kept(record.changed_at),
        body: Body { retention, ..record.body.clone() },
    };
    let replaced =
        oncely.store().replace(intent, record.version, Change::Put(Box::new(draft)), Vec::new()).await;
    assert!(matches!(replaced.unwrap(), Replaced::Done(Some(_))));
}
