//! A run whose ledger went away before its end was recorded, and somebody who does not want to wait for it.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use oncely_testkit::servers::{Postgres, Redis, Tap};

use crate::world::World;

/// Far less than the half minute for which an end is tried to be recorded, and far more than leaving takes.
const SOON: Duration = Duration::from_secs(15);

fn ended_soon(child: &mut Child) -> ExitStatus {
    let asked = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        assert!(asked.elapsed() < SOON, "it was asked to end, and goes on");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// `through` is the ledger behind the tap, `direct` is the same one.
fn leaves_an_end_that_cannot_be_recorded(tap: &Tap, through: &str, direct: &str) {
    let world = World::to(direct);
    assert_eq!(world.pay(direct, "first"), 0, "the ledger is made");
    let effect = "echo k >> effects; until test -e go; do sleep 0.01; done";
    let arguments = ["run", "--store", through, "--tool", "pay", "--key", "k", "--", "sh", "-c", effect];
    let mut child = world.command(&arguments).spawn().unwrap();
    while world.effects("k") == 0 {
        assert!(child.try_wait().unwrap().is_none(), "it ended before its effect");
        std::thread::sleep(Duration::from_millis(5));
    }
    tap.cut();
    std::fs::write(world.path("go"), "").unwrap();
    let (mut said, mut heard) = (BufReader::new(child.stderr.take().unwrap()), String::new());
    while !heard.contains("Ctrl-C leaves it") {
        assert!(said.read_line(&mut heard).unwrap() > 0, "it ended without a warning: {heard}");
    }
    kill(Pid::from_raw(child.id().try_into().unwrap()), Signal::SIGINT).unwrap();
    let status = ended_soon(&mut child);
    said.read_to_string(&mut heard).unwrap();
    // The command's own code: it did what it was asked for.
    assert_eq!(status.code(), Some(0), "{heard}");
    assert!(heard.contains("the record stays running or in doubt"), "{heard}");
    tap.pass();
    // Nobody knows of its end, and so nobody runs it again.
    let again = ["run", "--store", direct, "--tool", "pay", "--key", "k", "--", "sh", "-c", effect];
    assert_eq!(world.run(&again).status.code(), Some(16));
    assert_eq!(world.effects("k"), 1);
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
