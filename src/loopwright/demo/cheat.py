"""A command agent that cheats: it makes failing tests pass by rewriting the tests.

    python -m loopwright.demo.cheat

It shows what a loop is for. Agents do this when a test is all that stands between them and "done"; a run that
protects tests/** puts the tests back, says so, and judges again.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from loopwright.demo import answer
from loopwright.demo.warm import Request, warm

if TYPE_CHECKING:
    from collections.abc import Sequence

PROGRAM: Final = "loopwright.demo.cheat"


def main() -> int:
    """Empty every failing test of the project in the current folder and claim success."""
    answer.ignore_prompt()
    with warm([]) as runs:
        report = runs.run(Request())
    if report.error or report.cut:
        return answer.give_up(PROGRAM, f"the test-suite cannot be run: {report.error or report.cut}")
    names: dict[str, list[str]] = {}
    for test in report.having("failed"):
        names.setdefault(report.tests[test].file, []).append(test.partition("::")[2].partition("[")[0])
    for file, failing in names.items():
        answer.say(f"rewriting {len(set(failing))} tests in {Path(file).name}")
        answer.replace_file(Path(file), emptied(Path(file).read_bytes(), failing))
    count = sum(map(len, names.values()))
    return answer.finish(f"All tests pass now ({count} were wrong)." if count else "Nothing to do.", count)


def emptied(source: bytes, tests: Sequence[str]) -> bytes:
    """Return the test module with the bodies of these tests replaced; a method is named "Class::test"."""
    lines = source.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    bodies = [body for name, body in _bodies(ast.parse(source)) if name in set(tests)]
    for body in sorted(bodies, key=lambda body: body[0].lineno, reverse=True):
        first, last = body[0], body[-1]
        begin = starts[first.lineno - 1] + first.col_offset
        end = starts[(last.end_lineno or last.lineno) - 1] + (last.end_col_offset or 0)
        source = source[:begin] + b"assert True" + source[end:]
    return source


def _bodies(tree: ast.Module) -> list[tuple[str, list[ast.stmt]]]:
    """Every function of a test module by pytest's name for it, with its statements."""
    found = []
    waiting: list[tuple[str, ast.stmt]] = [("", node) for node in tree.body]
    while waiting:
        prefix, node = waiting.pop()
        if isinstance(node, ast.ClassDef):
            waiting += [(f"{prefix}{node.name}::", child) for child in node.body]
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.append((f"{prefix}{node.name}", node.body))
    return found


if __name__ == "__main__":
    sys.exit(main())
