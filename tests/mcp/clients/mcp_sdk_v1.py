"""The calls of a plan through the Python SDK, first generation: `ClientSession`, with its handshake."""

from contextlib import asynccontextmanager
from datetime import timedelta

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamablehttp_client

import plan as planned

plan = planned.read()
connect = plan["connect"]


def streams():
    if "url" in connect:
        return streamablehttp_client(connect["url"])
    command, *arguments = connect["command"]
    return stdio_client(StdioServerParameters(command=command, args=arguments))


@asynccontextmanager
async def connected():
    async with streams() as (read, write, *_):
        async with ClientSession(read, write) as session:
            await session.initialize()
            yield session


async def call(session, one):
    timeout = timedelta(seconds=one["timeout_s"]) if "timeout_s" in one else None
    return planned.result(await session.call_tool(one["tool"], one["arguments"], read_timeout_seconds=timeout))


planned.run(plan, connected, call)
