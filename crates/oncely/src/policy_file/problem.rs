//! What is wrong with a policy file: every problem, in file order, each with its place.

use std::fmt;

use oncely_core::limits::clip_to;

/// Most problems listed for one file; the rest are counted.
pub(super) const PROBLEMS_MAX: usize = 1_000;
/// Longest quotation of the file's own text in a message, in bytes.
const QUOTE_BYTES_MAX: usize = 60;
/// Longest word for which the nearest allowed one is looked up, in bytes.
const WORD_BYTES_MAX: usize = 40;

/// One thing that is wrong in a policy file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The line, counted from 1; 0 when the problem is the file as a whole.
    pub line: usize,
    /// The column in characters, counted from 1; 0 when the problem is the file as a whole.
    pub column: usize,
    /// The field with its table, such as `tool."cmd:charge.sh".wait_for`; empty where the text is not TOML.
    pub field: String,
    /// What is wrong and what is allowed.
    pub message: String,
}

/// A policy file that cannot be used, with everything that is wrong in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyFileError {
    /// The file, as the caller named it.
    pub file: String,
    /// The problems in file order; never empty.
    pub problems: Vec<Problem>,
}

impl PolicyFileError {
    /// An error about the file as a whole: it cannot be read, or is too large.
    pub(super) fn whole(file: &str, message: String) -> Self {
        let problem = Problem { line: 0, column: 0, field: String::new(), message };
        Self { file: file.to_owned(), problems: vec![problem] }
    }
}

impl fmt::Display for PolicyFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = match self.problems.len() {
            1 => "a problem".to_owned(),
            n => format!("{n} problems"),
        };
        write!(f, "the policy file {} has {count}; it was not used and nothing ran", self.file)?;
        for problem in &self.problems {
            write!(f, "\n  {}", self.file)?;
            if problem.line > 0 {
                write!(f, ":{}:{}", problem.line, problem.column)?;
            }
            if !problem.field.is_empty() {
                write!(f, ": {}", problem.field)?;
            }
            write!(f, ": {}", problem.message)?;
        }
        Ok(())
    }
}

impl std::error::Error for PolicyFileError {}

/// Problems while they are being collected, placed by byte offset.
#[derive(Debug, Default)]
pub struct Problems {
    found: Vec<(usize, String, String)>,
}

impl Problems {
    /// Notes a problem at a byte offset.
    pub fn add(&mut self, offset: usize, field: impl Into<String>, message: impl Into<String>) {
        self.found.push((offset, field.into(), message.into()));
    }

    /// Nothing wrong, or the error that lists everything in file order.
    pub fn into_result(mut self, file: &str, text: &str) -> Result<(), PolicyFileError> {
        if self.found.is_empty() {
            return Ok(());
        }
        // Stable: two problems at one place stay in the order in which they were found.
        self.found.sort_by_key(|(offset, ..)| *offset);
        self.found.dedup();
        let rest = self.found.len().saturating_sub(PROBLEMS_MAX);
        self.found.truncate(PROBLEMS_MAX);
        let lines = Lines::of(text);
        let mut problems: Vec<Problem> = self.found.into_iter().map(|found| lines.place(found)).collect();
        if rest > 0 {
            let message = format!("{rest} more problems are not listed");
            problems.push(Problem { line: 0, column: 0, field: String::new(), message });
        }
        Err(PolicyFileError { file: file.to_owned(), problems })
    }
}

/// Turns byte offsets into lines and columns.
pub struct Lines<'t> {
    text: &'t str,
    starts: Vec<usize>,
}

impl<'t> Lines<'t> {
    /// Finds where the lines of a text start.
    pub fn of(text: &'t str) -> Self {
        let after_breaks = text.bytes().enumerate().filter(|(_, b)| *b == b'\n').map(|(i, _)| i + 1);
        Self { text, starts: std::iter::once(0).chain(after_breaks).collect() }
    }

    /// Line and column of a byte offset, both counted from 1.
    pub fn position(&self, offset: usize) -> (usize, usize) {
        let line = self.starts.partition_point(|start| *start <= offset).max(1);
        let start = self.starts[line - 1];
        let before = self.text.get(start..offset.min(self.text.len())).unwrap_or_default();
        (line, before.chars().count() + 1)
    }

    fn place(&self, (offset, field, message): (usize, String, String)) -> Problem {
        let (line, column) = self.position(offset);
        Problem { line, column, field, message }
    }
}

/// The file's own text in a message: quoted, on one line, and short.
pub fn quote(text: &str) -> String {
    format!("{:?}", clip_to(text.to_owned(), QUOTE_BYTES_MAX))
}

/// "allowed: a, b, c", with a suggestion in front if one is close to what was written.
pub fn allowed(word: &str, words: &[&str]) -> String {
    let list = words.join(", ");
    match nearest(word, words) {
        Some(near) => format!("did you mean {near}? allowed: {list}"),
        None => format!("allowed: {list}"),
    }
}

/// The closest allowed word, if it looks like a slip of the pen: at most one edit in three characters.
pub fn nearest<'w>(word: &str, words: &[&'w str]) -> Option<&'w str> {
    if word.len() > WORD_BYTES_MAX {
        return None;
    }
    let distance = |candidate: &&'w str| edits(word, candidate);
    let near = words.iter().copied().min_by_key(distance)?;
    let close = edits(word, near) <= word.chars().count().div_ceil(3);
    close.then_some(near)
}

/// How many characters have to be put in, taken out or exchanged to turn one word into the other.
fn edits(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let exchanged = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = exchanged.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}
