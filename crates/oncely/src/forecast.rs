//! Dry runs: what a call would do now.

use std::sync::Arc;

use oncely_core::Stored;
use oncely_core::machine::{Decision, Write};

use crate::answer::{Answer, Forecast, InProgress, answer_of};
use crate::call::Call;
use crate::engine::{Oncely, UNNAMED};
use crate::error::Error;

impl Oncely {
    /// What a call would do now. Runs nothing, writes nothing, uses up no key.
    pub async fn dry_run(&self, call: &Call) -> Result<Forecast, Error> {
        call.validate()?;
        let known = self.know(call)?;
        let mut seen = self.inner.store.load(known.intent).await?;
        loop {
            let transition = self.step_call(&known, seen.as_ref(), UNNAMED, None);
            let answer = match (transition.decision, seen.take(), transition.write) {
                (Decision::Execute(execute), _, _) => {
                    return Ok(Forecast::WouldRun { attempt: execute.attempt, effect: call.policy.effect });
                }
                (Decision::Probe, Some(stored), _) => {
                    return Ok(Forecast::WouldCheck { record: stored.record });
                }
                // As if it had been written: the same record, one state further.
                (Decision::Again, Some(stored), Write::Put(draft)) => {
                    let record = draft.stamped(known.intent, stored.record.version, stored.now);
                    seen = Some(Stored { record: Arc::new(record), now: stored.now });
                    continue;
                }
                (Decision::Wait, Some(stored), _) => {
                    let retry_after_ms = call.policy.wait_for_ms.clamp(100, 5_000);
                    Answer::InProgress(InProgress { record: stored.record, retry_after_ms })
                }
                (decision, stored, _) => answer_of(decision, known.intent, stored)?,
            };
            return Ok(Forecast::WouldAnswer(answer));
        }
    }
}
