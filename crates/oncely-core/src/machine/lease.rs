//! Owners that are gone or may be asked again: what is said of a lost one, and a begin that is made twice.

use super::{Because, Begin, Decision, Execute, Transition, Write, changed, running};
use crate::audit::Event;
use crate::owner::Owner;
use crate::record::Record;

/// What is known of an attempt whose owner is lost.
pub(super) fn lost_message(record: &Record, owner: &Owner) -> String {
    let number = record.body.attempts;
    if owner.is_remote() {
        format!("the lease of attempt {number}, held by {}, has lapsed; what it did is not known", owner.host)
    } else {
        let (pid, host) = (owner.process.pid, &owner.host);
        format!(
            "the process that ran attempt {number} (pid {pid} on {host}) is gone; what it did is not known"
        )
    }
}

/// Names the holder of a lease in what it does; a process is named by its record.
pub(super) fn by_holder(event: Event, owner: &Owner) -> Event {
    if owner.is_remote() && !owner.host.is_empty() { event.by(owner.host.as_str()) } else { event }
}

/// The begin of the attempt that is running, made again because its answer was lost: the same answer, and a lease from
/// now on. Whoever got no answer has started nothing, and nobody else knows the token.
pub(super) fn asked_again(record: &Record, call: &Begin<'_>) -> Transition {
    let draft = changed(record, running(call));
    let execute = Execute {
        token: call.token,
        attempt: draft.body.attempts,
        downstream_key: record.intent.downstream_key(draft.body.generation, draft.body.rejections),
        because: Because::AskedAgain,
    };
    let decision = Decision::Execute(execute);
    Transition { write: Write::Put(Box::new(draft)), events: Vec::new(), decision }
}
