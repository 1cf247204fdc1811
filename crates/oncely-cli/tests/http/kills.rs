//! `kill -9` of the gateway under load, again and again: never two effects for a key, and every doubt visible.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use crate::client;
use crate::gateway::{Gateway, order, records};
use crate::upstream::Upstream;

const KILLS: u32 = 200;
const CALLERS: u32 = 6;

/// What a caller was told of a key, the last time it asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Told {
    Nothing,
    Done,
    Unknown,
}

fn ask(to: std::net::SocketAddr, key: &str) -> Told {
    match client::try_send(to, &order(key, "")) {
        Some(answer) if answer.status == 201 => Told::Done,
        Some(answer) if answer.status == 409 => {
            answer.expect_code(409, "outcome_unknown");
            Told::Unknown
        }
        Some(answer) => panic!("{key}: {answer:?} {}", answer.text()),
        None => Told::Nothing,
    }
}

#[test]
fn two_hundred_kills_under_load_never_cause_a_second_effect_nor_hide_a_doubt() {
    let seed: u64 = 0x0dec_0de5;
    println!("seed {seed:#x}");
    let mut state = seed;
    let mut random_us = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % 25_000
    };
    let (home, upstream) = (tempfile::tempdir().unwrap(), Upstream::start());
    let told: Arc<Mutex<BTreeMap<String, Told>>> = Arc::default();
    let next = Arc::new(AtomicU32::new(0));
    for _ in 0..KILLS {
        let gateway = Gateway::start(home.path(), &upstream, "");
        retry_unanswered(&gateway, &told);
        let stop = Arc::new(AtomicBool::new(false));
        let callers: Vec<_> = (0..CALLERS)
            .map(|_| {
                let (told, next, stop, to) = (told.clone(), next.clone(), stop.clone(), gateway.address);
                thread::spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        let key = format!("k{}", next.fetch_add(1, Ordering::Relaxed));
                        told.lock().unwrap().insert(key.clone(), Told::Nothing);
                        let answer = ask(to, &key);
                        told.lock().unwrap().insert(key, answer);
                    }
                })
            })
            .collect();
        // Any moment will do: that is the point.
        thread::sleep(Duration::from_micros(random_us()));
        stop.store(true, Ordering::Relaxed);
        gateway.kill();
        callers.into_iter().for_each(|caller| caller.join().unwrap());
    }
    let gateway = Gateway::start(home.path(), &upstream, "");
    retry_unanswered(&gateway, &told);
    gateway.kill();
    judge(&told.lock().unwrap(), &upstream, home.path());
}

/// A caller that got no answer asks again, as callers do.
fn retry_unanswered(gateway: &Gateway, told: &Mutex<BTreeMap<String, Told>>) {
    let open: Vec<String> = told
        .lock()
        .unwrap()
        .iter()
        .filter(|(_, t)| **t == Told::Nothing)
        .map(|(key, _)| key.clone())
        .collect();
    for key in open {
        let answer = ask(gateway.address, &key);
        assert_ne!(answer, Told::Nothing, "a gateway that nobody kills answers");
        told.lock().unwrap().insert(key, answer);
    }
}

fn judge(told: &BTreeMap<String, Told>, upstream: &Upstream, home: &std::path::Path) {
    let effects = upstream.effects();
    let count = |key: &str| effects.get(&format!("/orders {{\"key\":\"{key}\"}}")).copied().unwrap_or(0);
    let states: BTreeMap<String, String> = records(home)
        .into_iter()
        .map(|record| {
            let text = |name: &str| record[name].as_str().unwrap().to_owned();
            (text("key"), text("state"))
        })
        .collect();
    let mut doubts = 0;
    for (key, told) in told {
        let state = states.get(key).map(String::as_str);
        match told {
            Told::Done => assert_eq!((count(key), state), (1, Some("succeeded")), "{key}"),
            Told::Unknown => {
                doubts += 1;
                assert!(count(key) <= 1, "{key} happened {} times", count(key));
                assert_eq!(state, Some("in_doubt"), "{key}");
            }
            Told::Nothing => panic!("{key} was never answered"),
        }
    }
    assert!(effects.values().all(|count| *count == 1), "a key had two effects");
    println!("{} keys, {} effects, {doubts} doubts, all visible", told.len(), upstream.total());
    assert!(told.len() > KILLS as usize, "there was load");
    assert!(doubts > 0, "kills hit running requests");
}
