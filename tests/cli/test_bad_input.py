"""Bad input of every kind: one clear message with place and suggestion, the exit code of DESIGN §11, nothing half-created.

Rule: a row is a command line and what the message must say. No row may leave a file behind, and none may show a
traceback.
"""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import pytest
from stage import WORK, Stage, files

RUN = ("run", "--goal", "g", "--agent", "true", "--gate", "true")
SEVERAL = ("cat x | wc", "a && b")
BOUNDS = ("--max-iterations", "--max-duration", "--budget", "--threshold")


def limits(*values: str) -> tuple[str, ...]:
    return (*RUN, *(word for pair in zip(BOUNDS, values, strict=True) for word in pair))


ROWS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "unknown verb": (("runn",), ("there is no verb 'runn'", "did you mean 'run'?")),
    "unknown verb, nothing near": (("frobnicate",), ("there is no verb 'frobnicate'", "run, resume, list")),
    "unknown option": ((*RUN, "--max-iteration", "3"), ("--max-iteration", "did you mean --max-iterations?")),
    "unknown option, nothing near": ((*RUN, "--zzz"), ("--zzz", "loopwright run --help")),
    "option without its value": (("run", "--goal"), ("--goal", "requires an argument")),
    "unknown key": ((*RUN, "--set", "treshold=1"), ("--set treshold", "did you mean 'threshold'?")),
    "unknown limit": (
        (*RUN, "--set", "limits.max_iteration=3"),
        ("--set limits.max_iteration", "did you mean 'max_iterations'?"),
    ),
    "key in the wrong place": ((*RUN, "--set", "max_wait=3"), ("--set max_wait", "belongs in [limits]")),
    "no value": ((*RUN, "--set", "limits.budget"), ("--set limits.budget", "KEY=VALUE")),
    "unknown monitor": (
        (*RUN, "--set", "monitors.stal=stop"),
        ("--set monitors.stal", "did you mean 'stall'?"),
    ),
    "wrong word": ((*RUN, "--approve", "maybe"), ("--approve", "never, passed, always, alert", "'maybe'")),
    "wrong type": ((*RUN, "--set", "protected=3"), ("--set protected", "list", "3")),
    "not in this version": (
        (*RUN, "--set", "deliver.to=pr"),
        ("--set deliver.to", "available: none, branch"),
    ),
    "limits of 0": (
        limits("0", "0s", "0", "0"),
        (
            "--max-iterations: 0 is below 1",
            "--max-duration: '0s' is not above 0",
            "--budget: 0 is not above 0",
        ),
    ),
    "limits below 0": (
        limits("-1", "-5m", "-1", "-1"),
        ("--max-iterations: -1 is below 1", "--max-duration: '-5m'", "--budget: -1 is", "--threshold: -1 is"),
    ),
    "limits without end": (
        limits("inf", "inf", "inf", "inf"),
        (*(f"{flag}: " for flag in BOUNDS), "expected a whole number, got inf", "not a finite number"),
    ),
    "limits that are no number": (
        limits("nan", "nan", "nan", "nan"),
        (*(f"{flag}: " for flag in BOUNDS), "expected a whole number, got nan", "not a finite number"),
    ),
    "limits in words": (
        limits("many", "5parsecs", "much", "high"),
        ("'many'", "'5parsecs'", "'much'", "'high'", *(f"{flag}: " for flag in BOUNDS)),
    ),
    "limits beyond": (
        limits("2.5", "1e300", "1e300", "2"),
        ("whole number, got 2.5", "--max-duration: ", "--budget: ", "--threshold: 2 is above 1"),
    ),
    "window too long": (
        (*RUN, "--set", "limits.convergence.window=65"),
        ("--set limits.convergence.window", "64"),
    ),
    "missing loop file": (("run", "lop.toml"), ("lop.toml", "no such loop file")),
    "missing loop file, one near": (("run", "lop.toml"), ("did you mean 'loop.toml'?",)),
    "no loop at all": (("run",), ("no loop.toml", "--goal and --agent")),
    "nothing to pass": (("run", "--goal", "g", "--agent", "true"), ("add a required gate",)),
    "missing agent": (
        ("run", "--goal", "g", "--agent", "no-such-agent", "--gate", "true"),
        ("--agent", "'no-such-agent'", "on PATH"),
    ),
    "missing agent's file": (
        ("run", "--goal", "g", "--agent", "./agent.sh", "--gate", "true"),
        ("agent agent.sh", "there is no program", "a path with a /"),
    ),
    "missing gate": (
        ("run", "--goal", "g", "--agent", "true", "--gate", "pytset"),
        ("--gate", "'pytset'", "did you mean 'pytest'?"),
    ),
    "shell syntax, all at once": (
        ("run", "--goal", "g", "--agent", SEVERAL[0], "--gate", SEVERAL[1]),
        ("write sh -c 'cat x | wc'", "write sh -c 'a && b'"),
    ),
    "shell substitution": (
        ("run", "--goal", "g", "--agent", "echo $(date)", "--gate", "true"),
        ("'$('", "write sh -c 'echo $(date)'"),
    ),
    "open quote": (
        ("run", "--goal", "g", "--agent", "sh -c 'x", "--gate", "true"),
        ("--agent", "no closing quotation"),
    ),
    "empty goal": (("run", "--goal", "", "--agent", "true", "--gate", "true"), ("--goal", "empty")),
    "goal file missing": (
        ("run", "--goal", "@no.md", "--agent", "true", "--gate", "true"),
        ("--goal", "no.md", "begins with @"),
    ),
    "secret as a value": ((*RUN, "--env", "KEY=abc"), ("--env", "names only")),
    "unknown store": ((*RUN, "--store", "bogus"), ("--store", "sqlite:///PATH")),
    "store of a later version": ((*RUN, "--store", "s3://b/p"), ("--store", "not available in this version")),
    "a worktree of nothing": ((*RUN, "--workspace", "worktree"), ("no git repository", "--workspace folder")),
    "a branch of nothing": ((*RUN, "--set", "deliver.to=branch"), ("deliver.to", "git repository")),
    "the best in place": ((*RUN, "--set", "start_from=best"), ("start_from", "worktree")),
    "nothing there to link": (
        (*RUN, "--workspace", "folder", "--set", 'workspace.link=[".venv"]'),
        ("workspace.link", "no .venv"),
    ),
    "nothing there to watch": ((*RUN, "--set", 'workspace.watch=["../no"]'), ("workspace.watch", "no")),
    "-C to nowhere": ((*RUN, "-C", "nowhere"), ("-C nowhere", "no such folder")),
    "no runs yet": (("show", "latest"), ("there are no runs here", "loopwright run")),
    "no runs to resume": (("resume", "r"), ("there are no runs here", "loopwright run")),
    "no runs to stop": (("stop", "r"), ("there are no runs here", "loopwright run")),
    "no run named": (("resume",), ("argument 'RUN'", "loopwright resume --help")),
    **{
        f"run id {name!r}": ((*RUN, "--as", name), (f"{name!r} cannot name a run", "64 at most"))
        for name in ("../x", "latest", "a/b", "", "a" * 65, "x.lock", "x.", "a..b", ".x", "a b", "é", "/x")
    },
}


