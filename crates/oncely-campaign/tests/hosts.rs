//! Two machines on one ledger: with the same key there is one effect, and a machine that cannot be reached any more is
//! judged by its lease alone.
#![allow(clippy::print_stdout, reason = "figures")]

use std::process::{Child, Command, Output, Stdio};

use oncely_campaign::Checked;
use oncely_campaign::bench::{Bench, said};
use oncely_campaign::hosts::Host;
use oncely_campaign::programs::{Privilege, privileged};
use oncely_testkit::servers::{Postgres, Redis};

/// A server that other machines reach, and the address of the ledger with 127.0.0.1 in the place of the server.
enum Server {
    Postgres(Postgres),
    Redis(Redis),
}

impl Server {
    fn address(&self) -> String {
        match self {
            Self::Postgres(postgres) => postgres.url("postgres"),
            Self::Redis(redis) => redis.url(),
        }
    }
}

fn postgres() -> Checked<Server> {
    Ok(Server::Postgres(Postgres::builder().listen("0.0.0.0").start()?))
}

fn redis() -> Checked<Server> {
    Ok(Server::Redis(Redis::builder().setting("bind", "0.0.0.0").start()?))
}

struct Two {
    bench: Bench,
    hosts: [Host; 2],
    _server: Server,
}

impl Two {
    /// `None`: somebody chose to skip what needs root.
    fn on(server: fn() -> Checked<Server>) -> Checked<Option<Self>> {
        if privileged("two machines", &["ip", "nft", "unshare"])? == Privilege::Skipped {
            return Ok(None);
        }
        let server = server()?;
        let bench = Bench::new(|_| server.address())?;
        // The first opening makes the ledger.
        bench.runner.states()?;
        Ok(Some(Self { bench, hosts: [Host::new()?, Host::new()?], _server: server }))
    }

    /// The same command line on one of the machines.
    fn on_host(&self, host: usize, line: &Command) -> Command {
        let (host, local) = (&self.hosts[host], &self.bench.runner.store);
        let mut there = Command::new(line.get_program());
        for argument in line.get_args() {
            let is_store = argument == local.as_str();
            let store = || local.replace("127.0.0.1", host.gateway()).into();
            there.arg(if is_store { store() } else { argument.to_owned() });
        }
        for (name, value) in line.get_envs() {
            match value {
                Some(value) => there.env(name, value),
                None => there.env_remove(name),
            };
        }
        host.line(&there)
    }

    fn run(&self, host: usize, key: &str, options: &[&str]) -> Checked<Output> {
        Ok(self.on_host(host, &self.bench.line_with(options, key)).output()?)
    }

    /// Starts a run on one of the machines and returns when its effect has taken place; its end waits for a sign.
    fn start_held(&self, host: usize, key: &str) -> Checked<Child> {
        let child = self.on_host(host, &self.bench.held(key)).spawn()?;
        self.bench.await_effect(key)?;
        Ok(child)
    }
}

fn two_machines_with_the_same_key_have_one_effect(server: fn() -> Checked<Server>) -> Checked<()> {
    let Some(two) = Two::on(server)? else { return Ok(()) };
    for number in 0..6 {
        let key = format!("key-{number}");
        let both = [0, 1].map(|host| two.on_host(host, &two.bench.line(&key)).spawn());
        let [one, other] = both.map(|child| child?.wait_with_output());
        let (one, other) = (one?, other?);
        assert!(one.status.success() && other.status.success(), "{}; {}", said(&one), said(&other));
        assert_eq!(one.stdout, other.stdout);
        assert_eq!(two.bench.outside.count(&key)?, 1);
    }
    Ok(())
}

fn a_living_owner_on_another_machine_is_not_taken_for_dead(server: fn() -> Checked<Server>) -> Checked<()> {
    let Some(two) = Two::on(server)? else { return Ok(()) };
    let owner = two.start_held(0, "slow")?;
    // Both are process 1 of their machine; a number that is looked up on the wrong one is found, and means another.
    for _ in 0..3 {
        let output = two.run(1, "slow", &["--wait", "100ms"])?;
        assert_eq!(output.status.code(), Some(15), "{}", said(&output));
    }
    two.bench.release("slow")?;
    let (owner, other) = (owner.wait_with_output()?, two.run(1, "slow", &[])?);
    assert!(owner.status.success() && other.status.success(), "{}; {}", said(&owner), said(&other));
    assert_eq!((owner.stdout == other.stdout, two.bench.outside.count("slow")?), (true, 1));
    Ok(())
}

