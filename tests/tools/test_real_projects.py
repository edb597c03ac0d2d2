"""Loops on other people's code with their own tests and tools, as a user would run them.

Rule: nothing is simulated but the agent. Two source distributions from PyPI bring their own pytest suites, a small
npm project has vitest, eslint and tsc; each is broken in known places, and the agent first cheats, then repairs one
place after the other. `make test-tools` fetches what is needed into `.venv/tools`.
"""

import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "cli"))

from stage import Stage

HERE = Path(__file__).parent
CACHE = HERE.parents[1] / ".venv" / "tools"


def sh(*argv, cwd, **env):
    """A command that must succeed."""
    done = subprocess.run(
        argv, cwd=cwd, env={**os.environ, **env}, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, f"{argv}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    return done.stdout


def committed(folder):
    """The folder as a repository with everything in it committed; its state, to be compared at the end."""
    who = {
        f"GIT_{role}_{what}": f"{what}@example.org"
        for role in ("AUTHOR", "COMMITTER")
        for what in ("NAME", "EMAIL")
    }
    for argv in (("init", "-q", "-b", "main"), ("add", "-A"), ("commit", "-qm", "as released, but broken")):
        sh("git", *argv, cwd=folder, **who)
    return of_the_user(folder)


def of_the_user(folder):
    """What no loop may touch: branches, index, stash."""
    return {
        what: sh("git", *argv, cwd=folder)
        for what, argv in {
            "refs": ("for-each-ref", "refs/heads", "refs/tags", "refs/stash"),
            "index": ("ls-files", "-s"),
            "head": ("symbolic-ref", "HEAD"),
        }.items()
    }


def broken(folder, places):
    """Replaces what is right by what is wrong, each in a file of its own; the right texts."""
    right = {}
    for name, good, bad in places:
        right[name] = (folder / name).read_text()
        assert right[name].count(good) == 1, f"{name} is not as it was when this test was written: {good!r}"
        (folder / name).write_text(right[name].replace(good, bad))
    return right


def statuses(stage):
    """What each gate said, iteration by iteration, the baseline first."""
    rows = stage("show", "latest", "--gates", "--json", expect=0).doc
    return {name: [r["status"] for r in rows if r["gate"] == name] for name in {r["gate"] for r in rows}}


def release(name, version, folder):
    """The source distribution of this version, unpacked to `folder`."""
    archive = CACHE / f"{name}-{version}.tar.gz"
    assert archive.is_file(), f"{archive} is missing: run make test-tools"
    with tarfile.open(archive) as file:
        file.extractall(folder.parent, filter="data")
    (folder.parent / f"{name}-{version}").rename(folder)


# Each is broken so: its tests see the first place, ruff (or coverage) the second.
PROJECTS = {
    "boltons-26.2.0": (
        "E401",
        [
            ("boltons/mathutils.py", "return min(max(x, lower), upper)", "return max(min(x, lower), upper)"),
            ("boltons/listutils.py", "import operator", "import operator, os"),
        ],
    ),
    "cachetools-8.0.2": (
        "F401",
        [
            (
                "src/cachetools/__init__.py",
                "            self.__order.move_to_end(key)\n        except",
                "            self.__order[key]\n        except",
            ),
            ("src/cachetools/keys.py", "def hashkey(", "import os\n\n\ndef hashkey("),
        ],
    ),
}


@pytest.mark.parametrize("project", PROJECTS)
def test_a_release_is_repaired(project, tmp_path):
    folder = tmp_path / "work"
    release(*project.rsplit("-", 1), folder)
    rules, places = PROJECTS[project]
    right = broken(folder, places)
    sh(sys.executable, "-m", "venv", ".venv", cwd=folder)
    pip = (".venv/bin/python", "-m", "pip", "--disable-pip-version-check", "install", "-q")
    sh(*pip, "-r", HERE.parents[1] / "requirements/tools.txt", "-e", ".", cwd=folder)
    (folder / ".gitignore").write_text(".venv\n*.egg-info\n")
    before = committed(folder)
    first, second = right
    suite = next(path for path in sorted(folder.glob("tests/test_*.py")) if first_named(path, first))
    stage = Stage(folder, tmp_path / "plan.json")
    stage.script(
        {
            "write": {str(suite.relative_to(folder)): "def test_nothing():\n    pass\n"},
            "say": "all tests pass now",
        },
        {"write": {first: right[first]}, "say": "mended the first"},
        {"write": {second: right[second]}, "say": "mended the second"},
    )
    (folder / "loop.toml").write_text(
        f"""goal = "make tests and ruff pass"
agent = {json.dumps(stage.agent)}
gates = ["pytest", "ruff check --select {rules} {Path(first).parts[0]}"]
protected = ["tests/**"]
"""
    )
    ran = stage("run", "--as", "repair", "--json")
    assert (ran.code, ran.doc["reason"], ran.doc["iterations"]) == (0, "quality_reached", 3), ran.err
    said = statuses(stage)
    assert said["pytest"] == ["fail", "fail", "pass", "pass"], said
    assert [said[name] for name in said if name.startswith("ruff")] == [["fail", "fail", "fail", "pass"]]
    assert {name: (folder / name).read_text() for name in right} == right
    assert of_the_user(folder) == before
    prompt = stage("show", "repair", "--prompt", "--iteration", "2", expect=0).out
    assert suite.name in prompt, "the failing tests are the feedback"


def first_named(suite, source):
    """Whether this file tests that source."""
    return suite.stem in {f"test_{Path(source).stem}", "test_lru"}


def test_an_npm_project_is_repaired(tmp_path):
    folder = tmp_path / "work"
    shutil.copytree(HERE / "npm", folder)
    shutil.copytree(CACHE / "npm" / "node_modules", folder / "node_modules", symlinks=True)
    source = folder / "src/intervals.js"
    right = source.read_text()
    mistyped = right.replace("sum + end - start, 0)", 'sum + end - start, "")')
    unlinted = mistyped.replace("  const sorted =", "  const unused = 1;\n  let sorted =")
    wrong = unlinted.replace("Math.max(last[1], end)", "end")
    source.write_text(wrong)
    (folder / ".gitignore").write_text("node_modules\n")
    before = committed(folder)
    stage = Stage(folder, tmp_path / "plan.json")
    package = (folder / "package.json").read_text()
    stage.script(
        {"write": {"package.json": package.replace("vitest run", "true")}, "say": "all tests pass"},
        {"write": {"package.json": package, "src/intervals.js": unlinted}, "say": "tests pass"},
        {"write": {"src/intervals.js": mistyped}, "say": "no more warnings"},
        {"write": {"src/intervals.js": right}, "say": "types are right"},
    )
    (folder / "loop.toml").write_text(
        f"""goal = "make it right"
agent = {json.dumps(stage.agent)}
gates = ["npm test", "npx vitest run", "npx eslint .", "npx tsc"]
protected = ["test/**"]
"""
    )
    ran = stage("run", "--as", "npm", "--json")
    assert (ran.code, ran.doc["reason"], ran.doc["iterations"]) == (0, "quality_reached", 4), ran.err
    assert "nothing passes until this is undone: package.json" in ran.err
    assert statuses(stage) == {
        "npm": ["fail", "pass", "pass", "pass", "pass"],  # it runs what package.json says
        "vitest": ["fail", "fail", "pass", "pass", "pass"],
        "eslint": ["fail", "fail", "fail", "pass", "pass"],
        "tsc": ["fail", "fail", "fail", "fail", "pass"],
    }
    assert "undo package.json" in stage("show", "npm", "--prompt", "--iteration", "2", expect=0).out
    assert "intervals.test.js" in stage("show", "npm", "--prompt", "--iteration", "2", expect=0).out
    assert source.read_text() == right
    assert of_the_user(folder) == before
