//! `oncely mcp`: any MCP server, safe to retry.

mod explain;
mod install;
mod jsonc;
pub mod launch;
pub mod watch;

use std::ffi::OsString;
use std::io;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, Subcommand};
use oncely::{Oncely, policy_file};
use oncely_core::Scope;
use oncely_doors::command::child::PassedSignals;
use oncely_doors::mcp::guard::{Guard, Settings};
use oncely_doors::mcp::http::front::{Doorkeeper, Listening, Reach};
use oncely_doors::mcp::http::target::Target;
use oncely_doors::mcp::http::tenant::Tenant;
use oncely_doors::mcp::probe::Place;
use oncely_doors::mcp::serve::{Plan, Server};
use oncely_doors::mcp::{name, serve, standard};

use crate::args::Global;
use crate::context::{Context, variable};
use crate::exit::Failure;
use crate::output::say;

/// How long the counters may take to be written.
const FLUSH: Duration = Duration::from_secs(5);
/// What a shell answers for a command that is not there.
const NOT_FOUND: u8 = 127;
/// What a shell answers for a command that cannot be executed.
const NOT_EXECUTABLE: u8 = 126;

/// Make any MCP server safe to retry, as a proxy in front of it.
///
/// Messages pass unchanged. Tools that write are guarded: a repeated call gets the first result, and one whose outcome
/// is unknown never runs again by itself. The exit code is the server's.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct McpArgs {
    /// What else there is to do
    #[command(subcommand)]
    also: Option<Also>,
    /// Start the server, list which of its tools read and which write, and why; then exit
    #[arg(long, conflicts_with = "listen")]
    explain: bool,
    /// What the server is called, as part of every intent's name [default: from its command line and directory]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// What keys are unique within: a session, task or run
    #[arg(long, value_name = "NAME", env = "ONCELY_SCOPE")]
    scope: Option<String>,
    /// How long to wait for running writes at the end, and then for the server to exit
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration)]
    drain: Duration,
    /// Longest message, in MiB
    #[arg(long, value_name = "MIB", default_value = "64", value_parser = clap::value_parser!(u16).range(1..=1024))]
    max_message: u16,
    /// The address of a server that speaks streamable HTTP, in place of a command
    #[arg(long, value_name = "URL", conflicts_with = "command")]
    url: Option<String>,
    /// A header to send with every request to that address, such as "Authorization: Bearer ${TOKEN}"; ${NAME} is replaced
    /// by that environment variable; may be repeated
    #[arg(long, value_name = "HEADER", requires = "url")]
    header: Vec<String>,
    /// Serve clients that connect over streamable HTTP, at this address such as 127.0.0.1:7400, in place of standard input
    /// and output
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    /// Let clients on other machines connect
    #[arg(long, requires = "listen")]
    allow_remote: bool,
    /// Let web pages of this origin (its scheme and host) connect; may be repeated
    #[arg(long, value_name = "ORIGIN", requires = "listen")]
    allow_origin: Vec<String>,
    /// Let clients connect under this host name; may be repeated
    #[arg(long, value_name = "NAME", requires = "listen")]
    allow_host: Vec<String>,
    /// What tells callers apart: authorization (their credential; a refreshed token is another caller), header:NAME, or
    /// none
    #[arg(long, value_name = "TENANT", default_value = "authorization", value_parser = Tenant::parse)]
    tenant: Tenant,
    /// The server's command line, after --
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// What else there is to do about MCP servers.
#[derive(Debug, Subcommand)]
enum Also {
    Install(install::InstallArgs),
}

fn duration(text: &str) -> Result<Duration, String> {
    policy_file::parse_duration(text).map(Duration::from_millis)
}

