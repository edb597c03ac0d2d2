"""A scene to look at: a project with runs as people have them, made by real loops of a scripted agent.

`python tests/web_real/scene.py FOLDER` makes it and serves its page until it is stopped.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

from loopwright import Loop, run

AGENT = """
import json, os, sys, time
n = int(os.environ["LOOPWRIGHT_ITERATION"])
here = os.path.dirname(os.path.abspath(__file__))
plan = json.load(open(os.path.join(here, sys.argv[1] + ".json")))
do = plan[min(n, len(plan)) - 1]
hold = os.path.join(here, "hold")
print("\\x1b[1mreading\\x1b[0m the failing tests of", os.environ["LOOPWRIGHT_WORKDIR"].rsplit("/", 1)[-1])
for name, text in do.get("write", {}).items():
    print("editing", name)
    os.makedirs(os.path.dirname(name) or ".", exist_ok=True)
    open(name, "w").write(text)
json.dump(do["scores"], open("scores.json", "w"), indent=1)
print("running pytest -q tests/", flush=True)
end = time.monotonic() + 60
while os.path.exists(hold) and time.monotonic() < end:
    time.sleep(0.02)
print(do.get("say", "214 passed in 11.8s"))
if "fail" in do:
    print(do["fail"], file=sys.stderr)
    sys.exit(1)
print(json.dumps({"type": "result", "summary": do["summary"], "cost_usd": do.get("cost"), "tokens": 41000}))
"""
GATE = """
import json, sys
seen = json.load(open("scores.json"))[sys.argv[1]] if __import__("os").path.exists("scores.json") else 0.2
print(json.dumps({"score": seen}))
"""
SLEEPS = """\
def test_queue_drains(q):
    q.put(1)
    {wait}
    assert q.drained{more}
"""
CURVES = {
    "suite": [0.20, 0.30, 0.30, 0.45, 0.60, 0.60, 0.70, 0.70, 0.82, 0.90, 0.95, 0.95, 1.0],
    "types": [0.50, 0.50, 0.40, 0.60, 0.60, 0.60, 0.70, 0.60, 0.70, 0.70, 0.80, 0.80, 0.80],
    "review": [0.30, 0.40, 0.40, 0.40, 0.40, 0.35, 0.45, 0.50, 0.55, 0.60, 0.55, 0.52, 0.62],
}
SAID = (
    "Replaced one sleep by a wait for the queue",
    "Made the retry of the client a loop with a deadline",
    "Moved the fixture's port to the tests that use it",
    "All 214 tests pass: the last 3 sleeps are event waits now",
)


def steps(*, dear=True):
    """What the agent does, iteration by iteration."""
    made = []
    for i in range(13):
        wait = "time.sleep(2)" if i < 12 else "q.wait_drained(timeout=5)"
        more = "" if i < 12 else ", q.debug_state()"
        made.append(
            {
                "scores": {name: curve[i] for name, curve in CURVES.items()},
                "write": {
                    "src/queue_checks.py": SLEEPS.format(wait=wait, more=more),
                    f"src/part_{i % 4}.py": "".join(
                        f"def step_{k}(): return {k * i}\n" for k in range(6 + i % 5)
                    ),
                },
                "summary": SAID[3] if i == 12 else SAID[i % 3],
                "cost": round(0.19 + 0.03 * (i % 4), 2) if dear else None,
            }
        )
    return made


def gates(need=0.6):
    """Three graded gates."""
    run = "python3 -S tools/gate.py"
    return [
        {"use": "score", "run": f"{run} suite", "mark": 1.0, "name": "tests", "weight": 3},
        {"use": "score", "run": f"{run} types", "mark": 0.8, "name": "types", "weight": 1},
        {"use": "score", "run": f"{run} review", "mark": need, "name": "review", "weight": 2},
    ]


def plans():
    """What the agent of each loop does."""
    short = steps()
    return {
        "prune-dead-code": [{**short[12], "summary": "Removed 14 dead functions"}],
        "strict-payments": [{**each, "cost": 0.4} for each in short[:5]],
        "translate-help": [{**short[0], "fail": "Error: 401 authentication_error: invalid x-api-key"}],
        "smaller-image": [{**each, "cost": None} for each in short[:3]],
        "fix-flaky-tests": short,
    }


LOOPFILE = """\
name = "nightly-deps"
goal = "Bring the dependencies up to date and keep the suite green"
agent = "sh -c true"
gates = ["true"]

[limits]
max_iterations = 6
budget = 4.0

[approval]
when = "passed"

[[trigger]]
cron = "0 2 * * 1-5"
tz = "Europe/Paris"
"""


def project(folder: Path) -> Path:
    """A repository with an agent, gates and loop files."""
    work = folder / "shop"
    work.mkdir(parents=True)
    (work / "README.md").write_text("# shop\n")
    (work / "tools").mkdir()
    (work / "src").mkdir()
    (work / "src/queue_checks.py").write_text(SLEEPS.format(wait="time.sleep(2)", more=""))
    (work / "tools/agent.py").write_text(textwrap.dedent(AGENT))
    (work / "tools/gate.py").write_text(textwrap.dedent(GATE))
    for name, plan in plans().items():
        (work / f"tools/{name}.json").write_text(json.dumps(plan))
    for verb in (("init", "-q"), ("add", "."), ("commit", "-qm", "shop")):
        who = ("-c", "user.name=s", "-c", "user.email=s@example.invalid")
        subprocess.run(["git", *who, *verb], cwd=work, check=True, capture_output=True)
    (work / "nightly.loop.toml").write_text(LOOPFILE)
    return work


def play(work: Path) -> None:
    """Runs that stand in each way that people meet."""

    def loop(goal, name, **more):
        agent = {"use": "command", "run": f"python3 tools/agent.py {name}"}
        usual = {"gates": gates(), "budget": 6.0, "max_iterations": 15, "convergence": False, "workspace": "worktree"}  # fmt: skip
        return Loop(goal, name=name, agent=agent, **{**usual, **more})

    def done(made, letters):
        run(made, f"{made.name}-{letters}", folder=work)

    done(loop("Remove the dead code that coverage never reaches", "prune-dead-code"), "kfwe")
    strict = {"max_iterations": 5, "gates": gates(0.9)}
    done(loop("Type-check the payment module under --strict", "strict-payments", **strict), "mwqa")
    done(loop("Translate the help texts", "translate-help"), "rtzb")
    image = {"budget": None, "max_iterations": 3}
    done(loop("Shorten the build of the container", "smaller-image", **image), "bdnc")
    goal = "Fix the flaky tests of the queue without touching what they check.\n\nA test is flaky when it fails once in 20 runs."
    done(loop(goal, "fix-flaky-tests", approval="passed"), "7qkd")


def main() -> None:
    """Makes the scene and serves it."""
    folder = Path(sys.argv[1])
    fresh = not folder.exists()
    if fresh:
        folder.mkdir(parents=True)
        play(project(folder))
    print(served(folder / "shop").links(), flush=True)
    while True:
        time.sleep(1)


def served(work: Path, port: int = 0):
    """The page of a project, without anybody who drives its runs."""
    from loopwright.serving.book import Book
    from loopwright.serving.live import Live
    from loopwright.stores.opened import open_store
    from loopwright.web import server

    environ = {**os.environ, "USER": "mira", "LOGNAME": "mira"}
    book = Book([work / "nightly.loop.toml"], project=work, environ=environ)
    book.refresh()
    live = Live(
        project=work, environ=environ, book=book, store=open_store(None, work), server=book.server, tell=print
    )
    return server.start(live, port=port)


if __name__ == "__main__":
    main()
