//! Asking the service whether an attempt in doubt has happened, before anything runs again.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use http::request::Parts;
use oncely_core::machine::Finding;
use oncely_core::{IntentId, State, WhenUnknown};

use super::effect::kept_of;
use super::settings::Settings;
use crate::call::{Call, Probe};
use crate::engine::Oncely;

/// A request that was made before, and of which it is not known whether it happened.
#[derive(Clone)]
pub struct Doubted {
    /// Its head, as it came this time.
    pub parts: Parts,
    /// Its body.
    pub body: Bytes,
    /// The key that the caller gave; a derived one is nothing that the service has ever seen.
    pub key: Option<String>,
    /// For how long it has been in doubt: what came too late for us may still be on its way there.
    pub age: Duration,
}

/// What the service says of it.
pub enum Found {
    /// It happened, and this is its answer.
    Happened(Response<Bytes>),
    /// It did not happen, and will not any more.
    NotHappened,
    /// That cannot be told; why. The doubt stays.
    Unsure(String),
}

/// Asks the service. Only a clear answer may decide: a wrong *not happened* is a second effect.
pub type Check = Arc<dyn Fn(Doubted) -> Pin<Box<dyn Future<Output = Found> + Send>> + Send + Sync>;

/// The probe of a request, where its policy asks for one.
pub(super) fn probe_of(
    oncely: &Oncely,
    settings: &Arc<Settings>,
    call: &Call,
    parts: &Parts,
    body: &Bytes,
) -> Option<Probe> {
    let check = settings.check.clone()?;
    if settings.policy.when_unknown != WhenUnknown::Check {
        return None;
    }
    // A call that has no name is refused when it begins.
    let intent = oncely.name_of(call).ok()?.intent_id();
    let key = call.key.as_ref().map(|key| key.as_str().to_owned());
    let (oncely, settings) = (oncely.clone(), settings.clone());
    let (parts, body) = (parts.clone(), body.clone());
    Some(Arc::new(move || {
        let (oncely, settings, check) = (oncely.clone(), settings.clone(), check.clone());
        let (parts, body, key) = (parts.clone(), body.clone(), key.clone());
        Box::pin(async move {
            match age_of(&oncely, intent).await {
                Some(age) => finding(&settings, check(Doubted { parts, body, key, age }).await),
                None => Finding::Unsure("the record is not in doubt any more".to_owned()),
            }
        })
    }))
}

fn finding(settings: &Settings, found: Found) -> Finding {
    match found {
        Found::Happened(response) => {
            let (parts, body) = response.into_parts();
            Finding::Happened(kept_of(settings, &parts, &body).map(Into::into))
        }
        Found::NotHappened => Finding::NotHappened,
        Found::Unsure(why) => Finding::Unsure(why),
    }
}

/// For how long a record has been in doubt, by the ledger's clock, as far as that is known to have run without a gap.
async fn age_of(oncely: &Oncely, intent: IntentId) -> Option<Duration> {
    let stored = oncely.store().load(intent).await.ok()??;
    let doubted = matches!(stored.record.body.state, State::InDoubt { .. });
    let since = stored.record.changed_at.max(oncely.store().steady_since());
    doubted.then(|| Duration::from_millis(stored.now.since(since)))
}
