//! Reads help texts: which flags they name, which commands they list. Only to find out how to call a tool; nothing that a
//! help text says is believed.

/// Flags that mean "the name of the intent", the surest first.
const KEY_FLAGS: [&str; 13] = [
    "--idempotency-key",
    "--idempotency-token",
    "--idempotent-key",
    "--idempotency",
    "--client-request-token",
    "--client-request-id",
    "--client-token",
    "--request-token",
    "--dedupe-key",
    "--dedup-key",
    "--deduplication-id",
    "--message-deduplication-id",
    "--request-id",
];

/// Flags that mean "say what would happen", the surest first.
const DRY_RUN_FLAGS: [&str; 14] = [
    "--dry-run",
    "--dryrun",
    "--dry_run",
    "--dryRun",
    "--dry",
    "--what-if",
    "--whatif",
    "--simulate",
    "--no-act",
    "--noop",
    "--no-op",
    "--just-print",
    "--preview",
    "--plan",
];

/// First or last words of the names of commands that read.
const READING: [&str; 33] = [
    "list",
    "ls",
    "get",
    "show",
    "status",
    "describe",
    "help",
    "version",
    "completion",
    "completions",
    "search",
    "find",
    "info",
    "log",
    "logs",
    "diff",
    "cat",
    "view",
    "manifest",
    "man",
    "docs",
    "doctor",
    "check",
    "query",
    "explain",
    "whoami",
    "history",
    "stats",
    "count",
    "print",
    "schema",
    "inspect",
    "read",
];

/// First or last words of the names of commands that write.
const WRITING: [&str; 44] = [
    "create",
    "add",
    "new",
    "set",
    "update",
    "delete",
    "remove",
    "rm",
    "send",
    "post",
    "put",
    "apply",
    "deploy",
    "install",
    "uninstall",
    "push",
    "publish",
    "increment",
    "decrement",
    "move",
    "mv",
    "rename",
    "init",
    "import",
    "write",
    "edit",
    "start",
    "stop",
    "restart",
    "run",
    "insert",
    "upsert",
    "commit",
    "merge",
    "tag",
    "cancel",
    "charge",
    "pay",
    "refund",
    "transfer",
    "drop",
    "purge",
    "clear",
    "reset",
];

/// A command as a help text lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Listed {
    /// Its name.
    pub(super) name: String,
    /// What is said about it.
    pub(super) about: String,
}

/// What the name of a command suggests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Suggests {
    /// That it reads.
    Reading,
    /// That it writes.
    Writing,
    /// Nothing.
    Nothing,
}

/// What the name of a command suggests: its first word, else its last.
pub(super) fn suggests(name: &str) -> Suggests {
    let mut spaced = String::with_capacity(name.len());
    for letter in name.chars() {
        // `deleteOrder` is two words.
        if letter.is_ascii_uppercase() {
            spaced.push(' ');
        }
        spaced.push(letter.to_ascii_lowercase());
    }
    let parts: Vec<&str> = spaced.split(['-', '_', ':', '.', ' ']).filter(|part| !part.is_empty()).collect();
    for part in [parts.first(), parts.last()].into_iter().flatten() {
        if WRITING.contains(part) {
            return Suggests::Writing;
        }
        if READING.contains(part) {
            return Suggests::Reading;
        }
    }
    Suggests::Nothing
}

/// The text without colours, overstrikes and boxes.
pub(super) fn plain(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    let raw = String::from_utf8_lossy(bytes);
    let mut letters = raw.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\x1b' => while letters.next().is_some_and(|c| !c.is_ascii_alphabetic()) {},
            '\x08' => drop(text.pop()),
            '│' | '┃' => text.push(' '),
            letter => text.push(letter),
        }
    }
    text
}

/// All long flags that a text names.
pub(super) fn flags(text: &str) -> Vec<&str> {
    let within = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let tokens = text.split(|c| !within(c)).map(|token| token.trim_end_matches('-'));
    tokens.filter(|token| token.starts_with("--") && token.len() > 3).collect()
}

