"""What stands at the foot of a terminal while a run goes on, and the line of a wait."""

from datetime import UTC, datetime

from loopwright.cli.view import View
from loopwright.cli.words import until
from loopwright.core import events as ev

UNTIL = datetime(2026, 11, 30, 12, 30, tzinfo=UTC)


def limited(view, message):
    """The facts of an attempt that met a limit, and of the wait for it."""
    view.at(2)
    view.begin("#2 agent working")
    view.hear(b"API Error: Request rejected (429)\n")
    view.see(ev.AttemptFailed(kind="rate_limited", message=message, seconds=1.0))
    view.see(ev.WaitStarted(until=UNTIL, why="rate limited", seconds=60.0))


def test_while_it_waits_no_agent_is_said_to_work():
    view = View()
    limited(view, "rate limited: HTTP 429")
    assert view._now().plain.strip().split(" ", 1)[1].startswith("waits ")
    assert view._now().plain.endswith(" more: rate limited")
    view.begin("#2 agent working (attempt 2)")
    assert "#2 agent working (attempt 2) 0:00" in view._now().plain


def test_a_wait_says_once_what_it_is_for(capsys):
    limited(View(), "rate limited: HTTP 429 · Rate limit reached")
    assert capsys.readouterr().err == (
        f"  #2   waiting: rate limited, {until(UNTIL)} (HTTP 429 · Rate limit reached)\n"
    )


def test_of_a_long_line_its_beginning_is_shown():
    view = View()
    view.begin("#1 agent working")
    view.hear(b"pytest tests/unit/test_calc.py " + b"x" * 80 + b"\n")
    assert '"pytest tests/unit/test_calc' in view._now().plain
