"""The part of verify.py that judges reviews: whether an outcome that asks for one counts only once
people have approved it, whether those who decided may under the policy of its definition, and which
values hold where people replaced some. It is used by verify_calls.py and verify_commands.py and
does nothing by itself.

    command.requested {review}, command.deferred, review.requested   the others wait for people
    review.decided {approved}   the others are carried out, and the step completes
    review.decided {rejected}   command.discarded, and the step fails
    timer.fired {review}        the same, if the policy rejects then; otherwise the step fails
"""
import json

from verify import check, is_number, part

SUSPENSIONS = part("verify_suspensions.py")
MISSING = SUSPENSIONS if isinstance(SUSPENSIONS, str) else None

REJECTED, TIMED_OUT = "review_rejected", "review_timed_out"
UNKNOWN = "no decision that holds has what it takes"
REPLACED = "it takes what the person who approved the output replaced"
OUTPUT, OVERLAY = "/outcome/output", "/overlay/"
SHAPES = {
    "command.requested": ({"type": str}, {"item": int, "step": str, "suppressed": bool}),
    "review.requested": ({"attempt": int, "command": int, "policy": dict, "step": str}, {}),
    "review.decided": ({"attempt": int, "by": dict, "decision": str, "request": int, "step": str},
                       {"reason": str}),
    "timer.fired": ({"timer": str}, {"step": str}),
}
WORDS = {("review.decided", "decision"): ("approved", "rejected")}
if not MISSING: SHAPES.update(SUSPENSIONS.SHAPES)

class Review:
    """What people are asked about an outcome: by which command, with which others at its side.
    `state` is due, pending, approved, rejected or timeout; `last` the frame that decided it."""
    def __init__(self, command, siblings):
        self.command, self.siblings = command, siblings
        self.deferred = self.discarded = False
        self.state, self.request, self.until, self.last = "due", None, None, None

    def ask(self, seq, policy, until=None):
        timeout = policy["timeout"]
        check(is_number(policy["quorum"]) and is_number(timeout["ms"]))
        check(timeout["behavior"] in ("fail", "reject"))
        self.state, self.request, self.policy, self.until = "pending", seq, policy, until
        self.approved_by, self.overlay = [], {}

    def open(self, request): return self.state == "pending" and self.request == request

    def decide(self, seq, by, decision, fields):
        """A rejection is enough; together approvals replace whatever one of them does."""
        if decision == "approved":
            self.approved_by.append(by)
            for field, value in fields.items(): self.overlay.setdefault(field, (seq, value))
            if len(self.approved_by) < max(self.policy["quorum"], 1): return
        self.state, self.last = decision, seq

    def differs(self, fields):
        """Whether an earlier approval replaced one of these fields otherwise."""
        def text(value): return json.dumps(value, sort_keys=True)
        return any(field in self.overlay and text(self.overlay[field][1]) != text(value)
                   for field, value in fields.items())

    def end(self, seq):
        if self.state == "pending": self.state, self.last = "timeout", seq

    def ask_again(self):
        if self.state == "pending": self.state = "due"

    def refused(self): return self.state in ("rejected", "timeout")
    def rejects(self):
        ends = self.state == "timeout" and self.policy["timeout"]["behavior"] == "reject"
        return self.state == "rejected" or ends

    def code(self):
        """With which code the step of a refused outcome fails."""
        return (REJECTED if self.rejects() else TIMED_OUT) if self.refused() else None

    def may_defer(self, data):
        right = self.state == "due" and not self.deferred and self.siblings
        return right and data["request"] == self.command and data["indexes"] == self.siblings

    def may_ask(self, data):
        right = self.state == "due" and (self.deferred or not self.siblings)
        return right and data["command"] == self.command

    def discards(self): return self.rejects() and bool(self.siblings) and not self.discarded
    def may_discard(self, data):
        right = self.discards() and data["decision"] == self.last
        return right and data["indexes"] == self.siblings

