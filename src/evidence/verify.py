#!/usr/bin/env python3
"""Verifies archives of evidence that `ktsu evidence export` makes, without ktsu.

    python3 verify.py ARCHIVE... [--checkpoint NOTES] [--key KEY] [--json]

Needs Python 3.8 and its standard library; without the package `blake3` the claims that rest on
BLAKE3 are not covered. Every claim is proven, not covered, or failed. Exit code: 0 if no claim
failed, 1 if one did, 2 if an archive cannot be read.
"""
import argparse, base64, hashlib, json, re, sys
from bisect import bisect_left
try: from blake3 import blake3 as _blake3
except ImportError: _blake3 = None
FORMAT = 1
MAX_BODY = 256 * 1024
ZERO = "0" * 64
KEPT = ("type", "data", "cause", "ext", "prev")
NO_BLAKE3 = None, "the Python package blake3 is not installed"
NUMBER = re.compile(r"(0|[1-9][0-9]{0,15})\Z")
HASH = re.compile(r"[0-9a-f]{64}\Z")
PART = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*\Z")
NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
STREAM = re.compile(r"(store|(run|branch|eval|recompute|kv):" + NAME + r")\Z")
MEMBERS = ["v", "stream", "seq", "type", "scope", "actor", "cause", "at", "data", "ext", "prev"]
class Unreadable(Exception): """There is nothing to judge."""
class Wrong(Exception):
    """A claim does not hold."""
    def __init__(self, reason, frame=None):
        super().__init__(reason)
        self.reason, self.frame = reason, frame
def wrong_if(condition, reason, frame=None):
    if condition: raise Wrong(reason, frame)
def unreadable_if(condition, reason):
    if condition: raise Unreadable(reason)
def check(condition):
    if not condition: raise ValueError("it is malformed")
def blake3(data):
    """The digest, or nothing where the package is missing: what rests on it is not covered then."""
    return _blake3(data).hexdigest() if _blake3 else None

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
    inverse = pow(z, P - 2, P)
    x, y = x * inverse % P, y * inverse % P
    return (y | (x & 1) << 255).to_bytes(32, "little") == signature[:32]

# ---- Archives ---------------------------------------------------------------------------------
def header(name, size):
    block = bytearray(512)
    for at, data in ((0, name), (100, b"0000644\0"), (108, b"0000000\0"), (116, b"0000000\0"),
                     (124, b"%011o\0" % size), (136, b"00000000000\0"), (148, b" " * 8),
                     (156, b"0"), (257, b"ustar\x0000")):
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
def no_twins(pairs):
    made = dict(pairs)
    if len(made) != len(pairs): raise ValueError("a key twice")
    return made

def load(text): return json.loads(text, object_pairs_hook=no_twins, parse_constant=lambda _: check(False))
def document(files, name):
    try: return load(files[name].decode("utf-8"))
    except (KeyError, ValueError, RecursionError) as error: raise Unreadable("%s: %r" % (name, error))
def number(text): return int(text) if NUMBER.match(text) and int(text) < 1 << 53 else None
def is_number(value): return isinstance(value, int) and not isinstance(value, bool) and value >= 0

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
            check(list(body) == MEMBERS and body["v"] == 1 and isinstance(body["data"], dict))
            check(isinstance(body["cause"], list) and isinstance(body["ext"], list))
            check(all(set(e) == {"bytes", "hash", "path"} and HASH.match(e["hash"]) for e in body["ext"]))
        except (ValueError, TypeError, RecursionError) as error: raise Wrong("it is not a frame: %s" % error, self.id)
        wrong_if((body["stream"], body["seq"]) != (self.stream, self.seq) or isinstance(body["seq"], bool), "its bytes say another stream or number", self.id)
        self.type, self.data, self.cause, self.ext, self.prev = map(body.get, KEPT)

