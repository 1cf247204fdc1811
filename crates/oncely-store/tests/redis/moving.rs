//! The gate of a ledger that has many shards, or that older programs use; and what a move brings to it.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use oncely_core::{
    Created, Event, EventKind, Gate, Import, LogQuery, LoggedEvent, Millis, Move, Store, StoreErrorKind,
    Wrote,
};
use oncely_testkit::servers::Redis;

use crate::common::{LONG, begin, complete, draft, finish, id, running};
use crate::{fresh, open, until};

fn a_move(run: u64) -> Move {
    Move { id: [7; 16], run, other: "elsewhere:".into(), shift_ms: 0, steady_since: Millis(0) }
}

async fn turn(store: &Arc<dyn Store>, from: Gate, to: Gate) {
    assert_eq!(store.turn_gate(from, to.clone()).await.unwrap(), to);
}

async fn claim(store: &Arc<dyn Store>, key: &str) -> Result<Created, oncely_core::StoreError> {
    let events = vec![Event::new(id(key), 1, EventKind::Began)];
    store.create(id(key), draft(key, running(), LONG), events).await
}

/// Sends one command as it is; the reply's bytes, which have to fit into one piece.
fn send(server: &Redis, parts: &[&[u8]]) -> String {
    let mut bytes = format!("*{}\r\n", parts.len()).into_bytes();
    for part in parts {
        bytes.extend(format!("${}\r\n", part.len()).into_bytes());
        bytes.extend_from_slice(part);
        bytes.extend_from_slice(b"\r\n");
    }
    let mut stream = TcpStream::connect(("127.0.0.1", server.port())).unwrap();
    stream.write_all(&bytes).unwrap();
    let mut reply = [0; 4096];
    let len = stream.read(&mut reply).unwrap();
    String::from_utf8_lossy(&reply[..len]).into_owned()
}

/// What a program of before the gate sends: its scripts, as they were.
struct Older<'a> {
    server: &'a Redis,
    prefix: String,
    mark: String,
}

impl Older<'_> {
    fn key(&self, rest: &str, key: Option<&str>) -> Vec<u8> {
        let mut name = format!("{{{}:0}}:{rest}", self.prefix).into_bytes();
        name.extend(key.iter().flat_map(|key| id(key).0));
        name
    }

    fn run(&self, script: &str, keys: &[Vec<u8>], arguments: &[&[u8]]) -> String {
        let count = keys.len().to_string();
        let mut parts: Vec<&[u8]> = vec![b"EVAL", script.as_bytes(), count.as_bytes()];
        parts.extend(keys.iter().map(Vec::as_slice));
        parts.extend(arguments);
        send(self.server, &parts)
    }

    fn shared(&self) -> Vec<Vec<u8>> {
        ["log", "order", "due", "head"].map(|rest| self.key(rest, None)).to_vec()
    }

    fn create(&self, key: &str) -> String {
        let script = [COMMON, include_str!("../golden/redis-without-gate/create.lua")].concat();
        let keys = [self.shared(), vec![self.key("r:", Some(key))]].concat();
        let terms: [&[u8]; 5] = [self.mark.as_bytes(), b"1000", b"", b"1000", b""];
        let own: [&[u8]; 7] = [&id(key).0, b"body", b"", b"", b"", b"1", b"event"];
        self.run(&script, &keys, &[&terms[..], &own[..]].concat())
    }

    fn replace(&self, key: &str, version: &str) -> String {
        let script = [COMMON, JOIN, include_str!("../golden/redis-without-gate/replace.lua")].concat();
        let keys = [self.shared(), vec![self.key("r:", Some(key)), self.key("g:", Some(key))]].concat();
        let terms: [&[u8]; 5] = [self.mark.as_bytes(), b"1000", b"", b"1000", b""];
        let version = format!("{version}\n");
        let own: [&[u8]; 8] = [&id(key).0, version.as_bytes(), b"body", b"", b"", b"", b"", b"0"];
        self.run(&script, &keys, &[&terms[..], &own[..]].concat())
    }

    fn note(&self, key: &str) -> String {
        let script = [COMMON, JOIN, include_str!("../golden/redis-without-gate/note.lua")].concat();
        let keys = [self.key("r:", Some(key)), self.key("log", None), self.key("g:", Some(key))];
        self.run(&script, &keys, &[b"1000", b"1000", b"", b"event"])
    }

    /// The version of a record as the server spells it.
    fn version(&self, key: &str) -> String {
        let value = send(self.server, &[b"GETRANGE", &self.key("r:", Some(key)), b"0", b"40"]);
        value.lines().nth(1).unwrap().to_owned()
    }
}

