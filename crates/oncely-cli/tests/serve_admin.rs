//! `oncely serve` with its admin API, redaction and encryption: the real binary, and an upstream that counts in a file.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

const ONCELY: &str = env!("CARGO_BIN_EXE_oncely");
const KEYS: &str = "k1 000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n";

/// Answers every request with a card and an order, and writes a line for each into `effects`.
fn upstream(home: &Path) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let effects = home.join("effects");
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let mut length = 0;
            let mut line = String::new();
            while reader.read_line(&mut line).unwrap_or(0) > 2 {
                if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                    length = value.trim().parse().unwrap();
                }
                line.clear();
            }
            let _ = reader.read_exact(&mut vec![0; length]);
            let mut file = std::fs::File::options().append(true).create(true).open(&effects).unwrap();
            writeln!(file, "done").unwrap();
            let body = r#"{"card":"4242424242424242","order":"visible-order-1"}"#;
            let _ = write!(
                stream,
                "HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nETag: secret-tag\r\nContent-Length: {}\r\n\
                 Connection: close\r\n\r\n{body}",
                body.len()
            );
        }
    });
    address
}

struct Serving {
    child: Child,
    listening: SocketAddr,
    admin: SocketAddr,
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn oncely(home: &Path) -> Command {
    let mut command = Command::new(ONCELY);
    command.env_clear().env("HOME", home).current_dir(home);
    command.arg("--store").arg(home.join("ledger").join("ledger.db"));
    command
}

fn serve(home: &Path, environment: &[(&str, &str)]) -> Serving {
    let mut command = oncely(home);
    command.args(["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]);
    let mut child = command.envs(environment.iter().copied()).stdout(Stdio::piped()).spawn().unwrap();
    let mut ready = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut ready).unwrap();
    let ready: Value = serde_json::from_str(&ready).unwrap();
    let address = |name: &str| ready[name].as_str().unwrap().rsplit_once('/').unwrap().1.parse().unwrap();
    Serving { child, listening: address("listening"), admin: address("admin") }
}

/// Status, head and body of the answer.
fn send(to: SocketAddr, head: &str, body: &str) -> (u16, String, String) {
    let mut stream = TcpStream::connect(to).unwrap();
    let length = body.len();
    write!(stream, "{head}Host: {to}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}")
        .unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), head.to_ascii_lowercase(), body.to_owned())
}

const ORDER: &str = "POST /orders HTTP/1.1\r\nIdempotency-Key: order-1\r\nAuthorization: Bearer a\r\nContent-Type: application/json\r\n";

fn home(config: &str) -> TempDir {
    let home = tempfile::tempdir().unwrap();
    let upstream = upstream(home.path());
    let route = format!("[[route]]\nmatch = \"/**\"\nupstream = \"http://{upstream}\"\n");
    std::fs::write(home.path().join("oncely.toml"), format!("{config}{route}")).unwrap();
    home
}

fn effects(home: &Path) -> usize {
    std::fs::read_to_string(home.join("effects")).map_or(0, |text| text.lines().count())
}

fn ledger_holds(home: &Path, wanted: &str) -> bool {
    let files = std::fs::read_dir(home.join("ledger")).unwrap().map(|entry| entry.unwrap().path());
    let bytes: Vec<u8> =
        files.filter(|path| path.is_file()).flat_map(|path| std::fs::read(path).unwrap()).collect();
    bytes.windows(wanted.len()).any(|window| window == wanted.as_bytes())
}

#[test]
fn the_admin_api_tells_what_the_gateway_did() {
    let home = home("");
    let serving = serve(home.path(), &[]);
    assert_eq!(send(serving.listening, ORDER, "{}").0, 201);
    let (status, head, _) = send(serving.listening, ORDER, "{}");
    assert_eq!(status, 201);
    assert!(head.contains("idempotent-replayed: true"), "{head}");
    assert_eq!(effects(home.path()), 1);
    let get = |path: &str| send(serving.admin, &format!("GET {path} HTTP/1.1\r\n"), "").2;
    let stats: Value = serde_json::from_str(&get("/v1/stats")).unwrap();
    assert_eq!(stats["totals"]["duplicates_prevented"], 1);
    let metrics = get("/metrics");
    for line in
        ["oncely_http_requests_total{way=\"guarded\"} 2", "verdict=\"replayed\"} 1", "oncely_store_seconds"]
    {
        assert!(metrics.contains(line), "{line} in {metrics}");
    }
    // The upstream's paths are not shadowed: the gateway knows no /metrics of its own.
    assert_eq!(send(serving.listening, "GET /metrics HTTP/1.1\r\n", "").0, 201);
    assert_eq!(effects(home.path()), 2);
}

