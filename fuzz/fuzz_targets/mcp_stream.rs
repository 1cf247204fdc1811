//! Streams of lines and events, cut anywhere.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: (u16, &[u8])| oncely_fuzz::properties::stream(
    input.1,
    usize::from(input.0)
));
