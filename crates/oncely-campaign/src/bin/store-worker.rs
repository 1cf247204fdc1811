//! A process that makes calls on a ledger while others take the ledger's server away from under it. It goes on by itself.
//!
//! `store-worker work ADDRESS SOCKET WORKER SEED CALLERS` calls until its input ends, and then brings the calls under way to
//! their end. `store-worker again ADDRESS SOCKET` calls every key that its input names once more. Each answer is a line.
#![allow(clippy::print_stdout, reason = "its output is what was acknowledged")]

use std::collections::VecDeque;
use std::io::{BufRead, Read, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use oncely::{Answer, Effect, Oncely, Outcome, Unrecorded};
use oncely_campaign::failovers::{KEY_KINDS, mode_of};
use oncely_campaign::{Checked, outside};
use oncely_core::{Doubt, DoubtCause, Failure};
use oncely_testkit::sim::Rng;

/// The longest that an effect takes before and after it is counted: as long as a write, so that many are open at any time.
const PAUSE_US_MAX: u64 = 20_000;
/// Pause after a call that the ledger's trouble kept from running.
const TRY_AGAIN: Duration = Duration::from_millis(25);
/// How many of its own keys a caller remembers, to call them again.
const REMEMBERED: usize = 200;
/// Callers that call keys again at a time.
const AGAIN_AT_A_TIME: usize = 8;

fn main() -> Checked<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    match words.as_slice() {
        ["work", address, socket, worker, seed, callers] => {
            let (worker, seed, callers) = (worker.parse()?, seed.parse()?, callers.parse()?);
            runtime.block_on(async { Worker::open(address, socket, worker, seed).await?.work(callers).await })
        }
        ["again", address, socket] => {
            runtime.block_on(async { Worker::open(address, socket, 0, 0).await?.again().await })
        }
        _ => Err("usage: store-worker work ADDRESS SOCKET WORKER SEED CALLERS | again ADDRESS SOCKET".into()),
    }
}

/// One line, one system call: it is there as a whole or not at all.
fn say(line: &str) -> Checked<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(format!("{line}\n").as_bytes())?;
    Ok(out.flush()?)
}

struct Worker {
    oncely: Oncely,
    socket: PathBuf,
    worker: u64,
    seed: u64,
    shared: AtomicU64,
    stop: AtomicBool,
}

impl Worker {
    async fn open(address: &str, socket: &str, worker: u64, seed: u64) -> Checked<Arc<Self>> {
        let store = loop {
            match oncely_store::open(address).await {
                Ok(store) => break store,
                Err(error) => {
                    say(&format!("unavailable - {error}"))?;
                    tokio::time::sleep(TRY_AGAIN * 10).await;
                }
            }
        };
        Ok(Arc::new(Self {
            oncely: Oncely::new(store),
            socket: socket.into(),
            worker,
            seed,
            shared: AtomicU64::new(0),
            stop: AtomicBool::new(false),
        }))
    }

    async fn work(self: Arc<Self>, callers: u64) -> Checked<()> {
        let told = self.clone();
        std::thread::spawn(move || {
            // However its input ends, that is the sign.
            let _ = std::io::stdin().read_to_end(&mut Vec::new());
            told.stop.store(true, Ordering::Release);
        });
        let callers: Vec<_> =
            (0..callers).map(|caller| tokio::spawn(self.clone().keep_calling(caller))).collect();
        for caller in callers {
            caller.await??;
        }
        self.leave().await
    }

    /// Calls under way elsewhere in this process are waited for; the rest is the ledger's.
    async fn leave(&self) -> Checked<()> {
        let open = self.oncely.drain(Duration::from_secs(60)).await;
        if open > 0 {
            say(&format!("broken - {open} effects could not be recorded"))?;
        }
        self.oncely.store().flush().await?;
        Ok(())
    }

    async fn keep_calling(self: Arc<Self>, caller: u64) -> Checked<()> {
        let mut rng = Rng::split(self.seed, self.worker * 1_000 + caller);
        let mut known: VecDeque<String> = VecDeque::new();
        for number in 0.. {
            if self.stop.load(Ordering::Acquire) {
                break;
            }
            let key = match rng.below(KEY_KINDS) {
                // The others are at about the same place in the same row, so that duplicates race.
                0 | 1 => {
                    format!("{:x}-shared-{}", self.seed, self.shared.fetch_add(1, Ordering::Relaxed) / 2)
                }
                2 if !known.is_empty() => known[rng.below(known.len() as u64) as usize].clone(),
                _ => format!("{:x}-own-{}-{caller}-{number}", self.seed, self.worker),
            };
            self.call(&key, &mut rng).await?;
            known.push_back(key);
            if known.len() > REMEMBERED {
                known.pop_front();
            }
        }
        Ok(())
    }

