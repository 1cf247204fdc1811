//! Histories of clients on real ledgers, through taps that are cut, on servers that are killed and started again: all can
//! have happened one after the other.
#![allow(clippy::print_stdout, reason = "seeds and figures")]

use std::sync::Arc;
use std::time::Duration;

use oncely_campaign::Checked;
use oncely_core::Store;
use oncely_testkit::histories::{Plan, record};
use oncely_testkit::servers::{Postgres, Redis, Tap, Trouble};
use oncely_testkit::sim::Rng;

const PLAN: Plan = Plan {
    seed: 0,
    keys: 3,
    clients: 3,
    operations: 40,
    pause: Duration::from_millis(6),
    patience: Duration::from_secs(60),
};

/// How often the way is cut in one history: more of them and a ledger says that it is away, which is another test's matter.
const CUTS: usize = 3;

/// What happens to the server, or on the way to it, while clients are at work. Both handles go through the tap.
#[derive(Clone, Copy)]
enum Weather<'a> {
    Fair,
    Cuts(&'a Tap),
    /// The server is killed in the middle of an answer, and started again: this does both.
    Crash(&'a Tap, &'a dyn Fn() -> Result<(), Trouble>),
}

impl<'a> Weather<'a> {
    fn tap(self) -> Option<&'a Tap> {
        match self {
            Self::Fair => None,
            Self::Cuts(tap) | Self::Crash(tap, _) => Some(tap),
        }
    }
}

/// Records histories of two handles and checks them.
fn linearizable(address: &str, weather: Weather<'_>, seeds: std::ops::Range<u64>) -> Checked<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let mut within = 0;
    for seed in seeds {
        let stores: Vec<Arc<dyn Store>> = runtime.block_on(async {
            Checked::Ok(vec![oncely_store::open(address).await?, oncely_store::open(address).await?])
        })?;
        let before = weather.tap().map_or(0, Tap::cuts);
        let mut rng = Rng::split(seed, u64::MAX);
        // Before the first client begins: a history may be over before anybody gets to cut it.
        weather.tap().inspect(|tap| prepare_a_cut(tap, &mut rng));
        let recording = runtime.spawn(async move { record(&stores, Plan { seed, ..PLAN }).await });
        match weather {
            Weather::Fair => {}
            Weather::Cuts(tap) => cut_until(tap, &mut rng, || recording.is_finished()),
            Weather::Crash(tap, crash) => {
                while !tap.cut_within(Duration::from_millis(20)) && !recording.is_finished() {}
                crash()?;
                tap.pass();
                // A handle of its own is served again, and the clients are still at work, mostly: how fast they were refused
                // meanwhile is the machine's business.
                runtime.block_on(oncely_store::open(address))?;
                within += usize::from(!recording.is_finished());
            }
        }
        let history = runtime.block_on(recording)?;
        println!(
            "seed {seed}: {} operations, {} writes, {} refused, {} unanswered",
            history.len(),
            history.writes(),
            history.refused(),
            history.unanswered()
        );
        history.check()?;
        assert!(history.writes() > 10, "nothing was written");
        if let Some(tap) = weather.tap() {
            let cuts = tap.cuts() - before;
            println!("seed {seed}: {cuts} answers cut");
            assert!(cuts > 0, "no cut met anything");
        }
    }
    let crashes = matches!(weather, Weather::Crash(..));
    assert!(!crashes || within > 0, "every crash came too late to be part of its history");
    Ok(())
}

/// The next cut comes in the middle of what the server says: that it meets an answer follows from the work that is done and
/// not from how fast the machine does it.
fn prepare_a_cut(tap: &Tap, rng: &mut Rng) {
    tap.delay(Duration::from_millis(rng.below(8)));
    tap.cut_after_answered(rng.between(500, 4000) as usize);
}

/// Waits for the cut that was prepared, and for a few more.
fn cut_until(tap: &Tap, rng: &mut Rng, finished: impl Fn() -> bool) {
    for cut in 1..=CUTS {
        while !tap.cut_within(Duration::from_millis(20)) && !finished() {}
        if cut < CUTS {
            prepare_a_cut(tap, rng);
        }
    }
    tap.pass();
}

#[test]
fn histories_of_a_ledger_file_have_an_order() {
    let directory = tempfile::tempdir().unwrap();
    let address = format!("sqlite:{}?min_free=0", directory.path().join("ledger.db").display());
    linearizable(&address, Weather::Fair, 100..103).unwrap();
}

#[test]
fn histories_on_postgres_have_an_order() {
    let postgres = Postgres::start().unwrap();
    let tap = Tap::to_port(postgres.port()).unwrap();
    let address = postgres.url_through(tap.port(), "postgres");
    linearizable(&address, Weather::Fair, 200..202).unwrap();
    linearizable(&address, Weather::Cuts(&tap), 300..302).unwrap();
    let crash = || postgres.kill().and_then(|()| postgres.start_again());
    linearizable(&address, Weather::Crash(&tap, &crash), 600..602).unwrap();
}

#[test]
fn histories_on_redis_have_an_order() {
    let redis = Redis::start().unwrap();
    let tap = Tap::to_port(redis.port()).unwrap();
    let address = redis.url_through(tap.port());
    linearizable(&address, Weather::Fair, 400..402).unwrap();
    linearizable(&address, Weather::Cuts(&tap), 500..502).unwrap();
    // One connection of each handle: fewer tries to connect, and so fewer operations that are refused meanwhile.
    let crash = || redis.kill().and_then(|()| redis.start_again());
    linearizable(&format!("{address}?connections=1"), Weather::Crash(&tap, &crash), 700..702).unwrap();
}
