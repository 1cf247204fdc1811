//! Runs a command through the sequence: dry run, first call, repeat, another payload, races, kills.

use std::time::Duration;

use tokio::time::Instant;

use super::Plan;
use super::discover::Known;
use super::line;
use super::seen::{Answer, Killed, Race, Seen, Step};
use crate::exec::{self, Exit, Ran, Running, Task};
use crate::intent::{Intent, Intents};
use crate::probe::Count;
use crate::{Error, words};

/// Into how many steps the usual time of a call is cut to find its effect.
const STEPS: u32 = 12;
/// How much finer the steps of the next walk are.
const FINER: u32 = 4;
/// How long one look at the count may take while the command is held.
const LOOK_MAX: Duration = Duration::from_secs(2);

/// Whether a call carries its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Keyed {
    Yes,
    No,
}

/// Whether a call carries the dry-run flag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum For {
    Real,
    DryRun,
}

/// Runs the sequence. `before_help` is the count before the tool was asked for help.
pub(super) async fn drive(
    plan: &Plan,
    known: &Known,
    count: &Count,
    before_help: i64,
) -> Result<Seen, Error> {
    let mut driver = Driver { plan, known, count, intents: Intents::new()?, near: None };
    let mut seen = Seen { help: (before_help, count.now().await?), ..Seen::default() };
    if seen.help.0 != seen.help.1 {
        // A tool that acts when it is asked for help is not to be called any further.
        return Ok(seen);
    }
    let hoped = if known.key_flag.is_some() || known.key_in_place { Keyed::Yes } else { Keyed::No };
    let mut intent = driver.intents.next();
    seen.dry_run = driver.dry_run(&intent, hoped).await?;
    if seen.dry_run.as_ref().is_some_and(|dry_run| dry_run.moved() != 0) {
        // The dry run has acted, and may have used up the key.
        intent = driver.intents.next();
    }
    let mut took = driver.first(&mut seen, &intent, hoped).await?;
    if let (true, Some(idle)) = (seen.dry_run.is_some() && seen.keyed, idle(&seen)) {
        intent = driver.intents.next();
        took = driver.first(&mut seen, &intent, hoped).await?;
        seen.spent = seen.first.as_ref().is_some_and(|first| first.moved() != 0).then_some(idle);
    }
    let keyed = if seen.keyed { Keyed::Yes } else { Keyed::No };
    if !seen.first.as_ref().is_some_and(|first| first.answer.exit.is_ok() && first.moved() != 0) {
        return Ok(seen);
    }
    seen.repeat = Some(driver.step(&driver.words(&intent, keyed, For::Real)).await?.0);
    if seen.keyed {
        (seen.other, seen.control) = driver.other(&intent).await?;
    }
    seen.can_be_fresh = seen.keyed || line::has(&plan.command, "{n}");
    if seen.can_be_fresh {
        for _ in 0..plan.races {
            let race = driver.race(keyed).await?;
            seen.races.push(race);
        }
        let doubled = seen.repeat.as_ref().is_some_and(|repeat| repeat.moved() != 0);
        for number in 0..if doubled { 0 } else { plan.kills } {
            let killed = driver.kill(number, keyed, took).await?;
            seen.kills.push(killed);
        }
    }
    Ok(seen)
}

/// The first call, if it succeeded and did nothing.
fn idle(seen: &Seen) -> Option<Step> {
    seen.first.clone().filter(|first| first.answer.exit.is_ok() && first.moved() == 0)
}

struct Driver<'a> {
    plan: &'a Plan,
    known: &'a Known,
    count: &'a Count,
    intents: Intents,
    /// When the effect was last met, and how fine the steps are to be from there.
    near: Option<(Duration, Duration)>,
}