#[test]
fn the_policy_of_a_route_is_told_as_its_requests_meet_it() {
    let home = home(
        "[[route]]\nmatch = \"/stripe/**\"\nupstream = \"http://127.0.0.1:9\"\nprovider = \"stripe\"\ntool = \"pay\"\n\
         methods = [\"POST\", \"PUT\"]\nrequire_key = true\n[tool.pay]\nmax_retries = 7\n",
    );
    let serving = serve(home.path(), &[]);
    let get = |path: &str| -> Value {
        let (status, _, body) = send(serving.admin, &format!("GET {path} HTTP/1.1\r\n"), "");
        assert_eq!(status, 200, "{body}");
        serde_json::from_str(&body).unwrap()
    };
    let told = get("/v1/policy");
    let [stripe, rest] = told["routes"].as_array().unwrap().as_slice() else { panic!("{told}") };
    assert_eq!((&stripe["match"], &stripe["tool"]), (&"/stripe/**".into(), &"pay".into()));
    assert_eq!((&stripe["provider"], &stripe["compares_credential"]), (&"stripe".into(), &false.into()));
    assert_eq!(stripe["methods"], serde_json::json!(["POST", "PUT"]));
    // Stripe remembers a key for a day; a minute less for the way there.
    let keyed = &stripe["keyed"]["policy"];
    assert_eq!(
        (&keyed["when_unknown"], &keyed["forwards_key_for_ms"]),
        (&"retry".into(), &86_340_000.into())
    );
    // It takes none with a PUT, whatever the tool says.
    let plain = &stripe["plain"]["policy"];
    assert_eq!((&plain["when_unknown"], &plain["forwards_key_for_ms"]), (&"halt".into(), &Value::Null));
    for (part, method) in [("keyed", "POST"), ("plain", "PUT")] {
        let part = &stripe[part];
        assert_eq!(part["methods"], serde_json::json!([method]));
        let policy = &part["policy"];
        assert_eq!((&policy["require_key"], &policy["max_retries"]), (&true.into(), &7.into()));
        assert_eq!((&policy["tool"], &policy["declared"]), (&"pay".into(), &"pay".into()));
    }
    // The tool itself declares none of that.
    assert_eq!(
        (&told["tools"][0]["when_unknown"], &told["tools"][0]["require_key"]),
        (&"halt".into(), &false.into())
    );
    assert_eq!((&rest["provider"], &rest["keyed"]), (&Value::Null, &Value::Null));
    assert_eq!(rest["plain"]["methods"], serde_json::json!(["POST", "PATCH"]));
    let told = get("/v1/policy?tool=pay");
    assert_eq!(told["routes"].as_array().unwrap().len(), 1, "{told}");
}

/// Processor time that a process has used, in ticks of the kernel.
fn ticks(process: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    [fields[11], fields[12]].iter().map(|field| field.parse::<u64>().unwrap()).sum()
}

/// Whether a connection that does not block is open, and has nothing to say.
fn is_silent(mut connection: &TcpStream) -> bool {
    connection.read(&mut [0; 1]).is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
}

