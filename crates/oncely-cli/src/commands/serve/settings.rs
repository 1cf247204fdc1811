//! What `oncely serve` is told by the policy file: read as it is by the server, and looked at by those who only check it.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use oncely::policy_file::FILE_NAME;
use oncely_doors::admin::Tokens;
use oncely_doors::gateway::address::Speech;
use oncely_doors::gateway::config::GatewayConfig;
use oncely_doors::gateway::{TlsError, acceptor, connector, lapsed};
use oncely_doors::settings::{SecretSetting, ServeSettings, unused_tools};
use oncely_doors::telemetry::headers;
use oncely_store::sealed::Keys;

use super::admin::{ADMIN, AdminAddress, TOKEN_VARIABLES};
use crate::context::{Context, variable};
use crate::exit::Failure;

/// Every table of the policy file that is for the server; the defaults if there is no file.
pub(crate) fn read(context: &Context) -> Result<ServeSettings, Failure> {
    match context.policy_text() {
        Some((name, text)) => ServeSettings::parse(text, &name, &context.policy)
            .map_err(|error| Failure::usage(error.to_string())),
        None => Ok(ServeSettings::default()),
    }
}

/// Tables of tools that no route uses although they seem to be meant for one; a line for each.
pub(crate) fn tell_unused_tools(context: &Context, settings: &ServeSettings) -> Vec<String> {
    let Some(path) = &context.policy_path else { return Vec::new() };
    let unused = unused_tools(&context.policy, &settings.gateway.routes);
    let line = |tool: oncely_doors::settings::UnusedTool| {
        let meant = match &tool.near {
            Some(near) => format!("did you mean {near:?}?"),
            None => "a route names its tool with tool = \"…\"".to_owned(),
        };
        format!("{}:{}: no route has the tool {:?}; {meant}", path.display(), tool.line, tool.name)
    };
    unused.into_iter().map(line).collect()
}

/// Where requests come in if nobody says it: on this machine only.
pub(crate) const LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7300);

/// Routes that can never be reached; a line for each.
pub(crate) fn tell_unreached(config: &GatewayConfig) -> Vec<String> {
    let unreached = config.routes.iter().enumerate().filter_map(|(at, route)| {
        let earlier = config.routes[..at].iter().find(|earlier| earlier.pattern.covers(&route.pattern))?;
        Some(format!(
            "the route {} is never reached: {} before it takes every such path, and the first that matches wins",
            route.pattern.as_str(),
            earlier.pattern.as_str()
        ))
    });
    unreached.collect()
}

/// A route that leads back to where the gateway listens.
pub(crate) fn tell_round(config: &GatewayConfig, listening: SocketAddr) -> Option<String> {
    let way = way_to(config, listening)?;
    Some(format!("{way}, where this gateway listens itself: its requests would go round for ever"))
}

/// A route that leads to where the admin API listens. To it, such a request comes from this machine.
pub(crate) fn tell_inside(config: &GatewayConfig, admin: SocketAddr) -> Option<String> {
    let way = way_to(config, admin)?;
    Some(format!(
        "{way}, where the admin API of this gateway listens: whoever can reach the gateway could read and change the ledger. \
         Let callers of the admin API connect to its own address"
    ))
}

/// The first route that leads to this address, in words.
fn way_to(config: &GatewayConfig, address: SocketAddr) -> Option<String> {
    let route = config.routes.iter().find(|route| route.upstream.is_at(address))?;
    let (scheme, authority) = (route.upstream.scheme(), &route.upstream.authority);
    Some(format!("the route {} leads to {scheme}://{authority}", route.pattern.as_str()))
}

/// Routes that refuse requests without a key although they do not say so; a line for each.
pub(crate) fn tell_bound(config: &GatewayConfig) -> Vec<String> {
    let bound = config.routes.iter().filter_map(|route| {
        let provider = route.provider.as_ref().filter(|_| !route.policy.require_key)?;
        route.in_force().compares_credential.then(|| {
            format!(
                "the route {} refuses requests without a key: {} remembers a key for one credential only, and without a key of \
                 the caller's a retry with another credential would be taken for a new request. require_key = true in the route \
                 says the same; with when_unknown = \"halt\" for its tool nothing is retried, and no key is needed",
                route.pattern.as_str(),
                provider.title
            )
        })
    });
    bound.collect()
}

/// Certificates that no client will take now; a line for each.
pub(crate) fn tell_lapsed(context: &Context, config: &GatewayConfig) -> Vec<String> {
    let file = config.tls.as_ref().map(|files| context.beside(&files.cert));
    let line = |file: PathBuf| {
        let lapse = lapsed(&file)?;
        Some(format!("the certificate in {} {lapse}: clients will refuse it", file.display()))
    };
    file.and_then(line).into_iter().collect()
}

/// What is wrong with the configuration of a server, as far as that can be told without being it.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    /// `oncely serve` would refuse these.
    pub(crate) problems: Vec<String>,
    /// Somebody should look; among them what is there only where the server runs.
    pub(crate) warnings: Vec<String>,
}

