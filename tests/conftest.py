"""For all tests: what a test measured is printed at the end, whichever worker ran it."""


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
