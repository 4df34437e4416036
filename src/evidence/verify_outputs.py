"""The part of verify.py that judges outputs: an agent's against the reply of its model, a step's
against what its agent gave or its webhook was answered with. What expressions make of them (the
outputs of transforms, of children and of runs) only ktsu makes again. It is used by verify.py and
does nothing by itself."""
import json
import re

from verify import BROKEN, Real, Wrong, check, load, whole, work_of, wrong_if

HIDDEN, FENCE, MAX_DEPTH = "[REDACTED]", "`" * 3, 56
SPACE = " \t\n\v\f\r\x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" \
    + "".join(map(chr, range(0x2000, 0x200b)))
LANGUAGE = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+."
KINDS = ("run.created", "recompute.created", "branch.created", "step.started", "step.reset",
         "llm.request", "llm.response", "agent.decided", "agent.finished", "webhook.delivered",
         "webhook.failed", "note", "command.requested", "step.completed", "item.completed",
         "command.completed", "run.started", "run.completed")
CHILD = re.compile(r"(?:(.*)/)?([^/.]+)(?:[.]([0-9]+))?/([^/.]+)[.]([0-9]+)\Z")  # STEP.ITEM/NAME.N
COMMANDS_SINCE = 4  # Decision rules.

def once(pairs):
    made = dict(pairs)
    check(len(made) == len(pairs))
    return made

def depth(value):
    inner = value.values() if isinstance(value, dict) else value
    return 1 + max(map(depth, inner), default=0) if isinstance(value, (dict, list)) else 0

def spoken(text):
    """The object that a reply is, alone or within one fence; None if it is none, or one that could
    be read in two ways."""
    text = text.strip(SPACE)
    if text.startswith(FENCE):
        text = text[3:-3] if text[3:].endswith(FENCE) else text[3:]
        text = text.lstrip(LANGUAGE).strip(SPACE)
    try:
        made = json.loads(text, object_pairs_hook=once, parse_int=whole, parse_float=Real,
                          parse_constant=lambda _: check(False))
        json.dumps(made, ensure_ascii=False).encode("utf-8")
        return made if isinstance(made, dict) and depth(made) <= MAX_DEPTH else None
    except BROKEN: return None

