//! Shops that were made to earn 0, 1, 2 and 3. Each expected score is argued by the rows that it rests on.

use crate::place::{Place, Report, shop};

#[test]
fn a_shop_without_any_protection_earns_0() {
    // No flag is named, and the same call again is a second order: neither way to a 1 is open.
    let report = Place::new().shop("zero.sh", &[]);
    report.expect(
        0,
        &[
            ("dry_run", "fails"),
            ("repeat", "fails"),
            ("effect", "fails"),
            ("key", "fails"),
            ("killed", "fails"),
        ],
    );
    assert_eq!(report.at_most(), 0, "nothing that was left out could raise it");
}

#[test]
fn a_shop_that_only_says_the_right_words_earns_0() {
    // Its help names both flags and its answers say `would_create` and `noop`, but orders were counted every
    // time, so that what it says is untrue as well.
    let place = Place::new();
    let report = place.shop("liar.sh", &[]);
    report.expect(
        0,
        &[("dry_run", "fails"), ("repeat", "fails"), ("effect", "fails"), ("replay_told", "holds")],
    );
    assert!(
        report.evidence("repeat").contains("effect `noop`, count 2 -> 3"),
        "{}",
        report.evidence("repeat")
    );
}

#[test]
fn a_shop_with_an_honest_dry_run_earns_1() {
    // The dry run left the count alone, which is one of the two ways to a 1; the repeat, which a 2 needs, did not.
    Place::new()
        .shop("preview.sh", &[])
        .expect(1, &[("dry_run", "holds"), ("repeat", "fails"), ("key", "fails")]);
}

#[test]
fn a_shop_that_remembers_keys_earns_1_without_a_dry_run() {
    // The repeat with the key had no second effect: the other way to a 1. A 2 needs a dry run as well.
    Place::new()
        .shop("keyed.sh", &[])
        .expect(1, &[("dry_run", "fails"), ("repeat", "holds"), ("key", "holds")]);
}

#[test]
fn a_shop_that_answers_a_repeat_with_an_error_earns_1() {
    // No second effect, but the caller cannot tell a repeat from a failure: `partly`, which is enough for 1 only.
    let report = Place::new().shop("unique.sh", &[]);
    report.expect(1, &[("repeat", "partly"), ("replay_told", "fails"), ("at_once", "not_measured")]);
    assert!(report.evidence("at_once").contains("{n}"), "it says how it could be measured");
}

#[test]
fn a_shop_that_is_right_for_careful_callers_earns_2() {
    // Dry run, repeat and some effects hold, as a 2 needs. In a race it orders twice, after a kill between effect and key
    // it orders twice, and it takes the key for another payload: each of them alone keeps it from a 3.
    Place::new().shop("fragile.sh", &[]).expect(
        2,
        &[
            ("dry_run", "holds"),
            ("repeat", "holds"),
            ("effect", "partly"),
            ("replay_told", "holds"),
            ("mismatch", "fails"),
            ("at_once", "fails"),
            ("killed", "fails"),
        ],
    );
}

#[test]
fn a_shop_that_does_all_right_earns_3() {
    let place = Place::new();
    let report = place.shop("careful.sh", &[]);
    let rows: Vec<(&str, &str)> = [
        "dry_run",
        "repeat",
        "effect",
        "replay_told",
        "key",
        "mismatch",
        "at_once",
        "killed",
        "every_command",
    ]
    .map(|row| (row, "holds"))
    .to_vec();
    report.expect(3, &rows);
    assert_eq!(report.0["raise"].as_array().unwrap().len(), 0);
    // One order for the first call, one per race, one per kill that came late or was retried: never more than that.
    assert!(place.orders() <= 1 + 3 + 6, "{} orders", place.orders());
    assert!(report.evidence("killed").contains("as soon as its effect was seen: count"));
}

