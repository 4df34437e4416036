#!/usr/bin/env python3
"""Verifies archives of evidence that `ktsu evidence export` makes, without ktsu.

    python3 verify.py ARCHIVE... [--checkpoint NOTES] [--key KEY] [--json]

Needs Python 3.8 and its standard library; without the package `blake3` the claims that rest on
BLAKE3 are not covered. Every claim is proven, not covered, or failed. Exit code: 0 if no claim
failed, 1 if one did, 2 if an archive cannot be read.
"""
import argparse, base64, datetime, hashlib, json, re, sys
from bisect import bisect_left
from functools import reduce
try: from blake3 import blake3 as _blake3
except ImportError: _blake3 = None
FORMAT = 1
MAX_BODY = 256 * 1024
ZERO = "0" * 64
KEPT = ("type", "scope", "actor", "at", "data", "cause", "ext", "prev")
NO_BLAKE3 = None, "the Python package blake3 is not installed"
NUMBER = re.compile(r"(0|[1-9][0-9]{0,15})\Z")
HASH = re.compile(r"[0-9a-f]{64}\Z")
PART = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*\Z")
NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
ACTOR = re.compile(r"(orchestrator|runtime|gateway|cli|(responder|principal):" + NAME + r")\Z")
TIME = re.compile(r"([0-9]{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)\.([0-9]{6})Z\Z", re.ASCII)
STREAM = re.compile(r"(store|(run|branch|eval|recompute|kv):" + NAME + r")\Z")
MEMBERS = ["v", "stream", "seq", "type", "scope", "actor", "cause", "at", "data", "ext", "prev"]
class Unreadable(Exception): """There is nothing to judge."""
class Wrong(Exception):
    def __init__(self, reason, frame=None):
        super().__init__(reason)
        self.reason, self.frame = reason, frame
def wrong_if(condition, reason, frame=None):
    if condition: raise Wrong(reason, frame)
def unreadable_if(condition, reason):
    if condition: raise Unreadable(reason)
def check(condition):
    if not condition: raise ValueError("it is malformed")
def blake3(data): return _blake3(data).hexdigest() if _blake3 else None
# ---- Ed25519 (RFC 8032), verification only ------------------------------------------------------
P = 2 ** 255 - 19
L = 2 ** 252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, P - 2, P) % P
def add(p, q):
    a, b = (p[1] - p[0]) * (q[1] - q[0]) % P, (p[1] + p[0]) * (q[1] + q[0]) % P
    c, d = 2 * p[3] * q[3] * D % P, 2 * p[2] * q[2] % P
    e, f, g, h = b - a, d - c, d + c, b + a
    return e * f % P, g * h % P, f * g % P, e * h % P
def times(s, p):
    q = (0, 1, 1, 0)
    while s > 0:
        if s & 1: q = add(q, p)
        p, s = add(p, p), s >> 1
    return q
