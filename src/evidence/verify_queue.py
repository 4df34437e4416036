"""The part of verify.py that folds worlds: objects and relations, what responders asked, and the
queue of what they have not seen yet, as frames leave them. It is used by verify_world.py and does
nothing by itself."""
from collections import deque, namedtuple
from datetime import datetime, timedelta

from verify import is_number, load, part, wrong_if

VALUES = part("verify_values.py")
LIMITS = "max_events", "max_llm_cost_micro_usd", "max_recursion_depth", "max_wall_ms"
MAX_WAY = 1000  # The most frames through which the output of a step is looked for.
MAX_TIMERS = 10000  # Of the responders of a run, at once.
MAX_TASKS, EVERY = 10000, (1 << 32) - 1  # Of a firing; and more entries than a responder has.
# `of` waited with the event of another frame, and looks at it as of this one; `reply` has ended.
Trigger = namedtuple("Trigger", "seq at kind key about patch of reply", defaults=(None, None))
Candidate = namedtuple("Candidate", "at name items entries fails", defaults=(False,))

class Asked:
    """What a responder asked a model (ask), or had a workflow do (run): it waits to begin, is under
    way, has ended with an outcome, or is set aside until a person takes the run up again."""
    def __init__(self, responder, kind, trigger):
        self.responder, self.kind, self.trigger = responder, kind, trigger
        self.address, self.state, self.outcome = "", "waiting", None

FATAL = ("ktsu_injection_attempt", "ktsu_untrusted_content", "ktsu_low_quality",
         "ktsu_needs_human")

def micros(frame):
    """When a frame was appended, in microseconds."""
    moment = datetime.strptime(frame.at, "%Y-%m-%dT%H:%M:%S.%fZ")
    return (moment - datetime(1970, 1, 1)) // timedelta(microseconds=1)

def key_of(*parts): return VALUES.digest(list(parts))
def object_id(kind, key): return "%s-%s" % (kind, key[:16])

def may_make_nothing(entry):
    """Its guard is falsy, or what it makes is there."""
    keeps = "key" in entry and entry.get("if_exists", "keep") == "keep"
    return "when" in entry or keeps

def skippable(entries, begin, end):
    """Whether all outputs between two places, (item, entry), may make nothing."""
    def nothing(some): return all(map(may_make_nothing, some))
    if begin >= end: return True
    if begin[0] == end[0]: return nothing(entries[begin[1]:end[1]])
    between = end[0] - begin[0] == 1 or nothing(entries)
    return between and nothing(entries[begin[1]:]) and nothing(entries[:end[1]])

class Plan:
    """The worlds of a definition."""
    def __init__(self, worlds):
        self.worlds, plans = worlds, [worlds[path] for path in sorted(worlds)]
        self.responders = [one for plan in plans for one in plan.get("edges", [])]
        self.responders += [one for plan in plans for one in plan.get("responders", [])]
        self.by_name = {one["name"]: one for one in self.responders}
        self.objects, self.relations, self.goal = {}, {}, []
        for plan in plans:
            self.objects.update(plan.get("objects", {}))
            self.relations.update(plan.get("relations", {}))
            self.goal += plan.get("goal", [])
        if not any("goal" in plan for plan in plans):
            self.goal = [{"make": {"object": {"type": "Goal"}}}]
            self.objects.setdefault("Goal", {})
        self.budget = {name: min(plan["budget"][name] for plan in plans) for name in LIMITS}

    def candidates(self, trigger):
        """The names of those that react to a trigger, in the order in which they act."""
        def reacts(one):
            kinds, changed = one.get("type", []), one.get("changed", [])
            right = trigger.kind in one["on"] or "*" in one["on"]
            right = right and (not kinds or trigger.about in kinds)
            patched = trigger.patch is None or not changed
            return right and (patched or any(name in trigger.patch for name in changed))
        if trigger.of is not None: return [trigger.of] if trigger.of in self.by_name else []
        return [one["name"] for one in self.responders if reacts(one)]

    def place(self, name): return [one["name"] for one in self.responders].index(name)

    def entries(self, name, reply=None):
        """What a responder makes of a trigger, or of the reply to what it asked; what it publishes
        comes last."""
        one = self.by_name.get(name, {"work": {}})
        published = [{"make": {"publish": one["publish"]}}] if "publish" in one else []
        if reply: return one.get("then", []) + (published if "emit" not in one["work"] else [])
        return one["work"].get("emit", []) + published if "emit" in one["work"] else []

