"""The part of verify.py that judges verdicts again: whether what checks found of a run follows from
its frames, and the verdict from what they found. It makes checks of type trace and forbidden again
whose filters have no expression, and those of output that name a plain path. Everything else,
and whether the checks are those of the text of the spec, only ktsu judges. It is used by verify.py
and does nothing by itself."""
import json
import re
from decimal import ROUND_HALF_EVEN, Decimal

from verify import BROKEN, HASH, NO_BLAKE3, Wrong, blake3, check, count, is_number, load, part
from verify import wrong_if

VALUES, CALLS = part("verify_values.py"), part("verify_calls.py")
MISSING = next((one for one in (VALUES, CALLS) if isinstance(one, str)), None)

ABOUT_STEPS = ("step", "reserved", "command", "review", "suspend", "item", "llm", "agent", "note",
               "reflect", "budget", "tool", "approval", "worker", "webhook", "overlay")
WITHOUT_ITEM = "webhook", "overlay"
GLOBS = "type", "scope", "step", "item", "tool", "server", "model", "status", "actor"
CONDITIONS = {"equals", "not_equals", "min", "max", "contains"}
PLAIN = re.compile(r"(output|status)(\.[A-Za-z_][A-Za-z0-9_]*)*\Z")
MAX_NAMED, MAX_COMPARED, MAX_FRAMES = 100, 20000000, 2000000
SPACE = " \t\n\v\f\r\x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" \
    + "".join(map(chr, range(0x2000, 0x200b)))
RUN = re.compile(r"(run|branch|recompute):")

class Unknown(Exception): """What only ktsu judges."""

def composite(results):
    """The composite of results in their order: exact but for the sums, rounded half to even."""
    total, weights = 0.0, 0.0
    for one in results:
        total += float(one["weight"]) * float(one["score"])
        weights += float(one["weight"])
    if any(one["gate"] and one["score"] < 1 for one in results): return 0.0
    if weights <= 0: return None
    return rounded(total / weights)

def rounded(number):
    return float(Decimal(number).quantize(Decimal("1e-12"), ROUND_HALF_EVEN))

def verdict(results, threshold):
    """What the status and the composite of a scenario have to be."""
    made = composite(results)
    gates = all(one["score"] >= 1 for one in results if one["gate"])
    passes = gates and made is not None and made >= threshold
    status = "passed" if passes else "failed"
    if made is None or any(one["status"] == "error" for one in results): status = "error"
    return status, made or 0.0

def drawn_from(some, whole, k):
    """The probability that k of all, drawn without putting them back, are all of some."""
    product = 1.0
    for at in range(k): product *= max(some - at, 0) / (whole - at)
    return product

def aggregated(replicas, how, threshold):
    """What the verdict on all replicas of a scenario has to be, but for its number."""
    ended, total, estimate = {"passed": 0, "failed": 0, "error": 0}, 0.0, None
    for one in replicas:
        ended[one["status"]] += 1
        total += float(one["composite"])
    passed, whole = ended["passed"], len(replicas)
    mean = rounded(total / whole)
    if isinstance(how, dict):
        (name, asked), = how.items()
        k = asked if name == "at_least" else asked["k"]
        check(is_number(k) and 0 < k <= whole)
        if name == "at_least": passes = passed >= k
        elif name == "pass_at": estimate = rounded(1.0 - drawn_from(whole - passed, whole, k))
        else: estimate = rounded(drawn_from(passed, whole, k))
        if estimate is not None: passes = estimate >= asked["threshold"]
    else:
        passes = {"all": passed == whole, "any": passed > 0, "majority": passed * 2 > whole,
                  "mean": mean >= threshold}[how]
    status = "error" if ended["error"] else "passed" if passes else "failed"
    flaky = passed > 0 and ended["failed"] > 0
    return status, mean, estimate, flaky, totalled(ended)

def totalled(ended):
    return {"errors": ended["error"], "failed": ended["failed"], "passed": ended["passed"]}

def covers(glob, text):
    first, star, rest = glob.partition("*")
    if not star: return glob == text
    if not text.startswith(first): return False
    middle, _, last = rest.rpartition("*")
    at = len(first)
    for one in middle.split("*"):
        at = text.find(one, at)
        if at < 0: return False
        at += len(one)
    return len(text) >= at + len(last) and text.endswith(last)

