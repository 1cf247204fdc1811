//! The shapes that a program can have, and what the manifest, completions and manual pages say of them.

use oncely_clap::{Declaration, Runner};
use serde_json::{Value, json};

use crate::room::Room;
use crate::shop::{Cli, Single};

fn manifest() -> Value {
    let (exit, out, _) = Room::new().raw(Runner::<Cli>::new(), &["my-shop", "manifest"]);
    assert_eq!(exit, Some(0));
    serde_json::from_str(&out).unwrap()
}

#[test]
fn the_commands_of_the_tests_hold_together() {
    oncely_clap::debug_assert::<Cli>();
    oncely_clap::debug_assert::<Single>();
}

#[test]
fn a_command_is_known_by_the_words_that_lead_to_it() {
    let room = Room::new();
    let book = room.book().display().to_string();
    for (words, tool) in [
        (&["buy"][..], "my-shop:buy"),
        (&["more", "buy"], "my-shop:more:buy"),
        (&["buy-flat"], "my-shop:buy-flat"),
        (&["later"], "my-shop:later"),
    ] {
        let line = [&["my-shop"], words, &["--book", &book, "--idempotency-key", "the-same"]].concat();
        let told = room.run::<Cli>(&line);
        assert_eq!((told.exit, &told.envelope["meta"]["tool"]), (0, &tool.into()), "{told:?}");
        assert_eq!(room.run::<Cli>(&line).envelope["meta"]["replayed"], true);
    }
    assert_eq!(room.effects(), 3, "the last one found the book");
}

#[test]
fn a_program_that_is_one_command_works_the_same() {
    let room = Room::new();
    let book = room.book().display().to_string();
    for effect in ["created", "noop"] {
        assert_eq!(room.run::<Single>(&["single", "--book", &book]).effect(), effect);
    }
    assert_eq!(room.run::<Single>(&["single", "--book", &book, "--dry-run"]).effect(), "noop");
    assert_eq!(room.effects(), 1);
}

#[test]
fn an_asynchronous_plan_is_asked() {
    let told = Room::new().run::<Cli>(&["my-shop", "later", "--dry-run"]);
    assert_eq!((told.effect(), &told.envelope["changes"]), ("would_update", &json!(["the book"])));
}

#[test]
fn an_alias_leads_to_the_same_command() {
    assert_eq!(Room::new().run::<Cli>(&["my-shop", "rl"]).envelope["data"], 7);
}

#[test]
fn the_manifest_tells_all_of_every_command() {
    let manifest = manifest();
    let commands = manifest["commands"].as_array().unwrap();
    let names: Vec<&str> = commands.iter().map(|c| c["name"].as_str().unwrap()).collect();
    let all = [
        "buy",
        "mail",
        "hurry",
        "checked",
        "burn",
        "later",
        "read",
        "read-later",
        "old",
        "more buy",
        "buy-flat",
    ];
    assert_eq!(names, all);
    let find = |name: &str| commands.iter().find(|c| c["name"] == name).unwrap();
    let buy = find("buy");
    assert_eq!(buy["danger"], "mutating");
    assert_eq!(buy["effects"], json!(["created", "noop"]));
    assert_eq!(buy["retry"]["max_retries"], 2);
    assert_eq!(buy["idempotency"]["key"], "derived");
    assert_eq!(buy["idempotency"]["when_unknown"], "halt");
    assert_eq!(buy["idempotency"]["session_variable"], "MY_SHOP_SESSION");
    assert_eq!(buy["idempotency"]["ignores"], json!(["note"]));
    assert_eq!(buy["dry_run"]["flag"], "--dry-run");
    assert_eq!(buy["input"]["properties"]["how"]["flag"], "--how");
    assert_eq!(buy["input"]["properties"]["how"]["default"], "created");
    assert_eq!(buy["input"]["properties"]["book"]["flag"], "--book", "global arguments are input, too");
    assert!(buy["input"]["properties"].as_object().unwrap().keys().all(|id| !id.starts_with('@')));
    assert_eq!(buy["output"]["properties"]["attempt"]["type"], "integer");
    assert_eq!(buy["exit_codes"].as_object().unwrap().len(), 8);
    assert_eq!(find("checked")["idempotency"]["strategy"], "check_then_act");
    assert_eq!(find("later")["idempotency"]["strategy"], "upsert");
    assert_eq!(find("burn")["confirm"]["flag"], "--confirm");
    assert_eq!(find("burn")["idempotency"]["key"], "required");
    assert_eq!(find("read")["danger"], "safe");
    assert_eq!(find("read")["input"]["properties"]["fail"]["type"], "boolean");
    assert!(find("read").get("idempotency").is_none());
    assert_eq!(find("hurry")["input"]["required"], json!(["until", "started"]));
    assert_eq!((&find("old")["managed"], &find("old")["danger"]), (&false.into(), &"mutating".into()));
}

