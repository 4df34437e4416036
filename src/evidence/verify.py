#!/usr/bin/env python3
"""Verifies archives of evidence that `ktsu evidence export` makes, without ktsu.

    python3 verify.py ARCHIVE... [--checkpoint NOTES] [--key KEY] [--json]

Needs Python 3.8 and its standard library. Without the package `blake3` the claims that rest on
BLAKE3 are not covered; without verify_signed.py and verify_calls.py beside this file, those about
keys and checkpoints, and about tools and approvals. Every claim is proven, not covered, or failed.
Exit code: 0 if no claim failed, 1 if one did, 2 if an archive cannot be read.
"""
import sys
from os.path import dirname, join, realpath

HOME = dirname(realpath(__file__))
if __name__ == "__main__":  # An archive that was unpacked here may have brought a json.py.
    sys.path[:] = [folder for folder in sys.path if realpath(folder) != HOME]

import argparse, base64, datetime, hashlib, json, re, types

try: from blake3 import blake3 as _blake3
except ImportError: _blake3 = None

# The files beside this one, by their SHA-256: whoever trusts this one need trust nobody for them.
PARTS = {
    "verify_signed.py": "b03611b3329a9926c0afbe9c7240aaf08c5219080c46891aea17c6beafed3359",
    "verify_calls.py": "83dc486cb1d5821a09cf41036822298a8ee831aec70d4df447e7ac3319c582f2",
    "verify_repeated.py": "af1af8923abdaa10de92cd36d35e71af041dd8f05fd90c0e371b26c44f211716",
}
FORMAT, MAX_BODY, ZERO = 1, 256 * 1024, "0" * 64
NO_BLAKE3 = None, "the Python package blake3 is not installed"
NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
NUMBER = re.compile(r"(0|[1-9][0-9]{0,15})\Z")
HASH = re.compile(r"[0-9a-f]{64}\Z")
ACTOR = re.compile(r"(orchestrator|runtime|gateway|cli|(responder|principal):" + NAME + r")\Z")
STREAM = re.compile(r"(store|(run|branch|eval|recompute|kv):" + NAME + r")\Z")
TIME = re.compile(r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)\.(\d{6})Z\Z", re.ASCII)
FILE = re.compile(rb"(?=.{1,99}\Z)[\w-][\w.-]*(/[\w-][\w.-]*){0,2}\Z", re.ASCII)
OF_STORE = ("store.opened", "store.recovered", "run.head", "checkpoint.signed",
            "signing_key.added", "signing_key.revoked")
MEMBERS = ["v", "stream", "seq", "type", "scope", "actor", "cause", "at", "data", "ext", "prev"]
BROKEN = ValueError, KeyError, TypeError, AttributeError, RecursionError, IndexError

class Unreadable(Exception):
    """There is nothing to judge."""

class Wrong(Exception):
    """What speaks against a claim, and the frame that shows it."""
    def __init__(self, reason, frame=None):
        super().__init__(reason)
        self.reason, self.frame = reason, frame

def wrong_if(condition, reason, frame=None):
    if condition: raise Wrong(reason, frame)
def unreadable_if(condition, reason):
    if condition: raise Unreadable(reason)
def check(condition):
    if not condition: raise ValueError("it is malformed")

def same(one, other, *names): return all(one.get(name) == other.get(name) for name in names)

def blake3(data):
    """The digest of some bytes; None where it cannot be known."""
    return _blake3(data).hexdigest() if _blake3 else None

def decode(text): return base64.b64decode(text, validate=True)
def key_id(name, key): return hashlib.sha256(name.encode() + b"\n\1" + key).digest()[:4]

# ---- Archives: tar and JSON, read in the one form that ktsu writes -------------------------------
def header(name, size):
    """The block before a file."""
    block = bytearray(512)
    fields = {0: name, 100: b"0000644\0", 108: b"0000000\0", 116: b"0000000\0",
              124: b"%011o\0" % size, 136: b"00000000000\0", 148: b" " * 8, 156: b"0",
              257: b"ustar\x0000"}
    for at, field in fields.items(): block[at:at + len(field)] = field
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)

