//! `oncely serve`: the gateway, in front of an API or between an agent and providers.

mod admin;
mod lookout;
pub(crate) mod settings;
mod telemetry;

use std::io::IsTerminal as _;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use oncely::Oncely;
use oncely::tower::Tenant;
use oncely_doors::gateway::address::{Address, Speech};
use oncely_doors::gateway::config::{GatewayConfig, RouteConfig};
use oncely_doors::gateway::pattern::PathPattern;
use oncely_doors::gateway::serve::{Listening, Stopped, serve};
use oncely_doors::gateway::{AllCounters, Gateway, Lanes, acceptor, connector};
use oncely_doors::settings::ServeSettings;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::time::Instant;

use self::lookout::Lookout;
use crate::args::Global;
use crate::context::Context;
use crate::exit::{self, Failure};
use crate::output;

/// How long the ledger may take for what is left to write at the end, and the admin API for its last answers.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// Serve HTTP: a gateway in front of an API, or between an agent and providers.
///
/// Every guarded request runs once per key, and a retry gets the first answer.
///
/// Without a configuration: oncely serve --listen 127.0.0.1:7300 --upstream http://127.0.0.1:9000
///
/// Routes, tenants, providers and limits are in the tables `server` and `route` of oncely.toml; see docs/serve.md. SIGTERM and
/// SIGINT stop it: no more connections are accepted, and running requests are waited for.
#[derive(Debug, Args)]
pub struct ServeArgs {
    /// The address to listen on [default: the configuration's, else 127.0.0.1:7300]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    /// Where to send requests that no route matches: http://…, https://… or h2c://…
    #[arg(long, value_name = "URL", value_parser = address)]
    upstream: Option<Address>,
    /// With --upstream: refuse guarded requests that carry no key
    #[arg(long, requires = "upstream")]
    require_key: bool,
    /// With --upstream: there is only one tenant, so every caller can get the stored answers of every other
    #[arg(long, requires = "upstream")]
    one_tenant: bool,
    #[command(flatten)]
    admin: admin::AdminArgs,
}

fn address(text: &str) -> Result<Address, String> {
    text.parse()
}

