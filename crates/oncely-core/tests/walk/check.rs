//! What must hold at every step of the walk: the promise, and the rules that serve it.

use oncely_core::machine::{Because, Decision, Execute, Transition, Write};
use oncely_core::{Body, EventKind, KeyOrigin, Record, State, StateName};

use crate::moves::{Fate, Found, Move, Said};
use crate::setup::{FORWARDS, REMEMBER, REPEAT, Setup};
use crate::world::{UNWRITTEN, World, fingerprint, token};

/// Checks one step: the world before it, what was asked, what the machine said, and the world after it.
pub(crate) fn check(
    before: &World,
    chosen: Move,
    transition: Option<&Transition>,
    after: &World,
    setup: &Setup,
) -> Result<(), String> {
    if let Some(transition) = transition {
        attempts_grow(before, transition)?;
        open_records_do_not_expire(before, chosen, transition)?;
        doubt_stays(before, chosen, transition, setup)?;
        another_payload_conflicts(before, chosen, transition, setup)?;
        older_attempts_change_nothing(before, chosen, transition)?;
        writes_are_logged(before, chosen, transition)?;
        a_withdrawn_claim_changes_nothing_else(before, chosen, after)?;
        the_change_is_documented(before, chosen, transition)?;
        if let Decision::Execute(run) = &transition.decision {
            if run.because == Because::AskedAgain || matches!(chosen, Move::BeginAgain { .. }) {
                return asked_again_is_the_same(before, chosen, run, transition);
            }
            the_promise(before, chosen, run, transition, setup)?;
        }
    }
    the_record_tells_the_truth(after)?;
    one_effect(after, setup)
}

fn state(record: Option<&Record>) -> Option<StateName> {
    record.map(|r| r.body.state.name())
}

/// Whether the name has come to mean a new intent by age alone.
fn intent_is_over(record: &Record, before: &World, setup: &Setup) -> bool {
    let age = before.now.since(record.changed_at);
    let guessed = setup.name.key.origin() == KeyOrigin::Derived && !setup.name.scope.is_named();
    record.body.state.has_ended() && (age >= REMEMBER || guessed && age >= REPEAT)
}

/// For one key, an effect is never started a second time unless the first is known not to have happened, or the
/// policy says that starting it again is harmless.
fn the_promise(
    before: &World,
    chosen: Move,
    run: &Execute,
    transition: &Transition,
    setup: &Setup,
) -> Result<(), String> {
    let Some(record) = &before.record else { return Ok(()) };
    if let Write::Put(draft) = &transition.write
        && draft.body.generation != record.body.generation
    {
        let over = intent_is_over(record, before, setup);
        return if over { Ok(()) } else { Err("a new generation began before the old one was over".into()) };
    }
    let (Move::Begin { policy, .. } | Move::Probed { policy, .. }) = chosen else {
        return Err("something else than a call started an effect".into());
    };
    let policy = &setup.policies[policy];
    // A person or a probe that is being acted on right now has looked at every attempt so far.
    let looked = match chosen {
        Move::Begin { checked, .. } => checked && run.because == Because::PersonChecked,
        Move::Probed { found, .. } => {
            found == Found::NotHappened && run.because == Because::ProbedNotHappened
        }
        _ => false,
    };
    // What was never started has not used its key.
    let unused = |said: Said| matches!(said, Said::NotStarted | Said::Withdrawn);
    let used = before.current().filter(|a| a.key == run.downstream_key && !unused(a.said));
    let first_use = used.map(|a| a.started).min();
    let remembered = first_use.is_some_and(|at| before.now.since(at) < FORWARDS);
    for attempt in before.current() {
        let certain = attempt.denies() || attempt.cleared || looked;
        let deduplicated =
            policy.forwards_key_for_ms.is_some() && attempt.key == run.downstream_key && remembered;
        if !(certain || policy.idempotent || deduplicated) {
            return Err(format!(
                "an effect was started again ({:?}) although {attempt:?} may have happened",
                run.because
            ));
        }
    }
    Ok(())
}

/// A begin that is made again gets the attempt that is running, unchanged, and nothing else ever.
fn asked_again_is_the_same(
    before: &World,
    chosen: Move,
    run: &Execute,
    transition: &Transition,
) -> Result<(), String> {
    let (Some(record), Move::BeginAgain { attempt, .. }, Write::Put(draft)) =
        (&before.record, chosen, &transition.write)
    else {
        return Err(format!("{chosen:?} was taken for a begin that is made again"));
    };
    let known = &before.attempts[attempt];
    let same = run.because == Because::AskedAgain
        && record.body.state.name() == StateName::Running
        && run.token == record.body.token
        && (run.attempt, run.downstream_key) == (record.body.attempts, known.key)
        && draft.body == record.body
        && draft.sent.at(before.now) == record.sent_at
        && known.said == Said::Nothing;
    if same { Ok(()) } else { Err(format!("a begin that was made again got {run:?}")) }
}

