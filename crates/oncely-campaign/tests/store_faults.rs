//! A server that cannot be reached, does not answer, is slow, loses answers, has a full disk, is stormed, or is asked by a
//! machine whose clock is wrong: nothing runs twice, nothing is lost, and what is refused has not run.
#![allow(clippy::print_stdout, reason = "figures")]

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Output};
use std::thread;
use std::time::Duration;

use oncely_campaign::Checked;
use oncely_campaign::bench::{Bench, said};
use oncely_campaign::clock::{DAY, line_at};
use oncely_campaign::ledger::Runner;
use oncely_campaign::mounts::Mount;
use oncely_campaign::programs::{Privilege, privileged};
use oncely_testkit::servers::{Postgres, Redis, Tap};

enum Server {
    Postgres(Postgres),
    Redis(Redis),
}

impl Server {
    fn port(&self) -> u16 {
        match self {
            Self::Postgres(postgres) => postgres.port(),
            Self::Redis(redis) => redis.port(),
        }
    }

    fn address_through(&self, port: u16) -> String {
        match self {
            Self::Postgres(postgres) => postgres.url_through(port, "postgres"),
            Self::Redis(redis) => redis.url_through(port),
        }
    }

    fn start_again(&self) -> Checked<()> {
        match self {
            Self::Postgres(postgres) => {
                postgres.kill()?;
                postgres.start_again()?;
            }
            Self::Redis(redis) => {
                redis.kill()?;
                redis.start_again()?;
            }
        }
        Ok(())
    }
}

fn postgres() -> Checked<Server> {
    Ok(Server::Postgres(Postgres::start()?))
}

fn redis() -> Checked<Server> {
    Ok(Server::Redis(Redis::start()?))
}

/// A ledger behind a tap, with runs that go through it.
struct Tapped {
    bench: Bench,
    tap: Tap,
    /// The same ledger, reached directly.
    direct: Runner,
    _server: Server,
}

impl Tapped {
    fn on(server: fn() -> Checked<Server>) -> Checked<Self> {
        let server = server()?;
        let tap = Tap::to_port(server.port())?;
        let bench = Bench::new(|_| server.address_through(tap.port()))?;
        let direct = Runner { store: server.address_through(server.port()), ..bench.runner.clone() };
        // The first opening makes the ledger.
        direct.states()?;
        Ok(Self { bench, tap, direct, _server: server })
    }

    /// Starts a run and returns when its effect has taken place; its end waits for a sign.
    fn start_held(&self, key: &str) -> Checked<Child> {
        let child = self.bench.held(key).spawn()?;
        self.bench.await_effect(key)?;
        Ok(child)
    }
}

/// Before the claim: nothing runs. Afterwards everything goes on.
fn a_server_that_is_away_runs_nothing(server: fn() -> Checked<Server>) -> Checked<()> {
    let tapped = Tapped::on(server)?;
    let first = tapped.bench.succeeds("first")?;
    tapped.tap.cut();
    tapped.bench.refuses("second", "")?;
    tapped.tap.pass();
    tapped.bench.succeeds("second")?;
    tapped.tap.black_hole();
    tapped.bench.refuses("third", "")?;
    tapped.tap.pass();
    tapped.bench.succeeds("third")?;
    assert_eq!(tapped.bench.succeeds("first")?, first);
    Ok(())
}

/// Between claim and end: the end is recorded when the server is back.
fn a_server_that_is_away_after_the_claim_gets_the_end_later(server: fn() -> Checked<Server>) -> Checked<()> {
    let tapped = Tapped::on(server)?;
    for (key, away) in [("cut", Tap::cut as fn(&Tap)), ("parted", Tap::black_hole)] {
        let child = tapped.start_held(key)?;
        away(&tapped.tap);
        tapped.bench.release(key)?;
        // The end meets no server for a while. Were it shorter or longer, nothing that is asserted would change.
        thread::sleep(Duration::from_millis(1_000));
        tapped.tap.pass();
        let output = child.wait_with_output()?;
        assert_eq!(output.status.code(), Some(0), "{key}: {}", said(&output));
        assert_eq!(tapped.direct.states()?[key], "succeeded");
        assert_eq!(tapped.bench.succeeds(key)?, output.stdout);
    }
    Ok(())
}

