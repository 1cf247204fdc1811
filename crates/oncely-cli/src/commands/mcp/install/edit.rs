//! Changes the servers in a configuration's text, and nothing else in it.

use std::ops::Range;

use oncely_doors::mcp::json::Members;

use super::super::jsonc;

/// Which way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// Behind oncely.
    In,
    /// Out again.
    Out,
}

/// A text with its servers changed.
#[derive(Debug)]
pub struct Edited {
    /// The whole text.
    pub text: String,
    /// What was changed.
    pub changes: Vec<Change>,
    /// Servers that were left as they are, and why.
    pub left: Vec<(String, &'static str)>,
}

/// One server's change.
#[derive(Debug, PartialEq, Eq)]
pub struct Change {
    /// The server.
    pub server: String,
    /// Its command line before.
    pub before: String,
    /// And after.
    pub after: String,
}

/// A command line in a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Line {
    command: String,
    args: Vec<String>,
}

/// Changes the servers of a configuration.
pub fn edit(
    text: &str,
    field: &str,
    only: &[String],
    direction: Direction,
    program: &str,
) -> Result<Edited, String> {
    let blanked = jsonc::blank(text);
    let whole = Members::parse(&blanked).map_err(|e| format!("it cannot be read as JSON: {e}"))?;
    let servers = whole.get(field).ok_or_else(|| format!("there is no {field:?} in it"))?;
    let servers = Members::parse(servers).map_err(|e| format!("its {field:?} cannot be read: {e}"))?;
    if let Some(unknown) = only.iter().find(|name| !servers.has(name)) {
        let known: Vec<&str> = servers.names().collect();
        return Err(format!("there is no server {unknown:?} in it; there are: {}", known.join(", ")));
    }
    let mut edited = Edited { text: String::new(), changes: Vec::new(), left: Vec::new() };
    let mut splices: Vec<(Range<usize>, String)> = Vec::new();
    for (name, raw) in servers.iter().filter(|(name, _)| only.is_empty() || only.iter().any(|o| o == name)) {
        match change(text, &blanked, raw, direction, program) {
            Ok((changed, before, after)) => {
                splices.extend(changed);
                edited.changes.push(Change {
                    server: name.to_owned(),
                    before: before.show(),
                    after: after.show(),
                });
            }
            Err(why) => edited.left.push((name.to_owned(), why)),
        }
    }
    edited.text = splice(text, splices);
    Ok(edited)
}

type Changed = (Vec<(Range<usize>, String)>, Line, Line);

fn change(
    text: &str,
    blanked: &str,
    raw: &str,
    direction: Direction,
    program: &str,
) -> Result<Changed, &'static str> {
    let server = Members::parse(raw).map_err(|_| "it is not an object")?;
    let command = server.get("command").ok_or("it is not started by a command")?;
    let args = server.get("args");
    let before = Line {
        command: serde_json::from_str(command).map_err(|_| "its command is not a text")?,
        args: args
            .map_or(Ok(Vec::new()), serde_json::from_str)
            .map_err(|_| "its args are not a list of texts")?,
    };
    let after = match direction {
        Direction::In => before.wrapped(program)?,
        Direction::Out => before.unwrapped()?,
    };
    let mut splices = Vec::new();
    let listed = list(&after.args);
    let quoted = serde_json::Value::from(after.command.as_str()).to_string();
    match args {
        Some(args) => {
            splices.push((place(blanked, command), quoted));
            splices.push((place(blanked, args), listed));
        }
        None => splices.push((place(blanked, command), format!("{quoted}, \"args\": {listed}"))),
    }
    let keeps_comments = splices.iter().all(|(range, _)| text[range.clone()] == blanked[range.clone()]);
    if keeps_comments {
        Ok((splices, before, after))
    } else {
        Err("a comment stands in its command line; change it by hand")
    }
}

/// Where a part of a text stands in it.
fn place(whole: &str, part: &str) -> Range<usize> {
    let start = part.as_ptr() as usize - whole.as_ptr() as usize;
    start..start + part.len()
}

fn list(args: &[String]) -> String {
    let quoted: Vec<String> =
        args.iter().map(|arg| serde_json::Value::from(arg.as_str()).to_string()).collect();
    format!("[{}]", quoted.join(", "))
}

