//! Lines of an MCP client, as they come.
#![no_main]

libfuzzer_sys::fuzz_target!(|line: &[u8]| oncely_fuzz::properties::client_line(line));
