//! The engine: interprets the machine's transitions against a store. No rule about states lives here.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use oncely_core::limits::{DURATION_MS_MAX, WAITERS_MAX};
use oncely_core::machine::{Because, Begin, Checked, Decision, Finding, Input, Transition, Write, step};
use oncely_core::{
    AttemptToken, Change, Counter, Liveness, Millis, Owner, Record, Replaced, State, Store, Stored, Wrote,
};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::answer::{Answer, InProgress, answer_of, counter_of};
use crate::attempt::Attempt;
use crate::call::{Call, CallBuilder};
use crate::claim::{self, Claim, CountGuard, OpenPlace, bounded, new_token};
use crate::disown::{Sent, withdrawing};
use crate::error::Error;
use crate::known::Known;
use crate::observe::Observer;
use crate::remote::Claimant;
use crate::run;

/// The engine on one ledger. Cheap to clone.
#[derive(Clone)]
pub struct Oncely {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) owner: Owner,
    /// Effects open in this engine, for the limit and for a drain.
    pub(crate) open: AtomicUsize,
    /// Claims that are being taken back, for a drain.
    pub(crate) disowned: AtomicUsize,
    pub(crate) closed: Notify,
    /// Held by whoever drops what is due: when it was last found that nothing more is.
    pub(crate) purging: tokio::sync::Mutex<Option<Instant>>,
    waiting: AtomicUsize,
    tokens: TokenSource,
    pub(crate) observer: Option<Arc<dyn Observer>>,
}

/// Where the tokens of attempts come from.
type TokenSource = Box<dyn Fn() -> Result<AttemptToken, Error> + Send + Sync>;

/// Stands for the name of an attempt that is only thought of; never written.
pub(crate) const UNNAMED: AttemptToken = AttemptToken([0; 16]);
/// Pause before the next look where a store cannot watch: no busy loop.
const WATCH_FAILED_PAUSE: Duration = Duration::from_millis(10);

/// The answer to [`Oncely::begin`].
pub enum Begun {
    /// Run the effect and complete the attempt.
    Run(Attempt),
    /// There is an answer already; run nothing.
    Answered(Answer),
}

