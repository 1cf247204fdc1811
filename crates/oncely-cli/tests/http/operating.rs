//! What an operator meets: the addresses that are taken where none are given, certificates and keys that are no use, signals,
//! and a disk that is full.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use rustix::fs::OFlags;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::client;
use crate::gateway::{self, Gateway, ONCELY, order, records};
use crate::upstream::Upstream;

/// Holds a port, so that nobody else can. Another run of this test may have it for a moment; a server of somebody's, which is
/// there to stay, holds it as well as we do.
fn hold(port: u16) -> Option<TcpListener> {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        match TcpListener::bind(("127.0.0.1", port)) {
            Ok(listener) => return Some(listener),
            Err(_) if Instant::now() < deadline => std::thread::yield_now(),
            Err(_) => return None,
        }
    }
}

/// What it says when it ends without having listened anywhere.
fn refused(mut command: Command) -> (i32, String) {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut ready = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut ready).unwrap();
    if !ready.is_empty() {
        child.kill().unwrap();
    }
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    let code = child.wait().unwrap().code();
    assert_eq!(ready, "", "it listens");
    (code.unwrap(), said)
}

#[test]
fn without_addresses_it_takes_7300_and_7301_of_this_machine_alone() {
    let home = tempfile::tempdir().unwrap();
    for (port, args, expected) in [
        (7300, ["--admin", "off"], "oncely: 127.0.0.1:7300: Address already in use"),
        (
            7301,
            ["--listen", "127.0.0.1:0"],
            "the admin API cannot listen on 127.0.0.1:7301: Address already in use",
        ),
    ] {
        let _held = hold(port);
        let mut command = gateway::oncely(home.path());
        command.args(["serve", "--upstream", "http://127.0.0.1:9"]).args(args);
        let (code, said) = refused(command);
        assert_eq!(code, 4, "{said}");
        assert!(said.contains(expected), "{said}");
    }
    let help = gateway::oncely(home.path()).args(["serve", "--help"]).output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(help.contains("else 127.0.0.1:7300]") && help.contains("else 127.0.0.1:7301]"), "{help}");
}

#[test]
fn a_route_that_leads_back_to_the_gateway_itself_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let address = format!("127.0.0.1:{}", oncely_testkit::servers::free_port().unwrap());
    let mut command = gateway::oncely(home.path());
    command.args(["serve", "--admin", "off", "--listen", &address]);
    command.args(["--upstream", &format!("http://{address}/base")]);
    let (code, said) = refused(command);
    assert_eq!(code, 2, "{said}");
    assert!(
        said.contains(&format!("the route /** leads to http://{address}, where this gateway listens itself")),
        "{said}"
    );
}

#[test]
fn routes_that_lead_round_or_are_never_reached_are_found_by_check() {
    let home = tempfile::tempdir().unwrap();
    let route = |pattern: &str, upstream: &str| {
        format!("[[route]]\nmatch = \"{pattern}\"\nupstream = \"{upstream}\"\n")
    };
    let config = format!("{}{}", route("/**", "http://127.0.0.1:9"), route("/b", "http://localhost:7300"));
    let round = "the route /b leads to http://localhost:7300, where this gateway listens itself";
    let (code, told) = check(home.path(), &format!("[server]\nlisten = \"127.0.0.1:7300\"\n{config}"));
    assert_eq!(code, 4);
    assert!(told["warnings"].to_string().contains("the route /b is never reached"), "{told}");
    assert!(told["problems"].to_string().contains(round), "{told}");
    // Where it will listen is not known, nor what else may be there.
    let (code, told) = check(home.path(), &config);
    assert_eq!((code, &told["problems"]), (0, &serde_json::json!([])));
    let warned = told["warnings"].to_string();
    assert!(warned.contains(round) && warned.contains("unless --listen"), "{told}");
}