def read_tar(data):
    """The files of an archive, in the order of their names."""
    files, at, last = {}, 0, b""
    while data[at:at + 1025] != bytes(1024):
        block, place = data[at:at + 512], "at byte %d" % at
        name, size = block.split(b"\0")[0], block[124:135]
        unreadable_if(not FILE.match(name) or name <= last, "not a name of such a file, " + place)
        unreadable_if(not re.match(rb"[0-7]{11}\Z", size), "a file without a length, " + place)
        size = int(size, 8)
        end, after = at + 512 + size, at + 512 + (size + 511) // 512 * 512
        unreadable_if(block != header(name, size), "not a header of such an archive, " + place)
        unreadable_if(after > len(data) or any(data[end:after]), "a file is cut, " + place)
        files[name.decode("ascii")] = data[at + 512:end]
        last, at = name, after
    return files

def in_order(pairs):
    names = [name for name, _ in pairs]
    if names != MEMBERS and any(a >= b for a, b in zip(names, names[1:])):
        raise ValueError("a key twice or out of order")
    return dict(pairs)

def whole(text):
    check(-1 << 63 <= int(text) < 1 << 64)
    return int(text)

class Real(float):
    """A number that remembers how it was written."""
    def __init__(self, text):
        check(abs(self) < float("inf"))
        self.text = text

def load(text):
    """JSON in which no two readers read two things."""
    made = json.loads(text, object_pairs_hook=in_order, parse_int=whole, parse_float=Real,
                      parse_constant=lambda _: check(False))
    json.dumps(made, ensure_ascii=False).encode("utf-8")  # Half a surrogate is no text.
    return made

def document(files, name):
    try: return load(files[name].decode("utf-8"))
    except BROKEN as error: raise Unreadable("%s: %r" % (name, error))

def has(value, optional=None, **kinds):
    """Whether these are the members of an object, each of its kind."""
    named = set(value) - {optional} == set(kinds)
    return named and all(type(value[name]) is kind for name, kind in kinds.items())

def number(text): return int(text) if NUMBER.match(text) and int(text) < 1 << 53 else None
def is_number(value): return type(value) is int and value >= 0
def is_time(text):
    found = TIME.match(text)
    return bool(found) and datetime.datetime(*map(int, found.groups())).year >= 1970
def is_cause(value):
    stream, _, seq = value.rpartition("#") if isinstance(value, str) else ("", "", "")
    return is_number(value) or bool(STREAM.match(stream) and number(seq) is not None)

# ---- Frames --------------------------------------------------------------------------------------
class Frame:
    """A line of both tables; `read` gives it the members of its body."""
    def __init__(self, position, stream, seq, digest, body):
        self.position, self.stream, self.seq = position, stream, seq
        self.hash, self.bytes, self.id = digest, body, "%s#%d" % (stream, seq)

    def read(self):
        wrong_if(not STREAM.match(self.stream), "it is of no stream", self.id)
        wrong_if(len(self.bytes) > MAX_BODY, "it is larger than a frame may be", self.id)
        right = blake3(self.bytes) in (None, self.hash)
        wrong_if(not right, "its hash is not that of its bytes", self.id)
        try:
            body = load(self.bytes.decode("utf-8"))
            self.check(body)
        except BROKEN as error: raise Wrong("it is not a frame: %s" % error, self.id)
        right = (body["stream"], body["seq"]) == (self.stream, self.seq)
        wrong_if(not right, "its bytes say another stream or number", self.id)
        self.type, self.scope, self.actor, self.cause = map(body.get, MEMBERS[3:7])
        self.at, self.data, self.ext, self.prev = map(body.get, MEMBERS[7:])
        foreign = self.type in OF_STORE and self.stream != "store"
        wrong_if(foreign, "it speaks of the ledger, and is not in the stream store", self.id)

    def check(self, body):
        check(list(body) == MEMBERS and body["v"] == 1)
        check(has(body, v=int, stream=str, seq=int, type=str, scope=str, actor=str, cause=list,
                  at=str, data=dict, ext=list, prev=str))
        check(ACTOR.match(body["actor"]) and is_time(body["at"]) and HASH.match(body["prev"]))
        check(all(map(is_cause, body["cause"])))
        for external in body["ext"]:
            check(has(external, bytes=int, hash=str, path=str))
            check(external["bytes"] >= 0 and HASH.match(external["hash"]))

