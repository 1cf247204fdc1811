//! Printing: tables and colour on a terminal, JSON elsewhere or on request.

use std::io::{BufRead, ErrorKind, IsTerminal, Write};
use std::process::ExitCode;

use comfy_table::{Attribute, Cell, Color, ContentArrangement, Table, presets};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use oncely_core::{Millis, StateName};
use serde::Serialize;

use crate::args::Global;
use crate::context::variable;
use crate::exit::Failure;

/// Says why a command failed: JSON on standard output if asked for, else text on standard error.
pub(crate) fn print_failure(failure: &Failure, json: bool) -> ExitCode {
    if json {
        print_json(&failure.envelope);
    } else if let Some(error) = &failure.envelope.error {
        say(&format!("oncely: {}", error.message));
        if let Some(fix) = &error.fix {
            say(&format!("  try: {fix}"));
        }
    }
    ExitCode::from(failure.exit)
}

/// Writes a line to standard error. A reader that went away is no reason to fail.
pub(crate) fn say(line: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}

/// Writes a line to standard output. A reader that went away (`oncely ls | head`) is no reason to fail.
pub(crate) fn print(line: &str) {
    let _ = writeln!(std::io::stdout().lock(), "{line}");
}

/// Writes one line of JSON to standard output.
pub(crate) fn print_json(value: &impl Serialize) {
    match serde_json::to_string(value) {
        Ok(text) => print(&text),
        Err(error) => say(&format!("oncely: the answer has no JSON form: {error}")),
    }
}

/// Whether to print for programs: asked for, or nobody watches.
pub(crate) fn wants_json(asked: bool) -> bool {
    asked || !std::io::stdout().is_terminal()
}

/// Whether somebody still reads standard output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reader {
    /// Go on.
    There,
    /// It went away: stop, quietly.
    Gone,
}

/// Writes one line of many to standard output, and says whether it makes sense to go on.
pub(crate) fn stream(line: &str) -> Result<Reader, Failure> {
    let mut out = std::io::stdout().lock();
    match writeln!(out, "{line}").and_then(|()| out.flush()) {
        Ok(()) => Ok(Reader::There),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(Reader::Gone),
        Err(error) => Err(Failure::internal(format!("standard output cannot be written to: {error}"))),
    }
}

/// The same for one line of JSON.
pub(crate) fn stream_json(value: &impl Serialize) -> Result<Reader, Failure> {
    let text = serde_json::to_string(value)
        .map_err(|error| Failure::internal(format!("the answer has no JSON form: {error}")))?;
    stream(&text)
}

/// What a piece of text means, for its colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tone {
    /// As it is.
    Plain,
    /// All is well.
    Good,
    /// Under way.
    Busy,
    /// Somebody should look.
    Warn,
    /// Somebody has to look now.
    Loud,
    /// Of less weight.
    Dim,
    /// A heading.
    Head,
}

/// How a state is coloured.
pub(crate) fn tone_of(state: StateName) -> Tone {
    match state {
        StateName::Running => Tone::Busy,
        StateName::Succeeded => Tone::Good,
        StateName::Rejected => Tone::Warn,
        StateName::InDoubt => Tone::Loud,
    }
}

/// Colours a text for standard output, where that is wanted.
pub(crate) fn paint(tone: Tone, text: &str) -> String {
    let code = match tone {
        Tone::Plain => return text.to_owned(),
        Tone::Good => "32",
        Tone::Busy => "36",
        Tone::Warn => "33",
        Tone::Loud => "1;31",
        Tone::Dim => "2",
        Tone::Head => "1",
    };
    if wants_colour() { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
}

fn wants_colour() -> bool {
    std::io::stdout().is_terminal()
        && variable("NO_COLOR").is_none()
        && variable("TERM").as_deref() != Some("dumb")
}

/// Narrowest table, in characters.
const TABLE_WIDTH_MIN: u16 = 110;

/// A table without lines, as wide as the terminal.
pub(crate) fn table(columns: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
    // Narrower than this, or of unknown width, a terminal breaks lines better than a table breaks words.
    if table.width().is_none_or(|width| width < TABLE_WIDTH_MIN) {
        table.set_width(TABLE_WIDTH_MIN);
    }
    table.set_header(columns.iter().map(|name| cell(Tone::Head, name)));
    table
}

/// One field of a table, safe to print.
pub(crate) fn cell(tone: Tone, text: &str) -> Cell {
    let cell = Cell::new(clean(text));
    if !wants_colour() {
        return cell;
    }
    match tone {
        Tone::Plain => cell,
        Tone::Good => cell.fg(Color::Green),
        Tone::Busy => cell.fg(Color::Cyan),
        Tone::Warn => cell.fg(Color::Yellow),
        Tone::Loud => cell.fg(Color::Red).add_attribute(Attribute::Bold),
        Tone::Dim => cell.add_attribute(Attribute::Dim),
        Tone::Head => cell.add_attribute(Attribute::Bold),
    }
}

/// Prints a table to standard output.
pub(crate) fn print_table(table: &Table) {
    for line in table.lines() {
        print(line.trim_end());
    }
}

/// A text on one line in which nothing can move the cursor or change the terminal.
pub(crate) fn clean(text: &str) -> String {
    escape(text, |_| false)
}

/// The same for a text of several lines.
pub(crate) fn clean_block(text: &str) -> String {
    escape(text, |c| c == '\n' || c == '\t')
}

fn escape(text: &str, keep: impl Fn(char) -> bool) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() && !keep(c) { out.extend(c.escape_default()) } else { out.push(c) }
    }
    out
}

