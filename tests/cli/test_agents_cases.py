"""Every misbehaving agent of the case table, through a whole run: what its row says is what comes of it.

Rule: one row, one check. A run is held in this process, with a real agent in a real folder; what is checked is
its ending, its facts and the disk. A row that needs what is not built yet stays here, with the reason.
"""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from collections.abc import Callable

import pytest
from misbehaving import CASES, Case, judged

from loopwright.core import events as ev

TABLE = CASES / "agents.tsv"
SECRET = "sk-test-abcdef0123456789"
ERRORED = {"max_consecutive_errors": 2, "max_iterations": 9}


def ignores_sigterm(case: Case) -> None:
    assert case.run("ignores_sigterm.py", attempt_timeout="1s", attempts=1).reason == "max_iterations"
    (failed,) = case.of(ev.AttemptFailed)
    assert (failed.kind, failed.message) == ("no_output", "it ran out of time and changed nothing")
    assert 1 <= failed.seconds < 3.2
    assert b"working" in case.log


def parent_dies_child_ignores_term(case: Case) -> None:
    case.run("parent_dies_child_ignores_term.py", attempt_timeout="1s", attempts=1)
    (failed,) = case.of(ev.AttemptFailed)
    assert (failed.kind, failed.seconds < 3.2) == ("no_output", True)
    group = int(case.log.split()[1])
    with pytest.raises(ProcessLookupError):
        os.killpg(group, 0)


def grandchild_holds_stdout(case: Case) -> None:
    assert case.run("grandchild_holds_stdout.py").passed
    assert (case.worked.summary, case.worked.degraded) == ("ok", None)
    assert case.worked.seconds < 5


def prints_100mb(case: Case) -> None:
    assert case.run("prints_100mb.py").passed
    assert case.worked.summary == "DONE"
    assert len(case.log) <= 64 << 20
    assert b"[loopwright: truncated " in case.log
    assert b"\nDONE\n" in case.log


def invalid_utf8(case: Case) -> None:
    assert case.run("invalid_utf8.py").passed
    assert case.worked.summary == "ok"
    assert b"caf\xe9 \xf0\x28\x8c\x28 \x00 end" in case.log


def long_json_line(case: Case) -> None:
    assert case.run("long_json_line.py").cost_usd == 0.5


def waits_for_stdin(case: Case) -> None:
    case.run("waits_for_stdin.py", options={"prompt": "file"})
    assert case.worked.summary == "got 0 bytes"


def silent_forever(case: Case) -> None:
    end = case.run("silent_forever.sh", idle_timeout="300ms", **ERRORED, attempts=1)
    assert end.reason == "consecutive_errors"
    assert case.kinds == ["no_output"] * 2
    assert {fact.message for fact in case.of(ev.AttemptFailed)} == {"idle 0.3 s and changed nothing"}
    assert [fact.outcome for fact in case.of(ev.IterationClosed)][1:] == ["errored"] * 2
    assert judged(case) == [0]


def finishes_then_lingers(case: Case) -> None:
    end = case.run("finishes_then_lingers.py", options={"linger": "100ms"})
    assert (end.passed, end.cost_usd) == (True, 0.10)
    assert (case.worked.timed_out, case.worked.summary, case.worked.seconds < 5) == (False, "all done", True)


def exit0_error_result(case: Case) -> None:
    end = case.run("exit0_error_result.py", max_wait="15ms", backoff={"first": "10ms", "max": "10ms"})
    assert (end.reason, end.iterations) == ("max_wait", 1)
    assert set(case.kinds) == {"rate_limited"}
    assert case.of(ev.WaitStarted)[0].why == "rate limited"
    assert judged(case) == [0]


def exit1_good_result(case: Case) -> None:
    end = case.run("exit1_good_result.py")
    assert (end.passed, end.cost_usd, case.worked.degraded) == (True, 0.42, "exit 1")


