//! What a caller is told when its request has been answered, or where the request goes instead.

use std::sync::Arc;

use oncely_core::{StoreError, StoreErrorKind};

use super::errors::{Redirect, odd, redirect, refused};
use super::flight::wrote;
use super::gate;
use super::link::Request;
use super::options::RedisServer;
use super::resp::Value;
use super::router::Router;

/// Whether a connection is still good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keep {
    Yes,
    No,
}

/// Tells a caller, or sends the request elsewhere.
pub(crate) fn settle(
    request: Request,
    replies: Vec<Value>,
    confirmed: &Result<(), String>,
    server: &RedisServer,
    router: &Arc<Router>,
) -> Keep {
    let refusal = replies.iter().find_map(|reply| match reply {
        Value::Error(words) => Some(words.as_str()),
        _ => None,
    });
    if let Some(words) = refusal {
        let moved = gate::refusal(words, &router.dialer.options.describe());
        let error = moved.unwrap_or_else(|| refused(words, &server.to_string()));
        return match redirect(words) {
            Some(redirect) => {
                // The scripts are taught when a connection is made; a replica is left for its primary.
                let keep = matches!(redirect, Redirect::Moved(_) | Redirect::Ask(_) | Redirect::Again);
                router.reroute(request, redirect, error);
                if keep { Keep::Yes } else { Keep::No }
            }
            None => {
                request.answer(Err(error));
                Keep::Yes
            }
        };
    }
    let first = replies.first().unwrap_or(&Value::Nil);
    let answer = match confirmed {
        _ if request.writes.may() && first.items().is_empty() => Err(odd(first, &server.to_string())),
        Err(why) if wrote(&request, &replies) => {
            let message = format!("{server} has written it, but {why}; nothing was started");
            Err(StoreError::ambiguous(StoreErrorKind::Unavailable, message))
        }
        _ => Ok(replies),
    };
    request.answer(answer);
    Keep::Yes
}
