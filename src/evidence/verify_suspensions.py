"""The part of verify.py that judges suspensions: whether a step whose outcome asks for data waits
for them and has no output, whether the data were given as its definition allows, and whether the
next attempt is given these and no others. It is used by verify_reviews.py and does nothing by
itself.

    command.requested {suspend}, command.discarded, note, suspend.requested   the step waits
    suspend.resumed          step.reset, step.started: the step runs again
    timer.fired {suspend}    step.failed {suspend_timed_out}
"""
import re

from verify import Wrong, check, is_number, part, steps_of

VALUES = part("verify_values.py")
TIMED_OUT = "suspend_timed_out"
CHECKPOINT = re.compile(r"/outcome/commands/([0-9]+)/checkpoint(/|\Z)")
MENTION = re.compile(r"\{\{ *resume((?:[.][A-Za-z_][A-Za-z0-9_]*)*) *\}\}\Z")
STRAY = "it takes the data or the checkpoint of another suspension"
ELSEWHERE = "it does not run by the step that it was resumed to"
OTHER = "it is not the data or the checkpoint that its step was given"
COUNTS = "its outcome asks for data, and does not count"
FATAL = ("ktsu_injection_attempt", "ktsu_untrusted_content", "ktsu_low_quality",
         "ktsu_needs_human")
SHAPES = {
    "suspend.requested": ({"attempt": int, "command": int, "step": str}, {"policy": dict}),
    "suspend.resumed": ({"attempt": int, "by": dict, "request": int, "step": str},
                        {"reason": str}),
}

def narrowed(declared, resume):
    """Who gives the data, which, and how long the step waits: what the step says, and otherwise its
    agent."""
    policy = dict(declared)
    for name in ("roles", "schema", "timeout_ms"):
        if resume.get(name) not in (None, []): policy[name] = resume[name]
    return policy

