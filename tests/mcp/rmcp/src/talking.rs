//! The tools that answer at once, or talk to the client while they are at work.

use std::time::Duration;

use rmcp::model::{CallToolResponse, CallToolResult, ErrorCode};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer};
use serde_json::{Value, json};

use crate::answers::{embedded, form, image, said, text, typed, unknown, whole};

const WAV: &str = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQAAAAA=";
const TICK: Duration = Duration::from_millis(50);
/// All tools of the server, those of the other modules included.
pub const TOOLS: &[&str] = &[
    "test_simple_text",
    "test_image_content",
    "test_audio_content",
    "test_embedded_resource",
    "test_multiple_content_types",
    "test_error_handling",
    "json_schema_2020_12_tool",
    "test_tool_with_logging",
    "test_tool_with_progress",
    "test_sampling",
    "test_elicitation",
    "test_elicitation_sep1034_defaults",
    "test_elicitation_sep1330_enums",
    "test_custom_headers",
    "test_missing_capability",
    "test_streaming_elicitation",
    "test_logging_tool",
    "test_input_required_result_elicitation",
    "test_input_required_result_sampling",
    "test_input_required_result_list_roots",
    "test_input_required_result_request_state",
    "test_input_required_result_tampered_state",
    "test_input_required_result_multiple_inputs",
    "test_input_required_result_multi_round",
    "test_input_required_result_capabilities",
    "test_reconnection",
    "greet",
    "slow_compute",
    "failing_job",
    "protocol_error_job",
    "confirm_delete",
    "multi_input",
    "test_tool_with_task",
];

/// Tools that answer at once.
fn plain(tool: &str) -> Option<Value> {
    let content = match tool {
        "test_simple_text" => json!([text("This is a simple text response for testing.")]),
        "test_image_content" => json!([image()]),
        "test_audio_content" => json!([{ "type": "audio", "data": WAV, "mimeType": "audio/wav" }]),
        "test_embedded_resource" => json!([embedded(
            "test://embedded-resource",
            "text/plain",
            "This is an embedded resource content."
        )]),
        "test_multiple_content_types" => json!([
            text("Multiple content types test:"),
            image(),
            embedded("test://mixed-content-resource", "application/json", r#"{"test":"data","value":123}"#),
        ]),
        "test_error_handling" => json!([text("This tool intentionally returns an error for testing")]),
        "json_schema_2020_12_tool" => json!([text("valid")]),
        "test_custom_headers" => json!([text("the headers fit the arguments")]),
        _ => return None,
    };
    Some(json!({ "content": content, "isError": tool == "test_error_handling" }))
}

async fn elicited(context: &RequestContext<RoleServer>, form: Value) -> Result<CallToolResponse, ErrorData> {
    let got = context.peer.create_elicitation(typed(form)?).await;
    let got = got.map_err(|e| ErrorData::internal_error(e.to_string(), None))?;
    let (action, content) = (json!(got.action), json!(got.content));
    said(&[text(format!("Elicitation completed: action={action}, content={content}"))])
}

async fn sampled(context: &RequestContext<RoleServer>, prompt: &str) -> Result<CallToolResponse, ErrorData> {
    let messages = json!([{ "role": "user", "content": text(prompt) }]);
    let asked = typed(json!({ "messages": messages, "maxTokens": 100 }))?;
    let got = context.peer.create_message(asked).await;
    let got = json!(got.map_err(|e| ErrorData::internal_error(e.to_string(), None))?);
    let words = got["content"]["text"].as_str().or(got["content"][0]["text"].as_str()).unwrap_or_default();
    said(&[text(format!("LLM response: {words}"))])
}

async fn logged(context: &RequestContext<RoleServer>) -> Result<CallToolResponse, ErrorData> {
    // Where every request describes itself, it also says whether it wants to hear of this.
    if context.meta.protocol_version().is_some() && context.meta.log_level().is_none() {
        return said(&[text("not logged")]);
    }
    for words in ["Tool execution started", "Tool processing data", "Tool execution completed"] {
        // A client that has gone needs no word of it.
        let _ = context.peer.notify_logging_message(typed(json!({ "level": "info", "data": words }))?).await;
        tokio::time::sleep(TICK).await;
    }
    said(&[text("logged")])
}

async fn progressed(context: &RequestContext<RoleServer>) -> Result<CallToolResponse, ErrorData> {
    let token = context.meta.get_progress_token();
    for done in [0, 50, 100] {
        if let Some(token) = &token {
            let notice = json!({ "progressToken": token, "progress": done, "total": 100 });
            // A client that has gone needs no word of it.
            let _ = context.peer.notify_progress(typed(notice)?).await;
        }
        tokio::time::sleep(TICK).await;
    }
    said(&[text("progressed")])
}

/// What the tool of this name answers.
pub async fn answer(
    tool: &str,
    arguments: &Value,
    context: &RequestContext<RoleServer>,
) -> Result<CallToolResponse, ErrorData> {
    if let Some(result) = plain(tool) {
        return Ok(whole::<CallToolResult>(result)?.into());
    }
    let argument = |name: &str| arguments[name].as_str().unwrap_or_default().to_owned();
    let string = json!({ "type": "string" });
    match tool {
        "test_tool_with_logging" | "test_logging_tool" => logged(context).await,
        "test_tool_with_progress" => progressed(context).await,
        "test_sampling" => sampled(context, &argument("prompt")).await,
        "test_elicitation" => {
            let fields = json!({ "username": string, "email": string });
            elicited(context, form(&argument("message"), fields, &["username", "email"])).await
        }
        "test_elicitation_sep1034_defaults" => {
            let fields = json!({
                "name": { "type": "string", "default": "John Doe" },
                "age": { "type": "integer", "default": 30 },
                "score": { "type": "number", "default": 95.5 },
                "status": { "type": "string", "enum": ["active", "inactive", "pending"], "default": "active" },
                "verified": { "type": "boolean", "default": true },
            });
            elicited(context, form("Defaults", fields, &[])).await
        }
        "test_elicitation_sep1330_enums" => {
            let options = json!(["option1", "option2", "option3"]);
            let titled = json!([
                { "const": "value1", "title": "First Option" },
                { "const": "value2", "title": "Second Option" },
            ]);
            let fields = json!({
                "untitledSingle": { "type": "string", "enum": options },
                "titledSingle": { "type": "string", "oneOf": titled },
                "legacyEnum": { "type": "string", "enum": ["opt1", "opt2", "opt3"],
                    "enumNames": ["Option One", "Option Two", "Option Three"] },
                "untitledMulti": { "type": "array", "items": { "type": "string", "enum": options } },
                "titledMulti": { "type": "array", "items": { "anyOf": titled } },
            });
            elicited(context, form("Enums", fields, &[])).await
        }
        "test_missing_capability" => {
            if context.client_capabilities().is_some_and(|able| able.sampling.is_some()) {
                return said(&[text("sampling is declared")]);
            }
            let needed = json!({ "requiredCapabilities": { "sampling": {} } });
            let code = ErrorCode::MISSING_REQUIRED_CLIENT_CAPABILITY;
            Err(ErrorData::new(code, "sampling is needed", Some(needed)))
        }
        "greet" => said(&[text(format!("Hello, {}!", argument("name")))]),
        "test_reconnection" => {
            tokio::time::sleep(2 * TICK).await;
            said(&[text("The answer took its time")])
        }
        name => Err(unknown("tool", name)),
    }
}
