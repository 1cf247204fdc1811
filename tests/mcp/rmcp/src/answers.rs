//! What the suite has the server answer, as JSON.

use rmcp::ErrorData;
use rmcp::model::{CallToolResponse, CallToolResult};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

pub const PNG: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

/// What was written as JSON, in the SDK's own type.
pub fn typed<T: DeserializeOwned>(value: Value) -> Result<T, ErrorData> {
    serde_json::from_value(value).map_err(|e| ErrorData::internal_error(e.to_string(), None))
}

pub fn unknown(what: &str, name: &str) -> ErrorData {
    ErrorData::invalid_params(format!("Unknown {what}: {name}"), None)
}

pub fn text(words: impl Into<String>) -> Value {
    json!({ "type": "text", "text": words.into() })
}

pub fn image() -> Value {
    json!({ "type": "image", "data": PNG, "mimeType": "image/png" })
}

pub fn embedded(uri: &str, kind: &str, words: &str) -> Value {
    json!({ "type": "resource", "resource": { "uri": uri, "mimeType": kind, "text": words } })
}

/// A result that is whole; the SDK leaves that word out towards those who do not know it.
pub fn whole<T: DeserializeOwned>(mut result: Value) -> Result<T, ErrorData> {
    result["resultType"] = "complete".into();
    typed(result)
}

/// The same, with what is to be known about keeping it.
pub fn fresh<T: DeserializeOwned>(mut result: Value) -> Result<T, ErrorData> {
    result["ttlMs"] = 0.into();
    result["cacheScope"] = "private".into();
    whole(result)
}

pub fn said(content: &[Value]) -> Result<CallToolResponse, ErrorData> {
    Ok(whole::<CallToolResult>(json!({ "content": content, "isError": false }))?.into())
}

pub fn form(message: &str, properties: Value, required: &[&str]) -> Value {
    let schema = json!({ "type": "object", "properties": properties, "required": required });
    json!({ "mode": "form", "message": message, "requestedSchema": schema })
}

pub fn schema(tool: &str) -> Value {
    let one = |name: &str| json!({ "type": "object", "properties": { name: { "type": "string" } }, "required": [name] });
    match tool {
        "test_sampling" => one("prompt"),
        "test_elicitation" => one("message"),
        "test_custom_headers" => json!({
            "type": "object",
            "properties": { "region": { "type": "string", "x-mcp-header": "Region" }, "query": { "type": "string" } },
            "required": ["region"],
        }),
        "json_schema_2020_12_tool" => json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "$defs": { "address": { "$anchor": "addressDef", "type": "object",
                "properties": { "street": { "type": "string" }, "city": { "type": "string" } } } },
            "properties": { "name": { "type": "string" }, "address": { "$ref": "#/$defs/address" },
                "contactMethod": { "type": "string", "enum": ["phone", "email"] },
                "phone": { "type": "string" }, "email": { "type": "string" } },
            "allOf": [{ "anyOf": [{ "required": ["phone"] }, { "required": ["email"] }] }],
            "if": { "properties": { "contactMethod": { "const": "phone" } }, "required": ["contactMethod"] },
            "then": { "required": ["phone"] },
            "else": { "required": ["email"] },
            "additionalProperties": false,
        }),
        _ => json!({ "type": "object", "properties": {} }),
    }
}
