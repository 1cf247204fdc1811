"""The server that the conformance suite asks for, on the Python SDK, both protocol eras: `conformance.py reads|writes`.

The suite names the tools, prompts and resources, and says what each must answer. With `reads` every tool says of itself
that it only reads, so that a proxy passes all calls through; with `writes` none says anything, and all are guarded. The
server prints its address.
"""

import asyncio
import secrets
import socket
import sys
import warnings

import mcp_types as types
import uvicorn
from mcp.server.caching import CacheHint
from mcp.server.lowlevel import Server
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.server.streamable_http import EventMessage, EventStore
from mcp.shared.exceptions import MCPDeprecationWarning, MCPError

warnings.simplefilter("ignore", MCPDeprecationWarning)

NAME = "conformance"
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
WAV = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQAAAAA="
TICK_S = 0.05


def text(words):
    return {"type": "text", "text": words}


def image():
    return {"type": "image", "data": PNG, "mimeType": "image/png"}


def embedded(uri, mime, words):
    return {"type": "resource", "resource": {"uri": uri, "mimeType": mime, "text": words}}


def answer(*content, **more):
    return {"content": list(content), **more}


def form(message, properties, required=()):
    schema = {"type": "object", "properties": properties, "required": list(required)}
    return {"method": "elicitation/create", "params": {"message": message, "requestedSchema": schema}}


def one_text_field(message, field):
    return form(message, {field: {"type": "string"}}, [field])


def sampling(words, tokens):
    messages = [{"role": "user", "content": text(words)}]
    return {"method": "sampling/createMessage", "params": {"messages": messages, "maxTokens": tokens}}


ROOTS = {"method": "roots/list", "params": {}}


def input_required(requests, state=None):
    more = {} if state is None else {"requestState": state}
    return {"resultType": "input_required", "inputRequests": requests, **more}


def responses(params):
    given = params.input_responses or {}
    return {key: value if isinstance(value, dict) else value.model_dump(by_alias=True) for key, value in given.items()}


def filled_in(given, key, field):
    """What a person typed into a form, if there is such an answer and it is a text."""
    content = (given.get(key) or {}).get("content")
    value = content.get(field) if isinstance(content, dict) else None
    return value if isinstance(value, str) else None


# Tools that answer at once.
PLAIN = {
    "test_simple_text": answer(text("This is a simple text response for testing.")),
    "test_image_content": answer(image()),
    "test_audio_content": answer({"type": "audio", "data": WAV, "mimeType": "audio/wav"}),
    "test_embedded_resource": answer(
        embedded("test://embedded-resource", "text/plain", "This is an embedded resource content.")
    ),
    "test_multiple_content_types": answer(
        text("Multiple content types test:"),
        image(),
        embedded("test://mixed-content-resource", "application/json", '{"test":"data","value":123}'),
    ),
    "test_error_handling": answer(text("This tool intentionally returns an error for testing"), isError=True),
    "json_schema_2020_12_tool": answer(text("valid")),
    "test_custom_headers": answer(text("the headers fit the arguments")),
}


async def with_logging(ctx, params):
    for words in ["Tool execution started", "Tool processing data", "Tool execution completed"]:
        await ctx.session.send_log_message("info", words, related_request_id=ctx.request_id)
        await asyncio.sleep(TICK_S)
    return answer(text("logged"))


async def with_progress(ctx, params):
    token = (ctx.meta or {}).get("progress_token")
    for done in [0, 50, 100]:
        if token is not None:
            notice = types.ProgressNotification(
                params=types.ProgressNotificationParams(progress_token=token, progress=done, total=100)
            )
            await ctx.session.send_notification(notice, related_request_id=ctx.request_id)
        await asyncio.sleep(TICK_S)
    return answer(text("progressed"))


async def with_sampling(ctx, params):
    prompt = types.SamplingMessage(role="user", content=types.TextContent(text=params.arguments["prompt"]))
    got = await ctx.session.create_message([prompt], max_tokens=100, related_request_id=ctx.request_id)
    return answer(text(f"LLM response: {got.content.text}"))


