"""A client on the official Python SDK, told by lines of JSON what to do.

    client.py http|events URL
    client.py stdio COMMAND [ARGUMENT…]

Prints {"version": …} once it is connected, then answers each line of its standard input with one of
its own: {"list": true} with the names of the tools, {"call": NAME, "arguments": …, "key": …} with
what the call gave. What fails is {"error": …}; what fails before it is connected ends it, too.
"""

import asyncio
import json
import sys

from mcp import Client, StdioServerParameters
from mcp.client.sse import sse_client


def say(value):
    print(json.dumps(value), flush=True)


async def asked(client, line):
    wanted = json.loads(line)
    if "list" in wanted:
        listed = await client.list_tools()
        return {"tools": [tool.name for tool in listed.tools]}
    result = await client.call_tool(
        wanted["call"],
        wanted["arguments"],
        meta={"ktsu/idempotency-key": wanted["key"]} if "key" in wanted else None,
    )
    return result.model_dump(mode="json", by_alias=True, exclude_none=True)


def server_of(transport, target, arguments):
    if transport == "stdio":
        return StdioServerParameters(command=target, args=list(arguments))
    # A URL is Streamable HTTP; first the newest version is tried, which not every server knows.
    return target if transport == "http" else sse_client(target)


async def main(transport, target, *arguments):
    server = server_of(transport, target, arguments)
    async with Client(server, read_timeout_seconds=20) as client:
        say({"version": client.protocol_version})
        while line := await asyncio.to_thread(sys.stdin.readline):
            try:
                say(await asked(client, line))
            except Exception as error:
                say({"error": f"{type(error).__name__}: {error}"})


def causes(error):
    for one in getattr(error, "exceptions", [error]):
        yield from causes(one) if one is not error else [one]


try:
    asyncio.run(main(*sys.argv[1:]))
except Exception as error:
    say({"error": "; ".join(f"{type(one).__name__}: {one}" for one in causes(error))})