/// Reads the configuration as the server does. Nothing is started, and secrets that are not here are only told of.
pub(crate) fn examine(context: &Context) -> Result<Findings, Failure> {
    let settings = read(context)?;
    let mut findings = Findings { warnings: tell_unused_tools(context, &settings), ..Findings::default() };
    findings.look_at_tokens(context, &settings);
    if let Some(place) = &settings.admin.encryption
        && variable("ONCELY_ENCRYPTION_KEYS").is_none()
    {
        findings.look_at(context, place, |text| Keys::parse(text).map(drop).map_err(|e| e.to_string()));
    }
    if let (Some(place), true) = (&settings.otlp.headers, settings.otlp.endpoint.is_some()) {
        findings.look_at(context, place, |text| headers(text).map(drop));
    }
    findings.look_at_tls(context, &settings);
    findings.warnings.extend(tell_unreached(&settings.gateway));
    findings.warnings.extend(tell_bound(&settings.gateway));
    findings.look_at_ways(&settings.gateway);
    Ok(findings)
}

impl Findings {
    /// Routes that lead to the gateway or its admin API. Where the file does not say where these listen, whoever starts it may.
    fn look_at_ways(&mut self, gateway: &GatewayConfig) {
        let unless = |line: Option<String>, flag: &str| {
            line.map(|line| {
                format!("{line}. oncely serve refuses it, unless {flag} or [server] names another address")
            })
        };
        match gateway.listen {
            Some(listen) => self.problems.extend(tell_round(gateway, listen)),
            None => self.warnings.extend(unless(tell_round(gateway, LISTEN), "--listen")),
        }
        // What cannot be read as an address was found when the file was read.
        match gateway.admin.as_deref().map(str::parse::<AdminAddress>) {
            Some(Ok(AdminAddress::At(admin))) => self.problems.extend(tell_inside(gateway, admin)),
            None => self.warnings.extend(unless(tell_inside(gateway, ADMIN), "--admin")),
            Some(_) => {}
        }
    }

    fn look_at_tokens(&mut self, context: &Context, settings: &ServeSettings) {
        for token in &settings.admin.tokens {
            let good = |secret: &str| {
                let alone = Tokens::none().with(&token.name, token.scope, secret.trim());
                alone.map(drop).map_err(|error| error.to_string())
            };
            self.look_at(context, &token.secret, good);
        }
        let given = TOKEN_VARIABLES.iter().any(|(name, ..)| variable(name).is_some());
        let address = settings.gateway.admin.as_deref().map(str::parse::<AdminAddress>);
        if let Some(Ok(AdminAddress::At(address))) = address
            && settings.admin.tokens.is_empty()
            && !given
            && is_exposed(address)
        {
            let file = context.policy_path.as_deref().unwrap_or(Path::new(FILE_NAME)).display();
            self.warnings.push(format!(
                "{file}: server.admin: {address} can be reached from other machines, so a token has to be given where the server \
                 runs: ONCELY_ADMIN_TOKEN, --admin-token-file or [[admin.tokens]]"
            ));
        }
    }

    /// Looks at a secret if it is here; if not, says what has to be there where the server runs.
    fn look_at(
        &mut self,
        context: &Context,
        place: &SecretSetting,
        good: impl FnOnce(&str) -> Result<(), String>,
    ) {
        match context.find_secret(place) {
            Ok(secret) => {
                self.problems.extend(good(&secret).err().map(|why| format!("{}: {why}", place.said_at)));
            }
            Err(why) => self.warnings.push(format!("{why}. Where the server runs it has to be there")),
        }
    }

    fn look_at_tls(&mut self, context: &Context, settings: &ServeSettings) {
        let gateway = &settings.gateway;
        let mut absent = false;
        let files = gateway.tls.iter().flat_map(|files| [&files.cert, &files.key]);
        for file in files.chain(&gateway.upstream_roots) {
            let path = context.beside(file);
            if !path.exists() {
                absent = true;
                self.warnings.push(format!(
                    "{} is not here. Where the server runs it has to be there",
                    path.display()
                ));
            }
        }
        if absent {
            return;
        }
        let ours = gateway
            .tls
            .as_ref()
            .map(|files| acceptor(&context.beside(&files.cert), &context.beside(&files.key)).map(drop));
        let theirs = gateway.routes.iter().any(|route| route.upstream.speech == Speech::Tls);
        let theirs = theirs.then(|| {
            let roots = gateway.upstream_roots.as_deref().map(|file| context.beside(file));
            connector(roots.as_deref()).map(drop)
        });
        let wrong = |found: Result<(), TlsError>| found.err().map(|error| error.to_string());
        self.problems.extend([ours, theirs].into_iter().flatten().filter_map(wrong));
        self.warnings.extend(tell_lapsed(context, gateway));
    }
}

fn is_exposed(address: SocketAddr) -> bool {
    !address.ip().to_canonical().is_loopback()
}