async def elicited(ctx, message, schema):
    got = await ctx.session.elicit(message, schema, related_request_id=ctx.request_id)
    return answer(text(f"Elicitation completed: action={got.action}, content={got.content}"))


async def with_elicitation(ctx, params):
    fields = {name: {"type": "string", "description": name} for name in ["username", "email"]}
    schema = {"type": "object", "properties": fields, "required": ["username", "email"]}
    return await elicited(ctx, params.arguments["message"], schema)


async def with_defaults(ctx, params):
    fields = {
        "name": {"type": "string", "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        "verified": {"type": "boolean", "default": True},
    }
    return await elicited(ctx, "Defaults", {"type": "object", "properties": fields})


async def with_enums(ctx, params):
    options = ["option1", "option2", "option3"]
    titled = [{"const": f"value{n}", "title": f"{word} Option"} for n, word in [(1, "First"), (2, "Second")]]
    legacy = {"enum": ["opt1", "opt2", "opt3"], "enumNames": ["Option One", "Option Two", "Option Three"]}
    fields = {
        "untitledSingle": {"type": "string", "enum": options},
        "titledSingle": {"type": "string", "oneOf": titled},
        "legacyEnum": {"type": "string", **legacy},
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": options}},
        "titledMulti": {"type": "array", "items": {"anyOf": titled}},
    }
    return await elicited(ctx, "Enums", {"type": "object", "properties": fields})


async def with_reconnection(ctx, params):
    if ctx.close_sse_stream is not None:
        await ctx.close_sse_stream()
    await asyncio.sleep(2 * TICK_S)
    return answer(text("The answer came after the stream was closed"))


async def needing_sampling(ctx, params):
    capabilities = ctx.session.client_capabilities
    if capabilities is None or capabilities.sampling is None:
        data = {"requiredCapabilities": {"sampling": {}}}
        raise MCPError(types.MISSING_REQUIRED_CLIENT_CAPABILITY, "sampling is needed", data)
    return answer(text("sampling is declared"))


async def streaming_elicitation(ctx, params):
    return input_required({"user_name": one_text_field("What is your name?", "name")})


async def ask_name(ctx, params):
    name = filled_in(responses(params), "user_name", "name")
    if name is None:
        return input_required({"user_name": one_text_field("What is your name?", "name")})
    return answer(text(f"Hello, {name}!"))


async def ask_model(ctx, params):
    given = responses(params).get("capital_question")
    if given is None:
        return input_required({"capital_question": sampling("What is the capital of France?", 100)})
    return answer(text(f"The model says: {given.get('content')}"))


async def ask_roots(ctx, params):
    given = responses(params).get("client_roots")
    if given is None:
        return input_required({"client_roots": ROOTS})
    return answer(text(f"The roots are: {given.get('roots')}"))


async def ask_confirmation(ctx, params):
    if params.request_state != "asked" or "confirm" not in responses(params):
        fields = {"ok": {"type": "boolean"}}
        return input_required({"confirm": form("Please confirm", fields, ["ok"])}, "asked")
    return answer(text("state-ok"))


async def ask_all(ctx, params):
    asked = {
        "user_name": one_text_field("What is your name?", "name"),
        "greeting": sampling("Generate a greeting", 50),
        "client_roots": ROOTS,
    }
    missing = {key: request for key, request in asked.items() if key not in responses(params)}
    return input_required(missing, "asked") if missing else answer(text("all answered"))


async def ask_twice(ctx, params):
    given = responses(params)
    if params.request_state == "two" and "step2" in given:
        return answer(text("both steps answered"))
    if params.request_state == "one" and "step1" in given:
        return input_required({"step2": one_text_field("Step 2: What is your favorite color?", "color")}, "two")
    return input_required({"step1": one_text_field("Step 1: What is your name?", "name")}, "one")


async def ask_what_the_client_can(ctx, params):
    able = ctx.session.client_capabilities or types.ClientCapabilities()
    asked = {}
    if able.elicitation is not None:
        asked["user_name"] = one_text_field("What is your name?", "name")
    if able.sampling is not None:
        asked["greeting"] = sampling("Generate a greeting", 50)
    missing = {key: request for key, request in asked.items() if key not in responses(params)}
    return input_required(missing) if missing else answer(text("nothing left to ask"))


HANDLERS = {
    "test_tool_with_logging": with_logging,
    "test_logging_tool": with_logging,
    "test_tool_with_progress": with_progress,
    "test_sampling": with_sampling,
    "test_elicitation": with_elicitation,
    "test_elicitation_sep1034_defaults": with_defaults,
    "test_elicitation_sep1330_enums": with_enums,
    "test_reconnection": with_reconnection,
    "test_missing_capability": needing_sampling,
    "test_streaming_elicitation": streaming_elicitation,
    "test_input_required_result_elicitation": ask_name,
    "test_input_required_result_sampling": ask_model,
    "test_input_required_result_list_roots": ask_roots,
    "test_input_required_result_request_state": ask_confirmation,
    "test_input_required_result_tampered_state": ask_confirmation,
    "test_input_required_result_multiple_inputs": ask_all,
    "test_input_required_result_multi_round": ask_twice,
    "test_input_required_result_capabilities": ask_what_the_client_can,
}

SCHEMAS = {
    "test_sampling": {"type": "object", "properties": {"prompt": {"type": "string"}}, "required": ["prompt"]},
    "test_elicitation": {"type": "object", "properties": {"message": {"type": "string"}}, "required": ["message"]},
    "test_custom_headers": {
        "type": "object",
        "properties": {"region": {"type": "string", "x-mcp-header": "Region"}, "query": {"type": "string"}},
        "required": ["region"],
    },
    "json_schema_2020_12_tool": {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {
            "address": {
                "$anchor": "addressDef",
                "type": "object",
                "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
            }
        },
        "properties": {
            "name": {"type": "string"},
            "address": {"$ref": "#/$defs/address"},
            "contactMethod": {"type": "string", "enum": ["phone", "email"]},
            "phone": {"type": "string"},
            "email": {"type": "string"},
        },
        "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
        "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
        "then": {"required": ["phone"]},
        "else": {"required": ["email"]},
        "additionalProperties": False,
    },
}
EMPTY = {"type": "object", "properties": {}}
HINTS = {"annotations": {"readOnlyHint": True}} if sys.argv[1] == "reads" else {}


async def list_tools(ctx, params):
    names = [*PLAIN, *HANDLERS]

    def listed(name):
        schema = SCHEMAS.get(name, EMPTY)
        return {"name": name, "description": name.replace("_", " "), "inputSchema": schema, **HINTS}

    return {"tools": [listed(name) for name in names]}


async def call_tool(ctx, params):
    if params.name in PLAIN:
        return PLAIN[params.name]
    if params.name in HANDLERS:
        return await HANDLERS[params.name](ctx, params)
    raise MCPError(types.INVALID_PARAMS, f"Unknown tool: {params.name}")


def said(*content):
    return {"messages": [{"role": "user", "content": item} for item in content]}


async def list_prompts(ctx, params):
    def prompt(name, *arguments):
        needed = [{"name": argument, "description": argument, "required": True} for argument in arguments]
        return {"name": name, "description": name.replace("_", " "), "arguments": needed}

    return {
        "prompts": [
            prompt("test_simple_prompt"),
            prompt("test_prompt_with_arguments", "arg1", "arg2"),
            prompt("test_prompt_with_embedded_resource", "resourceUri"),
            prompt("test_prompt_with_image"),
            prompt("test_input_required_result_prompt"),
        ]
    }


async def get_prompt(ctx, params):
    arguments = params.arguments or {}
    match params.name:
        case "test_simple_prompt":
            return said(text("This is a simple prompt for testing."))
        case "test_prompt_with_arguments":
            pair = f"arg1='{arguments.get('arg1')}', arg2='{arguments.get('arg2')}'"
            return said(text(f"Prompt with arguments: {pair}"))
        case "test_prompt_with_embedded_resource":
            resource = embedded(arguments["resourceUri"], "text/plain", "Embedded resource content for testing.")
            return said(resource, text("Please process the embedded resource above."))
        case "test_prompt_with_image":
            return said(image(), text("Please analyze the image above."))
        case "test_input_required_result_prompt":
            context = filled_in(responses(params), "user_context", "context")
            if context is None:
                return input_required({"user_context": one_text_field("What context?", "context")})
            return said(text(f"In the context of {context}"))
    raise MCPError(types.INVALID_PARAMS, f"Unknown prompt: {params.name}")


STATIC = {
    "test://static-text": {"mimeType": "text/plain", "text": "This is the content of the static text resource."},
    "test://static-binary": {"mimeType": "image/png", "blob": PNG},
    "test://watched-resource": {"mimeType": "text/plain", "text": "watched"},
}


async def list_resources(ctx, params):
    def listed(uri):
        return {"uri": uri, "name": uri, "description": uri, "mimeType": STATIC[uri]["mimeType"]}

    return {"resources": [listed(uri) for uri in STATIC]}


async def list_templates(ctx, params):
    uri = "test://template/{id}/data"
    return {"resourceTemplates": [{"uriTemplate": uri, "name": "template", "description": "a template"}]}


async def read_resource(ctx, params):
    uri = str(params.uri)
    if uri in STATIC:
        return {"contents": [{"uri": uri, **STATIC[uri]}]}
    if uri.startswith("test://template/") and uri.endswith("/data"):
        name = uri.removeprefix("test://template/").removesuffix("/data")
        data = f'{{"id":"{name}","templateTest":true,"data":"Data for ID: {name}"}}'
        return {"contents": [{"uri": uri, "mimeType": "application/json", "text": data}]}
    raise MCPError(types.INVALID_PARAMS, "Resource not found", {"uri": uri})


async def complete(ctx, params):
    return {"completion": {"values": ["paris", "park", "party"], "total": 3, "hasMore": False}}


async def accepted(ctx, params):
    return {}


def typed(handler):
    """The newer era wants every result to say what kind it is; ours are plain objects."""

    async def handle(ctx, params):
        result = await handler(ctx, params)
        return {"resultType": "complete", **result} if ctx.protocol_version >= "2026-07-28" else result

    return handle


class Events(EventStore):
    """What was sent on each stream, so that a client which comes back gets what it missed."""

    def __init__(self):
        self.sent = []

    async def store_event(self, stream_id, message):
        self.sent.append((stream_id, message))
        return str(len(self.sent))

    async def replay_events_after(self, last_event_id, send_callback):
        last = int(last_event_id)
        stream = self.sent[last - 1][0]
        for number, (of, message) in enumerate(self.sent[last:], last + 1):
            if of == stream and message is not None:
                await send_callback(EventMessage(message, str(number)))
        return stream


CACHED = ["tools/list", "prompts/list", "resources/list", "resources/templates/list", "resources/read", "server/discover"]
server = Server(
    NAME,
    version="1",
    cache_hints={method: CacheHint(ttl_ms=0, scope="private") for method in CACHED},
    get_tool_input_schema=lambda name: SCHEMAS.get(name, EMPTY),
    on_list_tools=typed(list_tools),
    on_call_tool=typed(call_tool),
    on_list_prompts=typed(list_prompts),
    on_get_prompt=typed(get_prompt),
    on_list_resources=typed(list_resources),
    on_list_resource_templates=typed(list_templates),
    on_read_resource=typed(read_resource),
    on_subscribe_resource=typed(accepted),
    on_unsubscribe_resource=typed(accepted),
    on_completion=typed(complete),
    on_set_logging_level=typed(accepted),
)
server.middleware.append(
    RequestStateBoundary(RequestStateSecurity(keys=[secrets.token_bytes(32)]), default_audience=NAME)
)

listening = socket.create_server(("127.0.0.1", int(sys.argv[2]) if sys.argv[2:] else 0))
print(f"http://127.0.0.1:{listening.getsockname()[1]}/mcp", flush=True)
app = server.streamable_http_app(event_store=Events(), retry_interval=100)
uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listening])
