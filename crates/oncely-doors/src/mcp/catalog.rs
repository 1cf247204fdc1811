//! The tools of a server, as far as they have been seen.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use oncely_core::Kind;
use tokio::time::Instant;

use super::tools::{Tool, kind_of};

/// Most tools that are remembered of one server.
pub const TOOLS_MAX: usize = 10_000;
/// A server that did not list its tools is not asked again for this long: others wait meanwhile.
const ASK_AGAIN: Duration = Duration::from_secs(30);
/// How long a server's word is taken that a tool reads. It may become another release without a word, and a write that is
/// taken for a read passes unguarded.
const BELIEVED_FOR: Duration = Duration::from_secs(5 * 60);

/// How much of a server's list was seen at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Listing {
    /// All of it.
    Whole,
    /// One page of several.
    Part,
}

fn reads(tool: &Tool) -> bool {
    kind_of(None, Some(tool)).0 == Kind::Read
}

/// The tools of a server.
#[derive(Default)]
pub struct Catalog {
    seen: Mutex<Seen>,
    /// Held by whoever asks the server.
    pub(super) asking: tokio::sync::Mutex<()>,
}

/// A tool, and when it was listed.
struct Listed {
    tool: Arc<Tool>,
    at: Instant,
}

impl Listed {
    /// Whether it has to be asked for again: only what is let pass has to be certain.
    fn is_old(&self) -> bool {
        self.at.elapsed() > BELIEVED_FOR && reads(&self.tool)
    }
}

#[derive(Default)]
struct Seen {
    tools: HashMap<String, Listed>,
    /// What was known before the server said that its tools have changed: believed only where it does not list them
    /// anew.
    before: HashMap<String, Arc<Tool>>,
    /// Whether these are all.
    complete: bool,
    /// Whether there were more than are remembered.
    dropped: bool,
    /// Grows whenever the server says that they have changed.
    edition: u64,
    /// When the server last did not answer, and for which edition.
    failed: Option<(u64, Instant)>,
}

impl Catalog {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A tool; `Err` if it is not known and the server has not been asked for all of them, or too long ago.
    pub fn find(&self, name: &str) -> Result<Option<Arc<Tool>>, NotAsked> {
        let seen = self.seen();
        match seen.tools.get(name) {
            Some(listed) if listed.is_old() => Err(NotAsked),
            Some(listed) => Ok(Some(listed.tool.clone())),
            None if seen.complete => Ok(None),
            None => Err(NotAsked),
        }
    }

    /// A tool as it is known; where the server has not listed its tools since they changed, as it was before.
    pub fn last_known(&self, name: &str) -> Option<Arc<Tool>> {
        let seen = self.seen();
        let before = || seen.before.get(name).filter(|_| !seen.complete);
        seen.tools.get(name).map(|listed| &listed.tool).or_else(before).cloned()
    }

    /// The edition that is current.
    pub fn edition(&self) -> u64 {
        self.seen().edition
    }

    /// All that are known, by name.
    pub fn all(&self) -> Vec<Arc<Tool>> {
        let mut all: Vec<Arc<Tool>> = self.seen().tools.values().map(|listed| listed.tool.clone()).collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }

    /// Whether all tools are known.
    pub fn is_complete(&self) -> bool {
        self.seen().complete
    }

    /// Takes in what the server listed, unless it has changed since it was asked.
    pub fn learn(&self, tools: impl IntoIterator<Item = Tool>, listing: Listing, edition: u64) {
        let mut seen = self.seen();
        if seen.edition != edition {
            return;
        }
        // One that is listed twice, and only once as reading, writes.
        let (mut writing, at) = (HashSet::<String>::new(), Instant::now());
        for tool in tools {
            let there = seen.tools.get(&tool.name);
            let stays = match listing {
                Listing::Whole => writing.contains(&tool.name),
                // The other time may be in another part of the same list.
                Listing::Part => there.is_some_and(|there| !reads(&there.tool)),
            };
            if stays && reads(&tool) {
                continue;
            }
            if there.is_none() && seen.tools.len() >= TOOLS_MAX {
                seen.dropped = true;
                continue;
            }
            if !reads(&tool) {
                writing.insert(tool.name.clone());
            }
            seen.tools.insert(tool.name.clone(), Listed { tool: Arc::new(tool), at });
        }
    }

    /// Notes that the server was asked, and that this is not all.
    pub fn failed(&self, edition: u64) {
        self.seen().failed = Some((edition, Instant::now()));
    }

    /// Whether it makes sense to ask the server: it has not listed all of them, nor just failed to.
    pub fn is_worth_asking(&self) -> bool {
        let seen = self.seen();
        let just_failed =
            seen.failed.is_some_and(|(edition, at)| edition == seen.edition && at.elapsed() < ASK_AGAIN);
        !seen.complete && !just_failed
    }

    /// Notes that all of this edition have been listed.
    pub fn complete(&self, edition: u64) {
        let mut seen = self.seen();
        // Of one that is not remembered nothing may be concluded from its absence.
        if seen.edition == edition && !seen.dropped {
            seen.complete = true;
            seen.before = HashMap::new();
        }
    }

    /// The tools may have changed, as the server says, or because it may be another one: they have to be listed anew.
    pub fn changed(&self) {
        self.seen().change();
    }

    /// The same, if one that reads was listed too long ago. If the server cannot list them now, what it said then counts until
    /// it can.
    pub fn expire(&self) {
        let mut seen = self.seen();
        if seen.tools.values().any(Listed::is_old) {
            seen.change();
        }
    }
}

