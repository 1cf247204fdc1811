//! What a server reads from `oncely.toml` besides what tools declare: every table in one go, with every problem at its
//! place. Whoever serves and whoever only checks the file read it with the same code, so that they never disagree.

use std::path::PathBuf;

use oncely::policy_file::reading::{Lines, Problems, Read, Value, allowed, nearest, quote, text};
use oncely::policy_file::{PolicyFile, PolicyFileError, ToolPolicy};
use toml::de::DeTable;

use crate::admin::Settings;
use crate::gateway::config::{GatewayConfig, RouteConfig};
use crate::providers::Providers;
use crate::telemetry::OtlpSettings;

/// Everything that the file says to a server.
#[derive(Clone, Default)]
pub struct ServeSettings {
    /// `[server]` and `[[route]]`, with the file's own `[[provider]]`s.
    pub gateway: GatewayConfig,
    /// `[admin]`, `[redact]` and `[encryption]`.
    pub admin: Settings,
    /// `[otlp]`.
    pub otlp: OtlpSettings,
}

impl ServeSettings {
    /// Reads the text of a policy file; `policy` is the same file, for what tools declare.
    pub fn parse(text: &str, file_name: &str, policy: &PolicyFile) -> Result<Self, PolicyFileError> {
        let builtin = Providers::builtin();
        let providers = builtin.clone().with_config(text, file_name);
        let known = providers.as_ref().unwrap_or(builtin);
        let mut problems = Vec::new();
        let gateway = GatewayConfig::parse(text, file_name, policy, known).map_err(|mut error| {
            // Which providers there are is not known then.
            error.problems.retain(|problem| providers.is_ok() || !problem.field.ends_with(".provider"));
            problems.append(&mut error.problems);
        });
        let admin = Settings::parse(text, file_name).map_err(|error| problems.extend(error.problems));
        let otlp = OtlpSettings::parse(text, file_name).map_err(|error| problems.extend(error.problems));
        problems.extend(providers.err().into_iter().flat_map(|error| error.problems));
        match (gateway, admin, otlp) {
            (Ok(gateway), Ok(admin), Ok(otlp)) if problems.is_empty() => Ok(Self { gateway, admin, otlp }),
            _ => {
                problems.sort_by_key(|problem| (problem.line, problem.column));
                Err(PolicyFileError { file: file_name.to_owned(), problems })
            }
        }
    }
}

/// Where a secret is: named in the file, never written there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Secret {
    /// In a file.
    File(PathBuf),
    /// In the environment, under this name.
    Environment(String),
}

/// A secret that the file names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretSetting {
    /// Where it is.
    pub secret: Secret,
    /// Where the file says so, for messages: `oncely.toml:3:7: otlp.headers_env`.
    pub said_at: String,
}

/// A tool's table that no route uses, where it looks as if one should.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnusedTool {
    /// The name or glob of the table.
    pub name: String,
    /// Its line.
    pub line: usize,
    /// A route's tool without a table of its own that is spelt much like it.
    pub near: Option<String>,
}

/// The tool of the route that `--upstream` stands for, which the file cannot know of.
const OF_UPSTREAM: &str = "http:/**";

/// Tables of tools that were probably meant for a route: `[tool.ordres]` beside `tool = "orders"`.
///
/// One file may serve several doors. So a table that no route uses is only told of if its name is of the form that routes
/// have, is close to that of a route without a table, or if a route names a tool that nobody declares.
pub fn unused_tools(policy: &PolicyFile, routes: &[RouteConfig]) -> Vec<UnusedTool> {
    let tools: Vec<&str> = routes.iter().map(|route| route.tool.as_str()).collect();
    let declared: Vec<Option<String>> = tools.iter().map(|tool| policy.tool(tool).declared).collect();
    let pairs = || tools.iter().copied().zip(&declared);
    let lonely: Vec<&str> =
        pairs().filter(|(tool, by)| by.as_deref() != Some(*tool)).map(|(tool, _)| tool).collect();
    let named_in_vain = pairs().any(|(tool, by)| by.is_none() && !tool.starts_with("http:"));
    let unused = |(name, tool): (&str, &ToolPolicy)| {
        let used = declared.iter().any(|by| by.as_deref() == Some(name));
        let elsewhere = name.starts_with("cmd:") || name.starts_with("mcp:") || name == OF_UPSTREAM;
        if tools.is_empty() || used || elsewhere {
            return None;
        }
        let near = nearest(name, &lonely).map(str::to_owned);
        let suspicious = near.is_some() || name.starts_with("http:/") || named_in_vain;
        suspicious.then(|| UnusedTool { name: name.to_owned(), line: tool.line, near })
    };
    policy.declared().filter_map(unused).collect()
}

