//! Clients that repeat calls, each in its own way, against a tool that charges and then takes its time.

use std::thread;

use serde_json::json;

use crate::plan::{Call, Client, Plan, Told};
use crate::software::installed;
use crate::world::{Server, Transport, Way, World, both_ways};

const CHARGED: &str = "charged ann 30";

fn charge(seconds: f64) -> Call {
    Call::new("charge", json!({ "customer": "ann", "amount": 30, "seconds": seconds }))
}

/// Gives up on a charge that takes longer, and tries again with more patience.
fn impatient() -> Plan {
    Plan::new(&[charge(2.5).giving_up_after(1.0), charge(2.5)])
}

fn assert_gave_up_and_then_got_it(told: &[Told]) {
    assert!(matches!(told[0], Told::Failed { .. }), "the client did not give up: {told:?}");
    assert_eq!(told[1].success(), CHARGED);
}

/// How often a scenario is tried. Clients give up after a while, and where much else is going on that may be before their call
/// has come to the server: the control then shows nothing.
const TRIES: usize = 4;

/// How many charges a scenario leaves without oncely and with it.
fn check(test: &str, transport: Transport, expected: [usize; 2], scenario: impl Fn(&World, &Server) + Sync) {
    let Some(software) = installed(test) else { return };
    let charges = |way| {
        let world = World::new(&software);
        let server = world.through(way, world.charges(transport));
        scenario(&world, &server);
        world.lines("charges")
    };
    let shows = (0..TRIES).any(|_| {
        let [direct, guarded] = both_ways(charges);
        assert_eq!(guarded, expected[1]);
        direct == expected[0]
    });
    assert!(shows, "the control does not show what it is about");
}

/// openai-agents retries below the model: without oncely its caller sees a timeout, and the customer three charges.
fn openai_agents(test: &str, transport: Transport) {
    check(test, transport, [3, 1], |world, server| {
        let told = Plan::new(&[charge(7.0)]).run(Client::OpenAiAgents, world, server);
        // What the caller is told differs: a timeout without oncely, the one result with it.
        if world.path("ledger.db").exists() {
            assert_eq!(told[0].success(), CHARGED);
        }
    });
}

#[test]
fn openai_agents_with_two_retries_leaves_one_charge_over_stdio() {
    openai_agents("openai-agents over stdio", Transport::Stdio);
}

#[test]
fn openai_agents_with_two_retries_leaves_one_charge_over_http() {
    openai_agents("openai-agents over HTTP", Transport::Http);
}

#[test]
fn fastmcp_trying_again_after_a_timeout_leaves_one_charge_over_stdio() {
    check("FastMCP over stdio", Transport::Stdio, [2, 1], |world, server| {
        assert_gave_up_and_then_got_it(&impatient().run(Client::FastMcp, world, server));
    });
}

#[test]
fn fastmcp_trying_again_after_a_timeout_leaves_one_charge_over_http() {
    check("FastMCP over HTTP", Transport::Http, [2, 1], |world, server| {
        assert_gave_up_and_then_got_it(&impatient().run(Client::FastMcp, world, server));
    });
}

#[test]
fn the_typescript_client_trying_again_on_a_new_connection_leaves_one_charge() {
    check("the TypeScript client", Transport::Http, [2, 1], |world, server| {
        let told = impatient().reconnecting().run(Client::TypeScript, world, server);
        assert_gave_up_and_then_got_it(&told);
    });
}

#[test]
fn langchain_starting_a_server_for_every_call_leaves_one_charge() {
    check("LangChain", Transport::Stdio, [2, 1], |world, server| {
        let told = Plan::new(&[charge(0.0), charge(0.0)]).run(Client::LangChain, world, server);
        assert_eq!([told[0].success(), told[1].success()], [CHARGED; 2]);
    });
}

#[test]
fn langchain_calling_four_times_at_once_leaves_one_charge() {
    check("LangChain at once", Transport::Stdio, [4, 1], |world, server| {
        let calls = [charge(0.5), charge(0.5), charge(0.5), charge(0.5)];
        let told = Plan::new(&calls).together().run(Client::LangChain, world, server);
        assert!(told.iter().all(|told| told.success() == CHARGED), "{told:?}");
    });
}

#[test]
fn the_python_client_leaves_one_charge_in_both_eras_and_over_every_pair_of_transports() {
    let Some(software) = installed("the Python client, eras and transports") else { return };
    let charges = |way, transport, era: &str| {
        let world = World::new(&software);
        let server = world.through(way, world.charges(transport));
        assert_gave_up_and_then_got_it(&impatient().era(era).run(Client::Python, &world, &server));
        world.lines("charges")
    };
    for era in ["legacy", "2026-07-28"] {
        for transport in [Transport::Stdio, Transport::Http] {
            let shows = (0..TRIES).any(|_| {
                let ways = [Way::Direct, Way::Listening, Way::Stdio];
                let [control, listening, stdio] = thread::scope(|scope| {
                    ways.map(|way| scope.spawn(move || charges(way, transport, era)))
                        .map(|run| run.join().unwrap())
                });
                assert_eq!([listening, stdio], [1, 1], "{era}, the server over {transport:?}");
                control == 2
            });
            assert!(shows, "{era}, {transport:?}: the control does not show what it is about");
        }
    }
}

#[test]
fn an_explicit_key_tells_two_equal_charges_apart_and_a_retry_from_a_new_one() {
    let calls = [charge(0.0).key("one"), charge(0.0).key("one"), charge(0.0).key("two")];
    check("explicit keys", Transport::Stdio, [3, 2], |world, server| {
        let told = Plan::new(&calls).run(Client::Python, world, server);
        assert!(told.iter().all(|told| told.success() == CHARGED), "{told:?}");
    });
}
