//! check and doctor beside `oncely serve`: one file, one opinion.

use crate::ledger::{Answered, Ledger};
use crate::terminal::on_terminal;

/// Complete in itself, so that only what is added is at fault.
const TOOL: &str = "[tool.orders]\nidempotent = false\nmax_retries = 1\nwhen_unknown = \"halt\"\n";
const ROUTE: &str = "[[route]]\nmatch = \"/**\"\nupstream = \"http://127.0.0.1:9\"\ntool = \"orders\"\n";

fn write(ledger: &Ledger, more: &str) {
    std::fs::write(ledger.path("oncely.toml"), format!("{TOOL}{ROUTE}{more}")).unwrap();
}

fn serve(ledger: &Ledger) -> Answered {
    ledger.run(&["serve", "--listen", "127.0.0.1:0", "--admin", "off"])
}

#[test]
fn what_serve_refuses_neither_check_nor_doctor_call_right() {
    let ledger = Ledger::new();
    for (more, expected) in [
        ("[[route]]\nmatch = \"a\"\nupstream = \"http://a\"\n", "oncely.toml:10:9: route[1].match"),
        ("[server]\nlisten = 5\n", "oncely.toml:10:10: server.listen"),
        ("[otlp]\nendpont = \"http://a\"\n", "oncely.toml:10:1: otlp: unknown field \"endpont\""),
        (
            "[[provider]]\nname = \"a\"\nkye = \"none\"\n",
            "oncely.toml:11:1: provider[0]: unknown field \"kye\"",
        ),
        (
            "[[admin.tokens]]\nname = \"a\"\nscope = \"all\"\nenv = \"A\"\n",
            "oncely.toml:11:9: admin.tokens[0].scope: \"all\" is not allowed",
        ),
        ("[redact]\njson = [\"card\"]\n", "oncely.toml:10:9: redact.json"),
        ("[encryption]\nkeys = \"k\"\n", "oncely.toml:10:1: encryption: unknown field \"keys\""),
    ] {
        write(&ledger, more);
        let check = ledger.error(&["check"], 2);
        let message = check["error"]["message"].as_str().unwrap();
        assert!(message.contains(expected), "{message}");
        assert_eq!(message.matches("nothing ran").count(), 1, "{message}");
        let served = serve(&ledger);
        assert_eq!((served.code, served.stderr.trim_end()), (2, format!("oncely: {message}").as_str()));
        let doctor = ledger.run(&["doctor"]);
        assert_eq!(doctor.code, 4, "{}", doctor.stdout);
        assert!(doctor.stdout.contains(&expected.replace('"', "\\\"")), "{}", doctor.stdout);
        assert!(!doctor.stdout.contains("is right"), "{}", doctor.stdout);
    }
    assert!(!ledger.path("ledger.db").exists(), "nothing was started");
}

#[test]
fn secrets_that_are_only_where_the_server_runs_are_warned_of_and_those_that_are_here_are_looked_at() {
    let ledger = Ledger::new();
    write(
        &ledger,
        "[otlp]\nendpoint = \"http://127.0.0.1:9\"\nheaders_env = \"COLLECTOR_HEADERS\"\n\
         [[admin.tokens]]\nname = \"ci\"\nscope = \"read\"\nfile = \"token\"\n\
         [server]\ntls = { cert = \"cert.pem\", key = \"key.pem\" }\n",
    );
    let warned = ledger.json(&["check"]);
    let text = warned["warnings"].to_string();
    for part in [
        "oncely.toml:11:15: otlp.headers_env: the environment variable COLLECTOR_HEADERS is not set. Where the server runs it has to be there",
        "oncely.toml:15:8: admin.tokens[0].file",
        "cert.pem is not here",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert_eq!((warned["ok"].as_bool(), warned["problems"].as_array().unwrap().len()), (Some(true), 0));
    let doctor = ledger.run(&["doctor"]);
    assert_eq!(doctor.code, 0, "{}", doctor.stdout);
    assert!(doctor.stdout.contains("COLLECTOR_HEADERS is not set"), "{}", doctor.stdout);

    std::fs::write(ledger.path("token"), "short").unwrap();
    let (code, screen) = on_terminal(&ledger, &["check"], "", &[("COLLECTOR_HEADERS", "no header")]);
    assert_eq!(code, 4, "{screen}");
    assert!(screen.contains("oncely.toml:15:8: admin.tokens[0].file: the secret of the token"), "{screen}");
    assert!(
        screen.contains("oncely.toml:11:15: otlp.headers_env: the headers for the collector"),
        "{screen}"
    );
    let doctor = ledger.run(&["doctor"]);
    assert_eq!(doctor.code, 4, "{}", doctor.stdout);

    // The server says the same, with the same place.
    let served = serve(&ledger);
    assert_eq!(served.code, 2);
    assert!(served.stderr.contains("oncely.toml:15:8: admin.tokens[0].file: the secret of the token"));
}

#[test]
fn an_admin_listener_for_everybody_is_warned_of_unless_a_token_is_there() {
    let ledger = Ledger::new();
    for (admin, token, warned) in [
        ("0.0.0.0:7301", "", true),
        ("127.0.0.1:7301", "", false),
        ("0.0.0.0:7301", "0123456789abcdef", false),
    ] {
        write(&ledger, &format!("[server]\nadmin = \"{admin}\"\n"));
        let output = ledger.command(&["check"]).env("ONCELY_ADMIN_TOKEN", token).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let said = String::from_utf8_lossy(&output.stdout)
            .contains("oncely.toml: server.admin: 0.0.0.0:7301 can be reached");
        assert_eq!(said, warned, "{output:?}");
    }
}

#[test]
fn a_tool_that_no_route_uses_is_noticed_by_check_and_by_serve() {
    let ledger = Ledger::new();
    std::fs::write(
        ledger.path("oncely.toml"),
        format!(
            "{}[server]\nlisten = \"127.0.0.1:0\"\ntls = {{ cert = \"c\", key = \"k\" }}\n{ROUTE}",
            TOOL.replace("orders", "ordres")
        ),
    )
    .unwrap();
    let expected = "oncely.toml:1: no route has the tool \"ordres\"; did you mean \"orders\"?";
    let warnings = ledger.json(&["check"])["warnings"][0].as_str().unwrap().to_owned();
    assert!(warnings.contains(expected), "{warnings}");
    // Without its certificate it does not start; it has said so before.
    let served = serve(&ledger);
    assert!(
        served.code == 2 && served.stderr.contains(&format!("warning: {}", warnings)),
        "{}",
        served.stderr
    );
}