const COMMON: &str = include_str!("../golden/redis-without-gate/common.lua");
const JOIN: &str = include_str!("../golden/redis-without-gate/join.lua");

#[tokio::test(flavor = "multi_thread")]
async fn programs_that_do_not_know_of_the_gate_write_nothing_into_a_ledger_that_moves() {
    let (server, prefix) = (Redis::start().unwrap(), fresh());
    let store = open(&format!("{}?prefix={prefix}", server.url())).await;
    let known = finish(&store, "known").await.record;
    let head = server.cli(&["GET", &format!("{{{prefix}:0}}:head")]).unwrap();
    let words: Vec<&str> = head.split(' ').collect();
    let older = Older { server: &server, prefix, mark: format!(" {} {} ", words[2], words[3]) };
    // The scripts are the real ones: while the gate is open they do write.
    assert!(older.create("theirs").contains(":1\r\n"));
    assert!(older.replace("theirs", &older.version("theirs")).contains(":1\r\n"));
    assert!(older.note("theirs").contains(":1\r\n"));
    for gate in [Gate::Closing(a_move(1)), Gate::Closed(a_move(2)), Gate::Filling(a_move(3))] {
        turn(&store, Gate::Open, gate.clone()).await;
        let before = server.cli(&["DBSIZE"]).unwrap();
        assert!(older.create("new").contains("LOSTHEAD"), "{gate:?}");
        let replaced = older.replace("known", &older.version("known"));
        assert!(replaced.starts_with('-') && replaced.contains("exhausted"), "{gate:?}: {replaced}");
        assert!(older.note("known").starts_with('-'), "{gate:?}");
        let log = String::from_utf8(older.key("log", None)).unwrap();
        assert!(server.cli(&["XADD", &log, "*", "0", "x"]).is_err(), "{gate:?}: the log took an entry");
        assert_eq!(server.cli(&["DBSIZE"]).unwrap(), before, "{gate:?}: something was written");
        let head = String::from_utf8(older.key("head", None)).unwrap();
        let head = server.cli(&["GET", &head]).unwrap();
        assert!(head.starts_with("oncely 2 ") && !head.contains(&older.mark), "{head}");
        assert_eq!(store.load(id("known")).await.unwrap().unwrap().record, known, "{gate:?}");
        turn(&store, gate, Gate::Open).await;
    }
    assert!(older.create("again").contains(":1\r\n"), "an open ledger takes them as before");
    let made = begin(&store, "after").await;
    assert!(made.record.version > known.version, "versions have begun again");
}

