//! What must hold for any bytes, for the fuzzer and for the seeded random test.

pub mod grpc_web;
pub mod head;
pub mod properties;
