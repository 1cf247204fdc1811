//! What the replies to a request come to: an answer for its caller, or another server to be asked.

use std::sync::Arc;

use oncely_core::{StoreError, StoreErrorKind};

use super::errors::{Redirect, is_other_type, odd, redirect, refused};
use super::flight::wrote;
use super::gate;
use super::link::{Answer, Asks, Request};
use super::options::RedisServer;
use super::resp::Value;
use super::router::Router;
use crate::courier::Answers;

/// Whether a connection is still good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keep {
    Yes,
    No,
}

/// Tells callers, all that have an answer at once.
pub(crate) struct Teller<'a> {
    server: &'a RedisServer,
    router: &'a Arc<Router>,
    answers: Answers<Answer>,
}

impl<'a> Teller<'a> {
    pub(crate) fn new(server: &'a RedisServer, router: &'a Arc<Router>) -> Self {
        Self { server, router, answers: Answers::new() }
    }

    /// Tells a caller.
    pub(crate) fn tell(&mut self, request: Request, answer: Answer) {
        request.answer_among(&mut self.answers, answer);
    }

    /// Tells a caller what its replies come to, or sends the request elsewhere.
    pub(crate) fn settle(
        &mut self,
        request: Request,
        replies: Vec<Value>,
        confirmed: &Result<(), String>,
    ) -> Keep {
        let (server, router) = (self.server, self.router);
        let reads_values = matches!(request.asks, Asks::Values { .. });
        let refusal = replies.iter().find_map(|reply| match reply {
            Value::Error(words) if reads_values && is_other_type(words) => None,
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
                    self.tell(request, Err(error));
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
        self.tell(request, answer);
        Keep::Yes
    }
}
