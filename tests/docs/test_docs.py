"""Documentation is executed, and complete: what it promises runs, and what exists has its place."""

import os
import re
import subprocess
import sys
from dataclasses import fields
from inspect import signature
from pathlib import Path

import pytest

from loopwright.core.head import ENDINGS

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(name: str, language: str) -> list[str]:
    return [
        body for lang, body in FENCE.findall((ROOT / name).read_text(encoding="utf-8")) if lang == language
    ]


@pytest.fixture
def newcomer(tmp_path):
    """An empty folder and an environment in which `loopwright` and `python` are found."""
    env = {"PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]), "LANG": "C.UTF-8"}

    def run(*argv: str, code: int = 0) -> str:
        done = subprocess.run(
            argv, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == code, done.stderr
        return done.stdout

    return tmp_path, run


def test_the_first_real_command_runs_as_it_stands(newcomer):
    folder, run = newcomer
    script = next(b for b in blocks("README.md", "sh") if "--as first" in b)
    shown = run("sh", "-ec", script)
    assert len((folder / "log.txt").read_text().splitlines()) == 3
    assert "quality_reached after 3 iterations" in shown


def test_the_python_example_runs_and_prints_what_it_says(newcomer):
    folder, run = newcomer
    (example,) = blocks("README.md", "python")
    (folder / "story.py").write_text(example)
    promised = re.search(r"# (True .*)$", example, re.MULTILINE).group(1)
    assert run("python", "story.py").strip() == promised
    assert run("python", "story.py").strip() == promised, "the same id again gives the same result"


@pytest.mark.parametrize("number", range(len(blocks("docs/python.md", "python"))))
def test_the_examples_of_the_python_page_print_what_they_say(newcomer, number):
    folder, run = newcomer
    example = blocks("docs/python.md", "python")[number]
    (folder / "example.py").write_text(example)
    promised = re.findall(r"^print\(.*\)  # (.*)$", example, re.MULTILINE)
    assert promised
    assert [" ".join(line.split()) for line in run("python", "example.py").splitlines() if line] == promised


def test_every_public_name_has_its_place_on_the_python_page():
    import loopwright

    headings = re.findall(r"^##+ (\w+)$", (ROOT / "docs/python.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted({*headings} - {"Errors"}) == sorted(loopwright.__all__)


def test_the_loop_file_of_the_readme_is_valid(newcomer):
    folder, run = newcomer
    (example,) = blocks("README.md", "toml")
    (folder / "loop.toml").write_text(
        example.replace("claude -p --permission-mode acceptEdits", "sh agent.sh")
    )
    shown = run("loopwright", "config", "show", "--origin")
    assert "limits.max_iterations = 10    # loop.toml:" in shown


def test_the_story_of_people_runs_as_it_stands(newcomer):
    folder, run = newcomer
    (script,) = blocks("docs/approvals.md", "sh")
    shown = run("sh", "-ec", script)
    assert "accept iteration 1" in shown
    assert len((folder / "log.txt").read_text().splitlines()) == 2
    assert "one more line, please" in run("loopwright", "show", "story", "--prompt")
    assert '"quality_reached"' in run("loopwright", "show", "story", "--json")


def test_every_ending_has_a_row_with_its_exit_code_and_next_step():
    table = (ROOT / "docs/endings.md").read_text(encoding="utf-8")
    row = re.compile(r"^\| `(\w+)` \| \w+ \| (\d+) \| .* \| (.*) \|$", re.MULTILINE)
    rows = {m[1]: (int(m[2]), m[3].replace("`", "")) for m in row.finditer(table)}
    assert {r: (e.exit_code, e.next.format(run="RUN", best="best")) for r, e in ENDINGS.items()} == rows


def test_the_readme_is_short_enough_to_be_read():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 110


def test_links_lead_somewhere():
    for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")):
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_package_docstring_is_true():
    import doctest

    import loopwright

    assert doctest.testmod(loopwright).failed == 0


@pytest.mark.slow
def test_the_example_for_those_who_write_a_store_runs(newcomer):
    folder, run = newcomer
    (example,) = blocks("docs/reliability.md", "python")
    assert len(example.splitlines()) <= 10
    (folder / "test_mine.py").write_text(example)
    shown = run("python", "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider", "test_mine.py")
    assert "tried: order" in shown
    assert "losses: 0" in shown


def test_the_page_of_the_architecture_names_the_modules_that_exist():
    package = ROOT / "src/loopwright"
    page = (ROOT / "docs/dev/architecture.md").read_text(encoding="utf-8")
    named, whole = set(), set()
    for rooms, what in re.findall(r"^\| (`.*?) \| (.*) \|$", page, re.MULTILINE):
        folders = re.findall(r"`(\w+/)`", rooms)
        whole |= set(folders)
        for name in re.findall(r"`(\w+\.py)`", f"{rooms} {what}"):
            found = [f"{folder}{name}" for folder in [*folders, ""] if (package / folder / name).is_file()]
            assert found, f"{name} does not exist beside {rooms}"
            named.add(found[0])
    assert {f"{path.parent.name}/" for path in package.glob("*/__init__.py")} == whole
    one_by_one = [package, *(package / each for each in ("core", "hosts", "workspace", "report"))]
    modules = {str(path.relative_to(package)) for folder in one_by_one for path in folder.glob("*.py")}
    assert sorted(each for each in modules - named if "__" not in each) == []


def test_decisions_are_numbered_without_gaps():
    pages = sorted((ROOT / "docs/decisions").glob("*.md"))
    numbers = [int(page.name.partition("-")[0]) for page in pages]
    assert numbers == list(range(1, len(pages) + 1))
    assert [f"# {number}. " for number in numbers] == [
        page.read_text(encoding="utf-8")[: len(f"# {number}. ")]
        for number, page in zip(numbers, pages, strict=True)
    ]


@pytest.mark.parametrize("name", ["Final", "Attempt", "Result", "Usage", "Score"])
def test_what_a_value_has_is_said_in_its_section(name):
    import loopwright

    said = said_of(name)
    assert [each.name for each in fields(getattr(loopwright, name)) if each.name not in said] == []


@pytest.mark.parametrize("name", ["Loop", "gate", "run", "run_once", "write_once"])
def test_what_a_function_takes_is_said_in_its_section(name):
    import loopwright

    told = "".join(
        (ROOT / f"docs/{page}.md").read_text() for page in ("configuration", "configuration-serve")
    )
    pages = said_of(name) | (words(told) if name == "Loop" else set())
    taken = signature(getattr(loopwright, name)).parameters.keys() - {"fn"}
    assert sorted(taken - pages) == []


def said_of(name: str) -> set[str]:
    """The words in the code of a section of the Python page."""
    page = (ROOT / "docs/python.md").read_text(encoding="utf-8")
    return words(page.partition(f"\n## {name}\n")[2].partition("\n## ")[0])


def words(text: str) -> set[str]:
    return {
        word for code in re.findall(r"`([^`]+)`", FENCE.sub("", text)) for word in re.findall(r"\w+", code)
    }
