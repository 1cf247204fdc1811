//! Requests to one server, and how several become one call.

use oncely_core::{StoreError, Wrote};

use super::outstanding::Ticket;
use super::resp::{Value, encode_parts};
use super::scripts::Script;
use crate::courier::{Answers, Reply};

/// The answer to a request, for its caller.
pub(crate) type Answer = Result<Vec<Value>, StoreError>;

/// What is asked.
pub(crate) enum Asks {
    /// Commands, encoded, and how many replies they get.
    Plain {
        /// The commands.
        bytes: Vec<u8>,
        /// The replies.
        replies: usize,
    },
    /// Commands of which each reads one value. A key of another type is no refusal of them all: it is the answer in its
    /// place, and whoever reads it knows what it means there.
    Values {
        /// The commands.
        bytes: Vec<u8>,
        /// The replies.
        replies: usize,
    },
    /// One record's part of a script that takes several of one shard.
    Part(Part),
}

/// One record's part of a script: what it adds to the keys and to the arguments, encoded.
pub(crate) struct Part {
    /// Which script.
    pub(crate) script: Script,
    /// Its keys, of which the first is the record.
    keys: Vec<u8>,
    key_count: usize,
    arguments: Vec<u8>,
    argument_count: usize,
    /// How many places in the log it takes if it is written.
    pub(crate) places: u64,
}

impl Part {
    /// With so many entries of events, which are its last arguments.
    pub(crate) fn new(script: Script, keys: &[&[u8]], arguments: &[&[u8]], entries: usize) -> Self {
        Self {
            script,
            keys: encode_parts(keys),
            key_count: keys.len(),
            arguments: encode_parts(arguments),
            argument_count: arguments.len(),
            places: entries.max(1) as u64,
        }
    }
}

/// What all parts of a shard have in common.
pub(crate) struct Terms<'a> {
    /// The script's name.
    pub(crate) name: &'a [u8],
    /// The shard's keys.
    pub(crate) keys: &'a [Vec<u8>],
    /// The ledger's arguments.
    pub(crate) arguments: &'a [Vec<u8>],
}

/// Appends one call of a script for several records.
pub(crate) fn encode_together(out: &mut Vec<u8>, terms: &Terms<'_>, parts: &[&Part]) {
    let keys = terms.keys.len() + parts.iter().map(|part| part.key_count).sum::<usize>();
    let arguments = terms.arguments.len() + parts.iter().map(|part| part.argument_count).sum::<usize>();
    out.extend_from_slice(format!("*{}\r\n", 3 + keys + arguments).as_bytes());
    out.extend_from_slice(&encode_parts(&[b"EVALSHA", terms.name, keys.to_string().as_bytes()]));
    let shared: Vec<&[u8]> = terms.keys.iter().map(Vec::as_slice).collect();
    out.extend_from_slice(&encode_parts(&shared));
    parts.iter().for_each(|part| out.extend_from_slice(&part.keys));
    let shared: Vec<&[u8]> = terms.arguments.iter().map(Vec::as_slice).collect();
    out.extend_from_slice(&encode_parts(&shared));
    parts.iter().for_each(|part| out.extend_from_slice(&part.arguments));
}

/// Whether a request may write, and who has to confirm that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Writes {
    /// It only reads.
    No,
    /// As many replicas as every write needs.
    Yes,
    /// At least so many replicas.
    ConfirmedBy(u32),
}

impl Writes {
    /// Whether it may.
    pub(crate) fn may(self) -> bool {
        self != Self::No
    }

    /// How many replicas have to confirm it, where every write needs so many.
    pub(crate) fn replicas(self, every: u32) -> u32 {
        match self {
            Self::No => 0,
            Self::Yes => every,
            Self::ConfirmedBy(at_least) => every.max(at_least),
        }
    }
}

/// A request on its way.
pub(crate) struct Request {
    /// The shard that it concerns, which says where it goes.
    pub(crate) shard: u16,
    /// What is asked.
    pub(crate) asks: Asks,
    /// Whether it may write. Its one reply then is an array that begins with 1 if it did.
    pub(crate) writes: Writes,
    /// How often it was sent somewhere else.
    pub(crate) hops: u32,
    /// Whether the next server is to be told that it was sent there for once.
    pub(crate) asking: bool,
    pub(crate) caller: Reply<Answer>,
    pub(crate) ticket: Ticket,
}

impl Request {
    /// Answers the caller. If it has gone away, nobody hears it.
    pub(crate) fn answer(self, answer: Answer) {
        // Before the caller can know: a flush that follows must not wait for this.
        drop(self.ticket);
        self.caller.send(answer);
    }

    /// The same, together with others.
    pub(crate) fn answer_among(self, answers: &mut Answers<Answer>, answer: Answer) {
        drop(self.ticket);
        answers.add(self.caller, answer);
    }

    /// What is known of it once it was sent.
    pub(crate) fn may_have_written(&self) -> Wrote {
        if self.writes.may() { Wrote::Maybe } else { Wrote::No }
    }

    /// About how many bytes it takes.
    pub(crate) fn len(&self) -> usize {
        match &self.asks {
            Asks::Plain { bytes, .. } | Asks::Values { bytes, .. } => bytes.len(),
            Asks::Part(part) => part.keys.len() + part.arguments.len(),
        }
    }

    /// Whether both can be parts of one call: the same script on two records of one shard.
    pub(crate) fn goes_with(&self, other: &Self) -> bool {
        let (Asks::Part(one), Asks::Part(two)) = (&self.asks, &other.asks) else { return false };
        self.shard == other.shard
            && one.script == two.script
            // A removal names one more key, which is hardly ever there: where a slot moves, others would wait with it.
            && one.key_count == two.key_count
            && one.keys != two.keys
            // Nor does what was refused once wait with others: a claim of a new key is refused where a duplicate is not.
            && self.hops == 0
            && other.hops == 0
    }
}
