"""The calls of a plan through the Python SDK, second generation: `mcp.Client`. It calls before it lists."""

from mcp import Client, StdioServerParameters

import plan as planned

plan = planned.read()
connect = plan["connect"]


def connected():
    if "url" in connect:
        return Client(connect["url"], mode=plan.get("era", "auto"))
    command, *arguments = connect["command"]
    return Client(StdioServerParameters(command=command, args=arguments), mode=plan.get("era", "auto"))


async def call(client, one):
    got = await client.call_tool(
        one["tool"], one["arguments"], read_timeout_seconds=one.get("timeout_s"), meta=planned.meta_of(one)
    )
    return planned.result(got)


planned.run(plan, connected, call)