/// `oncely check` of a configuration: its exit code, and what it says.
fn check(home: &Path, config: &str) -> (i32, serde_json::Value) {
    let file = gateway::write_config(home, config);
    let checked = gateway::oncely(home).arg("--config").arg(file).args(["check", "--json"]).output().unwrap();
    (checked.status.code().unwrap(), serde_json::from_slice(&checked.stdout).unwrap())
}

/// Without tokens the admin API answers whoever comes from this machine, and that is what the gateway is to it.
#[test]
fn a_route_that_leads_to_the_admin_api_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let admin = format!("127.0.0.1:{}", oncely_testkit::servers::free_port().unwrap());
    let port = admin.rsplit_once(':').unwrap().1;
    for host in ["127.0.0.1", "localhost", "0.0.0.0"] {
        for by_file in [false, true] {
            let mut config = format!("[[route]]\nmatch = \"/in/**\"\nupstream = \"http://{host}:{port}\"\n");
            let mut command = gateway::oncely(home.path());
            if by_file {
                config = format!("[server]\nadmin = \"{admin}\"\n{config}");
                let (code, told) = check(home.path(), &config);
                assert_eq!(code, 4, "{told}");
                assert!(told["problems"].to_string().contains("where the admin API"), "{told}");
            }
            command.arg("--config").arg(gateway::write_config(home.path(), &config)).arg("serve");
            command.args(["--listen", "127.0.0.1:0"]);
            if !by_file {
                command.args(["--admin", &admin]);
            }
            let (code, said) = refused(command);
            assert_eq!(code, 2, "{said}");
            let expected = format!(
                "the route /in/** leads to http://{host}:{port}, where the admin API of this gateway"
            );
            assert!(said.contains(&expected) && said.contains("change the ledger"), "{said}");
            assert!(said.contains("nothing ran"), "{said}");
        }
    }
    // Where it will be is not known.
    let config = "[[route]]\nmatch = \"/**\"\nupstream = \"http://localhost:7301\"\n";
    let (code, told) = check(home.path(), config);
    assert_eq!((code, &told["problems"]), (0, &serde_json::json!([])));
    let warned = told["warnings"].to_string();
    assert!(warned.contains("where the admin API") && warned.contains("unless --admin"), "{told}");
    // There is none, so it is somebody else's.
    let (code, told) = check(home.path(), &format!("[server]\nadmin = \"off\"\n{config}"));
    assert_eq!((code, &told["warnings"]), (0, &serde_json::json!([])));
}

/// A certificate and its key, in files of this folder.
fn write_certificate(home: &Path, name: &str, years: (i32, i32)) {
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    params.not_before = rcgen::date_time_ymd(years.0, 1, 1);
    params.not_after = rcgen::date_time_ymd(years.1, 1, 1);
    let certificate = params.self_signed(&key).unwrap();
    std::fs::write(home.join(format!("{name}.pem")), certificate.pem()).unwrap();
    std::fs::write(home.join(format!("{name}.key")), key.serialize_pem()).unwrap();
}

fn with_tls(certificate: &str, key: &str, more: &str) -> String {
    // Only where roots are given they are read.
    let scheme = if more.is_empty() { "http" } else { "https" };
    format!(
        "[server]\ntls = {{ cert = \"{certificate}\", key = \"{key}\" }}\n{more}\n[[route]]\nmatch = \"/**\"\nupstream = \
         \"{scheme}://localhost:9\"\n"
    )
}

