//! The demo's agent: it retries until it hears that the order is paid.

use std::sync::Arc;

use oncely::{Answer, Effect, Finding, Oncely, Outcome, Policy};
use oncely_core::WhenUnknown;
use serde_json::json;

use super::service::{Service, ask};
use crate::exit::Failure;

/// How often the agent asks before it gives up.
const TRIES: u32 = 8;

/// What the agent did on one side.
#[derive(Default)]
pub struct Tally {
    /// Charge requests that reached the service.
    pub requests: u32,
    /// Retries that were answered without a request.
    pub prevented: u32,
    /// Doubts that the check settled.
    pub checked: u32,
}

/// Pays an order the usual way: on an error, try again.
pub async fn pay_plainly(service: &Service, order: &str, tally: &mut Tally) -> String {
    for attempt in 1..=TRIES {
        tally.requests += 1;
        match ask(service.address, &format!("charge {order}")).await {
            Ok(answer) if answer.starts_with("charged") => {
                return if attempt == 1 { "paid".into() } else { format!("paid after {attempt} requests") };
            }
            _ => {}
        }
    }
    "gave up".into()
}

/// Pays an order through oncely: the same retries, but a lost answer is *unknown*, and a check settles it.
pub async fn pay_through(
    oncely: &Oncely,
    service: &Service,
    order: &str,
    tally: &mut Tally,
) -> Result<String, Failure> {
    let policy = Arc::new(Policy {
        effect: Effect::Created,
        when_unknown: WhenUnknown::Check,
        max_retries: TRIES,
        ..Policy::default()
    });
    let address = service.address;
    for attempt in 1..=TRIES {
        let (charged, asked) = (order.to_owned(), order.to_owned());
        let answer = oncely
            .tool("charge_payment")
            .key(order)
            .payload(&json!({ "order": order }))
            .policy(policy.clone())
            .check(move || find(address, asked.clone()))
            .run(move |_| charge(address, charged))
            .await?;
        match answer {
            Answer::Executed(execution) => {
                tally.requests += 1;
                if execution.succeeded() {
                    return Ok(if attempt == 1 { "paid".into() } else { format!("paid at call {attempt}") });
                }
            }
            Answer::Replayed(_) => {
                tally.prevented += 1;
                tally.checked += 1;
                return Ok(format!("lost answer, unknown; checked at call {attempt}: paid once"));
            }
            _ => tally.prevented += 1,
        }
    }
    Ok("unknown: somebody has to look".into())
}

async fn charge(address: std::net::SocketAddr, order: String) -> Outcome {
    match ask(address, &format!("charge {order}")).await {
        Ok(answer) if answer == "busy" => {
            Outcome::rejected("BUSY", "the service is busy and charged nothing")
        }
        Ok(answer) => oncely::outcome::created(&answer),
        Err(error) => Outcome::unknown(format!("the answer was lost: {error}")),
    }
}

async fn find(address: std::net::SocketAddr, order: String) -> Finding {
    match ask(address, &format!("find {order}")).await {
        Ok(answer) if answer.starts_with("charged") => Finding::Happened(Some(answer.into_bytes().into())),
        Ok(_) => Finding::NotHappened,
        Err(error) => Finding::Unsure(error.to_string()),
    }
}
