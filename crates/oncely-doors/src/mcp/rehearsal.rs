//! A dry run that the tool itself knows of: asked of the server, and not recorded, since nothing is done.

use std::sync::Arc;

use super::call::{Asked, ToolCall};
use super::flight::Flight;
use super::guard::Caller;
use super::link::{OwnIds, Reply};
use super::message::{self, INTERNAL_ERROR, Response};

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
    if !flight.launch(&id) {
        return message::error(&call.id, INTERNAL_ERROR, "the call was cancelled; nothing ran");
    }
    let line = call.forward(&id, asked, None);
    let failed = |why: &str| message::error(&call.id, INTERNAL_ERROR, why);
    match caller.link.call(id, line).await {
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
