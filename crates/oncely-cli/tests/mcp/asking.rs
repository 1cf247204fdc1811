//! A server that wants its user to visit an address first: the call is not over, and the same one may be made again.

use serde_json::{Value, json};

use crate::world::{Home, text};

/// A call that needs consent.
fn call(key: &Value) -> Value {
    json!({ "name": "pay", "arguments": { "amount": 1, "consent": "agreed" }, "_meta": { "idempotencyKey": key } })
}

#[test]
fn a_call_whose_user_has_to_visit_an_address_first_leaves_no_record_and_may_be_made_again() {
    for key in [json!(null), json!("k")] {
        let home = Home::new();
        let mut client = home.ready();
        for _ in 0..3 {
            let id = client.begin("tools/call", call(&key));
            let line = client.line();
            let (_, error) = line.split_once("\"error\":").unwrap();
            // As the server wrote it, to the last digit.
            assert_eq!(
                error.trim(),
                r#"{"code": -32042, "message": "Agree first.", "data": {"elicitations": [{"mode": "url", "elicitationId": "e-1", "url": "https://a.example/consent", "message": "Agree."}], "server/own": 1.5}}}"#
            );
            assert_eq!(serde_json::from_str::<Value>(&line).unwrap()["id"], id);
            assert_eq!(home.states(), []);
        }
        home.raise("agreed");
        for _ in 0..2 {
            let paid = client.request("tools/call", call(&key))["result"].clone();
            assert_eq!(text(&paid, 0), "paid 1, effect 1");
        }
        drop(client);
        assert_eq!(home.effects(), ["pay 1"]);
    }
}

#[test]
fn a_visit_that_is_asked_for_settles_no_earlier_doubt() {
    let home = Home::new();
    // The first attempt is cancelled, and goes on; to start it again is harmless.
    home.write(
        "oncely.toml",
        "[tool.pay]\nidempotent = true\nwhen_unknown = \"retry\"\nforward_cancel = true\n",
    );
    home.raise("agreed");
    home.write("hasty", "error");
    let mut client = home.ready();
    let slow = json!({ "name": "pay", "arguments": { "amount": 1, "consent": "agreed", "until": "go" } });
    let id = client.begin("tools/call", slow.clone());
    home.until_reached("go");
    let cancel = json!({ "requestId": id });
    client.send(&json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancel }));
    home.until(|| home.states() == [("pay".into(), "in_doubt".into())]);
    std::fs::remove_file(home.path("agreed")).unwrap();
    assert_eq!(client.request("tools/call", slow)["error"]["code"], -32042);
    assert_eq!(home.states(), [("pay".into(), "in_doubt".into())]);
    home.raise("go");
    drop(client);
    assert_eq!(home.effects(), ["pay 1"]);
}
