//! One room per command, and two that they share: `find` (which record is meant) and `view` (how it is shown).

pub(crate) mod check;
pub(crate) mod demo;
pub(crate) mod doctor;
mod find;
pub(crate) mod forget;
pub(crate) mod generate;
pub(crate) mod key;
pub(crate) mod log;
pub(crate) mod ls;
pub(crate) mod mcp;
pub(crate) mod providers;
pub(crate) mod purge;
pub(crate) mod resolve;
pub(crate) mod run;
pub(crate) mod score;
pub(crate) mod serve;
pub(crate) mod show;
pub(crate) mod stats;
pub(crate) mod store;
mod view;