impl Driver<'_> {
    async fn dry_run(&self, intent: &Intent, keyed: Keyed) -> Result<Option<Step>, Error> {
        if self.known.dry_run_flag.is_none() {
            return Ok(None);
        }
        // The key goes along, so that a dry run that uses it up is found out by the first real call.
        let (step, _) = self.step(&self.words(intent, keyed, For::DryRun)).await?;
        if step.answer.exit.is_ok() || step.moved() != 0 || keyed == Keyed::No || self.known.key_in_place {
            return Ok(Some(step));
        }
        Ok(Some(self.step(&self.words(intent, Keyed::No, For::DryRun)).await?.0))
    }

    /// The first call: with the key, or without it if the tool refuses the flag. Says how long it took.
    async fn first(&self, seen: &mut Seen, intent: &Intent, hoped: Keyed) -> Result<Duration, Error> {
        if hoped == Keyed::Yes {
            let (step, ran) = self.step(&self.words(intent, Keyed::Yes, For::Real)).await?;
            if step.answer.exit.is_ok() || step.moved() != 0 || self.known.key_in_place {
                (seen.first, seen.keyed) = (Some(step), true);
                return Ok(ran.took);
            }
            seen.key_refused = Some(step);
        }
        let (step, ran) = self.step(&self.words(intent, Keyed::No, For::Real)).await?;
        seen.first = Some(step);
        Ok(ran.took)
    }

    /// The same key with another payload: as the user says, with another number, or with another quantity. Then that
    /// payload with a key of its own.
    async fn other(&mut self, intent: &Intent) -> Result<(Option<Step>, Option<Step>), Error> {
        let command = &self.plan.command;
        let fresh = self.intents.next();
        let mut changed = intent.clone();
        let base = match &self.plan.other {
            Some(words) => words.clone(),
            None if line::has(command, "{n}") => {
                changed.n = fresh.n;
                command.clone()
            }
            None => match line::another_quantity(command) {
                Some(words) => words,
                None => return Ok((None, None)),
            },
        };
        let misused = self.finish(base.clone(), &changed, Keyed::Yes, For::Real);
        let other = self.step(&misused).await?.0;
        let control = self.step(&self.finish(base, &fresh, Keyed::Yes, For::Real)).await?.0;
        Ok((Some(other), Some(control)))
    }

    async fn race(&mut self, keyed: Keyed) -> Result<Race, Error> {
        let intent = self.intents.next();
        let words = self.words(&intent, keyed, For::Real);
        let before = self.count.now().await?;
        let task = self.task(&words);
        let (one, two) = (exec::start(&task)?, exec::start(&task)?);
        let (one, two) = tokio::join!(one.finish(), two.finish());
        let after = self.count.now().await?;
        Ok(Race { answers: [Answer::of(&one?), Answer::of(&two?)], before, after })
    }

    /// Kills at a share of the usual time, and every second time as soon as the effect can be seen from outside.
    async fn kill(&mut self, number: u32, keyed: Keyed, took: Duration) -> Result<Killed, Error> {
        let intent = self.intents.next();
        let words = self.words(&intent, keyed, For::Real);
        let before = self.count.now().await?;
        let running = exec::start(&self.task(&words))?;
        let moment = if number.is_multiple_of(2) {
            let after = took * (number + 1) / (self.plan.kills + 1);
            running.wait_for(after).await;
            format!("after {} ms", after.as_millis())
        } else {
            self.walk_to_the_effect(&running, before, took).await;
            "as soon as its effect was seen".to_owned()
        };
        let killed = running.kill().await?;
        let between = self.count.now().await?;
        let retry = exec::run(&self.task(&words)).await?;
        let after = self.count.now().await?;
        let landed = matches!(killed.exit, Exit::Signal(_));
        Ok(Killed { moment, landed, before, between, retry: Answer::of(&retry), after })
    }

    /// Lets the command run in small steps, and counts while it is held between them, until its effect is there. This
    /// is how a kill finds the gap between an effect and the record of it. Where the effect was met, the next walk goes
    /// in finer steps.
    async fn walk_to_the_effect(&mut self, running: &Running, before: i64, took: Duration) {
        // A command that is held may hold a lock that counting waits for; then the next step is the better one.
        let timeout = self.count.timeout.min(LOOK_MAX);
        let count = Count { timeout, settle: Duration::ZERO, ..self.count.clone() };
        let (near, step) = self.near.unwrap_or((Duration::ZERO, took / STEPS));
        let step = step.max(Duration::from_millis(1));
        let deadline = Instant::now() + self.plan.timeout;
        running.wait_for(near).await;
        let mut walked = near;
        while !running.has_ended().await && Instant::now() < deadline {
            running.hold();
            let seen = count.now().await.is_ok_and(|now| now != before);
            if seen {
                self.near = Some((walked.saturating_sub(step * 2), step / FINER));
                return;
            }
            running.go_on();
            running.wait_for(step).await;
            walked += step;
        }
        // It went by unseen: from the beginning again.
        self.near = None;
    }

    async fn step(&self, words: &[String]) -> Result<(Step, Ran), Error> {
        let before = self.count.now().await?;
        let ran = exec::run(&self.task(words)).await?;
        let after = self.count.now().await?;
        let line = words::line(words, self.known.key_flag.as_deref());
        Ok((Step { line, answer: Answer::of(&ran), before, after }, ran))
    }

    fn words(&self, intent: &Intent, keyed: Keyed, purpose: For) -> Vec<String> {
        self.finish(self.plan.command.clone(), intent, keyed, purpose)
    }

    fn finish(&self, words: Vec<String>, intent: &Intent, keyed: Keyed, purpose: For) -> Vec<String> {
        let mut flags = Vec::new();
        if let (Keyed::Yes, false, Some(flag)) = (keyed, self.known.key_in_place, &self.known.key_flag) {
            flags.extend([flag.clone(), intent.key.clone()]);
        }
        if let (For::DryRun, Some(flag)) = (purpose, &self.known.dry_run_flag) {
            flags.push(flag.clone());
        }
        line::with(line::fill(&words, intent), &flags)
    }

    fn task(&self, words: &[String]) -> Task {
        Task {
            words: words.to_vec(),
            directory: self.plan.directory.clone(),
            env: Vec::new(),
            timeout: self.plan.timeout,
        }
    }
}
