"""For all tests: slow ones are begun first; what a test measured is printed at the end, whichever worker ran it."""

import os


def pytest_collection_modifyitems(items):
    """Each worker gets an equal run of these (worksteal): its part of the slow ones, then the others as they stand."""
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    slow = [item for item in items if item.get_closest_marker("slow")]
    quick = [item for item in items if not item.get_closest_marker("slow")]
    share = len(quick) // workers + 1
    items[:] = [
        item for n in range(workers) for item in (*slow[n::workers], *quick[n * share : (n + 1) * share])
    ]


def pytest_terminal_summary(terminalreporter):
    found = [
        value
        for reports in terminalreporter.stats.values()
        for report in reports
        for name, value in getattr(report, "user_properties", ())
        if name == "measured" and report.when == "call"
    ]
    for line in sorted(found):
        terminalreporter.write_line(line)