/// The flag for a key, if the text names one.
pub(super) fn key_flag(text: &str) -> Option<String> {
    let named = flags(text);
    let known = KEY_FLAGS.into_iter().find(|flag| named.contains(flag));
    known.or_else(|| named.into_iter().find(|flag| flag.contains("idempot"))).map(str::to_owned)
}

/// The flag for a dry run, if the text names one.
pub(super) fn dry_run_flag(text: &str) -> Option<String> {
    let named = flags(text);
    DRY_RUN_FLAGS.into_iter().find(|flag| named.contains(flag)).map(str::to_owned)
}

/// Whether a text says that `--help` is understood.
pub(super) fn offers_help(text: &str) -> bool {
    flags(text).contains(&"--help")
}

/// What a part of a help text lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Section {
    /// Commands, by its heading.
    Commands,
    /// Something else, by its heading.
    Else,
    /// Its heading does not say.
    Open,
}

/// The commands that a help text lists.
pub(super) fn commands(text: &str) -> Vec<Listed> {
    let mut found: Vec<Listed> = Vec::new();
    let mut section = Section::Open;
    for line in text.lines() {
        if let Some(heading) = heading(line) {
            section = section_of(&heading);
            continue;
        }
        let entries = match section {
            Section::Else => braced(line),
            Section::Commands | Section::Open => {
                let mut entries = entry(line, section).into_iter().collect::<Vec<_>>();
                entries.extend(braced(line));
                entries.extend(listed_by_comma(line, section));
                entries
            }
        };
        for listed in entries {
            if !found.iter().any(|known| known.name == listed.name) {
                found.push(listed);
            }
        }
    }
    found
}

/// `Commands:`, `COMMANDS` or a box with a title.
fn heading(line: &str) -> Option<String> {
    let boxed = line.trim_start().starts_with(['╭', '┌', '┏']);
    let text = line.trim_matches(|c: char| c.is_whitespace() || "╭╮┌┐┏┓─━".contains(c)).to_ascii_lowercase();
    let shouted = !text.is_empty() && line.trim().chars().all(|c| c.is_ascii_uppercase() || c == ' ');
    let titled = line.trim_end().ends_with(':') && !line.starts_with("   ");
    // git groups its commands under sentences that start at the margin.
    let at_margin = line.starts_with(|c: char| c.is_ascii_lowercase()) && line.contains(" (see also");
    (boxed || shouted || titled || at_margin).then_some(text)
}

fn section_of(heading: &str) -> Section {
    let named = |part: &str| heading.contains(part);
    if named("command") || named("action") {
        Section::Commands
    } else if ["option", "flag", "argument", "example", "environment", "usage", "exit"].into_iter().any(named)
    {
        Section::Else
    } else {
        Section::Open
    }
}

/// `  create   Creates an order`
fn entry(line: &str, section: Section) -> Option<Listed> {
    let body = line.trim_start();
    if body.len() == line.len() {
        return None;
    }
    let end = body.find([' ', '\t', ',']).unwrap_or(body.len());
    let (name, rest) = body.split_at(end);
    let name = name.trim_end_matches('*');
    let described = rest.starts_with("  ") || rest.starts_with('\t') || rest.starts_with(", ");
    let bare = section == Section::Commands && (rest.trim().is_empty() || rest.starts_with([' ', '\t']));
    let about = rest.trim_start_matches(|c: char| c.is_whitespace() || c == ',').trim_end();
    (is_name(name) && (bare || described && !about.is_empty() && section_allows(section, rest)))
        .then(|| Listed { name: name.to_owned(), about: about.to_owned() })
}

/// Outside of a section of commands, only two columns look like a list of commands.
fn section_allows(section: Section, rest: &str) -> bool {
    section == Section::Commands || rest.starts_with("  ")
}

/// `  {create,list}`, as Python's argparse lists them.
fn braced(line: &str) -> Vec<Listed> {
    let Some(inside) = line.trim().strip_prefix('{').and_then(|rest| rest.split('}').next()) else {
        return Vec::new();
    };
    names(inside)
}

