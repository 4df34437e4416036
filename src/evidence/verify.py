#!/usr/bin/env python3
"""Verifies archives of evidence that `ktsu evidence export` makes, without ktsu.

    python3 verify.py ARCHIVE... [--checkpoint NOTES] [--key KEY] [--require CLAIM] [--json]

Needs Python 3.8 and its standard library. Without the package `blake3` the claims that rest on
BLAKE3 are not covered: chain, blobs, tools, lock. Without the other files beside this one, those
that they judge are not. Every claim is proven, not covered, or failed. Exit code: 0 if no claim
failed and every required one is proven, 1 otherwise, 2 if there is no verdict about an archive.
"""
import sys
from os.path import dirname, join, realpath

HOME = dirname(realpath(__file__))
if __name__ == "__main__":  # An archive that was unpacked here may have brought a json.py.
    sys.path[:] = [folder for folder in sys.path if realpath(folder) != HOME]

import argparse, base64, bisect, collections, datetime, hashlib, json, re, types

try: from blake3 import blake3 as _blake3
except ImportError: _blake3 = None

# The files beside this one, by their SHA-256: trust in this one is enough for all of them.
PARTS = {
    "verify_content.py": "592399793e3b4b5a22faa10c5b6d98192b6c4a9eddacdf7a363e6de18165074b",
    "verify_outputs.py": "78c31e636fe5ae4be73d6f91d1ac7ad47b1db608a7e521959af7620a681ed154",
    "verify_signed.py": "ea6ab192b58cf0fd3eaa39be066915e1525b9cb96a2676189cb77d8958df93ff",
    "verify_calls.py": "16a95c1274be24b3500980ad786aaecfee7d8ac3326f0e0d654082744c8123d6",
    "verify_commands.py": "112f64290a15cb5b98a5ee538ccf3d9d85c562488b26105760e56cf9f62ea790",
    "verify_world.py": "e2ff459b4dc8d5fe20d7bf81c8a56c98161f75f0f652b2834486f82f8e6e6a89",
    "verify_queue.py": "5884da9cb84e8d79a1a2288feb02af6165dd8f419240af7fd2734ce58bbf7270",
    "verify_values.py": "751932e00871476c3193df28513672ebb5f863529a7e002082a17c75e314b38c",
    "verify_reviews.py": "bb3a61af1c10d105642500936dbe3cf2f7de6ffa562835e456884acb4059069d",
    "verify_suspensions.py": "b86b6d5a1087f0ccc9abfc1b91bcd309ca680a47c95bdb3b0bb9f8feed7a9b5e",
    "verify_evals.py": "e4c5eac7ce61a31e72bd92ec843b8f428d49715646a3bed9b2f9cf2dabfb5540",
    "verify_repeated.py": "4e9dfff58e5a0ad785b1fbb2deaf209b5ce759458e688e26405164ac05e6a5e1",
}
# What of them this one uses; the others are used by these.
USED = dict(signed="Signed", calls="Said", content="Content", outputs="Outputs", world="Worlds",
            evals="Evals")
FORMAT, MAX_BODY, ZERO = 1, 256 * 1024, "0" * 64
# How much is read at once, of a file that is read whole, and of the frames that are kept at hand.
PIECE, MAX_LIST, MAX_WHOLE, AT_HAND = 1 << 16, 1 << 28, 1 << 23, 1 << 21
MAX_FORKS = 10001  # Between a branch and its run, and one more.
NO_BLAKE3 = None, "the Python package blake3 is not installed (pip install blake3)"
NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
NUMBER = re.compile(r"(0|[1-9][0-9]{0,15})\Z")
HASH = re.compile(r"[0-9a-f]{64}\Z")
ACTOR = re.compile(r"(orchestrator|runtime|gateway|cli|(responder|principal):" + NAME + r")\Z")
STREAM = re.compile(r"(store|(run|branch|eval|recompute|kv|subscription|delivery):" + NAME + r")\Z")
TIME = re.compile(r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)\.(\d{6})Z\Z", re.ASCII)
FILE = re.compile(rb"(?=.{1,99}\Z)[\w-][\w.-]*(/[\w-][\w.-]*){0,2}\Z", re.ASCII)
OF_STORE = ("store.opened", "store.recovered", "run.head", "checkpoint.signed",
            "signing_key.added", "signing_key.revoked", "hold.placed", "hold.lifted", "run.removed")
