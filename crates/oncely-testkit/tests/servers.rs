//! The starters of servers do what they say, and leave nothing behind.
#![cfg(unix)]

use std::collections::HashSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use oncely_testkit::servers::{PgBouncer, Postgres, Redis, RedisCluster, Tap, free_port};

#[test]
fn postgres_is_stopped_killed_paused_and_started_again_with_its_data() {
    let postgres = Postgres::start().unwrap();
    postgres.psql("CREATE TABLE kept (n int)").unwrap();
    for n in 1..=3 {
        postgres.psql(&format!("INSERT INTO kept VALUES ({n})")).unwrap();
        match n {
            1 => postgres.restart().unwrap(),
            2 => {
                postgres.kill().unwrap();
                assert!(postgres.psql("SELECT 1").is_err());
                postgres.start_again().unwrap();
            }
            _ => {
                postgres.pause();
                postgres.resume();
            }
        }
        assert_eq!(postgres.psql("SELECT count(*) FROM kept").unwrap(), n.to_string());
    }
    postgres.set("work_mem", "5MB").unwrap();
    assert!(postgres.fresh_database().unwrap().ends_with("/fresh0"));
    assert_eq!(postgres.psql_in("fresh0", "SELECT current_database()").unwrap(), "fresh0");
}

#[test]
fn what_a_synchronous_standby_acknowledged_survives_the_primary_again_and_again() {
    let mut primary = Postgres::start().unwrap();
    let mut standby = primary.standby().unwrap();
    primary.psql("CREATE TABLE kept (n int)").unwrap();
    for n in 1..=2 {
        primary.psql(&format!("INSERT INTO kept VALUES ({n})")).unwrap();
        primary.kill().unwrap();
        standby.promote().unwrap();
        primary.rejoin(&standby).unwrap();
        std::mem::swap(&mut primary, &mut standby);
        assert_eq!(primary.psql("SELECT count(*) FROM kept").unwrap(), n.to_string());
    }
}

#[test]
fn postgres_asks_for_its_password_and_a_pooler_knows_it() {
    let postgres = Postgres::builder().password("it's secret").start().unwrap();
    let pooler = PgBouncer::in_front_of(&postgres).unwrap();
    let seven = |port: u16| {
        let mut psql = Command::new("psql");
        psql.args([
            "-X",
            "-A",
            "-t",
            "-w",
            "-c",
            "SELECT 7",
            "-h",
            "127.0.0.1",
            "-U",
            "postgres",
            "-d",
            "postgres",
        ]);
        psql.arg("-p").arg(port.to_string());
        psql
    };
    assert!(!seven(postgres.port()).output().unwrap().status.success(), "no password was asked for");
    let asked = seven(postgres.port()).env("PGPASSWORD", "it's secret").output().unwrap();
    let pooled = seven(pooler.port()).output().unwrap();
    assert_eq!((&*asked.stdout, &*pooled.stdout), (&b"7\n"[..], &b"7\n"[..]), "{}", pooler.last_words());
}

#[test]
fn redis_keeps_its_data_over_a_kill_and_a_replica_follows() {
    let redis = Redis::builder().setting("requirepass", "secret").start().unwrap();
    redis.cli(&["SET", "a", "1"]).unwrap();
    redis.kill().unwrap();
    redis.start_again().unwrap();
    assert_eq!(redis.cli(&["GET", "a"]).unwrap(), "1");
    assert_eq!(redis.cli(&["CONFIG", "GET", "appendfsync"]).unwrap(), "appendfsync\nalways");
    let replica = redis.replica().unwrap();
    assert_eq!(replica.cli(&["GET", "a"]).unwrap(), "1");
    assert!(replica.cli(&["SET", "a", "2"]).is_err());
}

#[test]
fn a_cluster_replaces_a_killed_primary_and_takes_it_back() {
    let cluster = RedisCluster::start(3, 3).unwrap();
    let before = cluster.primaries().unwrap();
    assert_eq!((before.len(), cluster.size()), (3, 6));
    let killed = cluster.kill_primary(1).unwrap();
    cluster.wait_until_healthy().unwrap();
    let after = cluster.primaries().unwrap();
    assert!(after.len() == 3 && !after.contains(&killed), "{before:?}, {killed}, {after:?}");
    cluster.revive(killed).unwrap();
    cluster.wait_until_healthy().unwrap();
    assert_eq!(cluster.primaries().unwrap(), after);
}

#[test]
fn no_port_is_given_twice() {
    let ports: HashSet<u16> = (0..400).map(|_| free_port().unwrap()).collect();
    assert_eq!(ports.len(), 400, "a server that starts would meet another one");
}

#[test]
fn a_tap_passes_holds_and_cuts() {
    let echo = TcpListener::bind("127.0.0.1:0").unwrap();
    let tap = Tap::to(echo.local_addr().unwrap()).unwrap();
    std::thread::spawn(move || {
        for stream in echo.incoming() {
            let mut stream = stream.unwrap();
            std::thread::spawn(move || std::io::copy(&mut stream.try_clone().unwrap(), &mut stream));
        }
    });
    let connect = || {
        let stream = TcpStream::connect(("127.0.0.1", tap.port())).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream
    };
    let mut stream = connect();
    let mut answer = [0; 4];
    stream.write_all(b"ping").unwrap();
    stream.read_exact(&mut answer).unwrap();
    assert_eq!((&answer, tap.connections()), (b"ping", 1));
    tap.black_hole();
    stream.write_all(b"held").unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    assert!(stream.read_exact(&mut answer).is_err(), "it was not held back");
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    tap.pass();
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"held");
    tap.cut_after_answered(2);
    stream.write_all(b"half").unwrap();
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
    assert_eq!(rest, b"ha");
    tap.cut();
    let _ = connect().read_to_end(&mut rest);
    assert_eq!(rest, b"ha");
}

/// Started by the test below as a process of its own, which is killed.
#[test]
#[ignore = "waits to be killed"]
fn starts_servers_and_waits_to_be_killed() {
    let (postgres, redis) = (Postgres::shared().unwrap(), Redis::shared().unwrap());
    println!("\nstarted {} {}", postgres.port(), redis.port());
    std::thread::sleep(Duration::from_secs(600));
}

#[test]
fn servers_and_folders_are_gone_after_their_starter_was_killed() {
    let mut starter = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--nocapture", "--exact", "starts_servers_and_waits_to_be_killed"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(starter.stdout.take().unwrap()).lines();
    let line = lines.find_map(|line| line.unwrap().strip_prefix("started ").map(str::to_owned)).unwrap();
    let ports: Vec<u16> = line.split(' ').map(|port| port.parse().unwrap()).collect();
    let folders = || {
        let names = std::fs::read_dir(std::env::temp_dir()).unwrap().flatten().map(|entry| entry.file_name());
        let mine = format!("-{}-", starter.id());
        names
            .filter(|n| n.to_string_lossy().starts_with("oncely-") && n.to_string_lossy().contains(&mine))
            .count()
    };
    assert!(folders() >= 2);
    let number = starter.id();
    assert!(Command::new("kill").args(["-KILL", &number.to_string()]).status().unwrap().success());
    let deadline = Instant::now() + Duration::from_secs(120);
    while folders() > 0 || ports.iter().any(|port| TcpStream::connect(("127.0.0.1", *port)).is_ok()) {
        assert!(Instant::now() < deadline, "something is left of the servers on {ports:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
    starter.wait().unwrap();
}
