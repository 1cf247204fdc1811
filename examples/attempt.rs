//! The lower level for bindings and doors: begin, renew, complete. Run: `cargo run -p oncely --example attempt`

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use oncely::{Begun, Effect, Oncely, Outcome};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let oncely = Oncely::new(oncely_store::open("memory:").await?);

    let Begun::Run(mut attempt) = oncely.tool("deploy").key("v2").begin().await? else {
        return Err("a fresh key runs".into());
    };
    println!("attempt {} may run", attempt.info().number());
    attempt.renew().await?;
    let unrecorded = attempt.complete(Outcome::succeeded(Effect::Updated, *b"\"v2 is live\"")).await;
    println!("recorded: {}", unrecorded.is_none());

    // An attempt that is dropped without a word is unknown, and the next call is told so.
    if let Begun::Run(attempt) = oncely.tool("deploy").key("v3").begin().await? {
        drop(attempt);
    }
    match oncely.tool("deploy").key("v3").begin().await? {
        Begun::Answered(oncely::Answer::Unknown(doubt)) => {
            println!("in doubt: attempt {}", doubt.record.body.attempts);
        }
        _ => return Err("a dropped attempt is in doubt".into()),
    }
    Ok(())
}
