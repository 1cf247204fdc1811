//! What a person sees: tables, colours and questions, on a real pseudo-terminal.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::process::Stdio;

use oncely::Outcome;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::ledger::{Ledger, call, fill};

/// Runs the binary on a terminal, with what a person types; its exit code and the screen.
pub(crate) fn on_terminal(
    ledger: &Ledger,
    arguments: &[&str],
    typed: &str,
    environment: &[(&str, &str)],
) -> (i32, String) {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    tcsetwinsize(&master, Winsize { ws_row: 24, ws_col: 120, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
    let name = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
    let end = || Stdio::from(OpenOptions::new().read(true).write(true).open(&name).unwrap());
    let mut command = ledger.command(arguments);
    command.env("TERM", "xterm").envs(environment.iter().copied()).stdin(end()).stdout(end()).stderr(end());
    let mut child = command.spawn().unwrap();
    // Our copies of the far end, so that the screen ends when the child does.
    drop(command);
    let mut screen = File::from(master);
    screen.write_all(typed.as_bytes()).unwrap();
    let mut seen = Vec::new();
    let mut buffer = [0; 4096];
    // A terminal whose far end is closed answers with an error instead of an end.
    while let Ok(count @ 1..) = screen.read(&mut buffer) {
        seen.extend_from_slice(&buffer[..count]);
    }
    (child.wait().unwrap().code().unwrap_or(-1), String::from_utf8_lossy(&seen).into_owned())
}

#[tokio::test]
async fn a_listing_is_a_coloured_table_unless_colour_is_unwanted() {
    let ledger = Ledger::new();
    fill(&ledger.open().await).await;
    let (code, screen) = on_terminal(&ledger, &["ls", "--limit", "2"], "", &[]);
    assert_eq!(code, 0);
    assert!(screen.contains("ATTEMPTS") && screen.contains("mail:send"), "{screen}");
    assert!(screen.contains("\x1b["), "{screen}");
    assert!(screen.contains("there is more"), "{screen}");
    let (_, plain) = on_terminal(&ledger, &["ls"], "", &[("NO_COLOR", "1")]);
    assert!(plain.contains("in_doubt") && !plain.contains('\x1b'), "{plain}");
    let (_, json) = on_terminal(&ledger, &["ls", "--json"], "", &[]);
    assert!(json.starts_with('{'), "{json}");
}

#[tokio::test]
async fn a_person_is_shown_the_record_and_asked() {
    let ledger = Ledger::new();
    let oncely = ledger.open().await;
    let [_, _, doubted] = fill(&oncely).await;
    let resolve = ["resolve", &doubted[..], "--rejected"];
    for no in ["n\n", "\n", "maybe\n"] {
        let (code, screen) = on_terminal(&ledger, &resolve, no, &[]);
        assert_eq!(code, 4, "{screen}");
        assert!(screen.contains("the line went dead") && screen.contains("nothing was changed"), "{screen}");
    }
    assert_eq!(ledger.json(&["show", &doubted])["state"], "in_doubt");
    let (code, screen) = on_terminal(&ledger, &resolve, "y\n", &[]);
    assert_eq!(code, 0, "{screen}");
    assert_eq!(ledger.json(&["show", &doubted])["state"], "rejected");
    assert_eq!(on_terminal(&ledger, &["forget", &doubted], "yes\n", &[]).0, 0);
    assert_eq!(ledger.lines(&["ls"]).len(), 2);
}

#[tokio::test]
async fn nothing_that_is_stored_reaches_the_terminal_as_a_command() {
    let ledger = Ledger::new();
    let oncely = ledger.open().await;
    let note = "\x1b]0;owned\x07";
    let evil = call(&oncely, "pay", "k1", oncely::outcome::created(note)).await;
    let doubted = call(&oncely, "pay", "k2", Outcome::unknown(note)).await;
    let raw =
        call(&oncely, "pay", "k3", Outcome::succeeded(oncely::Effect::Created, vec![0x1b, 0xff, 0x07])).await;
    for arguments in [&["show", &evil[..]][..], &["show", &doubted], &["show", &raw], &["log"], &["ls"]] {
        let (code, screen) = on_terminal(&ledger, arguments, "", &[("NO_COLOR", "1")]);
        assert_eq!(code, 0);
        assert!(!screen.contains('\x1b') && !screen.contains('\x07'), "{arguments:?}: {screen:?}");
    }
    let (_, screen) = on_terminal(&ledger, &["show", &doubted], "", &[]);
    assert!(screen.contains(&format!("oncely resolve {doubted} --succeeded")), "{screen}");
}

#[tokio::test]
async fn every_report_has_a_form_for_people() {
    let ledger = Ledger::new();
    let oncely = ledger.open().await;
    let [paid, ..] = fill(&oncely).await;
    std::fs::write(ledger.path("oncely.toml"), "[tool.pay]\nmax_retries = 1\n").unwrap();
    for (arguments, code, expected) in [
        (&["show", &paid[..]][..], 0, "Audit trail"),
        (&["log"], 0, "in_doubt"),
        (&["stats"], 0, "PREVENTED"),
        (&["purge", "--dry-run"], 0, "would be dropped"),
        (&["purge"], 0, "0 results dropped"),
        (&["key", "--payload", "{}"], 0, "needs --tool"),
        (&["check"], 4, "leaves out idempotent"),
        (&["doctor"], 0, "takes writes"),
    ] {
        let (exit, screen) = on_terminal(&ledger, arguments, "", &[]);
        assert_eq!(exit, code, "{arguments:?}: {screen}");
        assert!(screen.contains(expected), "{arguments:?}: {screen}");
    }
}
