"""The calls of a plan through FastMCP's client."""

from fastmcp import Client
from fastmcp.client.transports import StdioTransport

import plan as planned

plan = planned.read()
connect = plan["connect"]


def connected():
    if "url" in connect:
        return Client(connect["url"])
    command, *arguments = connect["command"]
    return Client(StdioTransport(command=command, args=arguments, keep_alive=False))


async def call(client, one):
    got = await client.call_tool(
        one["tool"], one["arguments"], timeout=one.get("timeout_s"), raise_on_error=False, meta=planned.meta_of(one)
    )
    return planned.result(got)


planned.run(plan, connected, call)
