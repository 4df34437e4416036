"""The part of verify.py that judges what is signed: the tree over all frames of a ledger, the
checkpoints over it, and the keys they are signed with. It is used by verify.py and does nothing by
itself."""
import base64, hashlib, re
from bisect import bisect_left
from functools import reduce

from verify import BROKEN, Wrong, count, decode, is_number, key_id, number, wrong_if

# ---- Ed25519 (RFC 8032), verification only -------------------------------------------------------
P = 2 ** 255 - 19
L = 2 ** 252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, P - 2, P) % P

def add(p, q):
    """The sum of two points, each in extended coordinates: x, y, z, x * y / z."""
    a, b = (p[1] - p[0]) * (q[1] - q[0]) % P, (p[1] + p[0]) * (q[1] + q[0]) % P
    c, d = 2 * p[3] * q[3] * D % P, 2 * p[2] * q[2] % P
    e, f, g, h = b - a, d - c, d + c, b + a
    return e * f % P, g * h % P, f * g % P, e * h % P

def times(s, p):
    """A point, s times."""
    q = (0, 1, 1, 0)
    while s > 0:
        if s & 1: q = add(q, p)
        p, s = add(p, p), s >> 1
    return q

def point(data):
    """The point that 32 bytes mean; None if they mean none."""
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
    """Whether a key made the signature of a text."""
    if len(key) != 32 or len(signature) != 64: return False
    a, s = point(key), int.from_bytes(signature[32:], "little")
    if a is None or s >= L: return False
    h = int.from_bytes(hashlib.sha512(signature[:32] + key + text).digest(), "little") % L
    x, y, z, _ = add(times(s, BASE), times(h, (P - a[0], a[1], 1, P - a[3])))
    x, y = (one * pow(z, P - 2, P) % P for one in (x, y))
    return (y | (x & 1) << 255).to_bytes(32, "little") == signature[:32]

# ---- The tree (RFC 6962) -------------------------------------------------------------------------
def leaf(data): return hashlib.sha256(b"\0" + data).digest()
def above(left, right): return hashlib.sha256(b"\1" + left + right).digest()
def split(size): return 1 << (size - 1).bit_length() - 1

def tree_roots(size, leaves, sizes, hashes):
    """The roots of the tree and of earlier ones, from the leaves that are shown and the hashes of
    the parts that are left out. A part is left out whole where it holds no leaf that is shown, and
    no earlier tree ends within."""
    beyond = (leaves and max(leaves) >= size) or any(not 0 < one <= size for one in sizes)
    wrong_if(beyond, "it is about more than the tree holds")
    shown, ends, known, hashes = sorted(leaves), sorted(sizes), {}, iter(hashes)

    def between(numbers, low, high): return bisect_left(numbers, low) < bisect_left(numbers, high)

    def part(low, high):
        if not between(shown, low, high) and (high - low == 1 or not between(ends, low + 1, high)):
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

    part(0, size)
    wrong_if(next(hashes, None) is not None, "the proof is too long")
    return {one: again(0, one) for one in {size, *sizes}}

# ---- Signed notes and checkpoints ----------------------------------------------------------------
def read_note(note):
    """A signed note: its text, and the names and signatures below it."""
    text, below = note.rsplit("\n\n", 1)
    lines = []
    for line in below[:-1].split("\n") if below.endswith("\n") else below.split("\n"):
        dash, name, signature = line.split(" ")
        wrong_if(dash != "\u2014", "a signature of the note is damaged")
        lines.append((name, decode(signature)))
    return text + "\n", lines

def note_signed(note, name, key):
    """The text of a note that the key has signed; None if it has not."""
    text, lines = read_note(note)
    for signer, line in lines:
        ours = signer == name and line[:4] == key_id(name, key)
        if ours and signed_by(key, text.encode(), line[4:]): return text
    return None

