//! A run whose ledger went away or fell silent before its end was recorded, and somebody who does not want to wait for it.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use oncely_testkit::servers::{Postgres, Redis, Tap};

use crate::world::World;

/// Far less than the half minute for which an end is tried to be recorded, and far more than leaving takes.
const SOON: Duration = Duration::from_secs(15);

/// What it ends with; something is done to it again and again until then.
fn ended_soon(child: &mut Child, meanwhile: impl Fn(&Child)) -> ExitStatus {
    let asked = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        assert!(asked.elapsed() < SOON, "it was asked to end, and goes on");
        meanwhile(child);
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Counts, says which process it is, and ends when it may.
const EFFECT: &str = "echo $$ > pid; echo k >> effects; until test -e go; do sleep 0.01; done";

/// A run of an effect on a ledger that is made already, in the middle of it.
fn under_way(world: &World, store: &str, effect: &str) -> Child {
    assert_eq!(world.pay(&world.to, "first"), 0, "the ledger is made");
    let arguments = ["run", "--store", store, "--tool", "pay", "--key", "k", "--", "sh", "-c", effect];
    let mut child = world.command(&arguments).spawn().unwrap();
    while world.effects("k") == 0 {
        assert!(child.try_wait().unwrap().is_none(), "it ended before its effect");
        std::thread::sleep(Duration::from_millis(5));
    }
    child
}

fn interrupt(child: &Child) {
    kill(Pid::from_raw(child.id().try_into().unwrap()), Signal::SIGINT).unwrap();
}

fn let_the_command_end(world: &World) {
    let command = std::fs::read_to_string(world.path("pid")).unwrap();
    let command = std::path::Path::new("/proc").join(command.trim());
    std::fs::write(world.path("go"), "").unwrap();
    while command.exists() {
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// It has left, the ledger is back, and nobody was told of the end.
fn is_in_doubt_and_not_run_again(world: &World, status: ExitStatus, heard: &str, effect: &str) {
    // The command's own code: it did what it was asked for.
    assert_eq!(status.code(), Some(0), "{heard}");
    assert!(heard.contains("the record stays running or in doubt"), "{heard}");
    let again = ["run", "--store", &world.to, "--tool", "pay", "--key", "k", "--", "sh", "-c", effect];
    assert_eq!(world.run(&again).status.code(), Some(16));
    assert_eq!(world.effects("k"), 1);
}

/// `through` is the ledger behind the tap, `direct` is the same one.
fn leaves_an_end_that_cannot_be_recorded(tap: &Tap, through: &str, direct: &str) {
    let world = World::to(direct);
    let mut child = under_way(&world, through, EFFECT);
    tap.cut();
    std::fs::write(world.path("go"), "").unwrap();
    let (mut said, mut heard) = (BufReader::new(child.stderr.take().unwrap()), String::new());
    while !heard.contains("Ctrl-C leaves it") {
        assert!(said.read_line(&mut heard).unwrap() > 0, "it ended without a warning: {heard}");
    }
    interrupt(&child);
    let status = ended_soon(&mut child, |_| ());
    said.read_to_string(&mut heard).unwrap();
    tap.pass();
    is_in_doubt_and_not_run_again(&world, status, &heard, EFFECT);
}

/// The same where the ledger says nothing at all, and nobody has been told yet that it does not.
fn leaves_before_it_is_known_that_an_end_is_not_recorded(tap: &Tap, through: &str, direct: &str) {
    let world = World::to(direct);
    let mut child = under_way(&world, through, EFFECT);
    tap.black_hole();
    let_the_command_end(&world);
    let status = ended_soon(&mut child, interrupt);
    let mut heard = String::new();
    child.stderr.take().unwrap().read_to_string(&mut heard).unwrap();
    assert!(!heard.contains("trying for up to"), "it went on trying: {heard}");
    // What is still on its way is lost.
    tap.cut();
    is_in_doubt_and_not_run_again(&world, status, &heard, EFFECT);
}

#[test]
fn on_postgres_a_run_leaves_an_end_that_cannot_be_recorded_when_it_is_asked_to() {
    let server = Postgres::start().unwrap();
    let tap = Tap::to_port(server.port()).unwrap();
    let through = server.url_through(tap.port(), "postgres");
    leaves_an_end_that_cannot_be_recorded(&tap, &through, &server.url_through(server.port(), "postgres"));
}

#[test]
fn on_redis_a_run_leaves_an_end_that_cannot_be_recorded_when_it_is_asked_to() {
    let server = Redis::start().unwrap();
    let tap = Tap::to_port(server.port()).unwrap();
    let direct = server.url_through(server.port());
    leaves_an_end_that_cannot_be_recorded(&tap, &server.url_through(tap.port()), &direct);
}

#[test]
fn on_postgres_a_run_leaves_a_silent_ledger_as_soon_as_it_is_asked_to() {
    let server = Postgres::start().unwrap();
    let tap = Tap::to_port(server.port()).unwrap();
    let through = server.url_through(tap.port(), "postgres");
    leaves_before_it_is_known_that_an_end_is_not_recorded(
        &tap,
        &through,
        &server.url_through(server.port(), "postgres"),
    );
}

#[test]
fn on_redis_a_run_leaves_a_silent_ledger_as_soon_as_it_is_asked_to() {
    let server = Redis::start().unwrap();
    let tap = Tap::to_port(server.port()).unwrap();
    let direct = server.url_through(server.port());
    leaves_before_it_is_known_that_an_end_is_not_recorded(&tap, &server.url_through(tap.port()), &direct);
}

#[test]
fn whoever_asks_while_the_last_output_is_read_need_not_ask_again() {
    let server = Postgres::start().unwrap();
    let tap = Tap::to_port(server.port()).unwrap();
    let world = World::to(&server.url_through(server.port(), "postgres"));
    // What it leaves behind keeps its output open for a while.
    let effect = format!("{EFFECT}; sleep 7 &");
    let mut child = under_way(&world, &server.url_through(tap.port(), "postgres"), &effect);
    tap.black_hole();
    let_the_command_end(&world);
    interrupt(&child);
    let status = ended_soon(&mut child, |_| ());
    let mut heard = String::new();
    child.stderr.take().unwrap().read_to_string(&mut heard).unwrap();
    tap.cut();
    is_in_doubt_and_not_run_again(&world, status, &heard, &effect);
}

/// Also where no command ran, because the check before it has found that there is no need.
#[test]
fn a_run_leaves_what_its_check_has_found_as_soon_as_it_is_asked_to() {
    let server = Postgres::start().unwrap();
    let tap = Tap::to_port(server.port()).unwrap();
    let world = World::to(&server.url_through(server.port(), "postgres"));
    assert_eq!(world.pay(&world.to, "first"), 0, "the ledger is made");
    let check = "touch checking; until test -e go; do sleep 0.01; done; echo found";
    let through = server.url_through(tap.port(), "postgres");
    let run = ["run", "--store", &through, "--tool", "pay", "--key", "k", "--check", check];
    let mut child = world.command(&[&run[..], &["--", "sh", "-c", EFFECT]].concat()).spawn().unwrap();
    while !world.path("checking").exists() {
        assert!(child.try_wait().unwrap().is_none(), "it ended before its check");
        std::thread::sleep(Duration::from_millis(5));
    }
    tap.black_hole();
    std::fs::write(world.path("go"), "").unwrap();
    let status = ended_soon(&mut child, interrupt);
    tap.cut();
    assert_eq!(status.code(), Some(16), "what was found is not recorded, and not known to us");
    let again = ["run", "--store", &world.to, "--tool", "pay", "--key", "k", "--", "sh", "-c", EFFECT];
    assert_eq!(world.run(&again).status.code(), Some(16));
    assert_eq!(world.effects("k"), 0);
}
