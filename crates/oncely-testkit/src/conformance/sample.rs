//! Records to test with: plain ones, and generated ones that use the whole range of every field.

use std::sync::Arc;

use oncely_core::{
    AttemptToken, Body, Created, Digest, Doubt, DoubtCause, Draft, Effect, Event, EventKind, Failure,
    Fingerprint, IntentId, IntentName, Key, LogQuery, LoggedEvent, Namespace, Owner, Payload, ProcessId,
    Record, Retention, Scope, Settled, Stamp, State, Store, Stored, ToolName,
};

use super::{Broken, hold};

/// Long enough for no test to see it pass.
pub(super) const DAY: Retention = Retention { replay_for_ms: 86_400_000, remember_for_ms: 86_400_000 };

/// A name from its parts; an empty scope is none.
pub(super) fn name(namespace: &str, scope: &str, tool: &str, key: &str) -> Result<IntentName, Broken> {
    let bad = |e: oncely_core::NameError| Broken(format!("the suite made a bad name: {e}"));
    Ok(IntentName {
        namespace: Namespace::parse(namespace).map_err(bad)?,
        scope: if scope.is_empty() { Scope::none() } else { Scope::parse(scope).map_err(bad)? },
        tool: ToolName::parse(tool).map_err(bad)?,
        key: Key::explicit(key).map_err(bad)?,
    })
}

/// The intent and first draft of a plain key, running by `owner`.
pub(super) fn running(key: &str, token: u8) -> Result<(IntentId, Draft), Broken> {
    let name = name("default", "", "charge", key)?;
    let state = State::Running { owner: Owner::default(), lease_ms: 30_000 };
    Ok((name.intent_id(), draft(name, token, state)))
}

/// A draft of attempt 1, stamped on write, kept for a day.
pub(super) fn draft(name: IntentName, token: u8, state: State) -> Draft {
    let digest = Digest::of(name.key.as_str().as_bytes());
    let body = Body {
        name,
        fingerprint: Fingerprint { canonical: digest, raw: digest },
        generation: 1,
        attempts: 1,
        tries: 1,
        rejections: 0,
        token: AttemptToken([token; 16]),
        retention: DAY,
        state,
    };
    Draft { created: Stamp::OnWrite, sent: Stamp::OnWrite, changed: Stamp::OnWrite, body }
}

/// The same record in another state, changed now.
pub(super) fn next(record: &Record, state: State) -> Box<Draft> {
    Box::new(Draft {
        created: Stamp::Kept(record.created_at),
        sent: Stamp::Kept(record.sent_at),
        changed: Stamp::OnWrite,
        body: Body { state, ..record.body.clone() },
    })
}

pub(super) fn succeeded(result: Option<&[u8]>) -> State {
    State::Succeeded { effect: Effect::Created, result: result.map(Payload::from), settled: Settled::Attempt }
}

pub(super) fn rejected() -> State {
    State::Rejected { failure: Failure::new("REFUSED", "nothing happened"), settled: Settled::Attempt }
}

pub(super) fn in_doubt() -> State {
    State::InDoubt { owner: Owner::default(), doubt: Doubt::new(DoubtCause::TimedOut, "no answer in time") }
}

pub(super) fn began(intent: IntentId) -> Vec<Event> {
    vec![Event::new(intent, 1, EventKind::Began)]
}

/// Creates a record that must be new.
pub(super) async fn create(store: &dyn Store, intent: IntentId, draft: Draft) -> Result<Stored, Broken> {
    match store.create(intent, draft, began(intent)).await? {
        Created::New(stored) => Ok(stored),
        Created::Exists(found) => {
            Err(Broken(format!("a create found a record where there was none: {:?}", found.record)))
        }
    }
}

/// Replaces a record that must not have changed.
pub(super) async fn replace(store: &dyn Store, record: &Record, state: State) -> Result<Stored, Broken> {
    put(store, record, next(record, state)).await
}

/// Writes a draft in place of a record that must not have changed.
pub(super) async fn put(store: &dyn Store, record: &Record, draft: Box<Draft>) -> Result<Stored, Broken> {
    let change = oncely_core::Change::Put(draft);
    match store.replace(record.intent, record.version, change, Vec::new()).await? {
        oncely_core::Replaced::Done(Some(stored)) => Ok(stored),
        other => Err(Broken(format!("a replace from the current version answered {other:?}"))),
    }
}