impl Seen {
    fn change(&mut self) {
        // What was being listed when they changed again is newer than what was known before.
        for (name, listed) in std::mem::take(&mut self.tools) {
            if self.before.len() < TOOLS_MAX || self.before.contains_key(&name) {
                self.before.insert(name, listed.tool);
            }
        }
        (self.complete, self.dropped) = (false, false);
        self.edition += 1;
    }
}

/// The server has not been asked for all its tools, or not lately.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotAsked;

#[cfg(test)]
mod tests {
    use super::{ASK_AGAIN, BELIEVED_FOR, Catalog, Listing, TOOLS_MAX};
    use crate::mcp::tools::Tool;

    fn tool(name: &str, read_only: bool) -> Tool {
        Tool { name: name.into(), read_only: Some(read_only), ..Tool::default() }
    }

    #[test]
    fn more_tools_than_are_remembered_are_never_all() {
        let catalog = Catalog::default();
        catalog.learn((0..=TOOLS_MAX).map(|i| tool(&format!("t{i}"), true)), Listing::Whole, 0);
        catalog.complete(0);
        assert!(catalog.find("another").is_err());
    }

    #[test]
    fn a_tool_that_is_listed_twice_writes_if_it_does_so_once() {
        for order in [[true, false], [false, true]] {
            let catalog = Catalog::default();
            catalog.learn(order.map(|reads| tool("a", reads)), Listing::Whole, 0);
            assert_eq!(catalog.last_known("a").unwrap().read_only, Some(false), "{order:?}");
            // What is listed anew counts.
            catalog.learn([tool("a", true)], Listing::Whole, 0);
            assert_eq!(catalog.last_known("a").unwrap().read_only, Some(true));
        }
    }

    #[test]
    fn a_page_of_a_list_makes_no_tool_read_that_another_page_lists_as_writing() {
        for order in [[true, false], [false, true]] {
            let catalog = Catalog::default();
            // A client may list the first page again, and not the second.
            for reads in [order[0], order[1], order[0]] {
                catalog.learn([tool("a", reads)], Listing::Part, 0);
            }
            assert_eq!(catalog.last_known("a").unwrap().read_only, Some(false), "{order:?}");
            catalog.learn([tool("a", true)], Listing::Whole, 0);
            assert_eq!(catalog.last_known("a").unwrap().read_only, Some(true));
        }
    }

    #[test]
    fn what_was_listed_before_a_change_is_not_believed_after_it() {
        let catalog = Catalog::default();
        let edition = catalog.edition();
        catalog.changed();
        catalog.learn([tool("a", true)], Listing::Whole, edition);
        catalog.complete(edition);
        assert!(catalog.find("a").is_err() && catalog.last_known("a").is_none());
    }

    #[test]
    fn what_was_known_before_a_change_is_the_last_that_is_known_until_they_are_listed_anew() {
        let catalog = Catalog::default();
        catalog.learn([tool("a", true), tool("b", true)], Listing::Whole, 0);
        catalog.complete(0);
        catalog.changed();
        assert!(catalog.find("a").is_err());
        assert_eq!(catalog.last_known("a").unwrap().read_only, Some(true));
        // They change again while a part of them has been listed.
        catalog.learn([tool("a", false)], Listing::Whole, 1);
        catalog.changed();
        assert_eq!(catalog.last_known("a").unwrap().read_only, Some(false));
        assert_eq!(catalog.last_known("b").unwrap().read_only, Some(true));
        catalog.learn([tool("a", true)], Listing::Whole, 2);
        catalog.complete(2);
        assert_eq!(catalog.last_known("a").unwrap().read_only, Some(true));
        assert!(catalog.last_known("b").is_none(), "it is gone");
    }

    #[test]
    fn a_server_that_failed_is_not_asked_again_at_once_unless_it_speaks_up() {
        let catalog = Catalog::default();
        assert!(catalog.is_worth_asking());
        catalog.failed(0);
        assert!(!catalog.is_worth_asking());
        catalog.changed();
        assert!(catalog.is_worth_asking());
    }

    #[tokio::test(start_paused = true)]
    async fn a_tool_is_not_taken_to_read_for_ever_and_one_that_writes_may_be() {
        let catalog = Catalog::default();
        catalog.learn([tool("a", true), tool("b", false)], Listing::Whole, 0);
        catalog.complete(0);
        tokio::time::advance(BELIEVED_FOR).await;
        catalog.expire();
        assert!(catalog.find("a").is_ok() && !catalog.is_worth_asking());
        tokio::time::advance(ASK_AGAIN).await;
        assert!(catalog.find("a").is_err() && catalog.find("b").is_ok());
        assert_eq!(catalog.last_known("a").unwrap().read_only, Some(true));
        catalog.expire();
        assert!(catalog.is_worth_asking());
        // The server cannot list them now: what it said counts, and it is asked again later.
        catalog.failed(catalog.edition());
        assert!(catalog.find("a").is_err() && !catalog.is_worth_asking());
        assert_eq!(catalog.last_known("a").unwrap().read_only, Some(true));
        tokio::time::advance(ASK_AGAIN).await;
        assert!(catalog.is_worth_asking());
        catalog.learn([tool("a", false)], Listing::Whole, catalog.edition());
        catalog.complete(catalog.edition());
        assert_eq!(catalog.find("a").unwrap().unwrap().read_only, Some(false));
        assert!(catalog.last_known("b").is_none(), "it is gone");
    }
}
