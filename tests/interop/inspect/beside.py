"""Times ktsu and Inspect AI in turns: beside.py KTSU FOLDER ROUNDS. Each is a process of its own on one
core, which answers 200 samples without a network and makes six checks of each."""
import json
import os
import subprocess
import sys
import time
from pathlib import Path

SAMPLES = 200
NUMBERS = ", ".join(str(number) for number in range(SAMPLES))

KIT = {
    "workflows/sort.workflow.yaml": """kind: workflow
name: sort
version: 1.0.0
params: {schema: {type: object, required: [n], properties: {n: {type: integer}}}}
pipeline: [{id: a, agent: ./agents/sorter.agent.yaml, params: {n: "{{ params.n }}"}}]
""",
    "agents/sorter.agent.yaml": """name: sorter
version: 1.0.0
model: std
params: {schema: {type: object, required: [n], properties: {n: {type: integer}}}}
prompt: {system: You sort., user: "Sort {{ params.n }}"}
output: {schema: {type: object, required: [answer], properties: {answer: {type: string}}}}
""",
    "gateway.yaml": """providers: [{name: desk, type: scripted, config: {rules: rules.yaml}}]
model_groups: [{name: std, models: [desk/m]}]
""",
    "rules.yaml": "rules: []\ndefault: {reply: {answer: Default output}}\n",
    "evals/sort.eval.yaml": f"""subject: {{workflow: sort}}
matrix: {{params.n: [{NUMBERS}]}}
invariants:
  one: {{description: d, check: {{type: output, expr: output.answer, equals: Default output}}}}
  two: {{description: d, check: {{type: output, expr: output.answer, contains: output}}}}
  three: {{description: d, check: {{type: output, expr: output.answer, pattern: ^Default}}}}
  four: {{description: d, check: {{type: trace, model_calls: {{equals: 1}}}}}}
  five: {{description: d, check: {{type: trace, where: {{type: tool.called}}, none: true}}}}
  six: {{description: d, check: {{type: output, expr: status, equals: complete}}}}
""",
}

TASK = f"""from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.scorer import answer, exact, f1, includes, match, pattern

@task
def sort():
    samples = [Sample(input=f"Sort {{n}}", target="Default output") for n in range({SAMPLES})]
    scorers = [exact(), includes(), match(), pattern("^(Default)"), f1(), answer("line")]
    return Task(dataset=samples, scorer=scorers)
"""


def timed(command, folder, first=None):
    """Seconds, peak of memory in MiB, seconds to the first line with `first`, and standard output."""
    began, seen, lines = time.monotonic(), None, []
    process = subprocess.Popen(["taskset", "-c", "0", *command], cwd=folder, text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    for line in process.stdout:
        if seen is None and first and line.startswith(first):
            seen = time.monotonic() - began
        lines.append(line)
    _, status, usage = os.wait4(process.pid, 0)
    took = time.monotonic() - began
    assert os.waitstatus_to_exitcode(status) == 0, (command, lines[-5:])
    return took, usage.ru_maxrss / 1024, seen, "".join(lines)


def ktsu(binary, folder):
    for path, text in KIT.items():
        path = folder / "kit" / path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    run = [binary, "eval", "run", "kit", "--parallel", "16"]
    took, memory, first, said = timed(run, folder, "passed")
    assert f"{SAMPLES} scenarios: {SAMPLES} passed" in said, said[-200:]
    evals = json.loads(subprocess.check_output([binary, "evals", "--json"], cwd=folder))
    eval_id = evals["evals"][0]["eval_id"]
    again, *_ = timed([binary, "eval", "retry", eval_id, "--kit", "kit"], folder)
    return took, memory, first, again


def inspect(folder):
    (folder / "task.py").write_text(TASK)
    program = Path(sys.executable).with_name("inspect")
    took, memory, *_ = timed([program, "eval", "task.py", "--model", "mockllm/model",
                              "--display", "none"], folder)
    log = next((folder / "logs").iterdir())
    again, *_ = timed([program, "score", log, "--overwrite", "--display", "none"], folder)
    return took, memory, None, again


def main():
    binary, scratch, rounds = Path(sys.argv[1]).resolve(), Path(sys.argv[2]), int(sys.argv[3])
    rates = {"ktsu": [], "inspect": []}
    for at in range(rounds):
        for name in rates:
            folder = scratch / f"{name}{at}"
            folder.mkdir()
            took, memory, first, again = ktsu(binary, folder) if name == "ktsu" else inspect(folder)
            rates[name].append(SAMPLES / took)
            shown = f", first verdict {first:.2f} s" if first else ""
            print(f"{name:<8} {SAMPLES / took:7.1f} samples/s  {took:6.2f} s  {memory:6.1f} MiB"
                  f"  scored again in {again:.2f} s{shown}", flush=True)
    best = {name: max(found) for name, found in rates.items()}
    print(f"ktsu does {best['ktsu'] / best['inspect']:.1f} times as many a second")


main()
