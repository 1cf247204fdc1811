//! How often callers were told what: a simulation that never reaches an answer proves nothing about it.

use std::sync::{Arc, Mutex};

use oncely::{Answer, Error, Unrecorded};

pub(crate) const NAMES: [&str; 11] = [
    "executed",
    "executed, not recorded",
    "executed, superseded",
    "replayed",
    "replayed without result",
    "refused",
    "in progress",
    "conflict",
    "unknown",
    "error",
    "rejected after an unknown",
];

#[derive(Clone, Default)]
pub(crate) struct Answers(Arc<Mutex<[u64; NAMES.len()]>>);

impl Answers {
    pub(crate) fn count(&self, result: &Result<Answer, Error>) {
        let at = match result {
            Ok(Answer::Executed(execution)) => match execution.unrecorded {
                None => 0,
                Some(Unrecorded::StoreFailed(_)) => 1,
                Some(Unrecorded::Superseded) => 2,
                Some(Unrecorded::EarlierUnknown) => 10,
            },
            Ok(Answer::Replayed(replay)) => 3 + usize::from(!replay.kept),
            Ok(Answer::Refused(_)) => 5,
            Ok(Answer::InProgress(_)) => 6,
            Ok(Answer::Conflict { .. }) => 7,
            Ok(Answer::Unknown(_)) => 8,
            Err(_) => 9,
        };
        self.0.lock().unwrap()[at] += 1;
    }

    pub(crate) fn all(&self) -> [u64; NAMES.len()] {
        *self.0.lock().unwrap()
    }
}
