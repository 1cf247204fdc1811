//! The gate of the ledger: it stands in the head of every shard, so that each script looks at it where it writes.
//!
//! A turn is decided in the first shard, by its number, and then followed by the others. Whoever finds a turn half done
//! completes it: a program that was killed between two shards leaves a gate that is turned by the next one who looks. Until
//! all shards have followed, nobody is told that the gate stands; claims that pass where it is still open are there to be
//! read when it is told. A turn is answered only when all replicas that are connected have confirmed it, in every shard.
//! Who looks is told what the primaries say; who has to be sure turns the gate to where it stands.

use std::ops::{Range, RangeInclusive};

use oncely_core::name::hex;
use oncely_core::{Gate, Millis, Move, StoreError, StoreErrorKind, Wrote};

use super::Shared;
use super::calls::Asked;
use super::checks::connected_replicas;
use super::errors::odd;
use super::head::{FORMAT_MOVED, Head};
use super::link::Writes;
use super::resp::{Value, command};
use super::scripts::Script;

/// A gate as it stands in a head; nothing, if it is open.
pub(crate) fn text(gate: &Gate) -> Option<String> {
    let (phase, of) = match gate {
        Gate::Open => return None,
        Gate::Closing(of) => (1, of),
        Gate::Closed(of) => (2, of),
        Gate::Filling(of) => (3, of),
    };
    let Move { id, run, other, shift_ms, steady_since } = of;
    Some(format!("{phase}/{}/{run}/{shift_ms}/{}/{}", hex(id), steady_since.0, hex(other.as_bytes())))
}

/// Reads it back.
pub(crate) fn parse(text: &str) -> Option<Gate> {
    let parts: Vec<&str> = text.split('/').collect();
    let [phase, id, run, shift_ms, steady_since, other] = parts.as_slice() else { return None };
    let of = Move {
        id: unhex(id)?.try_into().ok()?,
        run: run.parse().ok()?,
        other: String::from_utf8(unhex(other)?).ok()?,
        shift_ms: shift_ms.parse().ok()?,
        steady_since: Millis(steady_since.parse().ok()?),
    };
    match *phase {
        "1" => Some(Gate::Closing(of)),
        "2" => Some(Gate::Closed(of)),
        "3" => Some(Gate::Filling(of)),
        _ => None,
    }
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    if !digits.len().is_multiple_of(2) || !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(text.get(at..at + 2)?, 16).ok()).collect()
}

/// How the gate of one shard stands.
pub(crate) struct Standing {
    /// How often it was turned.
    turn: u64,
    pub(crate) head: Head,
}

impl Shared {
    /// How the gate stands, in all shards.
    pub(crate) async fn gate(&self) -> Result<Gate, StoreError> {
        Ok(self.settled().await?.head.gate)
    }

    /// Turns the gate if it stands as expected; answers how it stands then.
    pub(crate) async fn turn_gate(&self, from: Gate, to: Gate) -> Result<Gate, StoreError> {
        loop {
            let stands = self.settled().await?;
            if stands.head.gate != from {
                return Ok(stands.head.gate);
            }
            let format = match &to {
                Gate::Filling(_) => FORMAT_MOVED,
                _ => stands.head.format,
            };
            let mut head = stands.head;
            (head.format, head.gate) = (format, to.clone());
            let next = Standing { turn: stands.turn + 1, head };
            // Decided by the first shard: of several turns, one has the next number.
            if self.turn_shards(0..1, &next, stands.turn..=stands.turn).await? {
                self.follow(&next).await?;
                if let Gate::Filling(of) = &to {
                    self.complete_plan(of).await?;
                }
                return Ok(to);
            }
        }
    }

    /// How the gate stands in all shards; a turn that was left half done is completed first.
    async fn settled(&self) -> Result<Standing, StoreError> {
        loop {
            let all = self.standings().await?;
            let last = all.iter().map(|standing| standing.turn).max().unwrap_or(0);
            // The first of them: the one that decided, unless its server has lost it.
            let Some(latest) = all.iter().position(|standing| standing.turn == last) else {
                return Err(odd(&Value::Nil, &self.describe));
            };
            let gate = &all[latest].head.gate;
            let is_settled = all.iter().all(|standing| standing.turn == last && standing.head.gate == *gate);
            let Some(latest) = all.into_iter().nth(latest) else { continue };
            if is_settled {
                return Ok(latest);
            }
            if self.turn_shards(0..1, &latest, 0..=latest.turn).await? {
                self.follow(&latest).await?;
                return Ok(latest);
            }
        }
    }

    /// How it stands in each shard.
    pub(crate) async fn standings(&self) -> Result<Vec<Standing>, StoreError> {
        self.check_process()?;
        let asked: Vec<Asked> = (0..self.keys.shards())
            .map(|shard| {
                self.ask(shard, &[command(&[b"MGET", &self.keys.head(shard), &self.keys.turn(shard)])])
            })
            .collect();
        let mut standings = Vec::with_capacity(asked.len());
        for (shard, asked) in asked.into_iter().enumerate() {
            let reply = asked.replies().await?.pop().unwrap_or(Value::Nil);
            let [head, turn] = reply.items() else { return Err(odd(&reply, &self.describe)) };
            let Some(head) = head.text() else {
                return Err(super::head::lost(&self.describe, shard as u16));
            };
            standings.push(Standing { turn: turn.number().unwrap_or(0), head: Head::parse(head)? });
        }
        Ok(standings)
    }

