//! Words: splitting a command line, quoting it in a report, and keeping secrets and control characters out of it.

use crate::Error;
use crate::limits::QUOTE_CHARS_MAX;

/// Splits a command line into words as a shell would, without any expansion: blanks separate, quotes and backslashes
/// hold together.
pub fn split(line: &str) -> Result<Vec<String>, Error> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote: Option<char> = None;
    let mut letters = line.chars();
    while let Some(letter) = letters.next() {
        match (quote, letter) {
            (Some(open), letter) if letter == open => quote = None,
            (Some('\''), letter) => word.get_or_insert_default().push(letter),
            (_, '\\') => match letters.next() {
                Some(next) => word.get_or_insert_default().push(next),
                None => return Err(Error::asked(format!("`{line}` ends with a backslash; nothing ran"))),
            },
            (Some(_), letter) => word.get_or_insert_default().push(letter),
            (None, '\'' | '"') => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            (None, letter) if letter.is_whitespace() => words.extend(word.take()),
            (None, letter) => word.get_or_insert_default().push(letter),
        }
    }
    if quote.is_some() {
        return Err(Error::asked(format!("`{line}` has a quote that is not closed; nothing ran")));
    }
    words.extend(word);
    Ok(words)
}

/// Flags whose values are not repeated in a report.
const SECRETIVE: [&str; 7] = ["token", "secret", "password", "passwd", "api-key", "apikey", "credential"];

/// A command line for a report. Values of flags that sound secret are left out.
pub(crate) fn line(words: &[String], key_flag: Option<&str>) -> String {
    let mut shown = Vec::with_capacity(words.len());
    let mut hide_next = false;
    for word in words {
        if std::mem::take(&mut hide_next) && !word.starts_with('-') {
            shown.push("***".to_owned());
            continue;
        }
        let name = word.split('=').next().unwrap_or(word).to_ascii_lowercase();
        let secret = word.starts_with('-')
            && key_flag != Some(&*name)
            && SECRETIVE.iter().any(|part| name.contains(part));
        match word.split_once('=') {
            Some((flag, _)) if secret => shown.push(format!("{flag}=***")),
            _ => shown.push(quote(word)),
        }
        hide_next = secret && !word.contains('=');
    }
    shown.join(" ")
}

/// Quotes a word for a shell, where it needs that.
fn quote(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@%+,{}".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return clean(word);
    }
    clean(&format!("'{}'", word.replace('\'', r"'\''")))
}

/// The first line of a tool's own words: short, and without anything that could move a cursor.
pub(crate) fn excerpt(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let first = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    clip(&clean(first))
}

/// At most so many characters, marked where cut.
pub(crate) fn clip(text: &str) -> String {
    if text.chars().count() <= QUOTE_CHARS_MAX {
        return text.to_owned();
    }
    text.chars().take(QUOTE_CHARS_MAX - 1).chain(['…']).collect()
}

fn clean(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::{excerpt, line, split};

    #[test]
    fn a_line_splits_as_a_shell_splits_it() {
        for (text, words) in [
            ("a  b\tc", vec!["a", "b", "c"]),
            (r#"tool --name 'A B' "x \" y" \ z"#, vec!["tool", "--name", "A B", "x \" y", " z"]),
            ("a '' b", vec!["a", "", "b"]),
            ("", vec![]),
        ] {
            assert_eq!(split(text).unwrap(), words, "{text}");
        }
        assert!(split("a 'b").is_err());
        assert!(split("a \\").is_err());
    }

    #[test]
    fn a_report_repeats_no_secret_and_no_control_character() {
        let words = |text: &str| split(text).unwrap();
        assert_eq!(line(&words("t --api-key abc --n 1"), None), "t --api-key *** --n 1");
        assert_eq!(line(&words("t --auth-token=abc"), None), "t --auth-token=***");
        assert_eq!(line(&words("t --client-token k1"), Some("--client-token")), "t --client-token k1");
        assert_eq!(excerpt(b"\n \x1b[2Jgone\nmore"), "\u{fffd}[2Jgone");
    }
}
