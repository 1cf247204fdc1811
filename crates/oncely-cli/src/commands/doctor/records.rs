//! What `oncely doctor` says of the records themselves: whether they can be read.

use oncely_core::{Filter, Store, Unreadable};

use super::{Finding, Health};

/// Most records that cannot be read are named.
const UNREADABLE_SHOWN: usize = 10;
/// Records that are read to find them, at most,
const READ_MAX: usize = 100_000;
/// and bytes of what they keep.
const READ_BYTES_MAX: usize = 64 << 20;
/// Records that are read at once: each may keep a megabyte.
const READ_AT_ONCE: usize = 128;

/// Reads records, the oldest first: they are what a purge comes to. Whoever calls with the key of one that cannot be read
/// is refused, so that somebody should know of it before.
pub(super) async fn find_unreadable(store: &dyn Store) -> Finding {
    let (mut readable, mut unreadable, mut named) = (0, 0, Vec::new());
    let (mut from, mut bytes) = (Some(0), 0);
    while let Some(at) = from.filter(|_| readable + unreadable < READ_MAX && bytes < READ_BYTES_MAX) {
        let page = store.scan(Filter::default(), at, READ_AT_ONCE).await?;
        bytes += page
            .items
            .iter()
            .filter_map(|stored| stored.record.body.state.kept())
            .map(|kept| kept.len())
            .sum::<usize>();
        readable += page.items.len();
        unreadable += page.unreadable.len();
        let room = UNREADABLE_SHOWN.saturating_sub(named.len());
        named.extend(page.unreadable.into_iter().take(room));
        from = page.next;
    }
    if unreadable == 0 {
        let which = if from.is_some() { "the oldest " } else { "" };
        return Ok((Health::Ok, format!("{which}{readable} records can all be read")));
    }
    let looked_at = if from.is_some() { " of the oldest" } else { "" };
    let mut message = format!(
        "{unreadable}{looked_at} records cannot be read, {readable} can. Nothing runs under their keys and no purge drops them. If a \
         newer version wrote them, use that version; else restore them from a backup. If it is certain that the effect did \
         NOT happen, `oncely forget --unreadable` and the whole id frees the key: it runs again. If it happened, or \
         nobody knows, leave the record: calls with its key stay refused, which is right:"
    );
    for Unreadable { intent, state, why, .. } in named {
        message.push_str(&format!("\n  {intent}  {}  {why}", state.as_str()));
    }
    Ok((Health::Warn, message))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use oncely::{Oncely, outcome};
    use oncely_core::Store;
    use oncely_core::limits::RESULT_BYTES_MAX;
    use oncely_store::MemoryStore;
    use serde_json::json;

    use super::{READ_AT_ONCE, READ_BYTES_MAX, find_unreadable};

    /// Whoever examines a ledger does not read all of it, where its results are large.
    #[tokio::test]
    async fn large_results_are_read_up_to_a_bound() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let oncely = Oncely::new(Arc::clone(&store));
        let large = "x".repeat(RESULT_BYTES_MAX / 2);
        assert!(READ_AT_ONCE * large.len() >= READ_BYTES_MAX);
        for n in 0..=READ_AT_ONCE {
            let (call, large) = (oncely.tool("pay").key(&format!("k{n}")).payload(&json!(n)), large.clone());
            call.run(move |_| async move { outcome::created(&large) }).await.unwrap();
        }
        let (_, said) = find_unreadable(&*store).await.unwrap();
        assert_eq!(said, format!("the oldest {READ_AT_ONCE} records can all be read"));
    }
}
