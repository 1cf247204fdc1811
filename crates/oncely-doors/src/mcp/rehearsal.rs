//! A dry run that the tool itself knows of: asked of the server, and not recorded, since nothing is done.

use std::sync::Arc;
use std::time::Duration;

use super::call::{Asked, ToolCall};
use super::flight::Flight;
use super::guard::Caller;
use super::link::{OwnIds, Reply};
use super::message::{self, INTERNAL_ERROR, Response};

/// How long a server may take to answer after a cancellation was passed on. It need not answer at all.
const PATIENCE: Duration = Duration::from_secs(10);

/// The server's own answer, under the client's id.
pub(super) async fn answer(
    ids: &OwnIds,
    call: &ToolCall<'_>,
    asked: &Asked,
    caller: &Caller<'_>,
    flight: &Arc<Flight>,
) -> Vec<u8> {
    let id = ids.next();
    flight.forward_cancel();
    let failed = |why: &str| message::error(&call.id, INTERNAL_ERROR, why);
    if !flight.launch(&id) {
        return failed("the call was cancelled; nothing ran");
    }
    let line = call.forward(&id, asked, None);
    let reply = tokio::select! {
        reply = caller.link.call(id, line) => reply,
        () = async { flight.cancelled().await; tokio::time::sleep(PATIENCE).await } => {
            return failed("the dry run was cancelled");
        }
    };
    match reply {
        Reply::Answered(answer) => match std::str::from_utf8(&answer).ok().and_then(Response::read) {
            Some(response) => response.under(&call.id),
            None => failed("the server's answer cannot be read"),
        },
        Reply::Lost(why) => failed(&format!("the server did not answer: {why}")),
        Reply::Refused(why) | Reply::NotSent(why) => {
            failed(&format!("the server was not asked; nothing ran: {why}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use bytes::Bytes;

    use super::{PATIENCE, answer};
    use crate::mcp::call::ToolCall;
    use crate::mcp::flight::Flight;
    use crate::mcp::guard::Caller;
    use crate::mcp::link::{Boxed, Client, Link, OwnIds, Reply};
    use crate::mcp::message::{Message, read};
    use crate::mcp::tools::{Added, Whose};

    /// A server that never answers, and a client that is told nothing.
    struct Silent;

    impl Link for Silent {
        fn pass(&self, _line: Bytes) -> Boxed<'_, ()> {
            Box::pin(std::future::ready(()))
        }

        fn call(&self, _id: String, _line: Vec<u8>) -> Boxed<'_, Reply> {
            Box::pin(std::future::pending())
        }
    }

    impl Client for Silent {
        fn send(&self, _line: Bytes) -> Boxed<'_, ()> {
            Box::pin(std::future::ready(()))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_dry_run_that_was_cancelled_and_is_not_answered_ends() {
        let line = br#"{"id":1,"method":"tools/call","params":{"name":"pay","arguments":{"dry_run":true}}}"#;
        let Ok(Message::Request(request)) = read(line) else { panic!("it is a request") };
        let call = ToolCall::read(&request).unwrap();
        let asked = call.ask(Added { key: Whose::Ours, dry_run: Whose::Own }).unwrap();
        let (link, client): (Arc<dyn Link>, Arc<dyn Client>) = (Arc::new(Silent), Arc::new(Silent));
        let caller = Caller { link: &link, client: &client, principal: None };
        let (ids, flight) = (OwnIds::new().unwrap(), Arc::new(Flight::default()));
        let begun = tokio::time::Instant::now();
        let slow = Duration::from_secs(3_600);
        let cancelling = async {
            tokio::time::sleep(slow).await;
            assert!(flight.cancel().is_some(), "it was sent");
        };
        let both = async { tokio::join!(answer(&ids, &call, &asked, &caller, &flight), cancelling) };
        let (told, ()) = tokio::time::timeout(2 * slow, both).await.expect("it ends");
        assert!(String::from_utf8(told).unwrap().contains("cancelled"));
        assert_eq!(begun.elapsed(), slow + PATIENCE, "until it is cancelled it may take its time");
    }
}
