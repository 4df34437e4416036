"""The part of verify.py that judges what agents did and on whose word: whether every call of a
tool is accounted for, and whether people allowed what they had to be asked about. It is used by
verify.py and does nothing by itself.

A task is a step, or an item of one, that an agent works on. A reply of its model asks for calls,
and the task goes on when each of them has a result. What a call goes through:

    approval.requested   its definition asks for people first; approval.decided, approval.expired
    tool.called          it is sent; without an answer perhaps once more
    tool.in_doubt        it is unknown whether it happened; approval.decided says, if a person does
    tool.returned        its result, or why it was not sent
"""
import datetime, hashlib, json

from verify import BROKEN, NO_BLAKE3, Real, Wrong, blake3, check, count, is_number, load, part
from verify import same, work_of, wrong_if

REPEATED, REVIEWS = part("verify_repeated.py"), part("verify_reviews.py")
MISSING = REVIEWS if isinstance(REVIEWS, str) else REVIEWS.MISSING

# What the frames that are judged here say: their members, and those that they may leave out.
TASK, ITEM, WORD = {"attempt": int, "step": str}, {"item": int}, ({"by": dict}, {})
CREATED = {"principal": dict}, {"effects": str}
PLACE = dict(TASK, call=int, response=int, report=dict)
CALL = dict(PLACE, arguments=dict, digest=str, server=str, tool=str)
SHAPES = {
    "run.created": CREATED, "recompute.created": CREATED,
    "branch.created": ({"by": dict, "effects": str}, {"digest": str, "restarts": bool}),
    "run.resumed": WORD, "run.paused": WORD, "run.cancelled": WORD, "run.terminated": WORD,
    "run.completed": ({}, {}), "run.failed": ({}, {}), "clock.jumped": ({}, {"forward_ms": int}),
    "step.started": ({"step": str}, {"resume_step": str}), "step.reset": ({"step": str}, {}),
    "worker.dispatched": (TASK, ITEM), "reflect.started": (TASK, ITEM),
    "llm.request": (dict(TASK, digest=str, group=str, max_tokens=int, report=dict),
                    dict(ITEM, base=int, temperature_millionths=int)),
    "llm.response": (dict(TASK, output_hash=str, request=int), dict(ITEM, report=dict)),
    "budget.exhausted": (dict(TASK, report=dict), ITEM),
    "approval.expired": (dict(TASK, request=int), ITEM),
    "agent.decided": (dict(TASK, report=dict), dict(ITEM, response=int)),
    "agent.finished": (TASK, dict(ITEM, report=dict)),
    "tool.called": (dict(CALL, idempotency_key=str), dict(ITEM, again=int, approval=int)),
    "tool.returned": (dict(PLACE, duration_ms=int),
                      dict(ITEM, called=int, is_error=bool, not_sent=str, recorded=dict)),
    "tool.in_doubt": (dict(TASK, called=int, reason=str), dict(ITEM, report=dict)),
    "approval.requested": (dict(CALL, policy=dict), ITEM),
    "approval.decided": (dict(TASK, by=dict, decision=str, digest=str, request=int),
                         dict(ITEM, reason=str, result=str)),
}
WORDS = {("run.created", "effects"): (None, "execute", "suppress"),
    ("approval.decided", "decision"): ("approved", "rejected", "happened"),
    ("tool.in_doubt", "reason"): ("no_answer", "worker_lost", "task_ended"),
    ("tool.returned", "not_sent"): (None, "unknown_tool", "invalid_arguments", "rejected",
                                    "in_doubt", "secret_in_arguments", "suppressed_in_branch"),
}
if not MISSING:
    SHAPES.update(REVIEWS.SHAPES)
    WORDS.update(REVIEWS.WORDS)
ENDS = "approval_rejected", "approval_timed_out", "tool_in_doubt"
ENGINE = "tool.in_doubt", "approval.decided", "approval.expired", "llm.response"
REJECTED, EXPIRED, HEAT = ("fail", "recover"), ("fail", "reject"), "temperature_millionths"

