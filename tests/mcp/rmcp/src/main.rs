//! The server that the conformance suite asks for, on the Rust SDK, both protocol eras: `server reads|writes`.
//!
//! The suite names the tools, prompts and resources, and says what each must answer. With `reads` every tool says of
//! itself that it only reads, so that a proxy passes all calls through; with `writes` none says anything, and all are
//! guarded. The server prints its address. What it answers is written as JSON, as the suite has it; the SDK reads it into
//! its own types and writes it again.

// Logging and sampling are on their way out of the protocol, and still part of it.
#![allow(deprecated)]

mod answers;
mod asking;
mod talking;
mod tasks;

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CancelTaskParams, CompleteRequestParams, CompleteResult,
    GetPromptRequestParams, GetPromptResponse, GetPromptResult, GetTaskParams, GetTaskResult,
    ListPromptsResult, ListResourceTemplatesResult, ListResourcesResult, ListToolsResult,
    PaginatedRequestParams, ReadResourceRequestParams, ReadResourceResponse, ReadResourceResult,
    ServerConfig, SetLevelRequestParams, SubscribeRequestParams, SubscriptionFilter, TASKS_EXTENSION_ID,
    Tool, UnsubscribeRequestParams, UpdateTaskParams,
};
use rmcp::service::RequestContext;
use rmcp::task_manager::TaskManager;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde_json::{Value, json};

use answers::{PNG, embedded, fresh, image, schema, text, typed, unknown, whole};
use asking::{Round, asked, question};
use talking::TOOLS;

#[derive(Clone)]
struct Server {
    /// What every tool says of itself.
    annotations: Value,
    tasks: TaskManager,
}

impl Server {
    /// A tool as it is listed.
    fn listed(&self, name: &str) -> Value {
        let mut tool =
            json!({ "name": name, "description": name.replace('_', " "), "inputSchema": schema(name) });
        if !self.annotations.is_null() {
            tool["annotations"] = self.annotations.clone();
        }
        tool
    }
}

impl ServerHandler for Server {
    /// By which the SDK checks headers against arguments.
    fn get_tool(&self, name: &str) -> Option<Tool> {
        TOOLS.contains(&name).then(|| typed(self.listed(name)).ok())?
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        Some(requested.clone())
    }

    fn get_info(&self) -> ServerConfig {
        let capabilities = json!({ "tools": {}, "prompts": {}, "resources": { "subscribe": true }, "logging": {},
            "completions": {}, "extensions": { TASKS_EXTENSION_ID: {} } });
        let info = json!({ "protocolVersion": "2025-11-25", "capabilities": capabilities,
            "serverInfo": { "name": "conformance", "version": "0" } });
        typed(info).unwrap_or_default()
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let listed: Vec<Value> = TOOLS.iter().map(|name| self.listed(name)).collect();
        fresh(json!({ "tools": listed }))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let arguments = Value::from(request.arguments.unwrap_or_default());
        let round = Round::new(request.input_responses, request.request_state.as_deref())?;
        if let Some(answer) = asking::answer(&request.name, &round, &context) {
            return answer;
        }
        if let Some(answer) = tasks::answer(&request.name, &arguments, &round, (&self.tasks, &context)).await
        {
            return answer;
        }
        talking::answer(&request.name, &arguments, &context).await
    }

    async fn get_task(
        &self,
        request: GetTaskParams,
        _: RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, ErrorData> {
        self.tasks.get_task(&request.task_id).map(GetTaskResult::new)
    }

    async fn update_task(
        &self,
        request: UpdateTaskParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.tasks.update_task(&request.task_id, request.input_responses)
    }

    async fn cancel_task(
        &self,
        request: CancelTaskParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.tasks.cancel_task(&request.task_id)
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
        fresh(json!({ "prompts": [
            prompt("test_simple_prompt", &[]),
            prompt("test_prompt_with_arguments", &["arg1", "arg2"]),
            prompt("test_prompt_with_embedded_resource", &["resourceUri"]),
            prompt("test_prompt_with_image", &[]),
            prompt("test_input_required_result_prompt", &[]),
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
            "test_input_required_result_prompt" => {
                let round = Round::new(request.input_responses, request.request_state.as_deref())?;
                match round.filled_in("user_context", "context") {
                    Some(context) => vec![text(format!("In the context of {context}"))],
                    None => {
                        let question = question("What context?", "context");
                        return Ok(asked(json!({ "user_context": question }), None)?.into());
                    }
                }
            }
            name => return Err(unknown("prompt", name)),
        };
        let messages: Vec<Value> =
            content.into_iter().map(|content| json!({ "role": "user", "content": content })).collect();
        Ok(whole::<GetPromptResult>(json!({ "messages": messages }))?.into())
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let resource =
            |uri: &str, kind: &str| json!({ "uri": uri, "name": uri, "description": uri, "mimeType": kind });
        fresh(json!({ "resources": [
            resource("test://static-text", "text/plain"),
            resource("test://static-binary", "image/png"),
            resource("test://watched-resource", "text/plain"),
        ] }))
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let uri = "test://template/{id}/data";
        fresh(
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
            "test://watched-resource" => json!({ "mimeType": "text/plain", "text": "watched" }),
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
        Ok(fresh::<ReadResourceResult>(json!({ "contents": [content] }))?.into())
    }

    async fn complete(
        &self,
        _: CompleteRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        whole(json!({ "completion": { "values": ["paris", "park", "party"], "total": 3, "hasMore": false } }))
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
    let server = Server { annotations, tasks: TaskManager::new() };
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