/// The call has its answer, with the warning that it is not recorded; and it is tried on until it is.
fn an_end_that_was_not_recorded_in_time_is_recorded_all_the_same(
    server: fn() -> Checked<Server>,
) -> Checked<()> {
    let tapped = Tapped::on(server)?;
    let mut child = tapped.start_held("late")?;
    tapped.tap.cut();
    tapped.bench.release("late")?;
    let mut warned = String::new();
    let mut said = BufReader::new(child.stderr.take().ok_or("no standard error")?);
    while !warned.contains("could not be recorded") {
        if said.read_line(&mut warned)? == 0 {
            return Err(format!("it ended without a warning: {warned}").into());
        }
    }
    assert_eq!(tapped.direct.states()?["late"], "running", "it was recorded by nobody yet");
    tapped.tap.pass();
    let rest = thread::spawn(move || said.read_to_end(&mut Vec::new()));
    let output = child.wait_with_output()?;
    rest.join().map_err(|_| "the reader panicked")??;
    assert_eq!(output.status.code(), Some(0), "{warned}");
    assert_eq!(tapped.direct.states()?["late"], "succeeded");
    assert_eq!(tapped.bench.succeeds("late")?, output.stdout);
    assert_eq!(tapped.bench.outside.count("late")?, 1);
    Ok(())
}

/// A runner that dies while its server is away leaves a doubt.
fn a_runner_that_is_killed_while_its_server_is_away_leaves_a_doubt(
    server: fn() -> Checked<Server>,
) -> Checked<()> {
    let tapped = Tapped::on(server)?;
    let mut child = tapped.start_held("orphan")?;
    tapped.tap.cut();
    child.kill()?;
    child.wait()?;
    tapped.bench.release("orphan")?;
    tapped.bench.outside.settle()?;
    tapped.tap.pass();
    let output = tapped.bench.run("orphan")?;
    assert_eq!(output.status.code(), Some(16), "{}", said(&output));
    assert_eq!(tapped.bench.outside.count("orphan")?, 1);
    Ok(())
}

fn a_slow_server_is_waited_for(server: fn() -> Checked<Server>) -> Checked<()> {
    let tapped = Tapped::on(server)?;
    tapped.tap.delay(Duration::from_millis(60));
    let first = tapped.bench.succeeds("slow")?;
    assert_eq!(tapped.bench.succeeds("slow")?, first);
    Ok(())
}

/// Connections are cut after every so many bytes of answers, so that some cut falls between any two messages.
fn an_answer_that_is_lost_at_any_point_makes_nothing_happen_twice(
    server: fn() -> Checked<Server>,
) -> Checked<()> {
    let tapped = Tapped::on(server)?;
    let mut refused = 0;
    for number in 0..40 {
        let key = format!("lost-{number}");
        tapped.tap.cut_after_answered(number * 97);
        let output = tapped.bench.run(&key)?;
        tapped.tap.pass();
        let count = tapped.bench.outside.count(&key)?;
        match output.status.code() {
            Some(0) => assert_eq!(count, 1, "{key}: {}", said(&output)),
            Some(12) => {
                refused += 1;
                assert_eq!(count, 0, "{key}: {}", said(&output));
            }
            _ => return Err(format!("{key}: {}", said(&output)).into()),
        }
        let again = tapped.bench.run(&key)?;
        // A claim that had arrived was taken back before its runner left.
        assert_eq!(again.status.code(), Some(0), "{key}: {}", said(&again));
        assert_eq!(tapped.bench.outside.count(&key)?, 1, "{key}: {}", said(&again));
    }
    println!("refused: {refused}");
    assert!(refused > 0, "no cut met a claim");
    Ok(())
}

