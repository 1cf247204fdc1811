//! One statement of the hot path, run: what goes in, and what became of each entry.

use std::cell::LazyCell;
use std::collections::HashMap;
use std::sync::Arc;

use oncely_core::{Draft, IntentId, Millis, Record, StoreError, Stored, Version};
use tokio_postgres::types::Type;

use super::errors::{Doing, Trouble};
use super::limits::{HELD_ALONE, HELD_AMONG, HELD_APART};
use super::params::{self, Creates, Puts};
use super::rows::{self, Half};
use super::session::Session;
use super::shared::Shared;
use super::sql::Hot;
use crate::leap::Asked;
use crate::wire::Damaged;

/// A record that is to be written.
pub(crate) struct Entry {
    pub(crate) intent: IntentId,
    pub(crate) expected: Version,
    pub(crate) draft: Box<Draft>,
    pub(crate) events: Option<Vec<u8>>,
}

/// What became of one entry.
pub(crate) enum Outcome {
    Written {
        version: Version,
        /// What it was stamped with.
        at: Millis,
        now: Millis,
    },
    /// Another record stands there.
    There(Stored),
    /// Nothing is there.
    Gone,
    /// This one failed; others did not.
    Failed(StoreError),
}

/// How long a statement waits for a record that another transaction holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Patience {
    /// Nobody else waits for its end.
    Alone,
    /// Others do.
    Among,
    /// Others do, and have done so already.
    Apart,
}

impl Patience {
    fn millis(self) -> i64 {
        let patience = match self {
            Self::Alone => HELD_ALONE,
            Self::Among => HELD_AMONG,
            Self::Apart => HELD_APART,
        };
        i64::try_from(patience.as_millis()).unwrap_or(i64::MAX)
    }
}

/// Writes those that are not there. `None`: neither written nor seen.
pub(crate) async fn create_all(
    shared: &Shared,
    session: &mut Session,
    entries: &[Entry],
    patience: Patience,
) -> Result<Vec<Option<Outcome>>, Trouble> {
    let (floor, asked) = (shared.floor(), Asked::now());
    let creates = Creates::new(entries);
    let one = entries.len() == 1;
    let (count, millis) = (entries.len() as i64, patience.millis());
    let answered = match one {
        true if patience == Patience::Alone && session.bounds_lone_writes().await? => {
            session.write(Hot::CreateOne, &creates.one(&floor, None)).await?
        }
        true => session.write(Hot::CreateOneBounded, &creates.one(&floor, Some(&millis))).await?,
        false => session.write(Hot::CreateMany, &creates.many(&floor, &count, &millis)).await?,
    };
    let mut outcomes: Vec<Option<Outcome>> = entries.iter().map(|_| None).collect();
    let Some(first) = answered.first() else { return Ok(outcomes) };
    let at = rows::now(first, 0)?;
    let now = shared.judged(rows::clock(first)?, asked);
    let won: Vec<i64> = match one {
        true => first.try_get::<_, Option<i64>>(1)?.into_iter().collect(),
        false => first.try_get::<_, Option<Vec<i64>>>(1)?.unwrap_or_default(),
    };
    for id in won {
        // Numbers in arrays count from 1; a single one has none.
        let place = usize::try_from((id & 0xffff).max(1) - 1).unwrap_or(usize::MAX);
        let version = Version(u64::try_from(id >> 16).unwrap_or(0));
        if let Some(outcome) = outcomes.get_mut(place) {
            *outcome = Some(Outcome::Written { version, at, now: shared.door.clock.newest() });
        }
    }
    // Most often none is there: then nobody looks for its place.
    let places: LazyCell<HashMap<Half, usize>, _> = LazyCell::new(|| {
        entries.iter().enumerate().map(|(at, entry)| (rows::head(&entry.intent), at)).collect()
    });
    for row in &answered {
        let Some(at) = row.try_get::<_, Option<Half>>(2)?.and_then(|head| places.get(&head)) else {
            continue;
        };
        outcomes[*at] = Some(match (rows::read(row, 2, &entries[*at].intent), &now) {
            (Ok(record), Ok(now)) => Outcome::There(Stored { record, now: *now }),
            // What was written stands; what is there cannot be judged.
            (Ok(_), Err(leapt)) => Outcome::Failed(leapt.clone()),
            // What is wrong with one row is no reason to doubt the others.
            (Err(trouble), _) => Outcome::Failed(trouble.at(&shared.address, Doing::Reading)),
        });
    }
    Ok(outcomes)
}

