//! `oncely mcp --explain`: what oncely makes of each tool of a server, and why.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use oncely::Oncely;
use oncely::policy_file::{Advertise, DryRun, format_duration};
use oncely_core::{Kind, WhenUnknown};
use oncely_doors::command::child::PassedSignals;
use oncely_doors::mcp::explain;
use oncely_doors::mcp::guard::Guard;
use oncely_doors::mcp::http::upstream::HttpLink;
use oncely_doors::mcp::link::Link;
use oncely_doors::mcp::serve::Server;
use oncely_doors::mcp::session::Session;
use oncely_doors::mcp::stdio::StdioLink;
use oncely_doors::mcp::tools::{Tool, kind_of};
use serde::Serialize;

use super::{McpArgs, not_started, target};
use crate::args::Global;
use crate::context::Context;
use crate::exit::{Failure, PRECONDITION};
use crate::output::{self, Tone};

/// How long a server may take to list its tools.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long it may take to end.
const END: Duration = Duration::from_secs(2);

/// Runs the command.
pub async fn run(global: &Global, context: &Context, args: &McpArgs) -> Result<ExitCode, Failure> {
    // Nothing is called, so nothing is recorded.
    let engine = Oncely::new(oncely_store::open("memory:").await?);
    let guard = Arc::new(super::guard(context, engine, args)?);
    let limit = super::message_limit(args);
    let listed = match &args.url {
        Some(url) => of_url(&guard, target(url, &args.header)?, limit).await,
        None => of_command(&guard, args, limit).await?,
    };
    let tools = listed.map_err(|why| {
        Failure::new(PRECONDITION, "NO_TOOLS", format!("the server did not list its tools: {why}"))
    })?;
    let views: Vec<ToolView> = tools.iter().map(|tool| ToolView::of(&guard, tool)).collect();
    if output::wants_json(global.json) {
        for view in &views {
            output::print_json(view);
        }
    } else {
        print(&views);
    }
    Ok(ExitCode::SUCCESS)
}

async fn of_command(
    guard: &Arc<Guard>,
    args: &McpArgs,
    limit: usize,
) -> Result<Result<Vec<Arc<Tool>>, String>, Failure> {
    let mut server = Server::start(&args.command, guard).map_err(|e| not_started(&args.command, &e))?;
    let Some((to, from)) = server.input.take().zip(server.output.take()) else {
        return Err(Failure::internal("the server's streams could not be opened"));
    };
    let link = Arc::new(StdioLink::new(to));
    explain::attend(guard, &link, from, limit);
    let asked: Arc<dyn Link> = link.clone();
    let listed = tokio::time::timeout(PATIENCE, explain::tools(guard, &asked)).await;
    link.close().await;
    // It has nothing more to do; how it ends is of no interest.
    let _ = server.end(&mut PassedSignals::none(), END).await;
    Ok(listed.unwrap_or_else(|_| Err(format!("it took longer than {} s", PATIENCE.as_secs()))))
}

async fn of_url(
    guard: &Arc<Guard>,
    target: oncely_doors::mcp::http::target::Target,
    limit: usize,
) -> Result<Vec<Arc<Tool>>, String> {
    let link = HttpLink::new(target, limit);
    let session = Session::new(guard.clone(), link.clone(), Arc::new(explain::Nobody));
    link.serve(&session);
    let asked: Arc<dyn Link> = link.clone();
    let listed = tokio::time::timeout(PATIENCE, explain::tools(guard, &asked)).await;
    link.farewell().await;
    listed.unwrap_or_else(|_| Err(format!("it took longer than {} s", PATIENCE.as_secs())))
}

/// What oncely makes of a tool.
#[derive(Debug, Serialize)]
struct ToolView {
    tool: String,
    kind: &'static str,
    /// Who says so: policy, annotation, name or default.
    because: &'static str,
    /// The table of the policy file that declares it.
    declared: Option<String>,
    /// What makes two calls the same intent; none for a read.
    key: Option<String>,
    /// What a repeated call gets.
    retry: String,
    /// What a call gets while the outcome of an earlier one is unknown.
    unknown: Option<&'static str>,
    dry_run: bool,
    advertised_idempotent: bool,
}

impl ToolView {
    fn of(guard: &Guard, tool: &Tool) -> Self {
        let rules = guard.rules(&tool.name);
        let declared = &rules.declared;
        let (kind, why) = kind_of(declared.stated_kind, Some(tool));
        let writes = kind == Kind::Write;
        let policy = &declared.policy;
        let fields: Vec<String> = policy.key.iter().map(ToString::to_string).collect();
        let derived = if fields.is_empty() { "all arguments".to_owned() } else { fields.join(", ") };
        let key = if policy.require_key {
            "idempotency_key, required".to_owned()
        } else {
            format!("idempotency_key, else {derived}")
        };
        let retry = format!(
            "the first result: with a key for {}, without for {}",
            format_duration(policy.retention.replay_for_ms),
            format_duration(policy.repeat_after_ms)
        );
        let unknown = match policy.when_unknown {
            WhenUnknown::Halt => "is told so until a person settles it",
            WhenUnknown::Retry => "runs again",
            WhenUnknown::Check => "asks the check",
        };
        Self {
            tool: guard.full_name(&tool.name),
            kind: if writes { "write" } else { "read" },
            because: why.as_str(),
            declared: declared.declared.clone(),
            key: writes.then_some(key),
            retry: if writes { retry } else { "asks the server again".to_owned() },
            unknown: writes.then_some(unknown),
            dry_run: writes && declared.mcp.dry_run == DryRun::Offered && !tool.has_own_dry_run,
            advertised_idempotent: writes && declared.mcp.advertise_idempotent == Advertise::Idempotent,
        }
    }
}

fn print(views: &[ToolView]) {
    let mut table = output::table(&[
        "TOOL",
        "KIND",
        "BECAUSE",
        "KEY",
        "A RETRY GETS",
        "WHILE UNKNOWN, A CALL",
        "LISTED AS IDEMPOTENT",
    ]);
    for view in views {
        let tone = if view.kind == "write" { Tone::Warn } else { Tone::Good };
        table.add_row([
            output::cell(Tone::Plain, &view.tool),
            output::cell(tone, view.kind),
            output::cell(Tone::Plain, view.because),
            output::cell(Tone::Plain, view.key.as_deref().unwrap_or("-")),
            output::cell(Tone::Plain, &view.retry),
            output::cell(Tone::Plain, view.unknown.unwrap_or("-")),
            output::cell(Tone::Plain, if view.advertised_idempotent { "yes" } else { "-" }),
        ]);
    }
    if !views.is_empty() {
        output::print_table(&table);
    }
    let writes = views.iter().filter(|view| view.kind == "write").count();
    output::say(&format!("{} tools, {writes} of them guarded; declare others in oncely.toml", views.len()));
}
