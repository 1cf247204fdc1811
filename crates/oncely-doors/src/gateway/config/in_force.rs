//! The policies in force on a route: what its tool declares, and what its provider, its tenants and the route itself make of it.

use http::Method;
use http::header::AUTHORIZATION;
use oncely::tower::Tenant;
use oncely_core::{Policy, WhenUnknown};

use super::RouteConfig;
use crate::gateway::guarded::key_field;

/// What holds for the guarded requests of a route.
#[derive(Debug, Clone, PartialEq)]
pub struct InForce {
    /// The methods of requests with which the provider gets our key.
    pub takes_key: Vec<Method>,
    /// What holds for these.
    pub keyed: Policy,
    /// What holds for the other guarded requests.
    pub plain: Policy,
    /// Whether the credential is a part of what a request with our key means.
    pub compares_credential: bool,
}

impl RouteConfig {
    /// The policies in force, as requests meet them.
    pub fn in_force(&self) -> InForce {
        let (mut keyed, mut plain) = (self.policy.clone(), self.policy.clone());
        let Some(provider) = &self.provider else {
            return InForce { takes_key: Vec::new(), keyed, plain, compares_credential: false };
        };
        provider.adjust(&mut keyed, self.when_unknown);
        keyed.ignore.extend(key_field(provider));
        // Such a provider takes our key for a new one when it comes with another credential, so a retry is harmless only with
        // the same. Where tenants are told apart by it, another credential is another intent anyway.
        let retries = keyed.when_unknown == WhenUnknown::Retry && !keyed.idempotent;
        let compares_credential = provider.per_credential && retries && !by_credential(&self.tenant);
        // A key that is derived from the request would be another one with another credential, and the retry would run: only a
        // caller's own key shows that it is the same intent.
        keyed.require_key |= compares_credential;
        // The provider takes no key for the others: whatever the tool declares, a retry is not harmless.
        plain.forwards_key_for_ms = None;
        if plain.when_unknown == WhenUnknown::Retry && !plain.idempotent {
            plain.when_unknown = WhenUnknown::Halt;
        }
        let takes_key = self.methods.iter().filter(|m| provider.applies_to(m.as_str())).cloned().collect();
        InForce { takes_key, keyed, plain, compares_credential }
    }
}

/// Whether another `Authorization` is another tenant.
fn by_credential(tenant: &Tenant) -> bool {
    match tenant {
        Tenant::Authorization => true,
        Tenant::Header(name) => *name == AUTHORIZATION,
        Tenant::VerifiedClaim(_) | Tenant::One => false,
    }
}

#[cfg(test)]
mod tests {
    use oncely::policy_file::PolicyFile;
    use oncely_core::WhenUnknown;

    use crate::gateway::config::GatewayConfig;
    use crate::providers::Providers;

    #[test]
    fn a_credential_counts_only_where_a_retry_with_another_one_would_do_harm() {
        const HEADER: &str = "tenant = { header = \"X-Tenant\" }";
        for (provider, route, compared, when_unknown) in [
            ("modern-treasury", HEADER, true, WhenUnknown::Retry),
            ("modern-treasury", "tenant = \"none\"", true, WhenUnknown::Retry),
            // Another credential is another tenant, and so another intent.
            ("modern-treasury", "", false, WhenUnknown::Retry),
            ("modern-treasury", "tenant = { header = \"Authorization\" }", false, WhenUnknown::Retry),
            // Nothing is retried.
            (
                "modern-treasury",
                &format!("{HEADER}\n[tool.pay]\nwhen_unknown = \"halt\""),
                false,
                WhenUnknown::Halt,
            ),
            ("svix", HEADER, false, WhenUnknown::Halt),
            // The account remembers.
            ("stripe", HEADER, false, WhenUnknown::Retry),
        ] {
            let text = format!(
                "[[route]]\nmatch = \"/**\"\nupstream = \"http://a\"\ntool = \"pay\"\nprovider = \"{provider}\"\n{route}\n"
            );
            let policy = PolicyFile::parse(&text, "o.toml").unwrap();
            let config = GatewayConfig::parse(&text, "o.toml", &policy, Providers::builtin()).unwrap();
            let in_force = config.routes[0].in_force();
            assert_eq!(in_force.compares_credential, compared, "{text}");
            assert_eq!(in_force.keyed.require_key, compared, "{text}");
            assert_eq!(in_force.keyed.when_unknown, when_unknown, "{text}");
            assert!(!in_force.plain.require_key, "{text}");
        }
    }
}
