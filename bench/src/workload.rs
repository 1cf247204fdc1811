//! The work that every subject does: keys, payloads and results, all made from a number and a seed-free mixer, so that
//! subjects and processes agree on them without talking.

use std::fmt::Write as _;
use std::sync::LazyLock;

/// The tool that the benchmark calls.
pub(crate) const TOOL: &str = "bench.charge";
/// Bytes of a result.
pub(crate) const RESULT_BYTES: usize = 1024;
/// Different results; each is different text, so that a store which compresses gains what it would in life at most.
const RESULTS: usize = 256;

static POOL: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| (0..RESULTS as u64).map(make_result).collect());

/// Spreads a number over 64 bits (splitmix64).
pub(crate) fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The n-th key: scattered, as the keys of real callers are, so that no index is filled in order.
pub(crate) fn key(number: u64) -> String {
    format!("order-{:016x}{:016x}", mix(number), mix(!number))
}

/// The result of the n-th call.
pub(crate) fn result(number: u64) -> &'static [u8] {
    let pool: &'static Vec<Vec<u8>> = &POOL;
    &pool[(number % RESULTS as u64) as usize]
}

/// A payload of about 100 bytes.
pub(crate) fn small_payload(number: u64) -> String {
    let id = mix(number);
    format!(
        r#"{{"customer":"cust_{id:016x}","amount":99.99,"currency":"EUR","order":{number},"capture":true}}"#
    )
}

/// A payload of about 1 KiB.
pub(crate) fn large_payload(number: u64) -> String {
    let id = mix(number);
    let mut text = format!(
        r#"{{"customer":"cust_{id:016x}","amount":99.99,"currency":"EUR","order":{number},"lines":["#
    );
    for line in 0..LINES {
        let comma = if line == 0 { "" } else { "," };
        let sku = mix(id ^ line) >> 32;
        let _ = write!(
            text,
            r#"{comma}{{"sku":"sku-{sku:08x}","quantity":{line},"price":12.5,"note":"größer"}}"#
        );
    }
    text.push_str(r#"],"capture":true}"#);
    text
}

/// The same payload as [`large_payload`], spelled differently: order of fields, spaces, numbers and escapes.
pub(crate) fn large_payload_respelled(number: u64) -> String {
    let id = mix(number);
    let mut text = String::from(r#"{ "capture": true, "lines": ["#);
    for line in 0..LINES {
        let comma = if line == 0 { "" } else { ", " };
        let sku = mix(id ^ line) >> 32;
        let _ = write!(
            text,
            r#"{comma}{{"note": "gr\u00f6\u00dfer", "price": 1.25e1, "quantity": {line}.0, "sku": "sku-{sku:08x}"}}"#
        );
    }
    let _ = write!(
        text,
        r#"], "order": {number}, "currency": "EUR", "amount": 99.990, "customer": "cust_{id:016x}"}}"#
    );
    text
}

/// Lines of an order that make it about 1 KiB.
const LINES: u64 = 14;

fn make_result(number: u64) -> Vec<u8> {
    let mut text = format!(r#"{{"charge":"ch_{number:04}","status":"succeeded","receipt":""#);
    let mut seed = mix(number ^ 0xabcd);
    while text.len() < RESULT_BYTES - 2 {
        let _ = write!(text, "{seed:016x}");
        seed = mix(seed);
    }
    text.truncate(RESULT_BYTES - 2);
    text.push_str("\"}");
    text.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::{RESULT_BYTES, large_payload, large_payload_respelled, result, small_payload};

    #[test]
    fn sizes_are_as_the_benchmark_says() {
        assert_eq!(result(7).len(), RESULT_BYTES);
        assert!((90..130).contains(&small_payload(7).len()), "{}", small_payload(7).len());
        assert!((950..1100).contains(&large_payload(7).len()), "{}", large_payload(7).len());
        assert_ne!(large_payload(7), large_payload_respelled(7));
    }
}