COLUMNS, UNEVEN = b"position,stream,seq,hash", "frames.csv and frames.jsonl are not of one length"
MEMBERS = ["v", "stream", "seq", "type", "scope", "actor", "cause", "at", "data", "ext", "prev"]
BROKEN = ValueError, KeyError, TypeError, AttributeError, RecursionError, IndexError

class Unreadable(Exception): """There is nothing to judge."""
class TooLarge(Exception): """A claim that would take more memory than an auditor may have."""

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
def count(number, noun): return "%d %s%s" % (number, noun, "" if number == 1 else "s")
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

class Archive:
    """A tar file: where each of its files is, in the order of their names."""
    def __init__(self, file):
        self.file, self.places, self.known, at, last = file, {}, {}, 0, b""
        length = file.seek(0, 2)
        while self.part(at, 1025) != bytes(1024):
            block, place = self.part(at, 512), "at byte %d" % at
            name, size = block.split(b"\0")[0], block[124:135]
            unreadable_if(not FILE.match(name) or name <= last, "not such a name, " + place)
            unreadable_if(not re.match(rb"[0-7]{11}\Z", size), "no length, " + place)
            size = int(size, 8)
            end, after = at + 512 + size, at + 512 + (size + 511) // 512 * 512
            unreadable_if(block != header(name, size), "not a header of such an archive, " + place)
            whole = after <= length and not any(self.part(end, after - end))
            unreadable_if(not whole, "a file is cut, " + place)
            self.places[name.decode("ascii")] = at + 512, size
            last, at = name, after

    def part(self, at, size):
        self.file.seek(at)
        return self.file.read(size)
    def __contains__(self, name): return name in self.places
    def __iter__(self): return iter(self.places)
    def size(self, name): return self.places[name][1]
    def pieces(self, name):
        """The bytes of a file, one piece after another."""
        at, left = self.places[name]
        while left > 0:
            piece = self.part(at, min(left, PIECE))
            unreadable_if(not piece, "the archive became shorter while it was read")
            at, left = at + len(piece), left - len(piece)
            yield piece
    def whole(self, name, most=MAX_WHOLE):
        """The bytes of a file, all at once."""
        at, size = self.places[name]
        if size > most: raise TooLarge("%s is larger than what is read at once" % name)
        return self.part(at, size)
    def digests(self, name):
        """The length of a file, its SHA-256, and its BLAKE3 where that can be known."""
        if name not in self.known:
            sha256, blake = hashlib.sha256(), _blake3() if _blake3 else None
            for piece in self.pieces(name):
                sha256.update(piece)
                if blake: blake.update(piece)
            made = sha256.hexdigest(), blake.hexdigest() if blake else None
            self.known[name] = (self.size(name),) + made
        return self.known[name]
    def lines(self, name):
        """Where each line of a file begins, and how long it is."""
        at, begin = self.places[name][0], self.places[name][0]
        for piece in self.pieces(name):
            end = piece.find(b"\n")
            while end >= 0:
                yield begin, at + end - begin
                begin, end = at + end + 1, piece.find(b"\n", end + 1)
            at += len(piece)
        wrong_if(begin != at, name + " does not end in a line")

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
    try: return load(files.whole(name, MAX_LIST).decode("utf-8"))
    except BROKEN + (TooLarge,) as error: raise Unreadable("%s: %r" % (name, error))

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
def work_of(plan, scope, name): return steps_of(plan, scope)[name]["work"]

