//! `oncely mcp install`: a client's configuration, there and back.

use std::os::unix::fs::PermissionsExt;
use std::process::Output;

use serde_json::Value;

use crate::world::{Home, ONCELY};

const CONFIG: &str = "{\n  // mine\n  \"mcpServers\": {\n    \"pay\": { \"command\": \"npx\", \"args\": [\"-y\", \"x\"], \"env\": {\"A\": \"1\"} },\n    \
                      \"far\": { \"url\": \"https://x/mcp\" }\n  },\n  \"big\": 12345678901234567890\n}\n";

fn install(home: &Home, arguments: &[&str]) -> Output {
    home.command(ONCELY).args(["mcp", "install"]).args(arguments).output().unwrap()
}

#[test]
fn servers_are_put_behind_oncely_and_taken_out_again_to_the_byte() {
    let home = Home::new();
    home.write(".mcp.json", CONFIG);
    std::fs::set_permissions(home.path(".mcp.json"), std::fs::Permissions::from_mode(0o600)).unwrap();
    let output = install(&home, &["--client", "claude-code", "--yes"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    assert!(
        said.contains("- npx -y x") && said.contains(" -- npx -y x") && said.contains("far: left"),
        "{said}"
    );
    let after = home.read(".mcp.json");
    let name =
        after.split("\"--name\", \"").nth(1).and_then(|rest| rest.split('"').next()).unwrap().to_owned();
    assert!(name.starts_with("pay-"), "{name}");
    let wrapped =
        format!("\"{ONCELY}\", \"args\": [\"mcp\", \"--name\", \"{name}\", \"--\", \"npx\", \"-y\"");
    let expected = CONFIG.replace("\"npx\", \"args\": [\"-y\"", &wrapped);
    assert_eq!(after, expected);
    assert_eq!(home.read(".mcp.json.before-oncely"), CONFIG);
    for file in [".mcp.json", ".mcp.json.before-oncely"] {
        assert_eq!(std::fs::metadata(home.path(file)).unwrap().permissions().mode() & 0o777, 0o600, "{file}");
    }
    // Again changes nothing.
    let report = home.oncely(&["mcp", "install", "--client", "claude-code", "--yes", "--json"]);
    assert_eq!(report[0]["changed"], Value::Array(Vec::new()));
    assert!(install(&home, &["--client", "claude-code", "--undo", "--yes"]).status.success());
    assert_eq!(home.read(".mcp.json"), CONFIG);
    // A copy of that, too, beside the one from before.
    assert_eq!(
        (home.read(".mcp.json.before-undo"), home.read(".mcp.json.before-oncely")),
        (after, CONFIG.into())
    );
}

#[test]
fn options_that_were_written_by_hand_are_never_lost_on_the_way_back() {
    let home = Home::new();
    let by_hand = r#"{"mcpServers":{"pay":{"command":"oncely","args":["--store","x.db","mcp","--name","live","--drain","2m","--","y"]}}}"#;
    home.write("c.json", by_hand);
    let output = install(&home, &["--client", "cursor", "--file", "c.json", "--undo", "--yes"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        output.status.success() && said.contains("pay: left as it is") && said.contains("by hand"),
        "{said}"
    );
    assert_eq!(home.read("c.json"), by_hand);
    assert!(!home.path("c.json.before-undo").exists());
}

#[test]
fn whoever_is_asked_sees_what_about_even_if_the_report_is_json() {
    let home = Home::new();
    home.write("c.json", CONFIG);
    // Gives it a terminal, answers the question, and hands its output on.
    let terminal = "import os, pty, sys\n\
                    pid, end = pty.fork()\n\
                    if pid == 0: os.execvp(sys.argv[1], sys.argv[1:])\n\
                    said = b''\n\
                    while b'Change it?' not in said: said += os.read(end, 4096)\n\
                    os.write(end, b'y\\n')\n\
                    while True:\n    \
                        try: piece = os.read(end, 4096)\n    \
                        except OSError: break\n    \
                        if not piece: break\n    \
                        said += piece\n\
                    os.waitpid(pid, 0)\n\
                    sys.stdout.write(said.decode())\n";
    home.write("terminal.py", terminal);
    let mut command = home.command("python3");
    command.args([
        "terminal.py",
        ONCELY,
        "mcp",
        "install",
        "--client",
        "cursor",
        "--file",
        "c.json",
        "--json",
    ]);
    let said = String::from_utf8(command.output().unwrap().stdout).unwrap();
    let asked = said.find("Change it?").unwrap_or_else(|| panic!("{said}"));
    assert!(said[..asked].contains("- npx -y x") && said[..asked].contains(" -- npx -y x"), "{said}");
    assert!(said[asked..].contains("\"changed\":[\"pay\"]"), "{said}");
    assert!(home.read("c.json").contains("\"--\", \"npx\""));
}

#[test]
fn what_was_changed_since_survives_the_way_back() {
    let home = Home::new();
    home.write(".mcp.json", CONFIG);
    install(&home, &["--client", "claude-code", "--yes"]);
    let since = home.read(".mcp.json").replace("\"A\": \"1\"", "\"A\": \"2\"");
    home.write(".mcp.json", &since);
    assert!(install(&home, &["--client", "claude-code", "--undo", "--yes"]).status.success());
    assert_eq!(home.read(".mcp.json"), CONFIG.replace("\"A\": \"1\"", "\"A\": \"2\""));
}

#[test]
fn each_client_is_found_where_it_keeps_its_servers() {
    for (client, file, field) in [
        ("claude-code", ".claude.json", "mcpServers"),
        ("claude-desktop", ".config/Claude/claude_desktop_config.json", "mcpServers"),
        ("cursor", ".cursor/mcp.json", "mcpServers"),
        ("vscode", ".vscode/mcp.json", "servers"),
        ("vscode", ".config/Code/User/mcp.json", "servers"),
    ] {
        let home = Home::new();
        std::fs::create_dir_all(home.path(file).parent().unwrap()).unwrap();
        home.write(file, &CONFIG.replace("mcpServers", field));
        let output = install(&home, &["--client", client, "--yes"]);
        assert!(output.status.success(), "{client}: {}", String::from_utf8_lossy(&output.stderr));
        assert!(home.read(file).contains("\"--\", \"npx\""), "{client}");
    }
}

#[test]
fn without_a_yes_or_a_file_that_can_be_read_nothing_changes() {
    let home = Home::new();
    assert_eq!(install(&home, &["--client", "cursor", "--yes"]).status.code(), Some(4));
    home.write("c.json", CONFIG);
    let asked = install(&home, &["--client", "cursor", "--file", "c.json"]);
    assert_eq!(asked.status.code(), Some(2));
    let said = String::from_utf8_lossy(&asked.stderr);
    assert!(said.contains("--yes"), "{said}");
    // What would change is shown first.
    assert!(said.contains("- npx -y x") && said.contains(" -- npx -y x"), "{said}");
    assert_eq!(
        install(&home, &["--client", "cursor", "--file", "c.json", "--server", "no", "--yes"]).status.code(),
        Some(4)
    );
    assert_eq!(home.read("c.json"), CONFIG);
    home.write("bad.json", "{ \"mcpServers\": ");
    assert_eq!(install(&home, &["--client", "cursor", "--file", "bad.json", "--yes"]).status.code(), Some(4));
    assert_eq!(home.read("bad.json"), "{ \"mcpServers\": ");
    assert!(!home.path("c.json.before-oncely").exists());
}

#[test]
fn servers_that_claude_code_keeps_for_one_project_are_changed_in_that_project_only() {
    let home = Home::new();
    let here = home.path("").canonicalize().unwrap();
    let here = here.to_str().unwrap();
    let config = format!(
        "{{\"projects\": {{\"{here}\": {{\"mcpServers\": {{\"pay\": {{\"command\": \"npx\", \"args\": []}}}}}},\n\
         \"/other\": {{\"mcpServers\": {{\"pay\": {{\"command\": \"npx\", \"args\": []}}}}}}}}}}\n"
    );
    home.write(".claude.json", &config);
    assert!(install(&home, &["--client", "claude-code", "--yes"]).status.success());
    let (first, second) =
        (home.read(".claude.json"), "\"/other\": {\"mcpServers\": {\"pay\": {\"command\": \"npx\"");
    assert!(first.contains("\"--\", \"npx\"]") && first.contains(second), "{first}");
    assert_eq!(first.matches("\"--name\"").count(), 1);
    assert!(install(&home, &["--client", "claude-code", "--undo", "--yes"]).status.success());
    assert_eq!(home.read(".claude.json"), config);
}

#[test]
fn a_file_that_is_read_only_stays_as_it_is_and_a_link_stays_a_link() {
    let home = Home::new();
    home.write("real.json", &format!("\u{feff}{CONFIG}"));
    std::os::unix::fs::symlink("real.json", home.path("link.json")).unwrap();
    let mode =
        |mode: u32| std::fs::set_permissions(home.path("real.json"), std::fs::Permissions::from_mode(mode));
    mode(0o444).unwrap();
    let refused = install(&home, &["--client", "cursor", "--file", "link.json", "--yes"]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(4), "{said}");
    assert!(said.contains("read-only") && said.contains("nothing was changed"), "{said}");
    assert_eq!(home.read("real.json"), format!("\u{feff}{CONFIG}"));
    mode(0o644).unwrap();
    assert!(install(&home, &["--client", "cursor", "--file", "link.json", "--yes"]).status.success());
    assert!(home.path("link.json").is_symlink());
    // What an editor put before everything else stays, too.
    assert!(
        home.read("real.json").starts_with("\u{feff}{") && home.read("real.json").contains("\"--\", \"npx\"")
    );
}
