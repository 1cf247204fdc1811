//! Changes the servers in a configuration's text, and nothing else in it.

use std::ops::Range;
use std::path::Path;

use oncely_core::Digest;
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

/// A configuration, and how we are started from it.
#[derive(Debug, Clone, Copy)]
pub struct Place<'a> {
    /// The member that holds the servers.
    pub field: &'a str,
    /// What starts us.
    pub program: &'a str,
    /// Where it is: part of the servers' names.
    pub path: &'a Path,
    /// The project whose own servers the same file may hold, too.
    pub project: Option<&'a str>,
}

impl Place<'_> {
    /// What a server is called from now on: its own name in this configuration, and a digest of where that is. It stays the
    /// same when the server's version, arguments or directory change, and differs for entries that differ only in what is
    /// secret.
    fn name_of(&self, name: &str) -> String {
        let allowed = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '-' };
        let clean: String = name.chars().map(allowed).take(64).collect();
        let project = self.project.map_or_else(String::new, |project| format!("\0{project}"));
        let digest = Digest::of(format!("{}{project}\0{name}", self.path.display()).as_bytes()).to_string();
        format!("{clean}-{}", &digest[..6])
    }
}

/// Servers that stand together in a configuration.
struct Group<'a> {
    place: Place<'a>,
    servers: Members<'a>,
}

/// The servers of everybody, and those of a project.
fn groups<'a>(whole: &Members<'a>, place: Place<'a>) -> Result<Vec<Group<'a>>, String> {
    let Place { field, project, .. } = place;
    let read = |raw: &'a str| Members::parse(raw).map_err(|e| format!("its {field:?} cannot be read: {e}"));
    let mut groups = Vec::new();
    if let Some(raw) = whole.came(field) {
        groups.push(Group { place: Place { project: None, ..place }, servers: read(raw)? });
    }
    let of_project = project.and_then(|project| {
        let projects = Members::parse(whole.came("projects")?).ok()?;
        Members::parse(projects.came(project)?).ok()?.came(field)
    });
    if let Some(raw) = of_project {
        groups.push(Group { place, servers: read(raw)? });
    }
    if groups.is_empty() {
        return Err(format!("there is no {field:?} in it"));
    }
    Ok(groups)
}

/// Changes the servers of a configuration.
pub fn edit(text: &str, place: Place<'_>, only: &[String], direction: Direction) -> Result<Edited, String> {
    let blanked = jsonc::blank(text);
    let whole = Members::parse(&blanked).map_err(|e| format!("it cannot be read as JSON: {e}"))?;
    let groups = groups(&whole, place)?;
    if let Some(unknown) = only.iter().find(|name| groups.iter().all(|group| !group.servers.has(name))) {
        let known: Vec<&str> = groups.iter().flat_map(|group| group.servers.names()).collect();
        return Err(format!("there is no server {unknown:?} in it; there are: {}", known.join(", ")));
    }
    let mut edited = Edited { text: String::new(), changes: Vec::new(), left: Vec::new() };
    let mut splices: Vec<(Range<usize>, String)> = Vec::new();
    let is_meant = |name: &str| only.is_empty() || only.iter().any(|only| only == name);
    let servers = groups.iter().flat_map(|group| group.servers.iter().map(|server| (group.place, server)));
    for (place, (name, raw)) in servers.filter(|(_, (name, _))| is_meant(name)) {
        match change(text, &blanked, (name, raw), direction, place) {
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
    server: (&str, &str),
    direction: Direction,
    place: Place<'_>,
) -> Result<Changed, &'static str> {
    let (name, raw) = server;
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
        Direction::In => before.wrapped(name, place)?,
        Direction::Out => before.unwrapped(name, place)?,
    };
    let mut splices = Vec::new();
    let listed = list(&after.args);
    let quoted = serde_json::Value::from(after.command.as_str()).to_string();
    match args {
        Some(args) => {
            splices.push((span(blanked, command), quoted));
            splices.push((span(blanked, args), listed));
        }
        None => splices.push((span(blanked, command), format!("{quoted}, \"args\": {listed}"))),
    }
    let keeps_comments = splices.iter().all(|(range, _)| text[range.clone()] == blanked[range.clone()]);
    if keeps_comments {
        Ok((splices, before, after))
    } else {
        Err("a comment stands in its command line; change it by hand")
    }
}

