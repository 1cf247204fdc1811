//! Drives the peer `agent-effects` with its SQLite store: `oncely-bench-peer PATH CALLERS SECONDS FIRST_KEY`.
//!
//! Says `ready`, waits for a line on standard input, works, and prints one line of figures.

#[path = "../../src/stats.rs"]
#[allow(dead_code, reason = "shared with the benchmark, which uses all of it")]
mod stats;
#[path = "../../src/workload.rs"]
#[allow(dead_code, reason = "shared with the benchmark, which uses all of it")]
mod workload;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use agent_effects::{EffectKind, EffectOutcome, Runtime};
use agent_effects_sqlite::SqliteStore;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [path, callers, seconds, first_key] = words.as_slice() else {
        return Err("usage: oncely-bench-peer PATH CALLERS SECONDS FIRST_KEY".into());
    };
    let (callers, seconds) = (callers.parse()?, seconds.parse()?);
    let next = Arc::new(AtomicU64::new(first_key.parse()?));
    let executor = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let runtime = Arc::new(Runtime::new(executor.block_on(SqliteStore::open(path))?));
    println!("ready");
    std::io::stdin().read_line(&mut String::new())?;
    let sample = executor.block_on(drive(runtime, callers, Duration::from_secs_f64(seconds), next))?;
    println!("{}", sample.to_line());
    Ok(())
}

async fn drive(
    runtime: Arc<Runtime<SqliteStore>>,
    callers: usize,
    duration: Duration,
    next: Arc<AtomicU64>,
) -> Result<stats::Sample> {
    let start = Instant::now();
    let callers: Vec<_> = (0..callers)
        .map(|_| tokio::spawn(call_until(runtime.clone(), start + duration, next.clone())))
        .collect();
    let (mut pairs, mut failed) = (Vec::new(), 0);
    for caller in callers {
        let (of_caller, failures) = caller.await??;
        pairs.extend(of_caller);
        failed += failures;
    }
    if failed > 0 {
        eprintln!("agent-effects: {failed} calls did not commit, and are not counted");
    }
    Ok(stats::Sample::of(start.elapsed(), pairs, Vec::new()))
}

async fn call_until(
    runtime: Arc<Runtime<SqliteStore>>,
    deadline: Instant,
    next: Arc<AtomicU64>,
) -> Result<(Vec<Duration>, u64)> {
    let (mut latencies, mut failed) = (Vec::new(), 0);
    while Instant::now() < deadline {
        let number = next.fetch_add(1, Ordering::Relaxed);
        let payload: serde_json::Value = serde_json::from_str(&workload::small_payload(number))?;
        let start = Instant::now();
        let outcome = runtime
            .effect(workload::TOOL, workload::key(number))
            .kind(EffectKind::IrreversibleWrite)
            .input(&payload)
            .run(move |_| async move { Ok(String::from_utf8_lossy(workload::result(number)).into_owned()) })
            .await;
        match outcome {
            Ok(EffectOutcome::Committed(_)) => latencies.push(start.elapsed()),
            _ => failed += 1,
        }
    }
    Ok((latencies, failed))
}
