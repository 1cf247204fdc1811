//! Asks a tool for its help and its manifest, and finds the flags and commands in them.

use std::time::Duration;

use serde_json::Value;

use super::help::{self, Listed, Suggests};
use super::{Help, Plan, line};
use crate::Error;
use crate::exec::{self, Task};
use crate::limits::{HELP_SECONDS, HELPS_MAX};

/// Programs that only run another one: the second word names the tool.
const CARRIERS: [&str; 10] =
    ["sh", "bash", "dash", "python", "python3", "node", "ruby", "perl", "npx", "uvx"];
/// How deep commands within commands are looked for.
const DEPTH_MAX: usize = 3;
/// After so many commands without a flag the answer is clear, and asking on costs time.
const LACKING_ENOUGH: usize = 3;

/// What could be learnt without running the command.
#[derive(Debug, Clone, Default)]
pub(super) struct Known {
    /// The flag that takes a key, or the word with its place.
    pub(super) key_flag: Option<String>,
    /// Whether the command has a place `{key}` for the key.
    pub(super) key_in_place: bool,
    /// The flag for a dry run.
    pub(super) dry_run_flag: Option<String>,
    /// How often the tool was asked for help.
    pub(super) helps: usize,
    /// The words that name the command within the tool.
    pub(super) path: Vec<String>,
    /// Commands that are not known to be read-only, and have both flags by their help.
    pub(super) equipped: Vec<String>,
    /// The same, and lack a flag.
    pub(super) lacking: Vec<String>,
    /// Commands that are taken for read-only.
    pub(super) reading: Vec<String>,
    /// Whether more commands were left unasked.
    pub(super) more: bool,
    /// Whether the tool printed a manifest.
    pub(super) manifest: bool,
}

/// Learns what can be learnt without running the command.
pub(super) async fn discover(plan: &Plan) -> Result<Known, Error> {
    let mut asking = Asking::new(plan);
    let mut known = Known { key_in_place: line::has(&plan.command, "{key}"), ..Known::default() };
    let top = asking.help(&[]).await?;
    let mut text = top.clone();
    let mut listed = commands_of(&top, &asking.tool);
    if help::offers_help(&top) {
        let mut after_flag = false;
        for word in &plan.command[asking.tool.len()..] {
            if listed.iter().any(|command| command.name == *word) {
                known.path.push(word.clone());
                let own = asking.help(&known.path).await?;
                listed = commands_of(&own, &asking.tool);
                text.push_str(&own);
            } else if !word.starts_with('-') && !after_flag {
                break;
            }
            // What follows a flag may be its value, as in `git -C folder branch`.
            after_flag = word.starts_with('-') && word != "--";
        }
    }
    let manifest = asking.manifest(&top).await?;
    known.manifest = manifest.is_some();
    let told = manifest.as_ref().and_then(|manifest| entry(manifest, &known.path));
    let in_manifest =
        |group: &str, name: &str| told.and_then(|told| told[group][name].as_str()).map(str::to_owned);
    let key_flag = plan.key_flag.clone().or_else(|| help::key_flag(&text));
    known.key_flag = key_flag.or_else(|| in_manifest("idempotency", "key_flag"));
    let dry_run_flag = plan.dry_run_flag.clone().or_else(|| help::dry_run_flag(&text));
    known.dry_run_flag = dry_run_flag.or_else(|| in_manifest("dry_run", "flag"));
    let has_key = known.key_flag.is_some() || known.key_in_place;
    if has_key && known.dry_run_flag.is_some() {
        survey(&mut asking, &mut known, &top, manifest.as_ref()).await?;
    } else {
        known.lacking.push(name(&known.path));
        known.more = true;
    }
    known.helps = asking.asked;
    Ok(known)
}

/// Looks at the help of every command that is not known to be read-only.
async fn survey(
    asking: &mut Asking<'_>,
    known: &mut Known,
    top: &str,
    manifest: Option<&Value>,
) -> Result<(), Error> {
    let safe = manifest.map(safe_commands).unwrap_or_default();
    let mut waiting: Vec<Vec<String>> =
        commands_of(top, &asking.tool).into_iter().rev().map(|listed| vec![listed.name]).collect();
    if waiting.is_empty() || !help::offers_help(top) {
        known.equipped.push(name(&known.path));
        // Commands that are there and cannot be asked are an open question.
        known.more = !waiting.is_empty() || asking.plan.help == Help::Unasked;
        return Ok(());
    }
    while let Some(path) = waiting.pop() {
        let title = name(&path);
        if title == "help" || asking.plan.read_only.contains(&title) {
            continue;
        }
        if asking.asked >= HELPS_MAX || known.lacking.len() >= LACKING_ENOUGH {
            known.more = true;
            break;
        }
        let text = asking.help(&path).await?;
        let inner = commands_of(&text, &asking.tool);
        // Some tools print one help for everything; that lists no commands within commands.
        let own = inner.iter().all(|listed| !path.contains(&listed.name));
        if own && !inner.is_empty() && path.len() < DEPTH_MAX {
            waiting.extend(inner.into_iter().rev().map(|listed| [&path[..], &[listed.name]].concat()));
            continue;
        }
        if is_read_only(&title, &safe) {
            known.reading.push(title);
            continue;
        }
        let named = |flag: &Option<String>| flag.as_ref().is_some_and(|flag| text.contains(&**flag));
        let has_key = help::key_flag(&text).is_some() || named(&asking.plan.key_flag);
        let has_dry_run = help::dry_run_flag(&text).is_some() || named(&asking.plan.dry_run_flag);
        if has_key && has_dry_run { known.equipped.push(title) } else { known.lacking.push(title) }
    }
    Ok(())
}

