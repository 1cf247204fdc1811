//! From the text of a policy file to its tables: the header, the defaults and the tools.

use oncely_core::limits::clip_to;
use oncely_core::{Namespace, ToolName};
use toml::de::DeTable;

use super::layer::Layer;
use super::pattern::Pattern;
use super::problem::{Lines, PROBLEMS_MAX, PolicyFileError, Problems, allowed, quote};
use super::values::{self, Fault, Read, Value};
use super::{Header, PolicyFile, TOOLS_MAX};

/// The fields and tables at the top of the file.
const TOP_FIELDS: [&str; 12] = [
    "store",
    "namespace",
    "strict",
    "defaults",
    "tool",
    "server",
    "route",
    "provider",
    "admin",
    "encryption",
    "redact",
    "otlp",
];
/// Those of them that `oncely serve` reads for itself.
const OF_SERVE: [&str; 7] = ["server", "route", "provider", "admin", "encryption", "redact", "otlp"];
/// Longest tool name in the place of a problem, in bytes.
const PLACE_BYTES_MAX: usize = 80;

/// A tool's table, read but not yet checked against the defaults and the other tools.
struct Tool {
    pattern: Pattern,
    place: String,
    offset: usize,
    layer: Layer,
}

/// Reads and checks a whole file.
pub(super) fn document(text: &str, file_name: &str) -> Result<PolicyFile, PolicyFileError> {
    let (root, syntax_errors) = DeTable::parse_recoverable(text);
    note_syntax(&syntax_errors, text).into_result(file_name, text)?;
    let mut problems = Problems::default();
    let (header, defaults, mut tools) = top(root.get_ref(), &mut problems);
    tools.sort_by_key(|tool| tool.offset);
    defaults.note_contradictions(&Layer::default(), "defaults", &mut problems);
    for tool in &tools {
        tool.layer.note_contradictions(&defaults, &tool.place, &mut problems);
    }
    note_ambiguous_globs(&tools, text, &mut problems);
    problems.into_result(file_name, text)?;

    let lines = Lines::of(text);
    let resolve = |tool: Tool| {
        let (line, _) = lines.position(tool.offset);
        let declared = Some(tool.pattern.as_str().to_owned());
        (tool.pattern, tool.layer.over(&defaults).tool_policy(declared, line))
    };
    Ok(PolicyFile::assemble(header, &defaults, tools.into_iter().map(resolve).collect()))
}

/// Notes where the text is not TOML. Past so many places it is something else altogether, so the rest are left out.
fn note_syntax(errors: &[toml::de::Error], text: &str) -> Problems {
    let mut problems = Problems::default();
    for error in errors.iter().take(PROBLEMS_MAX) {
        let offset = error.span().map_or(text.len(), |span| span.start);
        problems.add(offset, "", format!("not TOML: {}{}", error.message(), quoting_hint(text, offset)));
    }
    problems
}

fn top(root: &DeTable<'_>, problems: &mut Problems) -> (Header, Layer, Vec<Tool>) {
    let mut header = Header::default();
    let mut defaults = Layer::default();
    let mut tools = Vec::new();
    for (name, value) in root {
        let offset = name.span().start;
        let field = name.get_ref().as_ref();
        let read = match (field, value.get_ref().as_table()) {
            ("store", _) => values::text(value).map(|text| header.store = Some(text)),
            ("namespace", _) => namespace(value).map(|text| header.namespace = Some(text)),
            ("strict", _) => values::boolean(value).map(|flag| header.strict = flag),
            ("defaults", Some(table)) => {
                defaults = Layer::read(table, "defaults", problems);
                Ok(())
            }
            ("tool", Some(table)) => {
                tools = read_tools(offset, table, problems);
                Ok(())
            }
            (name, _) if OF_SERVE.contains(&name) => Ok(()),
            ("defaults", None) => {
                Err(vec![Fault { offset, message: "must be a table: [defaults]".to_owned() }])
            }
            ("tool", None) => {
                let message = "must be one table for each tool: [tool.\"name\"]".to_owned();
                Err(vec![Fault { offset, message }])
            }
            _ => {
                problems.add(
                    offset,
                    "",
                    format!("unknown field {}; {}", quote(field), allowed(field, &TOP_FIELDS)),
                );
                Ok(())
            }
        };
        for fault in read.err().into_iter().flatten() {
            problems.add(fault.offset, field, fault.message);
        }
    }
    (header, defaults, tools)
}

fn namespace(value: &Value<'_>) -> Read<String> {
    let text = values::text(value)?;
    match Namespace::parse(&text) {
        Ok(_) => Ok(text),
        Err(error) => Err(vec![Fault { offset: value.span().start, message: error.to_string() }]),
    }
}

fn read_tools(offset: usize, table: &DeTable<'_>, problems: &mut Problems) -> Vec<Tool> {
    if table.len() > TOOLS_MAX {
        problems.add(
            offset,
            "tool",
            format!("{} tools are declared; at most {TOOLS_MAX} may be", table.len()),
        );
        return Vec::new();
    }
    let mut tools = Vec::with_capacity(table.len());
    for (name, value) in table {
        let offset = name.span().start;
        let place = format!("tool.{}", toml_key(name.get_ref()));
        if let Err(error) = ToolName::parse(name.get_ref()) {
            problems.add(offset, place.as_str(), error.to_string());
        }
        match value.get_ref().as_table() {
            Some(fields) => {
                let layer = Layer::read(fields, &place, problems);
                tools.push(Tool { pattern: Pattern::new(name.get_ref()), place, offset, layer });
            }
            None => {
                let message = format!("must be a table, with a tool's name after the dot: [{place}]");
                problems.add(offset, place, message);
            }
        }
    }
    tools
}

/// Two globs that are equally close and can match one tool: which of them applies would be a matter of luck.
fn note_ambiguous_globs(tools: &[Tool], text: &str, problems: &mut Problems) {
    let lines = Lines::of(text);
    let mut globs: Vec<(usize, &Tool)> = Vec::new();
    for tool in tools.iter().filter(|tool| !tool.pattern.is_exact()) {
        let literal_chars = tool.pattern.literal_chars();
        let rival = globs
            .iter()
            .find(|(chars, other)| *chars == literal_chars && other.pattern.overlaps(&tool.pattern));
        if let Some((_, other)) = rival {
            let message = format!(
                "can match the same tool as {} in line {}, and both have {literal_chars} characters besides *; \
                 make one of them longer",
                quote(other.pattern.as_str()),
                lines.position(other.offset).0
            );
            problems.add(tool.offset, tool.place.as_str(), message);
        }
        globs.push((literal_chars, tool));
    }
}

/// A tool's name as it stands in a table's header.
fn toml_key(name: &str) -> String {
    let name = clip_to(name.to_owned(), PLACE_BYTES_MAX);
    if !name.is_empty() && name.chars().all(bare_key) { name } else { format!("{name:?}") }
}

/// Whether a character may stand in a key without quotes.
fn bare_key(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '-'
}

/// What to do about the usual slip: a tool's name with a colon, a slash or a star in it, without quotes.
fn quoting_hint(text: &str, offset: usize) -> &'static str {
    let before = text.get(..offset).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |at| at + 1);
    let line = text[line_start..].lines().next().unwrap_or_default();
    let name = line.trim_start().strip_prefix("[tool.").and_then(|rest| rest.split(']').next());
    match name {
        Some(name) if !name.starts_with(['"', '\'']) && !name.chars().all(bare_key) => {
            "; a tool's name with other characters than letters, digits, _ and - needs quotes: [tool.\"cmd:mail.sh\"]"
        }
        _ => "",
    }
}
