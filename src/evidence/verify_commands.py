"""The part of verify.py that judges commands, what an agent asks for besides its output: whether
the calls of its model gave them, its definition declares them, each has its frame, and what they
run begins with their inputs and ends as its steps say. It is used by verify_outputs.py and does
nothing by itself."""
import json, re

from verify import Real, part

VALUES, REVIEWS = part("verify_values.py"), part("verify_reviews.py")
MISSING = REVIEWS if isinstance(REVIEWS, str) else REVIEWS.MISSING
SERVER = "ktsu/commands"  # Each of its tools is a type of command.
RUNS = "invoke", "fanout"
PHASES = {"review": 0, "suspend": 0, "invoke": 1, "fanout": 1}  # Of the others: 2.
CHILD = re.compile(r"(?:(.*)/)?([^/.]+)(?:[.]([0-9]+))?/([^/.]+)[.]([0-9]+)\Z")  # STEP.ITEM/NAME.N
# Decision rules: commands are carried out; they have the order of the calls, and phases.
COMMANDS_SINCE, ORDER_SINCE = 4, 6
HIDDEN, MAX_DEPTH, MAX_LOOKS = "[REDACTED]", 100, 100000

class Unclear(Exception): """What this verifier cannot say."""

def alike(one, other):
    """Whether two values are one, however their numbers are written."""
    if isinstance(one, dict) and isinstance(other, dict):
        return set(one) == set(other) and all(alike(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(alike, one, other))
    numbers = all(type(value) in (int, Real) for value in (one, other))
    return one == other if numbers else type(one) is type(other) and one == other

def hidden(*values): return any(HIDDEN in json.dumps(value) for value in values)
def covers(pattern, name):
    return name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern
def copied(value): return json.loads(json.dumps(value), parse_float=Real)
def escaped(name): return name.replace("~", "~0").replace("/", "~1")

def unique(commands):
    """A command that is asked for twice counts once."""
    found = []
    for one in commands:
        if not any(alike(one, other) for other in found): found.append(one)
    return found

class Filling:
    """Fills in the defaults of a schema where a value leaves something out."""
    def __init__(self, document): self.document, self.looks = document, 0

    def fill(self, schema, value, depth=0):
        self.looks += 1
        if depth > MAX_DEPTH or self.looks > MAX_LOOKS: raise Unclear("a schema is too large")
        if not isinstance(schema, dict): return
        if "$ref" in schema: self.fill(self.target(schema["$ref"]), value, depth + 1)
        for one in schema.get("allOf") or []: self.fill(one, value, depth + 1)
        if isinstance(value, dict):
            for name, inner in (schema.get("properties") or {}).items():
                if name not in value and isinstance(inner, dict) and "default" in inner:
                    value[name] = copied(inner["default"])
                if name in value: self.fill(inner, value[name], depth + 1)
        elif isinstance(value, list):
            first, rest = schema.get("prefixItems") or [], schema.get("items")
            for at, one in enumerate(value):
                self.fill(first[at] if at < len(first) else rest, one, depth + 1)

    def target(self, reference):
        found = self.document if reference[:1] == "#" else None
        for name in reference[1:].split("/")[1:]:
            name = name.replace("~1", "/").replace("~0", "~")
            found = found.get(name) if isinstance(found, dict) else None
        return found

def phase_of(command):
    kind = command.get("type") if isinstance(command, dict) else None
    return PHASES.get(kind, 2) if isinstance(kind, str) else 2

class Commanded:
    """What the agent of a task commands: by calls of tools since the task began, and in its
    outcome; which events and commands of that have frames; and what the commands run: frame, place,
    name and number of inputs of each, and the frame with which each child ended well."""
    def __init__(self):
        self.reply, self.targets, self.called, self.asks = (None, []), {}, [], False
        self.end()

    def end(self, frame=None, attempt=None, outcome=None, phased=False):
        self.seq, self.attempt, self.outcome = frame and frame.seq, attempt, outcome or {}
        self.notes, self.commanded, self.phased = 0, 0, phased
        self.review = self.suspension = None
        # The phase and the place of each command, in the order of their frames; how many of these
        # frames are before the first child.
        self.order = [(phase_of(one), at) for at, one in enumerate(self.listed("commands"))]
        if phased: self.order.sort()
        self.first = sum(phase < 2 or not phased for phase, _ in self.order)
        self.commands, self.children, self.done, self.before = [], [], 0, 0

    def may_note(self):
        """Whether it is the turn of an event: before every command or, where commands have phases,
        after all children and before what is emitted, or before its step waits for data."""
        if self.suspension is not None: return self.suspension.asks()
        last = self.commanded == self.first and self.ran() and self.passed()
        return last if self.phased else self.commanded == 0

    def passed(self):
        """Whether people have approved the outcome, if it asks for that."""
        return self.review is None or self.review.state == "approved"

    def takes_turn(self, kind, at):
        """Takes a command; whether it is its turn: those of the first phases before any child
        begins, and the others after all children."""
        next_ = self.order[self.commanded:self.commanded + 1] == [(phase_of({"type": kind}), at)]
        begun = bool(self.done or self.children)
        phase = not begun if self.commanded < self.first else self.ran()
        self.commanded += 1
        return next_ and phase and self.passed() and self.suspension is None

    def all(self, member): return self.outcome.get(member) or []
    def listed(self, member):
        """As far as it is a list: what a step refuses may be anything."""
        return self.all(member) if isinstance(self.all(member), list) else []

    def current(self): return (self.commands + [(None, None, None, 0)] * 2)[self.done]
    def ran(self): return self.done == len(self.commands)

class Commands(object if MISSING else REVIEWS.Order):
    """What the frames of a run say of commands."""
    def begin_commands(self, stream):
        self.reviewed = REVIEWS.Reviewed()
        self.begin_suspensions()
        self.recomputes, self.suppresses = stream.startswith("recompute:"), False
        self.services = set()
        # By scope: whether webhooks are sent, the workflow, and where outputs of its steps are.
        self.sends, self.flows, self.ends = {"": True}, {}, {}

    def task(self, step, item): return step.tasks.setdefault(item, Commanded())

    # ---- What the calls of a model ask for -------------------------------------------------------
    def on_tool_called(self, frame, data, step, item):
        task = self.task(step, item)
        task.targets[frame.seq] = data["server"], data["tool"]
        task.asks = task.asks or data["server"] == SERVER

    def on_tool_in_doubt(self, frame, data, step, item):
        self.task(step, item).targets.pop(data["called"], None)

    def on_tool_returned(self, frame, data, step, item):
        """A call that was accepted is a command."""
        task = self.task(step, item)
        server, tool = task.targets.get(data.get("called"), (None, None))
        if server != SERVER or data.get("is_error") or data["response"] != task.reply[0]: return
        arguments = task.reply[1][data["call"]]["arguments"]
        place = frame.seq, data["response"], data["call"]
        if isinstance(arguments, dict): task.called.append((place, dict(arguments, type=tool)))

    def judge_commands(self, frame, data, step, item, outcome):
        """Whether an outcome has the commands that its calls asked for, in their order."""
        task, ordered = self.task(step, item), self.rules >= ORDER_SINCE
        task.end(frame, data["attempt"], outcome, ordered)
        given = outcome.get("commands") or []
        if outcome.get("output") is None or self.rules < COMMANDS_SINCE: return
        if not task.asks:
            if given: self.unknown(frame, "no call of a tool gave its commands")
            return
        # They have the order of their calls or, under earlier rules, perhaps of the results.
        asked = [unique([one for _, one in sorted(task.called, key=lambda one: one[0][at:])])
                 for at in ((1,) if ordered else (1, 0))]
        task.called, task.asks = [], False
        if any(alike(given, one) for one in asked): self.found.held += self.own
        elif hidden(given, asked): self.unknown(frame, "its commands hold what was redacted")
        else: self.blame(frame, True, "its commands are not those that its model called for")

    # ---- The frames of an outcome ----------------------------------------------------------------
    def on_note(self, frame, data, step, item):
        task = self.task(step, item)
        follows = data["index"] == task.notes and task.may_note()
        self.is_of(frame, data, task, "events", data["event"], follows)
        task.notes += 1

    def is_of(self, frame, data, task, member, place, follows):
        """Whether a frame is of an event or command of the outcome, in its words and its turn."""
        at, all_ = data["index"], task.all(member)
        right = follows and 0 <= at < len(all_) and self.rules >= COMMANDS_SINCE
        right = right and place == {"frame": task.seq, "path": "/outcome/%s/%d" % (member, at)}
        right = right and all_[at].get("type") == data["type"]
        right = right and (member == "events" or all_[at].get("topic") == data.get("topic"))
        right = right and (member == "events" or all_[at].get("step") == data.get("target"))
        self.blame(frame, not right, "it is not the next of the %s that its agent gave" % member)
        self.blame(frame, data["attempt"] != task.attempt, "it is of another attempt")
        self.blame(frame, frame.actor != "orchestrator", "it was appended by another actor")

    def on_command_requested(self, frame, data, step, item):
        task, runs, at = self.task(step, item), data["type"] in RUNS, data["index"]
        follows = task.takes_turn(data["type"], at)
        self.is_of(frame, data, task, "commands", data["command"], follows)
        work = self.work(frame, data["step"])
        if "agent" not in work: return self.blame(frame, True, "no agent works on its step")
        if data["type"] in ("review", "suspend"):
            self.suppressed_or_not(frame, data, self.recomputes)
            if data["type"] == "suspend": return self.command_suspension(frame, data, task, work)
            return self.command_review(frame, data, task, work)
        declared = self.plan["agents"][work["agent"]["file"]].get("commands") or {}
        listed = ",".join(declared.get("invoke" if runs else "emit", [])).split(",")
        name = data["target"] if runs else data["topic"]
        words = "its agent does not declare the command"
        self.blame(frame, not any(covers(one, name) for one in listed), words)
        self.suppressed_or_not(frame, data, self.recomputes or not runs and self.is_quiet(frame))
        if not runs or data.get("suppressed"): return
        offered = work["agent"].get("may_invoke", {}).get(name)
        words = "its step does not declare the workflow that it runs"
        self.blame(frame, offered is None, words)
        given = task.all("commands")[at]
        count = len(given["inputs"]) if data["type"] == "fanout" else 1
        words = "it has more inputs than its step allows"
        self.blame(frame, offered and count > offered["max_items"], words)
        task.commands.append((frame.seq, at, name, count))

    def is_quiet(self, frame):
        """Whether nothing is sent to the outside: by the run, the branch, or the child."""
        return self.suppresses or not self.sends.get(frame.scope)

    def on_webhook_sent(self, frame, data, *_):
        to_service = self.sends.get(frame.scope) and data["target"] in self.services
        silent = self.is_quiet(frame) and not to_service
        self.blame(frame, silent, "nothing is to be sent here")

    def skipped_webhook(self, frame, data):
        """A webhook is held back only where nothing is sent."""
        held = data.get("reason") == "webhooks_suppressed"
        self.blame(frame, held and not self.is_quiet(frame), "nothing held its webhook back")

    def suppressed_or_not(self, frame, data, quiet):
        words = "it is suppressed for no reason" if not quiet else \
            "it is to be suppressed, and is not"
        self.blame(frame, bool(data.get("suppressed")) != bool(quiet), words)

    # ---- What commands run -----------------------------------------------------------------------
    def commanding(self, frame):
        """The task whose command runs a scope, if one does."""
        child = CHILD.match(frame.scope)
        if child is None or child[2][0] == "@": return None, None
        item = child[3] and int(child[3])
        return self.task(self.step_of(child[1] or "", child[2]), item), child

    def on_run_started(self, frame, data, *_):
        task, child = self.commanding(frame)
        if task is not None: self.judge_child(frame, data, task, child)
        self.begin_child(frame.scope)
        # A responder takes the object of a step, which is what people left of its output.
        if frame.scope[:1] != "@" or "/" in frame.scope: self.takes(frame)
        self.forget(frame.scope + "/")
        if frame.scope: self.sends[frame.scope] = data.get("webhooks") == "execute"
        self.flows[frame.scope] = data.get("plan")

    def judge_child(self, frame, data, task, child):
        """Whether a child is the next one of a command, with the next input."""
        _, index, target, count = task.current()
        at, scope = len(task.children), child[1] or ""
        within = at - task.before
        offered = self.work(frame, child[2], scope).get("agent", {}).get("may_invoke", {})
        declared = offered.get(target, {}).get("child", {})
        right = within < count and target == child[4] and at == int(child[5])
        right = right and declared.get("workflow") == data.get("plan")
        self.blame(frame, not right, "no command runs it next, with this input")
        task.children.append(None)
        if not right: return
        flow = self.plan["workflows"][declared["workflow"]]
        sends = self.sends.get(scope) and declared["webhooks"] == flow["webhooks"] == "execute"
        words = "whether its webhooks are sent is not what those who run it say"
        self.blame(frame, data.get("webhooks") != ("execute" if sends else "suppress"), words)
        command = task.all("commands")[index]
        many = command["type"] == "fanout"
        given = command["inputs"][within] if many else command["input"]
        place = "/outcome/commands/%d%s" % (index, "/inputs/%d" % within if many else "/input")
        filled = copied(given)
        try: fits = self.fill(filled, flow.get("params"))
        except Unclear as why: return self.unknown(frame, str(why))
        self.blame(frame, not fits, "its input does not fit the params of its workflow")
        got, wanted = self.member(frame, "input") or {}, {}
        for name, value in filled.items():
            path = "/" + escaped(name)
            stays = name in given and alike(given[name], value)
            wanted["/params" + path] = {"ref": {"frame": task.seq, "path": place + path}} if stays \
                else {"value": {"from": [task.seq], "value": value}}
        self.blame(frame, not alike(got, wanted), "no command runs it next, with this input")

    def fill(self, value, schema):
        """Fills in what the params of a child leave out; whether they fit their schema then."""
        if schema is None or not isinstance(value, dict): return isinstance(value, dict)
        Filling(schema).fill(schema, value)
        if isinstance(VALUES, str): raise Unclear(VALUES)
        try: return VALUES.fits(value, schema)
        except VALUES.Unknown as why: raise Unclear(str(why))

    def on_run_completed(self, frame, data, *_):
        task, child = self.commanding(frame)
        if task and int(child[5]) < len(task.children): task.children[int(child[5])] = frame.seq
        self.found.made += self.own and data.get("output") is not None
        self.ends_well(frame, data)
        if data.get("output_from") is None: return
        plan, ended = self.plan_of(frame), self.ends.get(frame.scope, {})
        flow = plan["workflows"][self.flows.get(frame.scope) or plan["root"]]
        known = [ended[one["id"]] for one in flow["steps"] if one["id"] in ended]
        # Of steps that the definition does not have, nothing can be said here.
        right = known[-1] in (None, data["output_from"]) if known else bool(ended)
        self.blame(frame, not right, "its output is not that of its last step")

    def step_begins(self, scope, name):
        """What a step, or what it ran, gave before it began anew is of no consequence."""
        inner = (scope + "/" + name).lstrip("/")
        self.ends.get(scope, {}).pop(name, None)
        self.forget(inner + "/", inner + ".")

    def forget(self, *begins):
        for one in [one for one in self.ends if (one + "/").startswith(begins)]: del self.ends[one]

    def step_ended(self, frame, data):
        """Where the output of a step is; None where no single frame has it."""
        own = {"frame": frame.seq, "path": "/output"}
        own = own if self.member(frame, "output") is not None else None
        self.ends.setdefault(frame.scope, {})[data["step"]] = data.get("output_from") or own

    def on_command_completed(self, frame, data, step, item):
        task = self.task(step, item)
        seq, index, _, count = task.current()
        ends = task.children[task.before:]
        right = seq is not None and (seq, index) == (data["request"], data["index"])
        right = right and ends == (data.get("children") or []) and len(ends) == count
        self.blame(frame, not right, "it does not name the ends of what its command runs")
        self.blame(frame, data["attempt"] != task.attempt, "it is of another attempt")
        other = frame.actor != "orchestrator"
        self.blame(frame, other, "it was appended by another actor")
        task.done, task.before = task.done + 1, task.before + count

    def has_recorded_all(self, frame, data, step, item):
        """Whether every event and command of an outcome that counts has its frame."""
        task = self.task(step, item)
        recorded = task.notes, task.commanded
        left = recorded != (len(task.all("events")), len(task.all("commands")))
        words = "some of the events or commands that its agent gave have no frame"
        self.blame(frame, left and self.rules >= COMMANDS_SINCE, words)
        self.blame(frame, not task.ran(), "some of what its commands run has not ended")
        other = task.seq is not None and data["attempt"] != task.attempt
        self.blame(frame, other, "it is of another attempt")
