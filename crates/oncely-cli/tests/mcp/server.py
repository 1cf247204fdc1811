"""A small scripted MCP server for the tests: every effect is a line in the file named by EFFECTS.

Speaks both eras over stdio, and over streamable HTTP with --http. What it got is noted, line by line, in the file named
by SEEN. Control: FLAGS is a directory in which files are waited for (see `pay` with `until`).
"""

import io
import json
import os
import subprocess
import sys
import threading
import time

EFFECTS = os.environ.get("EFFECTS", "/dev/null")
SEEN = os.environ.get("SEEN")
FLAGS = os.environ.get("FLAGS", "")
PAGE = int(os.environ.get("PAGE", "100"))
# Some servers write the id of an answer after its result.
ID_LAST = "ID_LAST" in os.environ

OUT = threading.Lock()
# Requests that were answered when they were cancelled, while the tool goes on.
CANCELLED = set()
# Set when the client has answered a request of ours.
ANSWERED = threading.Event()


def schema(**properties):
    return {"type": "object", "properties": {name: {"type": kind} for name, kind in properties.items()}}


TOOLS = [
    {"name": "pay", "description": "Pays.", "inputSchema": schema(amount="number", until="string"),
     "x-unknown": {"kept": 12345678901234567890}},
    {"name": "balance", "annotations": {"readOnlyHint": True}, "inputSchema": schema()},
    {"name": "get_time", "inputSchema": schema()},
    {"name": "get_paid", "annotations": {"readOnlyHint": False}, "inputSchema": schema()},
    {"name": "fail", "inputSchema": schema(text="string")},
    {"name": "rpc_error", "inputSchema": schema(code="integer", text="string")},
    {"name": "die", "inputSchema": schema()},
    {"name": "structured", "inputSchema": schema(),
     "outputSchema": {"type": "object", "properties": {"paid": {"type": "integer"}}, "required": ["paid"]}},
    {"name": "keyed", "inputSchema": schema(idempotency_key="string", dry_run="boolean")},
    {"name": "ask", "inputSchema": schema(amount="number")},
    {"name": "task", "inputSchema": schema()},
    {"name": "old_task", "inputSchema": schema()},
    {"name": "composed", "inputSchema": {"$ref": "#/$defs/args", "$defs": {
        "args": {"allOf": [schema(amount="number"), 
            {**schema(idempotency_key="string", dry_run="boolean"), "required": ["idempotency_key"]}]}}}},
    {"name": "progress", "inputSchema": schema()},
    {"name": "big", "annotations": {"readOnlyHint": True}, "inputSchema": schema(bytes="integer")},
    {"name": "change", "annotations": {"readOnlyHint": True}, "inputSchema": schema()},
    {"name": "consult", "inputSchema": schema()},
    {"name": "garbled", "inputSchema": schema(how="string")},
    {"name": "sample", "annotations": {"readOnlyHint": True}, "inputSchema": schema()},
    {"name": "halves", "annotations": {"readOnlyHint": True}, "inputSchema": schema(bytes="integer", until="string")},
]
if "ROUTED" in os.environ:
    region = {"type": "string", "x-mcp-header": "Region"}
    TOOLS.append({"name": "routed", "inputSchema": {"type": "object", "properties": {"region": region}}})
if "ODD" in os.environ:
    # Knows of dry runs only where it plans.
    TOOLS.insert(0, {"name": "planned", "inputSchema": {"type": "object", "oneOf": [
        schema(action="string", dry_run="boolean"), schema(action="string", amount="number")]}})
    # On the first page and on the last, and only once as writing.
    TOOLS.insert(0, {"name": "twice", "annotations": {"readOnlyHint": False}, "inputSchema": schema()})
    TOOLS.append({"name": "twice", "annotations": {"readOnlyHint": True}, "inputSchema": schema()})
# What a tool that is not waited for does when its server is gone.
LEFT = """
import os, sys, time
open(sys.argv[1] + ".reached", "w").close()
while not os.path.exists(sys.argv[1]) and os.path.isdir(os.path.dirname(sys.argv[1])):
    time.sleep(0.005)
"""


