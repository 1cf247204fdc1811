//! One `[[route]]`: what it matches, where it leads, and how it is guarded.

use std::sync::Arc;

use http::{HeaderName, Method};
use oncely::policy_file::PolicyFile;
use oncely::policy_file::reading::{
    Problems, Read, Value, allowed, boolean, fault, one_of, quote, text, wrong_type,
};
use oncely::tower::{Dialect, DryRun, KeyForm, Rules, Tenant, may_be_replayed};
use oncely_core::limits::HTTP_BODY_BYTES;
use oncely_core::{Kind, Policy, ToolName, WhenUnknown};
use toml::de::DeTable;

use super::{check, values};
use crate::gateway::address::Address;
use crate::gateway::check::CheckConfig;
use crate::gateway::forward::{Forwarded, HostSeen, Way};
use crate::gateway::pattern::PathPattern;
use crate::gateway::upstream::Timeouts;
use crate::providers::{Provider, Providers, WhenUnknownSaid};

/// The fields of a route, in the order in which they are documented.
const FIELDS: [&str; 23] = [
    "match",
    "upstream",
    "methods",
    "require_key",
    "strict_keys",
    "tenant",
    "dialect",
    "provider",
    "tool",
    "strip_prefix",
    "host",
    "forwarded",
    "timeout",
    "connect_timeout",
    "max_body",
    "fingerprint_headers",
    "replay_headers",
    "succeeded_on",
    "final_on",
    "rejected_on",
    "unknown_on",
    "check",
    "dry_run",
];

/// A route that was read and found right.
#[derive(Clone)]
pub struct RouteConfig {
    /// Which paths it matches.
    pub pattern: PathPattern,
    /// Where it leads.
    pub upstream: Address,
    /// The methods that are guarded.
    pub methods: Vec<Method>,
    /// What tells one caller from another.
    pub tenant: Tenant,
    /// Whose rules about statuses are followed.
    pub dialect: Dialect,
    /// Which forms of the key are accepted.
    pub key_form: KeyForm,
    /// The provider that it leads to.
    pub provider: Option<Arc<Provider>>,
    /// Its name in the ledger.
    pub tool: ToolName,
    /// What its tool declares.
    pub policy: Policy,
    /// Whether that says itself what becomes of an unknown outcome.
    pub when_unknown: WhenUnknownSaid,
    /// How it changes what passes through.
    pub way: Way,
    /// How long things may take.
    pub timeouts: Timeouts,
    /// The longest body of a guarded request.
    pub body_max: usize,
    /// Headers of a request that are part of what it means.
    pub fingerprint_headers: Vec<HeaderName>,
    /// Headers of a response that are replayed besides the usual ones.
    pub replay_headers: Vec<HeaderName>,
    /// What answers mean.
    pub rules: Rules,
    /// How the service is asked whether an attempt in doubt has happened.
    pub check: Option<CheckConfig>,
    /// What a dry run does.
    pub dry_run: DryRun,
}

impl RouteConfig {
    /// A route with the defaults.
    pub fn new(pattern: PathPattern, upstream: Address, policy: &PolicyFile) -> Result<Self, String> {
        let tool = ToolName::parse(&format!("http:{}", pattern.as_str())).map_err(|e| e.to_string())?;
        let (policy, when_unknown) = policy_of(policy, &tool)?;
        Ok(Self {
            pattern,
            upstream,
            methods: vec![Method::POST, Method::PATCH],
            tenant: Tenant::default(),
            dialect: Dialect::default(),
            key_form: KeyForm::default(),
            provider: None,
            tool,
            policy,
            when_unknown,
            way: Way::default(),
            timeouts: Timeouts::default(),
            body_max: HTTP_BODY_BYTES,
            fingerprint_headers: Vec::new(),
            replay_headers: Vec::new(),
            rules: Rules::default(),
            check: None,
            dry_run: DryRun::default(),
        })
    }
}

/// What the policy file declares for a route's tool.
fn policy_of(file: &PolicyFile, tool: &ToolName) -> Result<(Policy, WhenUnknownSaid), String> {
    let declared = file.tool(tool.as_str());
    if file.is_strict() && declared.declared.is_none() {
        return Err(format!("the policy is strict and does not declare the tool {:?}", tool.as_str()));
    }
    if declared.policy.kind == Kind::Read {
        return Err(format!("the tool {:?} is declared as read; a guarded route writes", tool.as_str()));
    }
    if declared.policy.when_unknown == WhenUnknown::Check {
        return Err(format!(
            "the tool {:?} has a check command, which a route does not run; ask the service instead: check = {{ path = …, \
             happened = … }} in the route",
            tool.as_str()
        ));
    }
    let nothing = declared.left_out.contains(&"when_unknown");
    let said = if nothing { WhenUnknownSaid::Nothing } else { WhenUnknownSaid::ByPolicy };
    Ok((declared.policy, said))
}

/// What is said of the tool of a route, and easily looked for in the route.
const TOOL_FIELDS: [&str; 11] = [
    "wait_for",
    "replay_for",
    "remember_for",
    "repeat_after",
    "when_unknown",
    "max_retries",
    "key",
    "ignore",
    "idempotent",
    "forwards_key_for",
    "cost",
];

