//! Endpoints that keep the contract of a dialect, and endpoints that break it in one way each.

mod shop;

use std::net::{SocketAddr, TcpListener};

use shop::{Dialect, Fault, open};

use crate::place::{Place, Report};

const ORDER: &str = "POST /orders HTTP/1.1\nContent-Type: application/json\nAuthorization: Bearer s3cret\n\n{\"amount\": 100}\n";

fn measured(dialect: Dialect, fault: Fault, expected: &str, counted: bool) -> Report {
    let place = Place::new();
    let shop = open(dialect, fault, place.path("orders"));
    place.write("order.http", ORDER);
    let url = shop.url();
    let mut arguments =
        vec!["http", "--allow-effects", "--url", &url, "--request", "order.http", "--dialect", expected];
    if counted {
        arguments.extend(["--count", "wc -l < orders"]);
    }
    let report = place.report(&arguments);
    assert!(!format!("{report:?}").contains("s3cret"), "a secret of the request is in the report");
    report
}

#[test]
fn a_good_endpoint_earns_3_in_its_own_dialect() {
    for (dialect, name) in
        [(Dialect::Default, "default"), (Dialect::Ietf, "ietf"), (Dialect::Stripe, "stripe")]
    {
        let report = measured(dialect, Fault::None, name, true);
        report.expect(
            3,
            &[("repeat", "holds"), ("mismatch", "holds"), ("at_once", "holds"), ("problem", "holds")],
        );
        let optional = if dialect == Dialect::Stripe { "not_applicable" } else { "holds" };
        let marked = if dialect == Dialect::Ietf { "not_applicable" } else { "holds" };
        report.expect(3, &[("missing_key", optional), ("replay_told", marked), ("malformed_key", "holds")]);
    }
    // Blocking the second request until the first is done is as good as refusing it.
    measured(Dialect::Default, Fault::Waits, "default", true).expect(3, &[("at_once", "holds")]);
}

#[test]
fn each_fault_costs_what_it_breaks() {
    for (fault, score, row, status) in [
        // The repeat placed a second order: nothing is left.
        (Fault::IgnoresKeys, 0, "repeat", "fails"),
        // A 2 needs a refusal of another payload under the same key; it was answered with the first result.
        (Fault::NoFingerprint, 1, "mismatch", "fails"),
        // A 2 needs one effect in a race; two orders were counted.
        (Fault::LooksThenLeaps, 1, "at_once", "fails"),
        // A 2 needs the first answer again; the repeat was refused.
        (Fault::RefusesRepeats, 1, "same_answer", "fails"),
        // What a 3 needs and a 2 does not.
        (Fault::NoMark, 2, "replay_told", "fails"),
        (Fault::PlainErrors, 2, "problem", "fails"),
        (Fault::KeyOptional, 2, "missing_key", "fails"),
        (Fault::AnyKey, 2, "malformed_key", "fails"),
        (Fault::HangsUp, 2, "malformed_key", "fails"),
    ] {
        let report = measured(Dialect::Default, fault, "default", true);
        report.expect(score, &[(row, status)]);
    }
}

#[test]
fn the_right_refusal_in_the_wrong_dialect_is_half_right() {
    let report = measured(Dialect::Ietf, Fault::None, "default", true);
    report.expect(2, &[("mismatch", "partly"), ("replay_told", "fails")]);
    assert!(
        report.evidence("mismatch").contains("422") && report.evidence("mismatch").contains("wanted 409")
    );
}

#[test]
fn without_a_count_answers_are_compared_and_alike_ones_prove_nothing() {
    let report = measured(Dialect::Default, Fault::None, "default", false);
    report.expect(2, &[("repeat", "holds"), ("missing_key", "partly"), ("at_once", "partly")]);
    assert!(report.0["notes"][0].as_str().unwrap().contains("nothing was counted"));
    // An endpoint that answered as it should is told to be counted, not to do what it does already.
    for raise in report.0["raise"].as_array().unwrap() {
        assert!(raise["advice"].as_str().unwrap().contains("--count"), "{raise}");
    }
    // A server that acts every time and answers from its memory is not found out by its answers: so no 3 without a count.
    measured(Dialect::Default, Fault::ActsAnyway, "default", false).expect(2, &[("repeat", "holds")]);
    measured(Dialect::Default, Fault::ActsAnyway, "default", true).expect(0, &[("repeat", "fails")]);
    measured(Dialect::Default, Fault::IgnoresKeys, "default", false).expect(0, &[("repeat", "fails")]);
    let alike = measured(Dialect::Default, Fault::AnswersAlike, "default", false);
    alike.expect(0, &[("repeat", "not_measured")]);
    assert_eq!(alike.at_most(), 2);
}