/// Runs the command until it is asked to stop.
pub async fn run(global: &Global, args: ServeArgs) -> Result<ExitCode, Failure> {
    let context = Context::load(global)?;
    let ServeSettings { gateway: mut config, admin, otlp } = {
        let settings = settings::read(&context)?;
        for line in settings::tell_unused_tools(&context, &settings) {
            output::say(&format!("oncely: warning: {line}"));
        }
        settings
    };
    if let Some(upstream) = &args.upstream {
        config.routes.push(route_of(&context, &args, upstream.clone())?);
    }
    if config.routes.is_empty() {
        return Err(Failure::usage(
            "there is nothing to serve: neither --upstream URL nor a [[route]] in oncely.toml; nothing ran",
        ));
    }
    let configured = config.admin.as_deref().map(str::parse).transpose().map_err(Failure::usage)?;
    let admin = admin::open(&context, &args.admin, configured, admin).await?;
    let oncely = admin.oncely().clone();
    config.redaction = admin.redaction().clone();
    let gateways = gateways(&context, &config, &oncely)?;
    let counters: AllCounters = gateways.iter().map(Gateway::counters).cloned().collect();
    let lookout = Lookout::over(oncely.store().clone(), admin.ears().clone(), counters.clone());
    let admin = admin.with_source(Arc::new(counters)).with_routes(config.routes.clone());
    let roots = config.upstream_roots.as_deref().map(|file| context.beside(file));
    let otlp = telemetry::configured(&context, otlp)?
        .map(|config| telemetry::start(config, roots.as_deref(), admin.scrape()))
        .transpose()?;
    let (spans, exporter) = otlp.unzip();
    let admin = spans.iter().fold(admin, |admin, spans| admin.with_source(spans.counts()));
    let traced = gateways.into_iter().map(|gateway| gateway.traced(spans.clone()));
    let lanes = Lanes::start(traced, oncely_store::bring_answers_together)
        .map_err(|e| Failure::internal(format!("the threads could not be started: {e}")))?;
    drop(spans);
    let listening = Listening {
        tls: tls(&context, &config)?,
        connections_max: config.connections_max,
        drain: config.drain,
    };
    let listen = args.listen.or(config.listen).unwrap_or(settings::LISTEN);
    let listener = TcpListener::bind(listen).await.map_err(|e| {
        Failure::new(exit::PRECONDITION, "CANNOT_LISTEN", format!("{listen}: {e}; nothing ran"))
    })?;
    let bound = listener.local_addr().unwrap_or(listen);
    let round = settings::tell_round(&config, bound);
    let inside = admin.address().and_then(|admin| settings::tell_inside(&config, admin));
    if let Some(line) = round.or(inside) {
        return Err(Failure::usage(format!("{line}; nothing ran")));
    }
    let stop = stop_asked_for()?;
    // The admin API may read much of the ledger at once: neither requests nor signals wait for it.
    let aside = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("oncely-admin")
        .enable_all()
        .build()
        .map_err(|e| Failure::internal(format!("the admin API's thread could not be started: {e}")))?;
    context.say_remarks().await;
    say_ready(global, &context, &config, bound, admin.address());
    let watching = aside.spawn(lookout.run());
    // Answers until the gateway has ended: how a drain goes on is of interest.
    let (done, drained) = tokio::sync::oneshot::channel::<()>();
    let administered = aside.spawn(admin.serve(async move {
        let _ = drained.await;
    }));
    let (ended, all_sent) = tokio::sync::oneshot::channel::<()>();
    let sending = aside.spawn(async move {
        if let Some(exporter) = exporter {
            exporter.run(async move { drop(all_sent.await) }).await;
        }
    });
    let mut told = stop.clone();
    let Stopped { open, since, deadline } = serve(listener, &lanes, listening, async move {
        // An error would mean that nobody can ask any more.
        let _ = told.wait_for(|stop| *stop).await;
    })
    .await;
    // Effects whose callers have gone have what is left of the same time.
    let running = oncely.drain(deadline.saturating_duration_since(Instant::now())).await;
    let waited = since.elapsed();
    // Counters of the last moment; without them nothing is wrong but a number.
    let _ = tokio::time::timeout(LAST_WORDS, oncely.store().flush()).await;
    watching.abort();
    let _ = done.send(());
    let _ = ended.send(());
    // Its listener was checked before; if it failed all the same, the gateway has ended in order. Whoever looks through a
    // large ledger there keeps nobody from stopping; what would be sent by the same thread is given up then.
    if tokio::time::timeout(LAST_WORDS, administered).await.is_ok() {
        let _ = sending.await;
    }
    aside.shutdown_background();
    if open > 0 || running > 0 {
        output::say(&format!(
            "oncely: stopped after {:.1} s with {open} connections and {running} requests still open; what they did is found in \
             doubt by the next call",
            waited.as_secs_f64()
        ));
    }
    Ok(ExitCode::SUCCESS)
}

/// The route that `--upstream` stands for: everything that no other route takes.
fn route_of(context: &Context, args: &ServeArgs, upstream: Address) -> Result<RouteConfig, Failure> {
    let bad = |e: String| Failure::usage(format!("{e}; nothing ran"));
    let mut route = PathPattern::parse("/**")
        .and_then(|all| RouteConfig::new(all, upstream, &context.policy))
        .map_err(bad)?;
    route.policy.require_key |= args.require_key;
    if args.one_tenant {
        route.tenant = Tenant::One;
    }
    Ok(route)
}

/// A gateway for every lane.
fn gateways(context: &Context, config: &GatewayConfig, oncely: &Oncely) -> Result<Vec<Gateway>, Failure> {
    let needs_tls = config.routes.iter().any(|route| route.upstream.speech == Speech::Tls);
    let roots = config.upstream_roots.as_deref().map(|file| context.beside(file));
    let tls = needs_tls.then(|| connector(roots.as_deref())).transpose().map_err(|e| bad_tls(&e))?;
    let threads = config.threads.unwrap_or_else(Lanes::wanted);
    Ok(Gateway::for_lanes(threads, config, oncely, &context.namespace, tls.as_ref()))
}

