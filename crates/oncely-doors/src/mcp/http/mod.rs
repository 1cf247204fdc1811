//! Streamable HTTP: behind us (a server at an address) and in front of us (clients that connect).
//!
//! - [`sse`]: event streams. [`messages`]: the messages of a reply, whichever form it has.
//! - [`target`]: a server at an address; `query`: what a query says to it; `exchange`: one request to it and all that comes
//!   back.
//! - [`upstream`]: the link to such a server for a client on standard input and output; `hello`: how a session begins.
//! - [`front`]: clients that connect, and who may. `intake`: what they post. `body`: bodies of replies. `headers`: what
//!   headers say. [`tenant`]: what tells callers apart.
//! - [`relay`]: from HTTP to HTTP; `views`: the server as each caller sees it; `call_link`: one call on that
//!   way; `rewritten`: a reply that is changed.
//! - [`started`]: from HTTP to servers that we start; `mux`: one such server and its many clients; `routes`: whom
//!   its messages are for.

mod body;
mod call_link;
mod exchange;
pub mod front;
mod headers;
mod hello;
mod intake;
pub mod messages;
mod mux;
mod query;
pub mod relay;
mod rewritten;
mod routes;
pub mod sse;
pub mod started;
pub mod target;
pub mod tenant;
pub mod upstream;
mod views;

pub use started::SESSIONS_MAX;
pub use views::{VIEWS_MAX, VIEWS_PER_CALLER_MAX};
