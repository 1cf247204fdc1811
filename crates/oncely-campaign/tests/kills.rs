//! `kill -9` at random moments, through `oncely run`, several processes on one ledger; and the wrong ways to do it,
//! which the same harness must catch.
#![allow(clippy::print_stdout, reason = "seeds and figures")]

use oncely_campaign::Checked;
use oncely_campaign::kills::{Phase, Plan, Report, run};
use oncely_campaign::ledger::Runner;
use oncely_campaign::outside::Outside;
use oncely_campaign::programs::Programs;

/// Where kills must have landed.
const PHASES: [Phase; 3] = [Phase::BeforeTheClaim, Phase::BeforeTheEffect, Phase::AfterTheEffect];

const PLAN: Plan = Plan { kills: 520, phases: &PHASES, seed: 20_260_101, workers: 6 };

fn campaign_against(runner: impl Fn(&Programs, &std::path::Path) -> Runner, plan: Plan) -> Checked<Report> {
    let programs = Programs::find()?;
    let directory = tempfile::tempdir()?;
    let outside = Outside::start(&programs, directory.path())?;
    let report = run(&programs, &runner(&programs, directory.path()), &outside, plan)?;
    println!("seed {}: {report:#?}", plan.seed);
    Ok(report)
}

/// Whether a wrong way is seen to be one. Where kills land is chance, so it may get away with it a few times.
fn is_caught(way: &str) -> Checked<bool> {
    for seed in PLAN.seed..PLAN.seed + 3 {
        if careless(way, seed)?.double_effects > 0 {
            return Ok(true);
        }
    }
    Ok(false)
}

fn careless(way: &str, seed: u64) -> Checked<Report> {
    let runner = |programs: &Programs, directory: &std::path::Path| Runner {
        program: programs.careless.clone(),
        store: format!("{way}:{}", directory.display()),
    };
    campaign_against(runner, Plan { kills: 120, phases: &[], seed, ..PLAN })
}

#[test]
fn no_kill_makes_an_effect_happen_twice_or_be_forgotten() {
    let report =
        campaign_against(|programs, dir| Runner::oncely(programs, &dir.join("ledger.db")), PLAN).unwrap();
    assert!(report.broken.is_empty(), "{:#?}", report.broken);
    assert!(report.landed() >= 500, "only {} kills landed", report.landed());
    assert_eq!(report.double_effects, 0);
    for phase in PHASES {
        assert!(report.kills.get(&phase).is_some_and(|n| *n > 0), "no kill landed {phase:?}");
    }
    assert!(report.in_doubt_with_effect > 0 && report.in_doubt_with_effect < report.in_doubt);
    assert!(report.compared > 50);
}

#[test]
fn a_result_that_is_recorded_after_the_effect_is_caught() {
    assert!(is_caught("record-after").unwrap(), "the harness is blind");
}

#[test]
fn a_claim_that_is_run_again_when_its_owner_is_dead_is_caught() {
    assert!(is_caught("rerun").unwrap(), "the harness is blind");
}
