"""Runs kits/access-request twice, as a person who approves and as one who rejects, and looks at what
became of the world: the files, what the file server was asked, what the ledger says.

  drive.py KTSU MCP-PROXY SERVER
"""

import http.server
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

KTSU, PROXY, SERVER = sys.argv[1:4]
ROOT = pathlib.Path(__file__).resolve().parents[3]
KIT = ROOT / "kits/access-request"
GRANT = (
    "Request: AR-1041\nPerson: Ines Duarte, finance\nSystem: ledger-reports\n"
    "Level: read\nUntil: 2027-03-31\nRule: 3.1, reading\n"
)
PATIENCE = 60


def holds(what, true, more=None):
    if not true:
        if more is not None:
            print(json.dumps(more, indent=2), file=sys.stderr)
        raise SystemExit(f"interop: not so: {what}")


class Told(http.server.BaseHTTPRequestHandler):
    """Takes webhooks."""

    heard = []

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        self.heard.append((self.path, json.loads(body)))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_):
        pass


def until(what, look):
    """Waits for something that nobody announces."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        found = look()
        if found:
            return found
        time.sleep(0.05)
    raise SystemExit(f"interop: {what}: nothing within {PATIENCE} s")


def ask(url, body=None):
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(url, data), timeout=PATIENCE) as answer:
        return json.load(answer)


class Stage:
    def __init__(self, folder):
        self.folder = folder
        self.office = folder / "office"
        self.heard = folder / "heard.jsonl"
        self.ledger = folder / "ledger.db"
        self.running = []
        shutil.copytree(KIT / "files", self.office)

    def start(self):
        receiver = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Told)
        threading.Thread(target=receiver.serve_forever, daemon=True).start()
        log = self.folder / "proxy.log"
        tee = [sys.executable, str(ROOT / "tests/interop/access-request/heard.py"), str(self.heard)]
        command = [PROXY, "--host", "127.0.0.1", "--port", "0", "--", *tee, "node", SERVER, str(self.office)]
        with open(log, "wb") as out:
            self.running.append(subprocess.Popen(command, stdout=out, stderr=out))
        line = re.compile(r"running on (http://127\.0\.0\.1:\d+)")
        tools = until("the file server", lambda: line.search(log.read_text()))[1]
        environment = self.folder / "interop.env.yaml"
        # One program, met both ways: reading over Streamable HTTP, writing over HTTP+SSE.
        environment.write_text(f"""
