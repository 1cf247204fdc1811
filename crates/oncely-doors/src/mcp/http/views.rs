//! Servers as different callers see them. What a server lists, and what its tools then do, may depend on who asks and on
//! the query of the address; what was learnt for one caller is never believed of another. A query chooses what is seen,
//! but is no part of who the caller is: it may carry a key that is renewed, and a call in doubt must not run again then.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use hyper::StatusCode;
use hyper::http::request::Parts;

use super::body::Refusal;
use super::front::Tenant;
use super::target::Target;
use crate::mcp::guard::Guard;

/// Most callers whose view is remembered; of those who come back after that the server is asked again.
pub const VIEWS_MAX: usize = 256;

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
    others: Mutex<HashMap<SeenBy, Arc<View>>>,
}

impl Views {
    pub(super) fn new(guard: Arc<Guard>, target: Target, tenant: Tenant) -> Self {
        let plain = Arc::new(View { guard, target, principal: None });
        Self { plain, tenant, others: Mutex::default() }
    }

    /// The server as whoever sent this request sees it.
    pub(super) fn of(&self, request: &Parts) -> Result<Arc<View>, Refusal> {
        let query = request.uri.query().filter(|query| !query.is_empty());
        let principal = self.tenant.principal(&request.headers);
        if principal.is_none() && query.is_none() {
            return Ok(self.plain.clone());
        }
        let seen_by = (principal.clone(), query.map(str::to_owned));
        let mut others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(there) = others.get(&seen_by) {
            return Ok(there.clone());
        }
        let view = Arc::new(self.make(principal, query)?);
        if others.len() >= VIEWS_MAX {
            // Those who are under way keep theirs.
            others.clear();
        }
        others.insert(seen_by, view.clone());
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
