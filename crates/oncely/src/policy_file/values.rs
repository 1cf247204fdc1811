//! Readers of single values: a TOML value in, a typed one out, or what is wrong and what is allowed.

use std::ops::RangeInclusive;

use oncely_core::Cost;
use oncely_core::limits::RETRIES_MAX;
use oncely_core::select::Selector;
use toml::Spanned;
use toml::de::{DeInteger, DeValue};

use super::CheckCommand;
use super::problem::{allowed, quote};
use super::units::{exit_range, no_unit, parse_duration, parse_exit_range};

/// A TOML value with its place.
pub type Value<'i> = Spanned<DeValue<'i>>;

/// Longest unit of a cost, in bytes.
const UNIT_BYTES_MAX: usize = 32;
/// What a string that a shell runs must not hold: a key is the caller's text, and would be read as shell code.
const PLACEHOLDERS: [&str; 2] = ["{key}", "{downstream_key}"];

/// What is wrong with a value, and where.
#[derive(Debug)]
pub struct Fault {
    /// Byte offset in the file.
    pub offset: usize,
    /// What is wrong and what is allowed.
    pub message: String,
}

/// A read value, or everything that is wrong with it.
pub type Read<T> = Result<T, Vec<Fault>>;

/// Something is wrong with this value.
pub fn fault<T>(at: &Value<'_>, message: impl Into<String>) -> Read<T> {
    Err(vec![Fault { offset: at.span().start, message: message.into() }])
}

/// "must be ..., not a string".
pub fn wrong_type<T>(at: &Value<'_>, expected: &str) -> Read<T> {
    fault(at, format!("must be {expected}, not {}", describe(at.get_ref())))
}

fn describe(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "an integer",
        DeValue::Float(_) => "a float",
        DeValue::Boolean(_) => "a boolean",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

/// One of a few words.
pub fn one_of<T: Copy>(value: &Value<'_>, choices: &[(&str, T)]) -> Read<T> {
    let words: Vec<String> = choices.iter().map(|(word, _)| format!("\"{word}\"")).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let Some(text) = value.get_ref().as_str() else {
        return wrong_type(value, &format!("one of {}", words.join(", ")));
    };
    match choices.iter().find(|(word, _)| *word == text) {
        Some((_, choice)) => Ok(*choice),
        None => fault(
            value,
            format!("{} is not allowed; {}", quote(text), allowed(&format!("\"{text}\""), &words)),
        ),
    }
}

/// `true` or `false`.
pub fn boolean(value: &Value<'_>) -> Read<bool> {
    match value.get_ref().as_bool() {
        Some(flag) => Ok(flag),
        None => wrong_type(value, "true or false"),
    }
}

/// A text that is not empty.
pub fn text(value: &Value<'_>) -> Read<String> {
    match value.get_ref().as_str() {
        Some("") => fault(value, "must not be empty"),
        Some(text) if text.contains('\0') => fault(value, "must not hold a NUL character"),
        Some(text) => Ok(text.to_owned()),
        None => wrong_type(value, "a string"),
    }
}

/// A duration with its unit, in milliseconds.
pub fn duration(value: &Value<'_>) -> Read<u64> {
    match value.get_ref() {
        DeValue::String(text) => parse_duration(text).or_else(|message| fault(value, message)),
        DeValue::Integer(number) => fault(value, no_unit(&number.to_string(), number.as_str())),
        _ => wrong_type(value, "a duration such as \"30s\" or \"1h30m\""),
    }
}

/// A number of retries.
pub(super) fn retries(value: &Value<'_>) -> Read<u32> {
    let count = value.get_ref().as_integer().and_then(integer).and_then(|n| u32::try_from(n).ok());
    match (count.filter(|n| *n <= RETRIES_MAX), value.get_ref()) {
        (Some(count), _) => Ok(count),
        (None, DeValue::Integer(number)) => fault(
            value,
            format!("{} is not allowed; allowed: 0 to {RETRIES_MAX}", quote(&number.to_string())),
        ),
        (None, _) => wrong_type(value, &format!("a whole number from 0 to {RETRIES_MAX}")),
    }
}

/// A whole number.
pub fn integer(number: &DeInteger<'_>) -> Option<i64> {
    i64::from_str_radix(number.as_str(), number.radix()).ok()
}

/// Reads every item of a list, and reports every bad one.
pub fn list<T>(value: &Value<'_>, expected: &str, read: fn(&Value<'_>) -> Read<T>) -> Read<Vec<T>> {
    let Some(items) = value.get_ref().as_array() else {
        return wrong_type(value, expected);
    };
    let mut good = Vec::with_capacity(items.len());
    let mut bad = Vec::new();
    for item in items.iter() {
        match read(item) {
            Ok(item) => good.push(item),
            Err(faults) => bad.extend(faults),
        }
    }
    if bad.is_empty() { Ok(good) } else { Err(bad) }
}

