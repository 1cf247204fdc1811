//! What a command declares about its effect, and the policy that follows.

use std::time::Duration;

use oncely::{Effect, Policy};
use oncely_core::WhenUnknown;
use oncely_core::policy::PolicyError;
use oncely_core::select::Selector;

/// How dangerous a command is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Danger {
    /// It changes nothing.
    Safe,
    /// It changes something.
    Mutating,
    /// It destroys something: it wants a confirmation.
    Destructive,
}

impl Danger {
    /// The word used everywhere.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Safe => "safe",
            Self::Mutating => "mutating",
            Self::Destructive => "destructive",
        }
    }
}

/// Where the key of a call comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum KeyRule {
    /// From the caller, or else derived from command, arguments and session.
    Derived,
    /// From the caller, always.
    Required,
}

/// How a command stays safe to retry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Strategy {
    /// By its key alone; an unknown outcome stops a retry until somebody has looked.
    Key,
    /// [`Handler::check`](crate::Handler::check) is asked before acting and about an unknown outcome.
    Check,
    /// Running it again is harmless.
    Idempotent,
    /// It hands our key to something that de-duplicates by it.
    ForwardsKey,
}

impl Strategy {
    /// The word used in the manifest.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Key => "key",
            Self::Check => "check_then_act",
            Self::Idempotent => "upsert",
            Self::ForwardsKey => "forwards_key",
        }
    }
}

/// What a command declares. Begin with what it does: [`creates`](Self::creates), [`updates`](Self::updates), …
///
/// ```
/// use oncely_clap::Declaration;
/// let careful = Declaration::creates().check_first().key_from(["customer", "amount"]);
/// ```
#[derive(Debug, Clone)]
pub struct Declaration {
    policy: Policy,
    also: Vec<Effect>,
    strategy: Strategy,
    key_rule: Option<KeyRule>,
    key_from: Vec<String>,
    ignored: Vec<String>,
}

impl Declaration {
    /// It makes something new.
    pub fn creates() -> Self {
        Self::of(Effect::Created)
    }

    /// It changes something.
    pub fn updates() -> Self {
        Self::of(Effect::Updated)
    }

    /// It removes something.
    pub fn deletes() -> Self {
        Self::of(Effect::Deleted)
    }

    /// It sends a message.
    pub fn sends() -> Self {
        Self::of(Effect::Sent)
    }

    /// It runs something.
    pub fn executes() -> Self {
        Self::of(Effect::Executed)
    }

    fn of(effect: Effect) -> Self {
        Self {
            policy: Policy { effect, ..Policy::default() },
            also: Vec::new(),
            strategy: Strategy::Key,
            key_rule: None,
            key_from: Vec::new(),
            ignored: Vec::new(),
        }
    }

    /// It can also have this effect.
    pub fn or(mut self, effect: Effect) -> Self {
        self.also.push(effect);
        self
    }

    /// Running it again is harmless, also if somebody else has changed things meanwhile: after an unknown outcome a retry
    /// runs. Setting a state that others set, too, is not: use [`check_first`](Self::check_first) there.
    pub fn idempotent(mut self) -> Self {
        self.policy.idempotent = true;
        self.policy.when_unknown = WhenUnknown::Retry;
        self.strategy = Strategy::Idempotent;
        self
    }

    /// [`Handler::check`](crate::Handler::check) tells whether it has happened: asked before acting, and about an unknown
    /// outcome.
    pub fn check_first(mut self) -> Self {
        self.policy.when_unknown = WhenUnknown::Check;
        self.strategy = Strategy::Check;
        self
    }

    /// The handler passes [`Cx::downstream_key`](crate::Cx::downstream_key) to something that de-duplicates by it for this
    /// long: after an unknown outcome a retry within that time runs.
    pub fn forwards_key_for(mut self, kept: Duration) -> Self {
        self.policy.forwards_key_for_ms = Some(millis(kept));
        self.policy.when_unknown = WhenUnknown::Retry;
        self.strategy = Strategy::ForwardsKey;
        self
    }

    /// How many more attempts there may be after the first. With 0, a second call is refused.
    pub fn max_retries(mut self, retries: u32) -> Self {
        self.policy.max_retries = retries;
        self
    }

    /// How long a call waits for a running attempt at the same intent.
    pub fn wait_for(mut self, duration: Duration) -> Self {
        self.policy.wait_for_ms = millis(duration);
        self
    }

    /// How long the result is kept for replays, and how long the bare key is.
    pub fn keep(mut self, replay_for: Duration, remember_for: Duration) -> Self {
        self.policy.retention.replay_for_ms = millis(replay_for);
        self.policy.retention.remember_for_ms = millis(remember_for);
        self
    }

    /// For how long two equal calls without a key and a session are one intent.
    pub fn repeat_after(mut self, duration: Duration) -> Self {
        self.policy.repeat_after_ms = millis(duration);
        self
    }

    /// The arguments (by their clap ids) that identify the intent where the caller gives no key. Those of the commands
    /// above and global ones are part of it by themselves, unless they are ignored.
    pub fn key_from<const N: usize>(mut self, arguments: [&str; N]) -> Self {
        self.key_from = arguments.map(str::to_owned).to_vec();
        self
    }

    /// The arguments (by their clap ids) that never matter to the intent: a note, a verbosity.
    pub fn ignore<const N: usize>(mut self, arguments: [&str; N]) -> Self {
        self.ignored = arguments.map(str::to_owned).to_vec();
        self
    }

    /// A call without a key is refused.
    pub fn require_key(mut self) -> Self {
        self.key_rule = Some(KeyRule::Required);
        self
    }

