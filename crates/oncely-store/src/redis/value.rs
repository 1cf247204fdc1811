//! What the server keeps of a record, and the numbers that its places in the log are.
//!
//! A value is `version LF trail LF body`. The first two lines are the script's: the version is the place in the shard's
//! log that the last write took, `milliseconds-sequence` as streams spell it, and the trail lists the entries of the log
//! that tell of the record. One entry may tell of several records, and takes a place for each. The body is packed here, before the version is known; so its stamps say either a time
//! or "when this version was written".

use oncely_core::{
    Draft, Event, IntentId, IntentName, Key, Millis, Namespace, Record, Scope, Stamp, State, StateName,
    ToolName, Version,
};

use crate::codec::{Columns, pack_body, pack_events, unpack_record};
use crate::wire::{Damaged, Packer, Unpacker};

const VALUE_VERSION: u8 = 1;
/// Stands for the length of bytes that are not there.
const NOTHING_KEPT: u32 = u32::MAX;
/// The bits of a version below its milliseconds.
pub(crate) const SEQUENCE_BITS: u32 = 11;
/// The bits below a version in a place: the shard, and the event in its entry.
pub(crate) const PLACE_BITS: u32 = SHARD_BITS + EVENT_BITS;
/// The bits of a shard's number.
pub(crate) const SHARD_BITS: u32 = 6;
/// The bits of an event's number in its entry.
const EVENT_BITS: u32 = 5;
/// Most events in one entry of the log.
const EVENTS_PER_ENTRY: usize = 1 << EVENT_BITS;
/// Most places that one entry of the log takes: those of all records of one call, and of all their events.
pub(crate) const ENTRY_PLACES_MAX: u64 = 256;
/// Most places in a trail, as the scripts keep it; with so many, older ones may be missing.
pub(crate) const TRAIL_MAX: usize = 64;

/// In doubt: filed under this, which is no time.
pub(crate) const DUE_IN_DOUBT: &str = "1";
/// The first place that is a time.
pub(crate) const DUE_FIRST: &str = "2";
/// Rejected records are filed under their time plus this, so that states can be counted.
pub(crate) const DUE_REJECTED: u64 = 1 << 52;
/// Further away than any time that is filed: beyond it nothing is ever due.
const DUE_MS_MAX: u64 = 1 << 50;
/// How long after its time a record may still be there before the server drops it by itself (7 d).
const SLACK_MS: u64 = 7 * 24 * 60 * 60 * 1000;

/// A version as the server spells it.
pub(crate) fn version_text(version: Version) -> String {
    let sequence = version.0 & ((1 << SEQUENCE_BITS) - 1);
    format!("{}-{sequence}", version.0 >> SEQUENCE_BITS)
}

/// Reads a version; also the time that it was written at.
pub(crate) fn read_version(text: &[u8]) -> Result<(Version, Millis), Damaged> {
    let damaged = Damaged("a version is not one");
    let (ms, sequence) = std::str::from_utf8(text).ok().and_then(|t| t.split_once('-')).ok_or(damaged)?;
    let (ms, sequence): (u64, u64) = ms.parse().ok().zip(sequence.parse().ok()).ok_or(damaged)?;
    if ms >= 1 << (64 - SEQUENCE_BITS - PLACE_BITS) || sequence >= 1 << SEQUENCE_BITS {
        return Err(Damaged("a version is out of bounds"));
    }
    Ok((Version(ms << SEQUENCE_BITS | sequence), Millis(ms)))
}

/// The place of a version of a shard among those of all shards, and of an event in its entry.
pub(crate) fn place(version: Version, shard: u16, event: usize) -> u64 {
    version.0 << PLACE_BITS | u64::from(shard) << EVENT_BITS | event as u64
}

/// The first version of a shard whose places lie after this one.
pub(crate) fn first_after(place: u64, shard: u16) -> Version {
    let here = place & ((1 << PLACE_BITS) - 1);
    let reached = (u64::from(shard) << EVENT_BITS) + (1 << EVENT_BITS) - 1 <= here;
    Version((place >> PLACE_BITS) + u64::from(reached))
}

