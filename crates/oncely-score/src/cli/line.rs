//! Puts a command line together: one intent's number and key, extra flags, another payload.

use crate::intent::{Intent, fill_text, is_quantity};

/// Whether the words have a place for something.
pub(super) fn has(words: &[String], place: &str) -> bool {
    words.iter().any(|word| word.contains(place))
}

/// The words with an intent put in.
pub(super) fn fill(words: &[String], intent: &Intent) -> Vec<String> {
    words.iter().map(|word| fill_text(word, intent)).collect()
}

/// The words with flags added: at the end, or before what follows `--`.
pub(super) fn with(mut words: Vec<String>, flags: &[String]) -> Vec<String> {
    let at = words.iter().position(|word| word == "--").unwrap_or(words.len());
    words.splice(at..at, flags.iter().cloned());
    words
}

/// The same words with another quantity; `None` if there is none to change.
pub(super) fn another_quantity(words: &[String]) -> Option<Vec<String>> {
    let mut changed = words.to_vec();
    for at in (1..words.len()).rev() {
        if let Some((flag, value)) = words[at].split_once('=')
            && is_quantity(flag)
            && let Some(next) = plus_one(value)
        {
            changed[at] = format!("{flag}={next}");
            return Some(changed);
        }
        if is_quantity(&words[at - 1])
            && let Some(next) = plus_one(&words[at])
        {
            changed[at] = next;
            return Some(changed);
        }
    }
    None
}

fn plus_one(value: &str) -> Option<String> {
    let number: u32 = value.parse().ok()?;
    Some((u64::from(number) + 1).to_string())
}

#[cfg(test)]
mod tests {
    use super::{another_quantity, fill, with};
    use crate::intent::Intent;
    use crate::words::split;

    fn words(line: &str) -> Vec<String> {
        split(line).unwrap()
    }

    #[test]
    fn an_intent_goes_where_its_places_are() {
        let intent = Intent { n: 7, key: "k".into() };
        assert_eq!(fill(&words("t --name a-{n} --id={key}"), &intent), words("t --name a-7 --id=k"));
        let flags = words("--dry-run");
        assert_eq!(with(words("t run -- x"), &flags), words("t run --dry-run -- x"));
        assert_eq!(with(words("t run"), &flags), words("t run --dry-run"));
    }

    #[test]
    fn another_payload_changes_a_quantity_and_never_an_identity() {
        let other = |line: &str| another_quantity(&words(line));
        assert_eq!(other("t create --amount 100"), Some(words("t create --amount 101")));
        assert_eq!(other("t create --max-count=9 --to bob"), Some(words("t create --max-count=10 --to bob")));
        assert_eq!(other("t create --customer 42"), None);
        assert_eq!(other("t create 42"), None);
        assert_eq!(other("t create --amount lots"), None);
    }
}
