//! Purging by the machine's rule, counters, and how many records there are.

use oncely_core::limits::{AUDIT_FOR_MS, PAGE_MAX};
use oncely_core::machine::{Input, Write, step};
use oncely_core::{
    Change, Counter, IntentId, Millis, Namespace, PurgeReport, Replaced, StateName, StoreError,
    StoreErrorKind, Stored, Tally, ToolName, Wrote,
};

use super::Shared;
use super::calls::Asked;
use super::errors::odd;
use super::listing::intent;
use super::resp::{Value, command};
use super::scripts::Script;
use super::value::{DUE_FIRST, DUE_IN_DOUBT, DUE_REJECTED};

/// Most entries of the log that one step drops from a shard.
const CUT_MAX: u64 = 1_000;
/// How long the number of what was added last is remembered (1 h).
const COUNTED_MS: &[u8] = b"3600000";
/// Most counters that are added to at once.
const COUNTERS_MAX: usize = 500;
/// Between the parts of a counter's name. No part can hold it.
const SEPARATOR: char = '\0';

impl Shared {
    /// One step of a purge.
    pub(crate) async fn purge(&self, limit: usize) -> Result<PurgeReport, StoreError> {
        let limit = limit.clamp(1, PAGE_MAX);
        let mut report = PurgeReport::default();
        let (mut due, mut cuts) = (Vec::new(), Vec::new());
        for (shard, asked) in
            (0..self.keys.shards()).map(|shard| (shard, self.ask_due(shard, limit + 1))).collect::<Vec<_>>()
        {
            let place = asked.place;
            let reply = asked.replies().await?.pop().unwrap_or(Value::Nil);
            let [Value::Int(0), listed, seconds, micros] = reply.items() else {
                return Err(odd(&reply, &self.describe));
            };
            // Before anything is dropped: a clock that has leapt would have all of it look old.
            let now = self.time(place, seconds, micros)?;
            cuts.extend(now.0.checked_sub(AUDIT_FOR_MS).map(|kept_from| self.ask_cut(shard, kept_from)));
            let members = listed.items().iter().filter_map(Value::bytes);
            due.extend(members.map(|member| (shard, member.to_vec(), now)));
        }
        for asked in cuts {
            let reply = asked.replies().await?.pop().unwrap_or(Value::Nil);
            let [Value::Int(cut)] = reply.items() else {
                return Err(odd(&reply, &self.describe));
            };
            let cut = u64::try_from(*cut).unwrap_or(0);
            report.events_removed += cut;
            report.more |= cut >= CUT_MAX;
        }
        report.more |= due.len() > limit;
        due.truncate(limit);
        let (mut loads, mut strangers) = (Vec::new(), Vec::new());
        for (shard, member, now) in due {
            match intent(&member).filter(|intent| self.keys.shard(intent) == shard) {
                Some(intent) => loads.push((intent, now, self.ask_load(&intent))),
                // However many lie in front, what is due behind them gets its turn.
                None => strangers.push(self.ask_postpone(shard, &member)),
            }
        }
        for (intent, now, asked) in loads {
            match self.loaded(asked, intent).await {
                Ok(there) => self.expire(intent, now, there, &mut report).await?,
                // It may be all that tells of an effect: it stays, out of the way of the others.
                Err(error) if error.kind == StoreErrorKind::Corrupt => {
                    self.ask_postpone(self.keys.shard(&intent), &intent.0).replies().await?;
                    report.unreadable += 1;
                }
                Err(error) => return Err(error),
            }
        }
        for postponed in strangers {
            postponed.replies().await?;
        }
        Ok(report)
    }

    fn ask_due(&self, shard: u16, limit: usize) -> Asked {
        let (limit, rejected) = (limit.to_string(), DUE_REJECTED.to_string());
        let arguments = [self.router.mark(), DUE_FIRST.as_bytes(), limit.as_bytes(), rejected.as_bytes()];
        self.run(shard, Script::Due, &[&self.keys.due(shard), &self.keys.head(shard)], &arguments)
    }

    /// Drops events of the log that are older than this, some at a time.
    fn ask_cut(&self, shard: u16, kept_from: u64) -> Asked {
        let (kept_from, most) = (kept_from.to_string(), CUT_MAX.to_string());
        let arguments = [self.router.mark(), kept_from.as_bytes(), most.as_bytes()];
        self.run(shard, Script::Cut, &[&self.keys.log(shard), &self.keys.head(shard)], &arguments)
    }

    /// Lets the machine say what becomes of a record that is listed as due. Its entries may be older than itself.
    async fn expire(
        &self,
        intent: IntentId,
        now: Millis,
        there: Option<Stored>,
        report: &mut PurgeReport,
    ) -> Result<(), StoreError> {
        let Some(stored) = there else {
            return self.ask_reindex(&intent, None).replies().await.map(drop);
        };
        let change = match step(Some(&stored.record), &Input::Expire, now.max(stored.now)).write {
            Write::Put(draft) => Change::Put(draft),
            Write::Remove => Change::Remove,
            Write::Nothing => {
                return self.ask_reindex(&intent, Some(&stored.record)).replies().await.map(drop);
            }
        };
        let drops_result = matches!(change, Change::Put(_));
        let asked = self.ask_replace(&intent, stored.record.version, &change, &[]);
        if let Replaced::Done(_) = self.replaced(asked, intent, change).await? {
            if drops_result {
                report.results_dropped += 1;
            } else {
                report.records_removed += 1;
            }
        }
        Ok(())
    }