/// Reads a route; `None` where something is wrong with it, which is noted.
pub(super) fn read(
    table: &DeTable<'_>,
    start: usize,
    place: &str,
    policy: &PolicyFile,
    providers: &Providers,
    problems: &mut Problems,
) -> Option<RouteConfig> {
    let required = |name: &str, problems: &mut Problems| {
        let value = table.iter().find(|(known, _)| known.get_ref() == name).map(|(_, value)| value);
        if value.is_none() {
            problems.add(start, place, format!("{name} is missing; a route needs match and upstream"));
        }
        value
    };
    let (pattern, upstream) = (required("match", problems), required("upstream", problems));
    let pattern = pattern.and_then(|value| parsed(value, place, "match", PathPattern::parse, problems));
    let upstream =
        upstream.and_then(|value| parsed(value, place, "upstream", str::parse::<Address>, problems));
    // The other fields are looked at all the same, with a stand-in.
    let whole = pattern.is_some() && upstream.is_some();
    let stand_in = || Some((PathPattern::parse("/**").ok()?, "http://localhost".parse::<Address>().ok()?));
    let (pattern, upstream) = pattern.zip(upstream).or_else(stand_in)?;
    // What the tool declares is looked up at the end, when its name is known.
    let mut route = RouteConfig::new(pattern, upstream, &PolicyFile::empty()).ok()?;
    let mut reading = Reading::default();
    for (name, value) in table {
        let field = name.get_ref().as_ref();
        if !FIELDS.contains(&field) {
            let message = match TOOL_FIELDS.contains(&field) {
                true => format!(
                    "{field} is said of the route's tool: tool = \"NAME\" here, and {field} in [tool.NAME]"
                ),
                false => format!("unknown field {}; {}", quote(field), allowed(field, &FIELDS)),
            };
            problems.add(name.span().start, place, message);
            continue;
        }
        let read = reading.set(&mut route, field, value, providers);
        values::note(read, &format!("{place}.{field}"), problems);
    }
    match policy_of(policy, &route.tool) {
        Ok(declared) => (route.policy, route.when_unknown) = declared,
        Err(message) => problems.add(start, format!("{place}.tool"), message),
    }
    reading.finish(&mut route);
    if route.check.is_some() && route.when_unknown == WhenUnknownSaid::ByPolicy {
        let message =
            "the tool says itself what becomes of an unknown outcome; leave when_unknown out, or check";
        problems.add(start, format!("{place}.check"), message);
    }
    if route.check.as_ref().is_some_and(|check| check.path.names_key())
        && route.policy.forwards_key_for_ms.is_some()
    {
        // It would be asked for a key that it has never seen, and find nothing.
        let message = "the service gets our key in the place of the caller's (forwards_key_for), so it cannot be asked by \
                       {key}; ask by {/pointer} into the body";
        problems.add(start, format!("{place}.check"), message);
    }
    if route.check.is_some() && route.provider.is_some() {
        let message =
            "a provider's key makes a retry harmless where it can be; a route to a provider has no check";
        problems.add(start, format!("{place}.check"), message);
    }
    if route.provider.is_some() && route.dry_run == DryRun::PassOn {
        let message = "no provider understands our dry runs, and would execute them; use \"forecast\"";
        problems.add(start, format!("{place}.dry_run"), message);
    }
    whole.then_some(route)
}

fn parsed<T>(
    value: &Value<'_>,
    place: &str,
    field: &str,
    parse: impl FnOnce(&str) -> Result<T, String>,
    problems: &mut Problems,
) -> Option<T> {
    let read = text(value).and_then(|text| parse(&text).or_else(|message| fault(value, message)));
    match read {
        Ok(parsed) => Some(parsed),
        Err(faults) => {
            values::note(Err(faults), &format!("{place}.{field}"), problems);
            None
        }
    }
}

/// What a route states that has a bearing on its other fields.
#[derive(Default)]
struct Reading {
    require_key: Option<bool>,
    methods_stated: bool,
    prefix_stated: bool,
    forwarded_stated: bool,
}

