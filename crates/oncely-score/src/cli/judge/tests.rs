//! The judgement of each criterion, row by row, on made-up sightings.

use super::super::discover::Known;
use super::super::seen::{Answer, Killed, Race, Says, Seen, Step};
use super::judge;
use crate::exec::Exit;
use crate::report::Status;
use crate::rubric::CLI;

fn answer(code: i32, effect: &str) -> Answer {
    let says = if effect.is_empty() { Says::Nothing } else { Says::Effect(effect.into()) };
    Answer { exit: Exit::Code(code), says, complaint: String::new() }
}

fn step(code: i32, effect: &str, before: i64, after: i64) -> Option<Step> {
    Some(Step { line: "tool".into(), answer: answer(code, effect), before, after })
}

fn kill(before: i64, between: i64, retry: Answer, after: i64) -> Killed {
    Killed { moment: "now".into(), landed: true, before, between, retry, after }
}

fn known() -> Known {
    Known {
        key_flag: Some("--idempotency-key".into()),
        dry_run_flag: Some("--dry-run".into()),
        equipped: vec!["create".into()],
        ..Known::default()
    }
}

fn good() -> Seen {
    Seen {
        help: (0, 0),
        dry_run: step(0, "would_create", 0, 0),
        spent: None,
        key_refused: None,
        first: step(0, "created", 0, 1),
        keyed: true,
        repeat: step(0, "noop", 1, 1),
        other: step(6, "", 1, 1),
        control: step(0, "created", 1, 2),
        races: vec![Race { answers: [answer(0, "created"), answer(15, "")], before: 1, after: 2 }],
        kills: vec![kill(2, 3, answer(16, ""), 3)],
        can_be_fresh: true,
    }
}

fn status(seen: &Seen, id: &str) -> Status {
    judge(&known(), Some(seen)).into_iter().find(|finding| finding.id == id).unwrap().status
}

#[test]
fn a_good_tool_has_all_rows_and_three() {
    let report = CLI.report("tool".into(), judge(&known(), Some(&good())));
    assert_eq!(report.score, 3, "{:?}", report.rows);
    assert!(report.raise.is_empty());
}

#[test]
fn each_fault_is_found_in_its_own_row() {
    type Fault = (&'static str, Status, fn(&mut Seen));
    let faults: [Fault; 21] = [
        ("effect", Status::Fails, |s| s.first = step(0, "noop", 0, 1)),
        ("effect", Status::Fails, |s| s.dry_run = step(0, "created", 0, 0)),
        ("replay_told", Status::Fails, |s| s.first = step(0, "noop", 0, 1)),
        ("mismatch", Status::NotMeasured, |s| s.control = step(2, "", 1, 1)),
        ("mismatch", Status::Fails, |s| s.other.as_mut().unwrap().answer.exit = Exit::TimedOut),
        ("at_once", Status::Fails, |s| s.races[0].answers[1].exit = Exit::Signal(6)),
        ("killed", Status::Partly, |s| s.kills[0] = kill(2, 2, answer(0, "created"), 3)),
        ("dry_run", Status::Fails, |s| s.spent = step(0, "noop", 0, 0)),
        ("dry_run", Status::Fails, |s| s.dry_run = step(0, "would_create", 0, 1)),
        ("dry_run", Status::Fails, |s| s.dry_run = step(2, "", 0, 0)),
        ("repeat", Status::Fails, |s| s.repeat = step(0, "noop", 1, 2)),
        ("repeat", Status::Partly, |s| s.repeat = step(1, "", 1, 1)),
        ("replay_told", Status::Fails, |s| s.repeat = step(0, "created", 1, 1)),
        ("effect", Status::Partly, |s| s.dry_run = step(0, "", 0, 0)),
        ("key", Status::Fails, |s| s.key_refused = step(2, "", 0, 0)),
        ("mismatch", Status::Fails, |s| s.other = step(0, "noop", 1, 1)),
        ("mismatch", Status::Fails, |s| s.other = step(1, "", 1, 2)),
        ("mismatch", Status::NotMeasured, |s| s.other = None),
        ("at_once", Status::Fails, |s| s.races[0].after = 3),
        ("killed", Status::Fails, |s| s.kills[0].after = 4),
        ("killed", Status::Fails, |s| s.kills[0] = kill(2, 2, answer(0, "noop"), 2)),
    ];
    for (id, expected, break_it) in faults {
        let mut seen = good();
        break_it(&mut seen);
        assert_eq!(status(&seen, id), expected, "{id}");
        assert!(CLI.report("tool".into(), judge(&known(), Some(&seen))).score < 3, "{id}");
    }
}

#[test]
fn a_count_that_does_not_see_the_effect_proves_nothing() {
    let mut seen = Seen { help: (0, 0), dry_run: step(0, "would_create", 0, 0), ..Seen::default() };
    seen.first = step(0, "created", 0, 0);
    for row in ["dry_run", "repeat", "at_once", "killed", "mismatch"] {
        assert_eq!(status(&seen, row), Status::NotMeasured, "{row}");
    }
    assert_eq!(CLI.report("tool".into(), judge(&known(), Some(&seen))).score, 0);
}

#[test]
fn a_tool_that_acts_on_a_request_for_help_gets_nothing() {
    let seen = Seen { help: (0, 1), ..Seen::default() };
    let report = CLI.report("tool".into(), judge(&known(), Some(&seen)));
    assert_eq!(report.score, 0);
    assert!(super::notes(&known(), Some(&seen))[1].contains("asking for help changed something"));
}

#[test]
fn kills_that_never_met_the_command_alive_prove_nothing() {
    let mut seen = good();
    seen.kills[0].landed = false;
    assert_eq!(status(&seen, "killed"), Status::NotMeasured);
}

#[test]
fn without_effects_only_what_is_absent_is_judged() {
    let report = CLI.report("tool".into(), judge(&known(), None));
    assert_eq!((report.score, report.at_most), (0, 3));
    let bare = Known { lacking: vec!["create".into()], ..Known::default() };
    let report = CLI.report("tool".into(), judge(&bare, None));
    assert_eq!((report.score, report.at_most), (0, 1), "only a harmless repeat could still be there");
}
