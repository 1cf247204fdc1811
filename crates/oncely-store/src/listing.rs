//! What a filter says of the ids that it can accept, for ledgers that look records up by them.

use oncely_core::{Filter, IntentId, IntentName, Key, Scope, ToolName};

/// The one id that a filter can accept if it gives the whole name.
pub(crate) fn exact_intent(filter: &Filter) -> Option<IntentId> {
    let scope = filter.scope.as_deref()?;
    let tool = filter.tool.as_deref().filter(|tool| !tool.contains('*'))?;
    let name = IntentName {
        namespace: filter.namespace.clone()?,
        scope: if scope.is_empty() { Scope::none() } else { Scope::parse(scope).ok()? },
        tool: ToolName::parse(tool).ok()?,
        key: Key::from_stored(filter.key.as_deref()?).ok()?,
    };
    Some(name.intent_id())
}

/// The first and the last id that begins with these digits.
pub(crate) fn id_range(prefix: &str) -> Option<(IntentId, IntentId)> {
    let bound = |fill: char| {
        let digits: String = prefix.chars().chain(std::iter::repeat(fill)).take(64).collect();
        IntentId::parse(&digits)
    };
    Some((bound('0')?, bound('f')?))
}