class People(object if MISSING else SUSPENSIONS.Givers):
    """Who decided, for the claim about approvals."""
    def on_command_requested(self, frame, data):
        if data["type"] == "suspend": return self.command_suspension(frame, data)
        if data["type"] == "review" and not data.get("suppressed") and data.get("item") is None:
            self.reviews[frame.scope, data["step"]] = Review(frame.seq, [])

    def policy_of_review(self, frame, data):
        try:
            work = self.work_at(frame, data)
            return self.plan["agents"][work["agent"]["file"]]["commands"]["review"]
        except (KeyError, TypeError): return None

    def on_review_requested(self, frame, data):
        review, policy = self.reviews.get((frame.scope, data["step"])), data["policy"]
        right = self.policy_of_review(frame, data) == policy
        words = "its definition says otherwise who decides on the outcome"
        self.blame("approvals", not right, words)
        right = review is not None and review.may_ask(data)
        self.blame("approvals", not right, "no command asks for it now")
        if review is None: return
        review.ask(frame.seq, policy, self.moment(frame) + policy["timeout"]["ms"] * 1000)

    def on_review_decided(self, frame, data):
        review, by = self.reviews.get((frame.scope, data["step"])), data["by"]["id"]
        self.decided.append(frame.id)
        if data["by"]["auth"] == "none": self.unknown.append(frame.id)
        own = frame.actor == "principal:" + by
        self.blame("approvals", not own, "the person who decided is not the one who appended it")
        right = review is not None and review.open(data["request"])
        self.blame("approvals", not right, "it answers no review that is open")
        if not right: return
        approves, fields = data["decision"] == "approved", self.member(frame, "overlay") or {}
        late = self.late(review, frame)
        self.blame("approvals", late, "it came when the time to decide was over")
        own = approves and review.policy.get("not_by_proposer") and by == self.proposer
        words = "the person who started the run may not approve the outcome"
        self.blame("approvals", own, words)
        twice = approves and by in review.approved_by
        self.blame("approvals", twice, "one person counts once")
        other = approves and review.differs(fields)
        self.blame("approvals", other, "another person replaced the field otherwise")
        self.blame("approvals", not approves and fields, "a rejection replaces nothing")
        reserved = any(field.startswith("ktsu_") for field in fields)
        self.blame("approvals", reserved, "it replaces a reserved field")
        review.decide(frame.seq, by, data["decision"], fields)

    def on_timer_fired(self, frame, data):
        if data["timer"] == "suspend": return self.end_suspension(frame, data)
        if data["timer"] != "review": return
        review = self.reviews.get((frame.scope, data.get("step")))
        over = review is not None and review.state == "pending" and self.late(review, frame)
        self.blame("approvals", not over, "no wait was over")
        if review is not None: review.end(frame.seq)

def first_name(path): return path.split("/")[0].replace("~1", "/").replace("~0", "~")

class Reviewed:
    """Outputs that people approved: by the frame that ends the task, with the step once that has
    completed; the frames that complete such steps; what people replaced of the output of a step,
    each with the decision, or None for a later overlay, which holds for all of its attempts."""
    def __init__(self):
        self.outcomes, self.ends, self.replaced = {}, {}, {}
        self.decisions, self.held = {}, set()  # Each decision with its step.

    def begin_step(self, step):
        """What was replaced in reviews of earlier outcomes does not hold any more."""
        if step not in self.replaced: return
        later = {field: seq for field, seq in self.replaced[step].items() if seq is None}
        self.replaced[step] = later
        self.held = {one for one in self.held if self.decisions.get(one[0]) != step}

    def complete(self, step, finished, completed, overlay):
        self.outcomes[finished] = self.ends[completed] = step
        self.held.update((seq, field) for field, seq in overlay.items())
        self.replaced.setdefault(step, {}).update(overlay)

    def judge(self, value):
        """What is wrong with an input."""
        if value.get("ref") is not None: return self.judge_place(value["ref"])
        sources = (value.get("value") or {}).get("from")
        return self.judge_sources(sources) if isinstance(sources, list) else None

    def judge_place(self, place):
        frame, path = place["frame"], place["path"]
        if path.startswith(OVERLAY):
            there = (frame, first_name(path[len(OVERLAY):])) in self.held
            return UNKNOWN if frame in self.decisions and not there else None
        if not path.startswith(OUTPUT) or frame not in self.outcomes: return None
        step = self.outcomes[frame]
        if step is None: return "it takes an output that people have not approved"
        replaced, rest = self.replaced.get(step, {}), path[len(OUTPUT):]
        if not rest.startswith("/"): return REPLACED if replaced else None
        return REPLACED if replaced.get(first_name(rest[1:])) is not None else None

    def judge_sources(self, sources):
        holding = {seq for seq, _ in self.held}
        if any(seq in self.decisions and seq not in holding for seq in sources): return UNKNOWN
        steps = [self.ends[seq] for seq in sources if seq in self.ends]
        needed = [seq for step in steps for seq in self.replaced.get(step, {}).values()]
        missing = any(seq is not None and seq not in sources for seq in needed)
        return REPLACED if missing else None

