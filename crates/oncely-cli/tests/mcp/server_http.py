"""The scripted server over streamable HTTP, in both eras: sessions and event streams, or one JSON reply per request.

Prints its port. With CERTIFICATE it speaks TLS. MODE is "json" or "sse". Requests are noted with their headers in SEEN.
"""

import json
import os
import ssl
import sys
import threading
import time
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

MODE = os.environ.get("MODE", "json")
TOKEN = os.environ.get("TOKEN")
CERTIFICATE = os.environ.get("CERTIFICATE")
SESSIONS = set()


def main(answer, seen, halves):
    long_answer, in_halves = halves

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *args):
            pass

        def reply(self, status, body=b"", kind="application/json", **headers):
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("X-Server", "scripted")
            for name, value in headers.items():
                self.send_header(name.replace("_", "-"), value)
            self.end_headers()
            self.wfile.write(body)

        def halves(self, id, bytes, until):
            body, kind = json.dumps(long_answer(id, bytes)).encode(), "application/json"
            if MODE == "sse":
                body, kind = b"event: message\ndata: " + body + b"\n\n", "text/event-stream"
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            # Not buffered: every write goes out at once.
            in_halves(body, self.wfile.write, until)

        def do_GET(self):
            if self.path.startswith("/.well-known/"):
                return self.reply(200, json.dumps({"path": self.path}).encode())
            if self.headers.get("Mcp-Session-Id") not in SESSIONS:
                return self.reply(405)
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            message = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": "hello"}}
            self.wfile.write(f"id: 1\nretry: 60000\ndata: {json.dumps(message)}\n\n".encode())
            self.wfile.flush()
            self.close_connection = True

        def do_DELETE(self):
            seen("DELETE " + str(self.headers.get("Mcp-Session-Id")))
            self.reply(200)

        def do_POST(self):
            body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            noted = {k.lower(): v for k, v in self.headers.items()}
            noted[":path"] = self.path
            # In one piece: two requests at once must not come between each other's lines.
            lines = body.decode().removesuffix("\n")
            seen(lines + "\nHEADERS " + json.dumps(noted, sort_keys=True))
            if TOKEN and self.headers.get("Authorization") != "Bearer " + TOKEN:
                return self.reply(401, b"who are you?", "text/plain", WWW_Authenticate='Bearer realm="scripted"')
            if os.path.exists(os.path.join(os.environ.get("FLAGS", ""), "html")):
                return self.reply(200, b"<html>\nmaintenance\n</html>", "text/html")
            message = json.loads(body)
            if isinstance(message, list):
                for part in message:
                    answer(part, lambda _: None)
                return self.reply(202)
            refusal = os.path.join(os.environ.get("FLAGS", ""), "refuse")
            if os.path.exists(refusal) and message.get("method") == "tools/call":
                refusal = json.load(open(refusal))
                if refusal.get("after"):
                    answer(message, lambda _: None)
                kind = refusal.get("kind", "application/json")
                return self.reply(refusal["status"], refusal["body"].encode(), kind, **refusal.get("headers", {}))
            modern = "io.modelcontextprotocol/protocolVersion" in ((message.get("params") or {}).get("_meta") or {})
            if modern and self.headers.get("Mcp-Method") != message["method"]:
                error = {"jsonrpc": "2.0", "id": message.get("id"), "error": {"code": -32001, "message": "HeaderMismatch"}}
                return self.reply(400, json.dumps(error).encode())
            flag = lambda name: os.path.join(os.environ.get("FLAGS", ""), name)
            if os.path.exists(flag("forget")):
                # As after a new start: nobody's session is known. Who is first says so.
                try:
                    os.remove(flag("forget"))
                    SESSIONS.clear()
                except FileNotFoundError:
                    pass
            session = self.headers.get("Mcp-Session-Id")
            extra = {}
            if message.get("method") == "initialize":
                if os.path.exists(flag("noinit")):
                    return self.reply(503, b"starting", "text/plain")
                while os.path.exists(flag("slowinit")):
                    time.sleep(0.005)
                session = uuid.uuid4().hex
                SESSIONS.add(session)
                extra = {"Mcp_Session_Id": session}
            elif not modern and session not in SESSIONS:
                return self.reply(404, b"no such session", "text/plain")
            if "id" not in message or "method" not in message:
                return self.reply(202)
            if (message.get("params") or {}).get("name") == "halves":
                return self.halves(message["id"], **message["params"]["arguments"])
            if MODE == "json" or message["method"] == "initialize":
                result = answer(message, lambda _: None)
                if "read_only" in self.path and message["method"] == "tools/list":
                    # As some servers do: the address says what a tool may do.
                    result = json.loads(json.dumps(result))
                    result["result"]["tools"][0]["annotations"] = {"readOnlyHint": True}
                # As SDKs do: the code of an error decides the status, whoever raised it.
                refused = "error" in result and result["error"]["code"] in (-32600, -32021)
                return self.reply(400 if refused else 200, json.dumps(result).encode(), **extra)
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Connection", "close")
            self.end_headers()
            lock = threading.Lock()

            def send(item):
                with lock:
                    self.wfile.write(f"event: message\ndata: {json.dumps(item)}\n\n".encode())
                    self.wfile.flush()

            if os.environ.get("FLOOD") and message["method"] == "tools/list":
                # One event that never ends: more than anybody should keep, and then silence.
                for _ in range(64):
                    self.wfile.write(b"data: " + b"x" * 1_000_000)
                self.wfile.flush()
                threading.Event().wait()
            send(answer(message, send))
            self.close_connection = True

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    if CERTIFICATE:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(CERTIFICATE)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    sys.stdout.write(f"{server.server_address[1]}\n")
    sys.stdout.flush()
    threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
    server.serve_forever()
