//! Sessions of clients that connect, each with a server of its own: how many there may be, and what makes room for more.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::web::{Listening, Reply, Web, front, send};
use crate::world::{Home, modern_meta};

/// As docs/limits.md has it.
const SESSIONS_MAX: usize = 100;

/// A server that notes its number, and then answers everything with an empty result.
const SERVER: &str = r#"echo $$ >> "$EFFECTS"
while read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\("[^"]*"\).*/\1/p')
  [ -z "$id" ] || printf '{"jsonrpc":"2.0","id":%s,"result":{}}\n' "$id"
done"#;

fn ask(front: &Listening, headers: &[(&str, &str)], method: &str, params: &Value) -> Reply {
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string();
    send(front.port, "POST", "/mcp", headers, &body)
}

#[test]
fn a_hundred_sessions_may_be_open_and_one_that_ends_makes_room_for_another() {
    let home = Home::new();
    home.write("server.sh", SERVER);
    let front = front(&home, &["--", "sh", "server.sh"]);
    let sessions: Vec<Web> = (0..SESSIONS_MAX).map(|_| Web::begin(front.port)).collect();
    let refused = ask(&front, &[], "initialize", &json!({}));
    assert_eq!((refused.status, refused.header("mcp-session-id")), (503, None), "{refused:?}");
    for part in ["100 sessions", "nothing ran", "try again"] {
        assert!(refused.body.contains(part), "{refused:?}");
    }
    assert_eq!(home.effects().len(), SESSIONS_MAX, "no server was started for it");
    // Whoever is there already is served, and so is whoever needs no session.
    let oldest = [("Mcp-Session-Id", sessions[0].session.as_str())];
    assert_eq!(ask(&front, &oldest, "ping", &json!({})).status, 200);
    let described = [("Mcp-Method", "ping"), ("MCP-Protocol-Version", "2026-07-28")];
    assert_eq!(ask(&front, &described, "ping", &json!({ "_meta": modern_meta() })).status, 200);
    // One that its client ends, and one whose server has ended.
    let ended = sessions.last().unwrap();
    let named = [("Mcp-Session-Id", ended.session.as_str())];
    assert_eq!(send(front.port, "DELETE", "/mcp", &named, "").status, 204);
    assert_eq!(ask(&front, &named, "ping", &json!({})).status, 404);
    Web::begin(front.port);
    assert_eq!(ask(&front, &[], "initialize", &json!({})).status, 503);
    let server: i32 = home.effects()[0].parse().unwrap();
    kill(Pid::from_raw(server), Signal::SIGKILL).unwrap();
    home.until(|| ask(&front, &[], "initialize", &json!({})).status == 200);
    assert_eq!(ask(&front, &oldest, "ping", &json!({})).status, 404);
}
