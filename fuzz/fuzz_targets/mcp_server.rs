//! Lines of an MCP server, as they come; and what is kept as the result of a call.
#![no_main]

libfuzzer_sys::fuzz_target!(|line: &[u8]| {
    oncely_fuzz::properties::server_line(line);
    oncely_fuzz::properties::kept_result(line);
});
