"""The calls of a plan through LangChain's adapter: it starts a new server process for every call, always with id 1."""

import asyncio
from contextlib import asynccontextmanager

from langchain_mcp_adapters.client import MultiServerMCPClient

import plan as planned

plan = planned.read()
command, *arguments = plan["connect"]["command"]


@asynccontextmanager
async def connected():
    yield MultiServerMCPClient({"server": {"transport": "stdio", "command": command, "args": arguments}})


async def call(client, one):
    tools = {tool.name: tool for tool in await client.get_tools()}
    got = await asyncio.wait_for(tools[one["tool"]].ainvoke(one["arguments"]), one.get("timeout_s"))
    texts = [got] if isinstance(got, str) else [item["text"] for item in got if "text" in item]
    return {"text": texts, "is_error": False}


planned.run(plan, connected, call)