impl Reading {
    fn set(
        &mut self,
        route: &mut RouteConfig,
        field: &str,
        value: &Value<'_>,
        providers: &Providers,
    ) -> Read<()> {
        match field {
            "methods" => {
                route.methods = values::methods(value)?;
                self.methods_stated = true;
            }
            "require_key" => self.require_key = Some(boolean(value)?),
            "strict_keys" => {
                route.key_form = if boolean(value)? { KeyForm::Quoted } else { KeyForm::Either };
            }
            "tenant" => route.tenant = tenant(value)?,
            "dialect" => route.dialect = one_of(value, &Dialect::ALL.map(|d| (d.as_str(), d)))?,
            "provider" => route.provider = Some(provider(value, providers)?),
            "tool" => {
                let name = text(value)?;
                route.tool = ToolName::parse(&name).or_else(|e| fault(value, e.to_string()))?;
            }
            "strip_prefix" => {
                route.way.strip_prefix = prefix(value)?;
                self.prefix_stated = true;
            }
            "host" => {
                let choices = [("upstream", HostSeen::Upstream), ("client", HostSeen::Client)];
                route.way.host = one_of(value, &choices)?;
            }
            "forwarded" => {
                let choices =
                    [("set", Forwarded::Set), ("append", Forwarded::Append), ("none", Forwarded::Nothing)];
                route.way.forwarded = one_of(value, &choices)?;
                self.forwarded_stated = true;
            }
            "timeout" => route.timeouts.answer = values::positive(value)?,
            "connect_timeout" => route.timeouts.connect = values::positive(value)?,
            "max_body" => route.body_max = values::size(value)?,
            "fingerprint_headers" => route.fingerprint_headers = values::headers(value)?,
            "replay_headers" => route.replay_headers = replayed(value)?,
            "succeeded_on" => route.rules.succeeded_on = values::statuses(value)?,
            "final_on" => route.rules.final_on = values::statuses(value)?,
            "rejected_on" => route.rules.rejected_on = values::statuses(value)?,
            "unknown_on" => route.rules.unknown_on = values::statuses(value)?,
            "check" => route.check = Some(check::check(value)?),
            "dry_run" => {
                let choices = [("forecast", DryRun::Forecast), ("upstream", DryRun::PassOn)];
                route.dry_run = one_of(value, &choices)?;
            }
            _ => {}
        }
        Ok(())
    }

    /// What follows from the rest: a provider is usually reached under a path of ours that it does not know.
    fn finish(&self, route: &mut RouteConfig) {
        route.policy.require_key = self.require_key.unwrap_or(route.policy.require_key);
        if route.check.is_some() {
            route.policy.when_unknown = WhenUnknown::Check;
        }
        let Some(provider) = &route.provider else { return };
        if !self.prefix_stated {
            route.way.strip_prefix = route.pattern.literal_prefix();
        }
        if !self.forwarded_stated {
            route.way.forwarded = Forwarded::Nothing;
        }
        if !self.methods_stated && provider.takes_key() {
            let all = [Method::POST, Method::PUT, Method::PATCH, Method::DELETE];
            let taken = all.into_iter().filter(|m| *m == Method::POST || provider.applies_to(m.as_str()));
            route.methods = taken.collect();
        }
    }
}

fn replayed(value: &Value<'_>) -> Read<Vec<HeaderName>> {
    let headers = values::headers(value)?;
    match headers.iter().find(|name| !may_be_replayed(name)) {
        Some(name) => fault(
            value,
            format!("{name} is never replayed: it speaks of one exchange, one connection or one person"),
        ),
        None => Ok(headers),
    }
}

fn prefix(value: &Value<'_>) -> Read<String> {
    match value.get_ref().as_str() {
        Some("") => Ok(String::new()),
        Some(text) if text.starts_with('/') && !text.ends_with('/') => Ok(text.to_owned()),
        _ => fault(value, "must be a path such as \"/stripe\", or empty"),
    }
}

fn provider(value: &Value<'_>, providers: &Providers) -> Read<Arc<Provider>> {
    let name = text(value)?;
    if let Some(provider) = providers.get(&name) {
        return Ok(Arc::new(provider.clone()));
    }
    let similar = providers.similar(&name);
    let hint =
        if similar.is_empty() { String::new() } else { format!("did you mean {}? ", similar.join(" or ")) };
    fault(value, format!("{} is not known; {hint}oncely providers lists them", quote(&name)))
}

/// `"authorization"`, `"none"`, `{ header = "X-Tenant" }` or `{ jwt = "sub", verified = true }`.
fn tenant(value: &Value<'_>) -> Read<Tenant> {
    const EXPECTED: &str =
        "\"authorization\", \"none\", { header = \"X-Tenant\" } or { jwt = \"sub\", verified = true }";
    if value.get_ref().as_str().is_some() {
        return one_of(value, &[("authorization", ()), ("none", ())]).map(|()| {
            match value.get_ref().as_str() {
                Some("none") => Tenant::One,
                _ => Tenant::Authorization,
            }
        });
    }
    let Some(table) = value.get_ref().as_table() else { return wrong_type(value, EXPECTED) };
    let (mut header, mut claim, mut verified) = (None, None, false);
    for (name, item) in table {
        match name.get_ref().as_ref() {
            "header" => header = Some(values::header(item)?),
            "jwt" => claim = Some(text(item)?),
            "verified" => verified = boolean(item)?,
            other => {
                let known = allowed(other, &["header", "jwt", "verified"]);
                return fault(item, format!("unknown field {}; {known}", quote(other)));
            }
        }
    }
    match (header, claim) {
        (Some(header), None) => Ok(Tenant::Header(header)),
        (None, Some(claim)) if verified => Ok(Tenant::VerifiedClaim(claim)),
        (None, Some(_)) => fault(
            value,
            "the signature of the token is not checked here, so anybody could claim to be anybody and see their \
             stored answers; where something in front has checked it, say so: { jwt = \"sub\", verified = true }",
        ),
        _ => wrong_type(value, EXPECTED),
    }
}