/// The ledger's clock beside the wall clock. Only ages are taken from the ledger: its clock does not follow the wall's
/// jumps, so the moment for people is the present less the age.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    ledger: Millis,
    wall: Timestamp,
}

impl Clock {
    /// Both clocks, the ledger's as it was just read.
    pub(crate) fn reading(ledger: Millis) -> Self {
        Self { ledger, wall: Timestamp::now() }
    }

    /// How long ago a moment of the ledger was.
    pub(crate) fn age_ms(&self, at: Millis) -> u64 {
        self.ledger.since(at)
    }

    /// How long ago, for people.
    pub(crate) fn ago(&self, at: Millis) -> String {
        age(self.age_ms(at))
    }

    /// The moment, for programs: RFC 3339.
    pub(crate) fn rfc3339(&self, at: Millis) -> String {
        format!("{:.3}", self.moment(at))
    }

    /// The moment, for people: local time.
    pub(crate) fn local(&self, at: Millis) -> String {
        self.moment(at).to_zoned(TimeZone::system()).strftime("%Y-%m-%d %H:%M:%S").to_string()
    }

    /// How far the ledger's clock is ahead of the wall clock, in milliseconds.
    pub(crate) fn ahead_ms(&self) -> i64 {
        i64::try_from(self.ledger.0).unwrap_or(i64::MAX).saturating_sub(self.wall.as_millisecond())
    }

    fn moment(&self, at: Millis) -> Timestamp {
        let age = i64::try_from(self.age_ms(at)).unwrap_or(i64::MAX);
        self.wall.checked_sub(SignedDuration::from_millis(age)).unwrap_or(Timestamp::UNIX_EPOCH)
    }
}

/// A span of time for people, in at most two units.
pub(crate) fn age(ms: u64) -> String {
    let seconds = ms / 1000;
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match (days, hours, minutes, seconds) {
        (0, 0, 0, 0) => format!("{ms}ms"),
        (0, 0, 0, s) => format!("{s}s"),
        (0, 0, m, s) => format!("{m}m{}s", s % 60),
        (0, h, m, _) => format!("{h}h{}m", m % 60),
        (d, h, ..) => format!("{d}d{}h", h % 24),
    }
}

/// A count of bytes for people.
pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [(&str, u64); 3] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    match UNITS.into_iter().find(|(_, unit)| bytes >= *unit) {
        Some((name, unit)) => format!("{:.1} {name}", bytes as f64 / unit as f64),
        None => format!("{bytes} bytes"),
    }
}

/// The exact command that a person can run next, with what this one was told about the ledger.
pub(crate) fn command_line(global: &Global, words: &[&str]) -> String {
    let mut line = String::from("oncely");
    let mut add = |word: &str| {
        line.push(' ');
        line.push_str(&quote(word));
    };
    words.iter().for_each(|word| add(word));
    // What the environment says, it still says then; and an address may hold what should not be printed.
    if let Some(store) =
        global.store.as_ref().filter(|store| variable("ONCELY_STORE").as_ref() != Some(*store))
    {
        add("--store");
        add(store);
    }
    if let Some(config) = &global.config {
        let config = config.to_string_lossy();
        if variable("ONCELY_CONFIG").as_deref() != Some(&*config) {
            add("--config");
            add(&config);
        }
    }
    line
}

/// Quotes a word for a shell, where it needs that.
fn quote(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@%+,".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Whether there is a person to ask.
pub(crate) fn can_ask() -> bool {
    std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}

/// Asks a person a question; anything but yes is no.
pub(crate) fn ask(question: &str) -> bool {
    let mut err = std::io::stderr().lock();
    let _ = write!(err, "{question} [y/N] ").and_then(|()| err.flush());
    let mut answer = String::new();
    // What cannot be read is not a yes.
    let read = std::io::stdin().lock().read_line(&mut answer);
    read.is_ok() && matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes")
}

/// Says on a terminal what is being waited for; silent elsewhere. Gone when dropped.
pub(crate) struct Spinner(Option<indicatif::ProgressBar>);

impl Spinner {
    /// Starts to turn.
    pub(crate) fn start(message: &str) -> Self {
        if !std::io::stderr().is_terminal() {
            return Self(None);
        }
        let bar = indicatif::ProgressBar::new_spinner().with_message(message.to_owned());
        bar.enable_steady_tick(std::time::Duration::from_millis(100));
        Self(Some(bar))
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{age, clean, clean_block, quote, size};

    #[test]
    fn spans_are_said_in_at_most_two_units() {
        for (ms, expected) in [
            (0, "0ms"),
            (999, "999ms"),
            (1_000, "1s"),
            (61_500, "1m1s"),
            (3_600_000, "1h0m"),
            (90_000_000, "1d1h"),
        ] {
            assert_eq!(age(ms), expected);
        }
        assert_eq!(size(1023), "1023 bytes");
        assert_eq!(size(3 << 20), "3.0 MiB");
    }

    #[test]
    fn nothing_that_is_stored_can_command_the_terminal() {
        assert_eq!(clean("a\x1b[2Jb\nc"), "a\\u{1b}[2Jb\\nc");
        assert_eq!(clean_block("a\tb\n\r"), "a\tb\n\\r");
        assert_eq!(clean("schön ✓"), "schön ✓");
    }

    #[test]
    fn a_word_is_quoted_so_that_a_shell_reads_it_back() {
        assert_eq!(quote("abc-1.db"), "abc-1.db");
        assert_eq!(quote("it's"), r"'it'\''s'");
        assert_eq!(quote(""), "''");
    }
}
