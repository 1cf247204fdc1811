//! The search for an order: depth first over what can have come next, as Wing, Gong and Lowe describe it, never twice
//! through the same place.

use std::collections::{HashMap, HashSet};

use super::{Asked, Operation, Said, Seen};

/// Places that are visited before the search gives up: a history that needs more is too long to judge.
const PLACES_MAX: usize = 5_000_000;

/// The record, as it is between two operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
struct Register {
    /// The token of what is there.
    there: Option<u64>,
    /// The version of the latest write: every later one is greater, also after a removal.
    version: u64,
}

/// Checks the operations on one record.
pub(super) fn check(operations: &[Operation]) -> Result<(), String> {
    let versions = versions_of(operations)?;
    let mut relevant: Vec<Operation> =
        operations.iter().filter(|operation| may_matter(operation, &versions)).copied().collect();
    relevant.sort_by_key(|operation| operation.invoked);
    for operation in &mut relevant {
        if operation.said == Said::Nothing {
            operation.answered = u64::MAX;
        }
    }
    let mut search = Search {
        operations: &relevant,
        versions: &versions,
        visited: HashSet::new(),
        done: vec![0; relevant.len().div_ceil(64)],
        furthest: 0,
    };
    match search.go(Register::default(), 0)? {
        Found::AnOrder => Ok(()),
        Found::None => Err(search.complaint()),
    }
}

/// The version that each write got, as far as anybody saw it; one write has one version.
fn versions_of(operations: &[Operation]) -> Result<HashMap<u64, u64>, String> {
    let mut versions = HashMap::new();
    for operation in operations {
        let (Said::Done(Some(seen)) | Said::Found(Some(seen))) = operation.said else { continue };
        let known = *versions.entry(seen.token).or_insert(seen.version);
        if known != seen.version {
            return Err(format!("the same write was seen as versions {known} and {}", seen.version));
        }
    }
    Ok(versions)
}

/// A write without an answer that nobody ever saw can be taken to have never happened: who does not know it cannot write
/// over it, so if it had happened, the next one would have seen it. A removal can only be seen by what is absent.
fn may_matter(operation: &Operation, versions: &HashMap<u64, u64>) -> bool {
    match (operation.said, operation.asked) {
        (Said::Refused, _) | (Said::Nothing, Asked::Load) => false,
        (Said::Nothing, Asked::Create { token } | Asked::Put { token, .. }) => versions.contains_key(&token),
        (Said::Nothing, Asked::Remove { .. }) | (Said::Done(_) | Said::Found(_), _) => true,
    }
}

enum Found {
    AnOrder,
    None,
}

struct Search<'a> {
    operations: &'a [Operation],
    versions: &'a HashMap<u64, u64>,
    visited: HashSet<(Vec<u64>, Register)>,
    /// Which operations are in the order so far.
    done: Vec<u64>,
    furthest: usize,
}

impl Search<'_> {
    fn go(&mut self, register: Register, depth: usize) -> Result<Found, String> {
        self.furthest = self.furthest.max(depth);
        // Whatever had its answer before another was asked comes before it.
        let first_answer = self.left().map(|operation| operation.answered).min();
        if first_answer.is_none_or(|stamp| stamp == u64::MAX) {
            return Ok(Found::AnOrder);
        }
        if !self.visited.insert((self.done.clone(), register)) {
            return Ok(Found::None);
        }
        if self.visited.len() > PLACES_MAX {
            return Err("too many orders to try: record a shorter history".to_owned());
        }
        for index in 0..self.operations.len() {
            let operation = self.operations[index];
            if Some(operation.invoked) > first_answer {
                break;
            }
            if self.is_done(index) {
                continue;
            }
            if let Some(next) = self.after(register, &operation) {
                self.done[index / 64] |= 1 << (index % 64);
                if let Found::AnOrder = self.go(next, depth + 1)? {
                    return Ok(Found::AnOrder);
                }
                self.done[index / 64] &= !(1 << (index % 64));
            }
        }
        Ok(Found::None)
    }

    /// The register after an operation, if the operation can have had its answer there.
    fn after(&self, register: Register, operation: &Operation) -> Option<Register> {
        let is_there = |seen: Option<Seen>| register.there == seen.map(|seen| seen.token);
        let write = |token: u64| {
            let version = *self.versions.get(&token)?;
            (version > register.version).then_some(Register { there: Some(token), version })
        };
        let shows = |token: u64, seen: Option<Seen>| seen.is_some_and(|seen| seen.token == token);
        match (operation.asked, operation.said) {
            (Asked::Load, Said::Found(seen)) => is_there(seen).then_some(register),
            (Asked::Create { .. }, Said::Found(seen)) => {
                (seen.is_some() && is_there(seen)).then_some(register)
            }
            (Asked::Create { token }, Said::Done(seen)) if !shows(token, seen) => None,
            (Asked::Create { token }, _) if register.there.is_none() => write(token),
            (Asked::Put { from, .. } | Asked::Remove { from }, Said::Found(seen)) => {
                (is_there(seen) && register.there != Some(from.token)).then_some(register)
            }
            (Asked::Put { token, .. }, Said::Done(seen)) if !shows(token, seen) => None,
            (Asked::Put { from, token }, _) if register.there == Some(from.token) => write(token),
            (Asked::Remove { .. }, Said::Done(Some(_))) => None,
            (Asked::Remove { from }, _) if register.there == Some(from.token) => {
                Some(Register { there: None, ..register })
            }
            _ => None,
        }
    }

    fn is_done(&self, index: usize) -> bool {
        self.done[index / 64] & (1 << (index % 64)) != 0
    }

    fn left(&self) -> impl Iterator<Item = &Operation> {
        let left = self.operations.iter().enumerate().filter(|(index, _)| !self.is_done(*index));
        left.map(|(_, operation)| operation)
    }

    fn complaint(&self) -> String {
        let around: Vec<String> = self.operations[self.furthest.saturating_sub(6)..]
            .iter()
            .take(14)
            .map(|o| {
                format!("  {}..{} client {}: {:?} -> {:?}", o.invoked, o.answered, o.client, o.asked, o.said)
            })
            .collect();
        format!(
            "no order explains all {} operations; at most {} fit, up to about here:\n{}",
            self.operations.len(),
            self.furthest,
            around.join("\n")
        )
    }
}