name: interop
servers: {{files: {{url: "{tools}/mcp"}}, grants: {{url: "{tools}/sse"}}}}
providers: [{{name: office, type: scripted, config: {{rules: "{KIT}/scripted/office.yaml"}}}}]
""")
        start = ["start", "--all", "--json", "--port", "0", "--runtime-port", "0", "--gateway-port", "0"]
        command = [KTSU, *start, "--kit", str(KIT), "--env", str(environment), "--ledger", str(self.ledger)]
        url = f"http://127.0.0.1:{receiver.server_port}"
        engine = subprocess.Popen(
            command, stdout=subprocess.PIPE, env=dict(os.environ, RECEIVER_URL=url, KTSU_LOG="warn")
        )
        self.running.append(engine)
        for said in engine.stdout:
            if b'"url"' in said:
                self.url = json.loads(said)["url"]
                return
        raise SystemExit("interop: the engine did not start")

    def stop(self):
        # Only what was started here, by its id, the last one first.
        while self.running:
            process = self.running.pop()
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()

    def asked(self):
        """The calls that the server saw so far."""
        lines = [json.loads(line) for line in self.heard.read_text().splitlines()]
        return [each["params"] for each in lines if each.get("method") == "tools/call"]

    def grant(self):
        return self.office / "grants/AR-1041.txt"

    def run(self, decision):
        """Runs the kit once, and decides; gives the run and its envelope."""
        before = len(self.asked())
        run = ask(f"{self.url}/invoke/access", {"request": "AR-1041"})["run_id"]
        mine = lambda: [one for one in ask(f"{self.url}/approvals") if one["run_id"] == run]
        (record,) = until("an approval", mine)
        holds("the call is the one to be approved", record["tool_name"] == "write_file", record)
        holds("what is asked about is the grant", record["arguments"]["content"] == GRANT, record)
        holds("nothing is written before the decision", not self.grant().exists())
        notices = lambda: [body for path, body in list(Told.heard)
                           if path == "/approvals" and body["approval_id"] == record["approval_id"]]
        holds("people are told once", len(until("a notice", notices)) == 1)
        said = {"decision": decision, "approval_id": record["approval_id"],
                "digest": record["digest"], "reason": "interop"}
        ask(f"{self.url}/runs/{run}/steps/decide/approval/decide", said)
        ended = lambda: ask(f"{self.url}/runs/{run}")["run"]["status"] in ("complete", "failed")
        until("the end of the run", ended)
        envelope = ask(f"{self.url}/runs/{run}/envelope")
        holds("the run completes", envelope["status"] == "complete", envelope)
        self.same(run, self.asked()[before:])
        return run, envelope

    def same(self, run, asked):
        """The server saw exactly what the ledger says was called."""
        frames = ask(f"{self.url}/runs/{run}/frames?expand=true")["frames"]
        by = {frame["seq"]: frame["data"] for frame in frames}

        def value(reference):
            found = by[reference["frame"]]
            for part in reference["path"].split("/")[1:]:
                found = found[int(part) if isinstance(found, list) else part]
            return found

        plain = lambda name, arguments: json.dumps([name, arguments], sort_keys=True)
        called = [
            plain(each["data"]["tool"], value(each["data"]["arguments"]))
            for each in frames if each["type"] == "tool.called"
        ]
        seen = [plain(each["name"], each["arguments"]) for each in asked]
        holds("the server saw the calls of the ledger", sorted(called) == sorted(seen), [called, seen])
        returned = [each for each in frames if each["type"] == "tool.returned"]
        holds("each call has one result", len([one for one in returned if "called" in one["data"]]) == len(called))
        writes = [each for each in asked if each["name"] == "write_file"]
        return writes

    def judge(self, runs):
        """Nobody needs the engine to look back."""
        def ktsu(*arguments):
            said = subprocess.run([KTSU, "--ledger", self.ledger, *arguments], capture_output=True, text=True)
            holds(f"ktsu {arguments[0]} is fine:\n{said.stdout}{said.stderr}", said.returncode == 0)
            return said.stdout

        ktsu("verify")
        ktsu("replay", "--strict", *runs)
        archive = self.folder / "evidence.tar"
        ktsu("evidence", "export", *runs, "--output", str(archive))
        ktsu("evidence", "verify", str(archive))
        checked = subprocess.run(
            [sys.executable, ROOT / "src/evidence/verify.py", archive], capture_output=True, text=True
        )
        holds(f"verify.py is fine:\n{checked.stdout}{checked.stderr}", checked.returncode == 0)


def main():
    with tempfile.TemporaryDirectory() as folder:
        stage = Stage(pathlib.Path(folder))
        try:
            stage.start()
            rejected, envelope = stage.run("rejected")
            holds("a rejection is told", envelope["output"]["granted"] is False, envelope)
            holds("nothing is written after a rejection", not stage.grant().exists())
            approved, envelope = stage.run("approved")
            holds("the grant is confirmed", envelope["output"]["confirmed"] is True, envelope)
            holds("what is written is what was approved", stage.grant().read_text() == GRANT)
            writes = [each for each in stage.asked() if each["name"] == "write_file"]
            holds("it was written once", len(writes) == 1, writes)
            told = [path for path, _ in Told.heard]
            holds("both runs are told", told.count("/access") == 2, told)
            calls = len(stage.asked())
        finally:
            stage.stop()
        stage.judge([rejected, approved])
    print(f"interop: kits/access-request rejected once and approved once on the file server of others: {calls} calls")


main()
