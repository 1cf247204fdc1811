//! What the documentation shows is what happens: every `sh` block is run, and the command reference is generated.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test fails by panicking")]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

const ONCELY: &str = env!("CARGO_BIN_EXE_oncely");

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The text of all blocks marked `sh`, in order.
fn shell_blocks(markdown: &str) -> String {
    let mut script = String::new();
    let mut inside = false;
    for line in markdown.lines() {
        match (inside, line) {
            (false, "```sh") => inside = true,
            (true, "```") => inside = false,
            (true, line) => writeln!(script, "{line}").unwrap(),
            (false, _) => {}
        }
    }
    script
}

/// The ports that pages show may be taken here.
fn on_free_ports(script: String) -> String {
    let mark = |at: usize| format!("<port {at}>");
    // In two steps: a free port may contain the digits of one that is shown.
    let marked = ["9741", "9742"].iter().enumerate();
    let marked = marked.fold(script, |script, (at, shown)| script.replace(shown, &mark(at)));
    (0..2).fold(marked, |script, at| {
        script.replace(&mark(at), &oncely_testkit::servers::free_port().unwrap().to_string())
    })
}

/// Runs a page's blocks as one script, as a reader would who pastes them one after the other.
fn run_page(page: &str) {
    let script = on_free_ports(shell_blocks(&std::fs::read_to_string(root().join(page)).unwrap()));
    assert!(!script.is_empty(), "{page} shows no command");
    let home = tempfile::tempdir().unwrap();
    let path =
        format!("{}:{}", Path::new(ONCELY).parent().unwrap().display(), std::env::var("PATH").unwrap());
    let output = Command::new("bash")
        .args(["-euo", "pipefail", "-c", &script])
        .current_dir(home.path())
        .env_clear()
        .env("HOME", home.path())
        .env("PATH", path)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{page}: {}\n--- stdout\n{}\n--- stderr\n{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn the_readme_can_be_pasted() {
    run_page("README.md");
}

#[test]
fn the_page_about_run_can_be_pasted() {
    run_page("docs/run.md");
}

#[test]
fn the_page_about_mcp_can_be_pasted() {
    run_page("docs/mcp.md");
}

#[test]
fn the_page_about_score_can_be_pasted() {
    run_page("docs/score.md");
}

#[test]
fn the_page_about_serve_can_be_pasted() {
    run_page("docs/serve.md");
}

#[test]
fn the_page_about_the_admin_api_can_be_pasted() {
    run_page("docs/admin.md");
}

#[test]
fn the_page_about_redis_can_be_pasted() {
    run_page("docs/redis.md");
}

#[test]
fn every_problem_of_the_http_door_is_explained_where_its_link_leads() {
    let page = std::fs::read_to_string(root().join("docs/http.md")).unwrap();
    for code in oncely::tower::Code::ALL {
        let heading = format!("\n### {}\n", code.as_str());
        assert!(page.contains(&heading), "docs/http.md lacks {}", code.as_str());
    }
    for header in oncely::tower::REPLAYED_HEADERS {
        assert!(page.to_ascii_lowercase().contains(&format!("`{header}`")), "docs/http.md lacks {header}");
    }
}

/// The configuration on the page is accepted as it stands there.
#[test]
fn the_configuration_on_the_page_about_serve_is_right() {
    use oncely_doors::gateway::config::GatewayConfig;
    let page = std::fs::read_to_string(root().join("docs/serve.md")).unwrap();
    let text = page.split("```toml\n").nth(1).unwrap().split("```").next().unwrap();
    let policy = oncely::policy_file::PolicyFile::parse(text, "docs/serve.md").unwrap();
    let config =
        GatewayConfig::parse(text, "docs/serve.md", &policy, oncely_doors::providers::Providers::builtin());
    let config = config.unwrap_or_else(|error| panic!("{error}"));
    // What the page shows for every field is its default, unless it says otherwise.
    let defaults = GatewayConfig::default();
    assert_eq!((config.drain, config.connections_max), (defaults.drain, defaults.connections_max));
    assert_eq!(
        (config.calls_max, config.calls_per_key_max),
        (defaults.calls_max, defaults.calls_per_key_max)
    );
    assert_eq!(config.routes[0].body_max, oncely_core::limits::HTTP_BODY_BYTES);
    assert_eq!(config.routes[0].timeouts, oncely_doors::gateway::upstream::Timeouts::default());
    assert_eq!(config.patience, defaults.patience);
    let mut others = page.split("```toml\n").skip(2).map(|rest| rest.split("```").next().unwrap());
    let check = others.next().unwrap();
    let config =
        GatewayConfig::parse(check, "docs/serve.md", &policy, oncely_doors::providers::Providers::builtin());
    assert!(config.unwrap_or_else(|error| panic!("{error}")).routes[0].check.is_some());
    let otlp = oncely_doors::telemetry::OtlpSettings::parse(others.next().unwrap(), "docs/serve.md").unwrap();
    let defaults = oncely_doors::telemetry::OtlpSettings::default();
    assert_eq!((otlp.interval, otlp.sample), (defaults.interval, defaults.sample));
    assert!(otlp.endpoint.is_some() && others.next().is_none());
}

/// The names that a help text lists.
fn listed(help: &str) -> Vec<String> {
    let commands = help.lines().skip_while(|l| *l != "Commands:").skip(1).take_while(|l| !l.is_empty());
    let names = commands.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help");
    names.map(str::to_owned).collect()
}

/// What is said beyond the first line of a command's help is said where people look for it.
#[test]
fn the_help_of_a_command_says_more_than_its_first_line() {
    for (command, part) in [
        ("run", "16 outcome unknown"),
        ("mcp", "never runs again by itself"),
        ("serve", "oncely serve --listen 127.0.0.1:7300 --upstream http://127.0.0.1:9000"),
        ("ls", "the gateway has one for each of its tenants"),
        ("check", "nothing is started"),
    ] {
        let output = Command::new(ONCELY).args([command, "--help"]).env_clear().output().unwrap();
        let help = String::from_utf8(output.stdout).unwrap().replace('\n', " ");
        assert!(help.contains(part), "{command}: {help}");
    }
}

#[test]
fn the_command_reference_is_what_help_prints() {
    let help = |arguments: &[&str]| {
        let output = Command::new(ONCELY).args(arguments).env_clear().output().unwrap();
        assert!(output.status.success(), "{arguments:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let top = help(&["--help"]);
    let mut page = String::from(
        "# Commands\n\nGenerated from `--help`; rewritten by `ONCELY_BLESS=1 cargo test -p oncely-cli --test docs`.\n",
    );
    let mut section = |title: &str, text: &str| {
        let text: Vec<&str> = text.trim_end().lines().map(str::trim_end).collect();
        writeln!(page, "\n## {title}\n\n```text\n{}\n```", text.join("\n")).unwrap();
    };
    section("oncely", &top);
    for name in listed(&top) {
        let text = help(&[&name, "--help"]);
        section(&format!("oncely {name}"), &text);
        for inner in listed(&text) {
            section(&format!("oncely {name} {inner}"), &help(&[&name, &inner, "--help"]));
        }
    }
    let file = root().join("docs/cli.md");
    if std::env::var_os("ONCELY_BLESS").is_some() {
        std::fs::write(&file, &page).unwrap();
    }
    let written = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(
        written == page,
        "docs/cli.md is not what --help prints; run ONCELY_BLESS=1 cargo test -p oncely-cli --test docs"
    );
}

/// The anchors of a page's headings, as the places where it is read make them.
fn anchors(page: &str) -> Vec<String> {
    let headings = page.lines().filter(|line| line.starts_with('#'));
    let titles = headings.map(|line| line.trim_start_matches('#').trim().to_lowercase());
    let kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
    titles.map(|title| title.chars().filter(kept).collect::<String>().replace(' ', "-")).collect()
}

#[test]
fn every_link_between_pages_leads_somewhere() {
    let mut pages: Vec<PathBuf> = std::fs::read_dir(root()).unwrap().map(|e| e.unwrap().path()).collect();
    pages.extend(std::fs::read_dir(root().join("docs")).unwrap().map(|e| e.unwrap().path()));
    for page in pages.iter().filter(|p| p.extension().is_some_and(|e| e == "md")) {
        let text = std::fs::read_to_string(page).unwrap();
        for target in
            text.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target)
        {
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            if file.contains("://") {
                continue;
            }
            let leads_to = if file.is_empty() { page.clone() } else { page.parent().unwrap().join(file) };
            assert!(leads_to.exists(), "{}: {target}", page.display());
            if !anchor.is_empty() {
                let found = anchors(&std::fs::read_to_string(&leads_to).unwrap());
                assert!(found.iter().any(|at| at == anchor), "{}: {target}", page.display());
            }
        }
    }
}

/// The number that an option of a command has by default, as its help says.
fn default_of(command: &str, option: &str) -> usize {
    let output = Command::new(ONCELY).args([command, "-h"]).env_clear().output().unwrap();
    let help = String::from_utf8(output.stdout).unwrap();
    let line = help.lines().find(|line| line.contains(&format!("{option} "))).unwrap();
    line.rsplit("[default: ")
        .next()
        .and_then(|rest| rest.trim_end().strip_suffix(']'))
        .unwrap()
        .parse()
        .unwrap()
}

#[test]
fn the_page_of_limits_names_the_numbers_in_force() {
    use oncely_core::limits;
    let page = std::fs::read_to_string(root().join("docs/limits.md")).unwrap();
    for (what, number, unit) in [
        ("explicit key", limits::KEY_BYTES_MAX, "bytes"),
        ("namespace", limits::NAMESPACE_BYTES_MAX, "bytes"),
        ("scope", limits::SCOPE_BYTES_MAX, "bytes"),
        ("tool name", limits::TOOL_BYTES_MAX, "bytes"),
        ("payload, and standard input with `--stdin`", limits::PAYLOAD_BYTES_MAX, "bytes"),
        ("nesting of a JSON payload", limits::PAYLOAD_DEPTH_MAX, "levels"),
        ("result kept for a replay, both streams of a command together", limits::RESULT_BYTES_MAX, "bytes"),
        ("error, reason or doubt kept in a record", limits::TEXT_BYTES_MAX, "bytes"),
        ("fields in a tool's `key` or `ignore` list", limits::SELECTORS_MAX, "selectors"),
        ("`max_retries`", limits::RETRIES_MAX as usize, "retries"),
        ("callers that wait in one process", limits::WAITERS_MAX, "callers"),
        ("effects open in one process", limits::OPEN_CALLS_MAX, "effects"),
        ("records or events in one page of a listing", limits::PAGE_MAX, "entries"),
        (
            "output of a measured tool that is kept, each stream",
            oncely_score::limits::OUTPUT_BYTES_MAX,
            "bytes",
        ),
        ("one call of a measured tool, by default", oncely_score::limits::CALL_SECONDS as usize, "seconds"),
        ("asking a measured tool for help", oncely_score::limits::HELP_SECONDS as usize, "seconds"),
        ("times that a measured tool is asked for help", oncely_score::limits::HELPS_MAX, "times"),
        ("races in a measurement", oncely_score::limits::RACES_MAX as usize, "races"),
        ("kills in a measurement", oncely_score::limits::KILLS_MAX as usize, "kills"),
        ("tools of a measured MCP server", oncely_score::limits::TOOLS_MAX, "tools"),
        ("a line of a measured MCP server", oncely_score::limits::LINE_BYTES_MAX, "bytes"),
        ("a file with a request to measure", oncely_score::limits::REQUEST_BYTES_MAX, "bytes"),
        ("files in a sandbox", oncely_score::limits::SANDBOX_FILES_MAX, "files"),
        ("contents of a sandbox", oncely_score::limits::SANDBOX_BYTES_MAX as usize, "bytes"),
        (
            "views of a server at an address, by caller and query, that are remembered",
            oncely_doors::mcp::http::VIEWS_MAX,
            "views",
        ),
        ("the same of one caller", oncely_doors::mcp::http::VIEWS_PER_CALLER_MAX, "views"),
        (
            "sessions of `oncely mcp --listen` with a command",
            oncely_doors::mcp::http::SESSIONS_MAX,
            "sessions",
        ),
        ("connections to `oncely mcp --listen`", limits::MCP_CONNECTIONS_MAX, "connections"),
        (
            "messages that it is reading or whose sender waits, together",
            limits::MCP_BUFFERED_BYTES_MAX,
            "bytes",
        ),
        ("pause within such a message", limits::HTTP_STALL_MS as usize, "milliseconds"),
        (
            "messages that wait for one of its clients, besides the answer",
            limits::MCP_WAITING_MAX,
            "messages",
        ),
        ("bytes of them", limits::MCP_WAITING_BYTES_MAX, "bytes"),
        ("message of an MCP client or server (`--max-message`)", default_of("mcp", "--max-message"), "MiB"),
        (
            "answers of `oncely mcp` that a client over standard streams has not read",
            limits::MCP_WAITING_BYTES_MAX,
            "bytes",
        ),
        ("tools remembered of one MCP server", oncely_doors::mcp::catalog::TOOLS_MAX, "tools"),
        ("body of a guarded HTTP request, by default", limits::HTTP_BODY_BYTES, "bytes"),
        ("head of an HTTP request", limits::HTTP_HEAD_BYTES_MAX, "bytes"),
        ("guarded HTTP requests under way, by default", limits::HTTP_CALLS_MAX, "requests"),
        ("guarded HTTP requests on one key, by default", limits::HTTP_CALLS_PER_KEY_MAX, "requests"),
        (
            "bodies of guarded HTTP requests and of their answers, together",
            limits::HTTP_BUFFERED_BYTES_MAX,
            "bytes",
        ),
        ("HTTP connections, by default", limits::HTTP_CONNECTIONS_MAX, "connections"),
        ("threads that serve HTTP", oncely_doors::gateway::config::THREADS_MAX, "threads"),
        ("spans that wait for a collector", oncely_doors::telemetry::QUEUE_MAX, "spans"),
        ("body of a request to the admin API", limits::ADMIN_BODY_BYTES_MAX, "bytes"),
        ("connections to the admin API", limits::ADMIN_CONNECTIONS_MAX, "connections"),
        ("followers of the audit log over HTTP", limits::ADMIN_FEEDS_MAX, "followers"),
        ("lease that a program may ask for over HTTP", limits::REMOTE_LEASE_MS_MAX as usize, "milliseconds"),
        ("a check command", oncely_doors::command::probe::TIMEOUT.as_secs() as usize, "seconds"),
    ] {
        let row = format!("| {what} | {number} {unit} |");
        assert!(page.contains(&row), "docs/limits.md lacks {row}");
    }
}
