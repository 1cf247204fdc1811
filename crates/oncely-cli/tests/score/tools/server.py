#!/usr/bin/env python3
"""An MCP server over standard input and output, by hand: honest, or wrong in the way that its argument names."""
import json, os, sys

mode = sys.argv[1]
READ = {"readOnlyHint": True}
PUT = {"readOnlyHint": False, "destructiveHint": False, "idempotentHint": True}
ADD = {"readOnlyHint": False, "destructiveHint": False, "idempotentHint": False}
KEY = "The same for every retry of one intent; a new one only for a new intent"


def tool(name, annotations, key=None):
    properties = {"text": {"type": "string"}}
    if key is not None:
        properties["idempotency_key"] = {"type": "string", "description": key}
    entry = {"name": name, "description": name, "inputSchema": {"type": "object", "properties": properties}}
    if annotations is not None:
        entry["annotations"] = annotations
    return entry


tools = [tool("show", READ), tool("put", PUT), tool("add", ADD, KEY)]
if mode == "bare":
    tools = [tool("show", None), tool("put", None), tool("add", None)]
if mode == "empty":
    tools = [{"description": "nameless"}]
if mode == "half":
    tools[2].pop("annotations")
if mode == "keyless":
    tools[2] = tool("add", ADD)
if mode == "minting":
    tools[2] = tool("add", ADD, "A UUID, unique for every request")


def append(text):
    with open("notes", "a") as notes:
        notes.write(text + "\n")


def call(name, arguments):
    text = arguments.get("text", "")
    if name == "show":
        if mode == "peeping":
            append("somebody looked")
    elif name == "put":
        if mode == "lying":
            append(text)
        else:
            with open("note-" + text, "w") as note:
                note.write(text)
    elif name == "add":
        key = arguments.get("idempotency_key", "")
        if mode == "forgetful" or not os.path.exists("key-" + key):
            append(text)
        open("key-" + key, "w").close()
    return {"content": [{"type": "text", "text": "done"}]}


def say(message):
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def answer(method, params):
    modern = "io.modelcontextprotocol/protocolVersion" in params.get("_meta", {})
    if mode == "modern" and not modern:
        return {"error": {"code": -32601, "message": "no such method"}}
    if method == "initialize":
        return {"result": {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}},
                           "serverInfo": {"name": "notes", "version": "1"}}}
    if method == "server/discover" and mode == "modern":
        return {"result": {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}}
    if method == "tools/list":
        if mode == "paged":
            at = int(params.get("cursor", "0"))
            page = {"tools": tools[at:at + 1]}
            if at + 1 < len(tools):
                page["nextCursor"] = str(at + 1)
            return {"result": page}
        return {"result": {"tools": tools}}
    if method == "tools/call":
        return {"result": call(params["name"], params.get("arguments", {}))}
    return {"error": {"code": -32601, "message": "no such method"}}


if mode == "dying":
    sys.exit("no configuration was found")
for line in sys.stdin:
    message = json.loads(line)
    if "method" not in message or "id" not in message:
        continue
    if mode == "mute":
        continue
    if mode == "paged":
        print("this is no message")
        say({"jsonrpc": "2.0", "method": "notifications/message", "params": {}})
        say({"jsonrpc": "2.0", "id": message["id"], "method": "ping"})
    say({"jsonrpc": "2.0", "id": message["id"], **answer(message["method"], message.get("params", {}))})
