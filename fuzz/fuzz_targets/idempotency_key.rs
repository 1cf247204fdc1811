//! Whatever the bytes of an `Idempotency-Key`: an answer, no panic, and both forms of a key agree.
#![no_main]

use libfuzzer_sys::fuzz_target;
use oncely::tower::{KeyForm, parse_key};

fuzz_target!(|bytes: &[u8]| {
    let Ok(key) = parse_key(bytes, KeyForm::Either) else { return };
    let escaped = key.as_str().replace('\\', "\\\\").replace('"', "\\\"");
    assert_eq!(parse_key(format!("\"{escaped}\"").as_bytes(), KeyForm::Quoted), Ok(key));
});