fn attempts_grow(before: &World, transition: &Transition) -> Result<(), String> {
    let Write::Put(draft) = &transition.write else { return Ok(()) };
    let had = before.record.as_ref().map_or(0, |r| r.body.attempts);
    let expected = match &transition.decision {
        Decision::Execute(run) if run.because == Because::AskedAgain => had,
        Decision::Execute(run) => {
            if run.attempt != had + 1
                || run.token != token(before.attempts.len())
                || draft.body.token != run.token
            {
                return Err(format!("attempt {} follows attempt {had}", run.attempt));
            }
            had + 1
        }
        _ => had,
    };
    let got = draft.body.attempts;
    if got == expected {
        Ok(())
    } else {
        Err(format!("{got} attempts are counted where {expected} were begun"))
    }
}

fn open_records_do_not_expire(before: &World, chosen: Move, transition: &Transition) -> Result<(), String> {
    let open = matches!(state(before.record.as_ref()), Some(StateName::Running | StateName::InDoubt));
    if open && chosen == Move::Expire && transition.write != Write::Nothing {
        return Err("a running or in-doubt record expired".into());
    }
    Ok(())
}

/// In doubt never changes by itself: only the attempt's own word, a person, a probe or a harmless retry ends it.
fn doubt_stays(before: &World, chosen: Move, transition: &Transition, setup: &Setup) -> Result<(), String> {
    if state(before.record.as_ref()) != Some(StateName::InDoubt) || transition.write == Write::Nothing {
        return Ok(());
    }
    let allowed = match chosen {
        Move::Begin { checked: true, .. } | Move::Complete { .. } => true,
        // What one that was not written may change is looked at by itself.
        Move::Withdraw { .. } => true,
        Move::Resolve { .. } | Move::Forget { .. } | Move::Probed { .. } => true,
        Move::Begin { policy, .. } => {
            let policy = &setup.policies[policy];
            policy.idempotent || policy.forwards_key_for_ms.is_some()
        }
        _ => false,
    };
    if allowed { Ok(()) } else { Err(format!("a doubt was changed by {chosen:?}")) }
}

fn another_payload_conflicts(
    before: &World,
    chosen: Move,
    transition: &Transition,
    setup: &Setup,
) -> Result<(), String> {
    let (Some(record), Move::Begin { same_payload, .. }) = (&before.record, chosen) else { return Ok(()) };
    let other = !record.body.fingerprint.matches(&fingerprint(same_payload));
    let conflict = transition.decision == Decision::Conflict;
    if other && !intent_is_over(record, before, setup) {
        let quiet = transition.write == Write::Nothing && transition.events.is_empty();
        return if conflict && quiet {
            Ok(())
        } else {
            Err("another payload under the key did not conflict".into())
        };
    }
    if conflict { Err("the same payload conflicts with itself".into()) } else { Ok(()) }
}

fn older_attempts_change_nothing(
    before: &World,
    chosen: Move,
    transition: &Transition,
) -> Result<(), String> {
    let (Some(record), Move::Complete { attempt, .. }) = (&before.record, chosen) else { return Ok(()) };
    if record.body.token == token(attempt) {
        return Ok(());
    }
    let logged = transition.events.iter().any(|e| e.kind == EventKind::Superseded);
    let quiet = transition.write == Write::Nothing && transition.decision == Decision::Superseded;
    if logged && quiet {
        Ok(())
    } else {
        Err("the end of an older attempt was taken for the latest's".into())
    }
}

fn writes_are_logged(before: &World, chosen: Move, transition: &Transition) -> Result<(), String> {
    let asked_again =
        matches!(&transition.decision, Decision::Execute(run) if run.because == Because::AskedAgain);
    let only_its_version = matches!(chosen, Move::Withdraw { attempt: None }) && before.record.is_some();
    let unlogged = asked_again || only_its_version || matches!(chosen, Move::Renew { .. } | Move::Expire);
    if transition.write != Write::Nothing && transition.events.is_empty() && !unlogged {
        return Err(format!("{chosen:?} changed the record without an event"));
    }
    Ok(())
}

