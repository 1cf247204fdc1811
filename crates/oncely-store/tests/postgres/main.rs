//! The ledger on a real PostgreSQL server, which the tests start themselves on a free port.
#![allow(clippy::unwrap_used)]

mod conformance;
