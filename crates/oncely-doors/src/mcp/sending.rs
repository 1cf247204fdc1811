//! A call on its way to the server: sent once, waited for, and judged by its answer.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use oncely::{AttemptInfo, Oncely, Outcome};
use oncely_core::{Doubt, DoubtCause, Failure};

use super::alert::Alert;
use super::classify::{Cancel, Meanwhile, Talk, Verdict, verdict};
use super::flight::Flight;
use super::guard::Rules;
use super::link::{Link, NoAnswer, Reply};
use super::message::Response;
use super::reply::kept_as_said;

/// How long a server may take to answer a call after its cancellation was passed on.
const CANCEL_GRACE: Duration = Duration::from_secs(5);

/// What came of a call, for the answer to its client.
#[derive(Default)]
pub(super) struct Seen {
    pub(super) answer: Option<Bytes>,
    pub(super) asks_for_input: bool,
}

/// A message that is about to be sent for an attempt.
pub(super) struct Sending {
    pub(super) id: String,
    pub(super) line: Vec<u8>,
    pub(super) link: Arc<dyn Link>,
    pub(super) flight: Arc<Flight>,
    pub(super) judge: Judge,
    pub(super) engine: Oncely,
    pub(super) alert: Arc<Alert>,
}

/// Says what an answer proves.
pub(super) struct Judge {
    pub(super) seen: Arc<Mutex<Seen>>,
    pub(super) tool: String,
    pub(super) rules: Arc<Rules>,
    /// How many answers of clients to requests of servers have passed, now and before this call was sent. They are those
    /// of all calls under way: being too careful is harmless.
    pub(super) client_answers: Arc<AtomicU64>,
    pub(super) answers_before: u64,
    pub(super) flight: Arc<Flight>,
}

impl Sending {
    /// Sends the call and waits for its answer, however long it takes.
    pub(super) async fn run(self, info: AttemptInfo) -> Outcome {
        if !self.flight.launch(&self.id) {
            return Outcome::not_started(
                "CANCELLED",
                "the client cancelled the call before it was sent; nothing ran",
            );
        }
        let Self { id, line, link, flight, judge, engine, alert } = self;
        let _at_server = alert.at_server();
        // In a task of its own: what comes after we have stopped waiting is still the truth.
        let (calling_link, called) = (link.clone(), id.clone());
        let mut calling = tokio::spawn(async move { calling_link.call(called, line).await });
        let cancelled = async {
            if !flight.forwards_cancel() {
                std::future::pending::<()>().await;
            }
            flight.cancelled().await;
            tokio::time::sleep(CANCEL_GRACE).await;
        };
        tokio::select! {
            biased;
            reply = &mut calling => judge.of(reply.unwrap_or_else(|_| lost())),
            () = cancelled => {
                link.doubt(&id);
                tokio::spawn(async move {
                    // An answer, or that it was never sent, or not taken: all but that it is lost.
                    if let Ok(reply) = calling.await
                        && !matches!(reply, Reply::Lost(_))
                    {
                        let outcome = judge.of(reply);
                        // A ledger that fails now leaves the doubt, which is careful.
                        let _ = engine.complete(info.intent(), info.token(), outcome).await;
                    }
                });
                let why = "it was cancelled, and the server has not answered since";
                Outcome::Unknown(Doubt::new(DoubtCause::TimedOut, why))
            }
        }
    }
}

/// A doubt about a call to which no answer was read. Only an answer says that the server is not at work on it any more: what
/// it started may go on when its output has ended, and even when it has exited itself.
fn without_answer(why: impl Into<String>) -> Doubt {
    Doubt::new(DoubtCause::Abandoned, why)
}

fn lost() -> Reply {
    Reply::Lost("the wait for the answer was given up".into())
}

impl Judge {
    fn meanwhile(&self) -> Meanwhile {
        let quiet = self.client_answers.load(Ordering::Acquire) == self.answers_before;
        // Noted before it is passed on, so that no answer to it is missed.
        let cancels = self.flight.is_cancelled() && self.flight.forwards_cancel();
        Meanwhile {
            talk: if quiet { Talk::None } else { Talk::Some },
            cancel: if cancels { Cancel::Passed } else { Cancel::None },
        }
    }

    fn of(&self, reply: Reply) -> Outcome {
        let bytes = match reply {
            Reply::NotSent(NoAnswer { why, .. }) => {
                let message = format!("the call did not reach the server; nothing ran: {why}");
                return Outcome::NotStarted(Failure::new("NOT_SENT", message));
            }
            Reply::Refused(NoAnswer { why, said }) => {
                let message = format!("the server did not take the call; nothing ran: {why}");
                let failure = Failure::new("NOT_SENT", message);
                return Outcome::Rejected(match said {
                    Some(said) => failure.with_detail(kept_as_said(&said)),
                    None => failure,
                });
            }
            Reply::Lost(NoAnswer { why, said }) => {
                let doubt = without_answer(why);
                return Outcome::Unknown(match said {
                    Some(said) => doubt.with_evidence(kept_as_said(&said)),
                    None => doubt,
                });
            }
            Reply::Answered(bytes) => bytes,
        };
        let Some(response) = std::str::from_utf8(&bytes).ok().and_then(Response::read) else {
            return Outcome::Unknown(without_answer("the server's answer cannot be read"));
        };
        let (rules, meanwhile) = (&self.rules, self.meanwhile());
        let judged = verdict(&self.tool, rules.policy.effect, &response, &rules.declared.mcp, meanwhile);
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.asks_for_input = judged == Verdict::InputRequired;
        seen.answer = Some(bytes.clone());
        match judged {
            Verdict::Ended(outcome) => outcome,
            Verdict::InputRequired => {
                Outcome::rejected("INPUT_REQUIRED", "the server asks for input before it acts")
            }
        }
    }
}