#[tokio::test(flavor = "multi_thread")]
async fn versions_and_the_log_go_on_over_a_gate_that_closes_and_opens() {
    let store = open(&format!("{}?shards=4&prefix={}", Redis::shared().unwrap().url(), fresh())).await;
    let mut begun = Vec::new();
    for n in 0..20 {
        begun.push(begin(&store, &format!("k{n}")).await.record);
    }
    turn(&store, Gate::Open, Gate::Closing(a_move(1))).await;
    let mut newest = begun.iter().map(|record| record.version).max().unwrap();
    for (n, record) in begun.iter().enumerate() {
        let ended = complete(&store, &format!("k{n}"), record.version, LONG).await.record;
        assert!(ended.version > record.version);
        newest = newest.max(ended.version);
    }
    store.note(vec![Event::new(id("k0"), 1, EventKind::Superseded)]).await.unwrap();
    turn(&store, Gate::Closing(a_move(1)), Gate::Open).await;
    for n in 0..20 {
        assert!(begin(&store, &format!("after-{n}")).await.record.version > begun[0].version);
    }
    let log = store.log(LogQuery { limit: 1_000, ..LogQuery::default() }).await.unwrap().items;
    assert_eq!(log.len(), 20 + 20 + 1 + 20);
    assert!(log.windows(2).all(|pair| pair[0].seq < pair[1].seq && pair[0].at <= pair[1].at));
}

/// What a shard was, to be put back: as if it had not been reached before the program was killed.
struct Earlier<'a> {
    server: &'a Redis,
    tag: String,
}

