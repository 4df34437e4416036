"""The part of verify.py that judges frames about worlds: who made them and because of what, which
outputs are left, ids, schemas, budgets, posts, and the world that the end names. Guards and
templates are evaluated only by ktsu. It is used by verify.py and does nothing by itself."""
from verify import BROKEN, TooLarge, Wrong, count, has, is_number, part, wrong_if

QUEUE = part("verify_queue.py")
MISSING = QUEUE if isinstance(QUEUE, str) else QUEUE.VALUES
MISSING = MISSING if isinstance(MISSING, str) else None
if not MISSING:
    from_queue = ("LIMITS", "MAX_TASKS", "MAX_TIMERS", "Plan", "VALUES", "key_of",
                  "may_make_nothing", "object_id")
    LIMITS, MAX_TASKS, MAX_TIMERS, Plan, VALUES, key_of, may_make_nothing, object_id = (
        getattr(QUEUE, name) for name in from_queue)
    Unknown, fits = VALUES.Unknown, VALUES.fits

OPENS_SINCE = 6  # Decision rules: branches of all frames take posts only once they are resumed.
MAX_WORLD = 1 << 28  # The most bytes of frames and blobs of which a world is held.
ABOUT = "object.created", "object.patched", "relation.created", "relation.removed", "note"
DECIDED = ("responder.fired", "responder.completed", "responder.failed", "output.rejected",
           "kit.loaded", "budget.exhausted")
TOLD, SPENT = "command.requested", "budget_exhausted"
BEGIN = "run.created", "branch.created", "recompute.created"
CALLS = "llm.request", "llm.response", "tool.called", "tool.returned"

# The members that the events have, and what they are: a ? may be missing.
SHAPES = {
    "object.created": {"id": str, "type": str, "data?": dict, "key?": str},
    "object.patched": {"id": str, "patch?": dict, "withheld?": dict},
    "relation.created": {"id": str, "type": str, "source_id": str, "target_id": str,
                         "data?": dict},
    "relation.removed": {"id": str}, "note": {},
    "command.requested": {"derived": dict, "topic": str, "type": str, "suppressed?": bool},
    "responder.fired": {"candidates": list},
    "responder.completed": {"address": str, "responder": str, "skipped?": list},
    "responder.failed": {"code": str, "message": str, "responder": str, "address?": str,
                         "entry?": int, "item?": int},
    "output.rejected": {"code": str, "derived": dict, "message": str, "type": str,
                        "errors?": list},
    "kit.loaded": {"worlds": list},
    "budget.exhausted": {"cost_micro_usd": int, "depth": int, "dropped": dict, "elapsed_ms": int,
                         "event_count": int, "reasons": list},
    "budget.raised": {"by": dict, "reason?": str, "max_events?": int, "max_wall_ms?": int,
                      "max_llm_cost_micro_usd?": int, "max_recursion_depth?": int}}

def is_of_world(kind, data):
    """Whether a frame is about a world: steps have some of the same types."""
    needs = {"budget.exhausted": ["reasons"], TOLD: ["derived"]}.get(kind, [])
    return kind in SHAPES and set(needs) <= set(data) and (kind != "note" or "step" not in data)

def is_call(frame, data):
    """Whether a responder asked, or had asked: its step or scope begins with @."""
    return frame.type in CALLS and "@" in (frame.scope[:1], data.get("step", "")[:1])

