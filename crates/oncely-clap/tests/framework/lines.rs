//! What is said on the command line: keys, confirmations, mistakes, and who reads the answer.

use oncely_clap::Runner;

use crate::room::Room;
use crate::shop::Cli;

#[test]
fn what_a_command_finds_wrong_is_said_at_once_and_nothing_runs() {
    let room = Room::new();
    let told = room.run::<Cli>(&["my-shop", "buy", "--how", "bad1,bad2"]);
    assert_eq!((told.exit, told.effect(), told.code()), (2, "noop", "BAD_ARGUMENTS"));
    assert_eq!(told.envelope["meta"]["problems"].as_array().unwrap().len(), 2, "{told:?}");
    assert!(!room.directory.path().join("state").exists(), "no ledger was opened");
}

#[test]
fn a_key_that_is_not_acceptable_is_refused_before_anything_runs() {
    let room = Room::new();
    for key in ["", "two words", "tab\t", "ä", &"x".repeat(256)] {
        let told = room.run::<Cli>(&["my-shop", "buy", "--idempotency-key", key]);
        assert_eq!((told.exit, told.code()), (2, "BAD_ARGUMENTS"), "{key:?}: {told:?}");
    }
    assert_eq!(room.effects(), 0);
}

#[test]
fn a_key_is_required_where_the_program_or_the_command_says_so() {
    let room = Room::new();
    let book = room.book().display().to_string();
    let line = ["my-shop", "buy", "--book", &book];
    let told = room.run_with(Runner::<Cli>::new().require_keys(), &line);
    assert_eq!((told.exit, room.effects()), (2, 0), "{told:?}");
    assert_eq!(told.envelope["meta"]["problems"][0]["argument"], "--idempotency-key <KEY>");
    let told = room
        .run_with(Runner::<Cli>::new().require_keys(), &[&line[..], &["--idempotency-key", "k"]].concat());
    assert_eq!((told.exit, room.effects()), (0, 1));
    assert_eq!(room.run::<Cli>(&["my-shop", "burn", "--book", &book, "--confirm"]).exit, 2);
    assert_eq!(room.effects(), 1, "it is not burnt");
}

#[test]
fn what_is_said_above_a_command_is_part_of_its_intent_unless_it_is_ignored() {
    let room = Room::new();
    let book = room.book().display().to_string();
    let run = |words: &[&str]| {
        let line = [&["my-shop", "--book", &book], words].concat();
        room.run_with(Runner::<Cli>::new().ignore(["verbose"]), &line).effect().to_owned()
    };
    assert_eq!(run(&["--region", "eu", "mail", "--to", "a"]), "created");
    assert_eq!(run(&["--region", "us", "mail", "--to", "a"]), "created", "another region is another intent");
    assert_eq!(run(&["--region", "us", "mail", "--to", "a", "--text", "reworded"]), "noop");
    assert_eq!(run(&["--region", "us", "-v", "mail", "--to", "a"]), "noop", "it never matters");
    assert_eq!(run(&["mail", "--to", "a"]), "created");
    assert_eq!(run(&["mail", "--to", "a", "-v", "--idempotency-key", "k"]), "created");
    assert_eq!(run(&["mail", "--to", "a", "--idempotency-key", "k"]), "noop");
    assert_eq!(room.effects(), 4);
}

#[test]
fn a_session_that_is_not_acceptable_is_refused_by_name() {
    let mut room = Room::new();
    room.variables.insert("MY_SHOP_SESSION".to_owned(), "a\u{7}".to_owned());
    let told = room.run::<Cli>(&["my-shop", "buy"]);
    assert_eq!((told.exit, told.code()), (2, "BAD_NAME"));
    assert!(told.envelope["error"]["message"].as_str().unwrap().starts_with("MY_SHOP_SESSION"), "{told:?}");
}

#[test]
fn the_ledger_is_where_the_nearest_variable_says() {
    let mut room = Room::new();
    let path = |name: &str| room.directory.path().join(name);
    let (own, common) = (path("own.db"), path("common.db"));
    let book = room.book().display().to_string();
    let line = ["my-shop", "buy", "--book", &book];
    room.run::<Cli>(&line);
    assert!(room.directory.path().join("state/oncely/my-shop.db").exists());
    room.variables.insert("ONCELY_STORE".to_owned(), format!("sqlite:{}", common.display()));
    assert_eq!(room.run::<Cli>(&line).effect(), "created", "another ledger remembers nothing");
    assert!(common.exists());
    room.variables.insert("MY_SHOP_STORE".to_owned(), own.display().to_string());
    assert_eq!(room.run::<Cli>(&line).effect(), "created");
    assert!(own.exists());
    room.variables.insert("MY_SHOP_STORE".to_owned(), "carrier-pigeon:".to_owned());
    assert_eq!(room.run::<Cli>(&line).exit, 2);
    room.variables.clear();
    let told = room.run::<Cli>(&line);
    assert_eq!((told.exit, told.code()), (2, "NO_STORE"));
    assert_eq!(room.effects(), 3);
}