impl<'a> Earlier<'a> {
    const KEYS: [&'static str; 3] = ["head", "turn", "log"];

    fn of(server: &'a Redis, prefix: &str, shard: u16) -> Self {
        let earlier = Self { server, tag: format!("{{{prefix}:{shard}}}") };
        for key in Self::KEYS {
            earlier.copy(&format!(":{key}"), &format!(":earlier-{key}"));
        }
        earlier
    }

    fn put_back(self) {
        for key in Self::KEYS {
            self.copy(&format!(":earlier-{key}"), &format!(":{key}"));
        }
    }

    /// Copies a key, or that there is none.
    fn copy(&self, from: &str, to: &str) {
        let (from, to) = (format!("{}{from}", self.tag), format!("{}{to}", self.tag));
        if self.server.cli(&["COPY", &from, &to, "REPLACE"]).unwrap() == "0" {
            self.server.cli(&["DEL", &to]).unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gate_that_is_turned_in_some_shards_only_is_completed_by_whoever_looks_next() {
    let (server, prefix) = (Redis::start().unwrap(), fresh());
    let address = format!("{}?shards=4&prefix={prefix}", server.url());
    let (store, closing, closed) = (open(&address).await, Gate::Closing(a_move(1)), Gate::Closed(a_move(1)));
    for n in 0..30 {
        finish(&store, &format!("before-{n}")).await;
    }
    let turns = [(Gate::Open, closing.clone()), (closing, closed.clone()), (closed, Gate::Open)];
    for (round, (from, to)) in turns.into_iter().enumerate() {
        for left in 1..4 {
            let earlier = Earlier::of(&server, &prefix, left);
            turn(&store, from.clone(), to.clone()).await;
            earlier.put_back();
            // Claims pass where the gate is still open, and only there.
            let mut seen = std::collections::BTreeSet::new();
            for n in 0..40 {
                let claimed = claim(&store, &format!("half-{round}-{left}-{n}")).await;
                if let Err(error) = &claimed {
                    assert_eq!((error.kind, error.wrote), (StoreErrorKind::Moved, Wrote::No), "{error}");
                }
                seen.insert(claimed.is_ok());
            }
            if from == Gate::Open || to == Gate::Open {
                assert_eq!(seen.len(), 2, "round {round}: some shards take claims and some do not");
            }
            // A program that begins now is told of the whole turn, and finds it done in every shard.
            let other = open(&address).await;
            assert_eq!(other.gate().await.unwrap(), to, "round {round}");
            for n in 0..40 {
                let claimed = claim(&other, &format!("whole-{round}-{left}-{n}")).await;
                assert_eq!(claimed.is_ok(), to == Gate::Open, "round {round}: {claimed:?}");
            }
            turn(&other, to.clone(), from.clone()).await;
        }
        turn(&store, from, to).await;
    }
    let all = store.census().await.unwrap();
    let listed = store.scan(Default::default(), 0, 1_000).await.unwrap().items.len() as u64;
    assert_eq!(all.iter().map(|(_, count)| count).sum::<u64>(), listed);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_events_that_arrived_in_some_shards_only_is_completed_by_who_takes_the_move_up() {
    let (server, prefix) = (Redis::start().unwrap(), fresh());
    let address = format!("{}?shards=4&prefix={prefix}", server.url());
    let mut store = open(&address).await;
    let event = |n: u64| LoggedEvent {
        seq: n,
        at: Millis(1_000_000 + n / 3),
        event: Event::new(id(&format!("k{n}")), 1, EventKind::Began).with_note(format!("event {n}")),
    };
    let import = |page: u64| Import {
        events: (200 * page..200 * (page + 1)).map(event).collect(),
        ..Import::default()
    };
    turn(&store, Gate::Open, Gate::Filling(a_move(1))).await;
    store.import(a_move(1), import(0)).await.unwrap();
    for page in 1..5 {
        let run = page;
        let earlier: Vec<Earlier<'_>> = (1..4)
            .filter(|shard| u64::from(*shard) != page)
            .map(|s| Earlier::of(&server, &prefix, s))
            .collect();
        store.import(a_move(run), import(page)).await.unwrap();
        earlier.into_iter().for_each(Earlier::put_back);
        assert!(whole_log(&store).await.len() < 200 * (page as usize + 1), "nothing was taken back");
        store = open(&address).await;
        turn(&store, Gate::Filling(a_move(run)), Gate::Filling(a_move(run + 1))).await;
        let log = whole_log(&store).await;
        let found: Vec<_> = log.iter().map(|e| (e.at, e.event.clone())).collect();
        let all: Vec<_> = (0..200 * (page + 1)).map(|n| (event(n).at, event(n).event)).collect();
        assert_eq!(found, all, "after page {page}");
    }
    // Who worked on it before can bring nothing any more.
    let late = store.import(a_move(1), import(9)).await.unwrap_err();
    assert_eq!((late.kind, late.wrote), (StoreErrorKind::Moved, Wrote::No), "{late}");
    assert!(late.message.contains("another program has taken up the move"), "{late}");
    turn(&store, Gate::Filling(a_move(5)), Gate::Open).await;
    let of_one = LogQuery { intent: Some(id("k250")), limit: 10, ..LogQuery::default() };
    assert_eq!(store.log(of_one).await.unwrap().items[0].event, event(250).event);
}

async fn whole_log(store: &Arc<dyn Store>) -> Vec<LoggedEvent> {
    let (mut log, mut after) = (Vec::new(), 0);
    loop {
        let page = store.log(LogQuery { after, limit: 37, ..LogQuery::default() }).await.unwrap();
        log.extend(page.items);
        match page.next {
            Some(next) => after = next,
            None => return log,
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gate_that_no_replica_confirms_is_not_told_as_turned() {
    let primary = Redis::start().unwrap();
    let replica = primary.replica().unwrap();
    let address = |server: &Redis, shards: u16, wait: u32| {
        format!("{}?prefix=s{shards}&shards={shards}&wait={wait}&wait_timeout=2s", server.url())
    };
    for shards in [1, 2] {
        // However busy the machine is.
        let patient = address(&primary, shards, 1).replace("wait_timeout=2s", "wait_timeout=60s");
        finish(&open(&patient).await, "k").await;
    }
    let stores = [open(&address(&primary, 1, 1)).await, open(&address(&primary, 2, 1)).await];
    replica.kill().unwrap();
    for store in &stores {
        let error = store.turn_gate(Gate::Open, Gate::Closed(a_move(1))).await.unwrap_err();
        assert_eq!(error.wrote, Wrote::Maybe, "{error}");
        // Who only looks is told what there is. Who has to be sure turns it to where it stands.
        if store.gate().await.is_ok_and(|gate| gate != Gate::Open) {
            let error = store.turn_gate(Gate::Closed(a_move(1)), Gate::Closed(a_move(1))).await.unwrap_err();
            assert_eq!(error.wrote, Wrote::Maybe, "a gate that a failover can lose was answered: {error}");
        }
    }
    replica.start_again().unwrap();
    for store in &stores {
        let closed = Gate::Closed(a_move(1));
        let is_closed =
            async || store.turn_gate(closed.clone(), closed.clone()).await.is_ok_and(|g| g == closed);
        until("it is confirmed", is_closed).await;
    }
    // What is told is on the replica, which takes over.
    primary.kill().unwrap();
    replica.cli(&["REPLICAOF", "NO", "ONE"]).unwrap();
    for shards in [1, 2] {
        let there = open(&address(&replica, shards, 0)).await;
        assert_eq!(there.gate().await.unwrap(), Gate::Closed(a_move(1)));
        assert_eq!(claim(&there, "new").await.unwrap_err().kind, StoreErrorKind::Moved);
    }
}

/// For a claim one of them will do; to lose the gate would open a whole shard.
#[tokio::test(flavor = "multi_thread")]
async fn a_gate_is_turned_when_all_connected_replicas_have_confirmed_it() {
    let primary = Redis::start().unwrap();
    let replicas = [primary.replica().unwrap(), primary.replica().unwrap()];
    let store = open(&format!("{}?wait=1&wait_timeout=3s&shards=2", primary.url())).await;
    finish(&store, "k").await;
    replicas[1].pause();
    assert!(matches!(claim(&store, "one-is-enough").await.unwrap(), Created::New(_)));
    let error = store.turn_gate(Gate::Open, Gate::Closed(a_move(1))).await.unwrap_err();
    assert!(error.message.contains("1 of 2 replicas confirmed"), "{error}");
    replicas[1].resume();
    let closed = Gate::Closed(a_move(1));
    until("both confirm", async || {
        let stands = store.gate().await.unwrap_or_default();
        store.turn_gate(stands, closed.clone()).await.is_ok_and(|gate| gate == closed)
    })
    .await;
    // Whichever takes over has it.
    primary.kill().unwrap();
    for replica in replicas {
        replica.cli(&["REPLICAOF", "NO", "ONE"]).unwrap();
        let there = open(&format!("{}?wait=0", replica.url())).await;
        assert_eq!(claim(&there, "new").await.unwrap_err().kind, StoreErrorKind::Moved);
    }
}

/// A server has lost its turn, and another turn got the same number: the shards do not say the same.
#[tokio::test(flavor = "multi_thread")]
async fn shards_that_were_turned_as_often_and_say_something_else_are_put_right() {
    let (server, prefix) = (Redis::start().unwrap(), fresh());
    let address = format!("{}?shards=2&prefix={prefix}", server.url());
    let store = open(&address).await;
    finish(&store, "k").await;
    turn(&store, Gate::Open, Gate::Closing(a_move(1))).await;
    let earlier = Earlier::of(&server, &prefix, 1);
    turn(&store, Gate::Closing(a_move(1)), Gate::Open).await;
    earlier.put_back();
    server.cli(&["SET", &format!("{{{prefix}:1}}:turn"), "2"]).unwrap();
    assert_eq!(open(&address).await.gate().await.unwrap(), Gate::Open);
    for n in 0..20 {
        assert!(matches!(claim(&store, &format!("new-{n}")).await.unwrap(), Created::New(_)), "{n}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ledger_without_records_can_be_closed_and_opened() {
    let store = open(&format!("{}?shards=3&prefix={}", Redis::shared().unwrap().url(), fresh())).await;
    turn(&store, Gate::Open, Gate::Closed(a_move(1))).await;
    assert!(claim(&store, "k").await.is_err());
    turn(&store, Gate::Closed(a_move(1)), Gate::Open).await;
    assert!(matches!(claim(&store, "k").await.unwrap(), Created::New(_)));
}
