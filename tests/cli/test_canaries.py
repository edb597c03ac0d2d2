"""No secret of the environment is in anything that loopwright writes or prints, however agents and gates say it."""

import base64
import json
import sys
import urllib.parse
from pathlib import Path

from loopwright.core.events import ApprovalDecided, NoteAdded

CANARIES = {
    "SERVICE_TOKEN": "cnry7Hq2ZkP9wL4x",
    "DB_PASSWORD": 'cn"ry/pa55+wörd\\&<1>',
    "SIGNING_KEY": "cnry first line\nand second",
    "DATABASE_URL": "postgres://app:cnryUrlPass77@db.invalid/app",
}
LOOK = ["cnryUrlPass77", *CANARIES.values()]
# Tokens of known makers that no variable holds: put together when used, so that this file holds none either.
MADE = ["ghp_" + "Cn0r" * 9, "AKIA" + "CNRY2345" * 2, "sk-ant-" + "cnry0-" * 5, "xoxb-" + "12345-cnry-" * 3]

SAYS = f"""
import base64, html, json, os, urllib.parse
MADE = {MADE!r}
def spellings(raw=True):
    for value in [*(os.environ[name] for name in {sorted(CANARIES)}), *MADE]:
        yield value
        yield json.dumps(value)
        yield json.dumps(json.dumps({{"inner": value}}))
        yield urllib.parse.quote(value, safe="")
        yield base64.b64encode(value.encode()).decode()
        yield "url " + base64.urlsafe_b64encode(("user:" + value).encode()).decode()
        yield html.escape(value)
def said():
    return " | ".join(spellings())
"""
AGENT = """
import json, os, sys
from says import *
every = said()
if os.environ["LOOPWRIGHT_RUN"] == "f":
    sys.exit(f"401 unauthorized {every}")
print(every, flush=True)
print(every, file=sys.stderr, flush=True)
for value in [os.environ["SERVICE_TOKEN"], MADE[0]]:
    for split in (1, len(value) // 2, len(value) - 1):
        for stream in (1, 2):
            os.write(stream, b"." * (65536 - split) + value[:split].encode())
            os.write(stream, value[split:].encode() + b"\\n")
with open("work.txt", "a") as work:
    work.write("more\\n")
print(json.dumps({"type": "result", "summary": "x" * 2040 + every, "output": {"all": every, every: 1}}))
"""
REPORT = """
import sys
from xml.sax.saxutils import escape
from says import *
text = "".join(c for c in escape(said()) if c >= " ")
quoted = text.replace('"', "&quot;")  # clipped at many places in the reason
cases = "".join(f'<testcase name="t{n}"><failure message="{"." * n}{quoted}">{text}</failure></testcase>' for n in range(40))
print(f'<testsuite tests="40" failures="40">{cases}</testsuite>')
with open("report.xml", "w") as file:
    file.write(f'<testsuite tests="40" failures="40">{cases}</testsuite>')
print(said(), file=sys.stderr)
"""
TEST = """
import sys
sys.path.insert(0, ".")
from says import *
def test_it():
    print(said())
    assert not said()
"""
CHECKS = """
from loopwright import PermanentError, Result, Score, gate
from says import *
@gate
def broken(work):
    raise RuntimeError("x" * 1200 + said())
@gate
def told(work):
    return Score(0.5, "y" * 3990 + said(), status="fail", failing=(said(),), evidence={"said": said()})
def agent(attempt):
    if attempt.iteration == 2:
        raise PermanentError("z" * 1990 + said())
    if attempt.iteration == 1 and attempt.number == 1:
        raise ConnectionError(said())
    return Result({"said": said()}, summary=said())
"""


def leaks(blob: bytes) -> list[str]:
    """The canaries in some bytes, however they are written."""
    found = []
    for value in [*LOOK, *MADE]:
        forms = [value, json.dumps(value)[1:-1], urllib.parse.quote(value, safe="")]
        if value in LOOK:  # what is unknown is not looked for inside base64
            forms += [base64.b64encode(b"x" * n + value.encode()).decode()[4:-4] for n in range(3)]
        found += [f"{value!r} as {form!r}" for form in forms if form.encode() in blob]
    return found


def check(stage, ran):
    """Nothing is anywhere; what was taken out is marked."""
    assert leaks(f"{ran.out}\0{ran.err}".encode()) == []
    marks = 0
    for path in (stage.folder / ".agent-state").rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            assert leaks(content) == [], path
            marks += content.count(b"[redacted:SERVICE_TOKEN]")
            assert not any(value[:11].encode() in content for value in MADE if value[0] != "A"), path
    assert marks > 5