#[test]
fn a_certificate_or_key_that_is_no_use_is_told_with_its_file_and_what_to_do() {
    let home = tempfile::tempdir().unwrap();
    write_certificate(home.path(), "good", (2020, 4000));
    write_certificate(home.path(), "other", (2020, 4000));
    let write = |name: &str, text: &str| std::fs::write(home.path().join(name), text).unwrap();
    let read = |name: &str| std::fs::read_to_string(home.path().join(name)).unwrap();
    write("empty", "");
    write("cut.pem", &read("good.pem")[..200]);
    write("locked.key", &read("good.key").replace("PRIVATE KEY", "ENCRYPTED PRIVATE KEY"));
    let old = "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,00\n\nAAAA\n-----END RSA PRIVATE KEY-----\n";
    write("old.key", old);
    for (certificate, key, more, expected) in [
        ("good.pem", "other.key", "", "other.key: this key does not belong to the certificate in "),
        ("good.pem", "locked.key", "", "locked.key: the private key is encrypted"),
        ("good.pem", "old.key", "", "old.key: the private key is encrypted"),
        ("good.pem", "empty", "", "empty: it holds no private key in PEM form"),
        ("good.pem", "good.pem", "", "good.pem: it holds no private key in PEM form"),
        ("empty", "good.key", "", "empty: it holds no certificate in PEM form"),
        ("cut.pem", "good.key", "", "cut.pem: no certificate could be read: it is cut short"),
        ("gone.pem", "good.key", "", "gone.pem: no certificate could be read: No such file"),
        ("good.pem", "good.key", "upstream_roots = \"empty\"", "empty: it holds no certificate in PEM form"),
    ] {
        let file = gateway::write_config(home.path(), &with_tls(certificate, key, more));
        let (code, said) = refused(gateway::command(home.path(), &file));
        assert_eq!(code, 2, "{said}");
        assert!(said.contains(expected) && said.contains("nothing ran"), "{expected}: {said}");
        assert!(!said.contains("AAAA"), "{said}");
    }
}

#[test]
fn a_certificate_whose_time_is_over_or_has_not_come_is_warned_about() {
    let home = tempfile::tempdir().unwrap();
    for (name, years, expected) in [
        ("old", (2001, 2002), Some("has expired: clients will refuse it")),
        ("early", (3999, 4000), Some("does not hold yet: clients will refuse it")),
        ("good", (2020, 4000), None),
    ] {
        write_certificate(home.path(), name, years);
        let config = with_tls(&format!("{name}.pem"), &format!("{name}.key"), "");
        let file = gateway::write_config(home.path(), &config);
        let mut command = gateway::command(home.path(), &file);
        command.stderr(Stdio::piped());
        let mut gateway = Gateway::of(command);
        let mut stderr = gateway.child.stderr.take().unwrap();
        drop(gateway);
        let mut said = String::new();
        stderr.read_to_string(&mut said).unwrap();
        let checked =
            gateway::oncely(home.path()).arg("--config").arg(file).args(["check", "--json"]).output();
        let checked = String::from_utf8(checked.unwrap().stdout).unwrap();
        for told in [&said, &checked] {
            assert_eq!(told.contains("clients will refuse it"), expected.is_some(), "{name}: {told}");
            assert!(told.contains(expected.unwrap_or_default()), "{name}: {told}");
        }
    }
}