class View:
    """A frame as filters see it."""
    def __init__(self, frame, data, call, model):
        kind = frame.type.split(".")[0]
        about = kind in ABOUT_STEPS or frame.type == "timer.fired" and data.get("timer") in (
            "review", "suspend")
        self.type, self.scope, self.actor = frame.type, frame.scope, frame.actor
        self.step = data.get("step") if about else None
        self.item = data.get("item") if about and kind not in WITHOUT_ITEM + ("timer",) else None
        if self.step is None: self.item = None
        self.server, self.tool, self.model = call[0], call[1], model
        self.seq, self.hash, self.status = frame.seq, frame.hash, status_of(frame.type, data)

    def fits(self, key, glob):
        if key == "tool":
            if not self.tool: return False
            full = self.server is not None and covers(glob, self.server + "__" + self.tool)
            return covers(glob, self.tool) or full
        if key == "step" and self.step is not None and "/" in glob:
            return covers(glob, self.scope + "/" + self.step if self.scope else self.step)
        value = getattr(self, key)
        return value is not None and covers(glob, str(value))

def status_of(kind, data):
    if kind in ("approval.decided", "review.decided"): return data.get("decision")
    if kind == "tool.returned" and data.get("not_sent") is not None: return "not_sent"
    if kind == "tool.returned": return "error" if data.get("is_error") else "ok"
    if kind == "llm.response": return "error" if data.get("error") is not None else "ok"
    value = data.get("status")
    if isinstance(value, str): return value
    is_plain = isinstance(value, (int, float)) and not isinstance(value, bool)
    return CALLS.canonical(value) if is_plain else None

class Run:
    """A run as it was when it was checked."""
    def __init__(self, evals, stream, frames):
        self.evals, self.evidence, self.stream, self.views = evals, evals.evidence, stream, []
        evidence, models, calls, at = evals.evidence, {}, {}, {}
        self.frames = [evidence.shared(stream, seq) for seq in range(frames)]
        for frame in self.frames:
            data, call, model = frame.data, (None, None), None
            if frame.type == "llm.response": models[frame.seq] = model = data.get("model")
            if frame.type.split(".")[0] in ("tool", "approval"):
                key = data.get("response"), data.get("call")
                if None in key: key = at.get(data.get("called", data.get("request")))
                if key is not None:
                    at[frame.seq] = key
                    if "tool" in data: calls[key] = data.get("server"), data["tool"]
                    call = calls.get(key) or (None, self.asked(*key))
                    model = models.get(key[0])
            self.views.append(View(frame, data, call, model))

    def asked(self, response, index):
        """The name that a model gave a tool that does not exist."""
        wanted = self.member(self.frames[response], "tool_calls")
        return wanted[index]["name"] or None

    def member(self, frame, name):
        return member(self.evidence, frame, name)

    def matching(self, where):
        """The frames that a filter matches."""
        if "expr" in where: raise Unknown("a filter with an expression")
        wanted = []
        for key in where:
            check(key in GLOBS)
            value = where[key] if isinstance(where[key], list) else [where[key]]
            texts = [one for text in value for one in str(text).split(",")]
            wanted.append((key, [text.strip(SPACE) for text in texts]))
        self.evals.compared += len(self.views) * sum(len(globs) for _, globs in wanted)
        if self.evals.compared > MAX_COMPARED: raise Unknown("more comparisons than are made here")
        return [view for view in self.views if all(
            any(view.fits(key, glob) for glob in globs) for key, globs in wanted)]

    def trace(self, asked):
        """Whether a check of the frames holds, and the frames that it looked at."""
        if asked["type"] == "forbidden":
            found = self.matching(asked["where"])
            return not found, found
        if not any(word in asked for word in ("count", "none", "before", "after")):
            words = [name for name in asked if name not in ("type", "where")]
            raise Unknown("trace with " + ", ".join(words))
        found = self.matching(asked["where"])
        if "none" in asked: return not found, found
        if "count" in asked:
            bounds, size = asked["count"], len(found)
            low, high = bounds.get("min", size), bounds.get("max", size)
            return low <= size <= high and size == bounds.get("equals", size), found
        word = "before" if "before" in asked else "after"
        others = self.matching(asked[word])
        both = {view.seq: view for view in found + others}
        both = [both[seq] for seq in sorted(both)]
        if not others: return True, both
        if word == "before": return all(one.seq < others[0].seq for one in found), both
        return all(one.seq > others[-1].seq for one in found), both

    def output(self, asked):
        """Whether a check of a plain path holds, and the value that it looked at."""
        path = asked.get("expr", "output")
        strange = set(asked) - CONDITIONS - {"type", "expr"}
        if strange: raise Unknown("output with " + ", ".join(sorted(strange)))
        if not PLAIN.match(path): raise Unknown("output with an expression")
        names = path.split(".")
        value = self.ended(names[0])
        for name in names[1:]: value = value.get(name) if isinstance(value, dict) else None
        return self.meets(value, asked), value

    def meets(self, value, asked):
        if not CONDITIONS & set(asked):
            return not (value is None or value is False or value in ("", [], {}))
        same, is_number_ = VALUES.same, VALUES.is_number(value)
        holds = "equals" not in asked or same(value, asked["equals"])
        holds = holds and not ("not_equals" in asked and same(value, asked["not_equals"]))
        if "min" in asked: holds = holds and is_number_ and value >= asked["min"]
        if "max" in asked: holds = holds and is_number_ and value <= asked["max"]
        if "contains" in asked:
            part_, inside = asked["contains"], False
            if isinstance(value, list): inside = any(same(one, part_) for one in value)
            elif isinstance(value, str) and isinstance(part_, str): inside = part_ in value
            holds = holds and inside
        return holds

    def ended(self, name):
        """A member of the envelope of a run that was completed and not changed since."""
        last = self.frames[-1]
        if last.type != "run.completed" or last.scope: raise Unknown("output of a run like this")
        if name == "status": return "complete"
        frame = last
        for _ in self.frames:
            given = frame.data.get("output_from")
            if given is None: break
            frame, names = self.frames[given["frame"]], given["path"].split("/")[1:]
            if names == ["output"]: continue
            # Of an outcome or a reply, the reserved fields are left out.
            raise Unknown("an output that is made of a reply")
        if frame.data.get("stripped"): raise Unknown("an output without its reserved fields")
        return self.member(frame, "output")

