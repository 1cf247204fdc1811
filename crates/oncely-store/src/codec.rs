//! The stored form of a record's body, of audit events and of a record's trail. Each begins with its version; the
//! bytes are pinned by the golden file `tests/golden/codec.txt`. The core's own types are never stored as they are.

use oncely_core::{
    AttemptToken, Body, Digest, Doubt, DoubtCause, Effect, Event, EventKind, Failure, Fingerprint, IntentId,
    IntentName, Key, KeyOrigin, LoggedEvent, Millis, Owner, Payload, ProcessId, Record, Retention, Settled,
    State, Version,
};

use crate::wire::{Damaged, Packer, Unpacker};

const BODY_VERSION: u8 = 1;
const EVENTS_VERSION: u8 = 1;

/// The canonical digest is that of the derived key.
const CANONICAL_IS_KEY: u8 = 1;
/// The payload was spelled canonically.
const RAW_IS_CANONICAL: u8 = 2;
/// The bytes kept beside the body (a result, a rejection's detail, evidence) are there.
const HAS_PAYLOAD: u8 = 4;

/// Most places in the log that a record remembers; older ones are found only by reading the whole log.
const TRAIL_MAX: usize = 64;
/// A batch's place in the log, shifted by this, leaves room for the events in it.
const EVENT_BITS: u32 = 16;

/// The place of an event in the log.
pub(crate) fn event_seq(batch: u64, index: u64) -> u64 {
    (batch << EVENT_BITS) | index
}

/// The batch that an event belongs to.
pub(crate) fn batch_of(event_seq: u64) -> u64 {
    event_seq >> EVENT_BITS
}

/// Packs what columns do not hold. The kept bytes are stored beside it: see [`kept`].
pub(crate) fn pack_body(record: &Record) -> Vec<u8> {
    pack(&record.body, record.changed_at, record.created_at, record.sent_at)
}

/// The same for a body whose times stand elsewhere, as whoever packs it does not know them yet.
pub(crate) fn pack_timeless(body: &Body) -> Vec<u8> {
    pack(body, Millis(0), Millis(0), Millis(0))
}

fn pack(body: &Body, changed_at: Millis, created_at: Millis, sent_at: Millis) -> Vec<u8> {
    let print = &body.fingerprint;
    let derived = derived_digest(&body.name.key);
    let mut flags = 0;
    let mut flag = |bit: u8, on: bool| flags |= if on { bit } else { 0 };
    flag(CANONICAL_IS_KEY, derived == Some(print.canonical.0));
    flag(RAW_IS_CANONICAL, print.raw == print.canonical);
    flag(HAS_PAYLOAD, body.state.kept().is_some());
    let mut out = Packer::with_capacity(192);
    out.byte(BODY_VERSION);
    out.byte(flags);
    if flags & CANONICAL_IS_KEY == 0 {
        out.raw(&print.canonical.0);
    }
    if flags & RAW_IS_CANONICAL == 0 {
        out.raw(&print.raw.0);
    }
    out.difference(changed_at.0, created_at.0);
    out.difference(changed_at.0, sent_at.0);
    for number in [body.generation, body.attempts, body.tries, body.rejections] {
        out.number(u64::from(number));
    }
    out.raw(&body.token.0);
    out.number(body.retention.replay_for_ms);
    out.number(body.retention.remember_for_ms);
    pack_state(&mut out, &body.state);
    out.finish()
}

/// What columns hold of a record.
pub(crate) struct Columns<'a> {
    pub(crate) intent: IntentId,
    pub(crate) version: Version,
    pub(crate) changed_at: Millis,
    pub(crate) name: IntentName,
    pub(crate) body: &'a [u8],
    pub(crate) kept: Option<&'a [u8]>,
}

