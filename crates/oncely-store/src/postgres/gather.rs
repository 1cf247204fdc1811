//! What leaves together: requests of one kind become one statement.

use std::collections::{HashMap, HashSet, VecDeque};

use oncely_core::IntentId;

use super::limits::{BATCH_BYTES_MAX, BATCH_MAX};
use super::queue::Op;
use super::request::Lane;

/// Requests that leave together, and those that ask for the same record as one of them.
pub(crate) struct Batch {
    pub(crate) lane: Lane,
    pub(crate) ops: Vec<Op>,
    pub(crate) followers: HashMap<IntentId, Vec<Op>>,
}

/// Takes what can leave together: at most one write to a record, for only one of two could win.
/// Answers also how many bytes wait no more.
pub(crate) fn gather(waiting: &mut VecDeque<Op>, lane: Lane) -> (Batch, usize) {
    let most = if lane == Lane::Job { 1 } else { BATCH_MAX };
    let some = waiting.len().min(most);
    let mut batch = Batch { lane, ops: Vec::with_capacity(some), followers: HashMap::new() };
    let (mut seen, mut later) = (HashSet::with_capacity(some), Vec::new());
    let (mut bytes, mut gone) = (0, 0);
    while batch.ops.len() < most {
        let Some(op) = waiting.pop_front() else { break };
        if !batch.ops.is_empty() && bytes + op.bytes > BATCH_BYTES_MAX {
            later.push(op);
            break;
        }
        if op.reply.is_closed() && !op.request.outlives_caller() {
            gone += op.bytes;
            continue;
        }
        match op.request.intent() {
            Some(intent) if !seen.insert(intent) => {
                if lane == Lane::Put {
                    later.push(op);
                } else {
                    gone += op.bytes;
                    batch.followers.entry(intent).or_default().push(op);
                }
            }
            _ => {
                gone += op.bytes;
                bytes += op.bytes;
                batch.ops.push(op);
            }
        }
    }
    for op in later.into_iter().rev() {
        waiting.push_front(op);
    }
    // In one order everywhere, so that two statements do not wait for each other.
    batch.ops.sort_unstable_by_key(|op| op.request.intent().map(|intent| intent.0));
    (batch, gone)
}
