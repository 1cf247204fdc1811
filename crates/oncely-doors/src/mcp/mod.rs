//! The MCP door: any MCP server, unchanged, made safe to retry.
//!
//! Messages are passed on as the bytes that came. Only `tools/list` (our arguments are added to tools that write) and
//! `tools/call` of tools that write are touched.
//!
//! - [`message`], [`json`], [`frames`], [`glance`]: messages as bytes, read only as far as is needed; `plain`: and quickly.
//!   `ids`: how their ids are compared.
//! - [`tools`], [`catalog`], [`listing`]: what a server's tools are, which of them write, and what is added to them;
//!   `naming`: what their names say; `schema`: which arguments they have.
//! - [`call`]: a `tools/call`: its key, its payload, what the server gets. [`classify`]: what an answer proves.
//! - [`guard`]: makes a call of the engine out of it, and [`reply`] a tool result out of the answer. `sending`: the call
//!   on its way. `handle`: a task in place of a result. `stored`: results that are kept.
//! - [`session`]: one client and one server. [`flight`]: a request that we answer. [`link`]: the way to a server. `busy`: what
//!   is at work for it. `unread`: what waits for it.
//! - [`stdio`], [`standard`], [`serve`]: a server that we start and a client that started us. [`outlet`]: the way out.
//!   [`opening`], `long`: long messages, which pass as they come; [`cut`]: those that are too long. [`probe`]: asks a check command.
//! - `alert`, `wakeful`: staying awake where messages come thick and fast.
//! - [`explain`]: asks a server for its tools on behalf of a person.
//! - [`http`]: servers at an address, and clients that connect. [`name`]: what a server is called.
//!   `ties`: what ends servers if we are killed.

mod alert;
mod busy;
pub mod call;
pub mod catalog;
pub mod classify;
pub mod cut;
pub mod explain;
pub mod flight;
pub mod frames;
pub mod glance;
pub mod guard;
mod handle;
pub mod http;
mod ids;
pub mod json;
pub mod link;
pub mod listing;
mod long;
pub mod message;
pub mod name;
mod naming;
pub mod opening;
pub mod outlet;
mod plain;
pub mod probe;
mod rehearsal;
pub mod reply;
mod schema;
mod sending;
pub mod serve;
pub mod session;
pub mod standard;
pub mod stdio;
mod stored;
mod ties;
pub mod tools;
mod unread;
mod wakeful;
