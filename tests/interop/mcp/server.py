"""Tool servers on the official Python SDK, one for each way MCP goes over HTTP.

Prints one line of JSON, {"json": URL, "events": URL, "stateless": URL, "legacy": URL}, and serves
until its standard input ends.
"""

import asyncio
import json
import socket
import sys

import uvicorn
from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.server.streamable_http import EventMessage, EventStore
from mcp_types import ImageContent, TextContent


class Kept(EventStore):
    """Events, so that a stream can be taken up again."""

    def __init__(self):
        self.events = []

    async def store_event(self, stream_id, message):
        self.events.append((stream_id, message))
        return str(len(self.events))

    async def replay_events_after(self, last_event_id, send_callback):
        after = int(last_event_id)
        stream = self.events[after - 1][0]
        for number, (of, message) in enumerate(self.events[after:], after + 1):
            if of == stream and message is not None:
                await send_callback(EventMessage(message, str(number)))
        return stream


def server():
    mcp = MCPServer("interop", log_level="CRITICAL")

    @mcp.tool()
    def add(a: int, b: int) -> dict[str, int]:
        """Adds two numbers."""
        return {"sum": a + b}

    @mcp.tool(structured_output=False)
    def blocks():
        """Gives blocks of several kinds."""
        return [
            TextContent(type="text", text="first"),
            ImageContent(type="image", data="AAAA", mime_type="image/png"),
            TextContent(type="text", text="last é"),
        ]

    @mcp.tool()
    def fail() -> str:
        """Fails."""
        raise ValueError("out of stock")

    @mcp.tool(structured_output=False)
    def heard(ctx: Context) -> str:
        """Says what came with the call."""
        meta = ctx.request_context.meta or {}
        return json.dumps({"key": ctx.headers.get("x-key"), "meta": dict(meta)})

    @mcp.tool(structured_output=False)
    async def asks(ctx: Context) -> str:
        """Asks the client for something it does not offer."""
        try:
            await ctx.session.elicit("Sure?", {"type": "object", "properties": {}}, ctx.request_id)
        except Exception as error:  # what the client says is what is tested
            return f"{type(error).__name__}: {error}"
        return "it answered"

    @mcp.tool(structured_output=False)
    async def progress(ctx: Context) -> str:
        """Says how far it is."""
        await ctx.report_progress(1, 2, "half")
        return "done"

    @mcp.tool(structured_output=False)
    async def leaves(ctx: Context) -> str:
        """Hangs up before it answers; the answer can be fetched."""
        await ctx.close_sse_stream()
        return "fetched"

    stopped = asyncio.Event()

    @mcp.tool(structured_output=False)
    async def waits() -> str:
        """Never answers, and knows when nobody waits any more."""
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            stopped.set()
            raise
        return "never"

    @mcp.tool(structured_output=False)
    async def stopped_waiting() -> str:
        """Answers once the tool above was cancelled."""
        await stopped.wait()
        return "cancelled"

    @mcp.tool(structured_output=False)
    async def forgets() -> str:
        """Forgets every session, as a restart would."""
        mcp.session_manager._server_instances.clear()
        return "forgotten"

    async def later() -> str:
        """Is there once the tools have changed."""
        return "there now"

    @mcp.tool(structured_output=False)
    async def changes(ctx: Context) -> str:
        """Has one tool more, and says so."""
        mcp.add_tool(later)
        await ctx.session.send_tool_list_changed()
        return "changed"

    return mcp


APPS = {
    "json": ("/mcp", server().streamable_http_app(json_response=True)),
    "events": ("/mcp", server().streamable_http_app(event_store=Kept(), retry_interval=10)),
    "stateless": ("/mcp", server().streamable_http_app(stateless_http=True)),
    "legacy": ("/sse", server().sse_app()),
}


async def main():
    urls, serving = {}, []
    for name, (path, app) in APPS.items():
        listener = socket.socket()
        listener.bind(("127.0.0.1", 0))
        urls[name] = f"http://127.0.0.1:{listener.getsockname()[1]}{path}"
        config = uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=1)
        serving.append((uvicorn.Server(config), listener))
    tasks = [asyncio.create_task(each.serve(sockets=[listener])) for each, listener in serving]
    while not all(each.started for each, _ in serving):
        await asyncio.sleep(0.01)
    print(json.dumps(urls), flush=True)
    await asyncio.to_thread(sys.stdin.read)
    for each, _ in serving:
        each.should_exit = True
    await asyncio.wait(tasks, timeout=5)


asyncio.run(main())
