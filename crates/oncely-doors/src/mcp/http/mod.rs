//! Streamable HTTP: behind us (a server at an address) and in front of us (clients that connect).
//!
//! - [`sse`]: event streams. [`messages`]: the messages of a reply, whichever form it has.
//! - [`target`]: a server at an address. [`upstream`]: the link to it for a client on standard input and output.

pub mod messages;
pub mod sse;
pub mod target;
pub mod upstream;