class Evidence:
    def __init__(self, data):
        self.files = read_tar(data)
        self.manifest = document(self.files, "manifest.json")
        self.tree = document(self.files, "proofs/tree.json")
        try:
            check(self.manifest["format"] == FORMAT and self.tree["format"] == FORMAT)
            check(isinstance(self.manifest["all"], bool) and is_number(self.tree["size"]))
            check(all(isinstance(run, str) for run in self.manifest["runs"]) and self.manifest["files"].items())
            check(all(HASH.match(node) for node in self.tree["hashes"]))
            check(all(is_number(it["first"]) for it in self.manifest["streams"].values()))
            self.origin = self.manifest["origin"] + ""
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise Unreadable("manifest or proof: %r" % error)
        self.streams = self.manifest["streams"]
        self.chain_wrong, self.frames, self.places = None, [], {}
        for frame in self.rows(): self.take(frame)
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
            seen["frames"] += 1
            seen["head"] = frame.hash
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
                if is_number(cause):
                    if cause >= frame.seq: raise wrong
                    continue
                stream, _, seq = cause.rpartition("#") if isinstance(cause, str) else ("", "", "")
                if not STREAM.match(stream) or number(seq) is None: raise wrong
                if stream not in self.streams:
                    outside += frame.stream != "store"
                    continue
                found = self.places.get((stream, int(seq)))
                if found is None or found.position >= frame.position: raise wrong
        return (None, "%d causes stand in other streams" % outside) if outside else "every cause is earlier"
    def claim_blobs(self):
        named = set()
        for frame in self.frames:
            for external in frame.ext:
                name = "blobs/%s.json" % external["hash"]
                data = self.files.get(name)
                if data is None or len(data) != external["bytes"] or \
                        (name not in named and blake3(data) not in (None, external["hash"])):
                    raise Wrong("the blob %s is missing or another" % external["hash"], frame.id)
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
            headed[stream] = count
        for run in self.manifest["runs"]: wrong_if(run not in self.streams, run + " was asked for and is not here")
        ends = {frame.stream: frame.seq + 1 for frame in self.frames}
        runs = {stream: end for stream, end in ends.items() if stream.split(":")[0] in ("run", "branch")}
        open_ = [stream for stream in sorted(runs) if headed.get(stream) != runs[stream]]
        if open_:
            return None, ("%d runs have no head behind their last frame, such as %s: frames that came "
                          "later could be left out" % (len(open_), open_[0]))
        return "%d runs end as their heads say" % len(headed)
    def claim_extracts(self):
        expected = {}
        for frame in self.frames:
            data = frame.data
            if frame.type == "checkpoint.signed":
                expected["checkpoints/%012d.note" % data["size"]] = data["note"].encode()
            elif frame.type == "signing_key.added":
                key = decode(data["public_key"])
                ident = key_id(self.origin, key).hex()
                line = "%s+%s+%s\n" % (self.origin, ident, base64.b64encode(b"\1" + key).decode())
                expected["keys/%08d-%s.pub" % (frame.seq, ident)] = line.encode()
            elif frame.type == "signing_key.revoked":
                expected["keys/%08d-revoked.note" % frame.seq] = data["note"].encode()
            for external in frame.ext:
                blob = self.files.get("blobs/%s.json" % external["hash"])
                if external["path"] == "/definition" and blob is not None:
                    expected["config/%s.json" % external["hash"]] = blob
        found = {name for name in self.files if name.split("/")[0] in ("checkpoints", "keys", "config")}
        for name in sorted(found | set(expected)):
            wrong_if(self.files.get(name) != expected.get(name), name + " is not what the frames say")
        return "%d files" % len(expected)
    def claim_definitions(self):
        count = 0
        for frame in self.frames:
            digest = frame.data.get("digest")
            if frame.type not in ("run.created", "branch.created") or digest is None: continue
            count += 1
            wrong_if([e["hash"] for e in frame.ext if e["path"] == "/definition"] != [digest], "its definition is not the one it names", frame.id)
        return "%d definitions are those that runs name" % count

# ---- The tree, keys and checkpoints -------------------------------------------------------------
def leaf(data): return hashlib.sha256(b"\0" + data).digest()
def above(left, right): return hashlib.sha256(b"\1" + left + right).digest()
def split(size): return 1 << (size - 1).bit_length() - 1
def tree_roots(size, leaves, sizes, hashes):
    """The roots of the tree and of the earlier ones: RFC 6962 around what is left out."""
    wrong_if((leaves and max(leaves) >= size) or any(not 0 < one <= size for one in sizes), "it is about more than the tree holds")
    shown, ends, known, hashes = sorted(leaves), sorted(sizes), {}, iter(hashes)
    def between(numbers, low, high):
        at = bisect_left(numbers, low)
        return at < len(numbers) and numbers[at] < high
    def part(low, high):
        if not between(shown, low, high) and not (high - low > 1 and between(ends, low + 1, high)):
            node = next(hashes, None)
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
    roots = {size: part(0, size)}
    wrong_if(next(hashes, None) is not None, "the proof is too long")
    roots.update((one, again(0, one)) for one in sizes)
    return roots

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
    for signer, line in lines:
        if signer == name and line[:4] == key_id(name, key) and signed_by(key, text.encode(), line[4:]): return text
    return None
def read_checkpoint(text):
    origin, size, root, end = text.split("\n")
    wrong_if(end or number(size) is None or len(decode(root)) != 32, "a checkpoint is an origin, a size and a root, each on a line")
    return origin, int(size), base64.b64decode(root)

