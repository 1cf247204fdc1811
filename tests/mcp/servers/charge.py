"""A server whose tool has an effect and then takes its time, on the Python SDK: `charge.py FILE stdio|http`.

`charge` appends a line to FILE, which is what a test counts, and answers after `seconds`. Over HTTP the server prints
its address first.
"""

import asyncio
import os
import socket
import sys

import uvicorn
from mcp.server.mcpserver import MCPServer

effects, transport = sys.argv[1:]
server = MCPServer("charges")


@server.tool()
async def charge(customer: str, amount: int, seconds: float) -> str:
    """Charges a customer."""
    # One write to a file opened for appending: lines of several processes do not mix.
    out = os.open(effects, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(out, f"{customer} {amount}\n".encode())
    os.close(out)
    await asyncio.sleep(seconds)
    return f"charged {customer} {amount}"


if transport == "stdio":
    server.run("stdio")
else:
    listening = socket.create_server(("127.0.0.1", 0))
    print(f"http://127.0.0.1:{listening.getsockname()[1]}/mcp", flush=True)
    app = server.streamable_http_app()
    uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listening])