@pytest.mark.parametrize("name", ROWS)
def test_refused_with_one_message_and_nothing_created(stage: Stage, name):
    line, wanted = ROWS[name]
    if "one near" in name:
        stage.write("loop.toml", "")
    before = files(stage.folder.parent)
    ran = stage(*line)
    assert ran.code == 2, ran.err
    assert ran.out == ""
    assert ran.err.startswith("loopwright: "), ran.err
    for words in wanted:
        assert words in ran.err
    assert files(stage.folder.parent) == before


def test_a_loop_file_with_many_faults_names_them_all_with_their_lines(stage):
    stage.write(
        "loop.toml", 'gaol = "g"\nagent = "true"\nthreshold = nan\n[limits]\nbudget = "5"\nagents = 1\n'
    )
    before = files(stage.folder)
    ran = stage("run", expect=2)
    for words in (
        "loop.toml:1: gaol: unknown key; did you mean 'goal'?",
        "loop.toml:3: threshold",
        "loop.toml:5: limits.budget",
        "loop.toml:6: limits.agents",
        "goal: missing",
    ):
        assert words in ran.err
    assert files(stage.folder) == before


def test_a_loop_file_that_is_no_toml_says_where(stage):
    stage.write("loop.toml", 'goal = "g"\nagent = \n')
    assert "loop.toml:2:" in stage("run", expect=2).err


ABSENT = [
    *((verb, "nope") for verb in ("show", "why", "resume", "stop", "pause", "diff", "restore")),
    ("resume", "../r"),
    ("show", ""),
    ("stop", "r/x"),
]