/// Writes those whose version is the expected one. `None`: it was not.
pub(crate) async fn put_all(
    shared: &Shared,
    session: &mut Session,
    entries: &[Entry],
    patience: Patience,
) -> Result<Vec<Option<Outcome>>, Trouble> {
    let (floor, asked) = (shared.floor(), Asked::now());
    let puts = Puts::new(entries);
    let one = entries.len() == 1;
    let (count, millis) = (entries.len() as i64, patience.millis());
    let answered = match one {
        true if patience == Patience::Alone && session.bounds_lone_writes().await? => {
            session.write(Hot::PutOne, &puts.one(&floor, None)).await?
        }
        true => session.write(Hot::PutOneBounded, &puts.one(&floor, Some(&millis))).await?,
        false => session.write(Hot::PutMany, &puts.many(&floor, &count, &millis)).await?,
    };
    let mut outcomes: Vec<Option<Outcome>> = entries.iter().map(|_| None).collect();
    let Some(row) = answered.first() else { return Ok(outcomes) };
    let (at, now) = (rows::now(row, 0)?, shared.door.clock.written(rows::clock(row)?, asked));
    let version = Version(u64::try_from(row.try_get::<_, i64>(1)?).unwrap_or(0));
    let numbers = |column: usize| -> Result<Vec<usize>, Trouble> {
        if one {
            return Ok(if row.try_get::<_, bool>(column)? { vec![0] } else { Vec::new() });
        }
        let numbers: Vec<i64> = row.try_get::<_, Option<Vec<i64>>>(column)?.unwrap_or_default();
        Ok(numbers.into_iter().filter_map(|n| usize::try_from(n - 1).ok()).collect())
    };
    for place in numbers(2)? {
        if let Some(outcome) = outcomes.get_mut(place) {
            *outcome = Some(Outcome::Written { version, at, now });
        }
    }
    let waited: Vec<Half> = numbers(3)?
        .into_iter()
        .filter_map(|at| entries.get(at))
        .map(|entry| rows::head(&entry.intent))
        .collect();
    shared.tell_others(waited);
    Ok(outcomes)
}

/// Writes records that nobody asked for; those that have changed meanwhile are left alone. Answers how many were written.
pub(crate) async fn put_quietly(
    shared: &Shared,
    session: &mut Session,
    entries: &mut [Entry],
) -> Result<u64, Trouble> {
    if entries.is_empty() {
        return Ok(0);
    }
    entries.sort_by_key(|entry| entry.intent.0);
    let mut written = 0;
    let mut todo = vec![&*entries];
    while let Some(some) = todo.pop() {
        let outcomes = match put_all(shared, session, some, Patience::Among).await {
            Ok(outcomes) => outcomes,
            // One that another transaction holds is left alone, too.
            Err(trouble) if trouble.is_held() => {
                todo.extend(some.chunks(some.len().div_ceil(2)).filter(|_| some.len() > 1));
                continue;
            }
            Err(trouble) => return Err(trouble),
        };
        for (entry, outcome) in some.iter().zip(&outcomes) {
            if let Some(Outcome::Written { version, .. }) = outcome {
                shared.watchers.changed(&entry.intent, Some(*version));
                written += 1;
            }
        }
    }
    Ok(written)
}

/// Records by their ids; a row that is damaged concerns nobody else.
pub(crate) type Found = HashMap<IntentId, Result<Arc<Record>, StoreError>>;

/// Reads records.
pub(crate) async fn load_many(
    shared: &Shared,
    session: &mut Session,
    intents: &[IntentId],
) -> Result<(Millis, Found), Trouble> {
    let asked = Asked::now();
    let heads: Vec<Half> = intents.iter().map(rows::head).collect();
    let answered = match heads.as_slice() {
        [head] => session.read(Hot::LoadOne, &[(head, Type::UUID)]).await?,
        _ => session.read(Hot::LoadMany, &params::heads(&heads, &(heads.len() as i64))).await?,
    };
    let places: HashMap<Half, &IntentId> = heads.iter().copied().zip(intents).collect();
    let first = answered.first().ok_or(Damaged("the server does not tell the time"))?;
    let (now, mut found) = (shared.judged(rows::now(first, 0)?, asked)?, Found::new());
    for row in &answered {
        let Some(intent) = row.try_get::<_, Option<Half>>(1)?.and_then(|head| places.get(&head)) else {
            continue;
        };
        let record =
            rows::read(row, 1, intent).map_err(|trouble| trouble.at(&shared.address, Doing::Reading));
        found.insert(**intent, record);
    }
    Ok((now, found))
}