/// Where a part of a text stands in it.
fn span(whole: &str, part: &str) -> Range<usize> {
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
        // Options that all commands have may stand before the command's own name.
        let mut ours = self.args.iter().take_while(|arg| *arg != "--");
        program.trim_end_matches(".exe") == "oncely" && ours.any(|arg| arg == "mcp")
    }

    fn wrapped(&self, name: &str, place: Place<'_>) -> Result<Self, &'static str> {
        if self.is_wrapped() {
            return Err("it is behind oncely already");
        }
        let before = ["mcp", "--name", &place.name_of(name), "--", &self.command].map(str::to_owned);
        let args = before.into_iter().chain(self.args.clone()).collect();
        Ok(Self { command: place.program.to_owned(), args })
    }

    /// The same without oncely, if `wrapped` has put it there: what somebody wrote by hand would be lost, a name above all,
    /// under which there may be records.
    fn unwrapped(&self, name: &str, place: Place<'_>) -> Result<Self, &'static str> {
        if !self.is_wrapped() {
            return Err("it is not behind oncely");
        }
        let by_hand =
            "its options are not those that install writes here and would be lost; change it by hand";
        let (command, args) = match self.args.as_slice() {
            [mcp, option, given, end, command, args @ ..]
                if [mcp, option, end] == ["mcp", "--name", "--"] && *given == place.name_of(name) =>
            {
                (command.clone(), args.to_vec())
            }
            _ => return Err(by_hand),
        };
        Ok(Self { command, args })
    }

    fn show(&self) -> String {
        format!("{} {}", self.command, self.args.join(" ")).trim_end().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::{Direction, Place, edit};
    use std::path::Path;

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

    fn place(field: &'static str) -> Place<'static> {
        Place { field, program: "oncely", path: Path::new("/home/me/.mcp.json"), project: None }
    }

    #[test]
    fn only_the_command_lines_change_and_they_change_back() {
        let here = place("mcpServers");
        let wrapped = edit(CONFIG, here, &[], Direction::In).unwrap();
        let (stripe, plain) = (here.name_of("stripe"), here.name_of("plain"));
        assert!(stripe.starts_with("stripe-") && stripe.len() == 13);
        let npx =
            format!(r#""oncely", "args": ["mcp", "--name", "{stripe}", "--", "npx", "-y", "@stripe/mcp"]"#);
        let server = format!(r#""oncely", "args": ["mcp", "--name", "{plain}", "--", "./server"]"#);
        let expected = CONFIG.replace(r#""npx", "args": ["-y", "@stripe/mcp"]"#, &npx);
        assert_eq!(wrapped.text, expected.replace(r#""./server""#, &server));
        let left: Vec<&str> = wrapped.left.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(left, ["remote", "odd"]);
        let again = edit(&wrapped.text, here, &[], Direction::In).unwrap();
        assert!(again.changes.is_empty() && again.text == wrapped.text);
        let back = edit(&wrapped.text, here, &[], Direction::Out).unwrap();
        assert_eq!(back.text, CONFIG.replace(r#""./server""#, r#""./server", "args": []"#));
    }

    #[test]
    fn entries_and_files_of_another_name_are_other_servers() {
        let at = |path: &'static str, project: Option<&'static str>| Place {
            path: Path::new(path),
            project,
            ..place("servers")
        };
        let names = [
            at("/a", None).name_of("live"),
            at("/a", None).name_of("test"),
            at("/b", None).name_of("live"),
            at("/a", Some("/p")).name_of("live"),
            at("/a", None).name_of("a b/c@*"),
        ];
        for (i, a) in names.iter().enumerate() {
            assert!(names[..i].iter().all(|b| a != b));
            assert_eq!(oncely_doors::mcp::name::check(a), Ok(()));
        }
    }

    #[test]
    fn one_server_can_be_chosen_and_must_be_there() {
        let there = Place { program: "/opt/oncely", ..place("mcpServers") };
        let only = |name: &str| edit(CONFIG, there, &[name.to_owned()], Direction::In);
        assert_eq!(only("stripe").unwrap().changes.len(), 1);
        assert!(only("stripe").unwrap().text.contains(r#""command": "/opt/oncely""#));
        assert!(only("nope").unwrap_err().contains("stripe, plain, remote, odd"));
    }

    #[test]
    fn servers_of_the_project_at_hand_are_changed_too_and_those_of_others_are_not() {
        let text = r#"{"projects":{"/p":{"mcpServers":{"a":{"command":"x"}}},"/q":{"mcpServers":{"b":{"command":"y"}}}}}"#;
        let here = Place { project: Some("/p"), ..place("mcpServers") };
        let edited = edit(text, here, &[], Direction::In).unwrap();
        let line = format!(r#""oncely", "args": ["mcp", "--name", "{}", "--", "x"]"#, here.name_of("a"));
        assert_eq!(edited.text, text.replace(r#""x""#, &line));
        let both = text.replacen('{', r#"{"mcpServers":{"a":{"command":"z"}},"#, 1);
        assert_eq!(edit(&both, here, &["a".into()], Direction::In).unwrap().changes.len(), 2);
        assert!(edit(text, place("mcpServers"), &[], Direction::In).is_err());
    }

    #[test]
    fn an_entry_that_was_put_behind_oncely_by_hand_is_neither_put_there_twice_nor_taken_out() {
        let ours = place("servers").name_of("a");
        for args in [
            r#""--store","x.db","mcp","--","y""#.to_owned(),
            r#""--store","x.db","mcp","--name","live","--drain","2m","--","y""#.to_owned(),
            r#""mcp","--name","live","--","y""#.to_owned(),
            format!(r#""mcp","--name","{ours}","--drain","2m","--","y""#),
            format!(r#""mcp","--name","{ours}""#),
            format!(r#""mcp","--name","{ours}","--""#),
            r#""mcp","--url","https://x/mcp""#.to_owned(),
        ] {
            let text = format!(r#"{{"servers":{{"a":{{"command":"/usr/bin/oncely","args":[{args}]}}}}}}"#);
            for direction in [Direction::In, Direction::Out] {
                let edited = edit(&text, place("servers"), &[], direction).unwrap();
                assert!(edited.changes.is_empty() && edited.text == text, "{direction:?} {text}");
                assert_eq!(edited.left.len(), 1);
            }
        }
    }

    #[test]
    fn a_comment_in_a_command_line_is_never_lost() {
        let text = "{\"servers\":{\"a\":{\"command\":\"x\",\"args\":[\"1\" /* why */]}}}";
        let edited = edit(text, place("servers"), &[], Direction::In).unwrap();
        assert!(edited.changes.is_empty() && edited.text == text);
    }

    #[test]
    fn what_cannot_be_read_is_refused() {
        let double = "{\"servers\":{\"a\":{\"command\":\"x\"},\"a\":{\"command\":\"y\"}}}";
        for text in ["{", "{}", "{\"servers\":[]}", double] {
            assert!(edit(text, place("servers"), &[], Direction::In).is_err(), "{text}");
        }
    }
}
