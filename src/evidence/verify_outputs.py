"""The part of verify.py that judges outputs: an agent's against the reply of its model, a step's
against what its agent gave or its webhook was answered with. What expressions make of them (the
outputs of transforms, of children and of runs) only ktsu makes again. It is used by verify.py and
does nothing by itself."""
import json

from verify import BROKEN, Real, Wrong, check, count, load, part, whole, work_of, wrong_if

COMMANDS = part("verify_commands.py")
MISSING = COMMANDS if isinstance(COMMANDS, str) else COMMANDS.MISSING
if not MISSING: alike, hidden = COMMANDS.alike, COMMANDS.hidden

FENCE, MAX_DEPTH, SPENT = "`" * 3, 56, "budget_exceeded"
SPACE = " \t\n\v\f\r\x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" \
    + "".join(map(chr, range(0x2000, 0x200b)))
LANGUAGE = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+."
KINDS = ("run.created", "recompute.created", "branch.created", "step.started", "step.reset",
         "llm.request", "llm.response", "agent.decided", "agent.finished", "webhook.delivered",
         "webhook.failed", "note", "command.requested", "step.completed", "item.completed",
         "command.completed", "run.started", "run.completed", "tool.called", "tool.in_doubt",
         "tool.returned", "budget.exhausted", "command.deferred", "command.discarded",
         "review.requested", "review.decided", "timer.fired", "overlay.set", "step.failed",
         "item.started", "run.failed", "run.resumed", "suspend.requested", "suspend.resumed",
         "step.skipped", "webhook.sent")
ABOUT_STEPS = "note", "command.requested", "budget.exhausted"  # Or about worlds.

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

class Step:
    """What is known of a step since it began: the replies to each of its tasks, what their agents
    gave, what they command, which ran out of their budget, and how its webhook was answered."""
    def __init__(self):
        self.replies, self.given, self.answer, self.failed = {}, {}, None, None
        self.tasks, self.spent = {}, set()  # By item.
        self.ended, self.reset = False, None  # Failed or skipped; where it was to begin again.