def read_checkpoint(text):
    """The ledger, the size and the root that the text of a checkpoint names."""
    origin, size, root, end = text.split("\n")
    right = not end and number(size) is not None and len(decode(root)) == 32
    wrong_if(not right, "a checkpoint is an origin, a size and a root, each on a line")
    return origin, int(size), decode(root)

def read_held(path):
    """The checkpoints of a file of notes one after another, empty lines between them or not."""
    with open(path, encoding="utf-8", newline="") as file: rest = file.read().lstrip("\n")
    found = []
    while rest or not found:
        head, _, below = rest.partition("\n\n")
        signatures = re.match("(\u2014[^\n]*\n?)*", below).group()
        found.append(read_checkpoint(read_note(head + "\n\n" + signatures)[0]))
        rest = below[len(signatures):].lstrip("\n")
    return found

def read_key(given):
    """The name and the key of a public key, or of the file that holds it."""
    if given.count("+") < 2:
        with open(given, encoding="utf-8") as file: given = file.read().split()[0]
    name, ident, key = given.split("+", 2)
    key = decode(key)
    right = key[:1] == b"\1" and len(key) == 33 and key_id(name, key[1:]).hex() == ident
    wrong_if(not right, "not a public key")
    return name, key[1:]

class Key:
    """A key of the ledger: whether the one before vouches for it, and whether it still counts."""
    def __init__(self, key, vouched):
        self.key, self.vouched, self.revoked = key, vouched, False

