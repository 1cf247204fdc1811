//! Where a program runs: its environment, its streams and whether anybody watches. The only place that asks.

use std::ffi::OsString;
use std::io::{self, BufRead, IsTerminal, Write};
use std::path::PathBuf;

/// Where a program runs. [`Process`] is the real thing; a test brings its own.
pub trait Surroundings {
    /// An environment variable that is set and not empty.
    fn variable(&self, name: &str) -> Option<OsString>;
    /// Whether somebody watches standard output.
    fn is_watched(&self) -> bool;
    /// Whether somebody can be asked a question.
    fn can_ask(&self) -> bool;
    /// Asks, and returns the line that was answered.
    fn ask(&self, question: &str) -> Option<String>;
    /// Writes to standard output. A reader that went away is no failure.
    fn print(&self, text: &str) -> io::Result<()>;
    /// Writes a line to standard error.
    fn say(&self, line: &str);
}

/// The process that this is.
#[derive(Debug, Clone, Copy, Default)]
pub struct Process;

impl Surroundings for Process {
    fn variable(&self, name: &str) -> Option<OsString> {
        std::env::var_os(name).filter(|value| !value.is_empty())
    }

    fn is_watched(&self) -> bool {
        io::stdout().is_terminal()
    }

    fn can_ask(&self) -> bool {
        io::stdin().is_terminal() && io::stderr().is_terminal()
    }

    fn ask(&self, question: &str) -> Option<String> {
        let mut error = io::stderr().lock();
        write!(error, "{question} ").and_then(|()| error.flush()).ok()?;
        let mut line = String::new();
        io::stdin().lock().read_line(&mut line).ok()?;
        Some(line.trim().to_owned())
    }

    fn print(&self, text: &str) -> io::Result<()> {
        let mut out = io::stdout().lock();
        match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error),
            _ => Ok(()),
        }
    }

    fn say(&self, line: &str) {
        let _ = writeln!(io::stderr().lock(), "{line}");
    }
}

/// The name of a variable that belongs to a program: `orders` and `SESSION` make `ORDERS_SESSION`.
pub(crate) fn variable_name(app: &str, what: &str) -> String {
    let upper = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
    format!("{}_{what}", app.chars().map(upper).collect::<String>())
}

/// A variable as text. One that is none is an error: to overlook it would be to use another ledger or another session.
pub(crate) fn text(here: &dyn Surroundings, name: &str) -> Result<Option<String>, String> {
    let value = here.variable(name).map(OsString::into_string).transpose();
    value.map_err(|_| format!("{name} is not UTF-8"))
}

/// The ledger's address: the program's variable, the common one, the program's default, or a file of the program's own
/// in the user's state directory.
pub(crate) fn store_address(
    here: &dyn Surroundings,
    app: &str,
    default: Option<String>,
) -> Result<String, String> {
    let own = variable_name(app, "STORE");
    let named = [own.as_str(), "ONCELY_STORE"].into_iter().find_map(|name| text(here, name).transpose());
    if let Some(address) = named.or(default.map(Ok)) {
        return address;
    }
    let state = text(here, "XDG_STATE_HOME")?.map(PathBuf::from).filter(|path| path.is_absolute());
    let state = match state {
        Some(state) => state,
        None => match text(here, "HOME")? {
            Some(home) => PathBuf::from(home).join(".local/state"),
            None => return Err(format!("no place for the ledger: set {own}, XDG_STATE_HOME or HOME")),
        },
    };
    let file: String = app.chars().map(|c| if c == '/' || c.is_control() { '_' } else { c }).collect();
    Ok(format!("sqlite:{}", state.join(format!("oncely/{file}.db")).display()))
}

/// The person or service that asks, for the audit log.
pub(crate) fn actor(here: &dyn Surroundings) -> String {
    let user =
        here.variable("SUDO_USER").or_else(|| here.variable("USER")).or_else(|| here.variable("LOGNAME"));
    let user = user.map(|user| user.to_string_lossy().into_owned());
    let user = user.unwrap_or_else(|| format!("uid {}", rustix::process::getuid().as_raw()));
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    format!("{user}@{host}")
}