@pytest.mark.parametrize(("verb", "name"), ABSENT)
def test_a_run_that_is_not_there(made: Path, verb, name):
    before = files(made)
    ran = at(made)(verb, name, expect=2)
    assert f"there is no run {name!r} here; loopwright list --all" in ran.err
    assert files(made) == before


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    stage = Stage.made(tmp_path_factory.mktemp("made"), WORK)
    stage.run("--max-iterations", "1", expect=3)
    return stage.folder


@pytest.fixture
def ended(made: Path, tmp_path: Path) -> Path:
    """A folder with a run that ended at its limit."""
    return Path(shutil.copytree(made, tmp_path / "work", symlinks=True))


def at(folder: Path) -> Stage:
    return Stage(folder, folder.parent / "plan.json")


def sql(path: Path, *statements: str) -> None:
    db = sqlite3.connect(path)
    for statement in statements:
        db.execute(statement)
    db.commit()
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()


def foreign(path: Path) -> None:
    path.unlink()
    sql(path, "CREATE TABLE t (x)")


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def scrambled(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[:100] + b"\xff" * (len(content) - 100))


ALL, ONE = "every run", "this run"
READING = {ALL: (*RUN, "--as", "other"), ONE: ("show", "r", "--json")}
CHANGED = 'UPDATE commits SET body = CAST(replace(CAST(body AS TEXT), \'"owner":"\', \'"owner":"x\') AS BLOB) WHERE id % 4294967296 = 2'
DAMAGE = {
    "empty": (ALL, lambda p: p.write_bytes(b""), "is empty"),
    "not a database": (
        ALL,
        lambda p: p.write_text("something else, much longer than a header " * 9),
        "damaged",
    ),
    "cut short": (ALL, lambda p: p.write_bytes(p.read_bytes()[:5000]), "damaged"),
    "overwritten": (ALL, scrambled, "damaged"),
    "a folder": (ALL, folder, "cannot be used"),
    "of another program": (ALL, foreign, "something else"),
    "of a newer version": (ALL, lambda p: sql(p, "PRAGMA user_version = 9"), "use the version that wrote it"),
    "a lost table": (ALL, lambda p: sql(p, "DROP TABLE signals"), "lost tables"),
    "a lost commit": (
        ONE,
        lambda p: sql(p, "DELETE FROM commits WHERE id % 4294967296 = 2"),
        "has no commit 2",
    ),
    "a changed commit": (ONE, lambda p: sql(p, CHANGED), "commit 2 of run r is not as it was"),
    "a cut commit": (
        ONE,
        lambda p: sql(
            p, "UPDATE commits SET body = CAST(substr(body, 1, 40) AS BLOB) WHERE id % 4294967296 = 2"
        ),
        "commit 2 of run r is not as it was",
    ),
    "text for a commit": (
        ONE,
        lambda p: sql(p, "UPDATE commits SET body = 'x' WHERE id % 4294967296 = 2"),
        "commit 2",
    ),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damaged_state_is_named_and_kept(ended: Path, name):
    scope, damage, words = DAMAGE[name]
    path, stage = ended / ".agent-state/loopwright.db", at(ended)
    damage(path)
    before = None if path.is_dir() else path.read_bytes()
    for verb in (("resume", "r", "--add-iterations", "1"), READING[scope]):
        ran = stage(*verb, expect=9)
        assert words in ran.err
        assert ran.out == ""
        assert len(ran.err.splitlines()) == 1
    assert path.is_dir() if before is None else path.read_bytes() == before
    if scope is ONE:
        assert [head["run"] for head in stage("list", "--all", "--json", expect=0).doc] == ["r"]


def test_a_damaged_head_is_made_anew(ended: Path):
    stage = at(ended)
    before = stage("list", "--all", "--json", expect=0).out
    sql(ended / ".agent-state/loopwright.db", "UPDATE heads SET body = x'00'")
    assert stage("list", "--all", "--json", expect=0).out == before


@pytest.mark.parametrize("kind", ["a file", "a link"])
def test_a_state_folder_that_is_none_is_refused(stage, kind):
    state = stage.folder / ".agent-state"
    (stage.folder.parent / "far").mkdir()
    state.write_text("mine") if kind == "a file" else state.symlink_to("../far")
    before = files(stage.folder.parent)
    ran = stage(*RUN, expect=2)
    assert str(state) in ran.err
    assert files(stage.folder.parent) == before