/// Reads tables field by field, and notes every problem with its place.
pub(crate) struct Reader<'t> {
    file: &'t str,
    text: &'t str,
    problems: Problems,
}

impl<'t> Reader<'t> {
    /// A reader of this text, and its tables. Where it is not TOML nothing of it is believed: half a table would be a server
    /// without its tokens or its keys.
    pub(crate) fn of(text: &'t str, file: &'t str) -> (Self, DeTable<'t>) {
        let mut reader = Self { file, text, problems: Problems::default() };
        let (root, errors) = DeTable::parse_recoverable(text);
        for error in errors {
            let offset = error.span().map_or(text.len(), |span| span.start);
            reader.note(offset, "", format!("not TOML: {}", error.message()));
        }
        (reader, root.into_inner())
    }

    /// Notes a problem at a byte offset.
    pub(crate) fn note(&mut self, offset: usize, place: impl Into<String>, message: impl Into<String>) {
        self.problems.add(offset, place, message);
    }

    /// Reads the fields of a table; what is not one of them is noted.
    pub(crate) fn fields(
        &mut self,
        value: &Value<'t>,
        place: &str,
        known: &[&str],
        mut read: impl FnMut(&str, &Value<'t>) -> Read<()>,
    ) {
        let Some(table) = value.get_ref().as_table() else {
            self.note(value.span().start, place, format!("must be a table with {}", known.join(", ")));
            return;
        };
        for (name, value) in table {
            let field = name.get_ref().as_ref();
            if !known.contains(&field) {
                let message = format!("unknown field {}; {}", quote(field), allowed(field, known));
                self.note(name.span().start, place, message);
                continue;
            }
            for fault in read(field, value).err().into_iter().flatten() {
                self.note(fault.offset, format!("{place}.{field}"), fault.message);
            }
        }
    }

    /// A secret that is in the file or the variable that these fields of a table name; not in both.
    pub(crate) fn secret(
        &mut self,
        value: &Value<'t>,
        place: &str,
        [in_file, in_env]: [&str; 2],
    ) -> Option<SecretSetting> {
        let table = value.get_ref().as_table()?;
        let (field, named) = match (member(table, in_file), member(table, in_env)) {
            (Some(_), Some(twice)) => {
                let message = format!("say where it is once: with {in_file} or with {in_env}");
                self.note(twice.span().start, format!("{place}.{in_env}"), message);
                return None;
            }
            (Some(named), None) => (in_file, named),
            (None, named) => (in_env, named?),
        };
        // What is wrong with the text itself was noted when the fields were read.
        let name = text(named).ok()?;
        let (line, column) = Lines::of(self.text).position(named.span().start);
        let secret = if field == in_file { Secret::File(name.into()) } else { Secret::Environment(name) };
        Some(SecretSetting { secret, said_at: format!("{}:{line}:{column}: {place}.{field}", self.file) })
    }

    /// What was read, or everything that is wrong with it.
    pub(crate) fn finish<T>(self, read: T) -> Result<T, PolicyFileError> {
        self.problems.into_result(self.file, self.text).map(|()| read)
    }
}

/// The value of a field.
pub(crate) fn member<'a, 't>(table: &'a DeTable<'t>, name: &str) -> Option<&'a Value<'t>> {
    table.iter().find(|(known, _)| known.get_ref() == name).map(|(_, value)| value)
}

#[cfg(test)]
mod tests;
