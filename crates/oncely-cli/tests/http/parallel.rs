//! Many callers at once on one key, and the limits on how many.

use std::sync::{Arc, Barrier};
use std::thread;

use rustix::process::{Resource, Rlimit};

use crate::client::{self, Answer};
use crate::gateway::{Gateway, order};
use crate::upstream::Upstream;

/// Sends one request from so many threads; all have sent it before `then` runs.
fn at_once(gateway: &Gateway, count: usize, request: &str, then: impl FnOnce()) -> Vec<Answer> {
    let barrier = Arc::new(Barrier::new(count + 1));
    let threads: Vec<_> = (0..count)
        .map(|_| {
            let (barrier, request, to) = (barrier.clone(), request.to_owned(), gateway.address);
            let work = move || {
                let mut stream = client::open(to, &request);
                barrier.wait();
                client::read_answer(&mut stream).expect("an answer")
            };
            thread::Builder::new().stack_size(256 * 1024).spawn(work).unwrap()
        })
        .collect();
    barrier.wait();
    then();
    threads.into_iter().map(|thread| thread.join().unwrap()).collect()
}

/// Lets this process and those that it starts have enough open files: what is usual is little more than a thousand.
fn allow_many_files() {
    let Rlimit { maximum, .. } = rustix::process::getrlimit(Resource::Nofile);
    let current = Some(maximum.map_or(8_192, |most| most.min(8_192)));
    rustix::process::setrlimit(Resource::Nofile, Rlimit { current, maximum }).unwrap();
}

#[test]
fn a_thousand_duplicates_at_once_are_one_upstream_call_and_a_thousand_equal_answers() {
    allow_many_files();
    let (home, upstream) = (tempfile::tempdir().unwrap(), Upstream::start());
    let gateway = Gateway::start(home.path(), &upstream, "");
    let answers = at_once(&gateway, 1_000, &order("k", "hold go"), || upstream.release("go"));
    assert_eq!(upstream.total(), 1);
    for answer in &answers {
        assert_eq!((answer.status, answer.text().as_str()), (201, "{\"order\":1}"), "{answer:?}");
    }
    let replayed = answers.iter().filter(|a| a.header("idempotent-replayed").is_some()).count();
    assert_eq!(replayed, 999);
}

#[test]
fn a_duplicate_that_has_waited_long_enough_is_told_when_to_ask_again() {
    let (home, upstream) = (tempfile::tempdir().unwrap(), Upstream::start());
    let gateway = Gateway::start(home.path(), &upstream, "tool = \"t\"\n[tool.t]\nwait_for = \"50ms\"");
    let mut first = client::open(gateway.address, &order("k", "hold go"));
    upstream.wait_for_total(1);
    let duplicate = gateway.order("k", "hold go");
    duplicate.expect_code(409, "in_progress");
    assert_eq!(
        (duplicate.header("retry-after"), duplicate.json()["retryable"].as_bool()),
        (Some("1"), Some(false))
    );
    upstream.release("go");
    assert_eq!(client::read_answer(&mut first).unwrap().status, 201);
    assert_eq!(gateway.order("k", "").header("idempotent-replayed"), Some("true"));
    assert_eq!(upstream.total(), 1);
}

#[test]
fn calls_beyond_the_limits_are_refused_and_leave_nothing_behind() {
    let (home, upstream) = (tempfile::tempdir().unwrap(), Upstream::start());
    let config = format!(
        "[server]\nadmin = \"off\"\nguarded_calls = 2\ncalls_per_key = 1\n[[route]]\nmatch = \"/**\"\nupstream = \"{}\"",
        upstream.url()
    );
    let gateway = Gateway::start_with(home.path(), &config);
    let mut held = client::open(gateway.address, &order("a", "hold go"));
    upstream.wait_for_total(1);
    gateway.order("a", "").expect_code(429, "too_many_waiters");
    let mut other = client::open(gateway.address, &order("b", "hold go"));
    upstream.wait_for_total(2);
    gateway.order("c", "").expect_code(503, "overloaded");
    assert_eq!(gateway.order("c", "").header("retry-after"), Some("1"));
    assert_eq!(crate::gateway::records(home.path()).len(), 2, "what was refused is not recorded");
    upstream.release("go");
    for stream in [&mut held, &mut other] {
        assert_eq!(client::read_answer(stream).unwrap().status, 201);
    }
    assert_eq!(gateway.order("c", "").status, 201);
    assert_eq!(upstream.total(), 3);
}

#[test]
fn effects_whose_clients_hang_up_keep_their_places() {
    let (home, upstream) = (tempfile::tempdir().unwrap(), Upstream::start());
    let config =
        format!("[server]\nguarded_calls = 3\n[[route]]\nmatch = \"/**\"\nupstream = \"{}\"", upstream.url());
    let gateway = Gateway::start_with(home.path(), &config);
    let clients = ["a", "b"].map(|key| client::open(gateway.address, &order(key, "hold go")));
    upstream.wait_for_total(2);
    drop(clients);
    gateway.wait_for_metric("oncely_http_connections_open", |open| open == 0);
    // One place is left: for the retry, which waits for what still runs.
    let mut retry = client::open(gateway.address, &order("a", "hold go"));
    gateway.wait_for_metric("oncely_waiting", |waiting| waiting > 0);
    gateway.order("c", "").expect_code(503, "overloaded");
    assert_eq!(upstream.total(), 2, "no more than there are places for");
    upstream.release("go");
    let answer = client::read_answer(&mut retry).unwrap();
    assert_eq!((answer.status, answer.header("idempotent-replayed")), (201, Some("true")));
    assert_eq!(gateway.order("c", "").status, 201, "places are given back");
    assert_eq!(upstream.total(), 3);
}