fn a_machine_that_is_parted_beyond_its_lease_leaves_a_doubt_and_no_second_effect(
    server: fn() -> Checked<Server>,
) -> Checked<()> {
    let Some(two) = Two::on(server)? else { return Ok(()) };
    let owner = two.start_held(0, "parted")?;
    two.hosts[0].part()?;
    two.bench.release("parted")?;
    // Its end is on the far side; its lease of half a minute lapses on this one.
    let other = two.run(1, "parted", &["--wait", "180s"])?;
    assert_eq!(other.status.code(), Some(16), "{}", said(&other));
    assert_eq!(two.bench.outside.count("parted")?, 1);
    two.hosts[0].heal()?;
    let owner = owner.wait_with_output()?;
    let state = two.bench.runner.states()?.remove("parted");
    println!("the owner, healed: {}; the record: {state:?}", said(&owner));
    assert!(owner.status.success(), "it has its result: {}", said(&owner));
    let again = two.run(1, "parted", &[])?;
    match state.as_deref() {
        // The truth arrived late.
        Some("succeeded") => assert_eq!(again.stdout, owner.stdout, "{}", said(&again)),
        Some("in_doubt") => assert_eq!(again.status.code(), Some(16), "{}", said(&again)),
        _ => return Err(format!("the record is {state:?}").into()),
    }
    assert_eq!(two.bench.outside.count("parted")?, 1);
    Ok(())
}

macro_rules! on_both {
    ($($proof:ident: $on_postgres:ident, $on_redis:ident;)*) => {$(
        #[test]
        fn $on_postgres() {
            $proof(postgres).unwrap();
        }

        #[test]
        fn $on_redis() {
            $proof(redis).unwrap();
        }
    )*};
}

on_both! {
    two_machines_with_the_same_key_have_one_effect:
        on_postgres_two_machines_with_the_same_key_have_one_effect,
        on_redis_two_machines_with_the_same_key_have_one_effect;
    a_living_owner_on_another_machine_is_not_taken_for_dead:
        on_postgres_a_living_owner_on_another_machine_is_not_taken_for_dead,
        on_redis_a_living_owner_on_another_machine_is_not_taken_for_dead;
    a_machine_that_is_parted_beyond_its_lease_leaves_a_doubt_and_no_second_effect:
        on_postgres_a_machine_parted_beyond_its_lease_leaves_a_doubt_and_no_second_effect,
        on_redis_a_machine_parted_beyond_its_lease_leaves_a_doubt_and_no_second_effect;
}

/// The same boot, other process numbers: `unshare` with a /proc of its own, and with this machine's.
#[test]
fn on_a_ledger_file_a_living_owner_with_other_process_numbers_is_not_taken_for_dead() {
    if privileged("process-number namespaces", &["unshare"]).unwrap() == Privilege::Skipped {
        return;
    }
    let ledger =
        |directory: &std::path::Path| format!("sqlite:{}?min_free=0", directory.join("ledger.db").display());
    let bench = Bench::new(ledger).unwrap();
    for options in [&["--pid", "--fork", "--mount-proc"][..], &["--pid", "--fork"]] {
        let key = options.join("");
        let line = bench.held(&key);
        let mut apart = Command::new("unshare");
        apart.args(options).arg(line.get_program()).args(line.get_args());
        apart.envs(line.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let owner = apart.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        bench.await_effect(&key).unwrap();
        let other = bench.line_with(&["--wait", "50ms"], &key).output().unwrap();
        assert_eq!(other.status.code(), Some(15), "{key}: {}", said(&other));
        bench.release(&key).unwrap();
        let owner = owner.wait_with_output().unwrap();
        let other = bench.run(&key).unwrap();
        assert_eq!(owner.stdout, other.stdout, "{key}: {}; {}", said(&owner), said(&other));
        assert_eq!(bench.outside.count(&key).unwrap(), 1);
    }
}