/// Runs the command.
pub async fn run(global: &Global, args: McpArgs) -> Result<ExitCode, Failure> {
    if let Some(Also::Install(args)) = &args.also {
        return install::run(global, args);
    }
    if args.url.is_none() && args.command.is_empty() {
        return Err(Failure::usage(
            "no server is named; nothing ran. Give its command after --, as in: oncely mcp -- npx some-server; or its address: \
             oncely mcp --url https://…",
        ));
    }
    let context = Context::load(global)?;
    if args.explain {
        return explain::run(global, &context, &args).await;
    }
    let engine = context.open().await?;
    let guard = Arc::new(guard(&context, engine.clone(), &args)?);
    let mut signals = PassedSignals::catch()
        .map_err(|e| Failure::internal(format!("signals cannot be caught: {e}; nothing ran")))?;
    let max_message = message_limit(&args);
    if let Some(address) = args.listen {
        context.say_remarks().await;
        let code = listen(address, guard, &args, max_message, &mut signals).await?;
        flush(engine).await;
        return Ok(ExitCode::from(code));
    }
    let streams = (open(standard::standard_input())?, open(standard::standard_output())?);
    if let Some(url) = &args.url {
        let target = target(url, &args.header)?;
        let code = serve::stdio_to_url(guard, target, (max_message, args.drain), streams, &mut signals).await;
        flush(engine).await;
        return Ok(ExitCode::from(code));
    }
    if args.name.is_none() {
        warn_of_namesakes(&guard);
    }
    let server = Server::start(&args.command, &guard).map_err(|e| not_started(&args.command, &e))?;
    let plan = Plan { max_message, drain: args.drain };
    let code = serve::stdio(guard, plan, server, streams, &mut signals).await;
    flush(engine).await;
    let code = code.map_err(|e| Failure::internal(format!("the server's end could not be awaited: {e}")))?;
    Ok(ExitCode::from(code))
}

/// Variables that may say which of several equal command lines this is, by the end of a word in their names.
const TELLING: [&str; 12] = [
    "KEY", "TOKEN", "SECRET", "PASSWORD", "DSN", "URL", "URI", "DATABASE", "ACCOUNT", "PROFILE", "PROJECT",
    "TENANT",
];
/// Beginnings of those that say nothing about a server, whatever they end in.
const NOT_TELLING: [&str; 2] = ["ONCELY_", "CURL_"];
/// Most of them that are named.
const NAMED_MAX: usize = 3;

/// Whether a variable may say which of several equal command lines this is.
fn tells(name: &str) -> bool {
    let is_telling = |word: &str| TELLING.iter().any(|end| word.ends_with(end));
    !NOT_TELLING.iter().any(|start| name.starts_with(start)) && name.split('_').any(is_telling)
}

/// Says that another entry which differs only in its environment would be taken for this one. What the environment says
/// cannot be part of the name: a key that is renewed would make it another server, and a call that is in doubt would run
/// again.
fn warn_of_namesakes(guard: &Guard) {
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let mut telling: Vec<String> = names.filter(|name| tells(name)).collect();
    telling.sort();
    telling.truncate(NAMED_MAX);
    if !telling.is_empty() {
        say(&format!(
            "oncely: this server is known as {:?}, whatever its environment says ({}). Another entry with the same \
             command line and directory would share its records: give each a --name",
            guard.server(),
            telling.join(", ")
        ));
    }
}

fn message_limit(args: &McpArgs) -> usize {
    usize::from(args.max_message) * 1024 * 1024
}

/// Serves clients that connect.
async fn listen(
    address: SocketAddr,
    guard: Arc<Guard>,
    args: &McpArgs,
    max_message: usize,
    signals: &mut PassedSignals,
) -> Result<u8, Failure> {
    if !address.ip().is_loopback() && !args.allow_remote {
        return Err(Failure::usage(format!(
            "{address} can be reached from other machines; nothing ran. Listen on 127.0.0.1, or say --allow-remote"
        )));
    }
    let keeper = Doorkeeper {
        origins: args.allow_origin.clone(),
        hosts: args.allow_host.clone(),
        reach: if args.allow_remote { Reach::Everybody } else { Reach::Local },
        tenant: args.tenant.clone(),
    };
    let listening = Listening::at(address)
        .await
        .map_err(|e| Failure::usage(format!("{address} cannot be listened on: {e}; nothing ran")))?;
    let path = args
        .url
        .as_deref()
        .map_or(Ok("/mcp".to_owned()), |url| target(url, &[]).map(|target| target.uri().path().to_owned()))?;
    say(&format!("oncely: listening on http://{}{path}", listening.address));
    let bounds = (max_message, args.drain);
    Ok(match &args.url {
        Some(url) => {
            let target = target(url, &args.header)?;
            serve::http_to_url(guard, target, bounds, (listening, keeper), signals).await
        }
        None => {
            serve::http_to_command(guard, args.command.clone(), bounds, (listening, keeper), signals).await
        }
    })
}

