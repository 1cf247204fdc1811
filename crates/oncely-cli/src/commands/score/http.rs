//! `oncely score http`: measures an HTTP endpoint.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use oncely_score::http::{Dialect, Plan, measure, request};
use oncely_score::limits;
use oncely_score::rubric::HTTP;

use super::{Common, failure, finish};
use crate::args::Global;
use crate::exit::Failure;

/// Measure an HTTP endpoint: repeat, reused key, race, missing and malformed keys.
///
/// The file holds one request: `POST /orders`, headers, a blank line, the body. After a line with
/// ### it may hold the same request with another payload. An n in braces is replaced by a number
/// that is new for every intent. Keys are added here.
///
///   oncely score http --allow-effects --url http://localhost:8080 --request order.http
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(super) struct HttpArgs {
    #[command(flatten)]
    common: Common,
    /// Where the endpoint is, if the request names only a path
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// The file with the request
    #[arg(long, value_name = "FILE")]
    request: PathBuf,
    /// The contract that is expected
    #[arg(long, value_name = "DIALECT", default_value = "default")]
    dialect: DialectName,
    /// The header that carries the key
    #[arg(long, value_name = "NAME", default_value = "Idempotency-Key")]
    key_header: String,
    /// How many times two requests race
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(0..=limits::RACES_MAX as i64))]
    races: u32,
}

/// The contract that is expected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum DialectName {
    /// A key is required; 409 for a key reused; replays are marked; application/problem+json
    Default,
    /// The header draft of the IETF: quoted keys; 422 for a key reused
    Ietf,
    /// Stripe's: the key is optional; 400 for a key reused; replays are marked
    Stripe,
}

/// Runs the command.
pub(super) async fn run(global: &Global, args: HttpArgs) -> Result<ExitCode, Failure> {
    let file = args.request.display();
    let size = std::fs::metadata(&args.request).map(|found| found.len());
    if size.is_ok_and(|size| size > limits::REQUEST_BYTES_MAX as u64) {
        let most = limits::REQUEST_BYTES_MAX;
        return Err(Failure::usage(format!("{file} is longer than {most} bytes; nothing was sent")));
    }
    let text = std::fs::read_to_string(&args.request)
        .map_err(|e| Failure::usage(format!("{file} cannot be read: {e}; nothing was sent")))?;
    let (request, other) = request::parse(&text, args.url.as_deref()).map_err(failure)?;
    let dialect = match args.dialect {
        DialectName::Default => Dialect::Default,
        DialectName::Ietf => Dialect::Ietf,
        DialectName::Stripe => Dialect::Stripe,
    };
    let plan = Plan {
        request,
        other,
        dialect,
        key_header: args.key_header,
        count: args.common.count(),
        effects: args.common.effects(),
        races: args.races,
        timeout: args.common.timeout,
    };
    finish(global, &args.common, &HTTP, measure(&plan)).await
}
