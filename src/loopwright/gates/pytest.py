"""The gate that runs pytest: `junit` with the command and the report of its own.

Rule: it passes only when pytest exits 0 *and* wrote a report in which tests ran and none failed. Either alone can be
had without the other: a test that calls `os._exit(0)`, a suite where all is skipped.

Exit codes: https://docs.pytest.org/en/stable/reference/exit-codes.html.
"""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Final

from loopwright.argv import words
from loopwright.core.judge import Rule
from loopwright.core.values import Score
from loopwright.errors import BadEvidence, ConfigError, NotStartable
from loopwright.evidence.tally import Failing
from loopwright.gates._tests import check_counts
from loopwright.gates._tool import Ran, Source, arguments, judged, resolve
from loopwright.gates.junit import score_of_tests
from loopwright.ports import Gate, Measure, Place, Seen

_REPORT: Final = "junit.xml"
_NO_TESTS: Final = 5
_LOOK: Final = "import importlib.util as u, sys; sys.exit(0 if u.find_spec('pytest') else 3)"


def pytest(
    *,
    args: str | Sequence[str] = (),
    python: str | None = None,
    run: str | list[str] | None = None,
    min_tests: int = 1,
    allow_empty: bool = False,
) -> Gate:
    """A gate that passes when pytest with `args` exits 0 and its report shows at least `min_tests` tests, none failed.

    `python` (a name or path) runs it; by default the project's `.venv/bin/python`, else the one on PATH. `run` is how
    pytest is started instead (`uv run pytest`). Value and raw
    are those of `junit`; what fails is named by its node id. `allow_empty` accepts that there is no test.
    """
    given = arguments(args)
    check_counts("pytest", min_tests)
    start = () if run is None else words(run)
    if start and python is not None:
        raise ConfigError("pytest: python and run both say how it is started; give one of them")
    if any(word.startswith(("--junitxml", "--junit-xml")) for word in (*start, *given)):
        raise ConfigError(
            "pytest: leave --junitxml out of args, the gate writes and reads a report of its own"
        )

    def begin(place: Place) -> tuple[str, ...]:
        if start:
            return (resolve(start[0], place), *start[1:])
        return (_python(python, place), "-m", "pytest")

    def argv(place: Place) -> tuple[str, ...]:
        report = f"--junitxml={place.artifacts.absolute() / _REPORT}"
        cache = f"cache_dir={place.artifacts.absolute() / 'pycache' / 'pytest'}"  # new and thrown away
        # xunit1 names each test's file, which makes node ids of the names.
        ours = ("-o", cache, "-o", "junit_family=xunit1", report)
        return (*begin(place), *ours, *given)

    def probe(place: Place) -> str:
        program, *more = begin(place)
        if not start:
            _must_have_pytest(program, place)
        return shlex.join((program, *more, *given))

    def judge(ran: Ran) -> Score:
        if ran.code not in {0, 1, 2, _NO_TESTS}:  # 3: pytest broke, 4: its arguments or conftest did
            raise BadEvidence("exit", "pytest could not run the tests")
        ok = (0, _NO_TESTS) if allow_empty else (0,)
        return score_of_tests(ran, min_tests=min_tests, allow_empty=allow_empty, ok=ok, named=_node_id)

    origin = Source(argv=argv, own=(_REPORT,))

    async def check(seen: Seen, place: Place) -> Measure:
        score = await judged(origin, seen, place, judge)
        if score.status == "error" and "No module named pytest" in score.reason:
            if start:
                raise NotStartable(f"{shlex.join(start)} finds no pytest; install it there")
            _must_have_pytest(_python(python, place), place)
        return score

    return Gate(rule=Rule(name="pytest"), check=check, probe=probe, python=True)


def _python(python: str | None, place: Place) -> str:
    if python is not None:
        return resolve(python, place)
    try:
        return resolve("python", place)  # the project's own, in its .venv, comes first
    except NotStartable:
        return resolve("python3", place)  # Debian has only this one


def _must_have_pytest(python: str, place: Place) -> None:
    """NotStartable when this Python has no pytest."""
    try:
        found = subprocess.run(
            [python, "-c", _LOOK],
            cwd=place.root,
            env=dict(place.env),
            timeout=30,
            check=False,
            capture_output=True,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotStartable(f"cannot start {python}: {error}") from None
    if found.returncode == 3:
        raise NotStartable(f"{python} has no pytest; install it: {python} -m pip install pytest")
    if found.returncode:
        last = found.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
        raise NotStartable(f"{python} does not run (exit {found.returncode}): {last}")


def _node_id(failing: Failing) -> str:
    """A test's name as pytest writes it: `tests/test_a.py::TestX::test_y[1]`."""
    if not failing.file:
        return failing.id
    module = ".".join(PurePosixPath(failing.file).with_suffix("").parts)
    if failing.kind == "collection" and f"{failing.classname}.{failing.name}".strip(".") == module:
        return failing.file
    if failing.classname != module and not failing.classname.startswith(f"{module}."):
        return failing.id
    classes = failing.classname[len(module) + 1 :]
    long = "::".join([failing.file, *([*classes.split(".")] if classes else []), failing.name])
    return long if len(long) <= 300 else failing.id