class World(object if MISSING else QUEUE.Queue):
    """The worlds of a run from its beginning, with all that it shares."""
    def __init__(self, evidence, stream):
        self.evidence, self.stream, self.plan = evidence, stream, None
        self.judged, self.evaluated, self.unknown, self.blurred = 0, 0, [], False
        self.status, self.started, self.idle, self.goal, self.parked = "", None, None, None, False
        self.failing, self.at, self.rules = False, "", 0
        self.begin(0)

    def read(self, last):
        for seq in range(last + 1):
            frame = self.evidence.shared(self.stream, seq)
            wrong_if(frame is None, "the frames of %s cannot be read" % self.stream)
            if self.plan is None and frame.type not in BEGIN and frame.type not in SHAPES: continue
            try: self.take(frame, frame.data)
            except BROKEN as error: raise Wrong("it cannot be read: %r" % error, frame.id)

    # ---- Any frame -------------------------------------------------------------------------------
    def take(self, frame, data):
        kind, root = frame.type, frame.scope == ""
        late, self.at = frame.at < self.at, max(self.at, frame.at)
        if kind in BEGIN: self.created(frame, data)
        if self.plan is None:
            wrong_if(is_of_world(kind, data), "the run loads no worlds", frame.id)
            return
        posted = kind.startswith("x.") and self.is_posted(data)
        timer = kind == "timer.fired" and self.is_of_responder(data)
        if timer: self.judge_timer(frame)
        about = is_of_world(kind, data)
        if about and frame.ext: data = self.whole(frame, data)
        early = "it is from before the frame before it"
        wrong_if(late and (posted or about or timer), early, frame.id)
        if posted or about:
            try: self.judge(frame, data, posted or "post" in data)
            except Wrong as wrong: raise Wrong(wrong.reason, wrong.frame or frame.id)
        self.follow(frame, data)
        counts = about and kind in ABOUT or kind.startswith("x.") or is_call(frame, data)
        self.deepen(frame, counts)
        if about: self.apply(frame, data)
        elif timer: self.fire_timer(frame, data)
        elif posted:
            if self.status == "run.completed": self.reopen()
            self.enqueue(frame, kind, None, None, self.post_key(data["post"]["n"]))
        elif root and kind == "step.completed": self.completed_step(frame, data)
        elif root and kind == "overlay.set": self.overlay(frame, data)
        elif root and kind.startswith("review."): self.reviewed(frame, data)
        elif root: self.turned(frame, data)
        elif kind in ("run.completed", "run.failed"):
            wrong_if(data.get("world") is not None, "it is not the end of the run", frame.id)
        if self.size > MAX_WORLD: raise TooLarge("the world of %s is too large" % self.stream)
        self.advance()

    def created(self, frame, data):
        """The definition that holds from here on, and the goal."""
        params = self.member(frame, "params")
        if params is not None: self.goal = params.get("goal")
        self.parked, self.rules = frame.type == "branch.created", data.get("rules", self.rules)
        if data.get("restarts") or data.get("digest") is not None: self.move("begun", "waiting")
        if data.get("digest") is None: return
        worlds = self.member(frame, "definition").get("worlds")
        before, self.plan = self.plan, Plan(worlds) if worlds else None
        if self.plan and not before: self.begin(frame.seq)
        elif self.plan: self.replace_timers()

    def turned(self, frame, data):
        """What becomes of the run itself."""
        kind = frame.type
        if kind == "run.started": self.status, self.started = "running", frame.seq
        elif kind in ("run.cancelled", "run.terminated"): self.failing = True
        elif kind == "clock.jumped": self.still += 1000 * (data.get("forward_ms") or 0)
        elif kind == "run.resumed":
            self.parked = False
            self.still += 1000 * (data.get("paused_ms") or 0)
            self.take_up(self.status in ("run.completed", "run.failed"))
            if data.get("from") is not None: self.reopen()
        elif kind == "run.continued" and data.get("why") == "idle":
            self.may_end(frame)
            self.idle = frame.seq
        elif kind in ("run.completed", "run.failed"):
            if kind == "run.completed":
                self.may_end(frame)
                wrong_if(self.idle != frame.seq - 1, "it ends unasked", frame.id)
            world = data.get("world")
            right = isinstance(world, str) if self.blurred else world == self.hash()
            wrong_if(not right, "it names another world", frame.id)
            spent = not self.exhausted and "step" not in data and data.get("code") == SPENT
            wrong_if(spent, "no frame says that its budget is used up", frame.id)
            self.status = kind

    def reopen(self): self.status, self.failing, self.parked = "running", False, False

    def take_up(self, again):
        """A person takes the run up: what was set aside waits, and what its end stopped."""
        if again: self.move("begun", "waiting")
        self.move("aside", "waiting")

    def cannot_say(self, frame, why): self.unknown.append("%s: %s" % (frame.id, why))
    def may_end(self, frame):
        """A run ends once its responders have seen all, and nothing is left that they must make."""
        waits = self.queue or self.rejected or not self.loaded or self.timers
        waits = waits or (self.current and (self.firing is None or self.current.reply))
        waits = waits or any(one.state != "aside" for one in self.asked.values())
        wrong_if(waits, "its responders have not seen everything by then", frame.id)
        self.goal_may_be_over(frame)
        wrong_if(not self.skips(None), "an output before it is missing", frame.id)

    def goal_may_be_over(self, frame):
        left = self.plan.goal[self.goal_next:] if isinstance(self.goal, str) else []
        over = self.fired or all(map(may_make_nothing, left))
        wrong_if(not over, "what the goal of the run becomes is missing before it", frame.id)

    # ---- What may stand where --------------------------------------------------------------------
    def is_posted(self, data):
        by, post = data.get("by"), data.get("post")
        return isinstance(by, dict) and isinstance(post, dict) and has(by, auth=str, id=str) \
            and has(post, "key", digest=str, n=int)

    def judge(self, frame, data, posted):
        """Whether a frame about a world follows from those before it."""
        kind = frame.type
        self.judged += 1
        wrong_if(kind in SHAPES and not self.is_shaped(frame, data), "it is malformed")
        wrong_if(frame.scope != "", "it is not about the run itself")
        if kind == "budget.raised":
            wrong_if(frame.actor != "principal:" + data["by"]["id"], "its actor is not who raises")
            wrong_if(not any(name in data for name in LIMITS), "it raises nothing")
            return
        open_ = self.status == "running" and not self.failing and not self.parked
        again = self.status == "run.completed" and (not self.parked or self.rules < OPENS_SINCE)
        open_ = open_ or posted and again
        wrong_if(not open_, "the run does not go on")
        wrong_if(self.exhausted, "the budget is used up")
        if kind in ABOUT or posted: self.within_budget(frame)
        step = kind.startswith("object.") and data["id"].startswith("step/")
        wrong_if(step, "it stands for a step")
        if posted: self.judge_post(frame, data)
        else: self.judge_decision(frame, data)
        if kind in ABOUT: self.judge_value(frame, data)

    def is_of_responder(self, data): return data["timer"] == "after" or "responder" in data

    def judge_timer(self, frame):
        """A responder has waited: that its timer is due, fire_timer sees to."""
        self.judged += 1
        wrong_if(frame.actor != "orchestrator", "the actor is not the one it is from", frame.id)
        goes_on = self.status == "running" and not self.failing and not self.parked
        wrong_if(not goes_on or frame.scope != "", "the run does not go on", frame.id)

    def is_shaped(self, frame, data):
        for name, kind in SHAPES[frame.type].items():
            value, may = data.get(name.rstrip("?")), name.endswith("?")
            if not (type(value) is kind or value is None and may): return False
            if kind is int and value is not None and value < 0: return False
        from_ = data.get("derived")
        if from_ is not None:
            named = set(from_) <= {"entry", "item", "responder"} and is_number(from_["entry"])
            named = named and from_.get("item") in (None,) or is_number(from_.get("item"))
            if not named or not isinstance(from_.get("responder", ""), str): return False
        if frame.type == "budget.raised": return has(data["by"], auth=str, id=str)
        if frame.type not in ABOUT: return True
        posted = "by" in data or "post" in data
        return self.is_posted(data) and from_ is None if posted else from_ is not None

    def within_budget(self, frame):
        over = self.events >= self.limit("max_events")
        over = over or self.depth(frame.cause) > self.limit("max_recursion_depth")
        wrong_if(over, "the budget of the world does not allow it")

    def judge_post(self, frame, data):
        """The events of a post are one input, by one person; posts are counted."""
        by, post = data["by"], data["post"]
        wrong_if(frame.actor != "principal:" + by["id"], "the actor is not the one who posted it")
        seq, before, last = self.post or (None, None, {"n": 0, "digest": ""})
        if post["n"] == last["n"]:
            same = seq == frame.seq - 1 and before == by and last["digest"] == post["digest"]
            wrong_if(not same, "it is not of the post that it names")
        else: wrong_if(post["n"] != last["n"] + 1, "posts are counted without gaps")
        self.post = frame.seq, by, post

    def judge_decision(self, frame, data):
        kind = frame.type
        wrong_if(self.loaded == (kind == "kit.loaded"), "it is not where kit.loaded belongs")
        ends = kind in ("responder.failed", "budget.exhausted")
        wrong_if(self.rejected and not ends, "a responder does not fail with what was rejected")
        name = kind.split(".")[1] if kind in DECIDED else "output"
        one = self.asked.get(data.get("address")) if kind == "responder.failed" else None
        if name not in ("loaded", "exhausted") and not (one and one.state == "waiting"):
            self.reach(frame)
        getattr(self, "judge_" + name)(frame, data)

    def by_engine(self, frame, *causes):
        wrong_if(frame.actor != "orchestrator", "the actor is not the one it is from")
        wrong_if(frame.cause != list(causes), "its cause is not what it follows from, alone")

    def judge_loaded(self, frame, data):
        self.by_engine(frame, self.started)
        plans = self.plan.worlds
        loaded = [{"name": plans[path]["name"], "path": path, "version": plans[path]["version"]}
                for path in sorted(plans)]
        wrong_if(data["worlds"] != loaded, "its worlds are not those of the definition")

    def judge_fired(self, frame, data):
        self.goal_may_be_over(frame)
        trigger = self.current
        wrong_if(trigger is None or self.firing is not None, "there is no such trigger")
        self.by_engine(frame, trigger.seq)
        named = [one["responder"] for one in data["candidates"]]
        right = named == self.plan.candidates(trigger)
        wrong_if(not right, "its candidates are not those of the trigger")
        room = MAX_TIMERS - len(self.timers)
        for one in data["candidates"]:
            responder, verdict = self.plan.by_name[one["responder"]], one["verdict"]
            work, reacts, items = responder["work"], verdict == "fired", one.get("items")
            task = next((name for name in ("ask", "run") if name in work), None)
            entries = len(self.plan.entries(one["responder"])) if "emit" in work else 0
            made = one.get("entries", 0), one.get("task"), items is not None
            right = made == ((entries, task, "for_each" in responder) if reacts else
                             (0, None, False))
            most = MAX_TASKS if task else (1 << 32) - 1
            right = right and (items is None or is_number(items) and items <= most)
            right = right and ("reason" in one) == (verdict == "failed")
            may_fail = verdict == "failed" and "for_each" in responder and one.get("fails") is True
            right = right and ("fails" not in one or may_fail)
            waits = self.waits(trigger, one["responder"])
            right = right and (verdict == ("postponed" if room > 0 else "failed")) if waits else \
                right and verdict != "postponed"
            after = responder["after_ms"] if verdict == "postponed" and waits else None
            right = right and one.get("after_ms") == after
            room -= waits
            right = right and verdict in ("fired", "false", "failed", "postponed")
            wrong_if(not right, "a verdict is not one that its responder can have")
            self.evaluated += 1

    def follows(self, frame, responder, item, entry):
        """The entry that makes this output, and its key; those before it may make nothing."""
        name = responder or "goal"
        right = frame.actor == "responder:" + name
        wrong_if(not right, "the actor is not the one it is from")
        if responder is None:
            entries, has_goal = self.plan.goal, isinstance(self.goal, str)
            left = not self.fired and entry >= self.goal_next and has_goal and entry < len(entries)
            wrong_if(not left or item is not None, "it is not an output that is left")
            skipped = all(map(may_make_nothing, entries[self.goal_next:entry]))
            key, cause = key_of("goal", entry), []
        else:
            place = self.place(responder, item, entry)
            about = self.current is not None and frame.cause[:1] == [self.current.seq]
            wrong_if(not about, "its cause is not the trigger that responders are at")
            wrong_if(place is None, "it is not an output that is left of the trigger")
            reply = self.current.reply
            fails, words = self.reply_end(reply) if reply else (False, None)
            wrong_if(fails or words, "its model asked that nothing be made of its reply, or failed")
            entries, skipped = self.plan.entries(responder, reply), self.skips(place)
            wrong_if(entry >= len(entries), "its responder has no such entry")
            self.evaluated += reply is not None
            key, cause = key_of(self.current.key, responder, item, entry), [self.current.seq]
        wrong_if(not skipped, "an output before it is missing")
        wrong_if(frame.cause != cause, "its cause is not what it follows from, alone")
        return entries[entry], key

    def judge_output(self, frame, data):
        """Whether an output is what its entry makes, under the id that follows from its trigger."""
        derived, kind = data["derived"], frame.type
        entry, key = self.follows(frame, *map(derived.get, ("responder", "item", "entry")))
        (what, made), = entry["make"].items()
        strange = "it is not what its entry makes"
        patches = "key" in entry and entry.get("if_exists") == "patch"
        if what == "object" and kind == "object.created":
            right = data["type"] == made["type"] and ("key" in data) == ("key" in entry)
            wrong_if(not right, strange)
            key = key_of("key", made["type"], data["key"]) if "key" in data else key
            right = data["id"] == object_id(made["type"], key)
            wrong_if(not right, "its id does not follow from its trigger")
        elif what == "object" and kind == "object.patched":
            same = self.objects.get(data["id"], (None,))[0] == made["type"]
            wrong_if(not patches or not same, strange)
        elif what == "relation" and kind == "relation.created":
            wrong_if(data["type"] != made["type"], strange)
            key = key_of("relation", made["type"], data["source_id"], data["target_id"])
            right = "id" in made or data["id"] == object_id(made["type"], key)
            wrong_if(not right, "its id does not follow from its ends")
        elif what == "publish": wrong_if((kind, data["type"]) != (TOLD, "emit"), strange)
        else: wrong_if((what, kind) not in (("patch", "object.patched"),
                                            ("remove", "relation.removed")), strange)

    def judge_rejected(self, frame, data):
        derived = data["derived"]
        entry, _ = self.follows(frame, *map(derived.get, ("responder", "item", "entry")))
        (what, _), = entry["make"].items()
        kinds = {"object": ["object.created"], "patch": ["object.patched"],
                 "relation": ["relation.created"], "remove": ["relation.removed"],
                 "publish": []}[what]
        if what == "object" and entry.get("if_exists") == "patch": kinds.append("object.patched")
        wrong_if(data["type"] not in kinds, "it is not what its entry makes")

    def judge_failed(self, frame, data):
        name, item, entry = data["responder"], data.get("item"), data.get("entry")
        if self.rejected:
            reported = map(data.get, ("responder", "item", "entry", "code", "message", "address"))
            wrong_if(tuple(reported) != self.rejected, "it does not fail with what was rejected")
        if data.get("address") is not None: return self.of_asked(frame, data)
        if name == "goal" and not self.fired:
            right = frame.actor == "responder:goal" and not frame.cause
            return wrong_if(not right, "the actor is not the one it is from")
        one = self.find(name)
        if one is not None and one.fails:
            right = entry is None and item is None and self.skips((one.at, 0, 0))
            right = right and self.next is not None and self.next[0] <= one.at
            wrong_if(not right, "an output before it is missing")
            wrong_if(frame.actor != "responder:" + name, "the actor is not the one it is from")
            right = frame.cause == [self.current.seq]
            return wrong_if(not right, "its cause is not what it follows from, alone")
        known = one is not None and not self.current.reply and entry is not None
        wrong_if(not known, "its responder has no such entry")
        self.follows(frame, name, item, entry)

    def of_asked(self, frame, data):
        """Whether something has ended, and its responder reacts to that; or could not begin."""
        one, name = self.asked.get(data["address"]), data["responder"]
        right = one is not None and one.responder == name
        wrong_if(not right, "nothing has ended at %r" % data["address"])
        cause = one.trigger if one.state == "waiting" else self.current and self.current.seq
        right = one.state == "waiting" and frame.type == "responder.failed"
        right = right or self.current is not None and self.current.reply is one
        wrong_if(not right, "nothing has ended at %r" % data["address"])
        wrong_if(frame.actor != "responder:" + name, "the actor is not the one it is from")
        wrong_if(frame.cause != [cause], "its cause is not what it follows from, alone")

    def judge_completed(self, frame, data):
        """Whether nothing more is made of a reply: what is left may make nothing, or its model
        asked that nothing be made of it, and nothing was."""
        self.of_asked(frame, data)
        reply, skipped = self.current.reply, data.get("skipped") or []
        right = all(has(one, entry=int, reason=str) for one in skipped)
        wrong_if(not right, "it is malformed")
        entries, (fails, words) = self.plan.entries(reply.responder, reply), self.reply_end(reply)
        wrong_if(fails, "its responder fails with the reply")
        self.evaluated += 1
        named = [(one["entry"], one["reason"]) for one in skipped]
        if words is not None:
            right = self.next == (0, 0, 0) and named == [(at, words) for at in range(len(entries))]
            return wrong_if(not right, "its model asked that nothing be made of its reply")
        right = all(0 <= at < len(entries) and "when" in entries[at] for at, _ in named)
        wrong_if(not right, "it skips an entry that has no guard")
        wrong_if(not self.skips(None), "an output before it is missing")

    def judge_exhausted(self, frame, data):
        """What an event would exceed that follows from a trigger. The reasons that depend on
        the time and on what models cost, only ktsu compares."""
        self.by_engine(frame, self.started if self.last is None else self.last)
        limits = {name: self.limit(name) for name in ("max_events", "max_recursion_depth")}
        reached = [one for one in data["reasons"] if one.split("=")[0] in limits]
        at = [one.seq for one in [self.current] + list(self.queue)[:1] if one is not None]
        at += {one.trigger for one in self.asked.values()}
        depths = [None] + ([] if self.fired else [0]) + [self.depth([seq]) for seq in at]
        def exceeds(depth):
            deepest = self.deepest if depth is None else max(self.deepest, depth)
            over = {"max_events": self.events + (depth is not None) > limits["max_events"],
                    "max_recursion_depth": deepest > limits["max_recursion_depth"]}
            reasons = ["%s=%d" % (name, limits[name]) for name in limits if over[name]]
            return reached == reasons and data["depth"] == (deepest if depth is None else depth)
        right = data["reasons"] and any(map(exceeds, depths))
        wrong_if(not right, "no such limit would be exceeded")
        right = data["event_count"] == self.events
        dropped = {"outputs": self.left(), "triggers": len(self.queue)}
        if self.timers: dropped["timers"] = len(self.timers)
        right = right and data["dropped"] == dropped
        wrong_if(not right, "its numbers are not those of the frames before it")

    def judge_value(self, frame, data):
        """Whether data fits its type, and what is patched is there (decision F8)."""
        kind, schema = frame.type, None
        if kind == "object.patched":
            there = self.objects.get(data["id"])
            wrong_if(there is None, "there is no object %r" % data["id"])
            value = dict(there[1], **(data.get("patch") or {}))
            schema = self.plan.objects.get(there[0], {}).get("schema")
        elif kind in ("object.created", "relation.created"):
            value = {} if data.get("data") is None else data["data"]
            types = self.plan.objects if kind == "object.created" else self.plan.relations
            wrong_if(data["type"] not in types, "its type is not declared")
            known = types[data["type"]]
            schema = known.get("schema")
            for end, among in (("source_id", "from"), ("target_id", "to")):
                at = self.objects.get(data.get(end), (None,))[0]
                right = at is None or not known.get(among) or at in known[among]
                wrong_if(not right, "its ends are not of the types that it relates")
        else: return
        wrong_if(not isinstance(value, dict), "its data is not an object")
        try: right = schema is None or fits(value, schema)
        except Unknown as why: return self.cannot_say(frame, why)
        wrong_if(not right, "its data does not fit the schema of its type")

    # ---- What a frame about a world changes ------------------------------------------------------
    def apply(self, frame, data):
        kind = frame.type
        self.size += frame.length
        if self.status == "run.completed" and "by" in data:
            if kind == "budget.raised": self.take_up(self.failing)
            self.reopen()
        if kind in ABOUT: self.change(frame, data)
        elif kind == TOLD:
            self.passed(self.place(*map(data["derived"].get, ("responder", "item", "entry"))))
        elif kind == "kit.loaded": self.loaded = True
        elif kind == "responder.fired": self.fire(data["candidates"])
        elif kind == "responder.completed":
            del self.asked[data["address"]]
            self.close()
        elif kind == "output.rejected":
            place = tuple(map(data["derived"].get, ("responder", "item", "entry")))
            reply = self.current and self.current.reply if place[0] else None
            self.rejected = (place[0] or "goal",) + place[1:] + (data["code"], data["message"])
            self.rejected += (reply.address if reply else None,)
        elif kind == "responder.failed":
            name, self.rejected = data["responder"], None
            continues = self.plan.by_name.get(name, {}).get("on_error") == "continue"
            if data.get("address") is not None:
                self.asked[data["address"]].state = "aside"
                if continues: del self.asked[data["address"]]
            if name == "goal" and not self.fired: self.goal_next = len(self.plan.goal)
            elif self.firing and frame.cause[:1] == [self.current.seq]: self.abandon(name)
            self.failing = self.failing or not continues
        elif kind == "budget.exhausted": self.exhausted = self.failing = True
        elif kind == "budget.raised":
            self.exhausted = False
            self.raised.update({name: data[name] for name in LIMITS if name in data})
            if self.status == "run.failed":
                self.take_up(True)
                self.reopen()

class Worlds:
    """The worlds of the runs in an archive."""
    def __init__(self, evidence): self.evidence = evidence

    def claim_world(self):
        if MISSING: return None, MISSING
        last = {one.stream: one.seq for one in self.evidence.frames}
        judged, evaluated, unknown = 0, 0, []
        for stream in sorted(last):
            if stream.split(":")[0] not in ("run", "branch", "recompute"): continue
            world = World(self.evidence, stream)
            try: world.read(last[stream])
            except Unknown as why: world.unknown.append("the rest of %s: %s" % (stream, why))
            judged, evaluated = judged + world.judged, evaluated + world.evaluated
            unknown += world.unknown
        words = "%s about worlds follow from others" % count(judged, "frame")
        if evaluated: words += "; what guards, templates and replies make only ktsu evaluates"
        if len(unknown) > 1: words += "; not covered at %d places" % len(unknown)
        if unknown: words += "; not covered: " + unknown[0]
        return (None, words) if unknown or evaluated else words