/// A record's body, ready to be sent.
pub(crate) fn pack(intent: &IntentId, draft: &Draft) -> Vec<u8> {
    let name = &draft.body.name;
    // The differences between stamps are not known yet: they are kept here instead.
    let at = Millis(0);
    let timeless = Record {
        intent: *intent,
        version: Version(0),
        created_at: at,
        sent_at: at,
        changed_at: at,
        body: draft.body.clone(),
    };
    let body = pack_body(&timeless);
    let kept = draft.body.state.kept();
    let mut out = Packer::with_capacity(128 + body.len() + kept.map_or(0, |k| k.len()));
    out.byte(VALUE_VERSION);
    out.raw(&(body.len() as u32).to_be_bytes());
    out.raw(&kept.map_or(NOTHING_KEPT, |k| k.len() as u32).to_be_bytes());
    out.raw(&intent.0);
    for stamp in [draft.created, draft.sent, draft.changed] {
        match stamp {
            Stamp::OnWrite => out.byte(0),
            Stamp::Kept(at) => {
                out.byte(1);
                out.number(at.0);
            }
        }
    }
    for text in [name.namespace.as_str(), name.scope.as_str(), name.tool.as_str(), name.key.as_str()] {
        out.text(text);
    }
    out.raw(&body);
    if let Some(kept) = kept {
        out.raw(kept);
    }
    out.finish()
}

/// A record with the places of its events.
pub(crate) struct Found {
    pub(crate) record: Record,
    pub(crate) trail: Vec<Version>,
}

/// Reads a value back. It has to be this intent's: an answer that was meant for another is never taken.
pub(crate) fn unpack(intent: &IntentId, value: &[u8]) -> Result<Found, Damaged> {
    let damaged = Damaged("a value has no version");
    let (version, rest) = split_line(value).ok_or(damaged)?;
    let (trail, body) = split_line(rest).ok_or(damaged)?;
    let (version, written_at) = read_version(version)?;
    let Parts { names, body, kept } = split(body)?;
    let mut from = Unpacker::new(names);
    if from.array()? != intent.0 {
        return Err(Damaged("a value holds another intent"));
    }
    let mut stamp = || -> Result<Millis, Damaged> {
        Ok(if from.byte()? == 0 { written_at } else { Millis(from.number()?) })
    };
    let (created_at, sent_at, changed_at) = (stamp()?, stamp()?, stamp()?);
    let name = IntentName {
        namespace: Namespace::parse(from.text()?).map_err(|_| Damaged("a namespace is not one"))?,
        scope: match from.text()? {
            "" => Scope::none(),
            scope => Scope::parse(scope).map_err(|_| Damaged("a scope is not one"))?,
        },
        tool: ToolName::parse(from.text()?).map_err(|_| Damaged("a tool name is not one"))?,
        key: Key::from_stored(from.text()?).map_err(|_| Damaged("a key is not one"))?,
    };
    let columns = Columns { intent: *intent, version, changed_at: Millis(0), name, body, kept };
    let record = Record { created_at, sent_at, changed_at, ..unpack_record(columns)? };
    Ok(Found { record, trail: read_trail(trail)? })
}

/// The parts of a packed body.
struct Parts<'a> {
    names: &'a [u8],
    body: &'a [u8],
    kept: Option<&'a [u8]>,
}

fn split(bytes: &[u8]) -> Result<Parts<'_>, Damaged> {
    let short = Damaged("a value ends too early");
    let mut from = Unpacker::new(bytes);
    if from.byte()? != VALUE_VERSION {
        return Err(Damaged("its version is unknown; a newer oncely may have written it"));
    }
    let (body_len, kept_len) = (u32::from_be_bytes(from.array()?), u32::from_be_bytes(from.array()?));
    let rest = bytes.get(9..).ok_or(short)?;
    let (rest, kept) = match kept_len {
        NOTHING_KEPT => (rest, None),
        len => {
            let at = rest.len().checked_sub(len as usize).ok_or(short)?;
            (&rest[..at], Some(&rest[at..]))
        }
    };
    let at = rest.len().checked_sub(body_len as usize).ok_or(short)?;
    Ok(Parts { names: &rest[..at], body: &rest[at..], kept })
}

/// Reads a list of places.
pub(crate) fn read_trail(trail: &[u8]) -> Result<Vec<Version>, Damaged> {
    let places = trail.split(|b| *b == b',').filter(|place| !place.is_empty());
    places.map(|place| Ok(read_version(place)?.0)).collect()
}

