//! Durations and exit codes as people write them, in the policy file and in flags.

use std::ops::RangeInclusive;

use oncely_core::limits::DURATION_MS_MAX;

use super::problem::quote;

/// Units from long to short, in milliseconds.
const UNITS: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// Reads a duration such as `10ms`, `30s`, `24h` or `1h30m` as milliseconds.
///
/// Units are `d`, `h`, `m`, `s` and `ms`, from long to short, each at most once. A number without a unit is refused:
/// nobody should have to guess whether `30` means seconds.
///
/// ```
/// assert_eq!(oncely::policy_file::parse_duration("1h30m"), Ok(5_400_000));
/// assert!(oncely::policy_file::parse_duration("30").unwrap_err().contains("unit"));
/// ```
pub fn parse_duration(text: &str) -> Result<u64, String> {
    if text.is_empty() {
        return Err("a duration is empty; write a number and a unit, such as \"30s\"".to_owned());
    }
    let mut rest = text;
    let mut total: u64 = 0;
    let mut units_left = &UNITS[..];
    while !rest.is_empty() {
        let (number, unit, after) = split_part(rest);
        if number.is_empty() {
            return Err(not_a_duration(text));
        }
        if unit.is_empty() && after.is_empty() {
            return Err(no_unit(text, number));
        }
        let Some(at) = units_left.iter().position(|(name, _)| *name == unit) else {
            return Err(not_a_duration(text));
        };
        let part = number.parse::<u64>().ok().and_then(|n| n.checked_mul(units_left[at].1));
        total = part.and_then(|part| total.checked_add(part)).unwrap_or(u64::MAX);
        if total > DURATION_MS_MAX {
            return Err(format!("{} is longer than ten years", quote(text)));
        }
        units_left = &units_left[at + 1..];
        rest = after;
    }
    Ok(total)
}

/// Splits `30s15ms` into `30`, `s` and `15ms`.
fn split_part(text: &str) -> (&str, &str, &str) {
    let number_end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, tail) = text.split_at(number_end);
    let unit_end = tail.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(tail.len());
    let (unit, after) = tail.split_at(unit_end);
    (number, unit, after)
}

/// The message for a number without a unit.
pub(super) fn no_unit(text: &str, number: &str) -> String {
    let hint = if number.len() > 12 { "30" } else { number };
    format!(
        "{} has no unit; add one: \"{hint}ms\", \"{hint}s\", \"{hint}m\", \"{hint}h\" or \"{hint}d\"",
        quote(text)
    )
}

fn not_a_duration(text: &str) -> String {
    format!(
        "{} is not a duration; write whole numbers with units, the longest first: d, h, m, s, ms, as in \"30s\" or \"1h30m\"",
        quote(text)
    )
}

/// Writes milliseconds the way [`parse_duration`] reads them, in as few parts as possible.
///
/// ```
/// assert_eq!(oncely::policy_file::format_duration(5_400_000), "1h30m");
/// assert_eq!(oncely::policy_file::format_duration(0), "0s");
/// ```
pub fn format_duration(ms: u64) -> String {
    if ms == 0 {
        return "0s".to_owned();
    }
    let mut rest = ms;
    let mut text = String::new();
    for (name, size) in UNITS {
        if rest >= size {
            text.push_str(&format!("{}{name}", rest / size));
            rest %= size;
        }
    }
    text
}

/// Reads a list of exit codes and ranges of them, such as `3,4,65-69`.
///
/// ```
/// assert_eq!(oncely::policy_file::parse_exit_codes("3,65-69"), Ok(vec![3..=3, 65..=69]));
/// ```
pub fn parse_exit_codes(text: &str) -> Result<Vec<RangeInclusive<u8>>, String> {
    text.split(',').map(|part| parse_exit_range(part.trim())).collect()
}

/// Reads one exit code (`3`) or one range (`65-69`).
pub(super) fn parse_exit_range(text: &str) -> Result<RangeInclusive<u8>, String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let code = |part: &str| {
        let digits = !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        part.parse::<u8>().ok().filter(|_| digits).ok_or_else(|| {
            format!("{} is not an exit code; allowed: 1 to 255, or a range such as \"65-69\"", quote(text))
        })
    };
    exit_range(code(first)?, code(last)?)
}

/// Checks one range of exit codes.
pub(super) fn exit_range(first: u8, last: u8) -> Result<RangeInclusive<u8>, String> {
    if first > last {
        return Err(format!(
            "the range {first}-{last} is empty; write the smaller code first: \"{last}-{first}\""
        ));
    }
    if first == 0 {
        // To take a success for "nothing happened" is to run it again: the double effect that all this prevents.
        return Err("exit code 0 means succeeded and cannot prove that nothing happened; allowed: 1 to 255"
            .to_owned());
    }
    Ok(first..=last)
}
