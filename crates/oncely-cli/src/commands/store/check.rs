//! `oncely store check`: what the checks at start say of the ledger, and whether it takes calls. Changes nothing.

use std::process::ExitCode;

use clap::Args;
use oncely_core::Gate;
use oncely_store::{Check, Health};
use serde_json::json;

use crate::args::Global;
use crate::context::Context;
use crate::exit::{Failure, STORE_UNAVAILABLE};
use crate::output::{self, Tone};

/// Run the checks of a start on a ledger, and say whether it takes calls
///
/// The ledger is the one that --store names. The exit code is 12 if it cannot be used as it is.
#[derive(Debug, Args)]
pub(crate) struct CheckArgs {}

/// Runs the command.
pub(crate) async fn run(global: &Global, _args: CheckArgs) -> Result<ExitCode, Failure> {
    let context = Context::load(global)?;
    let mut checks = oncely_store::check(&context.store_url).await?;
    let usable = checks.iter().all(|check| check.health != Health::Fail);
    // To open tables of an older version brings them up to date, and this changes nothing.
    let is_old = checks.iter().any(|check| check.what == "tables" && check.health == Health::Warn);
    if usable && !is_old && !oncely_store::is_absent(&context.store_url).await? {
        checks.push(match oncely_store::open(&context.store_url).await?.gate().await? {
            Gate::Open => Check::new("gate", Health::Ok, "open: it takes calls"),
            gate => Check::new("gate", Health::Fail, gate.refusal("of this address").message),
        });
    }
    let ok = checks.iter().all(|check| check.health != Health::Fail);
    if output::wants_json(global.json) {
        let list: Vec<_> = checks
            .iter()
            .map(|c| json!({ "check": c.what, "health": word(c.health), "message": c.message }))
            .collect();
        output::print_json(&json!({ "ok": ok, "checks": list }));
    } else {
        let mut table = output::table(&["", "CHECK", "FOUND"]);
        for check in &checks {
            let tone = match check.health {
                Health::Ok => Tone::Good,
                Health::Warn => Tone::Warn,
                Health::Fail => Tone::Loud,
            };
            table.add_row([
                output::cell(tone, word(check.health)),
                output::cell(Tone::Plain, &check.what),
                output::cell(Tone::Plain, &check.message),
            ]);
        }
        output::print_table(&table);
    }
    Ok(if ok { ExitCode::SUCCESS } else { ExitCode::from(STORE_UNAVAILABLE) })
}

fn word(health: Health) -> &'static str {
    match health {
        Health::Ok => "ok",
        Health::Warn => "warn",
        Health::Fail => "fail",
    }
}
