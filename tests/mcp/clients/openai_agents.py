"""The calls of a plan through openai-agents, with two retries and the timeout that it has by default, 5 seconds.

No model takes part: the retries are made below it, by `call_tool` itself.
"""

from agents.mcp import MCPServerStdio, MCPServerStreamableHttp

import plan as planned

plan = planned.read()
connect = plan["connect"]


def connected():
    if "url" in connect:
        return MCPServerStreamableHttp({"url": connect["url"]}, max_retry_attempts=2)
    command, *arguments = connect["command"]
    return MCPServerStdio({"command": command, "args": arguments}, max_retry_attempts=2)


async def call(server, one):
    return planned.result(await server.call_tool(one["tool"], one["arguments"]))


planned.run(plan, connected, call)
