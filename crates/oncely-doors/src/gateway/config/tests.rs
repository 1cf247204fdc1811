//! The configuration as people write it, right and wrong.

use http::Method;
use oncely::policy_file::PolicyFile;
use oncely::tower::{Dialect, Tenant};

use super::GatewayConfig;
use crate::gateway::forward::Forwarded;
use crate::providers::Providers;

fn read(text: &str) -> Result<GatewayConfig, String> {
    let policy = PolicyFile::parse(text, "o.toml").map_err(|e| e.to_string())?;
    GatewayConfig::parse(text, "o.toml", &policy, Providers::builtin()).map_err(|e| e.to_string())
}

#[track_caller]
fn check_bad(text: &str, expected: &str) {
    match read(text) {
        Ok(_) => panic!("{text} was accepted"),
        Err(message) => assert!(message.contains(expected), "{message}"),
    }
}

#[test]
fn the_documented_example_is_read() {
    let config = read(
        r#"
        [server]
        listen = "127.0.0.1:7300"
        admin = "off"
        tls = { cert = "c.pem", key = "k.pem" }
        drain = "5s"
        threads = 3

        [tool.orders]
        wait_for = "2s"

        [[route]]
        match = "/orders/**"
        upstream = "http://127.0.0.1:9000"
        methods = ["POST", "DELETE"]
        require_key = true
        tenant = { header = "X-Tenant" }
        dialect = "ietf"
        tool = "orders"
        rejected_on = [429, "500-503"]

        [[route]]
        match = "/stripe/**"
        upstream = "https://api.stripe.com"
        provider = "stripe"
        "#,
    )
    .unwrap();
    let [orders, stripe] = config.routes.as_slice() else { panic!("two routes") };
    assert_eq!((config.listen.unwrap().port(), config.threads), (7300, Some(3)));
    assert_eq!(orders.methods, [Method::POST, Method::DELETE]);
    assert_eq!(orders.tenant, Tenant::Header("x-tenant".parse().unwrap()));
    assert_eq!((orders.dialect, orders.policy.require_key), (Dialect::Ietf, true));
    assert_eq!(
        (orders.policy.wait_for_ms, orders.rules.rejected_on.clone()),
        (2_000, vec![429..=429, 500..=503])
    );
    assert_eq!(stripe.way.strip_prefix, "/stripe");
    assert_eq!(stripe.way.forwarded, Forwarded::Nothing);
    assert!(stripe.methods.contains(&Method::POST) && stripe.provider.is_some());
}

#[test]
fn every_problem_names_its_place_and_what_is_allowed() {
    check_bad(
        "[server]\nlisen = \"x\"\n",
        "o.toml:2:1: server: unknown field \"lisen\"; did you mean listen?",
    );
    check_bad("[server]\nlisten = \"nowhere\"\n", "o.toml:2:10: server.listen");
    check_bad(
        "[server]\nthreads = 0\n",
        "o.toml:2:11: server.threads: is not a number of threads; allowed: 1 to 256",
    );
    check_bad("[server]\nthreads = 257\n", "server.threads: is not a number of threads; allowed: 1 to 256");
    check_bad("[[route]]\nmatch = \"/a\"\n", "o.toml:1:1: route[0]: upstream is missing");
    let route = |line: &str| format!("[[route]]\nmatch = \"/**\"\nupstream = \"http://a\"\n{line}\n");
    check_bad(&route("methods = [\"GET\"]"), "o.toml:4:12: route[0].methods: \"GET\" cannot be guarded");
    check_bad(&route("dialect = \"strpe\""), "did you mean \"stripe\"?");
    check_bad(&route("provider = \"strip\""), "did you mean");
    check_bad(&route("tenant = { jwt = \"sub\" }"), "the signature of the token is not checked here");
    check_bad(&route("tenant = 5"), "must be \"authorization\"");
    check_bad(&route("rejected_on = [700]"), "a status from 100 to 599");
    check_bad(&route("replay_headers = [\"Set-Cookie\"]"), "set-cookie is never replayed");
    check_bad(&route("max_body = \"1GiB\""), "must be a size");
    check_bad(&route("timeout = \"0s\""), "must be longer");
    check_bad(&route("timeout = 5"), "has no unit");
    check_bad(
        &route("wait_for = \"5s\""),
        "o.toml:4:1: route[0]: wait_for is said of the route's tool: tool = \"NAME\" here",
    );
    let check = "check = { path = \"/x{key}\", happened = { status = [] } }";
    check_bad(&route(check), "route[0].check: names no status, so that no answer fits");
    check_bad(
        "[[route]]\nmatch = \"/**\"\nupstream = \"http://a:99999\"\n",
        "\"99999\" is no port; allowed: 1 to 65535",
    );
    check_bad("[[route]]\nmatch = \"a\"\nupstream = \"b\"\nhots = 1\n", "3 problems");
}

#[test]
fn a_route_whose_tool_cannot_be_served_is_refused() {
    let route = "[[route]]\nmatch = \"/**\"\nupstream = \"http://a\"\ntool = \"t\"\n";
    check_bad(&format!("strict = true\n{route}"), "the policy is strict and does not declare the tool \"t\"");
    check_bad(&format!("{route}[tool.t]\nkind = \"read\"\n"), "is declared as read");
    check_bad(&format!("{route}[tool.t]\ncheck = \"./probe\"\n"), "has a check command");
}