def score_of(text):
    """The score of a reply, from 0 to 1."""
    text = (text or "").strip(SPACE)
    if text.startswith("```"):
        text = text[3:-3] if text.endswith("```") and len(text) > 5 else text[3:]
        text = re.sub("^[A-Za-z0-9]*", "", text).strip(SPACE)
    try:
        score = json.loads(text, parse_constant=lambda _: check(False))["score"]
        check(isinstance(score, float) or type(score) is int and abs(score) < 1 << 53)
    except BROKEN: raise Unknown("a reply that is not read here")
    return min(max(float(score), 0.0), 1.0)

def member(evidence, frame, name):
    """A member of a frame, wherever it is kept."""
    apart = next((one["hash"] for one in frame.ext if one["path"] == "/" + name), None)
    if apart is None: return frame.data.get(name)
    blob = evidence.blob(apart)
    wrong_if(blob is None, "one of its blobs is missing or another", frame.id)
    return load(blob.decode("utf-8"))

class Verdicts:
    """One eval: its frames in order, each of which follows from those before it."""
    def __init__(self, evals, stream, frames):
        self.evals, self.evidence, self.stream, self.open = evals, evals.evidence, stream, None
        self.totals, self.ended = {"passed": 0, "failed": 0, "error": 0}, False
        self.runs, self.group, self.flaky, self.calls = dict(self.totals), [], 0, {}
        first = frames[0]
        wrong_if(first.type != "eval.started", "an eval begins with eval.started", first.id)
        text, named = member(self.evidence, first, "spec"), first.data["spec_digest"]
        other = blake3(text.encode("utf-8")) not in (None, named)
        wrong_if(other, "its spec has another digest", first.id)
        spec = member(self.evidence, first, "checks")
        self.checks, self.threshold = spec["checks"], spec["pass_threshold"]
        self.suite = first.data.get("suite")
        self.replicas = self.suite["replicas"] if self.suite else 1
        check(is_number(self.replicas) and 0 < self.replicas <= 1000)
        for frame in frames[1:]:
            try: self.take(frame, frame.data)
            except BROKEN as error: raise Wrong("it cannot be read: %r" % error, frame.id)
        if not self.ended: self.evals.unknown.append(stream + " has not ended")

    def take(self, frame, data):
        whole = self.replicas > 1 and len(self.group) == self.replicas
        between = self.open is None and not whole
        order = {"scenario.started": between, "check.result": self.open is not None,
                 "llm.request": self.open is None, "llm.response": self.open is None,
                 "scenario.finished": self.open is not None, "eval.finished": between,
                 "scenario.aggregated": self.open is None and whole}
        wrong_if(self.ended or not order.get(frame.type), "it is out of order", frame.id)
        if frame.type.startswith("llm."): return self.call(frame, data)
        number = sum(self.totals.values())
        place = number, 0 if whole else len(self.group)
        if frame.type != "eval.finished":
            other = (data["scenario"], data.get("replica", 0)) != place
            wrong_if(other, "it is of another scenario", frame.id)
        if frame.type == "scenario.started": self.open, self.run = [], self.run_of(frame, data)
        elif frame.type == "check.result": self.result(frame, data)
        elif frame.type == "scenario.finished": self.finish(frame, data)
        elif frame.type == "scenario.aggregated": self.aggregate(frame, data)
        else: self.end(frame, data, number)

    def call(self, frame, data):
        """A question of a check to a model, or the reply to one."""
        if frame.type == "llm.request":
            self.calls[frame.seq] = frame, []
            return
        asked, answers = self.calls.get(data["request"], (None, None))
        right = asked and not answers and asked.scope == frame.scope
        right = right and all(asked.data[name] == data[name] for name in ("step", "attempt"))
        wrong_if(not right or asked.data["digest"] != data["input_hash"],
                 "it is not the reply to its request", frame.id)
        other = data["output_hash"] != CALLS.sha256(member(self.evidence, frame, "content"))
        wrong_if(other, "its digest is not that of what the model replied", frame.id)
        answers.append(frame)

    def end(self, frame, data, number):
        short = self.group or self.suite and self.suite["scenarios"] != number
        wrong_if(short, "scenarios have no verdict", frame.id)
        named = {"passed": data["passed"], "failed": data["failed"], "error": data["errors"]}
        runs = totalled(self.runs) if self.replicas > 1 else None
        right = named == self.totals and data["scenarios"] == number
        right = right and data.get("flaky", 0) == self.flaky and data.get("replicas") == runs
        wrong_if(not right, "its totals are not those of its scenarios", frame.id)
        self.ended = True

    def aggregate(self, frame, data):
        made = aggregated(self.group, self.suite["aggregation"], self.threshold)
        names = "status", "composite", "estimate", "flaky", "replicas"
        right = made == tuple(data.get(name) for name in names)
        right = right and data["passed"] is (data["status"] == "passed")
        wrong_if(not right, "its verdict does not follow from its replicas", frame.id)
        self.totals[data["status"]] += 1
        self.flaky += data["flaky"]
        self.group = []

    def run_of(self, frame, data):
        """The run that is judged; None where it is not here."""
        stream, frames = data["run"], data["frames"]
        check(is_number(frames) and frames > 0 and HASH.match(data["head"]) and RUN.match(stream))
        if stream not in self.evidence.streams:
            self.evals.unknown.append("%s, which %s judges, is not here" % (stream, self.stream))
            return None
        last = self.evidence.shared(stream, frames - 1)
        other = last is None or last.hash != data["head"]
        wrong_if(other, stream + " does not have the frames that were judged", frame.id)
        if self.evals.last[:2] == (stream, frames): return self.evals.last[2]
        self.evals.read += frames
        if self.evals.read > MAX_FRAMES:
            self.evals.unknown.append(stream + ": more frames than are judged here")
            return None
        self.evals.last = stream, frames, Run(self.evals, stream, frames)
        return self.evals.last[2]

    def result(self, frame, data):
        at = len(self.open)
        asked = self.checks[at] if at < len(self.checks) else {"check": {}}
        right = all(asked.get(name) == data[name] for name in ("index", "name", "gate", "weight"))
        right = right and asked["check"].get("type") == data["check"]
        wrong_if(not right, "it is not the result of the next check of the spec", frame.id)
        status, score = data["status"], data["score"]
        right = status in self.totals and 0 <= score <= 1 and (status != "error" or score == 0)
        right = right and data["passed"] is (status == "passed")
        wrong_if(not right, "its score and its status contradict each other", frame.id)
        self.open.append(data)
        if self.run is None: return
        try: self.again(frame, data, asked["check"])
        except Unknown as unknown: self.evals.unknown.append("%s: %s" % (frame.id, unknown))

    def again(self, frame, data, asked):
        """Makes a check again."""
        kind, looked = asked["type"], data["looked_at"]
        if kind == "llm_as_judge": return self.median(frame, data, asked)
        if kind not in ("output", "trace", "forbidden"): raise Unknown("checks of type " + kind)
        if data["status"] == "error": raise Unknown("a check that could not be made")
        if kind == "output":
            holds, value = self.run.output(asked)
            text, size, named = CALLS.canonical(value), 0, []
        else:
            holds, views = self.run.trace(asked)
            pairs = ",".join('[%d,"%s"]' % (view.seq, view.hash) for view in views)
            text, size = "[%s]" % pairs, len(views)
            named = [view.seq for view in views[:MAX_NAMED]]
        right = holds == data["passed"] and data["score"] == (1 if holds else 0)
        right = right and looked["count"] == size and looked["frames"] == named
        right = right and blake3(text.encode("utf-8")) in (None, looked["digest"])
        wrong_if(not right, "the run gives another result of this check", frame.id)
        self.evals.made += 1

    def asked(self, scope, data, **wanted):
        """The last question of a check with these members, and the replies to it."""
        found = None, []
        for question, answers in self.calls.values():
            own = question.scope == scope and question.data["step"] == data["name"]
            if own and all(question.data.get(name) == wanted[name] for name in wanted):
                found = question, answers
        return found

    def median(self, frame, data, asked):
        """Makes the result of a check again from what a model replied."""
        if data["status"] == "error": raise Unknown("a check that could not be made")
        scope = "%d.%d" % (data["scenario"], data.get("replica", 0))
        first, _ = self.asked(scope, data, attempt=1, purpose="turn", base=None)
        wrong_if(first is None, "no model was asked", frame.id)
        named, scores = [], []
        for at in range(asked.get("samples", 1)):
            base = first.seq if at else None
            turn, answers = self.asked(scope, data, attempt=at + 1, purpose="turn", base=base)
            wrong_if(turn is None, "the model was not asked so often", frame.id)
            _, repaired = self.asked(scope, data, purpose="repair", base=turn.seq)
            answers = repaired or answers
            wrong_if(not answers, "the model has not replied", frame.id)
            named.append(answers[0])
            scores.append(score_of(member(self.evidence, answers[0], "content")))
        scores.sort()
        middle = rounded((scores[(len(scores) - 1) // 2] + scores[len(scores) // 2]) / 2)
        replies = ",".join('[%d,"%s"]' % (one.seq, one.data["output_hash"]) for one in named)
        prompt = blake3(CALLS.canonical(member(self.evidence, first, "messages")).encode("utf-8"))
        text = '{"prompt":"%s","replies":[%s]}' % (prompt, replies)
        right = middle == data["score"]
        right = right and data["passed"] is (middle >= asked.get("pass_threshold", 0.5))
        looked = data["looked_at"]
        right = right and looked["count"] == len(named)
        right = right and looked["frames"] == [one.seq for one in named[:MAX_NAMED]]
        right = right and (prompt is None or blake3(text.encode("utf-8")) == looked["digest"])
        wrong_if(not right, "the replies give another result of this check", frame.id)
        self.evals.made += 1
        raise Unknown("what a model was asked")

    def finish(self, frame, data):
        error = data.get("error")
        whole = len(self.open) == (len(self.checks) if error is None else 0)
        wrong_if(not whole, "checks of the spec have no result", frame.id)
        made = verdict(self.open, self.threshold) if error is None else ("error", 0)
        right = made == (data["status"], data["composite"])
        right = right and data["pass_threshold"] == self.threshold
        right = right and data["passed"] is (data["status"] == "passed")
        wrong_if(not right, "its verdict does not follow from its results", frame.id)
        self.open = None
        if self.replicas == 1: self.totals[data["status"]] += 1
        else:
            self.runs[data["status"]] += 1
            self.group.append(data)

class Evals:
    """All verdicts of an archive."""
    def __init__(self, evidence):
        self.evidence, self.unknown, self.made, self.last = evidence, [], 0, (None, 0, None)
        self.read = self.compared = 0

    def claim_evals(self):
        streams = {}
        for frame in self.evidence.frames:
            if frame.stream.startswith("eval:"): streams.setdefault(frame.stream, []).append(frame)
        if not streams: return "there is no verdict"
        if MISSING: return None, MISSING
        for stream in sorted(streams): Verdicts(self, stream, streams[stream])
        made = "%s, %s made again" % (count(len(streams), "verdict"), count(self.made, "check"))
        if self.unknown:
            more = len(self.unknown) - 1
            more = ", and %d more" % more if more else ""
            return None, "%s; only ktsu judges %s%s" % (made, self.unknown[0], more)
        if not blake3(b""): return NO_BLAKE3
        return None, made + "; the words of reasons, and whether these are the checks of the " \
            "spec's text, only ktsu judges"