class Signed:
    """What the keys and checkpoints of an archive come to."""
    def __init__(self, evidence, held, key):
        self.evidence, self.origin = evidence, evidence.origin
        self.held, self.wanted = held, key
        self.keys, self.signer, self.last, self.count = [], None, 0, 0
        self.wrong = self.key_wrong = self.tree_wrong = None
        self.roots = {}
        try: self.roots = self.find_roots()
        except Wrong as wrong: self.tree_wrong = wrong
        except BROKEN as error: self.tree_wrong = Wrong("the proof is damaged: %r" % error)
        for frame in evidence.frames: self.take(frame)

    def find_roots(self):
        """The root of each checkpoint, as the frames give it."""
        evidence, size = self.evidence, self.evidence.tree["size"]
        first = evidence.frames[0] if evidence.frames else None
        if first and first.position == 1:
            named = self.origin == "ktsu/ledger/" + first.hash[:16]
            wrong_if(not named, "the origin is not made from the first frame")
        sizes = [one.data.get("size") for one in evidence.frames if one.type == "checkpoint.signed"]
        right = all(map(is_number, sizes)) and size == (sizes[-1] if sizes else 0)
        wrong_if(not right, "the proof is not about the last checkpoint")
        if size == 0: return {}
        shown = [frame for frame in evidence.frames if frame.position <= size]
        leaves = {frame.position - 1: leaf(frame.bytes) for frame in shown}
        return tree_roots(size, leaves, set(sizes), map(bytes.fromhex, evidence.tree["hashes"]))

    def take(self, frame):
        taken = {"signing_key.added": self.add, "signing_key.revoked": self.revoke,
                 "checkpoint.signed": self.check}.get(frame.type)
        if taken is None: return
        try: taken(frame, frame.data)
        except (Wrong,) + BROKEN as error:
            wrong = Wrong("the note or its key is damaged: %s" % error, frame.id)
            if frame.type == "checkpoint.signed": self.wrong = self.wrong or wrong
            else: self.key_wrong = self.key_wrong or wrong

    def in_force(self):
        return self.keys[-1].key if self.keys and not self.keys[-1].revoked else None

    def about_key(self, said, data):
        """The key that a note is about and the one that signed it, if it says this of it."""
        key, by = decode(data["public_key"]), decode(data["signed_by"])
        text = "%s\nsigning key %s\n%s\n" % (self.origin, said, data["public_key"])
        signed = note_signed(data["note"], self.origin, by) == text
        wrong_if(not signed, "the note about the key is not signed for it")
        return key, by

    def add(self, _, data):
        key, by = self.about_key("added", data)
        right = len(key) == 32 and key_id(self.origin, key).hex() == data["id"]
        wrong_if(not right, "the id of the key is not made from the key")
        vouches = by in (key, self.in_force())
        wrong_if(not vouches, "a key that was not in force vouches for the key")
        self.keys.append(Key(key, not self.keys or by != key))

    def revoke(self, _, data):
        key, by = self.about_key("revoked", data)
        wrong_if(by != self.in_force(), "a key that was not in force revokes the key")
        for known in self.keys: known.revoked = known.revoked or known.key == key

    def check(self, frame, data):
        """Takes a checkpoint."""
        key = self.in_force()
        right = key is not None and key_id(self.origin, key).hex() == data["key"]
        wrong_if(not right, "the checkpoint is signed by a key that was not in force")
        text = note_signed(data["note"], self.origin, key)
        wrong_if(text is None, "the signature of the checkpoint is not that of its key")
        origin, size, root = read_checkpoint(text)
        same = (data["origin"], data["size"], data["root"]) == (origin, size, root.hex())
        right = same and origin == self.origin
        wrong_if(not right, "the signed note says something else than its frame")
        peaks = [bytes.fromhex(peak) for peak in data["frontier"]]
        right = len(peaks) == bin(size).count("1") and all(len(peak) == 32 for peak in peaks)
        peaks = peaks[::-1] or [hashlib.sha256().digest()]
        right = right and reduce(lambda low, high: above(high, low), peaks) == root
        wrong_if(not right, "the frontier of the checkpoint is not that of its root")
        self.count, self.signer, self.last = self.count + 1, len(self.keys) - 1, frame.position
        right = self.roots.get(size, root) == root
        wrong_if(not right, "the first %d frames are not those that were signed" % size)
        wrong_if(size >= frame.position, "the checkpoint comes before some of its frames")

    # ---- Claims: text is proven, a pair is not covered, what is wrong is raised ------------------
    def claim_inclusion(self):
        if self.tree_wrong or self.wrong: raise self.tree_wrong or self.wrong
        size = self.evidence.tree["size"]
        if size == 0: return None, "the ledger has no signed checkpoint"
        for frame in self.evidence.frames:
            if frame.position > size and frame.position != self.last:
                return None, frame.id + " came after the last checkpoint"
        return "in the tree of %s; the time of the last checkpoint is not proven" \
            % count(size, "frame")

    def claim_signatures(self):
        if self.wrong: raise self.wrong
        if not self.count: return None, "the ledger has no signed checkpoint"
        return count(self.count, "checkpoint")

    def claim_rotation(self):
        if self.key_wrong: raise self.key_wrong
        for known in self.keys:
            ident = key_id(self.origin, known.key).hex()
            if not known.vouched: return None, "no earlier key vouches for the key " + ident
        more = ", each vouched for by the one before" if len(self.keys) > 1 else ""
        return count(len(self.keys), "key") + more

    def claim_key(self):
        if self.wanted is None: return None, "operator-asserted only: no key was given with --key"
        wrong_if(self.signer is None, "nothing is signed")
        known = self.keys[:self.signer + 1]
        named = [(self.origin, one.key) == self.wanted for one in known]
        wrong_if(not any(named), "no key up to the one that signed last is the one that was given")
        line = known[len(named) - 1 - named[::-1].index(True):]
        for one in line:
            ident = key_id(self.origin, one.key).hex()
            wrong_if(one.revoked, "the key %s is revoked: it vouches for nothing" % ident)
        vouched = all(one.vouched for one in line[1:])
        wrong_if(not vouched, "the key that was given does not vouch for the one that signed")
        return "the key that was given, or one it vouches for, signed"

    def claim_held(self):
        if not self.held: return None, "no checkpoint kept elsewhere was given with --checkpoint"
        for origin, size, root in self.held:
            known = origin == self.origin and self.roots.get(size) == root
            reason = "the checkpoint over %d frames of %s is not of this ledger" % (size, origin)
            wrong_if(not known, reason)
        return "the ledger continues from " + count(len(self.held), "given checkpoint")