/// Removes a record that must not have changed.
pub(super) async fn remove(store: &dyn Store, record: &Record) -> Result<(), Broken> {
    match store.replace(record.intent, record.version, oncely_core::Change::Remove, Vec::new()).await? {
        oncely_core::Replaced::Done(None) => Ok(()),
        other => Err(Broken(format!("a removal from the current version answered {other:?}"))),
    }
}

/// What is there, which must be something.
pub(super) async fn load(store: &dyn Store, intent: IntentId) -> Result<Arc<Record>, Broken> {
    match store.load(intent).await? {
        Some(stored) => Ok(stored.record),
        None => Err(Broken("a record that was acknowledged is not there".into())),
    }
}

/// The events of one record, oldest first.
pub(super) async fn events(store: &dyn Store, intent: IntentId) -> Result<Vec<LoggedEvent>, Broken> {
    let query = LogQuery { intent: Some(intent), limit: 1_000, ..LogQuery::default() };
    let items = store.log(query).await?.items;
    hold!(items.iter().all(|e| e.event.intent == intent), "the log of one record holds another's events");
    Ok(items)
}

/// A small generator of its own, so that a seed means the same everywhere and for ever (SplitMix64).
pub(super) struct Random(pub u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize].clone()
    }

    /// A number at an edge or anywhere between.
    fn edge(&mut self, max: u64) -> u64 {
        match self.below(4) {
            0 => 0,
            1 => max,
            2 => 1,
            _ => self.next() & max,
        }
    }

    fn bytes16(&mut self) -> [u8; 16] {
        (u128::from(self.next()) << 64 | u128::from(self.next())).to_be_bytes()
    }

    fn digest(&mut self) -> Digest {
        Digest::of(&self.next().to_be_bytes())
    }

    /// Text with everything that quoting and terminators stumble over.
    pub(super) fn text(&mut self, chars_max: u64) -> String {
        const ODD: [char; 16] =
            ['a', 'Z', '0', ' ', '\'', '"', '\\', '%', '_', '*', '\0', '\n', 'é', '語', '😀', '\u{202e}'];
        (0..self.below(chars_max + 1)).map(|_| self.pick(&ODD)).collect()
    }

    fn payload(&mut self) -> Option<Payload> {
        match self.below(4) {
            0 => None,
            1 => Some(Payload::from(&[][..])),
            _ => Some((0..self.below(3_000)).map(|_| self.next() as u8).collect()),
        }
    }

    fn owner(&mut self) -> Owner {
        Owner {
            process: ProcessId {
                boot: self.bytes16(),
                pid_namespace: self.edge(u64::MAX),
                pid: self.edge(u64::from(u32::MAX)) as u32,
                started_ticks: self.edge(u64::MAX),
            },
            host: self.text(40),
        }
    }

    fn settled(&mut self) -> Settled {
        match self.below(3) {
            0 => Settled::Attempt,
            1 => Settled::Probe,
            _ => Settled::Person(self.text(30)),
        }
    }

    /// Any state.
    pub(super) fn state(&mut self) -> State {
        const CAUSES: [DoubtCause; 4] =
            [DoubtCause::Reported, DoubtCause::TimedOut, DoubtCause::Abandoned, DoubtCause::OwnerLost];
        match self.below(4) {
            0 => State::Running { owner: self.owner(), lease_ms: self.edge((1 << 40) - 1) },
            1 => State::Succeeded {
                effect: self.pick(&Effect::ALL),
                result: self.payload(),
                settled: self.settled(),
            },
            2 => State::Rejected {
                failure: Failure { code: self.text(16), message: self.text(900), detail: self.payload() },
                settled: self.settled(),
            },
            _ => State::InDoubt {
                owner: self.owner(),
                doubt: Doubt { cause: self.pick(&CAUSES), message: self.text(900), evidence: self.payload() },
            },
        }
    }

    /// Any body of a name, never due within the test.
    pub(super) fn body(&mut self, name: IntentName) -> Body {
        let count = |random: &mut Self| random.edge(u64::from(u32::MAX)) as u32;
        Body {
            name,
            fingerprint: Fingerprint { canonical: self.digest(), raw: self.digest() },
            generation: count(self),
            attempts: count(self),
            tries: count(self),
            rejections: count(self),
            token: AttemptToken(self.bytes16()),
            retention: Retention {
                replay_for_ms: DAY.replay_for_ms + self.edge((1 << 38) - 1),
                remember_for_ms: DAY.remember_for_ms + self.edge((1 << 38) - 1),
            },
            state: self.state(),
        }
    }
}
