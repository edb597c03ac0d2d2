"""Every answer in every state of a run: the exit code, and what a person is told."""

from __future__ import annotations

import io
import re
import shutil
from contextlib import redirect_stderr, redirect_stdout
from datetime import UTC, datetime

import pytest

from loopwright import Loop, run
from loopwright.cli.app import run_app
from loopwright.codec import encode_signal
from loopwright.core import events as ev
from loopwright.hosts import people
from loopwright.journal import Journal
from loopwright.stores.sqlite import SqliteStore

WORKS, FAILS = "sh -c 'echo worked'", "sh -c 'echo odd >&2; exit 3'"
BLOCKED = """sh -c 'echo "{\\"type\\": \\"result\\", \\"needs_human\\": \\"log in\\"}"'"""
TAMPERS = "sh -c 'echo more >> tests.txt; echo worked'"
VERBS = {
    "approve": ("approve", "r"),
    "override": ("approve", "r", "--override", "good enough"),
    "revise": ("revise", "r", "--note", "smaller diff"),
    "reject": ("reject", "r"),
    "ask-again": ("ask-again", "r"),
}


def loop(agent=WORKS, gates=("true",), workspace="none", **more) -> Loop:
    return Loop("g", agent=agent, gates=list(gates), workspace=workspace, max_iterations=3, **more)


def accept(when="passed", **more) -> Loop:
    return loop(approval={"when": when, **more})


def store_of(folder) -> SqliteStore:
    return SqliteStore(folder / ".agent-state/loopwright.db")


def facts(folder, *events: ev.Event) -> None:
    """A run that a host took and left, with these facts on record."""
    store = store_of(folder)
    try:
        journal = Journal(store, "r")
        journal.record(datetime.now(UTC), *events)
        journal.flush()
    finally:
        store.close()


def begun(folder, *events: ev.Event) -> None:
    (folder / ".agent-state").mkdir()
    spec = accept().spec() | {"approval": {"when": "passed", "timeout": 60.0, "on_timeout": "hold"}}
    facts(folder, ev.RunStarted(run="r", spec=spec, digest=accept().digest()), *events)


def answered(folder, **said) -> None:
    """A request with an answer under its key that nobody has taken in yet."""
    run(accept(), "r", folder=folder)
    store = store_of(folder)
    try:
        decision = ev.ApprovalDecided(
            id=Journal(store, "r").state.approval.id, by="ann", channel="cli", **said
        )
        record = encode_signal(decision, datetime(2026, 3, 1, 10, 2, tzinfo=UTC))
        assert store.signal("r", f"decision/{decision.id}", record)
    finally:
        store.close()


def evidence(folder) -> None:
    (folder / "tests.txt").write_text("one\n")
    made = loop(TAMPERS, workspace="in_place", protected=["tests.txt"], on_tamper="ask")
    run(made, "r", folder=folder)


ALARM = {"high_error_rate": {"action": "ask", "window": 1}}
STATES = {
    "accept, passed": lambda f: run(accept(), "r", folder=f),
    "accept, not passed": lambda f: run(loop(gates=["false"], approval="always"), "r", folder=f),
    "alert": lambda f: run(loop(FAILS, monitors=ALARM), "r", folder=f),
    "blocked": lambda f: run(loop(BLOCKED), "r", folder=f),
    "evidence": evidence,
    "expired, on hold": lambda f: run(accept(timeout=0.001), "r", folder=f),
    "planning": begun,
    "paused": lambda f: begun(f, ev.PauseRequested(by="ann")),
    "complete, never asked": lambda f: run(loop(), "r", folder=f),
    "failed": lambda f: run(loop(gates=["false"]), "r", folder=f),
    "approved already": lambda f: answered(f, answer="approve"),
    "rejected already": lambda f: answered(f, answer="reject", note="not like this"),
    "complete, approved": lambda f: (answered(f, answer="approve"), run(accept(), "r", folder=f)),
}
GOES_ON = (0, "next: loopwright resume r")
STOPS = (0, "r: rejected")
STILL = (3, "r still asks: ")
IDLE = (3, "r asks nothing just now")
PAUSED = (3, "r is paused and asks nothing")
SECOND = (3, "already decided: approve by ann (cli) at 2026-03-01 10:02:00 UTC: yours does not count")
REJECTED = (3, "already decided: reject by ann (cli) at 2026-03-01 10:02:00 UTC (not like this): yours does")
LATE = (3, "too late: nobody answered in time; loopwright ask-again r lets it ask anew")
SAME = (0, "already decided: approve by ann (cli) at 2026-03-01 10:02:00 UTC: the same answer")
OVER = (3, "already decided: approve by ann")
EXPECTED = {  # approve, override, revise, reject, ask-again
    "accept, passed": ((0, "r: quality_reached"), (0, "r: quality_reached"), GOES_ON, STOPS, STILL),
    "accept, not passed": (
        (2, "iteration 1 has not passed (false)"),
        (0, "a person accepted it although not passed: false"),
        GOES_ON,
        STOPS,
        STILL,
    ),
    "alert": (GOES_ON, GOES_ON, GOES_ON, STOPS, STILL),
    "blocked": (GOES_ON, GOES_ON, GOES_ON, STOPS, STILL),
    "evidence": (GOES_ON, GOES_ON, GOES_ON, STOPS, STILL),
    "expired, on hold": (LATE, LATE, LATE, LATE, (0, "r asks again")),
    "planning": (IDLE, IDLE, IDLE, IDLE, IDLE),
    "paused": (PAUSED, PAUSED, PAUSED, PAUSED, PAUSED),
    "complete, never asked": ((3, "r is over: quality_reached"),) * 5,
    "failed": ((3, "r is over: max_iterations"),) * 5,
    "approved already": (SAME, SECOND, SECOND, SECOND, STILL),
    "rejected already": (REJECTED, REJECTED, REJECTED, REJECTED, STILL),
    "complete, approved": ((0, "the same answer"), OVER, OVER, OVER, (3, "r is over: quality_reached")),
}


