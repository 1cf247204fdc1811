//! An agent's session: inside a scope, equal calls are one intent without any key, and a lost answer is settled by
//! looking. Run: `cargo run -p oncely --example session`

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use oncely::core::WhenUnknown;
use oncely::{Finding, Oncely, Outcome, Policy};
use serde_json::json;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let oncely = Oncely::new(oncely_store::open("memory:").await?);
    let outbox = Arc::new(AtomicU32::new(0));
    let policy = Arc::new(Policy { when_unknown: WhenUnknown::Check, ..Policy::default() });

    for call in 1..=3 {
        let (sent, looked) = (outbox.clone(), outbox.clone());
        let answer = oncely
            .tool("send_email")
            .scope("task-7")
            .payload(&json!({ "to": "a@b.c", "subject": "Welcome" }))
            .policy(policy.clone())
            // Asked before acting, and to settle an unknown outcome.
            .check(move || {
                let found = looked.load(Ordering::SeqCst) > 0;
                async move { if found { Finding::Happened(None) } else { Finding::NotHappened } }
            })
            .run(move |_| async move {
                sent.fetch_add(1, Ordering::SeqCst);
                // The mail left, but the answer is lost: neither success nor failure.
                Outcome::unknown("the connection was lost")
            })
            .await?;
        println!("call {call}: {}", name(&answer));
    }
    println!("mails sent: {}", outbox.load(Ordering::SeqCst));
    Ok(())
}

fn name(answer: &oncely::Answer) -> &'static str {
    match answer {
        oncely::Answer::Executed(_) => "ran, outcome unknown",
        oncely::Answer::Replayed(_) => "it had happened, nothing ran",
        _ => "nothing ran",
    }
}
