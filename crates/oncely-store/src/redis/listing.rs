//! Records in the order in which they were made, over all shards.

use oncely_core::limits::PAGE_MAX;
use oncely_core::{
    Filter, IntentId, IntentName, Key, Millis, Page, Scope, StateName, StoreError, StoreErrorKind, Stored,
    ToolName, Unreadable, Version,
};

use super::Shared;
use super::calls::Asked;
use super::errors::odd;
use super::merge::{Merge, Piece, Source, Toward};
use super::resp::{Value, command};
use super::value::{DUE_IN_DOUBT, place};

/// Records that are read at once: results may be large.
const READ_MAX: usize = 64;

/// A record, or what is known of one that cannot be read.
type Listed = Result<Stored, Unreadable>;
/// A record's shard, its place among all, and which it is.
type Entry = (u16, u64, IntentId);

impl Shared {
    /// One page of records that the filter accepts.
    pub(crate) async fn scan(
        &self,
        filter: Filter,
        from: u64,
        limit: usize,
    ) -> Result<Page<Stored>, StoreError> {
        let limit = limit.clamp(1, PAGE_MAX);
        if let Some(intent) = exact_intent(&filter) {
            // The whole name is given: look it up, unless it is filed under another id.
            let found = self.read(self.ask_load(&intent), intent).await?;
            if found.as_ref().is_some_and(|found| may_match(&filter, found)) {
                let mut page = Page::of(Vec::new(), None, self.now().await?);
                if from == 0 {
                    found.into_iter().for_each(|found| put_on(&mut page, found));
                }
                return Ok(page);
            }
        }
        let mut entries = match filter.state {
            Some(StateName::InDoubt) => Entries::Listed(self.in_doubt(from).await?),
            Some(StateName::Running) => Entries::Running(self.in_order(from)),
            _ => Entries::All(self.in_order(from)),
        };
        let (mut page, mut last) = (Page::of(Vec::new(), None, Millis(0)), from);
        loop {
            let part = entries.next(self).await?;
            if part.is_empty() {
                page.now = self.now().await?;
                return Ok(page);
            }
            for part in part.chunks(READ_MAX) {
                for (place, found) in self.read_all(part).await? {
                    if place <= from || !may_match(&filter, &found) {
                        continue;
                    }
                    if page.items.len() + page.unreadable.len() == limit {
                        page.next = Some(last);
                        page.now = self.now().await?;
                        return Ok(page);
                    }
                    last = place;
                    put_on(&mut page, found);
                }
            }
        }
    }

    fn in_order(&self, from: u64) -> Merge<'_, Order> {
        Merge::new(self, Order, Toward::Newest, 0..self.keys.shards(), from)
    }

    /// Reads records; those that are gone by now are left out.
    async fn read_all(&self, entries: &[Entry]) -> Result<Vec<(u64, Listed)>, StoreError> {
        let asked: Vec<_> =
            entries.iter().map(|(_, place, intent)| (*place, *intent, self.ask_load(intent))).collect();
        let mut found = Vec::with_capacity(entries.len());
        for (place, intent, asked) in asked {
            if let Some(listed) = self.read(asked, intent).await? {
                found.push((place, listed));
            }
        }
        Ok(found)
    }

    /// A record that was asked for; one that cannot be read must not hide the others.
    async fn read(&self, asked: Asked, intent: IntentId) -> Result<Option<Listed>, StoreError> {
        match self.loaded(asked, intent).await {
            Err(error) if error.kind == StoreErrorKind::Corrupt => {
                self.unreadable(intent).await.map(|found| found.map(Err))
            }
            loaded => loaded.map(|found| found.map(Ok)),
        }
    }

    /// The records that are filed as in doubt: few, so that they are read at once.
    async fn in_doubt(&self, from: u64) -> Result<Vec<Entry>, StoreError> {
        let one = DUE_IN_DOUBT.as_bytes();
        let listed: Vec<_> = (0..self.keys.shards())
            .map(|shard| {
                (shard, self.ask(shard, &[command(&[b"ZRANGEBYSCORE", &self.keys.due(shard), one, one])]))
            })
            .collect();
        let mut scores = Vec::new();
        for (shard, asked) in listed {
            for member in asked.replies().await?.iter().flat_map(Value::items) {
                let Some(intent) = member.bytes().and_then(intent) else { continue };
                let score = command(&[b"ZSCORE", &self.keys.order(shard), &intent.0]);
                scores.push((shard, intent, self.ask(shard, &[score])));
            }
        }
        let mut entries = Vec::with_capacity(scores.len());
        for (shard, intent, asked) in scores {
            if let Some(version) = asked.replies().await?.first().and_then(Value::number) {
                entries.push((shard, place(Version(version), shard, 0), intent));
            }
        }
        entries.retain(|(_, place, _)| *place > from);
        entries.sort_unstable_by_key(|(_, place, _)| *place);
        Ok(entries)
    }

    /// Those entries that are never due: what runs is filed nowhere else.
    async fn running(&self, entries: Vec<Entry>) -> Result<Vec<Entry>, StoreError> {
        let asked: Vec<_> = entries
            .into_iter()
            .map(|(shard, place, intent)| {
                let score = command(&[b"ZSCORE", &self.keys.due(shard), &intent.0]);
                ((shard, place, intent), self.ask(shard, &[score]))
            })
            .collect();
        let mut running = Vec::new();
        for (entry, asked) in asked {
            if asked.replies().await?.first() == Some(&Value::Nil) {
                running.push(entry);
            }
        }
        Ok(running)
    }
}