fn tls(context: &Context, config: &GatewayConfig) -> Result<Option<tokio_rustls::TlsAcceptor>, Failure> {
    let files = config.tls.as_ref();
    files
        .map(|files| acceptor(&context.beside(&files.cert), &context.beside(&files.key)))
        .transpose()
        .map_err(|e| bad_tls(&e))
}

fn bad_tls(error: &dyn std::fmt::Display) -> Failure {
    Failure::usage(format!("{error}; nothing ran"))
}

/// Turns true when a signal asks for a stop. A second one ends the process at once.
///
/// A terminal that is closed asks for one, too. Without a terminal a hang-up is a wish to read the configuration anew, which is not
/// done; whoever sends it must not lose requests by it.
fn stop_asked_for() -> Result<watch::Receiver<bool>, Failure> {
    let handler =
        |kind| signal(kind).map_err(|e| Failure::internal(format!("signals cannot be handled: {e}")));
    let (mut terminate, mut interrupt, mut hangup) = (
        handler(SignalKind::terminate())?,
        handler(SignalKind::interrupt())?,
        handler(SignalKind::hangup())?,
    );
    // Any of the three: a log that is kept elsewhere does not take it out of its terminal.
    let has_terminal =
        std::io::stdin().is_terminal() || std::io::stdout().is_terminal() || std::io::stderr().is_terminal();
    let (sender, receiver) = watch::channel(false);
    tokio::spawn(async move {
        let mut asked = 0;
        loop {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
                _ = hangup.recv() => {
                    if !has_terminal {
                        output::say("oncely: SIGHUP changes nothing: the configuration is read at the start; restart to have it read");
                        continue;
                    }
                }
            }
            if asked > 0 {
                std::process::exit(i32::from(exit::UNKNOWN));
            }
            asked += 1;
            // Whoever listened may be done.
            let _ = sender.send(true);
        }
    });
    Ok(receiver)
}

/// Says where it listens, and what should be thought about.
fn say_ready(
    global: &Global,
    context: &Context,
    config: &GatewayConfig,
    bound: SocketAddr,
    admin: Option<SocketAddr>,
) {
    let scheme = if config.tls.is_some() { "https" } else { "http" };
    for line in settings::tell_lapsed(context, config) {
        output::say(&format!("oncely: warning: {line}"));
    }
    if context.store_url.starts_with("memory:") {
        output::say(
            "oncely: warning: the ledger is in memory: when this process ends everything is forgotten, and a retry after that \
             runs again. Name one that lasts with --store",
        );
    }
    for (route, name) in config.routes.iter().filter_map(|route| match &route.tenant {
        Tenant::Header(name) => Some((route, name)),
        _ => None,
    }) {
        output::say(&format!(
            "oncely: the route {} believes the header {name}: whoever can set it gets that tenant's stored answers",
            route.pattern.as_str()
        ));
    }
    for route in config.routes.iter().filter(|route| route.tenant == Tenant::One) {
        output::say(&format!(
            "oncely: the route {} has one tenant: every caller can see the stored answers of every other",
            route.pattern.as_str()
        ));
    }
    for line in settings::tell_unreached(config).into_iter().chain(settings::tell_bound(config)) {
        output::say(&format!("oncely: {line}"));
    }
    if output::wants_json(global.json) {
        let admin = admin.map(|admin| format!("http://{admin}"));
        output::print_json(
            &serde_json::json!({ "listening": format!("{scheme}://{bound}"), "admin": admin }),
        );
    } else {
        output::print(&format!("listening on {scheme}://{bound}"));
        if let Some(admin) = admin {
            output::print(&format!("admin API on http://{admin}"));
        }
    }
}
