//! What the policy file says about tools of MCP servers.

use serde_json::json;

use crate::world::{Home, code, text};

#[test]
fn the_policy_wins_over_the_servers_own_hints() {
    let home = Home::new();
    home.write(
        "oncely.toml",
        "[tool.balance]\nkind = \"write\"\n\n[tool.\"mcp:*/get_paid\"]\nkind = \"read\"\n",
    );
    let mut client = home.ready();
    assert_eq!(
        client.call("balance", json!({}))["content"][0],
        client.call("balance", json!({}))["content"][0]
    );
    for _ in 0..2 {
        client.call("get_paid", json!({}));
    }
    drop(client);
    assert_eq!(home.effects().len(), 2);
}

#[test]
fn errors_can_be_declared_to_prove_that_nothing_happened() {
    let home = Home::new();
    home.write("oncely.toml", "[tool.fail]\nrejected_when = [\"Insufficient funds*\"]\n");
    let mut client = home.ready();
    for _ in 0..2 {
        client.call("fail", json!({ "text": "Insufficient funds: 3 EUR" }));
    }
    client.call("fail", json!({ "text": "boom" }));
    assert_eq!(code(&client.call("fail", json!({ "text": "boom" }))), "OUTCOME_UNKNOWN");
    drop(client);
    assert_eq!(home.effects().len(), 3);
}

#[test]
fn a_spent_budget_repeats_the_servers_own_words() {
    let home = Home::new();
    home.write("oncely.toml", "[tool.fail]\nis_error = \"rejected\"\nmax_retries = 1\n");
    let mut client = home.ready();
    for _ in 0..3 {
        let result = client.call("fail", json!({ "text": "declined" }));
        assert_eq!(text(&result, 0), "declined");
    }
    drop(client);
    assert_eq!(home.effects().len(), 2);
}

#[test]
fn how_a_replay_says_that_it_is_one_can_be_chosen() {
    for (annotate, texts, meta) in [("text", 2, true), ("meta", 1, true), ("off", 1, false)] {
        let home = Home::new();
        home.write("oncely.toml", &format!("[defaults]\nannotate = \"{annotate}\"\n"));
        let mut client = home.ready();
        let first = client.call("pay", json!({ "amount": 1 }));
        let again = client.call("pay", json!({ "amount": 1 }));
        assert_eq!(again["content"].as_array().unwrap().len(), texts, "{annotate}");
        assert_eq!(again["_meta"].get("dev.oncely/replayed").is_some(), meta, "{annotate}");
        if annotate == "off" {
            assert_eq!(again, first);
        }
    }
}

#[test]
fn a_tool_can_be_listed_as_idempotent_and_without_a_dry_run() {
    let home = Home::new();
    home.write("oncely.toml", "[tool.pay]\nadvertise_idempotent = true\ndry_run = false\n");
    let mut client = home.ready();
    let listed = client.request("tools/list", json!({}))["result"]["tools"].clone();
    let pay = &listed[0];
    assert_eq!(pay["annotations"]["idempotentHint"], true);
    assert!(pay["inputSchema"]["properties"].get("dry_run").is_none());
    assert!(listed[4]["annotations"].get("idempotentHint").is_none());
    client.call("pay", json!({ "amount": 1, "dry_run": true }));
    drop(client);
    assert_eq!(home.effects(), ["pay 1"], "it is an argument like any other then");
}

#[test]
fn key_fields_are_the_intent() {
    let home = Home::new();
    home.write("oncely.toml", "[tool.pay]\nkey = [\"amount\"]\n");
    let mut client = home.ready();
    home.raise("x");
    client.call("pay", json!({ "amount": 1 }));
    client.call("pay", json!({ "amount": 1, "until": "x" }));
    assert_eq!(code(&client.call("pay", json!({ "until": "x" }))), "BAD_PAYLOAD");
    drop(client);
    assert_eq!(home.effects(), ["pay 1"]);
}

#[test]
fn a_strict_policy_refuses_write_tools_that_it_does_not_declare() {
    let home = Home::new();
    home.write("oncely.toml", "strict = true\n[tool.pay]\nmax_retries = 1\n");
    let mut client = home.ready();
    assert_eq!(code(&client.call("fail", json!({}))), "TOOL_UNDECLARED");
    assert_eq!(text(&client.call("pay", json!({ "amount": 1 })), 0), "paid 1, effect 1");
    assert!(client.call("balance", json!({}))["isError"].is_null(), "reads need no declaration");
    drop(client);
    assert_eq!(home.effects(), ["pay 1"]);
}

#[test]
fn a_check_settles_an_unknown_outcome_when_the_server_is_gone() {
    let home = Home::new();
    let check = "[tool.die]\ncheck = \"grep -qs die $EFFECTS || exit 1; echo it-was-done\"\nwhen_unknown = \"check\"\n";
    home.write("oncely.toml", check);
    let mut client = home.ready();
    assert_eq!(code(&client.call("die", json!({}))), "OUTCOME_UNKNOWN");
    client.child.wait().unwrap();
    let mut next = home.ready();
    let result = next.call("die", json!({}));
    assert_eq!(text(&result, 0), "it-was-done");
    drop(next);
    assert_eq!(home.effects(), ["die"]);
}

#[test]
fn the_downstream_key_is_passed_on_to_tools_that_are_said_to_use_it() {
    let home = Home::new();
    home.write("oncely.toml", "[tool.pay]\nforwards_key_for = \"24h\"\n");
    let mut client = home.ready();
    client.call("pay", json!({ "amount": 1 }));
    drop(client);
    let sent: serde_json::Value = serde_json::from_str(home.seen().last().unwrap()).unwrap();
    assert_eq!(sent["params"]["_meta"]["dev.oncely/downstream-key"].as_str().unwrap().len(), 36);
}

#[test]
fn what_a_check_finds_before_anything_is_sent_is_the_result() {
    let home = Home::new();
    home.write("oncely.toml", "[tool.pay]\ncheck = \"echo found: \\\\\\\"it\\\\\\\"\"\n");
    let mut client = home.ready();
    let result = client.call("pay", json!({ "amount": 1 }));
    assert_eq!(text(&result, 0), "found: \"it\"");
    drop(client);
    assert!(home.effects().is_empty());
}

#[test]
fn a_question_is_not_forgotten_where_a_downstream_counts_on_the_keys_before_it() {
    let home = Home::new();
    home.write("oncely.toml", "[tool.ask]\nforwards_key_for = \"24h\"\n");
    let mut client = home.client();
    let mut ask = || client.call_modern("ask", json!({ "amount": 1 }));
    // It is refused for certain, asks, and asks again: three attempts, and a provider may have kept what it said to any.
    home.raise("invalid");
    assert_eq!(text(&ask(), 0), "Input validation error: not now");
    std::fs::remove_file(home.path("invalid")).unwrap();
    for _ in 0..2 {
        assert_eq!(ask()["resultType"], "input_required");
    }
    drop(client);
    let sent =
        home.seen().into_iter().filter_map(|line| serde_json::from_str::<serde_json::Value>(&line).ok());
    let keys: Vec<String> = sent
        .filter_map(|sent| Some(sent["params"]["_meta"]["dev.oncely/downstream-key"].as_str()?.to_owned()))
        .collect();
    let different: std::collections::BTreeSet<&String> = keys.iter().collect();
    assert_eq!((keys.len(), different.len()), (3, 3), "{keys:?}");
    assert_eq!(home.states(), [("ask".into(), "rejected".into())]);
}