/// Reads a record back.
pub(crate) fn unpack_record(columns: Columns<'_>) -> Result<Record, Damaged> {
    let Columns { intent, version, changed_at, name, body, kept } = columns;
    let mut from = Unpacker::new(body);
    if from.byte()? != BODY_VERSION {
        return Err(Damaged("its version is unknown; a newer oncely may have written it"));
    }
    let flags = from.byte()?;
    let canonical = match derived_digest(&name.key) {
        Some(digest) if flags & CANONICAL_IS_KEY != 0 => digest,
        _ => from.array()?,
    };
    let raw = if flags & RAW_IS_CANONICAL != 0 { canonical } else { from.array()? };
    let created_at = Millis(from.difference(changed_at.0)?);
    let sent_at = Millis(from.difference(changed_at.0)?);
    let [generation, attempts, tries, rejections] =
        [from.number32()?, from.number32()?, from.number32()?, from.number32()?];
    let token = AttemptToken(from.array()?);
    let retention = Retention { replay_for_ms: from.number()?, remember_for_ms: from.number()? };
    if (flags & HAS_PAYLOAD != 0) != kept.is_some() {
        return Err(Damaged("the kept bytes are missing, or too many"));
    }
    let state = unpack_state(&mut from, kept.map(Payload::from))?;
    if !from.is_empty() {
        return Err(Damaged("the body is too long"));
    }
    let fingerprint = Fingerprint { canonical: Digest(canonical), raw: Digest(raw) };
    let body = Body { name, fingerprint, generation, attempts, tries, rejections, token, retention, state };
    Ok(Record { intent, version, created_at, sent_at, changed_at, body })
}

fn pack_state(out: &mut Packer, state: &State) {
    match state {
        State::Running { owner, lease_ms } => {
            out.byte(1);
            pack_owner(out, owner);
            out.number(*lease_ms);
        }
        State::Succeeded { effect, result: _, settled } => {
            out.byte(2);
            out.byte(effect_number(*effect));
            pack_settled(out, settled);
        }
        State::Rejected { failure, settled } => {
            out.byte(3);
            out.text(&failure.code);
            out.text(&failure.message);
            pack_settled(out, settled);
        }
        State::InDoubt { owner, doubt } => {
            out.byte(4);
            pack_owner(out, owner);
            out.byte(cause_number(doubt.cause));
            out.text(&doubt.message);
        }
    }
}

fn unpack_state(from: &mut Unpacker<'_>, kept: Option<Payload>) -> Result<State, Damaged> {
    Ok(match from.byte()? {
        1 => State::Running { owner: unpack_owner(from)?, lease_ms: from.number()? },
        2 => State::Succeeded { effect: unpack_effect(from)?, result: kept, settled: unpack_settled(from)? },
        3 => {
            let (code, message) = (from.text()?.to_owned(), from.text()?.to_owned());
            State::Rejected {
                failure: Failure { code, message, detail: kept },
                settled: unpack_settled(from)?,
            }
        }
        4 => {
            let owner = unpack_owner(from)?;
            let cause = unpack_cause(from)?;
            let message = from.text()?.to_owned();
            State::InDoubt { owner, doubt: Doubt { cause, message, evidence: kept } }
        }
        _ => return Err(Damaged("its state is unknown; a newer oncely may have written it")),
    })
}

fn pack_owner(out: &mut Packer, owner: &Owner) {
    let process = &owner.process;
    out.raw(&process.boot);
    out.number(process.pid_namespace);
    out.number(u64::from(process.pid));
    out.number(process.started_ticks);
    out.text(&owner.host);
}

fn unpack_owner(from: &mut Unpacker<'_>) -> Result<Owner, Damaged> {
    let process = ProcessId {
        boot: from.array()?,
        pid_namespace: from.number()?,
        pid: from.number32()?,
        started_ticks: from.number()?,
    };
    Ok(Owner { process, host: from.text()?.to_owned() })
}

fn pack_settled(out: &mut Packer, settled: &Settled) {
    match settled {
        Settled::Attempt => out.byte(1),
        Settled::Probe => out.byte(2),
        Settled::Person(who) => {
            out.byte(3);
            out.text(who);
        }
    }
}

fn unpack_settled(from: &mut Unpacker<'_>) -> Result<Settled, Damaged> {
    Ok(match from.byte()? {
        1 => Settled::Attempt,
        2 => Settled::Probe,
        3 => Settled::Person(from.text()?.to_owned()),
        _ => return Err(Damaged("how it was settled has an unknown number")),
    })
}

fn effect_number(effect: Effect) -> u8 {
    match effect {
        Effect::Created => 1,
        Effect::Updated => 2,
        Effect::Deleted => 3,
        Effect::Sent => 4,
        Effect::Executed => 5,
        Effect::Noop => 6,
    }
}

fn unpack_effect(from: &mut Unpacker<'_>) -> Result<Effect, Damaged> {
    let number = from.byte()?;
    Effect::ALL
        .into_iter()
        .find(|e| effect_number(*e) == number)
        .ok_or(Damaged("the effect has an unknown number"))
}