class Evidence:
    """An archive, taken apart, and what it shows of itself."""
    def __init__(self, data):
        self.files = read_tar(data)
        self.manifest = document(self.files, "manifest.json")
        self.tree = document(self.files, "proofs/tree.json")
        try: self.check()
        except BROKEN as error: raise Unreadable("manifest or proof: %r" % error)
        self.origin, self.streams = self.manifest["origin"], self.manifest["streams"]
        self.unsigned = None  # Why nothing can be said of what is signed.
        self.chain_wrong, self.frames, self.places, self.blobs = None, [], {}, {}
        for frame in self.rows(): self.take(frame)
        try: self.follow()
        except Wrong as wrong: self.chain_wrong = self.chain_wrong or wrong

    def check(self):
        """Whether manifest and proof have their members, and no others."""
        manifest, tree = self.manifest, self.tree
        check(has(manifest, all=bool, engine=str, files=dict, format=int, origin=str, runs=list,
                  streams=dict))
        check(has(tree, format=int, hashes=list, size=int) and tree["size"] >= 0)
        check(manifest["format"] == tree["format"] == FORMAT)
        check(all(isinstance(run, str) for run in manifest["runs"]))
        check(all(HASH.match(node) for node in tree["hashes"]))
        for file in manifest["files"].values():
            check(has(file, "derived", blake3=str, bytes=int, sha256=str) and file["bytes"] >= 0)
            check(type(file.get("derived", True)) is bool)
        for part in manifest["streams"].values():
            check(has(part, first=int, frames=int, head=str) and HASH.match(part["head"]))
            check(min(part["first"], part["frames"]) >= 0)

    def rows(self):
        """The lines of both tables, side by side."""
        try: places, bodies = self.files["frames.csv"].decode("ascii"), self.files["frames.jsonl"]
        except BROKEN as error: raise Unreadable("frames: %r" % error)
        places, bodies = places.split("\n"), bodies.split(b"\n")
        uneven = places.pop() or bodies.pop() or len(places) != len(bodies) + 1
        unreadable_if(uneven, "frames.csv and frames.jsonl are not of one length")
        columns = places[0] == "position,stream,seq,hash"
        unreadable_if(not columns, "frames.csv does not begin with its columns")
        for line, body in zip(places[1:], bodies):
            cells = line.split(",")
            right = len(cells) == 4 and number(cells[0]) and number(cells[2]) is not None
            right = right and HASH.match(cells[3])
            unreadable_if(not right, "frames.csv is damaged: " + line[:80])
            yield Frame(int(cells[0]), cells[1], int(cells[2]), cells[3], body)

    def take(self, frame):
        last = self.frames[-1].position if self.frames else 0
        try:
            frame.read()
            wrong_if(frame.position <= last, "its position is not above the one before", frame.id)
            wrong_if((frame.stream, frame.seq) in self.places, "it is there twice", frame.id)
            self.places[frame.stream, frame.seq] = frame
            self.frames.append(frame)
        except Wrong as wrong: self.chain_wrong = self.chain_wrong or wrong

    def parent(self, stream):
        """What a branch says it was forked from: stream and position."""
        first = self.places.get((stream, self.streams.get(stream, {}).get("first")))
        if first is None or first.type != "branch.created": return None
        name, position = first.data.get("parent_run_id"), first.data.get("fork_position")
        named = isinstance(name, str) and is_number(position)
        wrong_if(not named, "its parent has no name", first.id)
        return ("branch:" if name.startswith("branch_") else "run:") + name, position

    def shared(self, stream, seq):
        """A frame of a stream with all that it shares, wherever it is kept."""
        for _ in range(len(self.frames) + 1):
            if (stream, seq) in self.places: return self.places[stream, seq]
            above = self.parent(stream)
            if above is None: return None
            stream = above[0]
        return None

    def follow(self):
        """Whether each stream is one chain from its beginning."""
        ranges = {}
        for frame in self.frames:
            seen = ranges.get(frame.stream)
            if seen is None:
                seq, prev = self.beginning(frame)
                ranges[frame.stream] = seen = {"first": frame.seq, "frames": 0, "head": ""}
            else: seq, prev = seen["first"] + seen["frames"], seen["head"]
            wrong_if(frame.seq != seq, "its number is not %d, which comes next" % seq, frame.id)
            follows = frame.prev == prev
            wrong_if(not follows, "it does not follow from the frame before it", frame.id)
            seen["frames"], seen["head"] = seen["frames"] + 1, frame.hash
        wrong_if(ranges != self.streams, "the manifest tells of other streams, or more of them")

    def beginning(self, frame):
        """The number and the hash that the first frame of a stream follows from."""
        parent, position = None, 0
        if frame.type == "branch.created": parent, position = self.parent(frame.stream) or (None, 0)
        if position == 0: return 0, ZERO
        last = self.shared(parent, position - 1)
        wrong_if(last is None, "the frame it was forked from is not in the archive", frame.id)
        return position, last.hash

    def blob(self, digest):
        """The bytes that a frame names by their hash; None where they are missing or others."""
        if digest not in self.blobs:
            data = self.files.get("blobs/%s.json" % digest)
            right = data is not None and blake3(data) in (None, digest)
            self.blobs[digest] = data if right else None
        return self.blobs[digest]

    # ---- Claims: text is proven, a pair is not covered, what is wrong is raised ------------------
    def claim_manifest(self):
        listed = self.manifest["files"]
        for name, data in self.files.items():
            if name == "manifest.json": continue
            told = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
            told["blake3"] = blake3(data) or listed.get(name, {}).get("blake3")
            if name.startswith("derived/"): told["derived"] = True
            wrong_if(listed.get(name) != told, name + " is not as listed")
        for name in listed: wrong_if(name not in self.files, name + " is missing")
        return "%d files" % len(listed)

    def claim_chain(self):
        if self.chain_wrong: raise self.chain_wrong
        told = "%d frames of %d streams" % (len(self.frames), len(self.streams))
        return told if _blake3 else NO_BLAKE3

    def claim_causes(self):
        outside = 0
        for frame in self.frames:
            for cause in frame.cause:
                reason = "it names the cause %s, which is not an earlier frame" % cause
                if is_number(cause):
                    wrong_if(cause >= frame.seq, reason, frame.id)
                    continue
                stream, _, seq = cause.rpartition("#")
                found = self.places.get((stream, int(seq)))
                if stream not in self.streams: outside += frame.stream != "store"
                else: wrong_if(not found or found.position >= frame.position, reason, frame.id)
        if outside: return None, "%d causes stand in other streams" % outside
        return "every cause is earlier"

    def claim_blobs(self):
        named = set()
        for frame in self.frames:
            for external in frame.ext:
                name = "blobs/%s.json" % external["hash"]
                blob = self.blob(external["hash"])
                right = blob is not None and len(blob) == external["bytes"]
                wrong_if(not right, name + " is missing or another", frame.id)
                named.add(name)
        for name in self.files:
            wrong_if(name.startswith("blobs/") and name not in named, "no frame names " + name)
        return "%d blobs" % len(named) if _blake3 else NO_BLAKE3

    def claim_completeness(self):
        headed = self.heads()
        for run in self.manifest["runs"]:
            wrong_if(run not in self.streams, run + " was asked for and is not here")
        ends = {frame.stream: frame.seq + 1 for frame in self.frames}
        runs = [stream for stream in sorted(ends) if stream.split(":")[0] in ("run", "branch")]
        open_ = [stream for stream in runs if headed.get(stream) != ends[stream]]
        if open_:
            return None, "%d runs have no head behind their last frame, such as %s: frames that " \
                "came later could be left out" % (len(open_), open_[0])
        told = "%d runs end as their heads say" % len(headed)
        size = self.tree["size"]
        left_out = size - sum(frame.position <= size for frame in self.frames)
        if left_out > 0:
            return None, "%s; %d frames of the ledger are not here, and later frames, branches " \
                "or recomputes of these runs may be among them" % (told, left_out)
        return (None, self.unsigned) if self.unsigned else told

    def heads(self):
        """How many frames each run ended with, as the signed part of the ledger says."""
        headed = {}
        for frame in self.frames:
            if frame.type != "run.head": continue
            stream, count = frame.data.get("stream"), frame.data.get("frames")
            if stream not in self.streams:
                reason = "%s ended, and is not in an archive of all runs" % stream
                wrong_if(self.manifest["all"], reason, frame.id)
                continue
            last = self.shared(stream, count - 1) if is_number(count) else None
            reason = "%s does not have the %s frames it ended with" % (stream, count)
            wrong_if(last is None or last.hash != frame.data.get("hash"), reason, frame.id)
            # What is not signed shows nothing, and a run that was taken up again has no end.
            counts = frame.position <= self.tree["size"] and frame.data.get("status") != "open"
            headed[stream] = count if counts else None
        return headed

    def claim_extracts(self):
        expected = {}
        for frame in self.frames: expected.update(self.extracts(frame, frame.data))
        found = {name for name in self.files
                 if name.split("/")[0] in ("checkpoints", "keys", "config")}
        for name in sorted(found | set(expected)):
            wrong_if(self.files.get(name) != expected.get(name), name + " is not what frames say")
        return "%d files" % len(expected)

    def extracts(self, frame, data):
        """The files that say once more what a frame says."""
        if frame.type == "checkpoint.signed":
            yield "checkpoints/%012d.note" % data["size"], data["note"].encode()
        elif frame.type == "signing_key.added":
            key = decode(data["public_key"])
            ident, text = key_id(self.origin, key).hex(), base64.b64encode(b"\1" + key).decode()
            line = "%s+%s+%s\n" % (self.origin, ident, text)
            yield "keys/%08d-%s.pub" % (frame.seq, ident), line.encode()
        elif frame.type == "signing_key.revoked":
            yield "keys/%08d-revoked.note" % frame.seq, data["note"].encode()
        for external in frame.ext:
            blob = self.files.get("blobs/%s.json" % external["hash"])
            if external["path"] == "/definition" and blob is not None:
                yield "config/%s.json" % external["hash"], blob

    def defined(self):
        """The frames that bring a definition."""
        created = (one for one in self.frames if one.type in ("run.created", "branch.created"))
        return [one for one in created if one.data.get("digest") is not None]

    def claim_definitions(self):
        for frame in self.defined():
            named = [one["hash"] for one in frame.ext if one["path"] == "/definition"]
            right = named[:1] == [frame.data["digest"]]
            wrong_if(not right, "its definition is not the one it names", frame.id)
        return "%d definitions are those that runs name" % len(self.defined())

    def claim_lock(self):
        told = [(frame.id, self.unlocked(frame)) for frame in self.defined()]
        for one in told:
            if one[1]: return None, "%s: %s" % one
        if not told: return None, "there is no run"
        words = "%d runs had the definition that their lock names" % len(told)
        return words if _blake3 else NO_BLAKE3

    def unlocked(self, frame):
        """Why a lock says nothing of a run; what it says against one is wrong."""
        if frame.type == "branch.created": return "its definition was changed by a person"
        apart, digest = {one["path"]: one["hash"] for one in frame.ext}, frame.data["digest"]
        if "/lock" not in apart: return "it records no lock"
        missing = len(apart) != len(frame.ext) or None in map(self.blob, apart.values())
        wrong_if(missing, "one of its blobs is missing or another", frame.id)
        named = apart.get("/definition") == digest
        wrong_if(not named, "its definition is not the one it names", frame.id)
        lock = load(self.blob(apart["/lock"]).decode("utf-8"))
        known = isinstance(lock, dict) and type(lock.get("format")) is int and lock["format"] == 1
        if not known: return "its lock is of a format that this verifier does not know"
        path, entries = "workflows/%s.workflow.yaml" % frame.data["workflow"], lock.get("entries")
        entries = entries if isinstance(entries, list) else []
        found = [one for one in entries if isinstance(one, dict) and one.get("path") == path]
        right = len(found) == 1 and found[0].get("kind") == "workflow"
        right = right and found[0].get("definition") == digest
        wrong_if(not right, "its lock names another definition of the workflow", frame.id)
        return None