def point(data):
    y = int.from_bytes(data, "little")
    sign, y = y >> 255, y & (1 << 255) - 1
    if y >= P: return None
    square = (y * y - 1) * pow(D * y * y + 1, P - 2, P) % P
    x = pow(square, (P + 3) // 8, P)
    if (x * x - square) % P != 0: x = x * pow(2, (P - 1) // 4, P) % P
    if (x * x - square) % P != 0 or (x == 0 and sign): return None
    x = P - x if x & 1 != sign else x
    return x, y, 1, x * y % P
BASE = point(bytes([0x58]) + bytes([0x66]) * 31)
def signed_by(key, text, signature):
    if len(key) != 32 or len(signature) != 64: return False
    a, s = point(key), int.from_bytes(signature[32:], "little")
    if a is None or s >= L: return False
    h = int.from_bytes(hashlib.sha512(signature[:32] + key + text).digest(), "little") % L
    negative = (P - a[0], a[1], 1, P - a[3])
    x, y, z, _ = add(times(s, BASE), times(h, negative))
    x, y = (one * pow(z, P - 2, P) % P for one in (x, y))
    return (y | (x & 1) << 255).to_bytes(32, "little") == signature[:32]
# ---- Archives ---------------------------------------------------------------------------------
def header(name, size):
    block = bytearray(512)
    for at, data in ((0, name), (100, b"0000644\0"), (108, b"0000000\0"), (116, b"0000000\0"), (124, b"%011o\0" % size),
                     (136, b"00000000000\0"), (148, b" " * 8), (156, b"0"), (257, b"ustar\x0000")):
        block[at:at + len(data)] = data
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)
def read_tar(data):
    files, at, last = {}, 0, b""
    while True:
        block = data[at:at + 512]
        unreadable_if(len(block) < 512, "it ends early, at byte %d" % at)
        if block == bytes(512):
            unreadable_if(data[at:] != bytes(1024), "something stands behind its end, at byte %d" % at)
            return files
        name = block.split(b"\0")[0]
        parts = name.decode("latin-1").split("/")
        wrong_name = not name or len(name) >= 100 or len(parts) > 3 or not all(map(PART.match, parts))
        unreadable_if(wrong_name or name <= last, "a name no archive has, twice or out of order, at byte %d" % at)
        size = int(block[124:135], 8) if re.match(rb"[0-7]{11}\Z", block[124:135]) else 0
        unreadable_if(block != header(name, size), "a header that no archive of evidence has, at byte %d" % at)
        end = at + 512 + size
        after = (end + 511) // 512 * 512
        unreadable_if(after > len(data) or any(data[end:after]), "a file is not as long as it says, at byte %d" % at)
        files[name.decode("ascii")] = data[at + 512:end]
        last, at = name, after
def in_order(pairs):
    names = [name for name, _ in pairs]
    if names != MEMBERS and any(a >= b for a, b in zip(names, names[1:])): raise ValueError("a key twice or out of order")
    return dict(pairs)
def whole(text):
    check(-1 << 63 <= int(text) < 1 << 64)
    return int(text)
class Real(float):
    def __init__(self, text):
        check(abs(self) < float("inf"))
        self.text = text
def canonical(value):
    """The text of a value that was read: its keys are in order, its numbers as they were written."""
    if isinstance(value, dict): return "{%s}" % ",".join(canonical(key) + ":" + canonical(value[key]) for key in value)
    if isinstance(value, list): return "[%s]" % ",".join(map(canonical, value))
    return value.text if isinstance(value, Real) else json.dumps(value, ensure_ascii=False)
def load(text):
    made = json.loads(text, object_pairs_hook=in_order, parse_int=whole, parse_float=Real, parse_constant=lambda _: check(False))
    json.dumps(made, ensure_ascii=False).encode("utf-8")  # Half a surrogate is no text.
    return made
def document(files, name):
    try: return load(files[name].decode("utf-8"))
    except (KeyError, ValueError, RecursionError) as error: raise Unreadable("%s: %r" % (name, error))
def number(text): return int(text) if NUMBER.match(text) and int(text) < 1 << 53 else None
def is_number(value): return type(value) is int and value >= 0
def is_cause(value):
    stream, _, seq = value.rpartition("#") if isinstance(value, str) else ("", "", "")
    return is_number(value) or bool(STREAM.match(stream) and number(seq) is not None)
def is_time(text): return bool(found := TIME.match(text)) and datetime.datetime(*map(int, found.groups())).year >= 1970
def has(value, optional=None, **kinds):
    """Whether these are its members, each of its kind."""
    return set(value) - {optional} == set(kinds) and all(type(value[name]) is kind for name, kind in kinds.items())
class Frame:
    def __init__(self, position, stream, seq, digest, body):
        self.position, self.stream, self.seq, self.hash, self.body = position, stream, seq, digest, body
        self.id = "%s#%d" % (stream, seq)
    def read(self):
        """Reads the bytes; what does not read is wrong."""
        wrong_if(len(self.body) > MAX_BODY, "it is larger than a frame may be", self.id)
        wrong_if(blake3(self.body) not in (None, self.hash), "its hash is not that of its bytes", self.id)
        try:
            body = load(self.body.decode("utf-8"))
            check(list(body) == MEMBERS and body["v"] == 1 and has(body, v=int, stream=str, seq=int, type=str, scope=str, actor=str, cause=list, at=str, data=dict, ext=list, prev=str))
            check(ACTOR.match(body["actor"]) and is_time(body["at"]) and HASH.match(body["prev"]) and all(map(is_cause, body["cause"])))
            check(all(has(e, bytes=int, hash=str, path=str) and e["bytes"] >= 0 and HASH.match(e["hash"]) for e in body["ext"]))
        except (ValueError, TypeError, RecursionError) as error: raise Wrong("it is not a frame: %s" % error, self.id)
        wrong_if((body["stream"], body["seq"]) != (self.stream, self.seq), "its bytes say another stream or number", self.id)
        self.type, self.scope, self.actor, self.at, self.data, self.cause, self.ext, self.prev = map(body.get, KEPT)
class Evidence:
    def __init__(self, data):
        self.files = read_tar(data)
        self.manifest = document(self.files, "manifest.json")
        self.tree = document(self.files, "proofs/tree.json")
        try:
            check(has(self.manifest, all=bool, engine=str, files=dict, format=int, origin=str, runs=list, streams=dict))
            check(has(self.tree, format=int, hashes=list, size=int) and self.manifest["format"] == self.tree["format"] == FORMAT and self.tree["size"] >= 0)
            check(all(isinstance(run, str) for run in self.manifest["runs"]) and all(HASH.match(node) for node in self.tree["hashes"]))
            check(all(has(it, "derived", blake3=str, bytes=int, sha256=str) and it["bytes"] >= 0 and type(it.get("derived", True)) is bool for it in self.manifest["files"].values()))
            check(all(has(it, first=int, frames=int, head=str) and min(it["first"], it["frames"]) >= 0 and HASH.match(it["head"]) for it in self.manifest["streams"].values()))
            self.origin = self.manifest["origin"]
        except (ValueError, KeyError, TypeError, AttributeError) as error: raise Unreadable("manifest or proof: %r" % error)
        self.streams = self.manifest["streams"]
        self.chain_wrong, self.frames, self.places = None, [], {}
        for frame in self.rows(): self.take(frame)
        self.defined = [frame for frame in self.frames if frame.type in ("run.created", "branch.created") and frame.data.get("digest") is not None]
        try: self.follow()
        except Wrong as wrong: self.chain_wrong = self.chain_wrong or wrong
    def rows(self):
        try: places, bodies = self.files["frames.csv"].decode("ascii"), self.files["frames.jsonl"]
        except (KeyError, ValueError) as error: raise Unreadable("frames: %r" % error)
        places, bodies = places.split("\n"), bodies.split(b"\n")
        unreadable_if(places.pop() or bodies.pop() or len(places) != len(bodies) + 1, "frames.csv and frames.jsonl are not of one length")
        unreadable_if(places[0] != "position,stream,seq,hash", "frames.csv does not begin with its columns")
        for line, body in zip(places[1:], bodies):
            cells = line.split(",")
            unreadable_if(len(cells) != 4 or not number(cells[0]) or number(cells[2]) is None or not HASH.match(cells[3]), "frames.csv: a line is damaged: %r" % line[:80])
            yield Frame(int(cells[0]), cells[1], int(cells[2]), cells[3], body)
    def take(self, frame):
        try:
            wrong_if(not STREAM.match(frame.stream), "it is of no stream", frame.id)
            frame.read()
            wrong_if(self.frames and frame.position <= self.frames[-1].position, "its position is not above the one before", frame.id)
            wrong_if((frame.stream, frame.seq) in self.places, "it is there twice", frame.id)
            self.places[frame.stream, frame.seq] = frame
            self.frames.append(frame)
        except Wrong as wrong: self.chain_wrong = self.chain_wrong or wrong
    def parent(self, stream):
        """What a branch says it was forked from: stream and position."""
        first = self.places.get((stream, self.streams.get(stream, {}).get("first")))
        if first is None or first.type != "branch.created": return None
        name, position = first.data.get("parent_run_id"), first.data.get("fork_position")
        wrong_if(not isinstance(name, str) or not is_number(position), "its parent has no name", first.id)
        return ("branch:" if name.startswith("branch_") else "run:") + name, position
    def shared(self, stream, seq):
        """A frame of an effective stream, wherever it is kept."""
        for _ in range(len(self.frames) + 1):
            if (stream, seq) in self.places: return self.places[stream, seq]
            above = self.parent(stream)
            if above is None: return None
            stream = above[0]
        return None
    def follow(self):
        ranges = {}
        for frame in self.frames:
            seen = ranges.get(frame.stream)
            if seen is None:
                seq, prev = self.beginning(frame)
                ranges[frame.stream] = seen = {"first": frame.seq, "frames": 0, "head": ""}
            else: seq, prev = seen["first"] + seen["frames"], seen["head"]
            wrong_if(frame.seq != seq, "its number is not %d, which comes next" % seq, frame.id)
            wrong_if(frame.prev != prev, "it does not follow from the frame before it", frame.id)
            seen["frames"], seen["head"] = seen["frames"] + 1, frame.hash
        wrong_if(ranges != self.streams, "the manifest tells of other streams, or of more of them")
    def beginning(self, frame):
        if frame.type != "branch.created": return 0, ZERO
        parent, position = self.parent(frame.stream) or (None, 0)
        if position == 0: return 0, ZERO
        last = self.shared(parent, position - 1)
        wrong_if(last is None, "the frame it was forked from is not in the archive", frame.id)
        return position, last.hash
    # ---- Claims about frames --------------------------------------------------------------
    def claim_manifest(self):
        listed = self.manifest["files"]
        for name, data in self.files.items():
            if name == "manifest.json": continue
            told = {"blake3": blake3(data) or listed.get(name, {}).get("blake3"), "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
            if name.startswith("derived/"): told["derived"] = True
            wrong_if(listed.get(name) != told, name + " is not as listed")
        for name in listed: wrong_if(name not in self.files, name + " is missing")
        return "%d files" % len(listed)
    def claim_chain(self):
        if self.chain_wrong: raise self.chain_wrong
        return "%d frames of %d streams" % (len(self.frames), len(self.streams)) if _blake3 else NO_BLAKE3
    def claim_causes(self):
        outside = 0
        for frame in self.frames:
            for cause in frame.cause:
                wrong = Wrong("it names the cause %s, which is not an earlier frame" % cause, frame.id)
                wrong_if(is_number(cause) and cause >= frame.seq, wrong.reason, frame.id)
                if is_number(cause): continue
                stream, _, seq = cause.rpartition("#")
                found = self.places.get((stream, int(seq)))
                if stream not in self.streams: outside += frame.stream != "store"
                elif found is None or found.position >= frame.position: raise wrong
        return (None, "%d causes stand in other streams" % outside) if outside else "every cause is earlier"
    def claim_blobs(self):
        named = set()
        for frame in self.frames:
            for external in frame.ext:
                name = "blobs/%s.json" % external["hash"]
                data = self.files.get(name)
                right = data is not None and len(data) == external["bytes"] and (name in named or blake3(data) in (None, external["hash"]))
                wrong_if(not right, "the blob %s is missing or another" % external["hash"], frame.id)
                named.add(name)
        for name in self.files: wrong_if(name.startswith("blobs/") and name not in named, "no frame names " + name)
        return "%d blobs" % len(named) if _blake3 else NO_BLAKE3
    def claim_completeness(self):
        headed = {}
        for frame in self.frames:
            if frame.type != "run.head" or frame.stream != "store": continue
            stream, count = frame.data.get("stream"), frame.data.get("frames")
            if stream not in self.streams:
                wrong_if(self.manifest["all"], "%s ended, and is not in an archive of all runs" % stream, frame.id)
                continue
            last = self.shared(stream, count - 1) if is_number(count) else None
            wrong_if(last is None or last.hash != frame.data.get("hash"), "%s does not have the %s frames it ended with" % (stream, count), frame.id)
            # What is not signed shows nothing, and a run that was taken up again has no end.
            headed[stream] = count if frame.position <= self.tree["size"] and frame.data.get("status") != "open" else None
        for run in self.manifest["runs"]: wrong_if(run not in self.streams, run + " was asked for and is not here")
        ends = {frame.stream: frame.seq + 1 for frame in self.frames}
        open_ = [stream for stream in sorted(ends) if stream.split(":")[0] in ("run", "branch") and headed.get(stream) != ends[stream]]
        if open_: return None, "%d runs have no head behind their last frame, such as %s: frames that came later could be left out" % (len(open_), open_[0])
        told = "%d runs end as their heads say" % len(headed)
        left_out = self.tree["size"] - sum(frame.position <= self.tree["size"] for frame in self.frames)
        return (None, "%s; %d frames of the ledger are not here, and later frames, branches or recomputes of these runs may be among them" % (told, left_out)) if left_out > 0 else told
    def claim_extracts(self):
        expected = {}
        for frame in self.frames:
            data = frame.data
            if frame.type == "checkpoint.signed": expected["checkpoints/%012d.note" % data["size"]] = data["note"].encode()
            elif frame.type == "signing_key.added":
                key = decode(data["public_key"])
                ident = key_id(self.origin, key).hex()
                expected["keys/%08d-%s.pub" % (frame.seq, ident)] = b"%s+%s+%s\n" % (self.origin.encode(), ident.encode(), base64.b64encode(b"\1" + key))
            elif frame.type == "signing_key.revoked": expected["keys/%08d-revoked.note" % frame.seq] = data["note"].encode()
            for external in frame.ext:
                blob = self.files.get("blobs/%s.json" % external["hash"])
                if external["path"] == "/definition" and blob is not None: expected["config/%s.json" % external["hash"]] = blob
        found = {name for name in self.files if name.split("/")[0] in ("checkpoints", "keys", "config")}
        for name in sorted(found | set(expected)):
            wrong_if(self.files.get(name) != expected.get(name), name + " is not what the frames say")
        return "%d files" % len(expected)
    def claim_definitions(self):
        for frame in self.defined:
            wrong_if([e["hash"] for e in frame.ext if e["path"] == "/definition"] != [frame.data["digest"]], "its definition is not the one it names", frame.id)
        return "%d definitions are those that runs name" % len(self.defined)
    def claim_lock(self):
        told = [(frame.id, self.unlocked(frame)) for frame in self.defined]
        for one in told:
            if one[1]: return None, "%s: %s" % one
        if not told: return None, "there is no run"
        return "%d runs had the definition that their lock names" % len(told) if _blake3 else NO_BLAKE3
    def unlocked(self, frame):
        """Why a lock says nothing of a run; what it says against one is wrong."""
        if frame.type == "branch.created": return "its definition was changed by a person"
        if all(external["path"] != "/lock" for external in frame.ext): return "it records no lock"
        apart, digest = {}, frame.data["digest"]
        for external in frame.ext:
            name, at, blob = external["hash"], external["path"], self.files.get("blobs/%s.json" % external["hash"])
            wrong_if(at in apart or blob is None or blake3(blob) not in (None, name), "one of its blobs is missing or another", frame.id)
            apart[at] = name, blob
        wrong_if(apart.get("/definition", (None,))[0] != digest, "its definition is not the one it names", frame.id)
        lock = load(apart["/lock"][1].decode("utf-8"))
        if not isinstance(lock, dict) or type(lock.get("format")) is not int or lock["format"] != 1: return "its lock is of a format that this verifier does not know"
        entries, path = lock.get("entries"), "workflows/%s.workflow.yaml" % frame.data["workflow"]
        found = [entry for entry in entries if isinstance(entry, dict) and entry.get("path") == path] if isinstance(entries, list) else []
        wrong_if([(entry.get("kind"), entry.get("definition")) for entry in found] != [("workflow", digest)], "its lock names another definition of the workflow", frame.id)
    def claim_approvals(self):
        people = [story.follow() for story in stories(self, People)]
        decided, unknown = {one for story in people for one in story.decided}, [one for story in people for one in story.unknown]
        if unknown: return None, unknown[0] + ": nobody was asked who they are: auth is none"
        return "%d decisions of people hold" % len(decided) if decided else "nobody decided, and nobody had to"
    def claim_tools(self):
        made, open_ = set(), []
        for story in stories(self, Calls):
            for frame in story.follow().open.values():
                wrong_if(story.ended, "its run has ended, and nothing says what became of the call", frame.id)
                open_.append(frame.id)
            made |= {frame.id for frame in story.made.values()} | {"%s#%d" % (story.stream, seq) for seq in story.repeated}
        if open_: return None, open_[0] + ": its run goes on, and the call has no result yet"
        return NO_BLAKE3 if made and not _blake3 else "%d calls are accounted for" % len(made) if made else "no tool was called"
# ---- What agents did, and on whose word -----------------------------------------------------------
def stories(evidence, kind): return [kind(evidence, name) for name in sorted({f.stream for f in evidence.frames if f.type.split(".")[0] in ("tool", "approval")})]
def same(one, other, *names): return all(one.get(name) == other.get(name) for name in names)
def micros(text): return (datetime.datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fZ") - datetime.datetime(1970, 1, 1)) // datetime.timedelta(microseconds=1)
class Story:
    """A run from its beginning, with all that it shares; what its calls and questions are."""
    def __init__(self, evidence, stream):
        self.evidence, self.stream, self.plan, self.proposer, self.ended = evidence, stream, None, None, False
        self.made, self.open, self.returned, self.asked, self.decided, self.unknown, self.repeated = {}, {}, set(), {}, [], [], {}
    def follow(self):
        for seq in range(1 + max(f.seq for f in self.evidence.frames if f.stream == self.stream)):
            frame = self.evidence.shared(self.stream, seq)
            wrong_if(frame is None, "the frames of %s cannot be read" % self.stream)
            try: self.take(frame, frame.data)
            except Wrong as wrong: raise Wrong(wrong.reason, frame.id)
            if frame.type == "tool.called": self.made[seq] = frame
            if frame.type.endswith(".created") and frame.data.get("digest"): self.plan = self.apart(frame, "/definition")
        return self
    def apart(self, frame, path):
        name = {one["path"]: one["hash"] for one in frame.ext}[path]
        text = self.evidence.files["blobs/%s.json" % name]
        wrong_if(blake3(text) not in (None, name), "one of its blobs is another", frame.id)
        return load(text.decode("utf-8"))
    def whole(self, frame): return dict(frame.data, **{one["path"][1:]: self.apart(frame, one["path"]) for one in frame.ext})
    def rules(self, frame):
        """What the definition says of the tool that a frame names."""
        def work(flow, step): return {one["id"]: one["work"] for one in self.plan["workflows"][flow]["steps"]}[step]
        flow = reduce(lambda flow, step: work(flow, step)["workflow"]["workflow"], filter(None, frame.scope.split("/")), self.plan["root"])
        servers = self.plan["agents"][work(flow, frame.data["step"])["agent"]["file"]].get("servers", [])
        rules = [rule for server in servers if server["name"] == frame.data["server"] for rule in server["tools"]]
        return [rule for rule in rules if rule["pattern"] == frame.data["tool"] or rule["pattern"][-1:] == "*" and frame.data["tool"].startswith(rule["pattern"][:-1])]
    def policy(self, frame): return next((rule["approval"] for rule in self.rules(frame) if "approval" in rule), None)
class Calls(Story):
    def take(self, frame, data):
        if frame.type == "branch.created": self.open, self.ended = {}, False  # What was on its way is the parent's to account for.
        elif frame.type in ("run.completed", "run.failed", "run.cancelled", "run.terminated", "run.resumed") and not frame.scope: self.ended = frame.type != "run.resumed"
        elif frame.type == "tool.called": self.call(frame, data)
        elif frame.type == "tool.in_doubt":
            wrong_if(data["called"] not in self.made, "it is about a call that was never made")
            self.open.pop(data["called"], None)
        elif frame.type == "tool.returned":
            place, made = (data["response"], data["call"]), self.made.get(data.get("called"))
            wrong_if(place in self.returned, "the call has a result already")
            self.returned.add(place)
            if "recorded" in data: return self.repeat(frame, self.whole(frame))
            if "not_sent" in data: return
            wrong_if(made is None or not same(made.data, data, "response", "call"), "it is the result of a call that was never made")
            self.open.pop(data["called"], None)
    def repeat(self, frame, data):
        """What a recompute did not send is answered by a result its first frame brings, once, and by the one the run recorded."""
        start, at, says = self.evidence.shared(self.stream, 0), data["recorded"], ("content", "is_error", "not_sent", "structured")
        reply = self.evidence.shared(self.stream, data["response"])
        calls = self.whole(reply)["tool_calls"] if reply is not None and reply.type == "llm.response" and same(reply.data, data, "step", "item") else []
        digest = blake3(canonical(calls[data["call"]]["arguments"]).encode("utf-8")) if data["call"] < len(calls) else ""
        brought = self.whole(start).get("results", []) if start.type == "recompute.created" and "called" not in data else []
        left = [n for n, one in enumerate(brought) if n not in self.repeated.values() and digest in (None, one["digest"]) and same(one, data, "item", "recorded", "step", *says)]
        wrong_if(not left, "its recompute brings no such result for the call")
        self.repeated[frame.seq] = left[0]
        there = self.evidence.shared(at["stream"], at["seq"])
        if there is None: return
        called = self.evidence.shared(at["stream"], there.data["called"]) if "called" in there.data else None
        known = "called" not in there.data or called is not None and called.type == "tool.called" and same(called.data, at, "server", "tool") and digest in (None, called.data["digest"])
        wrong_if(there.type != "tool.returned" or not known or not same(self.whole(there), data, *says), "the run recorded another result")
    def call(self, frame, data):
        reply, call, first = self.evidence.shared(self.stream, data["response"]), data["call"], data.get("again")
        right = reply is not None and reply.type == "llm.response" and same(reply.data, data, "step", "item") and data["arguments"] == {"frame": reply.seq, "path": "/tool_calls/%d/arguments" % call}
        calls = (reply.data["tool_calls"] or self.apart(reply, "/tool_calls")) if right else []
        wrong_if(call >= len(calls) or blake3(canonical(calls[call]["arguments"]).encode("utf-8")) not in (None, data["digest"]), "its arguments are not those that the reply asks for")
        wrong_if(not self.rules(frame), "its definition does not permit the call")
        if first is not None:
            before = self.made.get(first)
            key = before is not None and (before.stream != frame.stream or same(before.data, data, "idempotency_key"))
            wrong_if(not key or not same(before.data, data, "response", "call"), "it says that it is sent again, and is another call")
            self.open = {seq: one for seq, one in self.open.items() if seq != first and one.data.get("again") != first}
        self.open[frame.seq] = frame
class People(Story):
    def take(self, frame, data):
        if frame.type in ("run.created", "recompute.created"): self.proposer = data["principal"]["id"]
        elif frame.type == "branch.created":
            # What was not executed before the fork is asked again in the branch.
            made = {one.data.get("approval") for one in self.made.values()}
            self.proposer, self.asked = data["by"]["id"], {seq: one for seq, one in self.asked.items() if seq in made}
        elif frame.type == "approval.requested":
            wrong_if(self.policy(frame) != data["policy"], "its definition says otherwise who is asked about the call")
            self.ask(frame, data, data["policy"])
        elif frame.type == "tool.in_doubt" and data["reason"] != "task_ended":
            wrong_if(data["called"] not in self.made, "it is about a call that was never made")
            self.ask(frame, self.made[data["called"]].data, None)
        elif frame.type == "approval.decided": self.decide(frame, data)
        elif frame.type == "approval.expired":
            asked = self.asked.get(data["request"])
            wrong_if(asked is None or asked["state"] or asked["until"] is None or asked["until"] > micros(frame.at), "no wait was over")
            asked["state"] = "expired"
        elif frame.type == "tool.called": self.call(frame, data)
        elif frame.type == "tool.returned" and data.get("not_sent") in ("rejected", "in_doubt") and "recorded" not in data:
            gate = data["not_sent"] == "rejected"
            wrong_if(not self.settled(gate, ("rejected", "expired") if gate else ("rejected",), response=data["response"], call=data["call"]), "nobody rejected the call")
        elif frame.type == "agent.finished" and "report" not in data:
            outcome = data["outcome"] if data["outcome"] is not None else self.apart(frame, "/outcome")
            ends = {"approval_rejected": (True, ("rejected",)), "approval_timed_out": (True, ("expired",)), "tool_in_doubt": (False, ("rejected",))}
            told = ends.get((outcome.get("error") or {}).get("code"))
            wrong_if(told and not self.settled(*told, scope=frame.scope, step=data["step"], item=data.get("item")), "it ended by a decision that nobody made")
    def settled(self, gate, states, **about): return any((one["policy"] is not None) == gate and one["state"] in states and same(one, about, *about) for one in self.asked.values())
    def ask(self, frame, call, policy):
        timeout = (policy or {}).get("timeout")
        self.asked[frame.seq] = dict({name: call.get(name) for name in ("step", "item", "response", "call", "digest", "server", "tool")}, scope=frame.scope, policy=policy,
            until=micros(frame.at) + timeout["ms"] * 1000 if timeout else None, by=set(), state=None)
    def decide(self, frame, data):
        by, asked, said = data["by"]["id"], self.asked.get(data["request"]), data["decision"]
        wrong_if(frame.actor != "principal:" + by, "whoever decided is not whoever appended it")
        wrong_if(asked is None or asked["scope"] != frame.scope or not same(asked, data, "step", "item"), "it answers a question that nobody asked")
        wrong_if(asked["state"], "the question was answered before")
        wrong_if(asked["digest"] != data["digest"], "it is about other arguments than those of the call")
        wrong_if(asked["until"] is not None and asked["until"] <= micros(frame.at), "it came when the time to decide was over")
        wrong_if(asked["policy"] and said == "happened", "a call that was not sent cannot have happened")
        check(said in ("approved", "rejected", "happened"))
        policy = asked["policy"] or {"quorum": 1}
        if said == "approved":
            wrong_if(policy.get("not_by_proposer") and by == self.proposer, "whoever started the run may not approve the call")
            wrong_if(by in asked["by"], "one person counts once")
            asked["by"].add(by)
        asked["state"] = said if said != "approved" or len(asked["by"]) >= max(policy["quorum"], 1) else None
        self.decided.append(frame.id)
        if data["by"]["auth"] == "none": self.unknown.append(frame.id)
    def call(self, frame, data):
        gate = self.asked.get(data.get("approval"))
        wrong_if("approval" not in data and self.policy(frame) is not None, "it was made without the approval that its definition asks for")
        if "approval" in data:
            wrong_if(gate is None or gate["policy"] is None, "nobody was asked about it")
            wrong_if(gate["scope"] != frame.scope or not same(gate, data, "step", "item", "response", "call", "digest", "server", "tool"), "people were asked about another call")
            wrong_if(gate["state"] != "approved", "people did not approve it")
        doubts = [one for one in self.asked.values() if one["policy"] is None and same(one, data, "response", "call")]
        wrong_if("again" in data and any(one["state"] != "approved" for one in doubts), "it was in doubt, and nobody said to send it again")
# ---- The tree, keys and checkpoints -------------------------------------------------------------
def leaf(data): return hashlib.sha256(b"\0" + data).digest()
def above(left, right): return hashlib.sha256(b"\1" + left + right).digest()
def split(size): return 1 << (size - 1).bit_length() - 1
def tree_roots(size, leaves, sizes, hashes):
    """The roots of the tree and of the earlier ones: RFC 6962 around what is left out."""
    wrong_if((leaves and max(leaves) >= size) or any(not 0 < one <= size for one in sizes), "it is about more than the tree holds")
    shown, ends, known, hashes = sorted(leaves), sorted(sizes), {}, iter(hashes)
    def between(numbers, low, high): return bisect_left(numbers, low) < bisect_left(numbers, high)
    def part(low, high):
        if not between(shown, low, high) and not (high - low > 1 and between(ends, low + 1, high)): node = next(hashes, None)
        elif high - low == 1: node = leaves.get(low)
        else:
            middle = low + split(high - low)
            node = above(part(low, middle), part(middle, high))
        wrong_if(node is None, "the proof is too short")
        known[low, high] = node
        return node
    def again(low, high):
        if (low, high) in known: return known[low, high]
        wrong_if(high - low < 2, "the proof is too short")
        middle = low + split(high - low)
        return above(again(low, middle), again(middle, high))
    part(0, size)
    wrong_if(next(hashes, None) is not None, "the proof is too long")
    return {one: again(0, one) for one in {size, *sizes}}
def decode(text): return base64.b64decode(text, validate=True)
def key_id(name, key): return hashlib.sha256(name.encode() + b"\n\1" + key).digest()[:4]
def read_note(note):
    """A signed note: its text, and the signatures below it."""
    text, below = note.rsplit("\n\n", 1)
    lines = []
    for line in below[:-1].split("\n") if below.endswith("\n") else below.split("\n"):
        dash, name, signature = line.split(" ")
        wrong_if(dash != "\u2014", "a signature of the note is damaged")
        lines.append((name, decode(signature)))
    return text + "\n", lines
def note_signed(note, name, key, expected=None):
    """The text of a note, if the key has signed it."""
    text, lines = read_note(note)
    if expected is not None and text != expected: return None
    ours = key_id(name, key)
    return text if any(signer == name and line[:4] == ours and signed_by(key, text.encode(), line[4:]) for signer, line in lines) else None
def read_checkpoint(text):
    origin, size, root, end = text.split("\n")
    wrong_if(end or number(size) is None or len(decode(root)) != 32, "a checkpoint is an origin, a size and a root, each on a line")
    return origin, int(size), base64.b64decode(root)
class Signed:
    def __init__(self, evidence):
        self.evidence, self.origin = evidence, evidence.origin
        self.keys, self.signer, self.last, self.count = [], None, 0, 0  # keys: [bytes, vouched, revoked]
        self.wrong = self.key_wrong = self.tree_wrong = None
        self.roots = {}
        try: self.roots = self.find_roots()
        except Wrong as wrong: self.tree_wrong = wrong
        for frame in evidence.frames:
            taken = {"signing_key.added": self.add, "signing_key.revoked": self.revoke, "checkpoint.signed": self.check}.get(frame.type)
            if taken is None or frame.stream != "store": continue
            try: taken(frame, frame.data)
            except (Wrong, ValueError, KeyError, TypeError, AttributeError) as error:
                wrong = Wrong("the note or its key is damaged: %s" % error, frame.id)
                if frame.type == "checkpoint.signed": self.wrong = self.wrong or wrong
                else: self.key_wrong = self.key_wrong or wrong
    def find_roots(self):
        evidence, size = self.evidence, self.evidence.tree["size"]
        first = evidence.frames[0] if evidence.frames else None
        wrong_if(first and first.position == 1 and self.origin != "ktsu/ledger/" + first.hash[:16], "the origin is not made from the first frame")
        sizes = [f.data.get("size") for f in evidence.frames if f.type == "checkpoint.signed"]
        wrong_if(not all(map(is_number, sizes)) or size != (sizes[-1] if sizes else 0), "the proof is not about the last checkpoint")
        if size == 0: return {}
        leaves = {f.position - 1: leaf(f.body) for f in evidence.frames if f.position <= size}
        return tree_roots(size, leaves, set(sizes), map(bytes.fromhex, evidence.tree["hashes"]))
    def in_force(self): return self.keys[-1][0] if self.keys and not self.keys[-1][2] else None
    def add(self, _, data):
        key, by = decode(data["public_key"]), decode(data["signed_by"])
        wrong_if(len(key) != 32 or key_id(self.origin, key).hex() != data["id"], "the id of the key is not made from the key")
        wrong_if(note_signed(data["note"], self.origin, by, "%s\nsigning key added\n%s\n" % (self.origin, data["public_key"])) is None, "the note that vouches for the key is not signed for it")
        wrong_if(by not in (key, self.in_force()), "a key that was not in force vouches for the key")
        self.keys.append([key, not self.keys or by != key, False])
    def revoke(self, _, data):
        key, by = decode(data["public_key"]), decode(data["signed_by"])
        text = "%s\nsigning key revoked\n%s\n" % (self.origin, data["public_key"])
        wrong_if(note_signed(data["note"], self.origin, by, text) is None or by != self.in_force(), "the note that revokes the key is not signed by the key in force")
        for known in self.keys: known[2] = known[2] or known[0] == key
    def check(self, frame, data):
        key = self.in_force()
        wrong_if(key is None or key_id(self.origin, key).hex() != data["key"], "the checkpoint is signed by a key that was not in force")
        text = note_signed(data["note"], self.origin, key)
        wrong_if(text is None, "the signature of the checkpoint is not that of its key")
        origin, size, root = read_checkpoint(text)
        wrong_if((origin, size, root.hex()) != (data["origin"], data["size"], data["root"]) or origin != self.origin, "the signed note says something else than its frame")
        peaks = [bytes.fromhex(peak) for peak in data["frontier"]]
        wrong_if(len(peaks) != bin(size).count("1") or any(len(peak) != 32 for peak in peaks) or reduce(lambda right, left: above(left, right), peaks[::-1] or [hashlib.sha256().digest()]) != root, "the frontier of the checkpoint is not that of its root")
        self.count, self.signer, self.last = self.count + 1, len(self.keys) - 1, frame.position
        wrong_if(size in self.roots and self.roots[size] != root, "the first %d frames are not those that were signed" % size)
        wrong_if(size >= frame.position, "the checkpoint does not stand behind its frames")
    def claim_inclusion(self):
        if self.tree_wrong or self.wrong: raise self.tree_wrong or self.wrong
        size = self.evidence.tree["size"]
        if size == 0: return None, "the ledger has no signed checkpoint"
        for frame in self.evidence.frames:
            if frame.position > size and frame.position != self.last: return None, frame.id + " came after the last checkpoint"
        return "in the tree of %d frames; nothing shows when the last checkpoint was written down" % size
    def claim_signatures(self):
        if self.wrong: raise self.wrong
        return "%d checkpoints" % self.count if self.count else (None, "the ledger has no signed checkpoint")
    def claim_rotation(self):
        if self.key_wrong: raise self.key_wrong
        for key, vouched, _ in self.keys:
            if not vouched: return None, "nobody vouches for the key " + key_id(self.origin, key).hex()
        return "%d keys, each by the one before" % len(self.keys)
    def claim_key(self, wanted):
        if wanted is None: return None, "operator-asserted only: no key was given with --key"
        name, key = wanted
        wrong_if(self.signer is None, "nothing is signed")
        known = self.keys[:self.signer + 1]
        places = [place for place, one in enumerate(known) if (self.origin, one[0]) == (name, key)]
        wrong_if(not places, "no key up to the one that signed last is the one that was given")
        line = known[places[-1]:]
        for one in line: wrong_if(one[2], "the key %s is revoked: it vouches for nothing" % key_id(name, one[0]).hex())
        wrong_if(not all(one[1] for one in line[1:]), "the key that was given does not vouch for the one that signed")
        return "the key that was given, or one it vouches for, signed"
    def claim_held(self, held):
        if not held: return None, "no checkpoint kept elsewhere was given with --checkpoint"
        for origin, size, root in held:
            wrong_if(origin != self.origin or self.roots.get(size) != root, "the checkpoint over %d frames of %s is not of this ledger" % (size, origin))
        return "the ledger goes on from %d of them" % len(held)
# ---- Verdicts -----------------------------------------------------------------------------------
def judge(claim, question, *arguments):
    made = {"claim": claim, "verdict": "failed"}
    try: answer = question(*arguments)
    except Wrong as wrong: return dict(made, reason=wrong.reason, **({"frame": wrong.frame} if wrong.frame else {}))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error: return dict(made, reason="it cannot be read: %r" % error)
    if isinstance(answer, tuple): return dict(made, verdict="not_covered", reason=answer[1])
    return dict(made, verdict="proven", reason=answer)
def verify(data, held=(), key=None):
    """The claims about an archive."""
    evidence = Evidence(data)
    signed = Signed(evidence)
    asked = [(evidence, name) for name in ("manifest", "chain", "causes", "blobs", "completeness")] + [
        (signed, "inclusion"), (signed, "signatures"), (signed, "rotation"), (signed, "key", key), (signed, "held", held),
        (evidence, "extracts"), (evidence, "definitions"), (evidence, "lock"), (evidence, "approvals"), (evidence, "tools")]
    claims = [judge(name, getattr(of, "claim_" + name), *more) for of, name, *more in asked]
    return claims + [{"claim": "replay", "verdict": "not_covered", "reason": "only ktsu itself decides again"}]
def read_held(text):
    """The checkpoints of signed notes one after another, empty lines between them or not."""
    found, rest = [], text.lstrip("\n")
    while rest or not found:
        head, _, below = rest.partition("\n\n")
        signatures = re.match("(\u2014[^\n]*\n?)*", below).group()
        found.append(read_checkpoint(read_note(head + "\n\n" + signatures)[0]))
        rest = below[len(signatures):].lstrip("\n")
    return found
def read_key(given):
    if given.count("+") < 2: given = open(given, encoding="utf-8").read().split()[0]
    name, ident, key = given.split("+", 2)
    key = decode(key)
    wrong_if(key[:1] != b"\1" or len(key) != 33 or key_id(name, key[1:]).hex() != ident, "not a public key")
    return name, key[1:]
def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("archives", nargs="+")
    parser.add_argument("--checkpoint", help="a file with signed checkpoints kept elsewhere")
    parser.add_argument("--key", help="the public key the ledger is known by, or a file with it")
    parser.add_argument("--json", action="store_true", help="one line of JSON for each archive")
    arguments = parser.parse_args()
    held, key, as_json, code = [], None, arguments.json, 0
    try:
        if arguments.checkpoint: held = read_held(open(arguments.checkpoint, encoding="utf-8", newline="").read())
        if arguments.key: key = read_key(arguments.key)
    except (OSError, Wrong, ValueError) as error:
        print("error: %r" % error, file=sys.stderr)
        return 2
    for archive in arguments.archives:
        try:
            with open(archive, "rb") as file: claims = verify(file.read(), held, key)
        except (OSError, Unreadable) as error:
            print(json.dumps({"file": archive, "error": str(error)}) if as_json else "%s: cannot be read: %s" % (archive, ascii(str(error))))
            code = 2
            continue
        sound = all(claim["verdict"] != "failed" for claim in claims)
        code = code or (0 if sound else 1)
        print(json.dumps({"file": archive, "sound": sound, "claims": claims}) if as_json
              else "%s: %s" % (archive, "nothing failed" if sound else "IT IS NOT WHAT WAS RECORDED"))
        for claim in () if as_json else claims:
            place = claim["frame"] + ": " if "frame" in claim else ""
            print("  %-11s %-13s %s" % (claim["verdict"].replace("_", " "), claim["claim"], ascii(place + str(claim["reason"]))[1:-1]))
    return code
if __name__ == "__main__": sys.exit(main())