def steps_of(plan, scope):
    """The steps of a scope in file order, then its responders. Responders run scopes `@NAME.KEY`;
    commands `STEP[.ITEM]/NAME.N`."""
    def invoked(work, name): return work["agent"]["may_invoke"][name.split(".")[0]]["child"]
    def steps(flow): return {one["id"]: one for one in plan["workflows"][flow]["steps"]}
    known, names = steps(plan["root"]), iter(scope.split("/") if scope else ())
    worlds = plan.get("worlds", {}).values()
    for one in sum((all_.get("edges", []) + all_.get("responders", []) for all_ in worlds), []):
        known["@" + one["name"]] = {"work": {"workflow": one["work"].get("run")}}
    for step in names:
        work = (known.get(step) or known[step.rpartition(".")[0]])["work"]
        known = steps((work.get("workflow") or invoked(work, next(names)))["workflow"])
    return known

# ---- Frames --------------------------------------------------------------------------------------
class Frame:
    """A line of both tables. What its body says is read again where it is not at hand any more."""
    __slots__ = "home", "position", "stream", "seq", "hash", "begin", "length", "type"
    def __init__(self, home, cells, place):
        self.home, (self.begin, self.length), self.type = home, place, ""
        self.position, self.stream = int(cells[0]), sys.intern(cells[1])
        self.seq, self.hash = int(cells[2]), cells[3]

    id = property(lambda self: "%s#%d" % (self.stream, self.seq))
    bytes = property(lambda self: self.home.files.part(self.begin, self.length))
    scope, actor, cause, at, data, ext, prev = (
        property(lambda self, name=name: self.home.body(self)[name]) for name in MEMBERS[4:])

    def read(self):
        wrong_if(not STREAM.match(self.stream), "it is of no stream", self.id)
        wrong_if(self.length > MAX_BODY, "it is larger than a frame may be", self.id)
        data = self.bytes
        wrong_if(blake3(data) not in (None, self.hash), "its bytes have another hash", self.id)
        try:
            body = load(data.decode("utf-8"))
            self.check(body)
        except BROKEN as error: raise Wrong("it is not a frame: %s" % error, self.id)
        other = (body["stream"], body["seq"]) != (self.stream, self.seq)
        wrong_if(other, "its bytes say another stream or number", self.id)
        self.type = sys.intern(body["type"])
        self.home.keep(self, body)
        if self.type in OF_STORE:
            wrong_if(self.stream != "store", "only the stream store speaks of the ledger", self.id)

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
    def __init__(self, file):
        self.files = Archive(file)
        self.at_hand, self.size_at_hand = collections.OrderedDict(), 0
        self.path = None, []  # The way that was asked for last.
        self.manifest = document(self.files, "manifest.json")
        self.tree = document(self.files, "proofs/tree.json")
        try: self.check()
        except BROKEN as error: raise Unreadable("manifest or proof: %r" % error)
        self.origin, self.streams = self.manifest["origin"], self.manifest["streams"]
        self.unsigned = None  # Why nothing can be said of what is signed.
        self.chain_wrong, self.frames, self.places, self.blobs = None, [], {}, {}
        try:
            for frame in self.rows(): self.take(frame)
            self.follow()
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
        for name in ("frames.csv", "frames.jsonl"): wrong_if(name not in self.files, "no " + name)
        places, bodies = self.files.lines("frames.csv"), self.files.lines("frames.jsonl")
        other = self.files.part(*next(places, (0, 0))) != COLUMNS
        wrong_if(other, "frames.csv does not begin with its columns")
        for begin, length in places:
            wrong_if(length > PIECE, "frames.csv is damaged")
            line, body = self.files.part(begin, length).decode("latin-1"), next(bodies, None)
            wrong_if(body is None, UNEVEN)
            cells = line.split(",")
            right = len(cells) == 4 and number(cells[0]) and number(cells[2]) is not None
            right = right and HASH.match(cells[3]) and line.isascii()
            wrong_if(not right, "frames.csv is damaged: " + line[:80])
            yield Frame(self, cells, body)
        wrong_if(next(bodies, None) is not None, UNEVEN)

    def keep(self, frame, body):
        """Keeps what a frame says at hand, and lets go of what was not asked for the longest. What
        a responder asks, `@NAME.KEY`, is read as a step is."""
        address = body["data"].get("responder")
        if str(address)[:1] == "@": body["data"].setdefault("step", address)
        self.at_hand[frame.begin] = frame, body
        self.size_at_hand += frame.length
        while self.size_at_hand > AT_HAND and len(self.at_hand) > 1:
            self.size_at_hand -= self.at_hand.popitem(last=False)[1][0].length

    def body(self, frame):
        if frame.begin not in self.at_hand: self.keep(frame, load(frame.bytes.decode("utf-8")))
        self.at_hand.move_to_end(frame.begin)
        return self.at_hand[frame.begin][1]

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
        wrong_if(not (isinstance(name, str) and is_number(position)), "it has no parent", first.id)
        return ("branch:" if name.startswith("branch_") else "run:") + name, position

    def parts(self, stream):
        """The streams that hold the frames of a stream with all that it shares, each with the
        number from which on."""
        parts, until = [], 1 << 63
        for _ in range(MAX_FORKS):
            first = self.streams.get(stream, {}).get("first", until)
            if first < until:
                until = first
                parts.append((first, stream))
            above = self.parent(stream) if until else None
            if above is None: break
            stream = above[0]
        return parts[::-1]

    def shared(self, stream, seq):
        """A frame of a stream with all that it shares, wherever it is kept."""
        if self.path[0] != stream: self.path = stream, self.parts(stream)
        at = bisect.bisect_right(self.path[1], (seq, "~")) - 1
        return self.places.get((self.path[1][at][1], seq)) if at >= 0 else None

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
            wrong_if(frame.prev != prev, "it does not follow from the frame before it", frame.id)
            seen["frames"], seen["head"] = seen["frames"] + 1, frame.hash
        wrong_if(ranges != self.streams, "the manifest names other streams, or more of them")

    def beginning(self, frame):
        """The number and the hash that the first frame of a stream follows from."""
        parent, position = None, 0
        if frame.type == "branch.created": parent, position = self.parent(frame.stream) or (None, 0)
        if position == 0: return 0, ZERO
        last = self.shared(parent, position - 1)
        wrong_if(last is None, "the frame it was forked from is not in the archive", frame.id)
        return position, last.hash

    def is_blob(self, digest):
        """Whether what a frame names by its hash is there, as far as that can be known."""
        if digest not in self.blobs:
            name = "blobs/%s.json" % digest
            known = self.files.digests(name)[2] if name in self.files else ""
            self.blobs[digest] = known in (None, digest)
        return self.blobs[digest]

    def blob(self, digest):
        """The bytes that a frame names by their hash; None where they are missing or others."""
        return self.files.whole("blobs/%s.json" % digest) if self.is_blob(digest) else None

    # ---- Claims: text is proven, a pair is not covered, what is wrong is raised ------------------
    def claim_manifest(self):
        listed = self.manifest["files"]
        for name in filter(lambda name: name != "manifest.json", self.files):
            size, sha256, blake = self.files.digests(name)
            blake = blake or listed.get(name, {}).get("blake3")
            actual = {"blake3": blake, "bytes": size, "sha256": sha256}
            if name.startswith("derived/"): actual["derived"] = True
            wrong_if(listed.get(name) != actual, name + " is not as listed")
        for name in listed: wrong_if(name not in self.files, name + " is missing")
        return count(len(listed), "file")

    def claim_chain(self):
        if self.chain_wrong: raise self.chain_wrong
        words = count(len(self.frames), "frame") + " of " + count(len(self.streams), "stream")
        return words if _blake3 else NO_BLAKE3

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
        words = None, "in other streams: " + count(outside, "cause")
        return words if outside else "every cause is earlier"

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
    """A claim, and what becomes of it; `by` is who judges, or why no one does."""
    made = {"claim": claim, "verdict": "failed"}
    if isinstance(by, str): return dict(made, verdict="not_covered", reason=by)
    try: answer = getattr(by, "claim_" + claim)()
    except Wrong as wrong:
        return dict(made, reason=wrong.reason, **({"frame": wrong.frame} if wrong.frame else {}))
    except BROKEN as error: return dict(made, reason="it cannot be read: %r" % error)
    except TooLarge as large: answer = None, str(large)
    if isinstance(answer, tuple): return dict(made, verdict="not_covered", reason=answer[1])
    return dict(made, verdict="proven", reason=answer)