def typed(*argv: str) -> tuple[int, str]:
    """The exit code and stderr of a command line."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = run_app(list(argv))
    assert not out.getvalue()
    return code, err.getvalue()


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """One folder per state; each test works on a copy in the same place."""
    kept, place = tmp_path_factory.mktemp("kept"), tmp_path_factory.mktemp("place") / "work"

    def at(state: str):
        shutil.rmtree(place, ignore_errors=True)
        if not (kept / state).exists():
            place.mkdir()
            STATES[state](place)
            place.rename(kept / state)
        shutil.copytree(kept / state, place, symlinks=True)
        return place

    return at


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("state", STATES)
def test_an_answer(made, state, verb):
    folder = made(state)
    code, said = typed(*VERBS[verb], "-C", str(folder))
    expected, fragment = EXPECTED[state][list(VERBS).index(verb)]
    assert fragment in _bare(said)
    assert code == expected, said
    assert "Traceback" not in said


def _bare(said: str) -> str:
    """Without the option that leads from this folder to the run's."""
    return re.sub(r" -C \S+", "", said)


@pytest.mark.parametrize(
    ("state", "approve", "inbox"),
    [
        ("accept, passed", "approve r", "approve r"),
        ("accept, not passed", 'approve r --override "…"', 'revise r --note "what to change"'),
    ],
)
def test_what_did_not_pass_is_shown_with_the_reason_that_accepting_it_takes(
    made, capsys, state, approve, inbox
):
    folder = str(made(state))
    for verb, wanted in {("show", "r"): approve, ("approvals",): inbox}.items():
        assert run_app([*verb, "-C", folder]) == 0
        assert f"loopwright {wanted}\n" in _bare(capsys.readouterr().out)


@pytest.mark.parametrize("verb", VERBS)
def test_about_no_run(made, verb):
    name, _, *rest = VERBS[verb]
    code, said = typed(name, "nope", *rest, "-C", str(made("planning")))
    assert (code, "there is no run 'nope' here" in said) == (2, True)


@pytest.mark.parametrize("verb", VERBS)
def test_inside_a_run(made, verb, monkeypatch):
    folder = made("accept, passed")
    monkeypatch.setenv("LOOPWRIGHT_RUN", "r")
    code, said = typed(*VERBS[verb], "-C", str(folder))
    assert (code, f"loopwright {VERBS[verb][0]} is refused inside run r" in said) == (2, True)


def test_every_state_has_its_row():
    assert EXPECTED.keys() == STATES.keys()


def test_one_request_and_no_other(made):
    folder = made("accept, passed")
    code, said = typed("approve", "r", "--approval", "ffff", "-C", str(folder))
    assert (code, "no request with an id that begins with 'ffff'" in said) == (2, True)
    store = store_of(folder)
    first = Journal(store, "r").state.approval.id
    store.close()
    assert typed("revise", "r", "--note", "again", "-C", str(folder))[0] == 0
    run(accept(), "r", folder=folder)  # iteration 2 asks
    code, said = typed("reject", "r", "--approval", first, "-C", str(folder))
    assert (code, "already decided: revise" in said) == (3, True)
    code, said = typed("revise", "r", "--note", "again", "--approval", first[:6], "-C", str(folder))
    assert (code, "the same answer" in said) == (0, True)
    store = store_of(folder)
    second = Journal(store, "r").state.approval
    store.close()
    assert second.id != first, "an answer to the first request is none to the second"


def test_a_revision_needs_a_note(made):
    folder = made("accept, passed")
    for note in ((), ("--note", " ")):
        code, said = typed("revise", "r", *note, "-C", str(folder))
        assert (code, "revise needs --note TEXT" in said) == (2, True)
    store = store_of(folder)
    said = people.Said(answer="revise", by="ann", channel="inbox", note=" ")
    outcome = people.answer(store, "r", said, now=datetime.now(UTC))
    store.close()
    assert "revise needs a note" in outcome.why


def test_limits_are_raised_with_the_answer(made):
    folder = made("accept, not passed")
    said = typed("revise", "r", "--note", "n", "--add-iterations", "4", "-C", str(folder))
    assert said[0] == 0
    store = store_of(folder)
    assert Journal(store, "r").state.limits == {"max_iterations": 7}
    store.close()
    again = ("revise", "r", "--note", "n", "--add-iterations", "4", "-C", str(folder))
    assert "the same answer" in typed(*again)[1]
    assert "yours does not count" in typed(*again[:-3], "5", *again[-2:])[1]
    code, text = typed("approve", "r", "--add-budget", "1", "-C", str(made("accept, passed")))
    assert (code, "the run has no budget to add to" in text) == (2, True)