fn splice(text: &str, mut splices: Vec<(Range<usize>, String)>) -> String {
    splices.sort_by_key(|(range, _)| range.start);
    let mut spliced = String::with_capacity(text.len() + 64);
    let mut at = 0;
    for (range, new) in splices {
        spliced.push_str(&text[at..range.start]);
        spliced.push_str(&new);
        at = range.end;
    }
    spliced.push_str(&text[at..]);
    spliced
}

impl Line {
    fn is_wrapped(&self) -> bool {
        let program = self.command.rsplit(['/', '\\']).next().unwrap_or_default();
        program.trim_end_matches(".exe") == "oncely" && self.args.first().is_some_and(|arg| arg == "mcp")
    }

    fn wrapped(&self, program: &str) -> Result<Self, &'static str> {
        if self.is_wrapped() {
            return Err("it is behind oncely already");
        }
        let before = ["mcp".to_owned(), "--".to_owned(), self.command.clone()];
        Ok(Self { command: program.to_owned(), args: before.into_iter().chain(self.args.clone()).collect() })
    }

    fn unwrapped(&self) -> Result<Self, &'static str> {
        if !self.is_wrapped() {
            return Err("it is not behind oncely");
        }
        let mut own = self.args.iter().skip_while(|arg| *arg != "--").skip(1).cloned();
        let command = own.next().ok_or("it is not started by a command")?;
        Ok(Self { command, args: own.collect() })
    }

    fn show(&self) -> String {
        format!("{} {}", self.command, self.args.join(" ")).trim_end().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::{Direction, edit};

    const CONFIG: &str = r#"{
  // my servers
  "theme": 1.50,
  "mcpServers": {
    "stripe": { "command": "npx", "args": ["-y", "@stripe/mcp"], "env": { "KEY": "s" } }, // pays
    "plain": { "type": "stdio", "command": "./server" },
    "remote": { "url": "https://x/mcp" },
    "odd": { "command": 5 },
  },
}
"#;

    #[test]
    fn only_the_command_lines_change_and_they_change_back() {
        let wrapped = edit(CONFIG, "mcpServers", &[], Direction::In, "oncely").unwrap();
        assert_eq!(
            wrapped.text,
            CONFIG
                .replace(
                    r#""npx", "args": ["-y", "@stripe/mcp"]"#,
                    r#""oncely", "args": ["mcp", "--", "npx", "-y", "@stripe/mcp"]"#
                )
                .replace(r#""./server""#, r#""oncely", "args": ["mcp", "--", "./server"]"#)
        );
        let left: Vec<&str> = wrapped.left.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(left, ["remote", "odd"]);
        let again = edit(&wrapped.text, "mcpServers", &[], Direction::In, "oncely").unwrap();
        assert!(again.changes.is_empty() && again.text == wrapped.text);
        let back = edit(&wrapped.text, "mcpServers", &[], Direction::Out, "oncely").unwrap();
        assert_eq!(back.text, CONFIG.replace(r#""./server""#, r#""./server", "args": []"#));
    }

    #[test]
    fn one_server_can_be_chosen_and_must_be_there() {
        let only = |name: &str| edit(CONFIG, "mcpServers", &[name.to_owned()], Direction::In, "/opt/oncely");
        assert_eq!(only("stripe").unwrap().changes.len(), 1);
        assert!(only("stripe").unwrap().text.contains(r#""command": "/opt/oncely""#));
        assert!(only("nope").unwrap_err().contains("stripe, plain, remote, odd"));
    }

    #[test]
    fn a_comment_in_a_command_line_is_never_lost() {
        let text = "{\"servers\":{\"a\":{\"command\":\"x\",\"args\":[\"1\" /* why */]}}}";
        let edited = edit(text, "servers", &[], Direction::In, "oncely").unwrap();
        assert!(edited.changes.is_empty() && edited.text == text);
    }

    #[test]
    fn what_cannot_be_read_is_refused() {
        assert!(edit("{", "servers", &[], Direction::In, "oncely").is_err());
        assert!(edit("{}", "servers", &[], Direction::In, "oncely").is_err());
        assert!(edit("{\"servers\":[]}", "servers", &[], Direction::In, "oncely").is_err());
        let double = "{\"servers\":{\"a\":{\"command\":\"x\"},\"a\":{\"command\":\"y\"}}}";
        assert!(edit(double, "servers", &[], Direction::In, "oncely").is_err());
    }
}
