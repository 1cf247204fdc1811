//! What a command would do: the answer of a dry run.

use oncely::Effect;
use serde::Serialize;
use serde_json::Value;

use crate::answer::Failure;

/// What a plan returns: `None` where a command has none; the framework then says what it knows.
pub type Planned = Result<Option<Plan>, Failure>;

/// What a command would do; made by [`would_create`] and its siblings.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    pub(crate) effect: Effect,
    pub(crate) changes: Vec<Value>,
    pub(crate) reason: Option<String>,
}

/// Something new would exist.
pub fn would_create() -> Plan {
    plan(Effect::Created)
}

/// Something would change.
pub fn would_update() -> Plan {
    plan(Effect::Updated)
}

/// Something would be gone.
pub fn would_delete() -> Plan {
    plan(Effect::Deleted)
}

/// A message would leave.
pub fn would_send() -> Plan {
    plan(Effect::Sent)
}

/// Something would run.
pub fn would_execute() -> Plan {
    plan(Effect::Executed)
}

/// Nothing would change, and why.
pub fn would_noop(reason: impl Into<String>) -> Plan {
    Plan { reason: Some(reason.into()), ..plan(Effect::Noop) }
}

fn plan(effect: Effect) -> Plan {
    Plan { effect, changes: Vec::new(), reason: None }
}

impl Plan {
    /// Adds one thing that would change.
    ///
    /// ```
    /// let plan = oncely_clap::would_create().change("order for cust_1");
    /// ```
    pub fn change(mut self, change: impl Serialize) -> Self {
        let change = serde_json::to_value(change).unwrap_or_else(|e| format!("has no JSON form: {e}").into());
        self.changes.push(change);
        self
    }
}

/// So that a plan ends with `.into()`.
impl From<Plan> for Planned {
    fn from(plan: Plan) -> Self {
        Ok(Some(plan))
    }
}