#[test]
fn a_look_through_the_ledger_that_never_ends_keeps_nobody_from_the_gateway() {
    let home = home("");
    let mut serving = serve(home.path(), &[]);
    assert_eq!(send(serving.listening, ORDER, "{}").0, 201);
    // From now on whoever lists records counts for ever.
    let ledger = rusqlite::Connection::open(home.path().join("ledger").join("ledger.db")).unwrap();
    ledger.busy_timeout(std::time::Duration::from_secs(60)).unwrap();
    ledger
        .execute_batch(
            "BEGIN IMMEDIATE; ALTER TABLE tool RENAME TO tools_there;
             CREATE VIEW tool AS
               WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)
               SELECT t.id, t.namespace, t.name FROM n CROSS JOIN tools_there t WHERE n.i < 0;
             COMMIT;",
        )
        .unwrap();
    let mut listing = TcpStream::connect(serving.admin).unwrap();
    listing.set_nonblocking(true).unwrap();
    write!(listing, "GET /v1/records?tool=x* HTTP/1.1\r\nHost: {}\r\n\r\n", serving.admin).unwrap();
    for number in 1..=5 {
        // It is at work: nothing else uses the processor for so long.
        let before = ticks(serving.child.id());
        while ticks(serving.child.id()) < before + 10 {
            assert!(is_silent(&listing), "the listing has come to an end");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let mut client = TcpStream::connect(serving.listening).unwrap();
        client.set_read_timeout(Some(std::time::Duration::from_secs(60))).unwrap();
        write!(client, "GET /orders HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", serving.listening)
            .unwrap();
        let mut answer = [0; 12];
        client.read_exact(&mut answer).expect("the gateway answers meanwhile");
        assert_eq!(&answer, b"HTTP/1.1 201", "client {number}");
    }
    assert!(is_silent(&listing), "the listing has come to an end");
    // Nor does it keep the process from ending.
    let number = serving.child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &number]).status().unwrap().success());
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(180);
    while serving.child.try_wait().unwrap().is_none() {
        assert!(std::time::Instant::now() < deadline, "it waits for the listing");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

#[test]
fn what_is_redacted_is_never_stored_and_the_rest_is_encrypted() {
    let home =
        home("[redact]\njson = [\"/card\"]\nheaders = [\"etag\"]\n[encryption]\nkeys_file = \"keys\"\n");
    std::fs::write(home.path().join("keys"), KEYS).unwrap();
    let serving = serve(home.path(), &[]);
    let (_, head, first) = send(serving.listening, ORDER, "{}");
    assert!(first.contains("4242") && head.contains("secret-tag"), "the first caller gets it all: {first}");
    drop(serving);

    let serving = serve(home.path(), &[]);
    let (status, head, again) = send(serving.listening, ORDER, "{}");
    assert_eq!((status, effects(home.path())), (201, 1), "{again}");
    let again: Value = serde_json::from_str(&again).unwrap();
    assert_eq!(again, serde_json::json!({ "card": "[redacted]", "order": "visible-order-1" }));
    assert!(!head.contains("secret-tag"), "{head}");
    drop(serving);
    for secret in ["4242424242424242", "secret-tag", "visible-order-1"] {
        assert!(!ledger_holds(home.path(), secret), "{secret}");
    }
    assert!(ledger_holds(home.path(), "order-1"), "the key is readable");

    // Without the key: nothing is replayed, nothing runs.
    std::fs::write(home.path().join("keys"), KEYS.replace("k1", "k2")).unwrap();
    let serving = serve(home.path(), &[]);
    let (status, _, body) = send(serving.listening, ORDER, "{}");
    assert_eq!((status, effects(home.path())), (503, 1), "{body}");
}

#[test]
fn every_command_uses_the_keys_and_no_command_tells_encrypted_bytes_for_a_result() {
    let home = tempfile::tempdir().unwrap();
    let run = |keys: Option<&str>| {
        let mut command = oncely(home.path());
        command.args([
            "run",
            "--key",
            "k",
            "--",
            "sh",
            "-c",
            "echo done >> effects; echo very-secret-output",
        ]);
        if let Some(keys) = keys {
            command.env("ONCELY_ENCRYPTION_KEYS", keys);
        }
        let output = command.output().unwrap();
        (output.status.code().unwrap(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    assert_eq!(run(Some(KEYS)), (0, "very-secret-output\n".to_owned()));
    assert_eq!(run(Some(KEYS)), (0, "very-secret-output\n".to_owned()));
    assert!(!ledger_holds(home.path(), "very-secret-output"));
    let (code, stdout) = run(None);
    assert_eq!((code, stdout.as_str()), (12, ""));
    assert_eq!(run(Some("k1 00")).0, 2, "bad keys are bad arguments");
    assert_eq!(effects(home.path()), 1);
    let listed = oncely(home.path()).args(["ls", "--json"]).output().unwrap();
    assert!(String::from_utf8_lossy(&listed.stdout).contains("succeeded"), "names need no key");
}

#[test]
fn tokens_come_from_the_environment_a_file_or_the_configuration_and_never_from_the_command_line() {
    let home = home("[[admin.tokens]]\nname = \"ci\"\nscope = \"read\"\nfile = \"ci-token\"\n");
    std::fs::write(home.path().join("ci-token"), "ci-0123456789abcdef\n").unwrap();
    let serving = serve(home.path(), &[("ONCELY_ADMIN_TOKEN", "admin-0123456789abc")]);
    let purge = |token: &str| {
        let head = format!(
            "POST /v1/purge HTTP/1.1\r\nContent-Type: application/json\r\nAuthorization: Bearer {token}\r\n"
        );
        send(serving.admin, &head, "{}").0
    };
    assert_eq!(purge("admin-0123456789abc"), 200);
    assert_eq!(purge("ci-0123456789abcdef"), 403);
    assert_eq!(purge("wrong-0123456789abc"), 401);
    drop(serving);
    let refused = |arguments: &[&str], environment: &[(&str, &str)]| {
        let mut command = oncely(home.path());
        command.args(["serve", "--listen", "127.0.0.1:0"]).args(arguments).envs(environment.iter().copied());
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let said = refused(&["--admin", "127.0.0.1:0"], &[("ONCELY_ADMIN_TOKEN", "short-secret")]);
    assert!(said.contains("16 to 512") && !said.contains("short-secret"), "{said}");
    std::fs::write(home.path().join("oncely.toml"), "").unwrap();
    let said = refused(&["--admin", "0.0.0.0:0", "--upstream", "http://127.0.0.1:9"], &[]);
    assert!(said.contains("no token is set"), "{said}");
    let said = refused(&["--admin", "everywhere", "--upstream", "http://127.0.0.1:9"], &[]);
    assert!(said.contains("\"off\""), "{said}");
}
