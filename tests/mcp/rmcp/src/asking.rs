//! Tools and prompts that ask the client for something before they answer, in the era in which the answer itself asks.

use std::sync::LazyLock;

use rmcp::model::{CallToolResponse, InputRequiredResult, InputResponses, RequestStateCodec};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer};
use serde_json::{Map, Value, json};

use crate::answers::{form, said, text, typed};

/// The key is no secret: what counts is that a state which was changed on its way is noticed.
static STATES: LazyLock<RequestStateCodec> =
    LazyLock::new(|| RequestStateCodec::new(*b"conformance-conformance-conforma"));

/// What a call brings with it of an earlier round.
pub struct Round {
    given: InputResponses,
    state: Option<String>,
}

impl Round {
    /// Refuses a state that is not as it was given out.
    pub fn new(given: Option<InputResponses>, sealed: Option<&str>) -> Result<Self, ErrorData> {
        let opened = sealed.map(|sealed| STATES.open(sealed)).transpose();
        let opened =
            opened.map_err(|e| ErrorData::invalid_params(format!("the state was changed: {e}"), None))?;
        let state = opened.map(|state| String::from_utf8_lossy(&state).into_owned());
        Ok(Self { given: given.unwrap_or_default(), state })
    }

    fn has(&self, key: &str) -> bool {
        self.given.contains_key(key)
    }

    fn is_after(&self, state: &str) -> bool {
        self.state.as_deref() == Some(state)
    }

    /// What a person typed into a form, if there is such an answer and it is a text.
    pub fn filled_in(&self, key: &str, field: &str) -> Option<&str> {
        self.given.get(key)?.get("content")?.get(field)?.as_str()
    }
}

/// Asks for one text.
pub fn question(message: &str, field: &str) -> Value {
    let form = form(message, json!({ field: { "type": "string" } }), &[field]);
    json!({ "method": "elicitation/create", "params": form })
}

fn sampling(words: &str, tokens: u32) -> Value {
    let messages = json!([{ "role": "user", "content": text(words) }]);
    json!({ "method": "sampling/createMessage", "params": { "messages": messages, "maxTokens": tokens } })
}

fn roots() -> Value {
    json!({ "method": "roots/list", "params": {} })
}

/// An answer that asks, and what the client is to send along with its own.
pub fn asked(requests: Value, state: Option<&str>) -> Result<InputRequiredResult, ErrorData> {
    let mut result = json!({ "resultType": "input_required", "inputRequests": requests });
    if let Some(state) = state {
        result["requestState"] = STATES.seal(state.as_bytes()).into();
    }
    typed(result)
}

/// Asks for those that have not been answered.
fn missing(requests: Value, round: &Round, state: Option<&str>) -> Result<CallToolResponse, ErrorData> {
    let Value::Object(requests) = requests else {
        return Err(ErrorData::internal_error("no requests", None));
    };
    let left: Map<String, Value> = requests.into_iter().filter(|(key, _)| !round.has(key)).collect();
    if left.is_empty() { said(&[text("nothing left to ask")]) } else { Ok(asked(left.into(), state)?.into()) }
}

/// What the tool of this name makes of a round; `None` if it is none of these.
pub fn answer(
    tool: &str,
    round: &Round,
    context: &RequestContext<RoleServer>,
) -> Option<Result<CallToolResponse, ErrorData>> {
    let name = || question("What is your name?", "name");
    let greeting = || sampling("Generate a greeting", 50);
    Some(match tool {
        "test_streaming_elicitation" => asked(json!({ "user_name": name() }), None).map(Into::into),
        "test_input_required_result_elicitation" => match round.filled_in("user_name", "name") {
            Some(name) => said(&[text(format!("Hello, {name}!"))]),
            None => asked(json!({ "user_name": name() }), None).map(Into::into),
        },
        "test_input_required_result_sampling" => missing(
            json!({ "capital_question": sampling("What is the capital of France?", 100) }),
            round,
            None,
        ),
        "test_input_required_result_list_roots" => missing(json!({ "client_roots": roots() }), round, None),
        "test_input_required_result_request_state" | "test_input_required_result_tampered_state" => {
            if round.is_after("asked") && round.has("confirm") {
                return Some(said(&[text("state-ok")]));
            }
            let form = form("Please confirm", json!({ "ok": { "type": "boolean" } }), &["ok"]);
            let confirm = json!({ "confirm": { "method": "elicitation/create", "params": form } });
            asked(confirm, Some("asked")).map(Into::into)
        }
        "test_input_required_result_multiple_inputs" => {
            let all = json!({ "user_name": name(), "greeting": greeting(), "client_roots": roots() });
            missing(all, round, Some("asked"))
        }
        "test_input_required_result_multi_round" => {
            if round.is_after("two") && round.has("step2") {
                return Some(said(&[text("both steps answered")]));
            }
            let (step, state) = if round.is_after("one") && round.has("step1") {
                (json!({ "step2": question("Step 2: What is your favorite color?", "color") }), "two")
            } else {
                (json!({ "step1": question("Step 1: What is your name?", "name") }), "one")
            };
            asked(step, Some(state)).map(Into::into)
        }
        "test_input_required_result_capabilities" => {
            let able = context.client_capabilities().unwrap_or_default();
            let mut all = json!({});
            if able.elicitation.is_some() {
                all["user_name"] = name();
            }
            if able.sampling.is_some() {
                all["greeting"] = greeting();
            }
            missing(all, round, None)
        }
        _ => return None,
    })
}
