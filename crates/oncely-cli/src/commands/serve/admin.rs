//! The admin API beside the gateway: its address, who may ask, and the engine that both share.

use std::future::Future;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use clap::Args;
use oncely::{Observer, Oncely};
use oncely_doors::admin::{self, AdminState, Metrics, MetricsSource, Scope, Settings, Tokens};
use oncely_doors::gateway::config::RouteConfig;
use oncely_doors::redact::Redaction;
use oncely_doors::telemetry::MetricsText;
use tokio::net::TcpListener;

use super::lookout::Ears;
use crate::context::{Context, read_secret, variable};
use crate::exit::{self, Failure};
use crate::output;

/// Where it is if nobody says it: on this machine only.
pub(super) const ADMIN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7301);

/// A token that may write, and one that may only read.
pub(super) const TOKEN_VARIABLES: [(&str, &str, Scope); 2] =
    [("ONCELY_ADMIN_TOKEN", "admin", Scope::Write), ("ONCELY_ADMIN_READ_TOKEN", "reader", Scope::Read)];

/// Where the admin API is and who may ask.
#[derive(Debug, Args)]
pub(crate) struct AdminArgs {
    /// Where the admin API, health and metrics are, or "off" [default: the configuration's, else 127.0.0.1:7301]
    #[arg(long, value_name = "ADDRESS")]
    admin: Option<AdminAddress>,
    /// A file with the token that the admin API asks for; also from ONCELY_ADMIN_TOKEN, and ONCELY_ADMIN_READ_TOKEN for
    /// one that may only read. Needed on an address that other machines can reach
    #[arg(long, value_name = "FILE")]
    admin_token_file: Option<PathBuf>,
}

/// An address, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AdminAddress {
    /// Here.
    At(SocketAddr),
    /// Nowhere.
    Off,
}

impl FromStr for AdminAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "off" => Ok(Self::Off),
            _ => text.parse().map(Self::At).map_err(|_| {
                format!("{text:?} is neither an address with a port, such as 127.0.0.1:7301, nor \"off\"")
            }),
        }
    }
}

/// The engine, and the admin API if it is not off.
pub(crate) struct Admin {
    oncely: Oncely,
    ears: Arc<Ears>,
    redaction: Redaction,
    state: AdminState,
    listener: Option<TcpListener>,
}

/// Opens the ledger, and binds the admin API's address. `configured` is what `[server] admin` says.
pub(crate) async fn open(
    context: &Context,
    args: &AdminArgs,
    configured: Option<AdminAddress>,
    settings: Settings,
) -> Result<Admin, Failure> {
    let metrics = Arc::new(Metrics::default());
    let store = context.open_sealed().await?;
    if store.look_for_seals().await? {
        output::say(
            "oncely: the ledger holds encrypted results and no key is given: they are not replayed, and no results are \
             kept. Give the keys with [encryption] or ONCELY_ENCRYPTION_KEYS",
        );
    }
    let ears = Ears::beside(Arc::clone(&metrics));
    let oncely = Oncely::observed(Arc::new(store), Arc::clone(&ears) as Arc<dyn Observer>);
    let redaction = settings.redaction.clone();
    let state = AdminState::new(oncely.clone(), Arc::new(context.policy.clone()))
        .with_namespace(context.namespace.clone())
        .with_tokens(tokens(context, args, &settings)?)
        .with_redaction(settings.redaction)
        .with_metrics(metrics);
    let AdminAddress::At(address) = args.admin.or(configured).unwrap_or(AdminAddress::At(ADMIN)) else {
        return Ok(Admin { oncely, ears, redaction, state, listener: None });
    };
    state.check(address).map_err(|error| Failure::usage(format!("{error}; nothing ran")))?;
    let listener = TcpListener::bind(address).await.map_err(|error| {
        let message =
            format!("the admin API cannot listen on {address}: {error}; nothing ran. Use --admin ADDRESS");
        Failure::new(exit::PRECONDITION, "CANNOT_LISTEN", message)
    })?;
    Ok(Admin { oncely, ears, redaction, state, listener: Some(listener) })
}

impl Admin {
    /// The engine that is measured: the gateway's, too.
    pub(crate) fn oncely(&self) -> &Oncely {
        &self.oncely
    }

    /// What hears the ledger's answers.
    pub(crate) fn ears(&self) -> &Arc<Ears> {
        &self.ears
    }

    /// What is taken out of results before they are stored.
    pub(crate) fn redaction(&self) -> &Redaction {
        &self.redaction
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        self.listener.as_ref().and_then(|listener| listener.local_addr().ok())
    }

    /// Adds counters of another part of the process.
    pub(crate) fn with_source(mut self, source: Arc<dyn MetricsSource>) -> Self {
        self.state = self.state.with_source(source);
        self
    }

    /// Tells of the policies of these routes.
    pub(crate) fn with_routes(mut self, routes: Vec<RouteConfig>) -> Self {
        self.state = self.state.with_routes(routes);
        self
    }

    /// Writes what `/metrics` says.
    pub(crate) fn scrape(&self) -> MetricsText {
        self.state.scrape()
    }

    /// Answers until `shutdown` returns.
    pub(crate) async fn serve(
        self,
        shutdown: impl Future<Output = ()> + Send + 'static,
    ) -> std::io::Result<()> {
        match self.listener {
            Some(listener) => admin::serve(listener, self.state, shutdown).await,
            None => {
                shutdown.await;
                Ok(())
            }
        }
    }
}

fn tokens(context: &Context, args: &AdminArgs, settings: &Settings) -> Result<Tokens, Failure> {
    let bad = |error: admin::TokenError| Failure::usage(format!("{error}; nothing ran"));
    let mut tokens = Tokens::none();
    if let Some(path) = &args.admin_token_file {
        let secret = read_secret(&context.beside(path));
        let secret =
            secret.map_err(|why| Failure::usage(format!("--admin-token-file: {why}; nothing ran")))?;
        tokens = tokens.with("admin", Scope::Write, secret.trim()).map_err(bad)?;
    }
    for (name, who, scope) in TOKEN_VARIABLES {
        if let Some(secret) = variable(name) {
            tokens = tokens.with(who, scope, secret.trim()).map_err(bad)?;
        }
    }
    for setting in &settings.tokens {
        let secret = context.secret(&setting.secret)?;
        tokens = tokens
            .with(&setting.name, setting.scope, secret.trim())
            .map_err(|error| Failure::usage(format!("{}: {error}; nothing ran", setting.secret.said_at)))?;
    }
    Ok(tokens)
}