def verify(file, parts, held=(), key=None):
    """The claims about an archive."""
    evidence, made = Evidence(file), {}
    if isinstance(parts["signed"], str): evidence.unsigned = parts["signed"]
    for name, part in parts.items():
        more = (held, key) if name == "signed" else ()
        made[name] = part if isinstance(part, str) else getattr(part, USED[name])(evidence, *more)
    judges = [(evidence, "manifest chain causes"), (made["content"], "blobs completeness"),
              (made["signed"], "inclusion signatures rotation key held"),
              (made["content"], "extracts definitions lock verifier"),
              (made["outputs"], "outputs"), (made["world"], "world"),
              (made["calls"], "approvals tools"), (made["evals"], "evals"),
              ("only ktsu regenerates these tables", "derived"),
              ("only ktsu replays decisions", "replay")]
    return [judge(claim, by) for by, claims in judges for claim in claims.split()]

def report(archive, claims, sound, as_json):
    """The report on an archive: what failed comes first, then what is not covered."""
    if as_json: return json.dumps({"file": archive, "sound": sound, "claims": claims})
    order = "failed", "not_covered", "proven"
    named = {one: [it["claim"] for it in claims if it["verdict"] == one] for one in order}
    words = "failed: " + ", ".join(named["failed"]) if named["failed"] else "nothing failed"
    if named["not_covered"]: words += "; not covered: " + ", ".join(named["not_covered"])
    lines = [archive + ": " + words]
    for claim in sorted(claims, key=lambda claim: order.index(claim["verdict"])):
        words = ascii((claim["frame"] + ": " if "frame" in claim else "") + claim["reason"])[1:-1]
        verdict = claim["verdict"].replace("_", " ")
        lines.append("  %-11s %-13s %s" % (verdict, claim["claim"], words))
    return "\n".join(lines)