# ---- Verdicts ------------------------------------------------------------------------------------
def part(name):
    """A file beside this one as a module, or why there is none. It is read here: Python's own way
    would look in other places, and would believe or leave behind compiled copies."""
    try:
        with open(join(HOME, name), "rb") as file: source = file.read()
    except OSError: return name + " is not beside this file"
    if hashlib.sha256(source).hexdigest() != PARTS[name]:
        return name + " beside this file is not the one that belongs to it"
    sys.modules["verify"] = sys.modules[__name__]
    module = types.ModuleType(name[:-3])
    exec(compile(source, join(HOME, name), "exec"), module.__dict__)
    return module

def judge(claim, by):
    """A claim, and what becomes of it; `by` is who judges, or why nobody does."""
    made = {"claim": claim, "verdict": "failed"}
    if isinstance(by, str): return dict(made, verdict="not_covered", reason=by)
    try: answer = getattr(by, "claim_" + claim)()
    except Wrong as wrong:
        return dict(made, reason=wrong.reason, **({"frame": wrong.frame} if wrong.frame else {}))
    except BROKEN as error: return dict(made, reason="it cannot be read: %r" % error)
    if isinstance(answer, tuple): return dict(made, verdict="not_covered", reason=answer[1])
    return dict(made, verdict="proven", reason=answer)