/// The version of a value of which at least the first line is there.
pub(crate) fn version_of(head: &[u8]) -> Option<Version> {
    split_line(head).and_then(|(line, _)| read_version(line).ok()).map(|(version, _)| version)
}

fn split_line(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = bytes.iter().position(|b| *b == b'\n')?;
    Some((&bytes[..end], &bytes[end + 1..]))
}

/// Events as entries of the log.
pub(crate) fn pack_entries(events: &[Event]) -> Vec<Vec<u8>> {
    events.chunks(EVENTS_PER_ENTRY).map(pack_events).collect()
}

/// When a draft is due and when the server may drop it, as the scripts take it.
pub(crate) struct Filed {
    /// After how long something is due; empty: never.
    pub(crate) due: String,
    /// From when on that counts; empty: from the write on.
    pub(crate) from: String,
    /// After how long the server may drop it; empty: never.
    pub(crate) keep: String,
}

impl Filed {
    /// For what never is due.
    pub(crate) fn never() -> Self {
        Self { due: String::new(), from: String::new(), keep: String::new() }
    }
}

/// Where a draft is filed.
pub(crate) fn filed(draft: &Draft) -> Filed {
    let none = String::new;
    let body = &draft.body;
    let after_ms = match (&body.state, body.due_after_ms()) {
        (State::InDoubt { .. }, _) => {
            return Filed { due: DUE_IN_DOUBT.to_owned(), from: "0".to_owned(), keep: none() };
        }
        (_, None) => return Filed::never(),
        (_, Some(after_ms)) => after_ms.min(DUE_MS_MAX),
    };
    let rejected = matches!(body.state, State::Rejected { .. });
    let due_ms = after_ms + if rejected { DUE_REJECTED } else { 0 };
    let from = match draft.changed {
        Stamp::OnWrite => none(),
        // Not below the first place that is a time.
        Stamp::Kept(at) => at.0.clamp(2, DUE_MS_MAX).to_string(),
    };
    let longest = body.retention.replay_for_ms.max(body.retention.remember_for_ms);
    let keep = if longest > DUE_MS_MAX { none() } else { (longest + SLACK_MS).to_string() };
    Filed { due: due_ms.to_string(), from, keep }
}

/// The state that a record is filed under.
pub(crate) fn filed_state(due: Option<u64>) -> StateName {
    match due {
        None => StateName::Running,
        Some(due) if due.to_string() == DUE_IN_DOUBT => StateName::InDoubt,
        Some(due) if due >= DUE_REJECTED => StateName::Rejected,
        Some(_) => StateName::Succeeded,
    }
}

/// Where a record is filed that is there already.
pub(crate) fn filed_again(record: &Record) -> String {
    let draft = Draft {
        created: Stamp::Kept(record.created_at),
        sent: Stamp::Kept(record.sent_at),
        changed: Stamp::Kept(record.changed_at),
        body: record.body.clone(),
    };
    let Filed { due, from, .. } = filed(&draft);
    match (due.parse::<u64>(), from.parse::<u64>()) {
        (Ok(due), Ok(from)) => (due + from).to_string(),
        _ => due,
    }
}

#[cfg(test)]
mod tests {
    use super::{first_after, place, read_version, version_text};
    use oncely_core::{Millis, Version};

    #[test]
    fn a_version_reads_back_as_the_server_spells_it() {
        let (version, at) = read_version(b"1794796800123-1023").unwrap();
        assert_eq!(at, Millis(1_794_796_800_123));
        assert_eq!(version_text(version), "1794796800123-1023");
        assert!(version.0 < 1 << 53, "scripts and JSON count in doubles");
        for bad in ["", "1", "1-", "-1", "x-1", "1-2048", "99999999999999-0", "1-1-1"] {
            assert!(read_version(bad.as_bytes()).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_page_goes_on_after_the_place_where_the_last_one_ended() {
        let version = Version(77);
        let here = place(version, 5, 0);
        assert_eq!(first_after(here, 4), Version(78), "a shard before it has been read to there");
        assert_eq!(first_after(here, 5), version, "more events may follow in the same entry");
        assert_eq!(first_after(here, 6), version);
        assert_eq!(first_after(place(version, 5, 31), 5), Version(78));
        assert_eq!(first_after(0, 0), Version(0));
        assert!(place(Version(1), 0, 0) > place(Version(0), 63, 31));
    }
}