impl Oncely {
    /// An engine on this ledger.
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self::with_source(store, Box::new(new_token), None)
    }

    pub(crate) fn heard_by(store: Arc<dyn Store>, observer: Arc<dyn Observer>) -> Self {
        Self::with_source(store, Box::new(new_token), Some(observer))
    }

    /// An engine whose attempts are named by `tokens`, which must never give one twice in a process: for simulations,
    /// where everything follows from a seed.
    #[doc(hidden)]
    pub fn with_tokens(
        store: Arc<dyn Store>,
        tokens: impl Fn() -> AttemptToken + Send + Sync + 'static,
    ) -> Self {
        Self::with_source(store, Box::new(move || Ok(tokens())), None)
    }

    fn with_source(store: Arc<dyn Store>, tokens: TokenSource, observer: Option<Arc<dyn Observer>>) -> Self {
        let owner = store.owner();
        let inner = Inner {
            store,
            owner,
            open: AtomicUsize::new(0),
            disowned: AtomicUsize::new(0),
            closed: Notify::new(),
            purging: tokio::sync::Mutex::new(None),
            waiting: AtomicUsize::new(0),
            tokens,
            observer,
        };
        Self { inner: Arc::new(inner) }
    }

    /// Starts to say a call of the named tool.
    pub fn tool(&self, name: &str) -> CallBuilder<'_> {
        CallBuilder::new(self, name)
    }

    /// The ledger.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.inner.store
    }

    /// How many callers wait for running attempts in this engine.
    pub fn waiting(&self) -> usize {
        self.inner.waiting.load(Ordering::Relaxed)
    }

    /// How many effects are open in this engine.
    pub fn open_effects(&self) -> usize {
        self.inner.open.load(Ordering::Relaxed)
    }

    /// Waits until every effect that this engine started has ended and is recorded, and every claim that was not
    /// acknowledged is taken back; at most for `timeout`. Says how many effects are still open.
    pub async fn drain(&self, timeout: Duration) -> usize {
        let deadline = Instant::now() + timeout.min(Duration::from_millis(DURATION_MS_MAX));
        loop {
            let closed = self.inner.closed.notified();
            let open = self.inner.open.load(Ordering::Acquire) + self.inner.disowned.load(Ordering::Acquire);
            if open == 0 || tokio::time::timeout_at(deadline, closed).await.is_err() {
                return self.inner.open.load(Ordering::Acquire);
            }
        }
    }

    /// Asks for permission to run an effect. Waits while another attempt at the same intent is under way.
    pub async fn begin(&self, call: &Call) -> Result<Begun, Error> {
        self.begin_as(call, Claimant::this_process(&self.inner.owner)).await
    }

    pub(crate) async fn decide(&self, call: &Call, claimant: Claimant<'_>) -> Result<Begun, Error> {
        call.validate()?;
        let wait_for = call.wait_for.unwrap_or(Duration::from_millis(call.policy.wait_for_ms));
        let deadline = Instant::now() + wait_for.min(Duration::from_millis(DURATION_MS_MAX));
        let (mut known, mut seen) = self.meet(call, claimant).await?;
        let mut counts = vec![(Counter::Calls, 1)];
        let mut finding: Option<(AttemptToken, Finding)> = None;
        let begun = loop {
            let probed = finding.take();
            // Only an attempt needs a name, and a replay is too quick to wait for random numbers or for parsing. Where nothing is
            // there, one begins.
            let mut token = claimant.token;
            if token.is_none() && seen.is_none() {
                token = Some((self.inner.tokens)()?);
            }
            let named = token.unwrap_or(UNNAMED);
            let mut transition = self.step_call(&known, seen.as_ref(), named, probed.as_ref());
            let starts = matches!(transition.decision, Decision::Execute(_));
            if starts && (token.is_none() || known.is_borrowed) {
                known.own_fingerprint()?;
                let named = token.map_or_else(&self.inner.tokens, Ok)?;
                transition = self.step_call(&known, seen.as_ref(), named, probed.as_ref());
            }
            let step = self.perform(&known, seen, transition).await?;
            seen = match step {
                Performed::Look(now_there) => now_there,
                Performed::Started(attempt) => {
                    if attempt.info().because() != Because::AskedAgain {
                        counts.push((Counter::Executions, 1));
                    }
                    break Begun::Run(attempt);
                }
                Performed::Answered(answer) => {
                    self.check_final(&answer).await?;
                    counts.push((counter_of(&answer), 1));
                    break Begun::Answered(answer);
                }
                Performed::Probe(stored) => {
                    let doubted = stored.record.body.token;
                    finding = Some((doubted, ask(call).await));
                    Some(stored)
                }
                Performed::Wait(stored) => {
                    if !counts.iter().any(|(c, _)| *c == Counter::Waits) {
                        counts.push((Counter::Waits, 1));
                    }
                    match self.wait(&known, &stored, deadline).await? {
                        Waited::Look(there) => there,
                        Waited::GaveUp => {
                            counts.push((Counter::InProgress, 1));
                            let retry_after_ms = call.policy.wait_for_ms.clamp(100, 5_000);
                            let record = stored.record;
                            break Begun::Answered(Answer::InProgress(InProgress { record, retry_after_ms }));
                        }
                    }
                }
            };
        };
        self.inner.store.tally(&call.namespace, &call.tool, &counts);
        Ok(begun)
    }

    pub(crate) fn step_call(
        &self,
        known: &Known<'_>,
        seen: Option<&Stored>,
        token: AttemptToken,
        probed: Option<&(AttemptToken, Finding)>,
    ) -> Transition {
        let record = seen.map(|s| s.record.as_ref());
        let now = seen.map_or(Millis(0), |s| s.now);
        if let Some(record) = record
            && let Some(over) = self.before_never_started(record)
        {
            let input = withdrawing(&record.body, over.as_deref());
            return Transition { decision: Decision::Again, ..step(Some(record), &input, now) };
        }
        let policy = known.call.policy_for(seen);
        let call = Begin {
            intent: known.intent,
            name: &known.name,
            fingerprint: known.fingerprint,
            token,
            owner: known.claimant.owner,
            liveness: record.map_or(Liveness::ByLease, |r| self.liveness(r)),
            policy: &policy,
            steady_since: self.inner.store.steady_since(),
            checked: known.call.checked.as_ref().map(|(by, doubted)| Checked { by, doubted: *doubted }),
        };
        let input = match probed {
            Some((doubted, finding)) => Input::Probed { doubted: *doubted, finding: finding.clone(), call },
            None => Input::Begin(call),
        };
        step(record, &input, now)
    }

    /// Carries a transition out. An effect may start only after its claim has been acknowledged as durable.
    async fn perform(
        &self,
        known: &Known<'_>,
        seen: Option<Stored>,
        transition: Transition,
    ) -> Result<Performed, Error> {
        let Transition { write, events, decision } = transition;
        let store = &self.inner.store;
        let draft = match write {
            Write::Put(draft) => draft,
            Write::Nothing | Write::Remove => {
                if !events.is_empty() {
                    store.note(events).await?;
                }
                return match (decision, seen) {
                    (Decision::Wait, Some(stored)) => Ok(Performed::Wait(stored)),
                    (Decision::Probe, Some(stored)) => Ok(Performed::Probe(stored)),
                    (Decision::Again, _) => Ok(Performed::Look(store.load(known.intent).await?)),
                    (decision, seen) => Ok(Performed::Answered(answer_of(decision, known.intent, seen)?)),
                };
            }
        };
        let Decision::Execute(execute) = decision else {
            let Some(seen) = seen else { return Ok(Performed::Look(store.load(known.intent).await?)) };
            let replaced =
                store.replace(known.intent, seen.record.version, Change::Put(draft), events).await?;
            let (Replaced::Done(there) | Replaced::Stale(there)) = replaced;
            return Ok(Performed::Look(there));
        };
        let place = OpenPlace::take(&self.inner)?;
        let sent = Sent { intent: known.intent, over: seen, draft, events };
        // Live from before the claim is visible: nobody may take it for abandoned.
        let claim = match known.claimant.token {
            Some(_) => Claim::held(self),
            None => Claim::new(self, &sent),
        };
        match bounded(self.send(sent)).await {
            Ok(Ok(stored)) => {
                claim.won();
                Ok(Performed::Started(Attempt::new(self.clone(), place, execute, stored)))
            }
            Ok(Err(there)) => {
                claim.lost();
                Ok(Performed::Look(there))
            }
            Err(error) if error.wrote == Wrote::No => {
                claim.lost();
                Err(error.into())
            }
            // The claim is dropped unanswered: it may be there or on its way, and the effect was not started.
            Err(error) => Err(error.into()),
        }
    }

    async fn wait(&self, known: &Known<'_>, stored: &Stored, deadline: Instant) -> Result<Waited, Error> {
        if Instant::now() >= deadline {
            return Ok(Waited::GaveUp);
        }
        let waiters = CountGuard::enter(&self.inner.waiting);
        if waiters.before >= WAITERS_MAX {
            return Ok(Waited::GaveUp);
        }
        let changed = self.inner.store.watch(known.intent, stored.record.version);
        // Running out of time here is no answer yet: the last look decides.
        if let Ok(Err(_)) = tokio::time::timeout_at(deadline, changed).await {
            tokio::time::sleep(WATCH_FAILED_PAUSE).await;
        }
        Ok(Waited::Look(self.inner.store.load(known.intent).await?))
    }

    /// What can be seen of the owner of a record's running attempt.
    pub(crate) fn liveness(&self, record: &Record) -> Liveness {
        match &record.body.state {
            State::Running { owner, .. } if owner.process == self.inner.owner.process => {
                if claim::is_live(record.body.token) { Liveness::Alive } else { Liveness::Lost }
            }
            State::Running { owner, .. } => self.inner.store.liveness(owner),
            _ => Liveness::ByLease,
        }
    }

    /// Whether the latest attempt of a record is under way, as far as can be seen from here.
    pub fn is_under_way(&self, record: &Record) -> bool {
        matches!(record.body.state, State::Running { .. }) && self.liveness(record) != Liveness::Lost
    }

    /// What was there before a claim of ours that started nothing.
    fn before_never_started(&self, record: &Record) -> Option<Option<Arc<Record>>> {
        match &record.body.state {
            State::Running { owner, .. } if owner.process == self.inner.owner.process => {
                claim::before_never_started(record.body.token)
            }
            _ => None,
        }
    }
}

enum Performed {
    /// The ground changed: step again with what is there.
    Look(Option<Stored>),
    Started(Attempt),
    Answered(Answer),
    Probe(Stored),
    Wait(Stored),
}

enum Waited {
    Look(Option<Stored>),
    GaveUp,
}

async fn ask(call: &Call) -> Finding {
    match &call.probe {
        Some(probe) => run::ask(probe.clone()).await,
        None => Finding::Unsure("the tool's policy asks for a check, but this call has no probe".to_owned()),
    }
}
