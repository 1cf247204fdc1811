//! The server that the conformance suite asks for, on the Rust SDK, both protocol eras: `server reads|writes`.
//!
//! The suite names the tools, prompts and resources, and says what each must answer. With `reads` every tool says of
//! itself that it only reads, so that a proxy passes all calls through; with `writes` none says anything, and all are
//! guarded. The server prints its address. What it answers is written as JSON, as the suite has it; the SDK reads it into
//! its own types and writes it again.

// Logging and sampling are on their way out of the protocol, and still part of it.
#![allow(deprecated)]

mod answers;

use std::time::Duration;

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, CompleteRequestParams, CompleteResult,
    GetPromptRequestParams, GetPromptResponse, GetPromptResult, ListPromptsResult,
    ListResourceTemplatesResult, ListResourcesResult, ListToolsResult, PaginatedRequestParams,
    ReadResourceRequestParams, ReadResourceResponse, ReadResourceResult, ServerConfig, SetLevelRequestParams,
    SubscribeRequestParams, UnsubscribeRequestParams,
};
use rmcp::service::RequestContext;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde_json::{Value, json};

use answers::{PNG, asked, embedded, form, image, said, schema, text, typed, unknown};

const WAV: &str = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQAAAAA=";
const TICK: Duration = Duration::from_millis(50);
const TOOLS: [&str; 15] = [
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
    "test_input_required_result_elicitation",
    "test_input_required_result_request_state",
    "test_reconnection",
];

#[derive(Clone)]
struct Server {
    /// What every tool says of itself.
    annotations: Value,
}