/// The report on a shop with one thing wrong.
fn almost(place: &Place, fault: &str, options: &[&str]) -> Report {
    let (fault, shop) = (format!("FAULT={fault}"), shop("almost.sh"));
    let fixed = [
        "cli",
        "--allow-effects",
        "--count",
        "wc -l < orders",
        "--tool-words",
        "3",
        "--races",
        "1",
        "--kills",
        "2",
    ];
    let command = ["--", "env", &fault, &shop, "create-order", "--amount", "100"];
    place.report(&[&fixed[..], options, &command[..]].concat())
}

#[test]
fn what_only_looks_like_a_3_does_not_get_one() {
    almost(&Place::new(), "none", &[]).expect(3, &[("killed", "holds")]);
    for (fault, score, row, status) in [
        // It says `noop` to the call that created, too: what is said to every call is not said of any, and is untrue. A 2
        // needs some true effects.
        ("noop", 1, "effect", "fails"),
        ("noop", 1, "replay_told", "fails"),
        // To hang or to crash is not to refuse.
        ("hang", 2, "mismatch", "fails"),
        ("crash", 2, "mismatch", "fails"),
        // It refuses the other amount for its own reasons, and the key for none.
        ("picky", 2, "mismatch", "not_measured"),
        // Commands that could not be asked, are spelled otherwise, or hide below one that sounds like reading.
        ("nohelp", 2, "every_command", "not_measured"),
        ("camel", 2, "every_command", "fails"),
        ("group", 2, "every_command", "fails"),
    ] {
        almost(&Place::new(), fault, &["--timeout", "5s"]).expect(score, &[(row, status)]);
    }
}

#[test]
fn a_dry_run_that_uses_up_the_key_is_found_out() {
    // The count stayed under the dry run, but the call that was meant to follow it did nothing. That leaves the repeat, and
    // with it a 1.
    let report = Place::new().shop("spent.sh", &["--races", "1", "--kills", "0"]);
    report.expect(1, &[("dry_run", "fails"), ("repeat", "holds")]);
    assert!(report.evidence("dry_run").contains("did nothing"), "{}", report.evidence("dry_run"));
}

#[test]
fn effects_that_come_later_are_waited_for() {
    // It answers before it acts. A count that comes too early would see nothing; a second later it sees both orders.
    let report = Place::new().shop("later.sh", &["--settle", "1s"]);
    report.expect(0, &[("repeat", "fails")]);
}

#[test]
fn a_shop_with_one_bare_command_stays_below_3() {
    // All that was run is right, but `cancel-order` names neither flag: not enforced for every mutating command.
    let report = Place::new().shop("silent.sh", &["--races", "1", "--kills", "2"]);
    report.expect(2, &[("killed", "holds"), ("every_command", "fails")]);
    assert!(report.evidence("every_command").contains("cancel-order"));
}

#[test]
fn flags_and_payloads_can_be_named_where_they_cannot_be_found() {
    let place = Place::new();
    let careful = shop("careful.sh");
    let other = format!("{careful} create-order --amount 7");
    let options = ["cli", "--allow-effects", "--count", "wc -l < orders", "--races", "1", "--kills", "0"];
    let named = ["--key-flag", "--idempotency-key", "--dry-run-flag", "--dry-run", "--other", &other];
    let command = ["--", &careful, "create-order", "--amount", "5"];
    let report = place.report(&[&options[..], &named[..], &command[..]].concat());
    report.expect(2, &[("mismatch", "holds"), ("killed", "not_measured")]);
    assert!(report.evidence("mismatch").contains("--amount 7"));
    assert_eq!(report.at_most(), 3, "only the kills were left out");
    // A key that has its place in the command needs no flag.
    let place = Place::new();
    let in_place = ["--", &careful, "create-order", "--amount", "5", "--idempotency-key", "{key}"];
    let report = place.report(&[&options[..], &in_place[..]].concat());
    report.expect(2, &[("key", "holds"), ("repeat", "holds"), ("mismatch", "holds")]);
}