#[test]
fn a_person_is_asked_before_something_is_destroyed() {
    for (answer, exit, left) in [("no", 4, true), ("", 4, true), ("yes", 0, false)] {
        let mut room = Room::new();
        let book = room.book().display().to_string();
        room.run::<Cli>(&["my-shop", "buy", "--book", &book]);
        room.person = Some(answer);
        let told = room.run::<Cli>(&["my-shop", "burn", "--book", &book, "--idempotency-key", "k"]);
        assert_eq!((told.exit, room.book().exists()), (exit, left), "{answer}: {told:?}");
    }
}

#[test]
fn nobody_is_asked_where_it_was_confirmed_and_a_dry_run_destroys_nothing() {
    let room = Room::new();
    let book = room.book().display().to_string();
    room.run::<Cli>(&["my-shop", "buy", "--book", &book]);
    let burn = ["my-shop", "burn", "--book", &book, "--idempotency-key", "k"];
    let refused = room.run::<Cli>(&burn);
    assert_eq!((refused.exit, refused.code()), (4, "CONFIRMATION_REQUIRED"));
    assert_eq!(room.run::<Cli>(&[&burn[..], &["--dry-run"]].concat()).effect(), "would_delete");
    assert!(room.book().exists());
    assert_eq!(room.run::<Cli>(&[&burn[..], &["--confirm"]].concat()).effect(), "deleted");
    assert!(!room.book().exists());
}

#[test]
fn people_read_text_and_programs_read_json() {
    let mut room = Room::new();
    let book = room.book().display().to_string();
    let run = |room: &Room, words: &[&str]| {
        let line = [&["my-shop"], words, &["--book", &book]].concat();
        room.raw(Runner::<Cli>::new(), &line)
    };
    room.watched = true;
    let (exit, out, err) = run(&room, &["buy"]);
    assert_eq!(
        (exit, out.as_str(), err.as_str()),
        (Some(0), "attempt: 1\ntext: tea\n", "my-shop: created\n")
    );
    let (_, out, err) = run(&room, &["buy"]);
    assert_eq!(out, "attempt: 1\ntext: tea\n");
    assert!(err.starts_with("my-shop: noop: replayed: attempt 1 ran "), "{err}");
    assert_eq!(run(&room, &["read"]).1, "effect\ntotal: 1\n");
    assert_eq!(run(&room, &["read-later"]).1, "read 7 later\n", "a command can have its own words");
    assert!(run(&room, &["read", "--json"]).1.starts_with(r#"{"ok":true,"effect":"noop","#));
    let (exit, out, err) = run(&room, &["read", "--fail"]);
    assert_eq!((exit, out.as_str()), (Some(4), ""));
    assert!(err.starts_with("my-shop: No such file"), "{err}");
    room.watched = false;
    assert_eq!(run(&room, &["read", "--json=false"]).1, "effect\ntotal: 1\n");
    assert!(run(&room, &["read"]).1.starts_with('{'));
    let (exit, out, _) = run(&room, &["read", "--fail"]);
    assert_eq!(exit, Some(4));
    assert!(out.contains(r#""effect":"noop""#) && out.contains(r#""code":"FAILED""#), "{out}");
}

#[test]
fn mistakes_are_told_in_claps_words_to_people_and_as_an_envelope_to_programs() {
    let mut room = Room::new();
    let told = room.run::<Cli>(&["my-shop", "bye"]);
    assert_eq!((told.exit, told.code()), (2, "BAD_ARGUMENTS"));
    let told = room.run::<Cli>(&["my-shop", "more"]);
    assert_eq!(told.envelope["error"]["message"], "nothing is said to do; see --help; nothing ran");
    room.watched = true;
    room.variables.insert("NO_COLOR".to_owned(), "1".to_owned());
    let (exit, out, err) = room.raw(Runner::<Cli>::new(), &["my-shop", "bye"]);
    assert_eq!((exit, out.as_str()), (Some(2), ""));
    assert!(err.contains("unrecognized subcommand 'bye'") && err.contains("Usage:"), "{err}");
    let (exit, out, _) = room.raw(Runner::<Cli>::new(), &["my-shop", "--help"]);
    assert_eq!(exit, Some(0));
    assert!(out.contains("manifest") && out.contains("Behaves as it is told"), "{out}");
}

#[test]
fn what_is_not_adopted_yet_behaves_as_before() {
    let room = Room::new();
    assert_eq!(room.raw(Runner::<Cli>::new(), &["my-shop", "old"]).0, None, "it is left to the program");
    assert_eq!(room.raw(Runner::<Cli>::new(), &["my-shop"]).0, None);
    let (exit, out, err) = room.raw(Runner::<Cli>::new(), &["my-shop", "old", "--number", "x"]);
    assert_eq!((exit, out.as_str()), (Some(2), ""));
    assert!(err.starts_with("error: invalid value 'x'"), "clap's own words: {err}");
    let (_, out, _) = room.raw(Runner::<Cli>::new(), &["my-shop", "old", "--help"]);
    assert!(!out.contains("--dry-run") && !out.contains("--json"), "{out}");
}