def of_world(frame): return frame.type == "budget.exhausted" and "reasons" in frame.data
def shaped(frame):
    """Whether a frame says what its type has to say."""
    (needed, optional), data = SHAPES.get(frame.type, ({}, {})), frame.data
    if of_world(frame): return
    for name, kind in needed.items(): check(type(data.get(name)) is kind)
    for name, kind in optional.items(): check(data.get(name) is None or type(data[name]) is kind)
    for name in list(needed) + list(optional):
        if type(data.get(name)) is int: check(0 <= data[name] < 1 << 53)
    for (kind, name), words in WORDS.items():
        if kind == frame.type: check(data.get(name) in words)
    for name, kinds in (("report", {"digest": str, "n": int}), ("by", {"auth": str, "id": str})):
        if name in needed or data.get(name) is not None and name in optional:
            check(all(type(data[name].get(one)) is kind for one, kind in kinds.items()))

def canonical(value):
    """The text of a value that was read: its keys are in order, its numbers as written."""
    if isinstance(value, dict):
        return "{%s}" % ",".join(canonical(key) + ":" + canonical(value[key]) for key in value)
    if isinstance(value, list): return "[%s]" % ",".join(map(canonical, value))
    return value.text if isinstance(value, Real) else json.dumps(value, ensure_ascii=False)

def sha256(value): return "sha256:" + hashlib.sha256(canonical(value).encode()).hexdigest()
def micros(text):
    moment = datetime.datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fZ")
    return (moment - datetime.datetime(1970, 1, 1)) // datetime.timedelta(microseconds=1)

class Question:
    """What people are asked about a call: before it (a gate, with a policy), or after it, when
    it is unknown whether it happened. `state` is what came of it."""
    def __init__(self, frame, digest, policy=None):
        timeout = (policy or {}).get("timeout")
        check(not policy or is_number(policy["quorum"]) and policy["on_reject"] in REJECTED)
        check(not timeout or is_number(timeout["ms"]) and timeout["behavior"] in EXPIRED)
        self.frame, self.digest, self.policy = frame, digest, policy
        self.until = micros(frame.at) + timeout["ms"] * 1000 if timeout else None
        self.state, self.approved_by, self.result = None, set(), None

    def dooms(self):
        if self.policy is None: return "tool_in_doubt" if self.state == "rejected" else None
        recovers, timeout = self.policy["on_reject"] == "recover", self.policy.get("timeout") or {}
        if self.state == "rejected" and not recovers: return "approval_rejected"
        rejects = recovers and timeout.get("behavior") == "reject"
        return "approval_timed_out" if self.state == "expired" and not rejects else None

class Call:
    """A call that a reply asks for, and how far it is."""
    def __init__(self, wanted):
        self.name, self.secret = wanted["name"], wanted.get("secret") is True
        self.digest = blake3(canonical(wanted["arguments"]).encode("utf-8"))
        self.returned = False
        self.forget()

    def forget(self):
        """A branch begins: what has no result has not happened in it."""
        self.sent, self.open, self.gate, self.doubt = [], False, None, None

class Task:
    """What is known of a task: its attempt and the last report of it; the request without a reply;
    the last reply, its calls, and which tools its model was offered; the digests of what later
    requests may name; whether it asks people, whether it is over."""
    def __init__(self, attempt=None, over=False):
        self.attempt, self.report, self.request = attempt, None, None
        self.response, self.calls, self.replied, self.offered = None, [], None, []
        self.digests, self.doomed, self.over = {}, None, over
        self.decided = self.asks = False

    def call(self, data):
        known = data["response"] == self.response and data["call"] < len(self.calls)
        return self.calls[data["call"]] if known else None

    def question(self, request):
        asked = [one for call in self.calls for one in (call.gate, call.doubt) if one]
        return next((one for one in asked if one.frame.seq == request), None)

