"""One line at the end: which CLIs are looped as they should be. Fewer than three is a failure."""

from collections import Counter

import pytest
from bench import adapter, missing
from rows import ROWS

ENOUGH = 3


def _row(report):
    """The row a test is about."""
    inside = report.nodeid.rpartition("[")[2].rstrip("]")
    return next((row.name for row in ROWS if row.name == inside), None)


def _states(reporter):
    """Of each row: ok, or what is wrong."""
    count = Counter(
        (_row(report), outcome)
        for outcome in ("passed", "failed", "error")
        for report in reporter.stats.get(outcome, ())
        if outcome != "passed" or report.when == "call"
    )
    for row in ROWS:
        good = count[row.name, "passed"]
        bad = count[row.name, "failed"] + count[row.name, "error"]
        why = missing(row) or adapter(row)
        if bad:
            yield row.name, f"FAILED {bad} of {good + bad}"
        elif why:
            yield row.name, f"not tried ({why})"
        else:
            yield row.name, "ok" if good else "not tried"


def pytest_terminal_summary(terminalreporter):
    states = dict(_states(terminalreporter))
    terminalreporter.write_line("agents: " + ", ".join(f"{name} {state}" for name, state in states.items()))


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session):
    """A run of everything with too few agents is red."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or session.config.option.keyword or any("::" in arg for arg in session.config.args):
        return
    good = [name for name, state in _states(reporter) if state == "ok"]
    if session.exitstatus == 0 and len(good) < ENOUGH:
        session.exitstatus = 1
