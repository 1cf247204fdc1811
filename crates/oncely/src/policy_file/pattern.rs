//! Names of tools with `*` in them, and which of two patterns is the closer one.

/// The name under which a tool is declared: exact, or a glob in which `*` stands for any characters, also none.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Pattern {
    text: String,
}

impl Pattern {
    /// Takes a pattern as it is written.
    pub(super) fn new(text: &str) -> Self {
        Self { text: text.to_owned() }
    }

    /// As it is written.
    pub(super) fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether it names exactly one tool.
    pub(super) fn is_exact(&self) -> bool {
        !self.text.contains('*')
    }

    /// How many characters are not `*`: the more, the closer it describes a tool.
    pub(super) fn literal_chars(&self) -> usize {
        self.text.chars().filter(|c| *c != '*').count()
    }

    /// Whether a tool's name fits.
    pub(super) fn matches(&self, name: &str) -> bool {
        let Some((prefix, suffix)) = self.ends() else {
            return self.text == name;
        };
        let Some(rest) = name.strip_prefix(prefix).and_then(|rest| rest.strip_suffix(suffix)) else {
            return false;
        };
        // Taking each inner piece at its first place leaves the most room for the pieces after it.
        let inner = self.text[prefix.len()..self.text.len() - suffix.len()].split('*');
        inner
            .filter(|piece| !piece.is_empty())
            .try_fold(rest, |rest, piece| Some(rest.split_once(piece)?.1))
            .is_some()
    }

    /// Whether some name fits both globs. Where the starts and the ends agree, the stars can take in everything that
    /// the other pattern wants in between, so nothing else has to be compared.
    pub(super) fn overlaps(&self, other: &Self) -> bool {
        let (Some((a_start, a_end)), Some((b_start, b_end))) = (self.ends(), other.ends()) else {
            return self.text == other.text;
        };
        (a_start.starts_with(b_start) || b_start.starts_with(a_start))
            && (a_end.ends_with(b_end) || b_end.ends_with(a_end))
    }

    /// What stands before the first `*` and after the last.
    fn ends(&self) -> Option<(&str, &str)> {
        let (start, _) = self.text.split_once('*')?;
        let (_, end) = self.text.rsplit_once('*')?;
        Some((start, end))
    }
}