def alike(one, other):
    """Whether two values are one, however their numbers are written."""
    if isinstance(one, dict) and isinstance(other, dict):
        return set(one) == set(other) and all(alike(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(alike, one, other))
    numbers = all(type(value) in (int, Real) for value in (one, other))
    return one == other if numbers else type(one) is type(other) and one == other

def hidden(*values): return any(HIDDEN in json.dumps(value) for value in values)

class Step:
    """What is known of a step since it began: the replies to each of its tasks, what their agents
    gave, which of their events and commands have frames, and how its webhook was answered."""
    def __init__(self):
        self.replies, self.given, self.answer = {}, {}, None
        self.told = {}  # By item and member of the outcome.
        self.runs = {}  # By item.

class Runs:
    """The commands of an outcome that run workflows: their frame, place, name and number of
    inputs; and the children that have begun, each with the frame in which it ended well."""
    def __init__(self): self.commands, self.children, self.done, self.before = [], [], 0, 0

    def current(self): return (self.commands + [(None, None, None, 0)] * 2)[self.done]

class Told:
    """A run from its beginning, with all that it shares; only its own frames are judged."""
    def __init__(self, evidence, stream, last, found):
        self.evidence, self.found, self.steps, self.purposes = evidence, found, {}, {}
        self.definition, self.plan, self.rules = None, None, 0
        for seq in range(last + 1):
            frame = evidence.shared(stream, seq)
            wrong_if(frame is None, "the frames of %s cannot be read" % stream)
            if frame.type not in KINDS: continue
            self.own = frame.stream == stream
            try: self.take(frame, frame.data)
            except BROKEN as error: raise Wrong("it cannot be read: %r" % error, frame.id)

    def member(self, frame, name):
        """A member of a frame, wherever it is kept."""
        apart = next((one["hash"] for one in frame.ext if one["path"] == "/" + name), None)
        if apart is None: return frame.data.get(name)
        blob = self.evidence.blob(apart)
        wrong_if(blob is None, "one of its blobs is missing or another", frame.id)
        return load(blob.decode("utf-8"))

    def blame(self, frame, condition, reason):
        if self.own and condition: raise Wrong(reason, frame.id)

    def unknown(self, frame, reason):
        if self.own: self.found.unknown.append("%s: %s" % (frame.id, reason))

    def take(self, frame, data):
        kind = frame.type
        if kind in ("run.created", "recompute.created", "branch.created"):
            self.rules = data.get("rules", self.rules)
            if data.get("digest") is not None: self.definition, self.plan = frame, None
            if kind != "branch.created" or data.get("digest") or data.get("restarts"):
                self.steps = {}
        elif kind == "run.started": self.on_child(frame, data, *self.runs_of(frame))
        elif kind == "run.completed":
            runs, child, _ = self.runs_of(frame)
            if runs and int(child[5]) < len(runs.children): runs.children[int(child[5])] = frame.seq
            self.found.made += self.own and data.get("output") is not None
        elif kind in ("step.started", "step.reset"): self.steps[frame.scope, data["step"]] = Step()
        elif kind in ("note", "command.requested") and "step" not in data: return  # Of a world.
        else:
            step = self.steps.setdefault((frame.scope, data["step"]), Step())
            getattr(self, "on_" + kind.replace(".", "_"))(frame, data, step, data.get("item"))

    # ---- What agents gave ------------------------------------------------------------------------
    def on_llm_request(self, frame, data, *_):
        self.purposes[frame.seq] = data.get("purpose") or "turn"

    def on_llm_response(self, frame, data, step, item):
        """Whoever was asked to repair or to reflect may call nothing."""
        turn = self.purposes.get(data["request"], "turn") == "turn"
        if data.get("error") is None and not (turn and self.member(frame, "tool_calls")):
            if data.get("repeats") is not None:
                earlier = 0 <= data["repeats"] < frame.seq
                frame = self.evidence.shared(frame.stream, data["repeats"]) if earlier else None
            content = frame and self.member(frame, "content")
            text = content if isinstance(content, str) else json.dumps(content)
            step.replies.setdefault(item, []).append(text)

    def follows(self, frame, step, item, value, what):
        """Whether a value is the object that the last reply is."""
        replies = step.replies.get(item)
        if not replies: return self.unknown(frame, "its runtime told of no reply")
        said = spoken(replies[-1])
        if said is not None and alike(said, value): self.found.held += self.own
        elif said is None or hidden(replies[-1], value):
            self.unknown(frame, "its reply, as it is recorded, is not such an object")
        else: self.blame(frame, True, "its %s is not what its model replied" % what)

    def on_agent_decided(self, frame, data, step, item):
        draft = self.member(frame, "draft")
        if draft is not None: self.follows(frame, step, item, draft, "draft")

    def on_agent_finished(self, frame, data, step, item):
        outcome = self.member(frame, "outcome") or {}
        output = outcome.get("output")
        step.given[item] = frame.seq, output, outcome
        step.told[item, "events"] = step.told[item, "commands"] = 0
        step.runs[item] = Runs()
        if output is not None: self.follows(frame, step, item, output, "output")

    def tells(self, frame, data, step, item, member, place):
        """Whether a frame is of the next event or command of the outcome, and in its words."""
        seq, _, outcome = step.given.get(item, (None, None, {}))
        at, all_ = step.told.get((item, member), 0), outcome.get(member) or []
        right = place == {"frame": seq, "path": "/outcome/%s/%d" % (member, at)}
        right = right and data.get("index") == at < len(all_) and self.rules >= COMMANDS_SINCE
        right = right and all_[at].get("type") == data["type"]
        right = right and (member == "events" or all_[at].get("topic") == data.get("topic"))
        right = right and (member == "events" or all_[at].get("step") == data.get("target"))
        self.blame(frame, not right, "it is not the next of the %s that its agent gave" % member)
        step.told[item, member] = at + 1

    def on_note(self, frame, data, step, item):
        self.tells(frame, data, step, item, "events", data["event"])

    def on_command_requested(self, frame, data, step, item):
        self.tells(frame, data, step, item, "commands", data["command"])
        if data["type"] not in ("invoke", "fanout") or data.get("suppressed"): return
        declared = self.may_invoke(frame, frame.scope, data["step"])
        words = "its step does not declare the workflow that it runs"
        self.blame(frame, data["target"] not in declared, words)
        given = step.given[item][2]["commands"][data["index"]]
        count = len(given["inputs"]) if data["type"] == "fanout" else 1
        step.runs[item].commands.append((frame.seq, data["index"], data["target"], count))

    # ---- What commands run -----------------------------------------------------------------------
    def may_invoke(self, frame, scope, name):
        work = self.work(frame, name, scope)
        return work.get("agent", {}).get("may_invoke", {})

    def runs_of(self, frame):
        """The task whose command runs a scope, if one does."""
        child = CHILD.match(frame.scope)
        if child is None or child[2][0] == "@": return None, None, None
        step = self.steps.setdefault((child[1] or "", child[2]), Step())
        item = child[3] and int(child[3])
        return step.runs.setdefault(item, Runs()), child, step.given.get(item)

    def on_child(self, frame, data, runs, child, given):
        """Whether a child is the next one of a command, with the next input."""
        if runs is None: return
        _, index, target, count = runs.current()
        within = len(runs.children) - runs.before
        right = given is not None and within < count and target == child[4]
        right = right and len(runs.children) == int(child[5])
        if right:
            declared = self.may_invoke(frame, child[1] or "", child[2]).get(target, {})
            right = declared.get("child", {}).get("workflow") == data.get("plan")
            command = given[2]["commands"][index]
            place = "/inputs/%d" % within if command["type"] == "fanout" else "/input"
            value = command["inputs"][within] if command["type"] == "fanout" else command["input"]
            place = "/outcome/commands/%d%s" % (index, place)
            got = self.member(frame, "input") or {}
            names = {"/params/" + name.replace("~", "~0").replace("/", "~1") for name in value}
            right = right and names <= set(got) and all(
                one.get("ref") == {"frame": given[0], "path": place + name[len("/params"):]}
                if "ref" in one else "value" in one for name, one in got.items())
        self.blame(frame, not right, "no command runs it next, with this input")
        runs.children.append(None)

    def on_command_completed(self, frame, data, step, item):
        runs = step.runs.get(item, Runs())
        seq, index, _, count = runs.current()
        ends = runs.children[runs.before:]
        right = seq is not None and (seq, index) == (data["request"], data["index"])
        right = right and ends == (data.get("children") or []) and len(ends) == count
        self.blame(frame, not right, "it does not name the ends of what its command runs")
        runs.done, runs.before = runs.done + 1, runs.before + count

    def has_told(self, frame, step, item):
        """Whether every event and command of an outcome that counts has its frame."""
        outcome = step.given.get(item, (None, None, {}))[2]
        for member in ("events", "commands"):
            left = step.told.get((item, member), 0) != len(outcome.get(member) or [])
            words = "some of the events or commands that its agent gave have no frame"
            self.blame(frame, left and self.rules >= COMMANDS_SINCE, words)
        runs = step.runs.get(item, Runs())
        words = "some of what its commands run has not ended"
        self.blame(frame, runs.done != len(runs.commands), words)

    # ---- What steps gave -------------------------------------------------------------------------
    def on_webhook_delivered(self, frame, data, step, _):
        if data.get("approval") is None: step.answer = data.get("status")

    on_webhook_failed = on_webhook_delivered

    def work(self, frame, name, scope=None):
        """The work of a step, as the definition has it."""
        if self.definition is None: return {}
        if self.plan is None: self.plan = self.member(self.definition, "definition")
        try: return work_of(self.plan, frame.scope if scope is None else scope, name)
        except (KeyError, TypeError): return {}

    def on_step_completed(self, frame, data, step, _):
        work = self.work(frame, data["step"])
        if "agent" in work and work["agent"].get("for_each") is None:
            self.on_item_completed(frame, data, step, None)
        elif "webhook" in work:
            given = {"sent": True, "status_code": step.answer}
            right = alike(self.member(frame, "output"), given)
            self.blame(frame, not right, "its output is not what its webhook was answered with")
            self.found.held += self.own
        elif "agent" not in work: self.found.made += self.own

    def on_item_completed(self, frame, data, step, item):
        self.has_told(frame, step, item)
        if data.get("skipped") is not None: return
        seq, output, _ = step.given.get(item, (None, None, None))
        named = data.get("output_from") or {}
        right = isinstance(output, dict) and named.get("frame") == seq
        right = right and named.get("path") == "/outcome/output"
        right = right and self.member(frame, "output") is None
        self.blame(frame, not right, "its output is not the one that its agent gave")
        stripped = sorted(name for name in output or {} if name.startswith("ktsu_"))
        right = sorted(data.get("stripped") or []) == stripped
        self.blame(frame, not right, "what it leaves out is not what is reserved")
        self.found.held += self.own

class Outputs:
    """The outputs in an archive: how many hold, how many expressions made, and of which nothing
    can be said."""
    def __init__(self, evidence): self.evidence = evidence

    def claim_outputs(self):
        last = {one.stream: one.seq for one in self.evidence.frames}
        self.held, self.made, self.unknown = 0, 0, []
        for stream in sorted(last):
            if stream.split(":")[0] in ("run", "branch", "recompute"):
                Told(self.evidence, stream, last[stream], self)
        if self.unknown: return None, self.unknown[0]
        told = "%d outputs are what replies and answers give" % self.held
        if self.made: return None, "%s; %d more were made by expressions, which only ktsu " \
            "evaluates" % (told, self.made)
        return told
