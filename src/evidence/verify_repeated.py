"""The part of verify.py that judges results which a recompute repeats instead of calling: each is
one that its first frame brings for these arguments, once, and the one that the run recorded. It is
used by verify_calls.py and does nothing by itself.
"""
from verify import same

SAYS = "content", "structured"

def says(story, frame):
    """What a result gives."""
    told = tuple(story.member(frame, name) for name in SAYS)
    return told + (bool(frame.data.get("is_error")), frame.data.get("not_sent"))

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