class Signed:
    def __init__(self, evidence):
        self.evidence, self.origin = evidence, evidence.origin
        self.keys, self.signer, self.count = [], None, 0  # keys: [bytes, vouched, revoked]
        self.wrong = self.key_wrong = self.tree_wrong = None
        self.roots = {}
        try: self.roots = self.find_roots()
        except Wrong as wrong: self.tree_wrong = wrong
        for frame in evidence.frames:
            taken = {"signing_key.added": self.add, "signing_key.revoked": self.revoke,
                     "checkpoint.signed": self.check}.get(frame.type)
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
        text = "%s\nsigning key added\n%s\n" % (self.origin, data["public_key"])
        wrong_if(note_signed(data["note"], self.origin, by, text) is None, "the note that vouches for the key is not signed for it")
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
        self.count, self.signer = self.count + 1, key
        wrong_if(size in self.roots and self.roots[size] != root, "the first %d frames are not those that were signed" % size)
        wrong_if(size >= frame.position, "the checkpoint does not stand behind its frames")
    def claim_inclusion(self):
        if self.tree_wrong or self.wrong: raise self.tree_wrong or self.wrong
        size = self.evidence.tree["size"]
        if size == 0: return None, "the ledger has no signed checkpoint"
        for frame in self.evidence.frames:
            if frame.position > size and frame.stream != "store":
                return None, frame.id + " came after the last checkpoint"
        return "in the tree of %d frames" % size
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
        known = [one[0] for one in self.keys]
        wrong_if(self.signer is None or name != self.origin or key not in known, "the ledger does not know the key that was given, or nothing is signed")
        places = [len(known) - 1 - known[::-1].index(one) for one in (key, self.signer)]
        wrong_if(not all(one[1] for one in self.keys[min(places) + 1:max(places) + 1]), "the key that was given does not vouch for the one that signed")
        return "the key that was given, or one it is in line with"
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
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        return dict(made, reason="it cannot be read: %r" % error)
    if isinstance(answer, tuple): return dict(made, verdict="not_covered", reason=answer[1])
    return dict(made, verdict="proven", reason=answer)
def verify(data, held=(), key=None):
    """The claims about an archive."""
    evidence = Evidence(data)
    signed = Signed(evidence)
    asked = [(evidence, "manifest"), (evidence, "chain"), (evidence, "causes"), (evidence, "blobs"),
             (evidence, "completeness"), (signed, "inclusion"), (signed, "signatures"),
             (signed, "rotation"), (signed, "key", key), (signed, "held", held),
             (evidence, "extracts"), (evidence, "definitions")]
    claims = [judge(name, getattr(of, "claim_" + name), *more) for of, name, *more in asked]
    for name, why in (("replay", "only ktsu itself decides again"),
                      ("approvals", "approvals are not built"), ("tools", "tools are not built"),
                      ("lockfile", "the lockfile is not built")):
        claims.append({"claim": name, "verdict": "not_covered", "reason": why})
    return claims
def read_held(text):
    parts = [part.lstrip("\n") for part in text.split("\n\n") if part.strip("\n")]
    return [read_checkpoint(read_note(head + "\n\n" + below)[0])
            for head, below in zip(parts[::2], parts[1::2])]
def read_key(given):
    if given.count("+") < 2:
        with open(given, encoding="utf-8") as file: given = file.read().split()[0]
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
    held, key, as_json = [], None, arguments.json
    try:
        if arguments.checkpoint:
            with open(arguments.checkpoint, encoding="utf-8") as file: held = read_held(file.read())
        if arguments.key: key = read_key(arguments.key)
    except (OSError, Wrong, ValueError) as error:
        print("error: %r" % error, file=sys.stderr)
        return 2
    code = 0
    for archive in arguments.archives:
        try:
            with open(archive, "rb") as file: claims = verify(file.read(), held, key)
        except (OSError, Unreadable) as error:
            print(json.dumps({"file": archive, "error": str(error)}) if as_json
                  else "%s: cannot be read: %s" % (archive, ascii(str(error))))
            code = 2
            continue
        sound = all(claim["verdict"] != "failed" for claim in claims)
        code = code or (0 if sound else 1)
        if as_json:
            print(json.dumps({"file": archive, "sound": sound, "claims": claims}))
            continue
        print("%s: %s" % (archive, "nothing failed" if sound else "IT IS NOT WHAT WAS RECORDED"))
        for claim in claims:
            place = claim["frame"] + ": " if "frame" in claim else ""
            print("  %-11s %-13s %s" % (claim["verdict"].replace("_", " "), claim["claim"],
                                        ascii(place + str(claim["reason"]))[1:-1]))
    return code
if __name__ == "__main__": sys.exit(main())