/// `    access, adduser, audit,`, as npm lists them.
fn listed_by_comma(line: &str, section: Section) -> Vec<Listed> {
    let several = line.matches(", ").count() >= 2;
    if section != Section::Commands || !several || !line.starts_with(' ') || line.trim().contains("  ") {
        return Vec::new();
    }
    names(line)
}

fn names(list: &str) -> Vec<Listed> {
    let names = list.split(',').map(str::trim).filter(|name| is_name(name));
    names.map(|name| Listed { name: name.to_owned(), about: String::new() }).collect()
}

fn is_name(word: &str) -> bool {
    let within = |c: char| c.is_ascii_alphanumeric() || "-_:".contains(c);
    word.len() > 1 && word.starts_with(|c: char| c.is_ascii_lowercase()) && word.chars().all(within)
}

#[cfg(test)]
mod tests {
    use super::{Suggests, commands, dry_run_flag, flags, key_flag, plain, suggests};

    fn names(text: &str) -> Vec<String> {
        commands(text).into_iter().map(|listed| listed.name).collect()
    }

    #[test]
    fn commands_are_found_in_the_help_of_common_frameworks() {
        let clap = "Usage: t [OPTIONS] <COMMAND>\n\nCommands:\n  create-order  Create an order\n  help          Print \
                    this message\n\nOptions:\n  -h, --help  Print help\n";
        assert_eq!(names(clap), ["create-order", "help"]);
        let click = "Usage: t COMMAND [ARGS]...\n\nOptions:\n  --version   Show\n\nCommands:\n  query*     Execute\n  add\n";
        assert_eq!(names(click), ["query", "add"]);
        let argparse = "usage: t [-h] {create,list} ...\n\npositional arguments:\n  {create,list}\n    create     Create\n\
                        \noptions:\n  -h, --help  show\n";
        assert_eq!(names(argparse), ["create", "list"]);
        let git = "usage: git [-h | --help] <command>\n\nstart a working area (see also: git help tutorial)\n   clone     \
                   Clone a repository\n   init      Create\n";
        assert_eq!(names(git), ["clone", "init"]);
        let rich = plain(
            "╭─ Options ───╮\n│ --help -h  Show │\n╰──╯\n╭─ Commands ──╮\n│ bump    Change. │\n".as_bytes(),
        );
        assert_eq!(names(&rich), ["bump"]);
        let npm = "Usage:\n\nnpm install        install all\n\nAll commands:\n\n    access, adduser, audit,\n    bugs, cache, ci\n";
        assert_eq!(names(npm), ["access", "adduser", "audit", "bugs", "cache", "ci"]);
    }

    #[test]
    fn flags_are_found_whatever_surrounds_them() {
        let text =
            "-n, --dry-run[=VALUE]  no\n --dry-run/--no-dry-run\n --client-token <T>  --x=1 see --what-if.";
        assert_eq!(flags(text), ["--dry-run", "--dry-run", "--no-dry-run", "--client-token", "--what-if"]);
        assert_eq!(dry_run_flag(text).as_deref(), Some("--dry-run"));
        assert_eq!(key_flag(text).as_deref(), Some("--client-token"));
        assert_eq!(key_flag("--my-idempotency-id X").as_deref(), Some("--my-idempotency-id"));
        assert_eq!((key_flag("--key K"), dry_run_flag("--no-dry-run")), (None, None));
    }

    #[test]
    fn a_manual_page_with_overstrikes_and_colours_reads_as_plain_text() {
        assert_eq!(plain(b"-\x08--\x08-d\x08dr\x08ry\x08y \x1b[1mbold\x1b[0m"), "--dry bold");
    }

    #[test]
    fn names_suggest_what_a_command_does_and_writing_is_believed_first() {
        assert_eq!(suggests("list-orders"), Suggests::Reading);
        assert_eq!(suggests("orders-list"), Suggests::Reading);
        assert_eq!(suggests("create-order"), Suggests::Writing);
        assert_eq!(suggests("deleteOrder"), Suggests::Writing);
        assert_eq!(suggests("frobnicate"), Suggests::Nothing);
    }
}
