//! `oncely demo`: a flaky payment service and a retrying agent, with and without oncely, side by side.

mod agent;
mod service;

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use oncely::Oncely;
use serde_json::json;

use crate::args::Global;
use crate::exit::Failure;
use crate::output::{print, print_json};
use agent::Tally;
use service::Service;

/// Watch a flaky payment service and a retrying agent, with and without oncely.
///
/// Both sides pay the same orders at the same service, which charges and then sometimes loses the answer. The agent
/// retries, as agents do. The service's own book counts the charges. Uses a temporary ledger; nothing is left behind.
#[derive(Debug, Args)]
pub struct DemoArgs {
    /// How many orders to pay
    #[arg(long, default_value_t = 12, value_parser = clap::value_parser!(u32).range(1..=1000))]
    orders: u32,
    /// What decides which answers are lost; the same number gives the same story
    #[arg(long, default_value_t = 7)]
    seed: u64,
    /// Do not pause between the steps
    #[arg(long)]
    fast: bool,
}

/// Tells the story.
pub async fn run(global: &Global, args: DemoArgs) -> Result<ExitCode, Failure> {
    let show = !global.json;
    let pause = if args.fast || !std::io::stdout().is_terminal() || !show {
        Duration::ZERO
    } else {
        Duration::from_millis(u64::from(9_000 / args.orders.max(1)))
    };
    let directory = TemporaryDirectory::create()?;
    let url = format!("sqlite:{}", directory.0.join("demo.db").display());
    let oncely = Oncely::new(oncely_store::open(&url).await?);
    let failed = |e: std::io::Error| Failure::internal(format!("the demo's payment service failed: {e}"));
    let plain = Service::start(args.seed).await.map_err(failed)?;
    let guarded = Service::start(args.seed).await.map_err(failed)?;
    if show {
        print("A payment service charges, and then sometimes loses the answer. An agent retries.\n");
        print(&format!("{:<10} {:<38} {}", "ORDER", "WITHOUT ONCELY", "WITH ONCELY"));
    }
    let (mut without, mut with) = (Tally::default(), Tally::default());
    for number in 1..=args.orders {
        let order = format!("order-{number}");
        let left = agent::pay_plainly(&plain, &order, &mut without).await;
        let right = agent::pay_through(&oncely, &guarded, &order, &mut with).await?;
        if show {
            print(&format!("{order:<10} {left:<38} {right}"));
        }
        tokio::time::sleep(pause).await;
    }
    report(&args, [("without", &plain, &without), ("with", &guarded, &with)], show);
    drop(oncely);
    Ok(ExitCode::SUCCESS)
}

fn report(args: &DemoArgs, sides: [(&str, &Service, &Tally); 2], show: bool) {
    let mut data = json!({ "orders": args.orders, "seed": args.seed });
    if show {
        print("\nWhat the service's own book says:");
    }
    for (name, service, tally) in sides {
        let (charges, doubles) = service.book();
        data[name] = json!({
            "charges": charges,
            "double_charges": doubles,
            "requests": tally.requests,
            "prevented": tally.prevented,
            "checked": tally.checked,
        });
        if show {
            print(&format!(
                "  {name:<8} {charges} charges for {} orders, {doubles} of them twice or more",
                args.orders
            ));
        }
    }
    if show {
        print("\nTry it on your own command:\n  oncely run --key order-42 -- ./charge.sh cust_123 99.99");
    } else {
        print_json(&data);
    }
}

/// A directory that is gone when the demo is over.
struct TemporaryDirectory(std::path::PathBuf);

impl TemporaryDirectory {
    fn create() -> Result<Self, Failure> {
        let path = std::env::temp_dir().join(format!("oncely-demo-{}", std::process::id()));
        std::fs::create_dir(&path)
            .map_err(|e| Failure::internal(format!("{} cannot be created: {e}", path.display())))?;
        Ok(Self(path))
    }
}

impl Drop for TemporaryDirectory {
    fn drop(&mut self) {
        // What cannot be removed from the temporary directory is the system's to clean.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
