"""The part of verify.py that judges what is repeated instead of calling. Results in a recompute:
each is one that its first frame brings for these arguments, once, and the one that the run
recorded. Replies of models within a run: each is the one it names, to an identical request. It is
used by verify_calls.py and does nothing by itself.
"""
from verify import same

SAYS = "content", "structured"

def says(story, frame):
    """What a result gives."""
    content = tuple(story.member(frame, name) for name in SAYS)
    return content + (bool(frame.data.get("is_error")), frame.data.get("not_sent"))

def brings(one):
    return tuple(one.get(name) for name in SAYS) + (bool(one.get("is_error")), one.get("not_sent"))

def judge(story, task, call, frame, data):
    """Why a frame does not repeat what it says; None if it does."""
    if call.sent or call.gate or data.get("called") is not None:
        return "it was sent, and is said to repeat a recorded result"
    if not story.meant(task, call, dict(data["recorded"], attempt=data["attempt"])):
        return "its tool is not the one that the reply asks for"
    start, given = story.evidence.shared(story.stream, 0), says(story, frame)
    if story.brought is None:
        created = start.type == "recompute.created"
        story.brought = created and story.member(start, "results") or []
    for number, one in enumerate(story.brought):
        fits = same(one, data, "item", "step", "recorded") and brings(one) == given
        if fits and call.digest in (None, one["digest"]) and number not in story.used: break
    else: return "its recompute brings no such result for the call"
    story.used.add(number)
    return None if recorded(story, call, data["recorded"], given) \
        else "the run recorded another result"

def recorded(story, call, at, given):
    """Whether the frame that is named, if the archive has it, says the same of the same call."""
    there = story.evidence.shared(at["stream"], at["seq"])
    if there is None: return True
    if there.type != "tool.returned" or says(story, there) != given: return False
    if there.data.get("called") is None: return True
    made = story.evidence.shared(at["stream"], there.data["called"])
    if made is None or made.type != "tool.called": return False
    return same(made.data, at, "server", "tool") and call.digest in (None, made.data["digest"])

USED = "cost_micro_usd", "tokens_cached", "tokens_in", "tokens_out", "tokens_reasoning"
CALLED = USED + ("attempts", "duration_ms", "prices", "unpriced")

def reply(story, frame, said):
    """Whether a reply has its own digest, or where it has no report: whether it is the earlier one
    that it names, to an identical request."""
    data = frame.data
    if data.get("report"): return said and data.get("repeats") is None
    if type(data.get("repeats")) is not int or frame.actor != "orchestrator": return False
    if not 0 <= data["repeats"] < data["request"]: return False
    first = story.evidence.shared(story.stream, data["repeats"])
    if first is None or first.type != "llm.response" or not first.data.get("report"): return False
    if first.data.get("error") or data.get("error") or not data.get("cached"): return False
    asked = [story.evidence.shared(story.stream, one.data["request"]) for one in (frame, first)]
    if any(one is None or one.type != "llm.request" for one in asked): return False
    alike = asked[0].data.get("routing") and same(asked[0].data, asked[1].data, "digest", "purpose",
                                                  "routing")
    free = not any(data.get(name) for name in CALLED) and story.member(frame, "content") is None
    saved = all((data.get("saved") or {}).get(name, 0) == first.data.get(name, 0) for name in USED)
    calls = [story.member(one, "tool_calls") for one in (frame, first)]
    return bool(alike and free and saved) and calls[0] == calls[1] \
        and same(data, first.data, "output_hash", "model", "provider")
