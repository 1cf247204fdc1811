//! Until when a certificate holds. It is only told of: whoever starts with one that is over should hear it before clients do.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Why no client will take a certificate now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lapse {
    /// Its time is over.
    Expired,
    /// Its time has not come.
    NotYet,
}

impl std::fmt::Display for Lapse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Expired => "has expired",
            Self::NotYet => "does not hold yet",
        })
    }
}

/// Whether a certificate, in DER, holds at this time. What cannot be read is left to those who have to.
pub(super) fn lapse(certificate: &[u8], now: SystemTime) -> Option<Lapse> {
    let now = now.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs();
    let (from, until) = validity(certificate)?;
    match (now < from, now > until) {
        (_, true) => Some(Lapse::Expired),
        (true, _) => Some(Lapse::NotYet),
        _ => None,
    }
}

const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// From when and until when, in seconds of Unix; after RFC 5280.
fn validity(certificate: &[u8]) -> Option<(u64, u64)> {
    let (whole, _) = expect(certificate, SEQUENCE)?;
    let (mut rest, _) = expect(whole, SEQUENCE)?;
    if rest.first() == Some(&VERSION) {
        rest = element(rest)?.2;
    }
    // Serial number, algorithm, issuer.
    for _ in 0..3 {
        rest = element(rest)?.2;
    }
    let (times, _) = expect(rest, SEQUENCE)?;
    let (kind, from, rest) = element(times)?;
    let (until_kind, until, _) = element(rest)?;
    Some((seconds(kind, from)?, seconds(until_kind, until)?))
}

fn expect(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    element(bytes).filter(|(found, ..)| *found == tag).map(|(_, content, rest)| (content, rest))
}

/// One element of DER: its tag, its content, and what follows it.
fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (tag, rest) = bytes.split_first()?;
    let (first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(*first), rest),
        0x81..=0x84 => {
            let (digits, rest) = rest.split_at_checked(usize::from(first - 0x80))?;
            (digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit)), rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((*tag, content, rest))
}

/// `YYMMDDHHMMSSZ` or `YYYYMMDDHHMMSSZ`.
fn seconds(kind: u8, text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?.strip_suffix('Z')?;
    let text = match kind {
        // Two digits of a year stand for 1950 to 2049.
        UTC_TIME if text.get(..2)? < "50" => format!("20{text}"),
        UTC_TIME => format!("19{text}"),
        GENERALIZED_TIME => text.to_owned(),
        _ => return None,
    };
    if text.len() != 14 || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let part = |range: std::ops::Range<usize>| text.get(range)?.parse::<u64>().ok();
    let (year, month, day) = (part(0..4)?, part(4..6)?, part(6..8)?);
    let of_day = part(8..10)? * 3_600 + part(10..12)? * 60 + part(12..14)?;
    // Days of a year that begins in March, so that a leap day is its last.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year.checked_sub(1)?, month + 9) };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day;
    // From 1 March of the year 0 to 1 January 1970.
    const TO_1970: u64 = 719_469;
    Some(days.saturating_sub(TO_1970) * 86_400 + of_day)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::{GENERALIZED_TIME, Lapse, UTC_TIME, lapse, seconds};

    #[test]
    fn times_are_those_of_unix() {
        for (kind, text, expected) in [
            (UTC_TIME, "700101000000Z", 0),
            (UTC_TIME, "000229123456Z", 951_827_696),
            (UTC_TIME, "491231235959Z", 2_524_607_999),
            (GENERALIZED_TIME, "20261116193000Z", 1_794_857_400),
            (GENERALIZED_TIME, "21000301000000Z", 4_107_542_400),
            // Before 1970 is before everything.
            (UTC_TIME, "500101000000Z", 0),
        ] {
            assert_eq!(seconds(kind, text.as_bytes()), Some(expected), "{text}");
        }
        for bad in ["", "Z", "7001010000Z", "70010100000Z", "7001010000aaZ", "700101000000+0100"] {
            assert_eq!(seconds(UTC_TIME, bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn a_certificate_holds_from_its_first_to_its_last_second() {
        let time = |text: &str| [&[UTC_TIME, 13][..], text.as_bytes()].concat();
        let nest = |tag: u8, content: &[u8]| [&[tag, 0x82, 0, content.len() as u8], content].concat();
        let validity = nest(0x30, &[time("200101000000Z"), time("210101000000Z")].concat());
        for version in [&[][..], &[0xa0, 3, 2, 1, 2]] {
            let fields = [version, &[2, 1, 9], &[0x30, 0], &[0x30, 0], &validity].concat();
            let certificate = nest(0x30, &nest(0x30, &fields));
            let at = |seconds: u64| lapse(&certificate, UNIX_EPOCH + Duration::from_secs(seconds));
            let (from, until) = (1_577_836_800, 1_609_459_200);
            assert_eq!(at(from - 1), Some(Lapse::NotYet));
            assert_eq!((at(from), at(until)), (None, None));
            assert_eq!(at(until + 1), Some(Lapse::Expired));
            for end in 0..certificate.len() {
                assert_eq!(lapse(&certificate[..end], UNIX_EPOCH), None, "cut after {end}");
            }
        }
    }
}