/// A list of fields of the payload.
pub(super) fn selectors(value: &Value<'_>) -> Read<Vec<Selector>> {
    list(value, "a list of fields such as [\"customer_id\", \"/items/0/sku\"]", |item| {
        match item.get_ref().as_str() {
            Some(text) => Selector::parse(text).or_else(|message| fault(item, message)),
            None => wrong_type(item, "a field of the payload such as \"customer_id\" or \"/items/0/sku\""),
        }
    })
}

/// A list of texts, none of them empty.
pub(super) fn texts(value: &Value<'_>, expected: &str) -> Read<Vec<String>> {
    list(value, expected, text)
}

/// A list of exit codes and ranges.
pub(super) fn exit_codes(value: &Value<'_>) -> Read<Vec<RangeInclusive<u8>>> {
    list(value, "a list of exit codes such as [3, 4, \"65-69\"]", |item| match item.get_ref() {
        DeValue::String(text) => parse_exit_range(text).or_else(|message| fault(item, message)),
        DeValue::Integer(number) => match integer(number).and_then(|n| u8::try_from(n).ok()) {
            Some(code) => exit_range(code, code).or_else(|message| fault(item, message)),
            None => parse_exit_range(&number.to_string()).or_else(|message| fault(item, message)),
        },
        _ => wrong_type(item, "an exit code from 1 to 255, or a range such as \"65-69\""),
    })
}

/// A probe: a program with its arguments, or a line for the shell.
pub(super) fn check(value: &Value<'_>) -> Read<CheckCommand> {
    match value.get_ref() {
        DeValue::String(line) if PLACEHOLDERS.iter().any(|p| line.contains(p)) => fault(
            value,
            "a key is not put into a line for the shell, which would run it as code; \
             use \"$ONCELY_KEY\" there, or a list such as [\"./probe\", \"{key}\"]",
        ),
        DeValue::String(line) if line.trim().is_empty() => fault(value, "must not be empty"),
        DeValue::String(_) => text(value).map(CheckCommand::Shell),
        DeValue::Array(items) => match items.iter().next() {
            None => fault(value, "must not be empty; name a program, such as [\"./probe\", \"{key}\"]"),
            Some(program) => {
                text(program)?;
                list(value, "", argument).map(CheckCommand::Argv)
            }
        },
        _ => wrong_type(
            value,
            "a program with its arguments such as [\"./probe\", \"{key}\"], or a line for sh -c",
        ),
    }
}

/// An argument of a program: it may be empty.
fn argument(value: &Value<'_>) -> Read<String> {
    if value.get_ref().as_str() == Some("") { Ok(String::new()) } else { text(value) }
}

/// What one execution costs.
pub(super) fn cost(value: &Value<'_>) -> Read<Cost> {
    const EXPECTED: &str = "a table such as { amount = 0.30, unit = \"USD\" }";
    let Some(table) = value.get_ref().as_table() else {
        return wrong_type(value, EXPECTED);
    };
    let (mut found_amount, mut found_unit, mut faults) = (None, None, Vec::new());
    for (name, item) in table {
        let read = match name.get_ref().as_ref() {
            "amount" => amount(item).map(|n| found_amount = Some(n)),
            "unit" => unit(item).map(|u| found_unit = Some(u)),
            other => {
                let message =
                    format!("unknown field {}; {}", quote(other), allowed(other, &["amount", "unit"]));
                Err(vec![Fault { offset: name.span().start, message }])
            }
        };
        faults.extend(read.err().into_iter().flatten());
    }
    match (found_amount, found_unit) {
        (Some(amount), Some(unit)) if faults.is_empty() => Ok(Cost { amount, unit }),
        _ if faults.is_empty() => fault(value, format!("needs both amount and unit: {EXPECTED}")),
        _ => Err(faults),
    }
}

fn amount(value: &Value<'_>) -> Read<f64> {
    let number = match value.get_ref() {
        DeValue::Integer(number) => number.as_str().parse().ok().filter(|_| number.radix() == 10),
        DeValue::Float(number) => number.as_str().parse::<f64>().ok(),
        _ => return wrong_type(value, "an amount of 0 or more"),
    };
    match number.filter(|n| n.is_finite() && *n >= 0.0) {
        Some(number) => Ok(number),
        None => fault(value, "the amount must be a decimal number of 0 or more"),
    }
}

fn unit(value: &Value<'_>) -> Read<String> {
    let unit = text(value)?;
    if unit.len() > UNIT_BYTES_MAX || unit.chars().any(char::is_control) {
        return fault(value, format!("a unit has at most {UNIT_BYTES_MAX} bytes and no control characters"));
    }
    Ok(unit)
}
