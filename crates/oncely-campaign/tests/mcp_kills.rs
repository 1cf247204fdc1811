//! `kill -9` of MCP clients, proxies and servers at random moments; and a client that retries without `oncely mcp`,
//! which the same harness must catch.
#![allow(clippy::print_stdout, reason = "seeds and figures")]

use oncely_campaign::Checked;
use oncely_campaign::ledger::Runner;
use oncely_campaign::mcp_kills::{Between, Phase, Plan, Report, Victim, run};
use oncely_campaign::outside::Outside;
use oncely_campaign::programs::Programs;

/// Where kills must have landed.
const PHASES: [Phase; 4] =
    [Phase::BeforeTheClaim, Phase::BeforeTheEffect, Phase::AfterTheEffect, Phase::Ended];

const PLAN: Plan =
    Plan { kills: 240, phases: &PHASES, seed: 20_260_728, workers: 4, between: Between::Oncely };

fn campaign(plan: Plan) -> Checked<Report> {
    let programs = Programs::find()?;
    let directory = tempfile::tempdir()?;
    let outside = Outside::start(&programs, directory.path())?;
    let runner = Runner::oncely(&programs, &directory.path().join("ledger.db"));
    let report = run(&programs, &runner, &outside, plan)?;
    println!("seed {}: {report:#?}", plan.seed);
    Ok(report)
}

fn assert_kept(report: &Report, kills: u64) {
    assert!(report.broken.is_empty(), "{:#?}", report.broken);
    assert!(report.landed() >= kills, "only {} kills landed", report.landed());
    assert_eq!(report.double_effects, 0);
    for victim in [Victim::Client, Victim::Proxy, Victim::Server] {
        assert!(report.victims.get(&victim).is_some_and(|n| *n >= 10), "too few kills of the {victim:?}");
    }
    for phase in PHASES {
        assert!(report.kills.get(&phase).is_some_and(|n| *n > 0), "no kill landed {phase:?}");
    }
    assert!(report.in_doubt_with_effect > 0 && report.in_doubt_with_effect < report.in_doubt);
    assert!(report.compared > 20);
}

#[test]
fn no_kill_of_client_proxy_or_server_makes_an_effect_happen_twice_or_be_forgotten() {
    assert_kept(&campaign(PLAN).unwrap(), PLAN.kills);
}

#[test]
fn no_kill_makes_an_effect_happen_twice_or_be_forgotten_where_the_client_speaks_http() {
    let plan = Plan { kills: 120, between: Between::Listening, ..PLAN };
    assert_kept(&campaign(plan).unwrap(), plan.kills);
}

#[test]
fn a_client_that_retries_without_the_proxy_is_caught() {
    // Where kills land is chance.
    let caught = (PLAN.seed..PLAN.seed + 3).any(|seed| {
        let plan = Plan { kills: 60, phases: &[], between: Between::Nothing, seed, ..PLAN };
        campaign(plan).unwrap().double_effects > 0
    });
    assert!(caught, "the harness is blind");
}