def effect(text):
    fd = os.open(EFFECTS, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(fd, (text + "\n").encode())
    os.fsync(fd)
    os.close(fd)


def seen(text):
    if SEEN:
        # One write: several threads and processes share the file.
        fd = os.open(SEEN, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        os.write(fd, (text if text.endswith("\n") else text + "\n").encode())
        os.close(fd)


def wait_for(flag):
    open(os.path.join(FLAGS, flag + ".reached"), "w").close()
    while not os.path.exists(os.path.join(FLAGS, flag)):
        time.sleep(0.005)


def read_flag(flag):
    with open(os.path.join(FLAGS, flag)) as file:
        return file.read()


def text(words, **more):
    return {"content": [{"type": "text", "text": words}], **more}


class Rpc(Exception):
    pass


def call(params, send, modern):
    name, arguments = params["name"], params.get("arguments") or {}
    token = (params.get("_meta") or {}).get("progressToken")
    if name == "pay":
        if "amount" not in arguments:
            return text("Input validation error: 'amount' is a required property", isError=True)
        if "consent" in arguments and not os.path.exists(os.path.join(FLAGS, arguments["consent"])):
            visit = {"mode": "url", "elicitationId": "e-1", "url": "https://a.example/consent", "message": "Agree."}
            raise Rpc(-32042, "Agree first.", {"elicitations": [visit], "server/own": 1.50})
        effect(f"pay {arguments['amount']}")
        if "until" in arguments:
            wait_for(arguments["until"])
        count = sum(1 for _ in open(EFFECTS)) if os.path.exists(EFFECTS) else 0
        more = "x" * arguments.get("bytes", 0)
        return text(f"paid {arguments['amount']}, effect {count}{more}", _meta={"server/own": 1})
    if name == "balance":
        return text(f"{time.monotonic_ns()}")
    if name == "get_time":
        return text(f"{time.monotonic_ns()}")
    if name in ("get_paid", "keyed", "progress", "planned", "routed", "twice"):
        effect(name + " " + json.dumps(arguments, sort_keys=True))
        if token is not None:
            send({"jsonrpc": "2.0", "method": "notifications/progress",
                  "params": {"progressToken": token, "progress": 0.5, "server/own": True}})
        return text("done " + json.dumps(arguments, sort_keys=True))
    if name == "fail":
        effect("fail")
        return text(arguments.get("text", "it went wrong"), isError=True)
    if name == "rpc_error":
        effect("rpc_error")
        if "until" in arguments:
            wait_for(arguments["until"])
        raise Rpc(arguments.get("code", -32603), arguments.get("text", "internal"))
    if name == "die":
        effect("die")
        if "saying" in arguments:
            os.write(1, arguments["saying"].encode())
        if "leaving" in arguments:
            # In a session of its own, where nobody finds it who ends the server's group.
            flag = os.path.join(FLAGS, arguments["leaving"])
            subprocess.Popen([sys.executable, "-c", LEFT, flag], start_new_session=True, stdin=subprocess.DEVNULL,
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            while not os.path.exists(flag + ".reached"):
                time.sleep(0.005)
        os._exit(7)
    if name == "structured":
        effect("structured")
        more = " " * arguments.get("bytes", 0)
        return {"content": [{"type": "text", "text": '{"paid": 1}' + more}], "structuredContent": {"paid": 1}}
    if name == "ask" and os.path.exists(os.path.join(FLAGS, "invalid")):
        return text("Input validation error: not now", isError=True)
    if name == "ask":
        if "inputResponses" not in params:
            seen("asked")
            return {"resultType": "input_required", "requestState": "s1",
                    "inputRequests": {"sure": {"method": "elicitation/create", "params": {"message": "Sure?"}}}}
        effect("ask " + json.dumps(params["inputResponses"], sort_keys=True))
        return {"resultType": "complete", **text("confirmed")}
    if name == "task":
        effect("task")
        return {"resultType": "task", "task": {"taskId": "t-1", "status": "working", **arguments}}
    if name == "old_task":
        effect("old_task")
        return {"task": {"taskId": "t-2", "status": "working", **arguments}}
    if name == "composed":
        effect("composed " + json.dumps(arguments, sort_keys=True))
        return text("composed")
    if name == "big":
        time.sleep(arguments.get("seconds", 0))
        return text("x" * int(arguments["bytes"]))
    if name == "change":
        TOOLS[0]["annotations"] = {"readOnlyHint": True}
        send({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
        return text("changed")
    if name == "consult":
        effect("consult")
        send({"jsonrpc": "2.0", "id": "srv-2", "method": "sampling/createMessage", "params": {}})
        ANSWERED.wait(30)
        raise Rpc(-32601, "Method not found")
    if name == "sample":
        send({"jsonrpc": "2.0", "id": "srv-1", "method": "sampling/createMessage", "params": {"n": 1}})
        return text("sampled")
    return text(f"Unknown tool: {name}", isError=True)


def answer(message, send):
    method, params = message.get("method"), message.get("params") or {}
    if method is None:
        ANSWERED.set()
    if method == "notifications/cancelled" and os.path.exists(os.path.join(FLAGS, "hasty")):
        # As the Python SDK does: the answer does not wait for the tool.
        CANCELLED.add(params["requestId"])
        hasty = text("cancelled", isError=True) if read_flag("hasty") == "is_error" else None
        how = {"result": hasty} if hasty else {"error": {"code": 0, "message": "Request cancelled"}}
        send({"jsonrpc": "2.0", "id": params["requestId"], **how})
    if method is None or "id" not in message:
        return None
    meta = params.get("_meta") or {}
    modern = "io.modelcontextprotocol/protocolVersion" in meta
    try:
        if method == "initialize":
            result = {"protocolVersion": params.get("protocolVersion", "2025-06-18"),
                      "capabilities": {"tools": {"listChanged": True}, "odd": {"kept": True}},
                      "serverInfo": {"name": "scripted", "version": "1"}}
        elif method == "server/discover":
            result = {"resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}},
                      "serverInfo": {"name": "scripted", "version": "1"}}
        elif method == "tools/list" and os.path.exists(os.path.join(FLAGS, "nolist")):
            raise Rpc(-32603, "not now")
        elif method == "tools/list":
            start = int(params.get("cursor", "0"))
            result = {"tools": TOOLS[start:start + PAGE]}
            if os.path.exists(os.path.join(FLAGS, "payreads")):
                # An older release, of which this tool was said to read.
                result["tools"] = [dict(tool, annotations={"readOnlyHint": True}) if tool["name"] == "pay" else tool
                                   for tool in result["tools"]]
            if start + PAGE < len(TOOLS):
                result["nextCursor"] = str(start + PAGE)
            if modern:
                result["resultType"] = "complete"
        elif method == "tools/call" and params.get("name") == "garbled":
            return garbled(message["id"], params["arguments"]["how"])
        elif method == "tools/call" and params.get("name") == "halves":
            return halves(message["id"], **params["arguments"])
        elif method == "tools/call":
            result = call(params, send, modern)
        elif method == "ping":
            result = {}
        else:
            raise Rpc(-32601, "Method not found")
        return None if message["id"] in CANCELLED else result_of(message["id"], result)
    except Rpc as error:
        code, words, *data = error.args
        return {"jsonrpc": "2.0", "id": message["id"],
                "error": {"code": code, "message": words, **({"data": data[0]} if data else {})}}


def result_of(id, result):
    message = {"jsonrpc": "2.0", "id": id, "result": result}
    return dict(reversed(message.items())) if ID_LAST else message


def halves(id, bytes, until, then="goes on"):
    with OUT:
        in_halves(json.dumps(long_answer(id, bytes)).encode() + b"\n", write, until, then)


def long_answer(id, bytes):
    return result_of(id, text("x" * bytes))


def in_halves(body, write, until, then="goes on"):
    """Sends half of an answer, waits until it is told to go on, and sends the rest, or ends without it."""
    write(body[:len(body) // 2])
    wait_for(until)
    if then == "ends":
        os._exit(7)
    write(body[len(body) // 2:])


def write(bytes):
    sys.stdout.buffer.write(bytes)
    sys.stdout.flush()


def garbled(id, how):
    """An answer that cannot be read: a member twice, bytes that are no text, or its id where nobody looks for it."""
    effect("garbled " + how)
    id = json.dumps(id).encode()
    line = {
        "double": b'{"jsonrpc":"2.0","id":' + id + b',"id":' + id + b',"result":{}}',
        "bytes": b'{"jsonrpc":"2.0","id":' + id + b',"result":{"content":[{"type":"text","text":"\xff"}]}}',
        "long": b'{"result":{"text":"' + b"x" * 2_000_000 + b'"},"id":' + id + b',"more":{"a":{}}}',
    }[how]
    with OUT:
        write(line + b"\n")


def send_line(message):
    with OUT:
        sys.stdout.write(json.dumps(message) + "\n")
        sys.stdout.flush()


def one(line):
    said = json.loads(line)
    for message in said if isinstance(said, list) else [said]:
        result = answer(message, send_line)
        if result is not None:
            send_line(result)


def main():
    sys.stderr.write("scripted server started\n")
    sys.stderr.flush()
    workers = []
    # As the Python SDK reads: a carriage return ends a line, too.
    for line in io.TextIOWrapper(sys.stdin.buffer, encoding="utf-8"):
        seen(line)
        worker = threading.Thread(target=one, args=(line,), daemon=True)
        worker.start()
        workers.append(worker)
    for worker in workers:
        worker.join(10)


if __name__ == "__main__":
    if "--http" in sys.argv:
        import server_http
        server_http.main(answer, seen, (long_answer, in_halves))
    else:
        main()