/// A claim that never came leaves the key as it was: another version of the same record, or one that grants what none would.
/// One that came gives way to what it had replaced, and where that was nothing it is rejected. It takes nobody's place.
fn a_withdrawn_claim_changes_nothing_else(before: &World, chosen: Move, after: &World) -> Result<(), String> {
    let Move::Withdraw { attempt } = chosen else { return Ok(()) };
    let fine = match (&before.record, &after.record) {
        // What it was decided on is gone.
        (None, None) => attempt.is_some_and(|attempt| before.attempts[attempt].over.is_some()),
        (None, Some(made)) => made.body.state.name() == StateName::Rejected && made.body.attempts == 0,
        (Some(_), None) => false,
        // It has been withdrawn before.
        (Some(was), Some(is)) if was.body.token == UNWRITTEN => was == is,
        (Some(was), Some(is)) if attempt.is_none() => {
            is.version > was.version && *is == Record { version: is.version, ..was.clone() }
        }
        (Some(was), Some(is)) => {
            let ours = attempt.filter(|attempt| was.body.token == token(*attempt));
            match ours.map(|attempt| &before.attempts[attempt].over) {
                Some(Some(over)) if !was.body.state.has_ended() => {
                    let body = Body { attempts: was.body.attempts, ..over.body.clone() };
                    let times = (over.created_at, over.sent_at, over.changed_at);
                    is.body == body && (is.created_at, is.sent_at, is.changed_at) == times
                }
                Some(None) if !was.body.state.has_ended() => is.body.state.name() == StateName::Rejected,
                _ => was == is,
            }
        }
    };
    if fine { Ok(()) } else { Err(format!("{chosen:?} made {:?} of {:?}", after.record, before.record)) }
}

/// Which state may follow which, as the documentation says.
fn the_change_is_documented(before: &World, chosen: Move, transition: &Transition) -> Result<(), String> {
    use StateName::{InDoubt, Rejected, Running, Succeeded};
    let from = state(before.record.as_ref());
    let to = match &transition.write {
        Write::Nothing => return Ok(()),
        Write::Remove => return from.map(|_| ()).ok_or_else(|| "nothing was removed".to_owned()),
        Write::Put(draft) => draft.body.state.name(),
    };
    let starts = matches!(transition.decision, Decision::Execute(_));
    // What was there before a claim comes back, or stays.
    let withdrawn = matches!(chosen, Move::Withdraw { .. }) && transition.decision == Decision::Done;
    let fine = match (from, to) {
        (None, Running) => starts,
        (None, Rejected) => withdrawn,
        (Some(from), to) if withdrawn && from == to => true,
        (Some(Running | InDoubt), InDoubt | Succeeded | Rejected) if withdrawn => true,
        // Renewed without a start, or told again to the one who began it.
        (Some(Running), Running) => match &transition.decision {
            Decision::Execute(run) => run.because == Because::AskedAgain,
            other => *other == Decision::Renewed,
        },
        (Some(Running), InDoubt | Succeeded | Rejected) => !starts,
        (Some(InDoubt | Rejected | Succeeded), Running) => starts,
        (Some(InDoubt), Succeeded | Rejected) => !starts,
        // What a person or a probe believed gives way to the attempt's own word; a result is dropped by age.
        (Some(Succeeded), Succeeded | Rejected) | (Some(Rejected), Succeeded | Rejected) => !starts,
        _ => false,
    };
    if fine { Ok(()) } else { Err(format!("{from:?} may not become {to:?} ({:?})", transition.decision)) }
}

/// `succeeded` means that it happened; `rejected` means that it is certain that nothing did.
fn the_record_tells_the_truth(world: &World) -> Result<(), String> {
    let Some(record) = &world.record else { return Ok(()) };
    match &record.body.state {
        State::Succeeded { .. } if !world.current().any(|a| a.fate == Fate::Happened) => {
            Err("the record says succeeded, and nothing has happened".into())
        }
        State::Rejected { .. } => match world.current().find(|a| !a.denies() && !a.cleared) {
            Some(open) => Err(format!("the record says rejected, and {open:?} may have happened")),
            None => Ok(()),
        },
        _ => Ok(()),
    }
}

/// The ledger outside: of one intent, at most one effect that a downstream cannot tell from another's retry. An attempt
/// that acts after it was truly found not to have happened is beyond what any layer can see, and is left out.
fn one_effect(world: &World, setup: &Setup) -> Result<(), String> {
    if setup.policies.iter().any(|p| p.idempotent) {
        return Ok(());
    }
    let forwards = setup.policies.iter().all(|p| p.forwards_key_for_ms.is_some());
    let effects: Vec<_> = world.attempts.iter().filter(|a| a.fate == Fate::Happened && !a.cleared).collect();
    for (i, a) in effects.iter().enumerate() {
        for b in &effects[..i] {
            let same_intent = a.life == b.life && a.generation == b.generation;
            if same_intent && !(forwards && a.key == b.key) {
                return Err(format!("two effects of one intent: {a:?} and {b:?}"));
            }
        }
    }
    Ok(())
}