fn cause_number(cause: DoubtCause) -> u8 {
    match cause {
        DoubtCause::Reported => 1,
        DoubtCause::TimedOut => 2,
        DoubtCause::Abandoned => 3,
        DoubtCause::OwnerLost => 4,
    }
}

fn unpack_cause(from: &mut Unpacker<'_>) -> Result<DoubtCause, Damaged> {
    Ok(match from.byte()? {
        1 => DoubtCause::Reported,
        2 => DoubtCause::TimedOut,
        3 => DoubtCause::Abandoned,
        4 => DoubtCause::OwnerLost,
        _ => return Err(Damaged("the cause of doubt has an unknown number")),
    })
}

/// The digest that a derived key was made of, if it is spelled as such keys are.
pub(crate) fn derived_digest(key: &Key) -> Option<[u8; 32]> {
    if key.origin() != KeyOrigin::Derived {
        return None;
    }
    let text = key.as_str();
    // An intent id reads 64 hexadecimal digits too.
    let digest = IntentId::parse(text.get(text.len().checked_sub(64)?..)?)?.0;
    (Key::derived(&digest) == *key).then_some(digest)
}

/// Packs the events of one batch.
pub(crate) fn pack_events(events: &[Event]) -> Vec<u8> {
    let mut out = Packer::with_capacity(2 + events.len() * 40);
    out.byte(EVENTS_VERSION);
    out.number(events.len() as u64);
    for event in events {
        out.raw(&event.intent.0);
        out.byte(event.kind as u8);
        out.number(u64::from(event.attempt));
        let texts = [&event.actor, &event.note];
        out.byte(u8::from(texts[0].is_some()) | u8::from(texts[1].is_some()) << 1);
        texts.into_iter().flatten().for_each(|text| out.text(text));
    }
    out.finish()
}

/// How many events a batch holds.
pub(crate) fn count_events(bytes: &[u8]) -> Result<u64, Damaged> {
    unpack_count(&mut Unpacker::new(bytes))
}

fn unpack_count(from: &mut Unpacker<'_>) -> Result<u64, Damaged> {
    match from.byte()? {
        EVENTS_VERSION => from.number(),
        _ => Err(Damaged("the events have an unknown version")),
    }
}

/// Reads the events of one batch back. They may have been packed in several pieces, one after the other.
pub(crate) fn unpack_events(batch: u64, at: Millis, bytes: &[u8]) -> Result<Vec<LoggedEvent>, Damaged> {
    let mut from = Unpacker::new(bytes);
    let mut events = Vec::new();
    loop {
        for _ in 0..unpack_count(&mut from)? {
            let event = unpack_event(&mut from)?;
            events.push(LoggedEvent { seq: event_seq(batch, events.len() as u64), at, event });
        }
        if from.is_empty() {
            return Ok(events);
        }
    }
}

fn unpack_event(from: &mut Unpacker<'_>) -> Result<Event, Damaged> {
    let intent = IntentId(from.array()?);
    let kind = EventKind::from_number(from.byte()?).ok_or(Damaged("an event has an unknown kind"))?;
    let attempt = from.number32()?;
    let texts = from.byte()?;
    let actor = if texts & 1 != 0 { Some(from.text()?.to_owned()) } else { None };
    let note = if texts & 2 != 0 { Some(from.text()?.to_owned()) } else { None };
    Ok(Event { intent, attempt, kind, actor, note })
}

/// Adds a batch to a record's trail: the batches whose events concern it, oldest first, as differences.
pub(crate) fn extend_trail(trail: &[u8], batch: u64) -> Result<Vec<u8>, Damaged> {
    let mut batches = unpack_trail(trail)?;
    if batches.last() != Some(&batch) {
        batches.push(batch);
    }
    Ok(pack_trail(&batches))
}

/// Packs a trail, leaving out the oldest places where there are too many.
pub(crate) fn pack_trail(batches: &[u64]) -> Vec<u8> {
    let mut out = Packer::with_capacity(16);
    let mut before = 0;
    for batch in &batches[batches.len().saturating_sub(TRAIL_MAX)..] {
        out.difference(before, *batch);
        before = *batch;
    }
    out.finish()
}

/// Reads a trail back.
pub(crate) fn unpack_trail(trail: &[u8]) -> Result<Vec<u64>, Damaged> {
    let mut from = Unpacker::new(trail);
    let mut batches = Vec::new();
    let mut before = 0;
    while !from.is_empty() {
        before = from.difference(before)?;
        batches.push(before);
    }
    Ok(batches)
}

#[cfg(test)]
mod tests;
