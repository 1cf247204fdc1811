//! Ids of requests: one and the same, however it is written.

use std::borrow::Cow;

use super::json;

/// Up to here every whole number is told from its neighbours, also by those who read all numbers as floating point.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// The one spelling of an id: `1.0` and `1e0` are `1`, and what is escaped in a text without need is not.
pub(super) fn canonical(raw: &str) -> Cow<'_, str> {
    if raw.starts_with('"') {
        if !raw.contains('\\') {
            return Cow::Borrowed(raw);
        }
        let text = serde_json::from_str::<String>(raw);
        return text.map_or(Cow::Borrowed(raw), |text| Cow::Owned(json::quote(&text)));
    }
    if is_integer(raw) && raw != "-0" {
        return Cow::Borrowed(raw);
    }
    match raw.parse::<f64>() {
        Ok(number) if number.fract() == 0.0 && number.abs() < EXACT => {
            // A zero has no sign.
            Cow::Owned(if number == 0.0 { "0".to_owned() } else { number.to_string() })
        }
        _ => Cow::Borrowed(raw),
    }
}

/// Whether two ids are the same.
pub(super) fn same(a: &str, b: &str) -> bool {
    a == b || canonical(a) == canonical(b)
}

/// Whether this is a whole number, written as one.
pub(super) fn is_integer(raw: &str) -> bool {
    let digits = raw.strip_prefix('-').unwrap_or(raw);
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::{canonical, same};

    #[test]
    fn an_id_is_the_same_however_it_is_written() {
        for (a, b) in [("1", "1.0"), ("1", "1e0"), ("-0", "0"), ("100", "1.0E2"), ("-7", "-7.000")] {
            assert!(same(a, b), "{a} {b}");
        }
        assert!(same(r#""1""#, r#""\u0031""#) && same(r#""é""#, r#""\u00e9""#) && same(r#""/""#, r#""\/""#));
    }

    #[test]
    fn another_id_stays_another() {
        for (a, b) in [("1", r#""1""#), ("1", "2"), ("1", "1.5"), ("null", "0"), (r#""a""#, r#""A""#)] {
            assert!(!same(a, b), "{a} {b}");
        }
        // More digits than floating point keeps.
        assert!(!same("9007199254740993", "9007199254740992"));
        assert!(!same("9007199254740993", "9007199254740993.0"));
        assert_eq!(canonical("123456789012345678901234567890"), "123456789012345678901234567890");
        assert_eq!(canonical("null"), "null");
    }
}
