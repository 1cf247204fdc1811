//! A minimal MCP server over stdio as people write one: on the official Rust SDK. It answers the same as the bare one.

use std::process::Command;

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ListToolsResult, PaginatedRequestParams,
    ServerConfig,
};
use rmcp::service::RequestContext;
use rmcp::transport::io::stdio_pipes;
use rmcp::{ErrorData, RoleServer, ServerHandler, ServiceExt};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::echo::Tool;
use crate::{Result, workload};

/// The command line of the server.
pub(crate) fn command() -> Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("sdk");
    Ok(command)
}

/// Answers until its input ends. On all processors, as the SDK's examples do.
pub(crate) fn serve() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        // Of the two ways that the SDK has, the one that it calls the faster.
        let running = Echo.serve(stdio_pipes()).await?;
        running.waiting().await?;
        Ok(())
    })
}

struct Echo;

/// What is written as JSON, in the SDK's own type.
fn typed<T: DeserializeOwned>(value: Value) -> std::result::Result<T, ErrorData> {
    serde_json::from_value(value).map_err(|e| ErrorData::internal_error(e.to_string(), None))
}

impl ServerHandler for Echo {
    fn get_info(&self) -> ServerConfig {
        let info = json!({ "protocolVersion": "2025-11-25", "capabilities": { "tools": {} },
            "serverInfo": { "name": "echo", "version": "1" } });
        typed(info).unwrap_or_default()
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> std::result::Result<ListToolsResult, ErrorData> {
        let tool = json!({ "name": Tool::Read.name(), "inputSchema": { "type": "object" } });
        typed(json!({ "tools": [tool] }))
    }

    async fn call_tool(
        &self,
        _: CallToolRequestParams,
        _: RequestContext<RoleServer>,
    ) -> std::result::Result<CallToolResponse, ErrorData> {
        let words = String::from_utf8_lossy(workload::result(0));
        let result: CallToolResult = typed(json!({ "content": [{ "type": "text", "text": words }] }))?;
        Ok(result.into())
    }
}
