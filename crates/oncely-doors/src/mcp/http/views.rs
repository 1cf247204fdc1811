//! Servers as different callers see them. What a server lists, and what its tools then do, may depend on who asks and on
//! the query of the address; what was learnt for one caller is never believed of another. A query chooses what is seen.
//! Only credentials in it are part of who the caller is: the rest may be new on every retry, and a call in doubt must not
//! run again then.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};

use hyper::StatusCode;
use hyper::http::request::Parts;

use super::body::Refusal;
use super::target::Target;
use super::tenant::Tenant;
use crate::mcp::guard::Guard;

/// Most views that are remembered; of one that comes back after that the server is asked again.
pub const VIEWS_MAX: usize = 256;
/// Most of them for one caller: whoever asks with ever other queries makes the server list its tools to nobody else anew.
pub const VIEWS_PER_CALLER_MAX: usize = 16;

/// The server as one caller sees it.
pub(super) struct View {
    pub(super) guard: Arc<Guard>,
    pub(super) target: Target,
    /// What tells the caller from others.
    pub(super) principal: Option<String>,
}

/// What a view depends on: who the caller is, and the query.
type SeenBy = (Option<String>, Option<String>);

/// The server as its callers see it.
pub(super) struct Views {
    /// As a caller sees it who says nothing of itself.
    pub(super) plain: Arc<View>,
    tenant: Tenant,
    others: Mutex<Remembered<SeenBy, Arc<View>>>,
}

impl Views {
    pub(super) fn new(guard: Arc<Guard>, target: Target, tenant: Tenant) -> Self {
        let plain = Arc::new(View { guard, target, principal: None });
        Self { plain, tenant, others: Mutex::default() }
    }

    /// The server as whoever sent this request sees it.
    pub(super) fn of(&self, request: &Parts) -> Result<Arc<View>, Refusal> {
        let query = request.uri.query().filter(|query| !query.is_empty());
        let principal = self.tenant.principal(request)?;
        if principal.is_none() && query.is_none() {
            return Ok(self.plain.clone());
        }
        let seen_by = (principal.clone(), query.map(str::to_owned));
        let mut others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(there) = others.get(&seen_by) {
            return Ok(there.clone());
        }
        let view = Arc::new(self.make(principal, query)?);
        // Those who are under way keep theirs. Callers who are not told apart are many, not one.
        if seen_by.0.is_some() {
            others.make_room(VIEWS_PER_CALLER_MAX, |(caller, _)| *caller == seen_by.0);
        }
        others.make_room(VIEWS_MAX, |_| true);
        others.put(seen_by, view.clone());
        Ok(view)
    }

    fn make(&self, principal: Option<String>, query: Option<&str>) -> Result<View, Refusal> {
        let target = match query {
            Some(query) => self.plain.target.with_query(query),
            None => Ok(self.plain.target.clone()),
        };
        let target =
            target.map_err(|why| Refusal::new(StatusCode::BAD_REQUEST, &format!("{why}; nothing ran")))?;
        let guard = self.plain.guard.for_others();
        let guard = guard
            .map_err(|_| Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "no random numbers; nothing ran"))?;
        Ok(View { guard: Arc::new(guard), target, principal })
    }
}

/// What was used lately.
struct Remembered<K, V> {
    /// Each with when it was last used, by a count of uses.
    there: HashMap<K, (u64, V)>,
    uses: u64,
}

impl<K, V> Default for Remembered<K, V> {
    fn default() -> Self {
        Self { there: HashMap::new(), uses: 0 }
    }
}

impl<K: Clone + Eq + Hash, V> Remembered<K, V> {
    fn get(&mut self, key: &K) -> Option<&V> {
        let (used, value) = self.there.get_mut(key)?;
        self.uses += 1;
        *used = self.uses;
        Some(value)
    }

    fn put(&mut self, key: K, value: V) {
        self.uses += 1;
        self.there.insert(key, (self.uses, value));
    }

    /// Forgets what was not used for the longest time of those that count, so that there are fewer than `most` of them.
    fn make_room(&mut self, most: usize, counts: impl Fn(&K) -> bool) {
        while self.there.keys().filter(|key| counts(key)).count() >= most {
            let counted = self.there.iter().filter(|(key, _)| counts(key));
            let oldest = counted.min_by_key(|(_, (used, _))| *used).map(|(key, _)| key.clone());
            match oldest {
                Some(key) => drop(self.there.remove(&key)),
                None => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Remembered;

    #[test]
    fn one_who_asks_for_ever_more_makes_nobody_else_forgotten() {
        let mut views: Remembered<(&str, u32), u32> = Remembered::default();
        views.put(("quiet", 0), 7);
        for number in 0..100 {
            views.make_room(4, |(caller, _)| *caller == "greedy");
            views.put(("greedy", number), number);
            // What is used is kept.
            assert_eq!(views.get(&("greedy", 0)), Some(&0), "{number}");
        }
        assert_eq!(views.get(&("quiet", 0)), Some(&7));
        assert_eq!(views.there.len(), 5);
        assert_eq!(views.get(&("greedy", 99)), Some(&99));
        assert_eq!(views.get(&("greedy", 50)), None);
    }

    #[test]
    fn of_all_together_that_goes_first_which_was_used_least_lately() {
        let mut views: Remembered<u32, u32> = Remembered::default();
        for number in 0..4 {
            views.make_room(4, |_| true);
            views.put(number, number);
        }
        assert_eq!(views.get(&0), Some(&0));
        views.make_room(4, |_| true);
        views.put(4, 4);
        assert_eq!(views.get(&0), Some(&0));
        assert_eq!(views.get(&1), None);
        assert_eq!(views.there.len(), 4);
    }
}