fn guard(context: &Context, engine: Oncely, args: &McpArgs) -> Result<Guard, Failure> {
    let scope = args.scope.as_deref().filter(|s| !s.is_empty()).map(Scope::parse).transpose();
    let scope = scope.map_err(|e| Failure::usage(format!("{e}; nothing ran")))?.unwrap_or_default();
    let server = match &args.name {
        Some(given) => {
            name::check(given).map_err(|e| Failure::usage(format!("{e}; nothing ran")))?;
            given.clone()
        }
        None => match &args.url {
            Some(url) => name::of_url(url, target(url, &[])?.host()),
            None => name::of_command(&args.command, &std::env::current_dir().unwrap_or_default()),
        },
    };
    let settings = Settings {
        engine,
        namespace: context.namespace.clone(),
        scope,
        policy: context.policy.clone(),
        server,
        launcher: launch::launcher(),
        place: if args.url.is_some() { Place::Elsewhere } else { Place::Here },
        watcher: launch::watcher(),
    };
    Guard::new(settings).map_err(|e| Failure::internal(format!("no random numbers: {e}; nothing ran")))
}

fn target(url: &str, headers: &[String]) -> Result<Target, Failure> {
    let headers: Result<Vec<String>, Failure> = headers.iter().map(|header| filled(header)).collect();
    Target::new(url, &headers?).map_err(|e| Failure::usage(format!("{e}; nothing ran")))
}

/// A header with `${NAME}` replaced by that environment variable: command lines can be read by others, and clients start
/// us without a shell that would do it.
fn filled(header: &str) -> Result<String, Failure> {
    let mut text = String::new();
    let mut rest = header;
    while let Some((before, after)) = rest.split_once("${") {
        let (name, behind) = after
            .split_once('}')
            .ok_or_else(|| Failure::usage("--header holds ${ without a }; nothing ran"))?;
        let value = variable(name).ok_or_else(|| {
            Failure::usage(format!(
                "--header needs the environment variable {name:?}, which is not set; nothing ran"
            ))
        })?;
        text.push_str(before);
        text.push_str(&value);
        rest = behind;
    }
    text.push_str(rest);
    Ok(text)
}

fn open<T>(stream: io::Result<T>) -> Result<T, Failure> {
    stream.map_err(|e| Failure::internal(format!("the standard streams cannot be used: {e}; nothing ran")))
}

/// What is said where a server cannot be started.
fn not_started(argv: &[OsString], error: &io::Error) -> Failure {
    let program = argv.first().map(|p| p.to_string_lossy().into_owned()).unwrap_or_default();
    let exit = if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { NOT_EXECUTABLE };
    Failure::new(
        exit,
        "SPAWN_FAILED",
        format!("the server {program:?} could not be started: {error}; nothing ran"),
    )
}

/// Writes the counters and closes the ledger, unless somebody holds it up.
async fn flush(engine: Oncely) {
    let in_time = tokio::time::timeout(FLUSH, engine.store().flush()).await.is_ok();
    if !in_time {
        // Closing it would wait, too.
        std::mem::forget(engine);
    }
}

#[cfg(test)]
mod tests {
    use super::tells;

    #[test]
    fn variables_of_other_programs_do_not_tell_servers_apart() {
        for name in ["STRIPE_API_KEY", "DATABASE_URL", "PGDATABASE", "AWS_PROFILE", "APIKEY"] {
            assert!(tells(name), "{name}");
        }
        for name in ["CURL_CA_BUNDLE", "ONCELY_ADMIN_TOKEN", "PATH", "HOME"] {
            assert!(!tells(name), "{name}");
        }
    }
}
