//! A charge that is made once, however often it is asked for. Run: `cargo run -p oncely --example charge`

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use oncely::{Answer, Oncely, outcome};
use serde_json::json;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = tempfile::tempdir()?;
    let ledger = format!("sqlite:{}", directory.path().join("ledger.db").display());
    let oncely = Oncely::new(oncely_store::open(&ledger).await?);

    for amount in [99.99, 99.99, 12.00] {
        let answer = oncely
            .tool("charge_payment")
            .key("order-42")
            .payload(&json!({ "customer": "cust_123", "amount": amount }))
            .run(|attempt| async move {
                // A real charge would pass this key on, so that the provider de-duplicates too.
                let key = attempt.downstream_key();
                outcome::created(&json!({ "charge": "ch_1", "provider_key": key.to_string() }))
            })
            .await?;
        match answer {
            Answer::Executed(_) => println!("charged {amount}"),
            Answer::Replayed(_) => println!("charged before: nothing ran"),
            Answer::Conflict { .. } => println!("refused: order-42 was another charge"),
            other => println!("nothing ran: {other:?}"),
        }
    }
    Ok(())
}