class OutputCheck(object if MISSING else COMMANDS.Commands):
    """A run from its beginning, with all that it shares; only its own frames are judged."""
    def __init__(self, evidence, stream, last, found):
        self.evidence, self.found, self.steps, self.purposes = evidence, found, {}, {}
        self.definition, self.plan, self.rules = None, None, 0
        self.begin_commands(stream)
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

    def step_of(self, scope, name): return self.steps.setdefault((scope, name), Step())

    def take(self, frame, data):
        kind = frame.type
        if kind in ("run.created", "recompute.created", "branch.created"):
            self.rules = data.get("rules", self.rules)
            if kind != "recompute.created": self.suppresses = data.get("effects") == "suppress"
            # Services of an eval are there for the run, and not for its branches.
            of_run = data.get("references") if kind == "run.created" else None
            of_run = of_run if isinstance(of_run, list) else []
            self.services = set("{{ %s }}" % name for name in of_run)
            if data.get("digest") is not None: self.definition, self.plan = frame, None
            if kind != "branch.created" or data.get("digest") or data.get("restarts"):
                self.steps, self.blurred = {}, self.blurred or kind == "branch.created"
            self.ask_again()
            self.begun_again = frame.seq
            return
        if kind == "timer.fired" and data["timer"] not in ("review", "suspend"): return
        if kind == "run.resumed":
            self.begun_again = frame.seq
            return
        if kind in ABOUT_STEPS and "step" not in data: return
        if kind in ("step.started", "step.reset"):
            self.begins_again(frame, data)
            self.steps[frame.scope, data["step"]] = step = Step()
            if kind == "step.reset": step.reset = frame.seq
            self.reviewed.begin_step((frame.scope, data["step"]))
            if kind == "step.started": self.takes(frame)
            return self.step_begins(frame.scope, data["step"])
        judge = getattr(self, "on_" + kind.replace(".", "_"))
        if kind.startswith("run."): judge(frame, data)
        else: judge(frame, data, self.step_of(frame.scope, data["step"]), data.get("item"))

    # ---- What agents gave ------------------------------------------------------------------------
    def on_llm_request(self, frame, data, *_):
        self.purposes[frame.seq] = data.get("purpose") or "turn"

    def on_llm_response(self, frame, data, step, item):
        """Whoever was asked to repair or to reflect may call nothing."""
        turn = self.purposes.get(data["request"], "turn") == "turn"
        calls = self.member(frame, "tool_calls")
        self.task(step, item).reply = frame.seq, calls or []
        if (data.get("error") or {}).get("code") == SPENT: step.spent.add(item)
        if data.get("error") is None and not (turn and calls):
            if data.get("repeats") is not None:
                earlier = 0 <= data["repeats"] < frame.seq
                frame = self.evidence.shared(frame.stream, data["repeats"]) if earlier else None
            content = frame and self.member(frame, "content")
            text = content if isinstance(content, str) else json.dumps(content)
            step.replies.setdefault(item, []).append(text)

    def follows(self, frame, step, item, value, what):
        """Whether a value is the object that the last reply is."""
        replies = step.replies.get(item)
        if not replies: return self.unknown(frame, "its runtime reported no reply")
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
        step.given[item] = frame.seq, output
        self.judge_commands(frame, data, step, item, outcome)
        if output is not None: self.follows(frame, step, item, output, "output")
        spent = data.get("reason") == SPENT or (outcome.get("error") or {}).get("code") == SPENT
        unsaid = spent and data.get("report") and item not in step.spent
        self.blame(frame, unsaid, "nothing says that its budget was used up")

    def on_budget_exhausted(self, frame, data, step, item): step.spent.add(item)

    # ---- What steps gave -------------------------------------------------------------------------
    def on_webhook_delivered(self, frame, data, step, _):
        if data.get("approval") is None: step.answer = data.get("status")

    on_webhook_failed = on_webhook_delivered

    def work(self, frame, name, scope=None):
        """The work of a step, or of the one that it was resumed to, as the definition has it."""
        plan, scope = self.plan_of(frame), frame.scope if scope is None else scope
        try: return work_of(plan, scope, self.acting.get((scope, name), name))
        except (KeyError, TypeError): return {}

    def plan_of(self, frame):
        """The definition that holds at a frame."""
        if self.definition is None: return None
        if self.plan is None: self.plan = self.member(self.definition, "definition")
        return self.plan

    def on_step_completed(self, frame, data, step, _):
        self.step_ended(frame, data)
        work = self.work(frame, data["step"])
        if "agent" in work and work["agent"].get("for_each") is None:
            self.on_item_completed(frame, data, step, None)
            self.completed_reviewed(frame, data, step)
        elif "webhook" in work:
            given = {"sent": True, "status_code": step.answer}
            right = alike(self.member(frame, "output"), given)
            self.blame(frame, not right, "its output is not what its webhook was answered with")
            self.found.held += self.own
        elif "agent" not in work: self.found.made += self.own

    def on_item_started(self, frame, *_): self.takes(frame)

    def on_item_completed(self, frame, data, step, item):
        self.has_recorded_all(frame, data, step, item)
        if data.get("skipped") is not None: return
        seq, output = step.given.get(item, (None, None))
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
        if MISSING: return None, MISSING
        last = {one.stream: one.seq for one in self.evidence.frames}
        self.held, self.made, self.unknown = 0, 0, []
        for stream in sorted(last):
            if stream.split(":")[0] in ("run", "branch", "recompute"):
                OutputCheck(self.evidence, stream, last[stream], self)
        if self.unknown: return None, self.unknown[0]
        words = "matching replies and responses: " + count(self.held, "output")
        if self.made: return None, "%s; computed by expressions, which only ktsu evaluates: %d" \
            % (words, self.made)
        return words
