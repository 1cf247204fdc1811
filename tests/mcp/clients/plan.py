"""What every Python client here is told, and what it tells.

The plan is one JSON argument:

    connect      {"command": [...]} or {"url": "..."}
    calls        [{"tool": ..., "arguments": {...}, "timeout_s": 1.5, "key": "..."}, ...]; key and timeout may be absent
    era          "legacy", "auto" or a protocol version, for clients that let one choose
    connections  "one" for all calls, or "each": a new one for every call
    together     true: all calls at once, each on a connection of its own

The answer is a JSON array on standard output with one entry for each call: {"text": [...], "is_error": ...} if the
client got a result, {"failed": "..."} if it raised.
"""

import asyncio
import json
import sys

KEY = "dev.oncely/idempotency-key"


def read():
    return json.loads(sys.argv[1])


def told(answers):
    print(json.dumps(answers))


def meta_of(call):
    return {KEY: call["key"]} if "key" in call else None


async def attempt(making):
    """Awaits one call; what it raises is its answer."""
    try:
        return await making
    except Exception as error:  # a client's errors are many, and each is an answer
        return {"failed": f"{type(error).__name__}: {error}"}


def result(result):
    texts = [item.text for item in result.content if getattr(item, "text", None) is not None]
    is_error = getattr(result, "is_error", getattr(result, "isError", False))
    return {"text": texts, "is_error": bool(is_error)}


def run(plan, connected, call):
    """Makes the planned calls: `connected()` is a context that gives a client, `call(client, call)` makes one call."""

    async def alone(one):
        async with connected() as client:
            return await attempt(call(client, one))

    async def all_of_them():
        if plan.get("together"):
            return await asyncio.gather(*(alone(one) for one in plan["calls"]))
        if plan.get("connections") == "each":
            return [await alone(one) for one in plan["calls"]]
        async with connected() as client:
            return [await attempt(call(client, one)) for one in plan["calls"]]

    told(asyncio.run(all_of_them()))