    /// Counts records by state.
    pub(crate) async fn census(&self) -> Result<Vec<(StateName, u64)>, StoreError> {
        let rejected = DUE_REJECTED.to_string();
        let (before, one) = (format!("({rejected}"), DUE_IN_DOUBT.as_bytes());
        let asked: Vec<Asked> = (0..self.keys.shards())
            .map(|shard| {
                let (order, due) = (self.keys.order(shard), self.keys.due(shard));
                let commands = [
                    command(&[b"ZCARD", &order]),
                    command(&[b"ZCOUNT", &due, one, one]),
                    command(&[b"ZCOUNT", &due, DUE_FIRST.as_bytes(), before.as_bytes()]),
                    command(&[b"ZCOUNT", &due, rejected.as_bytes(), b"+inf"]),
                ];
                self.ask(shard, &commands)
            })
            .collect();
        let mut sums = [0_u64; 4];
        for asked in asked {
            for (sum, reply) in sums.iter_mut().zip(asked.replies().await?) {
                *sum += reply.number().ok_or_else(|| odd(&reply, &self.describe))?;
            }
        }
        let [all, in_doubt, succeeded, rejected] = sums;
        let running = all.saturating_sub(in_doubt + succeeded + rejected);
        Ok(vec![
            (StateName::Running, running),
            (StateName::Succeeded, succeeded),
            (StateName::Rejected, rejected),
            (StateName::InDoubt, in_doubt),
        ])
    }

    /// Writes the counters that were added to, each increment once, whatever happens on the way.
    pub(crate) async fn write_tallies(&self) -> Result<(), StoreError> {
        let mut turn = self.counting.lock().await;
        loop {
            if turn.increments.is_empty() {
                turn.increments = self.tallies.take();
                if turn.increments.is_empty() {
                    return Ok(());
                }
            }
            let most = turn.increments.len().min(COUNTERS_MAX);
            let rest = turn.increments.split_off(most);
            self.tallies.put_back(rest);
            let was_sent = turn.is_sent;
            if !was_sent {
                turn.number += 1;
            }
            // Whoever waits for this may go away in the middle: then it counts as sent.
            turn.is_sent = true;
            let number = turn.number.to_string();
            let parts: Vec<(String, String)> = turn.increments.iter().map(field).collect();
            let mut arguments: Vec<&[u8]> = vec![number.as_bytes(), COUNTED_MS];
            for (name, count) in &parts {
                arguments.extend([name.as_bytes(), count.as_bytes()]);
            }
            let names = [&self.keys.counters()[..], &self.keys.counted(&self.handle)];
            match self.run(0, Script::Tally, &names, &arguments).replies().await {
                Ok(_) => {
                    turn.increments.clear();
                    turn.is_sent = false;
                }
                Err(error) => {
                    // The same number with the same increments again, if they may have been added.
                    turn.is_sent = was_sent || error.wrote == Wrote::Maybe;
                    return Err(error);
                }
            }
        }
    }

    /// Reads the counters.
    pub(crate) async fn read_tallies(&self) -> Result<Vec<Tally>, StoreError> {
        let asked = self.ask(0, &[command(&[b"HGETALL", &self.keys.counters()])]);
        let reply = asked.replies().await?.pop().unwrap_or(Value::Nil);
        let mut tallies: Vec<Tally> =
            reply.items().chunks_exact(2).filter_map(|pair| read_tally(&pair[0], &pair[1])).collect();
        tallies.sort_by(|a, b| (&a.namespace, &a.tool, a.counter).cmp(&(&b.namespace, &b.tool, b.counter)));
        Ok(tallies)
    }
}

/// What is being added to the counters.
#[derive(Default)]
pub(crate) struct Counting {
    number: u64,
    increments: Vec<Tally>,
    /// Whether the increments may have been added under this number.
    is_sent: bool,
}

/// A counter as the server keeps it: its name, and a number.
pub(crate) fn field(tally: &Tally) -> (String, String) {
    let Tally { namespace, tool, counter, count } = tally;
    let name = format!("{}{SEPARATOR}{}{SEPARATOR}{}", namespace.as_str(), tool.as_str(), *counter as u8);
    // What does not fit into the server's numbers could not be added at all.
    (name, i64::try_from(*count).unwrap_or(i64::MAX).to_string())
}

/// A counter that this version does not know is a later version's.
fn read_tally(name: &Value, count: &Value) -> Option<Tally> {
    let mut parts = name.text()?.split(SEPARATOR);
    Some(Tally {
        namespace: Namespace::parse(parts.next()?).ok()?,
        tool: ToolName::parse(parts.next()?).ok()?,
        counter: Counter::from_number(parts.next()?.parse().ok()?)?,
        count: count.number()?,
    })
}