def zero_turns(case: Case) -> None:
    end = case.run("zero_turns.py", **ERRORED)
    assert (end.reason, end.iterations) == ("consecutive_errors", 2)
    assert case.kinds == ["no_op"] * 4  # once more, then errored
    assert judged(case) == [0]


def claims_done(case: Case) -> None:
    end = case.run("claims_done.py", "false", max_iterations=2)
    assert (end.passed, end.reason, end.iterations) == (False, "max_iterations", 2)
    assert not any(fact.claims_done for fact in case.of(ev.AttemptSucceeded))
    assert judged(case) == [0, 1, 2]


def prompt_not_received(case: Case) -> None:
    """The design: what an agent says is prose, so this is a success that the gates judge."""
    assert case.run("prompt_not_received.py", "false").reason == "max_iterations"
    assert case.worked.summary.startswith("I don't see a request")
    assert judged(case) == [0, 1]


def permission_denied(case: Case) -> None:
    end = case.run("permission_denied.py", max_iterations=9)
    assert (end.reason, end.exit_code, case.kinds) == ("approval_requested", 6, ["blocked"])
    assert end.explanation == "it was not allowed to use Write"


def deletes_tests(case: Case) -> None:
    tests = case.folder / "tests"
    tests.mkdir()
    (tests / "test_it.py").write_text("def test_it():\n    assert False\n")
    case.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    end = case.run("deletes_tests.sh", "pytest", protected=["tests/**"], baseline=False)
    assert (end.passed, end.reason) == (False, "max_iterations")
    assert [(f.action, f.paths) for f in case.of(ev.EvidenceChanged)] == [("restored", ("tests/test_it.py",))]
    assert case.of(ev.GateScored)[-1].score.failing == ("tests/test_it.py::test_it",)


def adds_conftest_hook(case: Case) -> None:
    (case.folder / "test_it.py").write_text("def test_it():\n    assert False\n")
    case.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    end = case.run("adds_conftest_hook.sh", "pytest", baseline=False)
    assert (end.passed, end.reason) == (False, "max_iterations")
    assert any("conftest.py" in f.paths for f in case.of(ev.EvidenceChanged))


def edits_outside(case: Case) -> None:
    outside = case.folder.parent / "outside"
    outside.mkdir()
    case.environ["OUTSIDE"] = str(outside)
    end = case.run("edits_outside.sh", workspace={"watch": ["../outside"]})
    assert (end.reason, end.exit_code, case.kinds) == ("policy_violation", 3, ["policy_violation"])
    assert judged(case) == [0]
    assert (outside / "direct.txt").exists()  # nothing of ours follows the link
    assert (case.folder / "link").is_symlink()


def commits_its_work(case: Case) -> None:
    case.repository()
    end = case.run("commits_its_work.sh", "false", max_iterations=2)
    assert end.reason == "max_iterations"
    first, second = case.of(ev.AttemptSucceeded)
    assert len({case.of(ev.AttemptStarted)[0].snapshot, first.snapshot, second.snapshot}) == 3
    assert case.git("status", "--porcelain") == ""
    assert case.git("rev-list", "--count", "HEAD").strip() == "3"


def leaks_secret(case: Case) -> None:
    case.environ["DEMO_API_KEY"] = SECRET
    (case.folder / ".env").write_text(f"DEMO_API_KEY={SECRET}\n")
    case.run("leaks_secret.sh", "false", env=["DEMO_API_KEY"], max_iterations=2)
    assert b"DEMO_API_KEY=[redacted:DEMO_API_KEY]\n" in case.log
    written = [path for path in (case.folder / ".agent-state").rglob("*") if path.is_file()]
    assert len(written) > 5
    assert [path for path in written if SECRET.encode() in path.read_bytes()] == []
    assert SECRET not in repr((case.facts, case.told))