def verify(data, signed, calls, held=(), key=None):
    """The claims about an archive."""
    evidence = Evidence(data)
    if isinstance(signed, str): evidence.unsigned = signed
    else: signed = signed.Signed(evidence, held, key)
    if not isinstance(calls, str): calls = calls.Said(evidence)
    judges = [(evidence, "manifest chain causes blobs completeness"),
              (signed, "inclusion signatures rotation key held"),
              (evidence, "extracts definitions lock"), (calls, "approvals tools"),
              ("only ktsu itself decides again", "replay")]
    return [judge(claim, by) for by, claims in judges for claim in claims.split()]

def told(archive, claims, as_json):
    """The report on an archive."""
    sound = all(claim["verdict"] != "failed" for claim in claims)
    if as_json: return json.dumps({"file": archive, "sound": sound, "claims": claims})
    verdict = "nothing failed" if sound else "IT IS NOT WHAT WAS RECORDED"
    lines = ["%s: %s" % (archive, verdict)]
    for claim in claims:
        words = (claim["frame"] + ": " if "frame" in claim else "") + claim["reason"]
        verdict = claim["verdict"].replace("_", " ")
        lines.append("  %-11s %-13s %s" % (verdict, claim["claim"], ascii(words)[1:-1]))
    return "\n".join(lines)