impl Server {
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
                embedded(
                    "test://mixed-content-resource",
                    "application/json",
                    r#"{"test":"data","value":123}"#
                ),
            ]),
            "test_error_handling" => json!([text("This tool intentionally returns an error for testing")]),
            "json_schema_2020_12_tool" => json!([text("valid")]),
            _ => return None,
        };
        Some(json!({ "content": content, "isError": tool == "test_error_handling" }))
    }

    async fn elicited(
        context: &RequestContext<RoleServer>,
        form: Value,
    ) -> Result<CallToolResponse, ErrorData> {
        let got = context.peer.create_elicitation(typed(form)?).await;
        let got = got.map_err(|e| ErrorData::internal_error(e.to_string(), None))?;
        let (action, content) = (json!(got.action), json!(got.content));
        said(&[text(format!("Elicitation completed: action={action}, content={content}"))])
    }

    async fn sampled(
        context: &RequestContext<RoleServer>,
        prompt: &str,
    ) -> Result<CallToolResponse, ErrorData> {
        let messages = json!([{ "role": "user", "content": text(prompt) }]);
        let asked = typed(json!({ "messages": messages, "maxTokens": 100 }))?;
        let got = context.peer.create_message(asked).await;
        let got = json!(got.map_err(|e| ErrorData::internal_error(e.to_string(), None))?);
        let words =
            got["content"]["text"].as_str().or(got["content"][0]["text"].as_str()).unwrap_or_default();
        said(&[text(format!("LLM response: {words}"))])
    }

    async fn logged(context: &RequestContext<RoleServer>) -> Result<CallToolResponse, ErrorData> {
        for words in ["Tool execution started", "Tool processing data", "Tool execution completed"] {
            // A client that has gone needs no word of it.
            let _ =
                context.peer.notify_logging_message(typed(json!({ "level": "info", "data": words }))?).await;
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
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        let capabilities = json!({ "tools": {}, "prompts": {}, "resources": { "subscribe": true }, "logging": {},
            "completions": {} });
        let info = json!({ "protocolVersion": "2025-11-25", "capabilities": capabilities,
            "serverInfo": { "name": "conformance", "version": "0" } });
        typed(info).unwrap_or_default()
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let listed = TOOLS.map(|name| {
            let mut tool =
                json!({ "name": name, "description": name.replace('_', " "), "inputSchema": schema(name) });
            if !self.annotations.is_null() {
                tool["annotations"] = self.annotations.clone();
            }
            tool
        });
        typed(json!({ "tools": listed }))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        if let Some(result) = Self::plain(&request.name) {
            return Ok(typed::<CallToolResult>(result)?.into());
        }
        let arguments = Value::from(request.arguments.unwrap_or_default());
        let argument = |name: &str| arguments[name].as_str().unwrap_or_default().to_owned();
        let given = request.input_responses.unwrap_or_default();
        let string = json!({ "type": "string" });
        match request.name.as_ref() {
            "test_tool_with_logging" => Self::logged(&context).await,
            "test_tool_with_progress" => Self::progressed(&context).await,
            "test_sampling" => Self::sampled(&context, &argument("prompt")).await,
            "test_elicitation" => {
                let fields = json!({ "username": string, "email": string });
                Self::elicited(&context, form(&argument("message"), fields, &["username", "email"])).await
            }
            "test_elicitation_sep1034_defaults" => {
                let fields = json!({
                    "name": { "type": "string", "default": "John Doe" },
                    "age": { "type": "integer", "default": 30 },
                    "score": { "type": "number", "default": 95.5 },
                    "status": { "type": "string", "enum": ["active", "inactive", "pending"], "default": "active" },
                    "verified": { "type": "boolean", "default": true },
                });
                Self::elicited(&context, form("Defaults", fields, &[])).await
            }
            "test_input_required_result_elicitation" => match given.get("user_name") {
                Some(answer) => {
                    said(&[text(format!("Hello, {}!", answer["content"]["name"].as_str().unwrap_or("you")))])
                }
                None => {
                    let form = form("What is your name?", json!({ "name": string }), &["name"]);
                    asked(json!({ "user_name": { "method": "elicitation/create", "params": form } }), None)
                }
            },
            "test_input_required_result_request_state" => {
                if request.request_state.as_deref() == Some("asked") && given.contains_key("confirm") {
                    return said(&[text("state-ok")]);
                }
                let form = form("Please confirm", json!({ "ok": { "type": "boolean" } }), &["ok"]);
                asked(json!({ "confirm": { "method": "elicitation/create", "params": form } }), Some("asked"))
            }
            "test_reconnection" => {
                tokio::time::sleep(2 * TICK).await;
                said(&[text("The answer took its time")])
            }
            name => Err(unknown("tool", name)),
        }
    }

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        let prompt = |name: &str, arguments: &[&str]| {
            let needed: Vec<Value> = arguments
                .iter()
                .map(|name| json!({ "name": name, "description": name, "required": true }))
                .collect();
            json!({ "name": name, "description": name.replace('_', " "), "arguments": needed })
        };
        typed(json!({ "prompts": [
            prompt("test_simple_prompt", &[]),
            prompt("test_prompt_with_arguments", &["arg1", "arg2"]),
            prompt("test_prompt_with_embedded_resource", &["resourceUri"]),
            prompt("test_prompt_with_image", &[]),
        ] }))
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        let arguments = Value::from(request.arguments.unwrap_or_default());
        let argument = |name: &str| arguments[name].as_str().unwrap_or_default().to_owned();
        let content = match request.name.as_str() {
            "test_simple_prompt" => vec![text("This is a simple prompt for testing.")],
            "test_prompt_with_arguments" => {
                vec![text(format!(
                    "Prompt with arguments: arg1='{}', arg2='{}'",
                    argument("arg1"),
                    argument("arg2")
                ))]
            }
            "test_prompt_with_embedded_resource" => {
                let uri = argument("resourceUri");
                vec![
                    embedded(&uri, "text/plain", "Embedded resource content for testing."),
                    text("Please process the embedded resource above."),
                ]
            }
            "test_prompt_with_image" => vec![image(), text("Please analyze the image above.")],
            name => return Err(unknown("prompt", name)),
        };
        let messages: Vec<Value> =
            content.into_iter().map(|content| json!({ "role": "user", "content": content })).collect();
        Ok(typed::<GetPromptResult>(json!({ "messages": messages }))?.into())
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let resource =
            |uri: &str, kind: &str| json!({ "uri": uri, "name": uri, "description": uri, "mimeType": kind });
        typed(json!({ "resources": [
            resource("test://static-text", "text/plain"),
            resource("test://static-binary", "image/png"),
        ] }))
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let uri = "test://template/{id}/data";
        typed(
            json!({ "resourceTemplates": [{ "uriTemplate": uri, "name": "template", "description": "a template" }] }),
        )
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let uri = request.uri.to_string();
        let mut content = match uri.as_str() {
            "test://static-text" => {
                json!({ "mimeType": "text/plain", "text": "This is the content of the static text resource." })
            }
            "test://static-binary" => json!({ "mimeType": "image/png", "blob": PNG }),
            uri => {
                let name = uri.strip_prefix("test://template/").and_then(|rest| rest.strip_suffix("/data"));
                let Some(name) = name else {
                    return Err(ErrorData::resource_not_found(
                        "Resource not found",
                        Some(json!({ "uri": uri })),
                    ));
                };
                let data = format!(r#"{{"id":"{name}","templateTest":true,"data":"Data for ID: {name}"}}"#);
                json!({ "mimeType": "application/json", "text": data })
            }
        };
        content["uri"] = uri.into();
        Ok(typed::<ReadResourceResult>(json!({ "contents": [content] }))?.into())
    }

    async fn complete(
        &self,
        _: CompleteRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        typed(json!({ "completion": { "values": ["paris", "park", "party"], "total": 3, "hasMore": false } }))
    }

    async fn set_level(
        &self,
        _: SetLevelRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        Ok(())
    }

    async fn subscribe(
        &self,
        _: SubscribeRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        Ok(())
    }

    async fn unsubscribe(
        &self,
        _: UnsubscribeRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        Ok(())
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let reads = std::env::args().nth(1).as_deref() == Some("reads");
    let annotations = if reads { json!({ "readOnlyHint": true }) } else { Value::Null };
    let server = Server { annotations };
    let service = StreamableHttpService::new(
        move || Ok(server.clone()),
        LocalSessionManager::default().into(),
        StreamableHttpServerConfig::default(),
    );
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await?;
    println!("http://{}/mcp", listener.local_addr()?);
    axum::serve(listener, axum::Router::new().nest_service("/mcp", service)).await?;
    Ok(())
}