/// A name that says that it writes is believed more than a manifest that says otherwise.
fn is_read_only(name: &str, safe: &[String]) -> bool {
    let last = name.rsplit(' ').next().unwrap_or(name);
    match help::suggests(last) {
        Suggests::Writing => false,
        Suggests::Reading => true,
        Suggests::Nothing => safe.iter().any(|known| known == name),
    }
}

/// The commands of a manifest.
fn entries(manifest: &Value) -> Vec<&Value> {
    match &manifest["commands"] {
        Value::Array(commands) => commands.iter().collect(),
        Value::Object(commands) => commands.values().collect(),
        _ => Vec::new(),
    }
}

/// What a manifest says of one command.
fn entry<'a>(manifest: &'a Value, path: &[String]) -> Option<&'a Value> {
    entries(manifest).into_iter().find(|command| title(command).as_deref() == Some(&*path.join(" ")))
}

/// The name of a command in a manifest, with the names of those that it is within.
fn title(command: &Value) -> Option<String> {
    let words =
        command["path"].as_array().map(|path| path.iter().filter_map(Value::as_str).collect::<Vec<_>>());
    let path = words.map(|words| words.join(" ")).filter(|path| !path.is_empty());
    path.or_else(|| command["name"].as_str().map(str::to_owned))
}

/// The commands that a manifest calls safe.
fn safe_commands(manifest: &Value) -> Vec<String> {
    let safe = entries(manifest).into_iter().filter(|command| {
        let danger = command["danger"].as_str().or(command["danger_level"].as_str());
        matches!(danger, Some("safe" | "read" | "read-only" | "read_only"))
    });
    safe.filter_map(title).collect()
}

fn commands_of(text: &str, tool: &[String]) -> Vec<Listed> {
    let program = tool.last().and_then(|word| word.rsplit('/').next()).unwrap_or_default();
    help::commands(text).into_iter().filter(|listed| listed.name != program).collect()
}

fn name(path: &[String]) -> String {
    if path.is_empty() { "the command itself".to_owned() } else { path.join(" ") }
}

/// Asks the tool, and counts how often.
struct Asking<'a> {
    plan: &'a Plan,
    tool: Vec<String>,
    asked: usize,
}

impl<'a> Asking<'a> {
    fn new(plan: &'a Plan) -> Self {
        let program = plan.command[0].rsplit('/').next().unwrap_or_default();
        let carried =
            CARRIERS.contains(&program) && plan.command.get(1).is_some_and(|word| !word.starts_with('-'));
        let words = plan.tool_words.unwrap_or(if carried { 2 } else { 1 }).clamp(1, plan.command.len());
        Self { plan, tool: plan.command[..words].to_vec(), asked: 0 }
    }

    /// `tool path… --help`, both streams: some print their help as an error.
    async fn help(&mut self, path: &[String]) -> Result<String, Error> {
        if self.plan.help == Help::Unasked {
            return Ok(String::new());
        }
        self.asked += 1;
        let words = [&self.tool[..], path, &["--help".to_owned()]].concat();
        let ran = exec::run(&self.task(words)).await?;
        Ok(format!("{}\n{}\n", help::plain(&ran.stdout), help::plain(&ran.stderr)))
    }

    /// `tool manifest`, if the help lists a command of that name whose description begins by saying that it prints.
    async fn manifest(&mut self, top: &str) -> Result<Option<Value>, Error> {
        let prints = |about: &str| {
            let first = about.split(|c: char| !c.is_ascii_alphabetic()).next().unwrap_or_default();
            [
                "print",
                "prints",
                "show",
                "shows",
                "list",
                "lists",
                "describe",
                "describes",
                "display",
                "displays",
            ]
            .contains(&first.to_ascii_lowercase().as_str())
        };
        let listed =
            commands_of(top, &self.tool).into_iter().any(|c| c.name == "manifest" && prints(&c.about));
        if !listed {
            return Ok(None);
        }
        self.asked += 1;
        let words = [&self.tool[..], &["manifest".to_owned()]].concat();
        let ran = exec::run(&self.task(words)).await?;
        let manifest: Option<Value> = serde_json::from_slice(&ran.stdout).ok();
        Ok(manifest.map(|value| if value["commands"].is_null() { value["data"].clone() } else { value }))
    }

    fn task(&self, words: Vec<String>) -> Task {
        let set = |name, value: &str| (name, value.to_owned());
        Task {
            words,
            directory: self.plan.directory.clone(),
            // No pager waits for a key, and no narrow terminal breaks a flag in two.
            env: vec![
                set("PAGER", "cat"),
                set("MANPAGER", "cat"),
                set("GIT_PAGER", "cat"),
                set("COLUMNS", "200"),
                set("MANWIDTH", "200"),
                set("NO_COLOR", "1"),
            ],
            timeout: Duration::from_secs(HELP_SECONDS),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{entry, is_read_only, safe_commands};

    #[test]
    fn a_manifest_is_not_believed_against_the_name() {
        let manifest = json!({ "commands": [
            { "name": "status", "danger": "safe" },
            { "name": "delete-all", "danger": "safe" },
            { "path": ["db", "counters"], "danger": "safe" },
            { "name": "deploy", "danger": "mutating" },
        ]});
        let safe = safe_commands(&manifest);
        assert_eq!(entry(&manifest, &["deploy".to_owned()]).unwrap()["danger"], "mutating");
        assert!(entry(&manifest, &["counters".to_owned()]).is_none());
        assert!(is_read_only("status", &safe));
        assert!(is_read_only("db counters", &safe));
        assert!(!is_read_only("delete-all", &safe));
        assert!(!is_read_only("deploy", &safe));
        assert!(!is_read_only("frobnicate", &safe));
    }
}