def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("archives", nargs="+")
    parser.add_argument("--checkpoint", help="a file with signed checkpoints kept elsewhere")
    parser.add_argument("--key", help="the public key the ledger is known by, or a file with it")
    parser.add_argument("--json", action="store_true", help="one line of JSON for each archive")
    asked = parser.parse_args()
    signed, calls, code = part("verify_signed.py"), part("verify_calls.py"), 0
    try:
        wrong_if((asked.checkpoint or asked.key) and isinstance(signed, str), signed)
        held = signed.read_held(asked.checkpoint) if asked.checkpoint else ()
        key = signed.read_key(asked.key) if asked.key else None
    except (OSError, Wrong) + BROKEN as error:
        print("error: %s" % ascii(str(error)), file=sys.stderr)
        return 2
    for archive in asked.archives:
        try:
            with open(archive, "rb") as file: claims = verify(file.read(), signed, calls, held, key)
        except (OSError, Unreadable) as error:
            wrong = {"file": archive, "error": str(error)}
            words = "%s: cannot be read: %s" % (archive, ascii(str(error)))
            print(json.dumps(wrong) if asked.json else words)
            code = 2
            continue
        print(told(archive, claims, asked.json))
        if any(claim["verdict"] == "failed" for claim in claims): code = code or 1
    return code

if __name__ == "__main__": sys.exit(main())