#[test]
fn without_leave_only_options_is_sent() {
    let place = Place::new();
    let shop = open(Dialect::Default, Fault::None, place.path("orders"));
    place.write("order.http", ORDER);
    let report = place.report(&["http", "--url", &shop.url(), "--request", "order.http"]);
    assert_eq!((report.score(), report.at_most()), (0, 3));
    assert_eq!((shop.methods(), place.orders()), (vec!["OPTIONS".to_owned()], 0));
    assert!(report.0["notes"][1].as_str().unwrap().contains("a browser may send Idempotency-Key"));
}

#[test]
fn another_payload_can_stand_in_the_file() {
    let place = Place::new();
    let shop = open(Dialect::Default, Fault::None, place.path("orders"));
    let text = "POST /orders\n\n{\"to\": \"ann\"}\n###\nPOST /orders\n\n{\"to\": \"bob\"}\n";
    place.write("order.http", text);
    let url = shop.url();
    let options = ["http", "--allow-effects", "--count", "wc -l < orders", "--url", &url, "--races", "1"];
    let arguments = [&options[..], &["--request", "order.http"]].concat();
    place.report(&arguments).expect(3, &[("mismatch", "holds")]);
    // Without it, and without a quantity or {n}, nobody is addressed whom the user did not name.
    place.write("order.http", "POST /orders\n\n{\"to\": \"ann\"}\n");
    place.write("orders", "");
    place.report(&arguments).expect(1, &[("mismatch", "not_measured")]);
    assert!(!std::fs::read_to_string(place.path("orders")).unwrap().contains("bob"));
    // A payload that is refused whatever its key shows nothing about keys.
    place.write("order.http", "POST /orders\n\n{\"to\": \"ann\"}\n###\nPOST /orders\n\nnonsense\n");
    place.report(&arguments).expect(1, &[("mismatch", "not_measured")]);
}

#[test]
fn an_endpoint_that_cannot_be_used_gives_no_score() {
    let place = Place::new();
    place.write("order.http", ORDER);
    // A port on which nobody listens, and one on which nobody answers.
    let gone = SocketAddr::from(([127, 0, 0, 1], oncely_testkit::servers::free_port().unwrap()));
    let deaf = TcpListener::bind("127.0.0.1:0").unwrap();
    for address in [gone, deaf.local_addr().unwrap()] {
        let url = format!("http://{address}");
        let arguments =
            ["score", "http", "--allow-effects", "--timeout", "1s", "--url", &url, "--request", "order.http"];
        let output = place.run(&arguments);
        assert_eq!(output.status.code(), Some(4), "{output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("There is no score"), "{output:?}");
    }
    // An endpoint that refuses the request altogether has not shown anything.
    let shop = open(Dialect::Default, Fault::None, place.path("orders"));
    let report = place.report(&[
        "http",
        "--allow-effects",
        "--url",
        &shop.url(),
        "--request",
        "order.http",
        "--key-header",
        "X-Other",
    ]);
    assert_eq!((report.score(), report.status("repeat")), (0, "not_measured"));
    assert!(report.evidence("repeat").contains("did not succeed: 400"));
}

#[test]
fn an_endpoint_behind_tls_is_measured_if_its_certificate_is_trusted() {
    let place = Place::new();
    place.write("order.http", ORDER);
    place.sh(
        "openssl req -x509 -newkey rsa:2048 -nodes -keyout key.pem -out cert.pem -days 2 -subj /CN=localhost \
         -addext subjectAltName=DNS:localhost -addext basicConstraints=critical,CA:FALSE 2>/dev/null",
        &[],
    );
    let mut server = Tls::start(&place);
    let url = format!("https://localhost:{}", server.port());
    let arguments =
        ["score", "http", "--allow-effects", "--url", &url, "--request", "order.http", "--races", "1"];
    let stranger = place.run(&arguments);
    assert_eq!(stranger.status.code(), Some(4));
    assert!(String::from_utf8_lossy(&stranger.stderr).contains("certificate"), "{stranger:?}");
    assert_eq!(place.orders(), 0, "nothing reaches an endpoint that is not trusted");
    let mut trusting = place.command(&arguments, &[]);
    let output = trusting.env("SSL_CERT_FILE", place.path("cert.pem")).output().unwrap();
    let report = Report(serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}")));
    // It knows nothing of keys: every request is an order.
    report.expect(0, &[("repeat", "fails")]);
    assert!(place.orders() > 1);
}

/// A server behind TLS that takes every order; ended when dropped.
struct Tls(std::process::Child);

impl Tls {
    fn start(place: &Place) -> Self {
        let child = std::process::Command::new("python3")
            .arg(crate::place::shop("tls.py"))
            .current_dir(place.path("."))
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::null())
            .spawn();
        Self(child.unwrap())
    }

    /// The server says its port when it is ready.
    fn port(&mut self) -> u16 {
        let mut line = String::new();
        let mut output = std::io::BufReader::new(self.0.stdout.take().unwrap());
        std::io::BufRead::read_line(&mut output, &mut line).unwrap();
        line.trim().parse().unwrap()
    }
}

impl Drop for Tls {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}
