//! Whether services are reached: what the latest try to connect to each of them showed. For whoever tells people of it.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use super::address::Address;

/// What one lane found out.
#[derive(Debug, Default)]
pub(super) struct Reach(Mutex<BTreeMap<String, Found>>);

#[derive(Debug, Clone)]
struct Found {
    at: Instant,
    trouble: Option<String>,
}

/// A service that could not be reached when it was last tried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreached {
    /// Host, and port where it is not the usual one.
    pub service: String,
    /// What happened.
    pub why: String,
}

impl Reach {
    /// Notes how a try to connect went.
    pub(super) fn note(&self, address: &Address, trouble: Option<&String>) {
        let mut found = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Found { at: Instant::now(), trouble: trouble.cloned() };
        match found.get_mut(address.authority.as_str()) {
            Some(there) => *there = now,
            None => drop(found.insert(address.authority.to_string(), now)),
        }
    }

    /// The services that are not reached, by name: of what all lanes found out, the latest counts.
    pub(super) fn unreached<'r>(lanes: impl Iterator<Item = &'r Self>) -> Vec<Unreached> {
        let mut latest: BTreeMap<String, Found> = BTreeMap::new();
        for lane in lanes {
            for (service, found) in lane.0.lock().unwrap_or_else(PoisonError::into_inner).iter() {
                if latest.get(service).is_none_or(|known| known.at < found.at) {
                    latest.insert(service.clone(), found.clone());
                }
            }
        }
        let away = |(service, found): (String, Found)| Some(Unreached { service, why: found.trouble? });
        latest.into_iter().filter_map(away).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{Reach, Unreached};

    #[test]
    fn the_latest_try_counts_whichever_lane_made_it() {
        let (one, two) = (Reach::default(), Reach::default());
        let (a, b) = ("http://a:1".parse().unwrap(), "https://b".parse().unwrap());
        one.note(&a, Some(&"refused".to_owned()));
        two.note(&b, None);
        let away = || Reach::unreached([&one, &two].into_iter());
        assert_eq!(away(), [Unreached { service: "a:1".into(), why: "refused".into() }]);
        two.note(&a, None);
        assert_eq!(away(), []);
        one.note(&b, Some(&"no such name".to_owned()));
        assert_eq!(away(), [Unreached { service: "b".into(), why: "no such name".into() }]);
    }
}
