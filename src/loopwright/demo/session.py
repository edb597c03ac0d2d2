"""One run of a test-suite: the pytest plug-in that picks the tests, traces their lines and tells when to stop.

It stands still just before pytest would load the project's first file; `accept` returns in a fork with what is
asked for, and the run goes on there as any run of pytest would. Only the warm process imports this module.
"""

from __future__ import annotations

import gc
import importlib.machinery
import importlib.util
import os
import sys
import sysconfig
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from loopwright.demo.warm import Request

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence
    from types import FrameType, ModuleType

    from loopwright.demo.warm import Patch


def serve(
    accept: Callable[[], Request], finish: Callable[[dict[str, Any]], None], arguments: Sequence[str]
) -> None:
    """Start pytest with these arguments and let every request run in a fork of it."""
    options = ["-p", "no:cacheprovider", "--maxfail=0"]
    if not os.environ.get("PYTEST_DISABLE_PLUGIN_AUTOLOAD"):
        # Tests must run in this very process, and coverage would want the tracing that is ours.
        options += ["-n0"] if importlib.util.find_spec("xdist") else []
        options += ["--no-cov"] if importlib.util.find_spec("pytest_cov") else []
    pytest.main([*options, *arguments], plugins=[_Run(accept, finish)])


class _Run:
    """The plug-in: its methods are named by pytest."""

    def __init__(self, accept: Callable[[], Request], finish: Callable[[dict[str, Any]], None]) -> None:
        self.accept = accept
        self.finish = finish
        self.request = Request()
        self.trace = _Trace({})
        self.at_import: dict[str, set[int]] = {}
        self.tests: dict[str, dict[str, Any]] = {}
        self.lines: dict[str, dict[str, set[int]]] = {}
        self.errors: list[str] = []
        self.hoped: set[str] = set()
        self.helped = False

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_load_initial_conftests(self) -> Generator[None, Any, Any]:
        # What is frozen is not looked at by the collector, so its pages stay shared with the forks.
        gc.collect()
        gc.freeze()
        self.request = self.accept()
        self.hoped = set(self.request.hoped)
        if self.request.patch:
            sys.meta_path.insert(0, _Patched(self.request.patch))
        self.trace = _Trace({str(Path(path).resolve()): path for path in self.request.sources})
        # From here to the end of the collection the project is imported, conftest.py first.
        self.trace.start(self.at_import)
        return (yield)

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        # A test file that holds none of the tests asked for would be imported for nothing.
        unwanted = (
            self.request.files
            and collection_path.is_file()
            and str(collection_path) not in self.request.files
        )
        return True if unwanted else None

    @pytest.hookimpl(wrapper=True)
    def pytest_collection(self) -> Generator[None, Any, Any]:
        try:
            return (yield)
        finally:
            self.trace.stop()
            if self.request.scout:
                self.finish({"borrowed": _borrowed()})

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.errors.append(f"{report.nodeid}: {_gist(str(report.longrepr))}")

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        if self.request.tests is not None:
            known = {item.nodeid: item for item in items}
            items[:] = [known[name] for name in self.request.tests if name in known]
        for item in items:
            self.tests[item.nodeid] = {"outcome": "", "file": str(item.path)}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        self.trace.start(self.lines.setdefault(item.nodeid, {}))
        try:
            return (yield)
        finally:
            self.trace.stop()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        test = self.tests[report.nodeid]
        if report.outcome != "passed":
            test["outcome"] = "failed" if "failed" in (report.outcome, test["outcome"]) else "skipped"
        elif report.when == "call":
            test["outcome"] = test["outcome"] or "passed"
        if report.when == "teardown" and self.request.hoped:
            self._stop_if_settled(report.nodeid, passed=test["outcome"] == "passed")

    def _stop_if_settled(self, name: str, *, passed: bool) -> None:
        """Stop when no hoped-for test passed, or another one did not."""
        if name in self.hoped:
            self.helped = self.helped or passed
            self.hoped.discard(name)
            hopeless = not self.hoped and not self.helped
        else:
            hopeless = not passed
        if hopeless:
            self._report("")

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, exitstatus: int) -> None:
        why = "\n".join(self.errors)
        if not why and not self.tests:
            why = f"pytest found no tests (exit code {int(exitstatus)})"
        self._report(why)

    def _report(self, why: str) -> None:
        """Send what is known and end the run here: pytest's own goodbye takes longer than most tests."""
        for name, test in self.tests.items():
            test["lines"] = {path: sorted(lines) for path, lines in self.lines.get(name, {}).items()}
        self.finish(
            {
                "tests": self.tests,
                "at_import": {path: sorted(lines) for path, lines in self.at_import.items()},
                "error": why,
                # Reporting a failure imports more than running a test, and every candidate has failures.
                "borrowed": [] if self.request.patch else _borrowed(),
            }
        )


class _Trace:
    """Notes which lines of the sources run. `sys.settrace` is the one tracer that all supported Pythons have."""

    def __init__(self, names: dict[str, str]) -> None:
        self.names = names
        self.known: dict[str, str | None] = {}
        self.seen: dict[str, set[int]] = {}

    def start(self, seen: dict[str, set[int]]) -> None:
        """Note lines in `seen` from now on."""
        if self.names:
            self.seen = seen
            threading.settrace(self._call)
            sys.settrace(self._call)

    def stop(self) -> None:
        """Note nothing any more."""
        if self.names:
            sys.settrace(None)
            threading.settrace(None)

    def _call(self, frame: FrameType, _event: str, _arg: object) -> Callable[..., Any] | None:
        file = frame.f_code.co_filename
        if file not in self.known:
            self.known[file] = self.names.get(str(Path(file).resolve()))
        name = self.known[file]
        if name is None:
            return None
        lines = self.seen.setdefault(name, set())

        def note(frame: FrameType, event: str, _arg: object) -> Callable[..., Any]:
            if event == "line":
                lines.add(frame.f_lineno)
            return note

        return note


class _Patched:
    """An import hook that gives one module the text of a patch."""

    def __init__(self, patch: Patch) -> None:
        self.path = str(Path(patch.path).resolve())
        self.code = compile(patch.source.encode(), self.path, "exec", dont_inherit=True)

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Find what would be imported anyway; stand in for its loader if it is the patched file."""
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is None or spec.origin is None or str(Path(spec.origin).resolve()) != self.path:
            return None
        spec.loader = self  # type: ignore[assignment]
        return spec

    def create_module(self, _spec: importlib.machinery.ModuleSpec) -> None:
        """Leave the module object to Python."""

    def exec_module(self, module: ModuleType) -> None:
        """Run the patched text as the module."""
        exec(self.code, module.__dict__)  # noqa: S102 - running the project's own code is what a test run does


def _borrowed() -> list[str]:
    """The imported modules that belong to Python or to installed packages: safe to have before the next fork."""
    roots = tuple(
        {str(Path(sysconfig.get_path(name)).resolve()) for name in ("stdlib", "purelib", "platlib")}
    )
    names = []
    for name, module in list(sys.modules.items()):
        file = getattr(getattr(module, "__spec__", None), "origin", None)
        if isinstance(file, str) and file.startswith(roots):
            names.append(name)
    return names


def _gist(text: str) -> str:
    """The line of a traceback that says what is wrong: pytest marks such lines with an E."""
    lines = [line for line in text.splitlines() if line.strip()]
    marked = [line[1:].strip() for line in lines if line.startswith("E ")]
    return (marked or [lines[-1].strip() if lines else "no reason given"])[-1]