def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("archives", nargs="+")
    parser.add_argument("--checkpoint", help="a file with signed checkpoints kept elsewhere")
    parser.add_argument("--key", help="the public key the ledger is known by, or a file with it")
    parser.add_argument("--require", action="append", default=[], metavar="CLAIM",
                        help="a claim that has to be proven, such as chain; may be given again")
    parser.add_argument("--json", action="store_true", help="one line of JSON for each archive")
    asked = parser.parse_args()
    parts = {name: part("verify_%s.py" % name) for name in USED}
    signed, code = parts["signed"], 0
    try:
        wrong_if((asked.checkpoint or asked.key) and isinstance(signed, str), signed)
        held = signed.read_held(asked.checkpoint) if asked.checkpoint else ()
        key = signed.read_key(asked.key) if asked.key else None
    except (OSError, Wrong) + BROKEN as error:
        print("error: %s" % ascii(str(error)), file=sys.stderr)
        return 2
    for archive in asked.archives:
        try:
            with open(archive, "rb") as file: claims = verify(file, parts, held, key)
        except (OSError, Unreadable, MemoryError) as error:
            why, code = str(error) or "there is not enough memory", 2
            words = "%s: cannot be read: %s" % (archive, ascii(why))
            print(json.dumps({"file": archive, "error": why}) if asked.json else words)
            continue
        sound = all(claim["verdict"] != "failed" for claim in claims)
        print(report(archive, claims, sound, asked.json))
        proven = {claim["claim"] for claim in claims if claim["verdict"] == "proven"}
        for one in [one for one in asked.require if one not in proven]:
            print("%s: required and not proven: %s" % (archive, ascii(one)), file=sys.stderr)
        if not sound or not proven.issuperset(asked.require): code = code or 1
    return code

def run():
    """Whatever keeps this from a verdict is not a verdict."""
    try:
        if sys.version_info < (3, 8): raise RuntimeError("this needs Python 3.8")
        code = main()
        sys.stdout.flush()
        return code
    except Exception as error:
        print("error: no verdict: %s" % ascii(repr(error)), file=sys.stderr)
        return 2

if __name__ == "__main__": sys.exit(run())
