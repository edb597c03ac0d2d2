"""The budgets of the house."""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "loopwright"
FILES = sorted(p for p in SOURCE.rglob("*.py") if "demo/project" not in p.as_posix())
BANNED = {
    "manager",
    "engine",
    "orchestrator",
    "handler",
    "helper",
    "util",
    "utils",
    "common",
    "base",
    "context",
    "service",
}


@pytest.mark.parametrize("file", FILES, ids=lambda p: p.relative_to(SOURCE).as_posix())
def test_a_file_keeps_the_budgets(file):
    text = file.read_text(encoding="utf-8")
    tree = ast.parse(text)
    assert text.count("\n") <= 400
    long = [
        f"{n.name} has {n.end_lineno - n.lineno + 1} lines"
        for n in ast.walk(tree)
        if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef) and n.end_lineno - n.lineno >= 60
    ]
    assert not long
    assert len(file.relative_to(SOURCE).parts) <= 2
    assert not BANNED & set(file.stem.split("_"))
    classes = [n for n in ast.walk(tree) if isinstance(n, ast.ClassDef)]
    assert not [c.name for c in classes if any(word in c.name.lower() for word in BANNED)]


def test_importing_the_package_loads_nothing_else():
    import subprocess
    import sys

    script = "import sys; import loopwright; print(sorted(m for m in sys.modules if m.startswith(('loopwright', 'msgspec', 'apsw', 'click'))))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['loopwright']"


def test_the_public_names_are_sorted_complete_and_importable():
    import loopwright

    assert loopwright.__all__ == sorted(loopwright.__all__)
    for name in loopwright.__all__:
        assert getattr(loopwright, name).__doc__, name
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = loopwright.nonsense
