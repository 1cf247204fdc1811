//! Readers of single values that only the gateway has: addresses, counts, sizes, methods, headers, statuses.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

use http::{HeaderName, Method};
use oncely::policy_file::reading::{
    self, Problems, Read, Value, fault, integer, list, quote, text, wrong_type,
};
use oncely_core::limits::PAYLOAD_BYTES_MAX;
use toml::de::DeValue;

use super::THREADS_MAX;

/// Notes what is wrong with a value.
pub(super) fn note(read: Read<()>, place: &str, problems: &mut Problems) {
    for fault in read.err().into_iter().flatten() {
        problems.add(fault.offset, place, fault.message);
    }
}

/// An address to listen on.
pub(super) fn socket(value: &Value<'_>) -> Read<SocketAddr> {
    let text = text(value)?;
    text.parse().or_else(|_| {
        fault(value, format!("{} is no address to listen on, such as \"127.0.0.1:7300\"", quote(&text)))
    })
}

/// An address to listen on, or `off`.
pub(super) fn socket_or_off(value: &Value<'_>) -> Read<String> {
    let text = text(value)?;
    if text == "off" || text.parse::<SocketAddr>().is_ok() {
        return Ok(text);
    }
    fault(
        value,
        format!("{} is no address to listen on, such as \"127.0.0.1:7301\", and not \"off\"", quote(&text)),
    )
}

pub(super) fn duration(value: &Value<'_>) -> Read<Duration> {
    reading::duration(value).map(Duration::from_millis)
}

/// A time that is not nothing.
pub(super) fn positive(value: &Value<'_>) -> Read<Duration> {
    let time = duration(value)?;
    if time.is_zero() { fault(value, "must be longer than nothing") } else { Ok(time) }
}

/// A number of 1 or more.
pub(super) fn count(value: &Value<'_>) -> Read<usize> {
    let DeValue::Integer(number) = value.get_ref() else {
        return wrong_type(value, "a whole number of 1 or more");
    };
    match integer(number).and_then(|n| usize::try_from(n).ok()).filter(|n| (1..=1_000_000).contains(n)) {
        Some(count) => Ok(count),
        None => fault(value, format!("{} is not allowed; allowed: 1 to 1000000", quote(&number.to_string()))),
    }
}

/// A number of threads.
pub(super) fn threads(value: &Value<'_>) -> Read<usize> {
    let refused = || fault(value, format!("is not a number of threads; allowed: 1 to {THREADS_MAX}"));
    match count(value) {
        Ok(threads) if threads <= THREADS_MAX => Ok(threads),
        _ => refused(),
    }
}

/// A number of bytes, plain or with its unit: `"512KiB"`, `"8MiB"`.
pub(super) fn size(value: &Value<'_>) -> Read<usize> {
    let bytes = match value.get_ref() {
        DeValue::Integer(number) => integer(number).and_then(|n| usize::try_from(n).ok()),
        DeValue::String(text) => {
            let (number, unit) = [("KiB", 1024), ("MiB", 1024 * 1024)]
                .into_iter()
                .find_map(|(unit, bytes)| Some((text.strip_suffix(unit)?, bytes)))
                .unwrap_or((text, 1));
            number.trim().parse::<usize>().ok().and_then(|n| n.checked_mul(unit))
        }
        _ => return wrong_type(value, "a size such as \"8MiB\" or a number of bytes"),
    };
    match bytes.filter(|bytes| (1..=PAYLOAD_BYTES_MAX).contains(bytes)) {
        Some(bytes) => Ok(bytes),
        None => fault(value, format!("must be a size from 1 to {PAYLOAD_BYTES_MAX} bytes, such as \"8MiB\"")),
    }
}

/// Methods that can be guarded.
pub(super) fn methods(value: &Value<'_>) -> Read<Vec<Method>> {
    list(value, "a list of methods such as [\"POST\", \"PATCH\"]", |item| match item.get_ref().as_str() {
        Some("POST") => Ok(Method::POST),
        Some("PUT") => Ok(Method::PUT),
        Some("PATCH") => Ok(Method::PATCH),
        Some("DELETE") => Ok(Method::DELETE),
        Some(other) => fault(
            item,
            format!("{} cannot be guarded; allowed: \"POST\", \"PUT\", \"PATCH\", \"DELETE\"", quote(other)),
        ),
        None => wrong_type(item, "a method such as \"POST\""),
    })
}

/// The name of a header.
pub(super) fn header(value: &Value<'_>) -> Read<HeaderName> {
    let text = text(value)?;
    text.parse().or_else(|_| fault(value, format!("{} is no header name", quote(&text))))
}

/// Names of headers.
pub(super) fn headers(value: &Value<'_>) -> Read<Vec<HeaderName>> {
    list(value, "a list of headers such as [\"X-Region\"]", header)
}

/// Statuses and ranges of them.
pub(super) fn statuses(value: &Value<'_>) -> Read<Vec<RangeInclusive<u16>>> {
    const EXPECTED: &str = "a status from 100 to 599, or a range such as \"500-599\"";
    list(value, "a list of statuses such as [429, \"500-599\"]", |item| {
        let status =
            |text: &str| text.trim().parse::<u16>().ok().filter(|status| (100..=599).contains(status));
        let range = match item.get_ref() {
            DeValue::Integer(number) => status(&number.to_string()).map(|one| one..=one),
            DeValue::String(text) => match text.split_once('-') {
                Some((from, to)) => status(from).zip(status(to)).map(|(from, to)| from..=to),
                None => status(text).map(|one| one..=one),
            },
            _ => None,
        };
        match range.filter(|range| !range.is_empty()) {
            Some(range) => Ok(range),
            None => fault(item, format!("must be {EXPECTED}")),
        }
    })
}