    async fn again(self: Arc<Self>) -> Checked<()> {
        let keys: Vec<String> = std::io::stdin().lock().lines().collect::<Result<_, _>>()?;
        let parts: Vec<Vec<String>> =
            keys.chunks(keys.len().div_ceil(AGAIN_AT_A_TIME).max(1)).map(<[String]>::to_vec).collect();
        let callers: Vec<_> = parts
            .into_iter()
            .map(|keys| {
                let worker = self.clone();
                tokio::spawn(async move {
                    let mut rng = Rng::new(0);
                    for key in keys {
                        worker.call(&key, &mut rng).await?;
                    }
                    Checked::Ok(())
                })
            })
            .collect();
        for caller in callers {
            caller.await??;
        }
        self.leave().await
    }

    /// Calls until there is an answer for good, and says it.
    async fn call(&self, key: &str, rng: &mut Rng) -> Checked<()> {
        loop {
            let pauses = (rng.below(PAUSE_US_MAX), rng.below(PAUSE_US_MAX));
            let (socket, name) = (self.socket.clone(), key.to_owned());
            let call = self.oncely.tool("effect").key(key);
            match call.run(move |_| effect(socket, name, pauses)).await {
                Ok(answer) => match told(&answer) {
                    Told::Again(word) => say(&format!("{word} {key}"))?,
                    Told::Ended(words) => return say(&words.replacen("KEY", key, 1)),
                },
                Err(error) if error.is_retryable() => say(&format!("unavailable {key} {error}"))?,
                Err(error) => return say(&format!("broken {key} {error}")),
            }
            tokio::time::sleep(TRY_AGAIN).await;
        }
    }
}

enum Told {
    /// No answer for good.
    Again(&'static str),
    /// One, with KEY in the place of the key.
    Ended(String),
}

fn told(answer: &Answer) -> Told {
    let succeeded = |result: Option<&[u8]>| {
        let result = result.map_or("nothing".into(), String::from_utf8_lossy);
        Told::Ended(format!("succeeded KEY {result}"))
    };
    match answer {
        Answer::Executed(execution) => match (&execution.unrecorded, &execution.outcome) {
            (None, Outcome::Succeeded { result, .. }) => succeeded(result.as_deref()),
            (None, Outcome::Rejected(_) | Outcome::NotStarted(_)) => Told::Ended("rejected KEY".into()),
            (None, Outcome::Unknown(_)) => Told::Ended("unknown KEY".into()),
            // This process goes on trying to record it; the next answer waits for that.
            (Some(Unrecorded::StoreFailed(_)), _) => Told::Again("unrecorded"),
            (Some(Unrecorded::EarlierUnknown), _) => Told::Ended("unknown KEY".into()),
            (Some(Unrecorded::Superseded), _) => Told::Ended("superseded KEY".into()),
        },
        Answer::Replayed(replay) => succeeded(replay.result()),
        Answer::Refused(_) => Told::Ended("rejected KEY".into()),
        Answer::InProgress(_) => Told::Again("waiting"),
        Answer::Unknown(_) => Told::Ended("unknown KEY".into()),
        Answer::Conflict { .. } => Told::Ended("broken KEY the key was taken for another payload".into()),
    }
}

async fn effect(socket: PathBuf, key: String, pauses: (u64, u64)) -> Outcome {
    if mode_of(&key) == "refuses" {
        return Outcome::Rejected(Failure::new("REFUSED", "nothing happened"));
    }
    tokio::time::sleep(Duration::from_micros(pauses.0)).await;
    let name = key.clone();
    let reported =
        tokio::task::spawn_blocking(move || outside::report(&socket, &name).map_err(|e| e.to_string()));
    let outcome = match reported.await {
        Ok(Ok(receipt)) => {
            let result = format!("{key}: {}", receipt.trim_end());
            Outcome::Succeeded { effect: Effect::Executed, result: Some(result.into_bytes().into()) }
        }
        _ => Outcome::Unknown(Doubt::new(DoubtCause::Reported, "the outside ledger did not answer")),
    };
    tokio::time::sleep(Duration::from_micros(pauses.1)).await;
    outcome
}
