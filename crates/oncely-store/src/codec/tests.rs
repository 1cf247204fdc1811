//! The stored bytes are pinned: a ledger written today is read by every later version.

use std::fmt::Write as _;

use oncely_core::name::hex;
use oncely_core::{
    AttemptToken, Body, Digest, Doubt, DoubtCause, Effect, Event, EventKind, Failure, Fingerprint,
    IntentName, Key, Millis, Namespace, Owner, ProcessId, Record, Retention, Scope, Settled, State, ToolName,
    Version,
};

use super::{
    Columns, extend_trail, pack_body, pack_events, pack_trail, unpack_events, unpack_record, unpack_trail,
};
use crate::wire::Damaged;

const GOLDEN: &str = include_str!("../../tests/golden/codec.txt");

fn owner() -> Owner {
    let process =
        ProcessId { boot: [0xb0; 16], pid_namespace: 4_026_531_836, pid: 4242, started_ticks: 123_456 };
    Owner { process, host: "höst".to_owned() }
}

fn record(key: Key, fingerprint: Fingerprint, state: State) -> Record {
    let name = IntentName {
        namespace: Namespace::default(),
        scope: Scope::none(),
        tool: ToolName::parse("charge").unwrap(),
        key,
    };
    Record {
        intent: name.intent_id(),
        version: Version(77),
        created_at: Millis(1_000_000),
        sent_at: Millis(1_000_500),
        changed_at: Millis(1_001_000),
        body: Body {
            name,
            fingerprint,
            generation: 1,
            attempts: 300,
            tries: 2,
            rejections: 1,
            token: AttemptToken([0x70; 16]),
            retention: Retention { replay_for_ms: 86_400_000, remember_for_ms: 3_024_000_000 },
            state,
        },
    }
}

fn samples() -> Vec<(&'static str, Record)> {
    let explicit = || Key::explicit("order-42").unwrap();
    let print = Fingerprint { canonical: Digest([0xca; 32]), raw: Digest([0x4a; 32]) };
    let same = Fingerprint { canonical: Digest([0xca; 32]), raw: Digest([0xca; 32]) };
    let failure = Failure::new("DECLINED", "the card was declined");
    let doubt = Doubt::new(DoubtCause::TimedOut, "no answer");
    let succeeded = |result: Option<&[u8]>, settled| State::Succeeded {
        effect: Effect::Created,
        result: result.map(Into::into),
        settled,
    };
    vec![
        ("running", record(explicit(), print, State::Running { owner: owner(), lease_ms: 30_000 })),
        ("succeeded", record(explicit(), same, succeeded(Some(b"result"), Settled::Attempt))),
        ("succeeded, nothing in the result", record(explicit(), same, succeeded(Some(b""), Settled::Probe))),
        (
            "succeeded, derived key",
            record(Key::derived(&[0xca; 32]), print, succeeded(None, Settled::Person("ann".into()))),
        ),
        (
            "rejected",
            record(
                explicit(),
                print,
                State::Rejected { failure: failure.with_detail(&b"detail"[..]), settled: Settled::Attempt },
            ),
        ),
        ("in doubt", record(explicit(), print, State::InDoubt { owner: owner(), doubt })),
    ]
}

fn events() -> Vec<Event> {
    let intent = samples()[0].1.intent;
    vec![
        Event::new(intent, 1, EventKind::Began),
        Event::new(intent, 300, EventKind::Forgotten).by("ann").with_note("it was in_doubt"),
    ]
}

fn columns<'a>(record: &Record, body: &'a [u8], bytes: Option<&'a [u8]>) -> Columns<'a> {
    Columns {
        intent: record.intent,
        version: record.version,
        changed_at: record.changed_at,
        name: record.body.name.clone(),
        body,
        kept: bytes,
    }
}

#[test]
fn the_stored_bytes_are_those_of_the_golden_file() {
    let mut text = String::new();
    for (title, record) in samples() {
        writeln!(text, "{title}: {}", hex(&pack_body(&record))).unwrap();
    }
    writeln!(text, "events: {}", hex(&pack_events(&events()))).unwrap();
    writeln!(text, "trail: {}", hex(&pack_trail(&[5, 6, 1000]))).unwrap();
    assert_eq!(text, GOLDEN, "stored bytes changed: old ledgers would not be read; add a version instead");
}

#[test]
fn every_kind_of_record_reads_back() {
    for (title, record) in samples() {
        let body = pack_body(&record);
        let bytes = record.body.state.kept().cloned();
        assert_eq!(unpack_record(columns(&record, &body, bytes.as_deref())), Ok(record.clone()), "{title}");
    }
}

#[test]
fn a_cut_or_lengthened_body_is_damage() {
    for (title, record) in samples() {
        let mut body = pack_body(&record);
        let bytes = record.body.state.kept().cloned();
        for end in 0..body.len() {
            assert!(
                unpack_record(columns(&record, &body[..end], bytes.as_deref())).is_err(),
                "{title} at {end}"
            );
        }
        body.push(0);
        assert_eq!(
            unpack_record(columns(&record, &body, bytes.as_deref())),
            Err(Damaged("the body is too long")),
            "{title}"
        );
    }
}

#[test]
fn a_result_that_is_missing_is_damage() {
    let (_, record) = &samples()[1];
    assert!(unpack_record(columns(record, &pack_body(record), None)).is_err());
}

#[test]
fn events_read_back_with_their_places() {
    let packed = pack_events(&events());
    let read = unpack_events(9, Millis(5), &packed).unwrap();
    assert_eq!(read.iter().map(|e| e.event.clone()).collect::<Vec<_>>(), events());
    assert_eq!(read.iter().map(|e| e.seq).collect::<Vec<_>>(), [9 << 16, (9 << 16) + 1]);
    assert!(unpack_events(9, Millis(5), &packed[..packed.len() - 1]).is_err());
}

#[test]
fn a_trail_keeps_the_newest_places() {
    let mut trail = Vec::new();
    for batch in (0..200).map(|n| 1_000 + n * 3) {
        trail = extend_trail(&trail, batch).unwrap();
        trail = extend_trail(&trail, batch).unwrap();
    }
    let read = unpack_trail(&trail).unwrap();
    assert_eq!(read.len(), 64);
    assert_eq!((read[0], read[63]), (1_000 + 136 * 3, 1_000 + 199 * 3));
}