def same(one, other):
    """Whether two values are written alike."""
    if isinstance(one, dict) and isinstance(other, dict):
        return set(one) == set(other) and all(same(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and one == other

def may_resume_to(plan, scope, name, other):
    """Whether a step may be resumed to another: to one that runs only then, and needs no more."""
    try:
        steps = steps_of(plan, scope)
        own, needs = (set(steps[one].get("needs") or []) for one in (name, other))
        return bool(steps[other]["work"]["agent"].get("on_resume")) and needs <= own
    except (KeyError, TypeError): return False

def mentions(template, at):
    """The places of a template that are nothing but a mention of `resume` or of a member of it,
    each with the names on the way to that."""
    if isinstance(template, dict):
        for name, inner in template.items():
            yield from mentions(inner, at + "/" + name.replace("~", "~0").replace("/", "~1"))
    elif isinstance(template, list):
        for place, inner in enumerate(template): yield from mentions(inner, "%s/%d" % (at, place))
    elif isinstance(template, str) and MENTION.match(template):
        yield at, MENTION.match(template)[1].split(".")[1:]

def ended_by_field(output, threshold):
    """Whether a reserved field ends the step of an output, whatever else its outcome asks for."""
    if not isinstance(output, dict): return False
    fatal = [output.get(name) for name in FATAL]
    if any(one is not None and one is not False for one in fatal): return True
    sure = output.get("ktsu_confidence")
    sure = sure if is_real(sure) and 0 <= sure <= 1 else 0
    if threshold is not None and sure < threshold / 1000000: return True
    words = output.get("ktsu_skip_reason")
    return isinstance(words, str) and words != ""

def is_real(value): return isinstance(value, (int, float)) and not isinstance(value, bool)

class Suspension:
    """What data an outcome asks for: by which command, in which place, with which others beside it.
    `state` is due, pending, resumed or timeout; `last` the frame with the data, or the end."""
    def __init__(self, command, index, siblings):
        self.command, self.index, self.siblings, self.discarded = command, index, siblings, False
        self.state, self.request, self.until, self.last, self.data = "due", None, None, None, None

    def asks(self): return self.state == "due" and (self.discarded or not self.siblings)
    def may_ask(self, data): return self.asks() and data["command"] == self.command
    def may_discard(self, data):
        right = self.state == "due" and not self.discarded and bool(self.siblings)
        return right and data["decision"] == self.command and data["indexes"] == self.siblings

    def ask(self, seq, policy=None, until=None):
        self.state, self.request, self.policy, self.until = "pending", seq, policy, until

    def open(self, request): return self.state == "pending" and self.request == request
    def resume(self, seq, data): self.state, self.last, self.data = "resumed", seq, data
    def end(self, seq):
        if self.state == "pending": self.state, self.last = "timeout", seq

    def ask_again(self):
        if self.state == "pending": self.state = "due"

class Givers:
    """Who gave data, for the claim about approvals. What this cannot say is kept as `unclear`."""
    def place(self, frame, data): return frame.scope, data.get("step"), "suspend"

    def command_suspension(self, frame, data):
        if not data.get("suppressed") and data.get("item") is None:
            self.reviews[self.place(frame, data)] = Suspension(frame.seq, None, [])

    def policy_of_suspension(self, frame, data):
        try:
            work = self.work_at(frame, data)["agent"]
            declared = self.plan["agents"][work["file"]]["commands"]["suspend"]
            return declared and narrowed(declared, work.get("resume") or {})
        except (KeyError, TypeError): return None

    def on_suspend_requested(self, frame, data):
        asked, policy = self.reviews.get(self.place(frame, data)), self.member(frame, "policy")
        check(isinstance(policy, dict) and is_number(policy["timeout_ms"]))
        right = known = same(self.policy_of_suspension(frame, data), policy)
        words = "its definition says otherwise who gives the data, or which"
        self.blame("approvals", not right, words)
        right = asked is not None and asked.may_ask(data)
        self.blame("approvals", not right, "no command asks for data now")
        if asked is None: return
        # Nothing is said of data under another policy.
        policy = policy if known else dict(policy, schema=None)
        asked.ask(frame.seq, policy, self.moment(frame) + policy["timeout_ms"] * 1000)

    def on_suspend_resumed(self, frame, data):
        asked, by = self.reviews.get(self.place(frame, data)), data["by"]["id"]
        self.decided.append(frame.id)
        if data["by"]["auth"] == "none": self.unknown.append(frame.id)
        own = frame.actor == "principal:" + by
        words = "whoever gave the data is not the one who appended them"
        self.blame("approvals", not own, words)
        right = asked is not None and asked.open(data["request"])
        self.blame("approvals", not right, "its step does not wait for data")
        if not right: return
        late = self.late(asked, frame)
        self.blame("approvals", late, "it came when the time to give data was over")
        asked.resume(frame.seq, None)
        wrong = not self.allowed_data(asked.policy.get("schema"), frame)
        self.blame("approvals", wrong, "the data are not what its step allows")

    def allowed_data(self, schema, frame):
        """Whether data are what a schema allows, as far as that can be said."""
        if schema is None: return True
        if isinstance(VALUES, str): self.unclear.append("%s: %s" % (frame.id, VALUES))
        else:
            try: return VALUES.fits(self.member(frame, "data"), schema)
            except VALUES.Unknown as why: self.unclear.append("%s: %s" % (frame.id, why))
        return True

    def end_suspension(self, frame, data):
        asked = self.reviews.get(self.place(frame, data))
        over = asked is not None and asked.state == "pending" and self.late(asked, frame)
        self.blame("approvals", not over, "no wait was over")
        if asked is not None: asked.end(frame.seq)

class Given:
    """What a step was given when it began again, in which frame that was, where each part of it
    is recorded, and to which other step it was resumed, if to one."""
    def __init__(self, since, finished, index, command, resumed, data):
        self.step, checkpoint = command.get("resumeStep"), command.get("checkpoint")
        self.since, self.finished, self.index, self.resumed = since, finished, index, resumed
        self.parts = {"checkpoint": checkpoint, "data": data}

    def place(self, names):
        if names[:1] == ["data"]: return {"frame": self.resumed, "path": "/" + "/".join(names)}
        path = "/outcome/commands/%d/%s" % (self.index, "/".join(names))
        return {"frame": self.finished, "path": path} if names[:1] == ["checkpoint"] else None

class Waits:
    """Which steps wait for data, and with which they begin again, for the claim about outputs."""
    def begin_suspensions(self):
        self.given, self.data_of = {}, {}  # By step; by the frame that has the data.
        self.acting = {}  # By step: the other by which it runs.
        self.begun_again, self.blurred, self.has_suspended = 0, False, False

    def command_suspension(self, frame, data, task, work):
        agent = work["agent"]
        declared = self.plan["agents"][agent["file"]].get("commands") or {}
        # A recompute, which asks no one, has its tasks in fan-outs.
        item = data.get("item") is not None and not data.get("suppressed")
        within = item or "@" in (frame.scope[:1], data["step"][:1])
        words = "its agent does not declare that it suspends its step, or must not"
        self.blame(frame, declared.get("suspend") is None or within, words)
        threshold = agent.get("confidence_threshold_millionths")
        ends = ended_by_field(task.outcome.get("output"), threshold)
        ends = ends or task.outcome.get("error") is not None
        words = "a reserved field or an error of the outcome ends its step first"
        self.blame(frame, ends, words)
        other = task.listed("commands")[data["index"]].get("resumeStep")
        right = other is None or may_resume_to(self.plan, frame.scope, data["step"], other)
        words = "its step cannot be resumed to the one that it names"
        self.blame(frame, not right, words)
        if data.get("suppressed"): return
        others = [at for at in range(len(task.listed("commands"))) if at != data["index"]]
        task.suspension, self.has_suspended = Suspension(frame.seq, data["index"], others), True

    def suspension_of(self, step): return self.task(step, None).suspension

    def changed_suspension(self, frame, data, step, right, words):
        self.origin(frame, data, step)
        self.blame(frame, not right, words)

    def on_suspend_requested(self, frame, data, step, _):
        task = self.task(step, None)
        left = task.suspension is not None and task.notes != len(task.all("events"))
        self.blame(frame, left, "some of the events that its agent gave have no frame")
        right = task.suspension is not None and task.suspension.may_ask(data)
        self.changed_suspension(frame, data, step, right, "no command asks for data now")
        if task.suspension is not None: task.suspension.ask(frame.seq)

    def on_suspend_resumed(self, frame, data, step, _):
        self.data_of[frame.seq] = frame.scope, data["step"]
        asked = self.suspension_of(step)
        right = asked is not None and asked.open(data["request"])
        if right: asked.resume(frame.seq, self.member(frame, "data"))
        self.changed_suspension(frame, data, step, right, "its step does not wait for data")

    def end_suspension(self, frame, data, step):
        asked = self.suspension_of(step)
        right = asked is not None and asked.state == "pending"
        if right: asked.end(frame.seq)
        self.changed_suspension(frame, data, step, right, "its step does not wait for data")

    def on_step_skipped(self, frame, data, step, _):
        step.ended = True
        self.skipped_webhook(frame, data)
        waits = data.get("reason") == "agent_skipped" and self.suspension_of(step) is not None
        self.blame(frame, waits, COUNTS)

    def failed_suspended(self, frame, data, step, given):
        """A step fails because its data did not come only where they did not."""
        step.ended, asked = True, self.suspension_of(step)
        claims = data["code"] == TIMED_OUT and "agent" in self.work(frame, data["step"])
        right = given or asked is not None and asked.state == "timeout"
        self.blame(frame, claims and not right, "the time to give its data was not over")

    def begins_again(self, frame, data):
        """A step begins again, or is about to: once its data are there, or where it has ended and a
        person wants it."""
        step, resets = self.step_of(frame.scope, data["step"]), frame.type == "step.reset"
        task = self.task(step, None)
        asked = task.suspension
        has_data = asked is not None and asked.state == "resumed"
        right = asked is None or resets and (step.ended or has_data and frame.cause == [asked.last])
        self.blame(frame, not right, "it begins again without the data that its step waits for")
        twice = resets and not step.ended and step.reset is not None
        twice = twice and step.reset >= self.begun_again
        self.blame(frame, twice, "it has not begun since")
        if resets and has_data and not step.ended: self.origin(frame, data, step)
        if not resets or not self.has_suspended: return
        if has_data and not step.ended:  # What ended a step discarded the data that had come.
            command = task.all("commands")[asked.index]
            self.given[frame.scope, data["step"]] = Given(
                frame.seq, task.seq, asked.index, command, asked.last, asked.data)
        if frame.scope == "": self.lose_data(frame, data["step"])

    def lose_data(self, frame, name):
        """Steps that need one that begins again lose what they had."""
        plan = self.plan_of(frame)
        steps = plan["workflows"][plan["root"]]["steps"] if plan else []
        needs = {one["id"]: [steps[at]["id"] for at in one.get("needs") or []] for one in steps}
        self.given = {
            (scope, one): given for (scope, one), given in self.given.items()
            if scope or given.since >= self.begun_again or name not in needs.get(one, [])}

    def begin_child_suspensions(self, scope):
        def stays(at): return at != scope and not at.startswith(scope + "/")
        self.given = {one: given for one, given in self.given.items() if stays(one[0])}
        self.acting = {one: other for one, other in self.acting.items() if stays(one[0])}

    def starts(self, frame, owner, named):
        """Whether a step runs by the one that it was resumed to, or by itself."""
        def may(other):
            return other and may_resume_to(self.plan_of(frame), frame.scope, owner[1], other)
        given = self.given.get(owner)
        given = given.step if given is not None and may(given.step) else None
        wrong = named is not None and not may(named) if self.blurred else given != named
        self.acting[owner] = named
        if named is None: del self.acting[owner]
        self.blame(frame, wrong, ELSEWHERE)

    def has_data(self, owner, seq):
        current = owner in self.given and self.given[owner].resumed == seq
        return self.data_of[seq] == owner and (current or self.blurred)

    def takes_own(self, owner, value):
        """Whether an input is of no suspension, or of that of its step."""
        if value.get("ref") is None:
            sources = (value.get("value") or {}).get("from")
            sources = sources if isinstance(sources, list) else []
            return all(self.has_data(owner, seq) for seq in sources if seq in self.data_of)
        place, path = value["ref"], value["ref"]["path"]
        if place["frame"] in self.data_of:
            within = path == "/data" or path.startswith("/data/")
            return within and self.has_data(owner, place["frame"])
        found = CHECKPOINT.match(path)
        if found is None or self.blurred: return True
        given = self.given.get(owner)
        place_of = place["frame"], int(found[1])
        return given is not None and (given.finished, given.index) == place_of

    def takes_data(self, frame):
        """Whether the inputs that a frame has are of no suspension, or of that of its step."""
        owner, begins = (frame.scope, frame.data.get("step")), frame.type == "step.started"
        if begins: self.starts(frame, owner, frame.data.get("resume_step"))
        read = self.member if self.has_suspended else lambda one, name: one.data.get(name)
        inputs = read(frame, "input") or {}
        for value in inputs.values():
            self.blame(frame, not self.takes_own(owner if begins else None, value), STRAY)
        if not begins or not inputs or self.blurred: return
        try: agent = self.work(frame, frame.data["step"]).get("agent")
        except Wrong: return  # Its definition is missing, which is judged elsewhere.
        if not agent or agent.get("for_each") is not None: return
        given = self.given.get(owner)
        for at, names in mentions(agent.get("params"), "/params"):
            right = at not in inputs or self.is_mention(given, names, inputs[at])
            self.blame(frame, not right, OTHER)

    def is_mention(self, given, names, value):
        """Whether an input is what a mention of a member gives: null where there is none."""
        if value.get("ref") is not None:
            return given is not None and given.place(names) == value["ref"]
        right = given.parts if given else {"checkpoint": None, "data": None}
        for name in names: right = right.get(name) if isinstance(right, dict) else None
        checkpoint = value.get("value")
        return isinstance(checkpoint, dict) and same(checkpoint.get("value"), right)