def adds_secret_file(case: Case) -> None:
    case.repository()
    assert case.run("adds_secret_file.sh", "test -e feature.txt").passed
    (told,) = [line for line in case.told if line.startswith("in no snapshot")]
    assert told.endswith(": .env")
    names = case.git("ls-tree", "-r", "--name-only", str(case.worked.snapshot)).split()
    assert "feature.txt" in names
    assert ".env" not in names
    assert case.git("status", "--porcelain").split() == ["??", ".env", "??", "feature.txt", "??", "var/"]


def same_error_forever(case: Case) -> None:
    end = case.run("same_error_forever.sh", max_iterations=20)
    assert (end.reason, end.exit_code) == ("permanent_error", 7)
    (failed,) = case.of(ev.AttemptFailed)
    assert failed.message == "authentication: Error: 401 invalid api key (exit 1)"


def writes_marker_then_crash(case: Case) -> None:
    """An agent has one key for all attempts of an iteration; what ended it is said, and it is not started again in it."""
    end = case.run("writes_marker_then_crash.sh")
    assert (end.reason, case.kinds) == ("max_iterations", ["unknown"])
    assert case.of(ev.AttemptFailed)[0].message.startswith("killed by SIGKILL")
    assert len((case.folder / "side_effects.log").read_text().splitlines()) == 1


def prompt_with_option_text(case: Case) -> None:
    text = (CASES / "agents" / "prompt_with_option_text.txt").read_text().strip()
    program = [sys.executable, "-m", "loopwright", "run", "--as", "r", "--gate", "test -e done", "--json"]
    agent = [
        "--set",
        'agent={use="command", run="sh -c \'printf %s \\"$1\\" >got; touch done\' sh", prompt="arg"}',
    ]

    def ran(*args: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*program, *args], cwd=case.folder, env=case.environ, capture_output=True, text=True, check=False
        )

    misplaced = ran("--goal", "g", "--agent", "true", text)
    assert misplaced.returncode == 2
    assert not (case.folder / ".agent-state").exists()
    done = ran("--goal", text, *agent)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["goal"] == text
    assert "limits: 20 iterations," in done.stderr
    assert (case.folder / "got").read_text().startswith(f"# Goal\n\n{text}\n")


def rate_limit_texts(case: Case) -> None:
    """What each text means is in tests/unit/test_failures.py; here, what a run makes of three of them."""
    with (CASES / "agents/rate_limit_texts.tsv").open(encoding="utf-8", newline="") as file:
        texts = {row["id"]: row["output_line"] for row in csv.DictReader(file, delimiter="\t")}
    quick = {"max_wait": "15ms", "backoff": {"first": "10ms", "max": "10ms"}}
    for name, reason, kind in [
        ("r7", "max_wait", "rate_limited"),
        ("r9", "permanent_error", "permanent"),
        ("r11", "max_wait", "rate_limited"),
    ]:
        case.name, case.environ["TEXT"] = name, texts[name]
        end = case.run("", options={"run": ["sh", "-c", 'echo "$TEXT" >&2; exit 1']}, **quick)
        assert (end.reason, set(case.kinds), end.iterations) == (reason, {kind}, 1)
        assert judged(case) == [0]
        case.name = f"{name}-prose"  # which decides nothing
        assert case.run("", options={"run": ["sh", "-c", 'echo "$TEXT"']}).passed


def self_approval(case: Case) -> None:
    """Another run's agent, while a request is open: our own words for it are tried in tests/cli/test_lifecycle.py."""
    assert case.run("claims_done.py", approval="always").exit_code == 6
    (asked,) = case.of(ev.ApprovalRequested)
    script = str(CASES / "approvals/self_approval.sh")
    case.name = "other"
    case.run("", options={"run": ["sh", script, asked.id]})
    said = case.log
    assert b"no such option --as" in said  # it does not know how to answer
    marks = [line for line in said.splitlines() if line.startswith(b"LOOPWRIGHT_")]
    assert not any(word in mark.upper() for mark in marks for word in (b"TOKEN", b"SECRET", b"SOCKET"))
    case.name = "r"
    assert case.run("claims_done.py", approval="always").reason == "approval_requested"
    assert case.of(ev.ApprovalDecided) == []


