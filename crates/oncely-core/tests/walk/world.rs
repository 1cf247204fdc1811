//! The abstract world of the walk: one record, the attempts that were started, and what each really did.

use oncely_core::machine::{Because, Begin, Checked, Decision, Finding, Input, Transition, Verdict, Write};
use oncely_core::{
    AttemptToken, Digest, Effect, Failure, Fingerprint, Liveness, Millis, Record, State, Version, WhenUnknown,
};

use crate::moves::{Attempt, Fate, Found, Move, Said, outcome};
use crate::setup::{FORWARDS, REMEMBER, Setup};

/// The machine, or one with a fault.
pub(crate) type Step = fn(Option<&Record>, &Input<'_>, Millis) -> Transition;

#[derive(Clone, Debug)]
pub(crate) struct World {
    pub(crate) now: Millis,
    pub(crate) life: u64,
    /// Never restarts, in no ledger.
    version: u64,
    pub(crate) record: Option<Record>,
    pub(crate) attempts: Vec<Attempt>,
}

pub(crate) fn token(attempt: usize) -> AttemptToken {
    AttemptToken([attempt as u8 + 1; 16])
}

/// Names a claim that was never written.
pub(crate) const UNWRITTEN: AttemptToken = AttemptToken([u8::MAX; 16]);

pub(crate) fn fingerprint(same: bool) -> Fingerprint {
    let digest = Digest([u8::from(same); 32]);
    Fingerprint { canonical: digest, raw: digest }
}

impl World {
    pub(crate) fn empty() -> Self {
        Self { now: Millis(1_000), life: 0, version: 0, record: None, attempts: Vec::new() }
    }

    /// The attempts that belong to the intent that the record now means.
    pub(crate) fn current(&self) -> impl Iterator<Item = &Attempt> {
        let generation = self.record.as_ref().map(|r| r.body.generation);
        self.attempts.iter().filter(move |a| a.life == self.life && Some(a.generation) == generation)
    }

    fn happened(&self) -> bool {
        self.current().any(|a| a.fate == Fate::Happened)
    }

    /// What can truly be seen of the running attempt's owner: directly, or only by its lease.
    fn liveness(&self) -> Vec<Liveness> {
        let Some(record) = &self.record else { return vec![Liveness::ByLease] };
        if !matches!(record.body.state, State::Running { .. }) {
            return vec![Liveness::ByLease];
        }
        let alive = self.attempts[usize::from(record.body.token.0[0]) - 1].acting;
        vec![if alive { Liveness::Alive } else { Liveness::Lost }, Liveness::ByLease]
    }

    /// Everything that can happen next. People and probes tell the truth, as far as the world has come.
    pub(crate) fn moves(&self, setup: &Setup) -> Vec<Move> {
        let mut moves = vec![Move::Tick { ms: 1 }, Move::Tick { ms: REMEMBER - 1 }, Move::Expire];
        // Nobody claims what is running.
        if !self.record.as_ref().is_some_and(|r| matches!(r.body.state, State::Running { .. })) {
            moves.push(Move::Withdraw { attempt: None });
        }
        let liveness = self.liveness();
        let not_happened = self.record.is_some() && !self.happened();
        for policy in 0..setup.policies.len() {
            for &liveness in &liveness {
                moves.push(Move::Begin { policy, same_payload: true, liveness, checked: false });
                moves.push(Move::Begin { policy, same_payload: false, liveness, checked: false });
                // One whose answer was lost has done and said nothing; one that keeps a used token is not so careful.
                if let Some((attempt, running)) = self.latest()
                    && (!running || self.attempts[attempt].is_untouched())
                {
                    moves.push(Move::BeginAgain { policy, liveness, attempt });
                }
                if not_happened {
                    moves.push(Move::Begin { policy, same_payload: true, liveness, checked: true });
                }
            }
            if setup.policies[policy].when_unknown == WhenUnknown::Check {
                let truth = if self.happened() { Found::Happened } else { Found::NotHappened };
                for doubted in 0..self.attempts.len() {
                    for found in [truth, Found::Unsure] {
                        moves.push(Move::Probed { policy, doubted, found });
                    }
                }
            }
        }
        for &liveness in &liveness {
            moves.push(Move::Resolve { happened: !not_happened, liveness });
            moves.push(Move::Forget { liveness });
        }
        for (attempt, a) in self.attempts.iter().enumerate() {
            moves.push(Move::Renew { attempt });
            // Once more: the answer to the first time was lost.
            if a.is_untouched() || a.said == Said::Withdrawn {
                moves.push(Move::Withdraw { attempt: Some(attempt) });
            }
            if a.acting {
                moves.push(Move::Crash { attempt });
                if a.fate == Fate::NotYet {
                    moves.push(Move::Act { attempt });
                }
            }
            for said in [Said::Succeeded, Said::Rejected, Said::NotStarted, Said::Unknown] {
                // The truth, for the first time, after an unknown, or again because the answer was lost.
                let may = matches!(a.said, Said::Nothing | Said::Unknown) && a.acting || a.said == said;
                let true_word = match said {
                    Said::Succeeded => a.fate == Fate::Happened,
                    Said::Rejected | Said::NotStarted => a.fate != Fate::Happened,
                    Said::Unknown => true,
                    Said::Nothing | Said::Withdrawn => false,
                };
                if may && true_word {
                    moves.push(Move::Complete { attempt, said });
                }
            }
        }
        moves
    }

    /// The latest attempt that the record knows, and whether the record says that it runs.
    fn latest(&self) -> Option<(usize, bool)> {
        let body = &self.record.as_ref()?.body;
        let attempt = usize::from(body.token.0[0]) - 1;
        (attempt < self.attempts.len()).then_some((attempt, matches!(body.state, State::Running { .. })))
    }

    /// The attempt that a person looks at: the latest that the record knows.
    fn looked_at(&self) -> AttemptToken {
        self.record.as_ref().map_or(token(0), |record| record.body.token)
    }

    /// Asks the machine about a move; `None` for moves of the world alone.
    pub(crate) fn ask(&self, chosen: Move, setup: &Setup, step: Step) -> Option<Transition> {
        let begin = |policy: usize, same_payload, liveness, checked: bool| Begin {
            intent: setup.name.intent_id(),
            name: &setup.name,
            fingerprint: fingerprint(same_payload),
            token: token(self.attempts.len()),
            owner: &setup.owner,
            liveness,
            policy: &setup.policies[policy],
            steady_since: Millis(0),
            checked: checked.then(|| Checked { by: "somebody", doubted: self.looked_at() }),
        };
        let fresh = oncely_core::machine::step(
            None,
            &Input::Begin(begin(0, true, Liveness::ByLease, false)),
            self.now,
        );
        let Write::Put(mut claim) = fresh.write else { panic!("nothing was claimed") };
        let input = match chosen {
            Move::Withdraw { attempt } => {
                claim.body.token = attempt.map_or(UNWRITTEN, token);
                let over = match attempt {
                    Some(attempt) => self.attempts[attempt].over.as_ref(),
                    None => self.record.as_ref(),
                };
                let failure = Failure::new("NOT_STARTED", "the claim was not acknowledged");
                Input::Withdraw { claim: &claim.body, over, failure }
            }
            Move::Begin { policy, same_payload, liveness, checked } => {
                Input::Begin(begin(policy, same_payload, liveness, checked))
            }
            Move::BeginAgain { policy, liveness, attempt } => {
                Input::Begin(Begin { token: token(attempt), ..begin(policy, true, liveness, false) })
            }
            Move::Complete { attempt, said } => {
                Input::Complete { token: token(attempt), outcome: outcome(said) }
            }
            Move::Renew { attempt } => Input::Renew { token: token(attempt) },
            Move::Probed { policy, doubted, found } => Input::Probed {
                doubted: token(doubted),
                finding: match found {
                    Found::Happened => Finding::Happened(Some(b"found"[..].into())),
                    Found::NotHappened => Finding::NotHappened,
                    Found::Unsure => Finding::Unsure("cannot tell".into()),
                },
                call: begin(policy, true, Liveness::ByLease, false),
            },
            Move::Resolve { happened, liveness } => {
                let verdict = if happened {
                    Verdict::Succeeded { effect: Effect::Created, result: None }
                } else {
                    Verdict::Rejected(Failure::new("RESOLVED", "a person looked"))
                };
                Input::Resolve { by: "somebody", doubted: self.looked_at(), verdict, liveness }
            }
            Move::Forget { liveness } => Input::Forget {
                by: "somebody",
                seen: self.record.as_ref().map_or(Version(0), |record| record.version),
                liveness,
            },
            Move::Expire => Input::Expire,
            Move::Act { .. } | Move::Crash { .. } | Move::Tick { .. } => return None,
        };
        Some(step(self.record.as_ref(), &input, self.now))
    }

    /// The world after a move, once what the machine said has been done.
    pub(crate) fn after(&self, chosen: Move, transition: Option<&Transition>) -> Self {
        let mut next = self.clone();
        match chosen {
            Move::Tick { ms } => next.now = next.now.plus(ms),
            Move::Act { attempt } => next.attempts[attempt].fate = Fate::Happened,
            Move::Crash { attempt } => next.attempts[attempt].stop(),
            Move::Withdraw { attempt: Some(attempt) } => {
                next.attempts[attempt].said = Said::Withdrawn;
                next.attempts[attempt].stop();
            }
            Move::Complete { attempt, said } => {
                next.attempts[attempt].said = said;
                // After an unknown the request may still be on its way; after a certain end it is not.
                if said != Said::Unknown {
                    next.attempts[attempt].stop();
                }
            }
            _ => {}
        }
        let Some(transition) = transition else { return next };
        next.clear(chosen, transition);
        match &transition.write {
            Write::Nothing => {}
            Write::Put(draft) => {
                next.version += 1;
                let version = Version(next.version);
                let intent = draft.body.name.intent_id();
                next.record = Some(draft.as_ref().clone().stamped(intent, version, next.now));
            }
            Write::Remove => {
                next.record = None;
                next.life += 1;
            }
        }
        if let (Decision::Execute(run), Some(record)) = (&transition.decision, &next.record)
            && run.because != Because::AskedAgain
        {
            next.attempts.push(Attempt {
                over: self.record.clone(),
                life: next.life,
                generation: record.body.generation,
                key: run.downstream_key,
                started: next.now,
                fate: Fate::NotYet,
                acting: true,
                said: Said::Nothing,
                cleared: false,
            });
        }
        next
    }

    /// Marks the attempts that a person or a probe has just found not to have happened.
    fn clear(&mut self, chosen: Move, transition: &Transition) {
        let looked = match chosen {
            Move::Begin { checked: true, .. } => true,
            Move::Resolve { happened: false, .. } => transition.decision == Decision::Done,
            Move::Probed { found: Found::NotHappened, .. } => true,
            _ => false,
        };
        let acted_on = !matches!(transition.write, Write::Nothing);
        let generation = self.record.as_ref().map(|r| r.body.generation);
        let in_doubt = self.record.as_ref().is_some_and(|r| matches!(r.body.state, State::InDoubt { .. }));
        if looked && acted_on && in_doubt {
            let life = self.life;
            for a in self.attempts.iter_mut().filter(|a| a.life == life && Some(a.generation) == generation) {
                a.cleared = true;
            }
        }
    }

    /// What makes two worlds the same for everything that can follow: ages, not times.
    pub(crate) fn fingerprint(&self) -> Vec<u8> {
        let age = |at: Millis, max: u64| self.now.since(at).min(max) as u8;
        let mut key = vec![self.life as u8];
        if let Some(r) = &self.record {
            let detail = match &r.body.state {
                State::Running { .. } => 0,
                State::InDoubt { .. } => 1,
                State::Succeeded { result, settled, .. } => {
                    2 + u8::from(result.is_some()) + 2 * u8::from(*settled == oncely_core::Settled::Attempt)
                }
                State::Rejected { settled, .. } => 6 + u8::from(*settled == oncely_core::Settled::Attempt),
            };
            let counts = [r.body.generation, r.body.attempts, r.body.tries, r.body.rejections];
            key.extend(counts.map(|n| n as u8));
            key.extend([detail, r.body.token.0[0], age(r.changed_at, REMEMBER), age(r.sent_at, FORWARDS)]);
        }
        for a in &self.attempts {
            let bits =
                a.fate as u8 | (a.said as u8) << 2 | u8::from(a.acting) << 5 | u8::from(a.cleared) << 6;
            key.extend([a.life as u8, a.generation as u8, bits, a.key.0[0], age(a.started, FORWARDS)]);
            // What may come back.
            if let Some(over) = a.over.as_ref().filter(|_| a.is_untouched()) {
                key.extend([over.body.tries as u8, over.body.rejections as u8, over.body.token.0[0]]);
                key.extend([age(over.changed_at, REMEMBER), age(over.sent_at, FORWARDS)]);
            }
        }
        key
    }
}