    /// A call without a key gets one derived, even in a program that [requires keys](crate::Runner::require_keys).
    pub fn derive_key(mut self) -> Self {
        self.key_rule = Some(KeyRule::Derived);
        self
    }

    /// Where keys come from, given what the program says.
    pub(crate) fn key_rule(&self, of_program: KeyRule) -> KeyRule {
        self.key_rule.unwrap_or(of_program)
    }

    pub(crate) fn strategy(&self) -> Strategy {
        self.strategy
    }

    /// The arguments that are named, with what names them.
    pub(crate) fn named_arguments(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let key = self.key_from.iter().map(|id| ("key_from", id.as_str()));
        key.chain(self.ignored.iter().map(|id| ("ignore", id.as_str())))
    }

    pub(crate) fn key_from_arguments(&self) -> &[String] {
        &self.key_from
    }

    pub(crate) fn ignored_arguments(&self) -> &[String] {
        &self.ignored
    }

    /// Everything that an answer can name as its effect.
    pub(crate) fn effects(&self) -> Vec<Effect> {
        let mut effects = vec![self.policy.effect];
        for effect in self.also.iter().copied().chain([Effect::Noop]) {
            if !effects.contains(&effect) {
                effects.push(effect);
            }
        }
        effects
    }

    /// The policy without the fields of the payload, which need not be parsed to know the rest.
    pub(crate) fn bare_policy(&self) -> &Policy {
        &self.policy
    }

    /// The engine's policy, checked. `around` are arguments that are not the command's own: they are part of every
    /// intent, unless they are ignored by the command or by the program.
    pub(crate) fn policy(&self, of_program: &Terms, around: &[String]) -> Result<Policy, PolicyError> {
        let select = |field, ids: &[String]| -> Result<Vec<Selector>, PolicyError> {
            let pointer = |id: &String| format!("/{}", id.replace('~', "~0").replace('/', "~1"));
            let parse = |id| Selector::parse(&pointer(id)).map_err(|message| PolicyError { field, message });
            ids.iter().map(parse).collect()
        };
        let ignored = [self.ignored.as_slice(), &of_program.ignored].concat();
        let mut key_from = self.key_from.clone();
        if !key_from.is_empty() {
            key_from.extend(around.iter().filter(|id| !ignored.contains(id)).cloned());
        }
        let policy = Policy {
            key: select("key", &key_from)?,
            ignore: select("ignore", &ignored)?,
            require_key: self.key_rule(of_program.keys) == KeyRule::Required,
            ..self.policy.clone()
        };
        policy.validate()?;
        Ok(policy)
    }
}

/// What holds for all commands of a program.
#[derive(Debug, Clone)]
pub(crate) struct Terms {
    pub(crate) keys: KeyRule,
    pub(crate) ignored: Vec<String>,
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use oncely::Effect;
    use oncely_core::WhenUnknown;

    use super::{Declaration, KeyRule, Terms};

    #[test]
    fn what_is_declared_is_what_the_engine_is_told() {
        let terms = |keys| Terms { keys, ignored: vec!["verbose".to_owned()] };
        let around = ["region", "verbose", "note"].map(str::to_owned);
        let declared = Declaration::updates()
            .or(Effect::Created)
            .forwards_key_for(Duration::from_secs(60))
            .max_retries(0)
            .wait_for(Duration::from_secs(2))
            .keep(Duration::from_secs(3), Duration::from_secs(4))
            .repeat_after(Duration::from_secs(1))
            .key_from(["a/b", "c~d"])
            .ignore(["note"]);
        let policy = declared.policy(&terms(KeyRule::Derived), &around).unwrap();
        assert_eq!((policy.effect, policy.when_unknown), (Effect::Updated, WhenUnknown::Retry));
        assert_eq!((policy.forwards_key_for_ms, policy.idempotent), (Some(60_000), false));
        assert_eq!((policy.max_retries, policy.wait_for_ms, policy.repeat_after_ms), (0, 2_000, 1_000));
        assert_eq!((policy.retention.replay_for_ms, policy.retention.remember_for_ms), (3_000, 4_000));
        // An id is one name, whatever is in it.
        assert_eq!(
            policy.key.iter().map(ToString::to_string).collect::<Vec<_>>(),
            ["/a~1b", "/c~0d", "/region"]
        );
        assert_eq!(policy.ignore.iter().map(ToString::to_string).collect::<Vec<_>>(), ["/note", "/verbose"]);
        assert_eq!(declared.effects(), [Effect::Updated, Effect::Created, Effect::Noop]);
        assert!(!policy.require_key && declared.policy(&terms(KeyRule::Required), &[]).unwrap().require_key);
        assert!(declared.clone().require_key().policy(&terms(KeyRule::Derived), &[]).unwrap().require_key);
        assert!(!declared.derive_key().policy(&terms(KeyRule::Required), &[]).unwrap().require_key);
        let check = Declaration::sends().check_first().policy(&terms(KeyRule::Derived), &[]).unwrap();
        assert_eq!(check.when_unknown, WhenUnknown::Check);
        let upsert = Declaration::executes().idempotent().policy(&terms(KeyRule::Derived), &[]).unwrap();
        assert!(upsert.idempotent && upsert.when_unknown == WhenUnknown::Retry);
        let careful = Declaration::deletes().policy(&terms(KeyRule::Derived), &[]).unwrap();
        assert!(!careful.idempotent && careful.when_unknown == WhenUnknown::Halt);
        let bad = Declaration::creates().keep(Duration::from_secs(9), Duration::from_secs(1));
        assert_eq!(bad.policy(&terms(KeyRule::Derived), &[]).unwrap_err().field, "replay_for");
    }
}
