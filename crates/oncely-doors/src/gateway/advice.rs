//! What whoever runs the gateway should know about a route, when its requests show it. A client is told what is wrong with its
//! request; that the route has to be changed is no use to it. Nothing of a request is part of it.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use oncely::tower::Tenant;

/// What one lane has noted and nobody has fetched yet.
#[derive(Debug, Default)]
pub(super) struct Advice(Mutex<BTreeSet<String>>);

impl Advice {
    /// Notes a line, if it is not there already.
    pub(super) fn note(&self, line: &str) {
        let mut noted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !noted.contains(line) {
            noted.insert(line.to_owned());
        }
    }

    /// Takes all that was noted.
    pub(super) fn take(&self) -> BTreeSet<String> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// What to do where requests of a route are refused because nobody can tell whose they are.
pub(super) fn about_tenants(pattern: &str, tenant: &Tenant) -> String {
    let what = match tenant {
        Tenant::Authorization => {
            "they carry another credential than Authorization, more than one, or one that is made anew for every request, so that \
             a retry could not be known for one. Tell tenants apart by something that stays the same: tenant = { header = \"…\" } \
             in the route"
                .to_owned()
        }
        Tenant::Header(name) => {
            format!("the header {name}, by which tenants are told apart there, is missing, empty or there more than once")
        }
        Tenant::VerifiedClaim(claim) => {
            format!("the claim {claim:?} of a bearer token, by which tenants are told apart there, could not be read")
        }
        Tenant::One => "there is one tenant".to_owned(),
    };
    format!("requests to the route {pattern} are refused (400 tenant_required): {what}")
}

#[cfg(test)]
mod tests {
    use super::Advice;

    #[test]
    fn what_is_noted_twice_is_told_once_and_what_was_taken_can_be_noted_again() {
        let advice = Advice::default();
        for line in ["b", "a", "b"] {
            advice.note(line);
        }
        assert_eq!(advice.take().into_iter().collect::<Vec<_>>(), ["a", "b"]);
        assert!(advice.take().is_empty());
        advice.note("a");
        assert_eq!(advice.take().len(), 1);
    }
}
