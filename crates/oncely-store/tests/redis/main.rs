//! The ledger on Redis, on real servers that the tests start.

mod conformance;
