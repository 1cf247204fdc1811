//! Intents: a number and a key that no earlier measurement has used, and where they are put.

use crate::Error;

/// Names of options that hold a quantity. Only these are changed to make another payload: a changed identity could reach
/// somebody whom the user did not name.
const QUANTITIES: [&str; 12] = [
    "amount", "quantity", "qty", "count", "price", "total", "value", "number", "size", "by", "limit", "cents",
];

/// One intent: a number that is not used again, and a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Intent {
    /// Replaces `{n}`.
    pub(crate) n: u64,
    /// Replaces `{key}`, or goes with the key flag.
    pub(crate) key: String,
}

/// Makes intents that no earlier measurement has made.
#[derive(Debug)]
pub(crate) struct Intents {
    next: u64,
    run: [u8; 8],
}

impl Intents {
    pub(crate) fn new() -> Result<Self, Error> {
        let mut run = [0; 8];
        getrandom::fill(&mut run)
            .map_err(|e| Error::measuring(format!("no random numbers are to be had: {e}")))?;
        // Six digits for this measurement and three to count in it: below what a signed 32-bit number holds.
        let start = u64::from(u32::from_be_bytes([run[0], run[1], run[2], run[3]]) % 1_000_000) * 1000;
        Ok(Self { next: start, run })
    }

    /// The next intent. Its key has the shape of a version 4 UUID, which fits what tools publish about their keys.
    pub(crate) fn next(&mut self) -> Intent {
        self.next += 1;
        let [a, b, c, d, e, f, g, h] = self.run;
        let key = format!("{a:02x}{b:02x}{c:02x}{d:02x}-{e:02x}{f:02x}-4{g:03x}-8{h:03x}-{:012x}", self.next);
        Intent { n: self.next, key }
    }
}

/// A text with an intent put in.
pub(crate) fn fill_text(text: &str, intent: &Intent) -> String {
    text.replace("{n}", &intent.n.to_string()).replace("{key}", &intent.key)
}

/// Whether an option or a JSON member holds a quantity, by the last part of its name.
pub(crate) fn is_quantity(name: &str) -> bool {
    let name = name.trim_start_matches('-').to_ascii_lowercase();
    name.rsplit(['-', '_', '.']).next().is_some_and(|last| QUANTITIES.contains(&last))
}

#[cfg(test)]
mod tests {
    use super::Intents;

    #[test]
    fn no_two_intents_share_a_number_or_a_key() {
        let mut intents = Intents::new().unwrap();
        let (a, b) = (intents.next(), intents.next());
        assert!(a.n != b.n && a.key != b.key);
        assert_eq!(a.key.len(), 36);
    }
}