class Story(object if MISSING else REVIEWS.People):
    """A run from its beginning, with all that it shares. What is wrong is kept by claim, the first
    of each; frames are taken for what they say whatever is wrong with them."""
    def __init__(self, evidence, stream, last):
        self.evidence, self.stream, self.wrong = evidence, stream, {}
        self.tasks, self.offers, self.digests = {}, {}, {}
        self.made, self.decided, self.unknown, self.ended = [], [], [], False
        self.proposer = self.definition = self.plan = self.paused = self.brought = None
        self.suppresses, self.used = stream.startswith("recompute:"), set()
        self.reviews, self.acting, self.unclear = {}, {}, []  # By scope and step.
        before = ""
        for seq in range(last + 1):
            self.frame = evidence.shared(stream, seq)
            wrong_if(self.frame is None, "the frames of %s cannot be read" % stream)
            early, before = self.frame.at < before, self.frame.at
            self.blame("approvals", early, "it is earlier than the frame before it")
            try:
                shaped(self.frame)
                self.take(self.frame, self.frame.data)
            except BROKEN as error: raise Wrong("it cannot be read: %r" % error, self.frame.id)

    def blame(self, claim, condition, reason, frame=None):
        if condition: self.wrong.setdefault(claim, Wrong(reason, (frame or self.frame).id))

    def take(self, frame, data):
        kind = frame.type.replace(".", "_")
        if frame.type not in SHAPES or of_world(frame): return
        if hasattr(self, "on_" + kind): getattr(self, "on_" + kind)(frame, data)
        else:
            task = self.tasks.setdefault((frame.scope, data["step"], data.get("item")), Task())
            self.spoken(task, frame, data)
            if hasattr(self, "task_" + kind): getattr(self, "task_" + kind)(task, frame, data)

    def member(self, frame, name):
        blob = next((one["hash"] for one in frame.ext if one["path"] == "/" + name), None)
        if blob is None: return frame.data.get(name)
        blob = self.evidence.blob(blob)
        wrong_if(blob is None, "one of its blobs is missing or another", frame.id)
        check(frame.data.get(name) is None)
        return load(blob.decode("utf-8"))

    def on_run_created(self, frame, data):
        self.proposer, self.definition, self.plan = data["principal"]["id"], frame, None
    on_recompute_created = on_run_created

    def on_branch_created(self, frame, data):
        self.proposer, self.ended = data["by"]["id"], False
        self.suppresses = data["effects"] == "suppress"
        if data.get("digest") is not None: self.definition, self.plan = frame, None
        if data.get("digest") is not None or data.get("restarts"): self.tasks, self.reviews = {}, {}
        for review in self.reviews.values(): review.ask_again()
        for task in self.tasks.values():
            task.doomed, task.asks, task.over = None, False, False
            for call in (one for one in task.calls if not one.returned): call.forget()

    def on_step_started(self, frame, data):
        """What a step, or a child in it, did before it began anew is of no consequence."""
        inner = (frame.scope + "/" + data["step"]).lstrip("/")
        def stays(scope, step, *_):
            own = (scope, step) == (frame.scope, data["step"])
            return not own and not (scope + "/").startswith(inner + "/")
        self.tasks = {place: task for place, task in self.tasks.items() if stays(*place)}
        self.reviews = {place: one for place, one in self.reviews.items() if stays(*place)}
        self.acting = {place: one for place, one in self.acting.items() if stays(*place)}
        if data.get("resume_step"): self.acting[frame.scope, data["step"]] = data["resume_step"]
    on_step_reset = on_step_started
    def work_at(self, frame, data):
        """The work of a step, or of the one that it was resumed to."""
        if self.plan is None: self.plan = self.member(self.definition, "definition")
        acting = self.acting.get((frame.scope, data["step"]), data["step"])
        return work_of(self.plan, frame.scope, acting)

    def on_run_resumed(self, frame, data):
        if self.paused: self.postpone((micros(frame.at) - self.paused) // 1000 * 1000)
        self.spoke(frame, data, None, False)
    def on_run_paused(self, frame, data): self.spoke(frame, data, micros(frame.at), self.ended)
    def on_run_cancelled(self, frame, data): self.spoke(frame, data, None, True)
    on_run_terminated = on_run_cancelled
    def spoke(self, frame, data, paused, ended):
        other = frame.actor != "principal:" + data["by"]["id"]
        self.blame("approvals", other, "the person named is not the one who appended it")
        self.paused, self.ended = paused, ended
    def on_run_completed(self, frame, _): self.ended = self.ended or not frame.scope
    on_run_failed = on_run_completed
    def on_clock_jumped(self, _, data): self.postpone(1000 * (data.get("forward_ms") or 0))
    def postpone(self, by):
        gates = [call.gate for task in self.tasks.values() for call in task.calls]
        for gate in gates + list(self.reviews.values()):
            if gate and gate.until: gate.until += by
    def moment(self, frame): return micros(frame.at)
    def late(self, asked, frame):
        """Whether the time to decide is over; it does not pass while the run is paused."""
        return asked.until is not None and asked.until <= (self.paused or micros(frame.at))

    def task_worker_dispatched(self, task, _, data):
        task.attempt, task.report, task.asks, task.over = data["attempt"], None, False, False

    def task_llm_request(self, task, frame, data):
        waits = any(not call.returned for call in task.calls)
        self.blame("tools", waits, "the model has not got every result of what it asked for before")
        self.blame("approvals", task.doomed, "what people said has ended its task")
        offered, base = self.member(frame, "tools"), data.get("base")
        self.offers[frame.seq] = self.offers.get(base) if offered is None else offered
        self.digests[frame.seq], task.request = data["digest"], frame.seq
        asked = {"group": data["group"], "max_tokens": data["max_tokens"],
                 "messages": [self.named(task, one) for one in self.member(frame, "messages")]}
        if base is not None: asked = dict({"base": self.digests.get(base)}, **asked)
        if data.get(HEAT) is not None: asked[HEAT] = data[HEAT]
        if offered is not None: asked["tools"] = offered
        right = not blake3(b"") or data["digest"] == sha256(asked)
        self.blame("tools", not right, "its digest is not that of what the model is asked")

    def named(self, task, message):
        """A message as it is digested: by its own digest where it is in another frame."""
        if message.get("frame") is None: return message
        return {"digest": task.digests.get(message["frame"]), "role": message["role"]}

    def task_llm_response(self, task, frame, data):
        right = data["request"] == task.request and data["input_hash"] == self.digests[task.request]
        self.blame("tools", not right, "it is not the reply to the last request of its task")
        calls, content = self.member(frame, "tool_calls"), self.member(frame, "content")
        said = content if calls is None else {"content": content, "tool_calls": calls}
        right = REPEATED.reply(self, frame, data["output_hash"] == sha256(said))
        self.blame("tools", not right, "its digest is not that of what the model said")
        task.request, task.response, task.replied = None, frame.seq, data["attempt"]
        task.calls, task.decided = [Call(one) for one in calls or []], False
        task.offered = self.offers.get(data["request"]) or []
        if calls: task.digests[frame.seq] = data["output_hash"]

    def task_agent_decided(self, task, _, data):
        if data.get("response") is None: return
        right = data["response"] == task.response and task.calls and not task.decided
        self.blame("tools", not right, "it is not about the last reply of its task")
        task.decided = True

    def task_agent_finished(self, task, frame, data):
        """What is still on its way when a task ends is in doubt before."""
        for call in task.calls:
            reason = "its task has ended, and nothing says what became of the call"
            if call.open: self.blame("tools", True, reason, call.sent[-1])
        outcome = self.member(frame, "outcome") or {}
        gives, code = outcome.get("output") is not None, (outcome.get("error") or {}).get("code")
        waits = any(not call.returned for call in task.calls)
        self.blame("tools", gives and waits, "it has an output before it has every result")
        ends = data.get("report") is None and code in ENDS and code != task.doomed
        self.blame("approvals", ends, "the decision that it ended by was not made")
        self.blame("approvals", gives and task.doomed, "what people said has ended its task")
        self.tasks[frame.scope, data["step"], data.get("item")] = Task(task.attempt, over=True)

    def rules(self, frame, data):
        try:
            work = self.work_at(frame, data)
            agent = self.plan["agents"][work["agent"]["file"]]
            server = next(one for one in agent.get("servers", []) if one["name"] == data["server"])
        except (KeyError, TypeError, StopIteration): return None, []
        tool, found = data["tool"], []
        for rule in server["tools"]:
            start = rule["pattern"][:-1] if rule["pattern"].endswith("*") else None
            if tool == rule["pattern"] or start is not None and tool.startswith(start):
                found.append(rule)
        return server, found

    def policy(self, frame, data):
        """What people are asked before the tool is called; None if no one is."""
        rules = self.rules(frame, data)[1]
        return next((rule["approval"] for rule in rules if rule.get("approval") is not None), None)

    def meant(self, task, call, data):
        target, full = (data["server"], data["tool"]), data["server"] + "__" + data["tool"]
        named = [(one.get("server"), one.get("tool")) for one in task.offered
                if one.get("name") == call.name]
        right = named[0] == target if named else call.name == full
        # A later attempt asks the servers again what they offer, and no request shows that.
        unknown = not task.offered or data["attempt"] != task.replied
        return right or unknown and call.name in (data["tool"], full)

    def spoken(self, task, frame, data):
        """What holds for every frame about a task: it is not over, and the report is the next one,
        or the last one still; who appended it, and in which attempt."""
        report, before = data.get("report"), task.report
        if report is not None:
            follows = before is None or report == before or not report["n"]
            follows = follows or not task.asks and 0 < before["n"] < report["n"]
            self.blame("tools", not follows, "its report is not the next one of its task")
            task.report = report
        claim = "approvals" if frame.type.startswith("approval.") else "tools"
        ends = frame.type in ("tool.in_doubt", "agent.finished", "worker.dispatched")
        self.blame(claim, task.over and not ends, "its task has ended")
        if report is None and frame.type not in ENGINE: return
        self.blame(claim, data["attempt"] != task.attempt, "it is of an attempt that is not on")
        actor = "orchestrator" if report is None else "runtime"
        other = frame.actor != actor and frame.type != "approval.decided"
        self.blame(claim, other, "it was appended by another actor")

    def wanted(self, task, data):
        """The call that a frame is about, which has to be one of the last reply."""
        call = task.call(data)
        self.blame("tools", call is None, "the last reply of its task does not ask for this call")
        if call is None: return None
        self.blame("tools", not task.decided, "the agent has not decided to make the call")
        self.blame("tools", call.returned, "the call has a result already")
        return call

    def fits(self, task, call, frame, data):
        """Whether a frame that names a tool is about what the reply asks for, and permitted."""
        path = "/tool_calls/%d/arguments" % data["call"]
        right = data["arguments"] == {"frame": data["response"], "path": path}
        right = right and call.digest in (None, data["digest"])
        self.blame("tools", not right, "its arguments are not those that the reply asks for")
        self.blame("tools", call.secret, "its arguments hold a secret, and such a call is not sent")
        self.blame("tools", not self.meant(task, call, data), "another tool was asked for")
        self.blame("tools", not self.rules(frame, data)[1], "its definition does not permit it")

    def task_tool_called(self, task, frame, data):
        self.made.append(frame)
        call = self.wanted(task, data)
        if call is None: return
        self.fits(task, call, frame, data)
        self.allowed(task, call, frame, data)
        first, again = call.sent[0] if call.sent else frame, data.get("again")
        right = again == first.seq and same(first.data, data, "server", "tool", "approval") \
            if call.sent else again is None
        self.blame("tools", not right, "it does not follow from the earlier sending of the call")
        key = blake3(("ktsu tool call\n%s#%d" % (frame.stream, first.seq)).encode())
        right = key is None or data["idempotency_key"] == key[:32]
        self.blame("tools", not right, "its idempotency key is not that of the call")
        if call.open:
            server = self.rules(frame, data)[0] or {"stateful": True}
            right = not server.get("stateful") and call.sent[-1].data["attempt"] < data["attempt"]
            self.blame("tools", not right, "it was on its way already")
        call.sent.append(frame)
        call.open, call.doubt = True, None

    def task_tool_in_doubt(self, task, frame, data):
        called = [one for one in task.calls if one.open and one.sent[-1].seq == data["called"]]
        self.blame("tools", not called, "it is about a call that is not on its way")
        for call in called:
            call.open, task.asks = False, task.asks or data.get("report") is not None
            task.over = data["reason"] == "task_ended"
            call.doubt = None if task.over else Question(frame, call.sent[-1].data["digest"])

    def task_tool_returned(self, task, frame, data):
        call = self.wanted(task, data)
        if call is None: return
        why, called = data.get("not_sent"), data.get("called")
        if data.get("recorded") is not None: self.repeats(task, call, frame, data)
        elif why is None:
            right = call.sent and called == call.sent[-1].seq and (call.open or call.doubt)
            self.blame("tools", not right, "it is the result of a call that was never made")
            if call.doubt: self.testified(call.doubt, frame, data)
        else:
            right = called is None and not call.open
            self.blame("tools", not right, "it was sent, and is said not to have been")
            self.blame("tools", not data.get("is_error"), "what was not sent gives no result")
            lie = why == "secret_in_arguments" and not call.secret
            lie = lie or why == "suppressed_in_branch" and not self.suppresses
            self.blame("tools", lie, "nothing held the call back")
            self.held_back(call, why)
        self.blame("approvals", task.doomed, "what people said has ended its task")
        call.returned, call.open = True, False
        content = {"content": self.member(frame, "content"), "is_error": bool(data.get("is_error")),
                "structured": self.member(frame, "structured")}
        task.digests[frame.seq] = blake3(canonical(content).encode("utf-8"))

    def repeats(self, task, call, frame, data):
        self.made.append(frame)
        wrong = not isinstance(REPEATED, str) and REPEATED.judge(self, task, call, frame, data)
        self.blame("tools", wrong, wrong)

    def allowed(self, task, call, frame, data):
        """Whether people allowed a call, if they had to be asked."""
        gate, approval = call.gate, data.get("approval")
        missing = approval is None and self.policy(frame, data) is not None
        self.blame("approvals", missing, "it was made without the approval its definition asks for")
        if approval is not None:
            asked = gate is not None and gate.frame.seq == approval
            self.blame("approvals", not asked, "no approval was requested for it")
            other = asked and not same(gate.frame.data, data, "digest", "server", "tool")
            self.blame("approvals", other, "people were asked about another call")
            refused = asked and gate.state != "approved"
            self.blame("approvals", refused, "people did not approve it")
        doubted = call.doubt is not None and call.doubt.state != "approved"
        self.blame("approvals", doubted, "it was in doubt, and no decision allows sending it again")
        self.blame("approvals", task.doomed, "what people said has ended its task")

    def held_back(self, call, why):
        """Whether people say the same of a call that was not sent."""
        gate, doubt = (one and (one.state or "open") for one in (call.gate, call.doubt))
        if why == "rejected": right = gate in ("rejected", "expired") and doubt is None
        elif why == "in_doubt": right = doubt == "rejected"
        else: right = gate in (None, "approved") and doubt in (None, "approved")
        self.blame("approvals", not right, "people did not say so")

    def testified(self, doubt, frame, data):
        """Whether the result of a call in doubt is the one that a person gave."""
        right = doubt.state == "happened"
        self.blame("approvals", not right, "no decision says that the call in doubt happened")
        content = [{"text": doubt.result or "", "type": "text"}]
        gave = self.member(frame, "content"), self.member(frame, "structured")
        right = gave == (content, None) and not data.get("is_error")
        self.blame("approvals", not right, "it is not what the call is said to have given")

    def task_approval_requested(self, task, frame, data):
        call = self.wanted(task, data)
        if call is None: return
        self.fits(task, call, frame, data)
        policy = self.policy(frame, data)
        right = policy is not None and canonical(policy) == canonical(data["policy"])
        self.blame("approvals", not right, "its definition says otherwise who is asked about it")
        twice = call.gate is not None or call.sent
        self.blame("approvals", twice, "people were asked about the call before")
        self.blame("approvals", task.doomed, "what people said has ended its task")
        call.gate, task.asks = Question(frame, data["digest"], data["policy"]), True

    def task_approval_decided(self, task, frame, data):
        by, said, asked = data["by"]["id"], data["decision"], task.question(data["request"])
        self.decided.append(frame.id)
        if data["by"]["auth"] == "none": self.unknown.append(frame.id)
        own = frame.actor == "principal:" + by
        self.blame("approvals", not own, "the person who decided is not the one who appended it")
        self.blame("approvals", asked is None, "it answers a request that does not exist")
        if asked is None: return
        self.blame("approvals", asked.state, "the question was answered before")
        right = asked.digest == data["digest"]
        self.blame("approvals", not right, "it is about other arguments than those of the call")
        self.blame("approvals", self.late(asked, frame), "it came when the time to decide was over")
        policy = asked.policy or {"quorum": 1}
        self.blame("approvals", asked.policy and said == "happened", "it was not sent")
        given = data.get("result") is not None and said != "happened"
        self.blame("approvals", given, "it gives the result of a call that did not happen")
        if said == "approved":
            own = policy.get("not_by_proposer") and by == self.proposer
            self.blame("approvals", own, "the person who started the run may not approve the call")
            self.blame("approvals", by in asked.approved_by, "one person counts once")
            asked.approved_by.add(by)
            if len(asked.approved_by) >= max(policy["quorum"], 1): asked.state = said
        else: asked.state, asked.result = said, data.get("result")
        task.doomed = task.doomed or asked.dooms()

    def task_approval_expired(self, task, frame, data):
        asked = task.question(data["request"])
        right = asked and not asked.state and self.late(asked, frame)
        self.blame("approvals", not right, "no wait was over")
        if not asked: return
        asked.state = "expired"
        task.doomed = task.doomed or asked.dooms()

class Said:
    def __init__(self, evidence):
        self.evidence, self.known = evidence, None

    def stories(self):
        if self.known is None:
            frames = [one for one in self.evidence.frames if not one.stream.startswith("eval:")]
            kinds = "llm", "tool", "approval", "review", "suspend"
            streams = {one.stream for one in frames if one.type.split(".")[0] in kinds}
            last = {one.stream: one.seq for one in frames}
            self.known = [Story(self.evidence, one, last[one]) for one in sorted(streams)]
        return self.known

    def claim_approvals(self):
        for story in self.stories():
            if "approvals" in story.wrong: raise story.wrong["approvals"]
        unknown = [one for story in self.stories() for one in story.unknown]
        if MISSING: return None, MISSING
        unclear = [one for story in self.stories() for one in story.unclear]
        if unknown: return None, unknown[0] + ": the person was not authenticated (auth: none)"
        if unclear: return None, unclear[0]
        decided = len({one for story in self.stories() for one in story.decided})
        return count(decided, "valid decision") if decided else "nothing required a decision"

    def claim_tools(self):
        open_ = None
        for story in self.stories():
            if "tools" in story.wrong: raise story.wrong["tools"]
            for call in (call for task in story.tasks.values() for call in task.calls if call.open):
                called, reason = call.sent[-1].id, "nothing says what became of the call"
                wrong_if(story.ended, "its run has ended, and " + reason, called)
                open_ = open_ or called
        if open_: return None, open_ + ": its run continues, and the call has no result yet"
        made = {frame.id for story in self.stories() for frame in story.made}
        repeats = any("recorded" in frame.data for frame in self.evidence.frames)
        if repeats and isinstance(REPEATED, str): return None, REPEATED
        if not made: return "no tool was called"
        return "accounted for: " + count(len(made), "call") if blake3(b"") else NO_BLAKE3
