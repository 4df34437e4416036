"""The part of verify.py that judges what an archive holds beside its frames: whether every run is
whole, whether the files that repeat what frames say do so, what the runs were defined and locked
as, and whether the verifier and its guide in the archive are those that this one knows. It is used
by verify.py and does nothing by itself."""
import base64, hashlib
from os.path import join

from verify import HOME, NO_BLAKE3, PARTS, blake3, count, decode, is_number, key_id, load, wrong_if

# VERIFY.md, by its SHA-256.
GUIDE = "c2ec00393a1341790608e89fa3181327eea7e1efe9f6724eec867613977ca913"

def size_and_hash(text): return len(text.encode()), hashlib.sha256(text.encode()).hexdigest()

class Content:
    """What an archive holds beside its frames."""
    def __init__(self, evidence): self.evidence = evidence

    def claim_blobs(self):
        named = set()
        for frame in self.evidence.frames:
            for external in frame.ext:
                name = "blobs/%s.json" % external["hash"]
                right = self.evidence.is_blob(external["hash"])
                right = right and self.evidence.files.size(name) == external["bytes"]
                wrong_if(not right, name + " is missing or another", frame.id)
                named.add(name)
        for name in self.evidence.files:
            wrong_if(name.startswith("blobs/") and name not in named, "no frame names " + name)
        return count(len(named), "blob") if blake3(b"") else NO_BLAKE3

    def claim_completeness(self):
        headed = self.heads()
        for run in self.evidence.manifest["runs"]:
            wrong_if(run not in self.evidence.streams, run + " was asked for and is not here")
        ends = {frame.stream: frame.seq + 1 for frame in self.evidence.frames}
        runs = [stream for stream in sorted(ends) if stream.split(":")[0] in ("run", "branch")]
        open_ = [stream for stream in runs if headed.get(stream) != ends[stream]]
        if open_:
            return None, "%s without a head after the last frame, such as %s: later frames " \
                "could be missing" % (count(len(open_), "run"), open_[0])
        words = "complete as of their heads: " + count(len(headed), "run")
        size = self.evidence.tree["size"]
        left_out = size - sum(frame.position <= size for frame in self.evidence.frames)
        if left_out > 0:
            return None, "%s; %s of the ledger left out, which may include later frames, " \
                "branches or recomputes of these runs" % (words, count(left_out, "frame"))
        return (None, self.evidence.unsigned) if self.evidence.unsigned else words

    def heads(self):
        """How many frames each run ended with, as the signed part of the ledger says."""
        headed, frames = {}, self.evidence.frames
        removed = {frame.data.get("stream") for frame in frames if frame.type == "run.removed"}
        for frame in frames:
            if frame.type != "run.head": continue
            stream, count = frame.data.get("stream"), frame.data.get("frames")
            if stream not in self.evidence.streams:
                reason = "%s ended, and is not in an archive of all runs" % stream
                wrong_if(self.evidence.manifest["all"] and stream not in removed, reason, frame.id)
                continue
            last = self.evidence.shared(stream, count - 1) if is_number(count) else None
            reason = "%s does not have the %s frames it ended with" % (stream, count)
            wrong_if(last is None or last.hash != frame.data.get("hash"), reason, frame.id)
            # What is not signed shows nothing, and a run that was taken up again has no end.
            signed = frame.position <= self.evidence.tree["size"]
            counts = signed and frame.data.get("status") != "open"
            headed[stream] = count if counts else None
        return headed

    def claim_extracts(self):
        expected, files = {}, self.evidence.files
        for frame in self.evidence.frames: expected.update(self.extracts(frame, frame.data))
        found = {name for name in files if name.split("/")[0] in ("checkpoints", "keys", "config")}
        for name in sorted(found | set(expected)):
            there = files.digests(name)[:2] if name in files else None
            wrong_if(there != expected.get(name), name + " is not what frames say")
        return count(len(expected), "file")

    def extracts(self, frame, data):
        """The files that say once more what a frame says: their lengths and digests."""
        files = self.evidence.files
        if frame.type == "checkpoint.signed":
            yield "checkpoints/%012d.note" % data["size"], size_and_hash(data["note"])
        elif frame.type == "signing_key.added":
            key, origin = decode(data["public_key"]), self.evidence.origin
            ident, text = key_id(origin, key).hex(), base64.b64encode(b"\1" + key).decode()
            line = "%s+%s+%s\n" % (origin, ident, text)
            yield "keys/%08d-%s.pub" % (frame.seq, ident), size_and_hash(line)
        elif frame.type == "signing_key.revoked":
            yield "keys/%08d-revoked.note" % frame.seq, size_and_hash(data["note"])
        for external in frame.ext:
            blob = "blobs/%s.json" % external["hash"]
            if external["path"] == "/definition" and blob in files:
                yield "config/%s.json" % external["hash"], files.digests(blob)[:2]

    def defined(self):
        """The frames that bring a definition."""
        kinds = "run.created", "branch.created"
        created = (one for one in self.evidence.frames if one.type in kinds)
        return [one for one in created if one.data.get("digest") is not None]

    def claim_definitions(self):
        for frame in self.defined():
            named = [one["hash"] for one in frame.ext if one["path"] == "/definition"]
            right = named[:1] == [frame.data["digest"]]
            wrong_if(not right, "its definition is not the one it names", frame.id)
        return "as named by runs: " + count(len(self.defined()), "definition")

    def claim_lock(self):
        locked = [(frame.id, self.unlocked(frame)) for frame in self.defined()]
        for one in locked:
            if one[1]: return None, "%s: %s" % one
        if not locked: return None, "there is no run"
        words = "started with the locked definition: " + count(len(locked), "run")
        return words if blake3(b"") else NO_BLAKE3

    def unlocked(self, frame):
        """Why a lock says nothing of a run; what it says against one is wrong."""
        if frame.type == "branch.created": return "its definition was changed by a person"
        apart, digest = {one["path"]: one["hash"] for one in frame.ext}, frame.data["digest"]
        if "/lock" not in apart: return "it records no lock"
        missing = len(apart) != len(frame.ext) or None in map(self.evidence.blob, apart.values())
        wrong_if(missing, "one of its blobs is missing or another", frame.id)
        named = apart.get("/definition") == digest
        wrong_if(not named, "its definition is not the one it names", frame.id)
        lock = load(self.evidence.blob(apart["/lock"]).decode("utf-8"))
        known = isinstance(lock, dict) and type(lock.get("format")) is int and lock["format"] == 1
        if not known: return "its lock is of a format that this verifier does not know"
        path, entries = "workflows/%s.workflow.yaml" % frame.data["workflow"], lock.get("entries")
        entries = entries if isinstance(entries, list) else []
        found = [one for one in entries if isinstance(one, dict) and one.get("path") == path]
        right = len(found) == 1 and found[0].get("kind") == "workflow"
        right = right and found[0].get("definition") == digest
        wrong_if(not right, "its lock names another definition of the workflow", frame.id)
        return None

    def claim_verifier(self):
        """Whoever made the archive could have put any program there, and any advice."""
        with open(join(HOME, "verify.py"), "rb") as file: own = file.read()
        known = dict(PARTS, **{"verify.py": hashlib.sha256(own).hexdigest(), "VERIFY.md": GUIDE})
        files = self.evidence.files
        other = [name for name in files if name.split(".")[0] == "VERIFY" or name.endswith(".py")]
        for name in sorted(set(other) | set(known)):
            right = name in files and files.digests(name)[1] == known.get(name)
            if not right: return None, "%s in the archive is not the one that belongs to this " \
                "verifier: do not run it, and do not go by it" % name
        return count(len(known), "file") + " of this version"
