//! Sends the requests: first, repeat, another payload, races, no key, malformed keys.

use super::Plan;
use super::client::{Answer, Client};
use super::request::Request;
use crate::Error;
use crate::intent::{Intent, Intents};

/// One request, and the count around it where there is one.
#[derive(Debug, Clone)]
pub(super) struct Step {
    /// What was answered.
    pub(super) answer: Answer,
    /// By how much the count moved.
    pub(super) moved: Option<i64>,
}

/// Two requests that were sent together with one new key.
#[derive(Debug, Clone)]
pub(super) struct Race {
    /// What was answered.
    pub(super) answers: [Answer; 2],
    /// By how much the count moved.
    pub(super) moved: Option<i64>,
}

/// Everything that was seen.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    /// The first request.
    pub(super) first: Step,
    /// The same again.
    pub(super) repeat: Option<Step>,
    /// The same key with another payload.
    pub(super) other: Option<Step>,
    /// The other payload with a key of its own: only if that is good was the key the reason of a refusal.
    pub(super) control: Option<Step>,
    /// Two at once.
    pub(super) races: Vec<Race>,
    /// Without a key.
    pub(super) missing: Option<Step>,
    /// With malformed keys, and what is wrong with each.
    pub(super) malformed: Vec<(&'static str, Step)>,
}

/// Sends everything.
pub(super) async fn drive(plan: &Plan, client: &Client) -> Result<Seen, Error> {
    if let Some(count) = &plan.count {
        count.is_steady().await?;
    }
    let mut driver = Driver { plan, client, intents: Intents::new()? };
    let intent = driver.intents.next();
    // If not even this comes through there is nothing to measure. Later on, silence is an observation.
    let before = driver.count().await?;
    let answer = client.send(&plan.request.filled(&intent), &driver.key(&intent)).await?;
    let first = Step { answer, moved: moved(before, driver.count().await?) };
    let mut seen = Seen {
        first,
        repeat: None,
        other: None,
        control: None,
        races: Vec::new(),
        missing: None,
        malformed: Vec::new(),
    };
    if !(200..300).contains(&seen.first.answer.status) || seen.first.moved == Some(0) {
        return Ok(seen);
    }
    seen.repeat = Some(driver.step(&intent, &driver.key(&intent)).await?);
    (seen.other, seen.control) = driver.other(&intent).await?;
    for _ in 0..plan.races {
        let race = driver.race().await?;
        seen.races.push(race);
    }
    let next = driver.intents.next();
    seen.missing = Some(driver.step(&next, &[]).await?);
    for (what, keys) in plan.dialect.malformed() {
        let next = driver.intents.next();
        seen.malformed.push((what, driver.step(&next, &keys).await?));
    }
    Ok(seen)
}

struct Driver<'a> {
    plan: &'a Plan,
    client: &'a Client,
    intents: Intents,
}

impl Driver<'_> {
    fn key(&self, intent: &Intent) -> Vec<Vec<u8>> {
        vec![self.plan.dialect.spelled(&intent.key).into_bytes()]
    }

    async fn send(&self, request: &Request, keys: &[Vec<u8>]) -> Answer {
        self.client.send(request, keys).await.unwrap_or_else(|error| Answer::none(&error))
    }

    async fn count(&self) -> Result<Option<i64>, Error> {
        match &self.plan.count {
            Some(count) => count.now().await.map(Some),
            None => Ok(None),
        }
    }

    async fn step(&self, intent: &Intent, keys: &[Vec<u8>]) -> Result<Step, Error> {
        self.counted(&self.plan.request.filled(intent), keys).await
    }

    async fn counted(&self, request: &Request, keys: &[Vec<u8>]) -> Result<Step, Error> {
        let before = self.count().await?;
        let answer = self.send(request, keys).await;
        Ok(Step { answer, moved: moved(before, self.count().await?) })
    }

    /// The same key with another payload, and then that payload with a key of its own.
    async fn other(&mut self, intent: &Intent) -> Result<(Option<Step>, Option<Step>), Error> {
        let request = &self.plan.request;
        let fresh = self.intents.next();
        let other = match &self.plan.other {
            Some(other) => Some(other.filled(intent)),
            None if request.has_number() => Some(request.filled(&fresh)),
            None => request.another_quantity(),
        };
        let Some(other) = other else { return Ok((None, None)) };
        let misused = self.counted(&other, &self.key(intent)).await?;
        let control = self.counted(&other, &self.key(&fresh)).await?;
        Ok((Some(misused), Some(control)))
    }

    async fn race(&mut self) -> Result<Race, Error> {
        let intent = self.intents.next();
        let (request, keys) = (self.plan.request.filled(&intent), self.key(&intent));
        let before = self.count().await?;
        let (one, two) = tokio::join!(self.send(&request, &keys), self.send(&request, &keys));
        Ok(Race { answers: [one, two], moved: moved(before, self.count().await?) })
    }
}

fn moved(before: Option<i64>, after: Option<i64>) -> Option<i64> {
    Some(after? - before?)
}