def test_a_command_agent_and_gates_that_say_every_secret(stage):
    for name, text in {"says.py": SAYS, "agent.py": AGENT, "report.py": REPORT, "test_it.py": TEST}.items():
        stage.write(name, text)
    python = f"{sys.executable} -S"
    stage.write(
        "loop.toml",
        f"""
goal = "g"
agent = "{python} agent.py"
gates = ["{python} report.py", {{ use = "junit", run = "{python} report.py" }}, "pytest",
  {{ use = "junit", run = "{python} report.py", report = "report.xml" }}]
env = {sorted(CANARIES)}
[limits]
max_iterations = 1
max_consecutive_errors = 1
attempts = 1
""",
    )
    ran = stage("run", "loop.toml", "--as", "r", "--json", "--no-baseline", **CANARIES)
    assert (ran.doc["reason"], ran.doc["iterations"]) == ("max_iterations", 1), ran.err
    check(stage, ran)
    written = {path.name for path in (stage.folder / ".agent-state/artifacts/r").rglob("*") if path.is_file()}
    assert written >= {"agent.log", "gate.log", "prompt.md", "stdout", "junit.xml", "feedback.md"}


def test_an_agent_that_fails_saying_every_secret_and_a_person_who_notes_one(stage):
    stage.write("says.py", SAYS)
    stage.write("agent.py", AGENT)
    names = [word for name in sorted(CANARIES) for word in ("--env", name)]
    agent = f"{sys.executable} -S agent.py"
    ran = stage("run", "--goal", "g", "--agent", agent, "--gate", "true", "--as", "f", *names, **CANARIES)
    assert ran.code == 7, ran.err
    note = f"take {MADE[0]} and {CANARIES['DB_PASSWORD']}"
    again = stage("resume", "f", "--note", note, **CANARIES)
    (noted,) = stage.of(NoteAdded, "f")
    assert noted.text == "take [redacted:github-token] and [redacted:DB_PASSWORD]"
    for view in ("--events", "--log", "--prompt"):
        shown = stage("show", "f", view, *(["--iteration", "2"] if view == "--prompt" else []))
        assert leaks(shown.out.encode()) == []
        assert "[redacted:" in shown.out, view
    check(stage, again)


def test_functions_that_say_every_secret(stage):
    stage.write("says.py", SAYS)
    stage.write("checks.py", CHECKS)
    stage.write(
        "loop.toml",
        "goal = 'g'\nagent = 'checks:agent'\ngates = ['checks:broken', 'checks:told']\n"
        "[limits]\nmax_iterations = 2\nbackoff = { first = '0.01s' }\n",
    )
    ran = stage(
        "run",
        "loop.toml",
        "--as",
        "r",
        "--json",
        "--store",
        "sqlite:///.agent-state/loopwright.db",
        **CANARIES,
    )
    assert ran.doc["iterations"] == 2, ran.err
    assert leaks(stage("show", "r", "--events", "--json").out.encode()) == []
    check(stage, ran)


def test_a_secret_in_the_loop_itself_is_said_and_kept_out_of_prompts(stage):
    stage.script({"say": "worked", "append": {"work.txt": "x"}})
    token = MADE[1]
    typed = (
        "run",
        "--goal",
        f"log in with {token}",
        "--agent",
        stage.agent,
        "--gate",
        f"test {token}",
        "--as",
        "r",
    )
    ran = stage(*typed)
    assert "the goal held a secret" in ran.err
    assert "gates holds a secret" in ran.err
    (prompt,) = Path(stage.folder, ".agent-state").rglob("prompt.md")
    assert "log in with [redacted:aws-key]" in prompt.read_text()
    again = stage(*typed)
    assert again.code == 0, "the same loop is still the same"


def test_an_answer_that_holds_a_secret(stage):
    """The signal itself is a row of the store, whether or not anybody takes it in."""
    stage.run("--approve", "passed", "--no-wait", "--env", "PLAIN_LOOKING", gate="true", expect=6)
    note = f"use {CANARIES['DB_PASSWORD']} and {MADE[0]} and let-through-71"
    ran = stage("revise", "r", "--note", note, **CANARIES, PLAIN_LOOKING="let-through-71")
    assert ran.code == 0, ran.err
    (decided,) = stage.of(ApprovalDecided)
    assert (
        decided.note == "use [redacted:DB_PASSWORD] and [redacted:github-token] and [redacted:PLAIN_LOOKING]"
    )
    for path in (stage.folder / ".agent-state").rglob("*"):
        if path.is_file():
            assert leaks(path.read_bytes()) == [], path