class Order(object if MISSING else SUSPENSIONS.Waits):
    """What is deferred, carried out and discarded, for the claim about outputs."""
    def origin(self, frame, data, step):
        """A frame about a review or a suspension is the engine's, where no person has the word, and
        of the attempt that ended."""
        people = "review.decided", "suspend.resumed"
        other = frame.type not in people and frame.actor != "orchestrator"
        self.blame(frame, other, "it was appended by another actor")
        other = "attempt" in data and data["attempt"] != self.task(step, None).attempt
        self.blame(frame, other, "it is of another attempt")

    def command_review(self, frame, data, task, work):
        declared = self.plan["agents"][work["agent"]["file"]].get("commands") or {}
        # A recompute, which asks no one, has its tasks in fan-outs.
        item = data.get("item") is not None and not data.get("suppressed")
        within = item or "@" in (frame.scope[:1], data["step"][:1])
        words = "its agent does not declare that it asks for reviews, or must not"
        self.blame(frame, declared.get("review") is None or within, words)
        if data.get("suppressed"): return
        others = [at for at in range(len(task.listed("commands"))) if at != data["index"]]
        task.review = Review(frame.seq, others)
        self.reviewed.outcomes[task.seq] = None

    def review_of(self, step): return self.task(step, None).review

    def changed(self, frame, data, step, may, change, words):
        self.origin(frame, data, step)
        review = self.review_of(step)
        self.blame(frame, review is None or not may(review), words)
        if review is not None: change(review)

    def on_command_deferred(self, frame, data, step, _):
        def change(review): review.deferred = True
        words = "it does not defer the other commands of an outcome under review"
        self.changed(frame, data, step, lambda review: review.may_defer(data), change, words)

    def on_command_discarded(self, frame, data, step, _):
        def change(review): review.discarded = True
        words = "it does not discard the other commands of an outcome"
        asked = self.suspension_of(step)
        if asked is None:
            may = lambda review: review.may_discard(data)
            return self.changed(frame, data, step, may, change, words)
        self.changed_suspension(frame, data, step, asked.may_discard(data), words)
        change(asked)

    def on_review_requested(self, frame, data, step, _):
        self.changed(frame, data, step, lambda review: review.may_ask(data),
                     lambda review: review.ask(frame.seq, data["policy"]),
                     "no command asks for it now")

    def on_review_decided(self, frame, data, step, _):
        self.reviewed.decisions[frame.seq] = frame.scope, data["step"]
        fields, by = self.member(frame, "overlay") or {}, data["by"]["id"]
        def change(review):
            if review.open(data["request"]):
                review.decide(frame.seq, by, data["decision"], fields)
        self.changed(frame, data, step, lambda review: review.open(data["request"]), change,
                     "no review of its step waits for it")

    def on_timer_fired(self, frame, data, step, _):
        if data["timer"] == "suspend": return self.end_suspension(frame, data, step)
        self.changed(frame, data, step, lambda review: review.state == "pending",
                     lambda review: review.end(frame.seq), "no review of its step waits for it")

    def on_overlay_set(self, frame, data, *_):
        replaced = self.reviewed.replaced.setdefault((frame.scope, data["step"]), {})
        replaced[data["field"]] = None

    def ask_again(self):
        """A branch begins: what was under way in its parent is asked again."""
        for step in self.steps.values():
            for task in step.tasks.values():
                for asked in (task.review, task.suspension):
                    if asked is not None: asked.ask_again()

    def completed_reviewed(self, frame, data, step):
        task = self.task(step, None)
        self.blame(frame, task.suspension is not None, SUSPENSIONS.COUNTS)
        if task.review is None: return
        approved = task.review.state == "approved"
        self.blame(frame, not approved, "people have not approved its outcome")
        overlay = task.review.overlay if approved else {}
        overlay = {field: seq for field, (seq, _) in overlay.items()}
        self.reviewed.complete((frame.scope, data["step"]), task.seq, frame.seq, overlay)

    def on_step_failed(self, frame, data, step, _):
        """A step fails as its review says, if it fails because of one."""
        task, code = self.task(step, None), data["code"]
        step.failed = code
        # A runtime may end a task with any code.
        given = (task.outcome.get("error") or {}).get("code") == code
        claims = code in (REJECTED, TIMED_OUT) and "agent" in self.work(frame, data["step"])
        review = task.review
        right = review is not None and review.code() == code and not review.discards()
        words = "people have not refused its outcome so"
        self.blame(frame, claims and not given and not right, words)
        self.failed_suspended(frame, data, step, given)

    def on_run_failed(self, frame, data, *_):
        """A run fails with the code of the step that it names."""
        scope, _, name = ("%s/%s" % (frame.scope, data.get("step") or "")).rpartition("/")
        step = self.steps.get((scope.lstrip("/"), name))
        if step is None: return
        if self.review_of(step) is None and self.suspension_of(step) is None: return
        self.blame(frame, step.failed != data["code"], "the step that it names has not failed so")

    def ends_well(self, frame, data):
        """No outcome in a run that completes was refused, and its output is what people left."""
        own = [step for (scope, _), step in self.steps.items() if scope == frame.scope]
        tasks = [step.tasks[None] for step in own if None in step.tasks]
        refused = any(task.review is not None and task.review.refused() for task in tasks)
        self.blame(frame, refused, "people refused the outcome of one of its steps")
        waits = any(task.suspension is not None for task in tasks)
        self.blame(frame, waits, "one of its steps waits for data")
        place = data.get("output_from")
        wrong = place and self.reviewed.judge_place(place)
        self.blame(frame, wrong, wrong)

    def begin_child(self, scope):
        """A child begins anew: what happened within is of no consequence."""
        if not scope or not (self.reviewed.outcomes or self.has_suspended): return
        self.begin_child_suspensions(scope)
        def stays(at): return at != scope and not at.startswith(scope + "/")
        self.steps = {one: step for one, step in self.steps.items() if stays(one[0])}
        replaced = self.reviewed.replaced
        self.reviewed.replaced = {one: replaced[one] for one in replaced if stays(one[0])}

    def takes(self, frame):
        """Whether the inputs that a frame has are values that hold."""
        self.takes_data(frame)
        if not self.reviewed.outcomes: return
        for value in (self.member(frame, "input") or {}).values():
            wrong = self.reviewed.judge(value)
            self.blame(frame, wrong, wrong)