class Queue:
    """The world of a run, and the cursor of its responders."""
    def begin(self, base):
        """Before anything happened in a world."""
        self.objects, self.relations, self.size = {}, {}, 0
        self.queue, self.current, self.firing, self.next = deque(), None, None, None
        self.asked = {}  # By address.
        self.timers, self.still = {}, 0  # By (due, event, place), in the run's own microseconds.
        self.base, self.below, self.events, self.last, self.deepest = base, [], 0, None, 0
        self.post, self.places, self.ordinal, self.overlaid = None, (0, 0), 0, set()
        self.replaced = {}  # By step: what people replaced of its outcome.
        self.loaded = self.fired = self.exhausted = False
        self.rejected, self.goal_next, self.raised = None, 0, {}

    def member(self, frame, name):
        """A member of a frame, wherever it is kept."""
        apart = next((one["hash"] for one in frame.ext if one["path"] == "/" + name), None)
        if apart is None: return frame.data.get(name)
        blob = self.evidence.blob(apart)
        wrong_if(blob is None, "one of its blobs is missing or another", frame.id)
        self.size += len(blob)
        return load(blob.decode("utf-8"))

    def hash(self):
        objects = {one: {"data": data, "type": kind} for one, (kind, data) in self.objects.items()}
        relations = {one: {"data": data, "source_id": ends[0], "target_id": ends[1], "type": kind}
                     for one, (kind, ends, data) in self.relations.items()}
        return "sha256:" + VALUES.digest({"objects": objects, "relations": relations})

    # ---- Depth -----------------------------------------------------------------------------------
    def depth(self, causes):
        def below(cause):
            at = cause - self.base if is_number(cause) else -1
            return self.below[at] if 0 <= at < len(self.below) else 1
        return max(map(below, causes), default=0)

    def deepen(self, frame, counts):
        below = self.depth(frame.cause)
        if counts:
            self.deepest = max(self.deepest, below)
            self.events, self.last, below = self.events + 1, frame.seq, below + 1
        self.below.append(below)

    def limit(self, name): return self.raised.get(name, self.plan.budget[name])

    # ---- The queue -------------------------------------------------------------------------------
    def enqueue(self, frame, kind, about, patch, key):
        trigger = Trigger(frame.seq, micros(frame) - self.still, kind, key, about, patch)
        if self.plan.candidates(trigger): self.queue.append(trigger)

    def advance(self):
        if self.current is not None or not self.queue: return
        self.current = self.queue.popleft()
        if self.current.reply: self.begin_firing([Candidate(0, self.current.reply.responder, None,
                                                            EVERY)])

    def begin_firing(self, candidates):
        self.firing, self.next = candidates, (candidates[0].at, 0, 0) if candidates else None
        if self.next is None: self.close()

    def reach(self, frame):
        """A decision about the trigger behind the current one says that the rest makes nothing."""
        if self.firing is None or self.current.reply: return
        if frame.cause[:1] == [self.current.seq]: return
        wrong_if(not self.skips(None), "an output before it is missing")
        self.close()
        self.advance()

    # ---- What responders ask ---------------------------------------------------------------------
    def ask(self, one):
        """A candidate asks, once for each item."""
        for item in [None] if one.get("items") is None else range(one["items"]):
            asked = Asked(one["responder"], one["task"], self.current.seq)
            key = key_of(self.current.key, asked.responder, item, 0)
            asked.address = "@%s.%s" % (asked.responder, key[:16])
            self.asked[asked.address] = asked

    def move(self, before, after):
        for one in self.asked.values(): one.state = after if one.state == before else one.state

    def whole(self, frame, data):
        """What a frame about a world says, with the members that are kept apart."""
        names = (one["path"][1:] for one in frame.ext)
        return dict(data, **{name: self.member(frame, name) for name in names})

    def follow(self, frame, data):
        """What responders asked begins and ends."""
        kind, scope = frame.type, frame.scope
        run = kind in ("run.started", "run.failed", "run.completed")
        ask = kind in ("worker.dispatched", "agent.finished") and scope == ""
        address = scope if run else data["step"] if ask else ""
        if address[:1] != "@" or "/" in address: return
        one, begins = self.asked.get(address), kind in ("run.started", "worker.dispatched")
        right = one and one.kind == ("run" if run else "ask") and one.state != "ended"
        if not right: raise VALUES.Unknown("%s: no responder asks for it then" % frame.id)
        if begins: one.state = "begun"
        elif kind == "run.failed" or ask and self.came_to_nothing(frame, data): one.state = "aside"
        else:
            one.state, one.outcome = "ended", {"output": None}
            if ask: one.outcome = self.member(frame, "outcome")
            at, key = micros(frame) - self.still, key_of("reply", address)
            self.queue.append(Trigger(frame.seq, at, kind, key, None, None, None, one))

    def came_to_nothing(self, frame, data):
        """Whether the run ended meanwhile, or no gateway knows the model group."""
        error = self.member(frame, "outcome").get("error")
        stopped = data.get("report") is None and data.get("reason") in ("stopped", "timeout")
        return stopped or isinstance(error, dict) and error.get("code") == "unknown_group"

    def reply_end(self, one):
        """What a reply is to its responder, but for the schema of its output: whether it fails with
        it, and the words with which its model asked that nothing be made of it."""
        if one.outcome.get("error") is not None or "output" not in one.outcome: return True, None
        output = one.outcome["output"]
        asks = self.plan.by_name.get(one.responder, {"work": {}})["work"].get("ask", {})
        if "output" not in asks or not isinstance(output, dict): return False, None
        if any(output.get(name) not in (None, False) for name in FATAL): return True, None
        words = output.get("ktsu_skip_reason")
        return False, words if isinstance(words, str) and words else None

    # ---- Responders that wait --------------------------------------------------------------------
    def waits(self, trigger, name):
        """Whether a responder sets a timer for what it reacts to, if there is room for one."""
        return trigger.of is None and "after_ms" in self.plan.by_name[name]

    def set_timers(self, candidates):
        for one in candidates:
            if one["verdict"] != "postponed": continue
            name, trigger = one["responder"], self.current
            due = trigger.at + 1000 * self.plan.by_name[name]["after_ms"]
            self.timers[due, trigger.seq, self.plan.place(name)] = trigger, name

    def replace_timers(self):
        """Responders have other places, or are gone."""
        there = [(due, seq, of) for (due, seq, _), of in self.timers.items()
                 if of[1] in self.plan.by_name]
        self.timers = {(due, seq, self.plan.place(of[1])): of for due, seq, of in there}

    def fire_timer(self, frame, data):
        """The next timer fires, and not too early: its event is behind the cursor once more."""
        first = min(self.timers, default=None)
        about = frame.cause, data.get("responder"), data.get("step")
        right = first is not None and about == ([first[1]], self.timers[first][1], None)
        right = right and micros(frame) >= first[0] + self.still
        wrong_if(not right, "no responder has waited long enough", frame.id)
        trigger, name = self.timers.pop(first)
        at = micros(frame) - self.still
        self.queue.append(trigger._replace(seq=frame.seq, at=at, of=name))

    def left(self):
        """How many outputs are left of the trigger, at the most, and asked tasks that wait."""
        left = sum(one.state == "waiting" for one in self.asked.values())
        for one in self.firing or ():
            if self.next is None or one.at < self.next[0] or one.fails: continue
            reply, entries = self.current.reply, one.entries
            if entries == EVERY: entries = len(self.plan.entries(one.name, reply))
            left += entries * (1 if one.items is None else one.items)
            if one.at == self.next[0]: left -= self.next[1] * entries + self.next[2]
        return left

    def close(self): self.current, self.firing, self.next = None, None, None

    def first_of(self, at):
        return next(((one.at, 0, 0) for one in self.firing if one.at >= at), None)

    def find(self, name): return next((one for one in self.firing or () if one.name == name), None)

    def place(self, name, item, entry):
        """The place of an output that is left."""
        one = self.find(name)
        if one is None or one.fails or (item is None) != (one.items is None): return None
        fit = entry < one.entries and (item or 0) < (1 if one.items is None else one.items)
        place = one.at, item or 0, entry
        return place if fit and self.next is not None and place >= self.next else None

    def skips(self, to):
        """Whether outputs from the next one on may make nothing, up to a place or the last."""
        if self.next is None: return True
        for one in self.firing:
            if one.at < self.next[0] or to and one.at > to[0]: continue
            if one.fails:
                if to is None or one.at != to[0]: return False
                continue
            begin = self.next[1:] if one.at == self.next[0] else (0, 0)
            end = to[1:] if to and one.at == to[0] else (1 if one.items is None else one.items, 0)
            entries = self.plan.entries(one.name, self.current.reply)
            if not skippable(entries, begin, end): return False
        return True

    def passed(self, place):
        one = next(one for one in self.firing if one.at == place[0])
        if place[2] + 1 < one.entries: self.next = place[:2] + (place[2] + 1,)
        elif place[1] + 1 < (one.items or 1): self.next = place[0], place[1] + 1, 0
        else: self.next = self.first_of(place[0] + 1)
        if self.next is None: self.close()

    def fire(self, candidates):
        """The candidates of the current trigger were evaluated."""
        self.fired = True
        self.set_timers(candidates)
        fired = [(at, one) for at, one in enumerate(candidates) if one["verdict"] == "fired"]
        for _, one in fired:
            if one.get("task"): self.ask(one)
        # What fails has its failure in the place of outputs.
        self.begin_firing([
            Candidate(at, one["responder"], one.get("items"), one.get("entries", 0), "fails" in one)
            for at, one in enumerate(candidates) if "fails" in one
            or one["verdict"] == "fired" and one.get("entries") and one.get("items") != 0])

    def abandon(self, name):
        """A responder failed: it makes nothing more."""
        one = self.find(name)
        if one and self.next[0] <= one.at: self.next = self.first_of(one.at + 1)
        if self.next is None: self.close()

    # ---- Objects and relations -------------------------------------------------------------------
    def post_key(self, n):
        self.places = (n, self.places[1] + 1) if self.places[0] == n else (n, 0)
        return key_of("post", *self.places)

    def change(self, frame, data):
        """An event about an object or a relation, or a note."""
        kind, about, patch, derived = frame.type, data.get("type"), None, data.get("derived")
        if kind == "object.patched":
            patch = data.get("patch") or {}
            about, before = self.objects[data["id"]]
            self.objects[data["id"]] = about, dict(before, **patch)
        elif kind == "object.created":
            self.objects[data["id"]] = about, data.get("data") or {}
        elif kind == "relation.created":
            ends = data["source_id"], data["target_id"]
            self.relations[data["id"]] = about, ends, data.get("data") or {}
        elif kind == "relation.removed": about = self.relations.pop(data["id"], (None,))[0]
        place = derived and tuple(map(derived.get, ("responder", "item", "entry")))
        if derived is None: key = self.post_key(data["post"]["n"])
        elif place[0] is None: key = key_of("goal", place[2])
        else: key = key_of(self.current.key, *place)
        if "key" in data: key = key_of("key", about, data["key"])
        if kind == "note" or about is not None: self.enqueue(frame, kind, about, patch, key)
        if derived and place[0] is None: self.goal_next = place[2] + 1
        elif derived: self.passed(self.place(*place))

    # ---- Steps in the world ----------------------------------------------------------------------
    def output(self, frame):
        """The output of a step or a child, wherever it is."""
        for _ in range(MAX_WAY):
            whole = self.member(frame, "output")
            if whole is not None: return whole
            named = frame.data.get("output_from")
            if not named or self.overlaid: break
            names = named["path"].split("/")[1:]
            frame = self.evidence.shared(self.stream, named["frame"])
            wrong_if(frame is None, "its output is nowhere")
            if names == ["output"] and frame.data.get("output") is None \
                    and frame.data.get("output_from"): continue
            value = self.member(frame, names[0])
            for name in names[1:]:
                name = name.replace("~1", "/").replace("~0", "~")
                value = value[int(name)] if isinstance(value, list) else value[name]
            return value
        self.blurred = True
        self.cannot_say(frame, "its output is made of others, and the world at the end with it")

    def completed_step(self, frame, data):
        value, name = self.output(frame), "step/" + data["step"]
        if isinstance(value, dict) and data.get("stripped"):
            value = {one: value[one] for one in value if one not in data["stripped"]}
        value = value if isinstance(value, dict) else {"output": value}
        self.objects[name] = "step", dict(value, **self.replaced.pop(data["step"], {}))
        self.size += frame.length
        self.enqueue(frame, "step.completed", "step", None, self.step_key(frame, data))

    def reviewed(self, frame, data):
        """What people replace of an outcome holds once its step completes. When they are asked
        again, nothing is replaced yet."""
        if frame.type == "review.requested": return self.replaced.pop(data["step"], None)
        replaced = self.replaced.setdefault(data["step"], {})
        for field, value in (self.member(frame, "overlay") or {}).items():
            replaced.setdefault(field, value)

    def overlay(self, frame, data):
        name, patch, key = "step/" + data["step"], {data["field"]: self.member(frame, "value")}, \
            self.step_key(frame, data)
        self.overlaid.add(data["step"])
        if name not in self.objects: return
        self.objects[name] = "step", dict(self.objects[name][1], **patch)
        self.enqueue(frame, "object.patched", "step", patch, key)

    def step_key(self, frame, data):
        self.ordinal += 1
        return key_of("step", frame.scope, data["step"], self.ordinal)
