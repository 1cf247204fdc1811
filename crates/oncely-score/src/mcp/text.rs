//! Finds descriptions that make a model mint a new key for a retry. Pure.

/// The clause that asks for a new key for every request, call or attempt; `None` if there is none, or if the text also says
/// that a retry takes the same key.
pub(super) fn mints_new_keys(text: &str) -> Option<&str> {
    let clauses = || text.split(['.', ';', '!', '?', '\n', ',']).map(str::trim);
    if clauses().any(keeps_the_key) {
        return None;
    }
    clauses().find(|clause| asks_for_new(clause))
}

fn words(clause: &str) -> Vec<String> {
    let letters = |c: char| !c.is_ascii_alphanumeric() && c != '\'';
    clause.split(letters).filter(|word| !word.is_empty()).map(str::to_ascii_lowercase).collect()
}

fn any(words: &[String], of: &[&str]) -> bool {
    words.iter().any(|word| of.contains(&word.as_str()))
}

/// "the same for every retry", "reuse it when retrying"
fn keeps_the_key(clause: &str) -> bool {
    let words = words(clause);
    any(&words, &["same", "reuse", "reused", "identical"])
        && any(
            &words,
            &["retry", "retries", "retried", "retrying", "again", "repeat", "intent", "attempt", "attempts"],
        )
        && !any(&words, &["not", "never", "don't"])
}

/// "unique for every request", "generate a new one for each attempt", "never reuse"
fn asks_for_new(clause: &str) -> bool {
    let words = words(clause);
    let new = any(&words, &["unique", "new", "fresh", "random", "different", "distinct"]);
    let each = any(&words, &["each", "every", "per", "any"]);
    let time = any(
        &words,
        &[
            "request",
            "requests",
            "call",
            "calls",
            "attempt",
            "attempts",
            "invocation",
            "time",
            "try",
            "retry",
            "retries",
        ],
    );
    let never = any(&words, &["not", "never", "don't"]) && any(&words, &["reuse", "reused", "repeat"]);
    let for_another = any(&words, &["another", "different", "other", "else"]);
    new && each && time || never && !for_another
}

#[cfg(test)]
mod tests {
    use super::mints_new_keys;

    #[test]
    fn descriptions_that_make_a_model_mint_a_new_key_are_found() {
        for bad in [
            "Unique for every request",
            "A unique key per call.",
            "Idempotency key. Generate a new UUID for each attempt.",
            "must be different for every invocation",
            "Never reuse a key",
            "a fresh random value each time",
        ] {
            assert!(mints_new_keys(bad).is_some(), "{bad}");
        }
    }

    #[test]
    fn descriptions_that_keep_the_key_for_a_retry_are_not() {
        for good in [
            "The same for every retry of one intent; a new one only for a new intent",
            "Names the intent. Reuse it when you retry.",
            "Unique per request, but use the same key again when retrying",
            "Do not reuse it for another payload",
            "An idempotency key",
            "",
        ] {
            assert_eq!(mints_new_keys(good), None, "{good}");
        }
    }
}