/// A member of a set as an intent. What is no id is no record of ours, and nobody is kept from theirs by it.
pub(crate) fn intent(member: &[u8]) -> Option<IntentId> {
    member.try_into().ok().map(IntentId)
}

/// Whether a record is to be listed. Of one that cannot be read only its id and where it is filed are known.
fn may_match(filter: &Filter, found: &Listed) -> bool {
    match found {
        Ok(stored) => filter.accepts(&stored.record),
        Err(Unreadable { intent, state, .. }) => {
            filter.state.is_none_or(|wanted| wanted == *state)
                && filter
                    .id_prefix
                    .as_ref()
                    .is_none_or(|prefix| intent.to_string().starts_with(prefix.as_str()))
        }
    }
}

fn put_on(page: &mut Page<Stored>, found: Listed) {
    match found {
        Ok(stored) => page.items.push(stored),
        Err(unreadable) => page.unreadable.push(unreadable),
    }
}

/// Where entries come from.
enum Entries<'a> {
    All(Merge<'a, Order>),
    Running(Merge<'a, Order>),
    Listed(Vec<Entry>),
}

impl Entries<'_> {
    /// The next ones; none at the end.
    async fn next(&mut self, shared: &Shared) -> Result<Vec<Entry>, StoreError> {
        match self {
            Self::All(merge) => merge.next().await,
            Self::Listed(entries) => Ok(std::mem::take(entries)),
            Self::Running(merge) => loop {
                let part = merge.next().await?;
                let is_end = part.is_empty();
                let running = shared.running(part).await?;
                if is_end || !running.is_empty() {
                    return Ok(running);
                }
            },
        }
    }
}

fn exact_intent(filter: &Filter) -> Option<IntentId> {
    if let Some(intent) = filter.id_prefix.as_deref().and_then(IntentId::parse) {
        return Some(intent);
    }
    let scope = filter.scope.as_deref()?;
    let tool = filter.tool.as_deref().filter(|tool| !tool.contains('*'))?;
    let name = IntentName {
        namespace: filter.namespace.clone()?,
        scope: if scope.is_empty() { Scope::none() } else { Scope::parse(scope).ok()? },
        tool: ToolName::parse(tool).ok()?,
        key: Key::from_stored(filter.key.as_deref()?).ok()?,
    };
    Some(name.intent_id())
}

/// All records of a shard, by when they were made.
struct Order;

impl Source for Order {
    type Entry = IntentId;

    fn ask(&self, shared: &Shared, shard: u16, from: Version, most: usize) -> Vec<Vec<u8>> {
        let (from, most) = (from.0.to_string(), most.to_string());
        vec![command(&[
            b"ZRANGEBYSCORE",
            &shared.keys.order(shard),
            from.as_bytes(),
            b"+inf",
            b"WITHSCORES",
            b"LIMIT",
            b"0",
            most.as_bytes(),
        ])]
    }

    fn read(&self, shared: &Shared, replies: &[Value], most: usize) -> Result<Piece<IntentId>, StoreError> {
        let reply = replies.first().unwrap_or(&Value::Nil);
        let (mut entries, mut last) = (Vec::new(), None);
        for pair in reply.items().chunks_exact(2) {
            let score = pair[1].number().ok_or_else(|| odd(reply, &shared.describe))?;
            entries.extend(pair[0].bytes().and_then(intent).map(|intent| (Version(score), intent)));
            last = Some(score);
        }
        let next = last.filter(|_| reply.items().len() >= 2 * most).map(|last| Version(last + 1));
        Ok(Piece { entries, next, as_of: None })
    }
}
