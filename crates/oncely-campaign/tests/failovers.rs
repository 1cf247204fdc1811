//! The server of a ledger is killed and replaced under load, on real servers; and the settings that lose what was
//! acknowledged, which the same harness must catch.
#![allow(clippy::print_stdout, reason = "seeds and figures")]

use oncely_campaign::Checked;
use oncely_campaign::failovers::{
    Cluster, Demand, Plan, PostgresPair, Report, Restarted, Service, Wait, run,
};
use oncely_campaign::outside::Outside;
use oncely_campaign::programs::Programs;
use oncely_testkit::sim::Rng;

const PLAN: Plan = Plan { failovers: 3, seed: 20_261_116, workers: 3, callers: 6 };

/// How often a setting that loses may get away with it: whether anything was acknowledged in the moment that counts is chance.
const TURNS: u64 = 3;

fn campaign_against(service: &mut dyn Service, plan: Plan) -> Checked<Report> {
    let (programs, directory) = (Programs::find()?, tempfile::tempdir()?);
    let outside = Outside::start(&programs, directory.path())?;
    let report = run(&programs, service, &outside, plan, |failover, answers| {
        println!("failover {failover} after {answers} answers");
    })?;
    println!("seed {}: {report:#?}", plan.seed);
    Ok(report)
}

/// Nothing is lost, nothing happened twice, and the campaign was one.
fn judge(report: &Report) {
    assert!(report.broken.is_empty(), "{:#?}", report.broken);
    assert_eq!((report.double_effects, report.lost_successes, report.forgotten), (0, 0, 0));
    assert_eq!(report.failovers, PLAN.failovers);
    assert!(report.keys > 30 && report.compared > 30, "{report:#?}");
}

/// Whether a service is seen to lose what was acknowledged.
fn is_caught(start: impl Fn() -> Checked<Box<dyn Service>>) -> Checked<bool> {
    for seed in PLAN.seed..PLAN.seed + TURNS {
        let report = campaign_against(&mut *start()?, Plan { seed, ..PLAN })?;
        if report.lost_successes + report.forgotten > 0 {
            return Ok(true);
        }
    }
    Ok(false)
}

/// A ledger that nobody takes away.
struct File(tempfile::TempDir);

impl Service for File {
    fn address(&self) -> String {
        format!("sqlite:{}?min_free=0", self.0.path().join("ledger.db").display())
    }

    fn fail(&mut self, _: &mut Rng) -> Checked<()> {
        Ok(())
    }
}

#[test]
fn a_ledger_that_nobody_takes_away_is_judged_whole() {
    let report = campaign_against(&mut File(tempfile::tempdir().unwrap()), PLAN).unwrap();
    judge(&report);
    assert_eq!((report.in_doubt, report.unavailable), (0, 0));
}

#[test]
fn a_postgres_primary_that_is_killed_loses_nothing_that_its_synchronous_standby_has() {
    judge(&campaign_against(&mut PostgresPair::start(Demand::Synchronous).unwrap(), PLAN).unwrap());
}

#[test]
fn a_standby_that_is_not_waited_for_is_caught_losing() {
    let start = || Ok(Box::new(PostgresPair::start(Demand::Asynchronous)?) as Box<dyn Service>);
    assert!(is_caught(start).unwrap(), "the harness is blind");
}

#[test]
fn a_cluster_whose_primaries_are_killed_loses_nothing_that_a_replica_confirmed() {
    judge(&campaign_against(&mut Cluster::start(Wait::One).unwrap(), PLAN).unwrap());
}

#[test]
fn a_replica_that_is_not_waited_for_is_caught_losing() {
    let start = || Ok(Box::new(Cluster::start(Wait::None)?) as Box<dyn Service>);
    assert!(is_caught(start).unwrap(), "the harness is blind");
}

#[test]
fn a_postgres_server_that_is_restarted_loses_nothing() {
    judge(&campaign_against(&mut Restarted::postgres().unwrap(), PLAN).unwrap());
}

#[test]
fn a_redis_server_that_is_restarted_loses_nothing() {
    judge(&campaign_against(&mut Restarted::redis().unwrap(), PLAN).unwrap());
}