    /// Lets the other shards follow the first one. A shard that has been turned further meanwhile stays.
    async fn follow(&self, decided: &Standing) -> Result<(), StoreError> {
        self.turn_shards(1..self.keys.shards(), decided, 0..=decided.turn).await.map(drop)
    }

    /// Turns some shards; whether all of them were. To lose it would open a whole shard, and it is done seldom: so all
    /// replicas that are connected have to confirm it.
    async fn turn_shards(
        &self,
        shards: Range<u16>,
        to: &Standing,
        from: RangeInclusive<u64>,
    ) -> Result<bool, StoreError> {
        // With a key of the shard before it: else a server would answer that has the shard no longer.
        let look = |shard| {
            let head = self.keys.head(shard);
            self.ask(shard, &[command(&[b"EXISTS", &head]), command(&[b"INFO", b"replication"])])
        };
        let looked: Vec<(u16, Asked)> = shards.map(|shard| (shard, look(shard))).collect();
        let mut asked = Vec::with_capacity(looked.len());
        for (shard, looked) in looked {
            let half = |error| self.half(shard, error);
            let info = looked.replies().await.map_err(half)?.pop().unwrap_or(Value::Nil);
            let replicas = connected_replicas(info.text().unwrap_or_default());
            asked.push((shard, self.ask_turn(shard, to, from.clone(), Writes::ConfirmedBy(replicas))));
        }
        let mut all = true;
        for (shard, asked) in asked {
            all &= self.turned(shard, asked).await?;
        }
        Ok(all)
    }

    fn ask_turn(&self, shard: u16, to: &Standing, from: RangeInclusive<u64>, writes: Writes) -> Asked {
        let Standing { turn, head } = to;
        let (before, after) = head.turned(shard, head.format, &head.gate);
        let (low, high) = (from.start().to_string(), from.end().to_string());
        let (mark, turn) = (head.mark(), turn.to_string());
        let keeps_plan = if matches!(head.gate, Gate::Filling(_)) { "1" } else { "" };
        let keys = &self.keys;
        let names = [keys.head(shard), keys.turn(shard), keys.log(shard), keys.plan(shard)];
        let arguments = [&mark, &low, &high, &turn, &before, &after, keeps_plan];
        self.run_confirmed(
            shard,
            Script::Turn,
            &names.each_ref().map(Vec::as_slice),
            &arguments.map(|argument| argument.as_bytes()),
            writes,
        )
    }

    /// What is told if a shard could not be turned.
    fn half(&self, shard: u16, error: StoreError) -> StoreError {
        if shard == 0 && error.wrote == Wrote::No {
            // It was not even decided.
            return error;
        }
        let message = format!(
            "the gate of {} may be turned in some shards and not in shard {shard}: {}; the same command again completes it",
            self.describe, error.message
        );
        StoreError::ambiguous(error.kind, message)
    }

    /// Whether a shard was turned.
    async fn turned(&self, shard: u16, asked: Asked) -> Result<bool, StoreError> {
        let half = |error| self.half(shard, error);
        let reply = asked.replies().await.map_err(half)?.pop().unwrap_or(Value::Nil);
        match reply.items() {
            [Value::Int(1)] => Ok(true),
            [Value::Int(0), _] => Ok(false),
            _ => Err(odd(&reply, &self.describe)),
        }
    }
}

/// What a writer is told who is not let in; nothing, if these words tell of something else.
pub(crate) fn refusal(words: &str, ledger: &str) -> Option<StoreError> {
    let head = words.strip_prefix("GATED ")?;
    Some(match Head::parse(head) {
        Ok(head) => head.gate.refusal(ledger),
        Err(error) => StoreError::before(StoreErrorKind::Moved, error.message),
    })
}

#[cfg(test)]
mod tests {
    use super::{parse, text};
    use oncely_core::Gate;

    #[test]
    fn what_is_no_gate_is_not_read_as_one() {
        assert_eq!(text(&Gate::Open), None);
        let id = "07".repeat(16);
        assert!(parse(&format!("2/{id}/1/-5/77/6162")).is_some());
        for bad in [
            String::new(),
            format!("4/{id}/1/-5/77/6162"),
            format!("2/{id}/1/-5/77"),
            format!("2/{id}/1/-5/77/616"),
            format!("2/{id}/1/-5/77/ff"),
            format!("2/{id}/-1/-5/77/6162"),
            format!("2/{id}é/1/-5/77/6162"),
            format!("2/{}/1/-5/77/6162", &id[2..]),
        ] {
            assert_eq!(parse(&bad), None, "{bad}");
        }
    }
}
