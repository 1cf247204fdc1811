//! `oncely mcp --explain`: what oncely makes of each tool, and why.

use serde_json::Value;

use crate::web::{FORMS, server};
use crate::world::{Home, ONCELY, script};

fn of<'v>(views: &'v [Value], tool: &str) -> &'v Value {
    views.iter().find(|view| view["tool"].as_str().unwrap().ends_with(&format!("/{tool}"))).unwrap()
}

#[test]
fn every_tool_is_explained_and_nothing_is_called_or_recorded() {
    let home = Home::new();
    home.write(
        "oncely.toml",
        "[tool.get_time]\nkind = \"write\"\nkey = [\"zone\"]\n\n[tool.pay]\nadvertise_idempotent = true\nrequire_key = true\n\
         idempotent = true\nwhen_unknown = \"retry\"\n",
    );
    let views = home.oncely(&["mcp", "--explain", "--", "python3", script().to_str().unwrap()]);
    assert_eq!(views.len(), 20);
    let kind = |tool: &str| {
        (of(&views, tool)["kind"].as_str().unwrap(), of(&views, tool)["because"].as_str().unwrap())
    };
    assert_eq!(kind("get_time"), ("write", "policy"));
    assert_eq!(kind("balance"), ("read", "annotation"));
    assert_eq!(kind("get_paid"), ("write", "annotation"));
    assert_eq!(kind("fail"), ("write", "default"));
    assert_eq!(of(&views, "get_time")["key"], "idempotency_key, else /zone");
    assert_eq!(of(&views, "fail")["key"], "idempotency_key, else all arguments");
    assert_eq!(of(&views, "pay")["key"], "idempotency_key, required");
    assert_eq!(of(&views, "pay")["unknown"], "runs again");
    assert_eq!(of(&views, "fail")["unknown"], "is told so until a person settles it");
    assert_eq!(of(&views, "fail")["retry"], "the first result: with a key for 1d, without for 10m");
    assert_eq!(of(&views, "balance")["retry"], "asks the server again");
    assert_eq!(of(&views, "pay")["advertised_idempotent"], true);
    assert_eq!(
        (&of(&views, "keyed")["dry_run"], &of(&views, "fail")["dry_run"]),
        (&false.into(), &true.into())
    );
    assert!(home.effects().is_empty() && !home.path("ledger.db").exists());
}

#[test]
fn where_nobody_else_says_so_the_name_of_a_tool_does() {
    let home = Home::new();
    let views = home.oncely(&["mcp", "--explain", "--", "python3", script().to_str().unwrap()]);
    let time = of(&views, "get_time");
    assert_eq!((time["kind"].as_str(), time["because"].as_str()), (Some("read"), Some("name")));
}

#[test]
fn a_server_at_an_address_is_explained_too() {
    for form in FORMS {
        let home = Home::new();
        let server = server(&home, form);
        let views =
            home.oncely(&["mcp", "--explain", "--url", &format!("http://127.0.0.1:{}/mcp", server.port)]);
        assert_eq!(of(&views, "balance")["kind"], "read");
    }
}

#[test]
fn a_server_that_lists_nothing_is_said_to() {
    let home = Home::new();
    let output = home.command(ONCELY).args(["mcp", "--explain", "--", "false"]).output().unwrap();
    assert_eq!(output.status.code(), Some(4));
    assert!(String::from_utf8_lossy(&output.stderr).contains("did not list its tools"));
}