#[test]
fn a_hangup_without_a_terminal_loses_no_request_and_says_that_nothing_is_read_anew() {
    let (home, upstream) = (tempfile::tempdir().unwrap(), Upstream::start());
    let config = gateway::one_thread(&upstream.url());
    let mut command = gateway::command(home.path(), &gateway::write_config(home.path(), &config));
    command.stderr(Stdio::piped());
    let mut gateway = Gateway::of(command);
    let mut running = client::open(gateway.address, &order("k", "hold go"));
    upstream.wait_for_total(1);
    gateway.signal(Signal::SIGHUP);
    let mut said = BufReader::new(gateway.child.stderr.take().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    assert!(line.contains("SIGHUP changes nothing"), "{line}");
    upstream.release("go");
    assert_eq!(client::read_answer(&mut running).unwrap().status, 201);
    assert_eq!(gateway.order("k", "").header("idempotent-replayed"), Some("true"));
    // Nor does it count as the first of the two signals that end the process at once.
    let mut running = client::open(gateway.address, &order("k2", "hold later"));
    upstream.wait_for_total(2);
    gateway.signal(Signal::SIGTERM);
    while std::net::TcpStream::connect(gateway.address).is_ok() {
        std::thread::yield_now();
    }
    upstream.release("later");
    assert_eq!(client::read_answer(&mut running).unwrap().status, 201);
    assert_eq!(gateway.child.wait().unwrap().code(), Some(0));
    assert!(records(home.path()).iter().all(|record| record["state"] == "succeeded"));
}

/// A log that is kept elsewhere does not take it out of its terminal.
#[test]
fn a_terminal_that_is_closed_stops_it_also_where_it_does_not_write_there() {
    let (home, upstream) = (tempfile::tempdir().unwrap(), Upstream::start());
    // Nobody else has it open, so that it is closed when we close it.
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&terminal).unwrap();
    unlockpt(&terminal).unwrap();
    let name = ptsname(&terminal, Vec::new()).unwrap().into_string().unwrap();
    let flags = i32::try_from(OFlags::NOCTTY.bits()).unwrap();
    let far_end = File::options().read(true).write(true).custom_flags(flags).open(name).unwrap();
    let config = gateway::one_thread(&upstream.url());
    let file = gateway::write_config(home.path(), &config);
    // With the terminal as its own, as a shell starts it: it is told when the terminal is closed.
    let serve = gateway::command(home.path(), &file);
    let mut command = Command::new("setsid");
    command.arg("--ctty").arg(serve.get_program()).args(serve.get_args()).current_dir(home.path());
    command.env_clear().env("HOME", home.path()).env("PATH", "/usr/bin:/bin").stdin(far_end);
    command.stderr(File::create(home.path().join("log")).unwrap());
    let mut gateway = Gateway::of(command);
    let mut running = client::open(gateway.address, &order("k", "hold go"));
    upstream.wait_for_total(1);
    drop(terminal);
    let deadline = Instant::now() + Duration::from_secs(120);
    let log = || std::fs::read_to_string(home.path().join("log")).unwrap();
    while std::net::TcpStream::connect(gateway.address).is_ok() {
        assert!(Instant::now() < deadline, "it goes on: {}", log());
        std::thread::yield_now();
    }
    upstream.release("go");
    assert_eq!(client::read_answer(&mut running).unwrap().status, 201);
    assert_eq!(gateway.child.wait().unwrap().code(), Some(0), "{}", log());
    assert!(!log().contains("SIGHUP"), "{}", log());
}

#[test]
fn a_ledger_without_room_for_new_attempts_is_not_ready_and_its_operator_is_told() {
    let (home, upstream) = (tempfile::tempdir().unwrap(), Upstream::start());
    let config = gateway::one_thread(&upstream.url()).replace("admin = \"off\"\n", "");
    let file = gateway::write_config(home.path(), &config);
    let start = |settings: &str| {
        let mut command = Command::new(ONCELY);
        command.env_clear().env("HOME", home.path()).arg("--config").arg(&file).arg("--store");
        command.arg(format!("sqlite:{}{settings}", home.path().join("ledger.db").display()));
        command.args(["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]).stderr(Stdio::piped());
        Gateway::of(command)
    };
    let ready = |gateway: &Gateway| {
        client::send(gateway.admin.unwrap(), "GET /readyz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
    };
    let gateway = start("");
    assert_eq!(gateway.order("k", "").status, 201);
    assert_eq!(ready(&gateway).status, 200);
    drop(gateway);
    // More than any disk has.
    let mut gateway = start("?min_free=1000000GiB");
    let answer = ready(&gateway);
    assert_eq!((answer.status, answer.json()["code"].as_str()), (503, Some("store_unavailable")));
    assert!(!answer.text().contains("ledger.db"), "{}", answer.text());
    assert_eq!(gateway.metric("oncely_store_link{state=\"refused\"}"), 1);
    let mut line = String::new();
    BufReader::new(gateway.child.stderr.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains("the ledger cannot be used: only ") && line.contains("min_free"), "{line}");
    // What is known is still told, what is not guarded passes, and nothing new begins.
    assert_eq!(gateway.order("k", "").header("idempotent-replayed"), Some("true"));
    assert_eq!(gateway.send(&client::request("GET", "/", &[], "")).status, 200);
    gateway.order("new", "").expect_code(503, "store_unavailable");
    assert_eq!(upstream.total(), 1);
}