#[test]
fn completions_and_manual_pages_know_our_flags() {
    let mut command = oncely_clap::command::<Cli>();
    let mut completions = Vec::new();
    clap_complete::generate(clap_complete::Shell::Bash, &mut command, "my-shop", &mut completions);
    assert!(String::from_utf8(completions).unwrap().contains("--idempotency-key"));
    let mut page = Vec::new();
    let buy = command.find_subcommand("buy").unwrap().clone();
    clap_mangen::Man::new(buy).render(&mut page).unwrap();
    assert!(String::from_utf8(page).unwrap().contains(r"\-\-dry\-run"));
}

/// A program with mistakes that only `debug_assert` can find.
mod mistaken {
    use clap::{Args, Parser, Subcommand};
    use oncely_clap::{Answer, Cx, Handler, noop};

    use super::Declaration;

    #[derive(Debug, Parser, oncely_clap::Commands)]
    pub struct Typo {
        #[command(subcommand)]
        command: Commands,
    }

    #[derive(Debug, Subcommand, oncely_clap::Commands)]
    enum Commands {
        #[oncely(mutating)]
        Pay(Pay),
    }

    #[derive(Debug, Args)]
    pub struct Pay {
        #[arg(long)]
        amount: u32,
    }

    impl Handler<Typo> for Pay {
        type Data = u32;

        fn declare() -> Declaration {
            Declaration::sends().key_from(["amonut"]).max_retries(5_000)
        }

        fn run(&self, _cx: &Cx<Typo>) -> Answer<u32> {
            noop(self.amount.to_string())
        }
    }

    /// Its own flag comes from above.
    #[derive(Debug, Parser, oncely_clap::Commands)]
    pub struct Inherited {
        #[arg(long, global = true)]
        json: bool,
        #[command(subcommand)]
        command: Below,
    }

    #[derive(Debug, Subcommand, oncely_clap::Commands)]
    enum Below {
        #[oncely(mutating)]
        Pay(Pay),
    }

    impl Handler<Inherited> for Pay {
        type Data = bool;

        fn declare() -> Declaration {
            Declaration::sends()
        }

        fn run(&self, cx: &Cx<Inherited>) -> Answer<bool> {
            noop(cx.app().json.to_string())
        }
    }

    #[derive(Debug, Parser, oncely_clap::Commands)]
    #[oncely(mutating)]
    pub struct Clash {
        #[arg(long)]
        dry_run: bool,
    }

    impl Handler<Self> for Clash {
        type Data = bool;

        fn declare() -> Declaration {
            Declaration::sends()
        }

        fn run(&self, _cx: &Cx<Self>) -> Answer<bool> {
            noop(self.dry_run.to_string())
        }
    }
}

fn complaint(check: impl FnOnce() + std::panic::UnwindSafe) -> String {
    let panic = std::panic::catch_unwind(check).expect_err("it is mistaken");
    panic.downcast_ref::<String>().unwrap().clone()
}

#[test]
fn debug_assert_finds_what_does_not_hold_together() {
    let typo = complaint(oncely_clap::debug_assert::<mistaken::Typo>);
    assert!(typo.contains(r#"key_from names "amonut", which is no argument of it"#), "{typo}");
    assert!(typo.contains("max_retries"), "all at once: {typo}");
    let clash = complaint(oncely_clap::debug_assert::<mistaken::Clash>);
    assert!(clash.contains("--dry-run is a flag of the framework"), "{clash}");
    let inherited = complaint(oncely_clap::debug_assert::<mistaken::Inherited>);
    assert!(inherited.contains("pay: --json is a flag of the framework; remove yours"), "{inherited}");
}
