//! Measures an HTTP endpoint: sends the user's request with keys good and bad, and counts what happens.

mod client;
mod dialect;
mod drive;
mod judge;
pub mod request;

use std::time::Duration;

pub use dialect::Dialect;
use request::Request;

use crate::probe::Count;
use crate::rubric::HTTP;
use crate::{Effects, Error, Report};

/// What to measure, and how far to go.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The request, complete with its address. `{n}` stands for a number that is new for every intent.
    pub request: Request,
    /// The same request with another payload; worked out where it is `None`.
    pub other: Option<Request>,
    /// Which contract is expected.
    pub dialect: Dialect,
    /// The header that carries the key.
    pub key_header: String,
    /// Counts effects; without it, answers are compared.
    pub count: Option<Count>,
    /// Whether the request may be sent at all.
    pub effects: Effects,
    /// How many times two requests race.
    pub races: u32,
    /// How long one request may take.
    pub timeout: Duration,
}

/// Measures an endpoint.
pub async fn measure(plan: &Plan) -> Result<Report, Error> {
    let client = client::Client::new(plan.timeout, &plan.key_header)?;
    let target = format!("{} {}", plan.request.method, plan.request.shown_target());
    if plan.effects == Effects::Forbidden {
        let options = client.options(&plan.request, &plan.key_header).await?;
        let report = HTTP.report(target, judge::unseen(plan.dialect));
        return Ok(report.with_notes(judge::notes_of_options(&options, &plan.key_header)));
    }
    let seen = drive::drive(plan, &client).await?;
    Ok(HTTP.report(target, judge::judge(plan.dialect, &seen)).with_notes(judge::notes(&seen)))
}
