//! What makes two command lines the same call: arguments, chosen environment variables, and standard input if asked.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use oncely_core::name::hex;
use oncely_core::{Digest, NameError, ToolName};
use serde_json::{Map, Value, json};

/// A command line to guard.
#[derive(Debug, Clone)]
pub struct CommandLine {
    /// The program and its arguments, as given.
    pub argv: Vec<OsString>,
    /// Environment variables that are part of what the call means; `None` for one that is not set.
    pub env: Vec<(String, Option<OsString>)>,
    /// The digest of standard input, if it is part of what the call means.
    pub stdin: Option<Digest>,
    /// The working directory, if it is part of what the call means (it is where no key is given).
    pub directory: Option<PathBuf>,
}

impl CommandLine {
    /// The payload as JSON: `argv`, and where they count `env`, `stdin_sha256` and `directory`.
    pub fn payload(&self) -> Vec<u8> {
        let mut payload = Map::new();
        payload.insert("argv".into(), self.argv.iter().map(|arg| text(arg)).collect());
        if !self.env.is_empty() {
            let env: Map<String, Value> = self
                .env
                .iter()
                .map(|(name, value)| (name.clone(), value.as_deref().map_or(Value::Null, text)))
                .collect();
            payload.insert("env".into(), env.into());
        }
        if let Some(stdin) = &self.stdin {
            payload.insert("stdin_sha256".into(), stdin.to_string().into());
        }
        if let Some(directory) = &self.directory {
            payload.insert("directory".into(), text(directory.as_os_str()));
        }
        Value::Object(payload).to_string().into_bytes()
    }
}

/// Text as text; what is not UTF-8 under a name of its own, so that it equals no text.
fn text(value: &OsStr) -> Value {
    match value.to_str() {
        Some(text) => text.into(),
        None => json!({ "bytes": hex(value.as_bytes()) }),
    }
}

/// The tool that a program is: `cmd:` and the last part of its path.
pub fn tool_name(program: &OsStr) -> Result<ToolName, NameError> {
    let last = Path::new(program).file_name().unwrap_or(program);
    ToolName::parse(&format!("cmd:{}", last.to_string_lossy()))
}

#[cfg(test)]
mod tests {
    use std::ffi::{OsStr, OsString};
    use std::os::unix::ffi::OsStringExt;

    use super::{CommandLine, tool_name};

    fn line(argv: &[&str]) -> CommandLine {
        let argv = argv.iter().map(OsString::from).collect();
        CommandLine { argv, env: Vec::new(), stdin: None, directory: None }
    }

    #[test]
    fn arguments_do_not_run_into_each_other() {
        assert_ne!(line(&["a", "b c"]).payload(), line(&["a", "b", "c"]).payload());
        assert_ne!(line(&["a", ""]).payload(), line(&["a"]).payload());
    }

    #[test]
    fn an_unset_variable_differs_from_an_empty_one() {
        let with = |value: Option<&str>| {
            let mut line = line(&["a"]);
            line.env.push(("REGION".into(), value.map(OsString::from)));
            line.payload()
        };
        assert_ne!(with(None), with(Some("")));
    }

    #[test]
    fn bytes_that_are_no_text_are_kept_apart_from_text() {
        let raw = CommandLine { argv: vec![OsString::from_vec(vec![0xff])], ..line(&[]) };
        assert_eq!(raw.payload(), br#"{"argv":[{"bytes":"ff"}]}"#);
    }

    #[test]
    fn a_tool_is_named_by_the_last_part_of_its_path() {
        assert_eq!(tool_name(OsStr::new("./bin/charge.sh")).unwrap().as_str(), "cmd:charge.sh");
        assert_eq!(tool_name(OsStr::new("true")).unwrap().as_str(), "cmd:true");
        assert!(tool_name(OsStr::new(&"x".repeat(300))).is_err());
    }
}
