"""Offers the functions of an agentdojo suite as tools: server.py FOLDER SUITE TASK.

Speaks MCP on its standard input and output. The environment begins as the task and the attack say; every
call is added to calls.jsonl in FOLDER, and a process that begins later makes those that are there again.
"""
import json
import sys
from pathlib import Path

from dojo import Dojo

folder, suite, task = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
dojo = Dojo(suite, task)
kept = folder / "calls.jsonl"
if kept.exists():
    for line in kept.read_text().splitlines():
        dojo.call(*json.loads(line))


def tools():
    for function in dojo.suite.tools:
        schema = function.parameters.model_json_schema()
        yield {"name": function.name, "description": function.description, "inputSchema": schema}


def called(asked):
    name, arguments = asked["name"], asked.get("arguments", {})
    with kept.open("a") as file:
        file.write(json.dumps([name, arguments]) + "\n")
    text, error = dojo.call(name, arguments)
    return {"content": [{"type": "text", "text": text}], "isError": error is not None}


for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message or "method" not in message:
        continue
    answer = {"jsonrpc": "2.0", "id": message["id"]}
    if message["method"] == "initialize":
        version = message["params"]["protocolVersion"]
        server = {"name": "dojo", "version": "1"}
        answer["result"] = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": server}
    elif message["method"] == "tools/list":
        answer["result"] = {"tools": list(tools())}
    elif message["method"] == "tools/call":
        answer["result"] = called(message["params"])
    else:
        answer["error"] = {"code": -32601, "message": "there is no such method"}
    print(json.dumps(answer), flush=True)