def missing_and_negative(case: Case) -> None:
    for number, line in enumerate((CASES / "usage/missing_and_negative.jsonl").read_text().splitlines()):
        case.name, case.environ["LINE"] = f"u{number}", line
        end = case.run("", "false", options={"run": ["sh", "-c", 'echo "$LINE"']}, budget=1, max_iterations=3)
        assert (end.reason, end.iterations, end.cost_usd) == ("cost_unknown", 1, None)
    case.name = "estimated"
    end = case.run(
        "", "false", options={"run": ["sh", "-c", 'echo "$LINE"']}, budget=1, reserve=0.4, max_iterations=9
    )
    assert (end.reason, end.iterations, end.cost_usd) == ("budget", 2, None)


def stream_duplicates(case: Case) -> None:
    """What each event adds is in tests/unit/test_usage_cases.py; here, that a run books the whole once."""
    script = f"cat {CASES / 'usage/stream_duplicates.jsonl'}; touch done"
    end = case.run("", "test -e done", options={"run": ["sh", "-c", script]}, budget=1)
    assert (end.passed, end.iterations, end.cost_usd) == (True, 1, 0.1234)


CHECKS: dict[str, Callable[[Case], None]] = {
    "agents/ignores_sigterm.py": ignores_sigterm,
    "agents/parent_dies_child_ignores_term.py": parent_dies_child_ignores_term,
    "agents/grandchild_holds_stdout.py": grandchild_holds_stdout,
    "agents/prints_100mb.py": prints_100mb,
    "agents/invalid_utf8.py": invalid_utf8,
    "agents/long_json_line.py": long_json_line,
    "agents/waits_for_stdin.py": waits_for_stdin,
    "agents/silent_forever.sh": silent_forever,
    "agents/finishes_then_lingers.py": finishes_then_lingers,
    "agents/exit0_error_result.py": exit0_error_result,
    "agents/exit1_good_result.py": exit1_good_result,
    "agents/zero_turns.py": zero_turns,
    "agents/claims_done.py": claims_done,
    "agents/prompt_not_received.py": prompt_not_received,
    "agents/permission_denied.py": permission_denied,
    "agents/deletes_tests.sh": deletes_tests,
    "agents/adds_conftest_hook.sh": adds_conftest_hook,
    "agents/edits_outside.sh": edits_outside,
    "agents/commits_its_work.sh": commits_its_work,
    "agents/leaks_secret.sh": leaks_secret,
    "agents/adds_secret_file.sh": adds_secret_file,
    "agents/same_error_forever.sh": same_error_forever,
    "agents/writes_marker_then_crash.sh": writes_marker_then_crash,
    "agents/prompt_with_option_text.txt": prompt_with_option_text,
    "agents/rate_limit_texts.tsv": rate_limit_texts,
    "approvals/self_approval.sh": self_approval,
    "usage/missing_and_negative.jsonl": missing_and_negative,
    "usage/stream_duplicates.jsonl": stream_duplicates,
}


def test_every_row_has_a_file_and_a_check():
    rows = [line.split("\t")[0] for line in TABLE.read_text().splitlines()[1:]]
    assert set(rows) == set(CHECKS)
    assert {row for row in rows if row.startswith("agents/")} == {
        f"agents/{path.name}" for path in (CASES / "agents").iterdir()
    }
    assert all((CASES / row).is_file() for row in rows)
    assert len(rows) == len(CHECKS)


@pytest.mark.parametrize("name", CHECKS)
def test_an_agent_comes_to_what_its_row_says(name, tmp_path):
    folder = tmp_path / "work"
    folder.mkdir()
    CHECKS[name](Case(folder))
