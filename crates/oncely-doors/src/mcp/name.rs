//! What a server is called: part of every intent's name, so it must be the same in every process that guards it, and
//! another for every other server.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use oncely_core::Digest;
use oncely_core::name::hex;

/// Longest readable part of a name, in bytes.
const READABLE_MAX: usize = 48;
/// Programs that start other programs: the name is in what they are given.
const LAUNCHERS: [&str; 14] = [
    "npx", "npm", "pnpm", "yarn", "bunx", "bun", "node", "deno", "uvx", "uv", "pipx", "python", "python3",
    "docker",
];
/// Words after a launcher that name nothing.
const WORDS: [&str; 7] = ["exec", "dlx", "run", "tool", "x", "start", "-m"];

/// The name of a server that is started by a command: its readable part, and a digest of the whole command line and the
/// directory, since the same program with another database is another server. A package's version is no part of it: a
/// server that was upgraded is the same, and a call that is in doubt must still be found. Nor is the environment, most of
/// which differs from start to start: servers that differ only there need names of their own.
pub fn of_command(argv: &[OsString], directory: &Path) -> String {
    let first = argv.first().map(|arg| arg.to_string_lossy().into_owned()).unwrap_or_default();
    let is_launcher = LAUNCHERS.contains(&last_part(&first).as_str());
    let names_something = |arg: &OsString| {
        let word = arg.to_string_lossy();
        !word.starts_with('-') && !WORDS.contains(&word.as_ref())
    };
    let named = argv.iter().skip(1).position(names_something).map(|at| at + 1).filter(|_| is_launcher);
    let mut bytes = Vec::new();
    let mut put = |part: &[u8]| {
        bytes.extend_from_slice(&(part.len() as u64).to_be_bytes());
        bytes.extend_from_slice(part);
    };
    for (at, arg) in argv.iter().enumerate() {
        match arg.to_str().filter(|_| named == Some(at)) {
            Some(package) => put(unversioned(package).as_bytes()),
            None => put(arg.as_bytes()),
        }
    }
    put(directory.as_os_str().as_bytes());
    let readable = match named.and_then(|at| argv.get(at)) {
        Some(named) => package(&named.to_string_lossy()),
        None => last_part(&first),
    };
    with_digest(&readable, &bytes)
}

/// A package without its version: `@stripe/mcp@1.2` as `@stripe/mcp`, `mcp-server-git==1.0` as `mcp-server-git`. A path or
/// an address stays as it is.
fn unversioned(package: &str) -> &str {
    let (scope, name) = match package.strip_prefix('@').and_then(|rest| rest.find('/')) {
        Some(slash) => package.split_at(slash + 2),
        None => ("", package),
    };
    if name.contains(['/', ':', '\\']) {
        return package;
    }
    let end = name.find(['@', '=', '<', '>', '~', '!']).filter(|end| *end > 0).unwrap_or(name.len());
    &package[..scope.len() + end]
}

/// The name of a server at an address: its host, and a digest of the whole address.
pub fn of_url(url: &str, host: &str) -> String {
    with_digest(host, url.as_bytes())
}

/// Checks a name that a person gave.
pub fn check(name: &str) -> Result<(), String> {
    let fits = !name.is_empty()
        && name.len() <= 100
        && name.chars().all(|c| c.is_ascii_graphic() && !"/@*".contains(c));
    if fits {
        return Ok(());
    }
    Err(format!("{name:?} is no name for a server; use 1 to 100 visible ASCII characters other than / @ *"))
}

fn with_digest(readable: &str, bytes: &[u8]) -> String {
    let clean: String = readable
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '-' })
        .take(READABLE_MAX)
        .collect();
    let clean = clean.trim_matches('-');
    let clean = if clean.is_empty() { "server" } else { clean };
    format!("{clean}-{}", &hex(&Digest::of(bytes).0)[..8])
}

/// `@stripe/mcp@1.2` as `stripe-mcp`, `dist/index.js` as `index`.
fn package(text: &str) -> String {
    if let Some(scoped) = text.strip_prefix('@') {
        let name = scoped.split('@').next().unwrap_or(scoped);
        return name.replace('/', "-");
    }
    let plain = last_part(text);
    let version_at = plain.find(['@', '=']).unwrap_or(plain.len());
    let name = plain[..version_at].to_owned();
    [".js", ".mjs", ".cjs", ".ts", ".py"]
        .iter()
        .find_map(|extension| name.strip_suffix(extension).map(str::to_owned))
        .unwrap_or(name)
}

fn last_part(text: &str) -> String {
    Path::new(text).file_name().map_or_else(|| text.to_owned(), |last| last.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::{check, of_command, of_url};
    use std::ffi::OsString;
    use std::path::Path;

    fn name(argv: &[&str], directory: &str) -> String {
        let argv: Vec<OsString> = argv.iter().map(OsString::from).collect();
        of_command(&argv, Path::new(directory))
    }

    #[test]
    fn a_name_can_be_read_and_is_always_the_same() {
        let readable = |argv: &[&str]| name(argv, "/").rsplit_once('-').unwrap().0.to_owned();
        assert_eq!(readable(&["npx", "-y", "@stripe/mcp@1.2", "--tools=all"]), "stripe-mcp");
        assert_eq!(readable(&["uvx", "mcp-server-sqlite==1", "--db-path", "a.db"]), "mcp-server-sqlite");
        assert_eq!(readable(&["python3", "-m", "my_server"]), "my_server");
        assert_eq!(readable(&["/usr/bin/node", "dist/index.js"]), "index");
        assert_eq!(readable(&["./bin/server", "x"]), "server");
        assert_eq!(readable(&["///"]), "server");
        assert_eq!(name(&["a", "b"], "/x"), name(&["a", "b"], "/x"));
    }

    #[test]
    fn another_argument_or_directory_is_another_server() {
        let all = [
            name(&["s", "--db", "a"], "/x"),
            name(&["s", "--db", "b"], "/x"),
            name(&["s", "--db", "a"], "/y"),
            name(&["s", "--dba"], "/x"),
            of_url("https://h/a", "h"),
            of_url("https://h/b", "h"),
        ];
        for (i, a) in all.iter().enumerate() {
            assert!(all[..i].iter().all(|b| a != b));
        }
    }

    #[test]
    fn another_version_is_the_same_server() {
        let same = |a: &[&str], b: &[&str]| name(a, "/x") == name(b, "/x");
        assert!(same(&["npx", "-y", "@stripe/mcp@1.2"], &["npx", "-y", "@stripe/mcp@latest"]));
        assert!(same(&["npx", "-y", "@stripe/mcp@1.2"], &["npx", "-y", "@stripe/mcp"]));
        assert!(same(&["uvx", "mcp-server-git==1.0"], &["uvx", "mcp-server-git>=2"]));
        assert!(!same(&["npx", "-y", "@stripe/mcp"], &["npx", "-y", "@stripe/other"]));
        assert!(!same(&["npx", "a@1", "--db=x@1"], &["npx", "a@1", "--db=x@2"]));
        assert!(!same(&["node", "/a@1/index.js"], &["node", "/a@2/index.js"]));
        assert!(!same(&["./server", "a@1"], &["./server", "a@2"]), "an argument of its own");
    }

    #[test]
    fn a_given_name_must_not_break_a_tools_name() {
        assert!(check("stripe").is_ok() && check("db.prod-1").is_ok());
        for bad in ["", "a/b", "a b", "a@b", "é", &"x".repeat(101), "a*"] {
            assert!(check(bad).is_err(), "{bad}");
        }
    }
}