/// More clients at once than the server takes.
fn a_storm_of_clients_runs_each_key_once(server: fn() -> Checked<Server>) -> Checked<()> {
    let tapped = Tapped::on(server)?;
    let keys: Vec<String> = (0..200).map(|number| format!("storm-{}", number % 50)).collect();
    let mut waiting: Vec<String> = keys.clone();
    for round in 0..40 {
        let children = waiting
            .iter()
            .map(|key| Ok((key.clone(), tapped.bench.line(key).spawn()?)))
            .collect::<Checked<Vec<_>>>()?;
        waiting.clear();
        for (key, child) in children {
            let output = child.wait_with_output()?;
            match output.status.code() {
                Some(0) => {}
                Some(12 | 15) => waiting.push(key),
                _ => return Err(format!("{key}: {}", said(&output)).into()),
            }
        }
        println!("round {round}: {} of {} were turned away", waiting.len(), keys.len());
        if waiting.is_empty() {
            break;
        }
    }
    assert!(waiting.is_empty(), "never served: {waiting:?}");
    let counts = tapped.bench.outside.counts()?;
    assert_eq!((counts.len(), counts.values().max()), (50, Some(&1)), "{counts:?}");
    Ok(())
}

/// The server's clock decides; a client's is not asked.
fn a_client_whose_clock_is_a_day_off_replays_and_takes_nothing_over(
    server: fn() -> Checked<Server>,
) -> Checked<()> {
    let tapped = Tapped::on(server)?;
    let first = tapped.bench.succeeds("done")?;
    let held = line_at(DAY, &tapped.bench.held("held")).spawn()?;
    tapped.bench.await_effect("held")?;
    for days in [-1, 1] {
        let again = line_at(days * DAY, &tapped.bench.line("done")).output()?;
        assert_eq!(again.stdout, first, "{days} days: {}", said(&again));
        let line = tapped.bench.line_with(&["--wait", "10ms"], "held");
        let other: Output = line_at(days * DAY, &line).output()?;
        assert_eq!(other.status.code(), Some(15), "{days} days: {}", said(&other));
    }
    tapped.bench.release("held")?;
    let held = held.wait_with_output()?;
    assert!(held.status.success(), "{}", said(&held));
    assert_eq!((tapped.bench.outside.count("done")?, tapped.bench.outside.count("held")?), (1, 1));
    Ok(())
}

/// The server's disk is full, between claim and end and before a claim.
fn a_full_disk_of_the_server_loses_nothing_and_runs_nothing(
    server: fn(&Mount) -> Checked<Server>,
) -> Checked<()> {
    if privileged("a full disk of a server", &["mount", "umount"])? == Privilege::Skipped {
        return Ok(());
    }
    let directory = tempfile::tempdir()?;
    std::fs::set_permissions(directory.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
    let mount = Mount::memory_disk(&directory.path().join("disk"), "200m")?;
    let server = server(&mount)?;
    let bench = Bench::new(|_| server.address_through(server.port()))?;
    let first = bench.succeeds("first")?;
    let ballast = mount.point().join("ballast");
    let (mut kept, mut turned_away) = (vec![("first".to_owned(), first)], 0);
    fill(&ballast)?;
    for number in 0..400 {
        let key = format!("full-{number}");
        let output = bench.run(&key)?;
        match output.status.code() {
            Some(0) if output.stderr.is_empty() => kept.push((key, output.stdout)),
            Some(0) => assert!(said(&output).contains("could not be recorded"), "{}", said(&output)),
            Some(12) => {
                turned_away += 1;
                assert_eq!(bench.outside.count(&key)?, 0, "{key}: {}", said(&output));
            }
            _ => return Err(format!("{key}: {}", said(&output)).into()),
        }
        if turned_away == 3 {
            break;
        }
    }
    assert!(turned_away > 0, "the disk never filled up");
    std::fs::remove_file(&ballast)?;
    // Either engine may have given up on a full disk.
    server.start_again()?;
    for (key, stdout) in kept {
        assert_eq!(bench.succeeds(&key)?, stdout);
    }
    bench.succeeds("afterwards")?;
    let (counts, states) = (bench.outside.counts()?, bench.runner.states()?);
    for (key, count) in counts {
        assert_eq!(count, 1, "{key}");
        let state = states.get(&key).map_or("absent", String::as_str);
        assert!(matches!(state, "succeeded" | "in_doubt" | "running"), "{key}: {state}");
    }
    Ok(())
}

/// Writes until there is no room.
fn fill(file: &std::path::Path) -> Checked<()> {
    use std::io::Write;
    let mut file = std::fs::File::create(file)?;
    for size in [1 << 20, 1 << 12, 1] {
        let piece = vec![7u8; size];
        while file.write_all(&piece).is_ok() {}
    }
    Ok(())
}

macro_rules! on_both {
    ($($proof:ident($postgres:expr, $redis:expr): $on_postgres:ident, $on_redis:ident;)*) => {$(
        #[test]
        fn $on_postgres() {
            $proof($postgres).unwrap();
        }

        #[test]
        fn $on_redis() {
            $proof($redis).unwrap();
        }
    )*};
}

fn few_connections() -> Checked<Server> {
    Ok(Server::Postgres(Postgres::builder().setting("max_connections", "20").start()?))
}

fn few_clients() -> Checked<Server> {
    Ok(Server::Redis(Redis::builder().setting("maxclients", "20").start()?))
}

fn postgres_on(mount: &Mount) -> Checked<Server> {
    let folder = mount.point().join("data");
    Ok(Server::Postgres(Postgres::builder().data_folder(&folder).setting("max_wal_size", "64MB").start()?))
}

fn redis_on(mount: &Mount) -> Checked<Server> {
    let folder = mount.point().display().to_string();
    Ok(Server::Redis(Redis::builder().setting("dir", &folder).start()?))
}

on_both! {
    a_server_that_is_away_runs_nothing(postgres, redis):
        on_postgres_a_server_that_is_away_runs_nothing,
        on_redis_a_server_that_is_away_runs_nothing;
    a_server_that_is_away_after_the_claim_gets_the_end_later(postgres, redis):
        on_postgres_a_server_that_is_away_after_the_claim_gets_the_end_later,
        on_redis_a_server_that_is_away_after_the_claim_gets_the_end_later;
    an_end_that_was_not_recorded_in_time_is_recorded_all_the_same(postgres, redis):
        on_postgres_an_end_that_was_not_recorded_in_time_is_recorded_all_the_same,
        on_redis_an_end_that_was_not_recorded_in_time_is_recorded_all_the_same;
    a_runner_that_is_killed_while_its_server_is_away_leaves_a_doubt(postgres, redis):
        on_postgres_a_runner_that_is_killed_while_its_server_is_away_leaves_a_doubt,
        on_redis_a_runner_that_is_killed_while_its_server_is_away_leaves_a_doubt;
    a_slow_server_is_waited_for(postgres, redis):
        on_postgres_a_slow_server_is_waited_for,
        on_redis_a_slow_server_is_waited_for;
    an_answer_that_is_lost_at_any_point_makes_nothing_happen_twice(postgres, redis):
        on_postgres_an_answer_that_is_lost_at_any_point_makes_nothing_happen_twice,
        on_redis_an_answer_that_is_lost_at_any_point_makes_nothing_happen_twice;
    a_storm_of_clients_runs_each_key_once(few_connections, few_clients):
        on_postgres_a_storm_of_clients_runs_each_key_once,
        on_redis_a_storm_of_clients_runs_each_key_once;
    a_client_whose_clock_is_a_day_off_replays_and_takes_nothing_over(postgres, redis):
        on_postgres_a_client_whose_clock_is_a_day_off_replays_and_takes_nothing_over,
        on_redis_a_client_whose_clock_is_a_day_off_replays_and_takes_nothing_over;
    a_full_disk_of_the_server_loses_nothing_and_runs_nothing(postgres_on, redis_on):
        on_postgres_a_full_disk_of_the_server_loses_nothing_and_runs_nothing,
        on_redis_a_full_disk_of_the_server_loses_nothing_and_runs_nothing;
}
