"""The demo, from the wheel that people install: it repairs, it refuses, and its folder stays."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    build = (
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "-q",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        str(folder),
        str(ROOT),
    )
    subprocess.run(build, check=True, capture_output=True, timeout=100)
    (made,) = folder.glob("*.whl")
    return made


def test_the_wheel_holds_the_demo_and_no_surprises(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert "loopwright/demo/project/loop.toml" in names
    assert "loopwright/demo/project/.gitignore" in names
    assert "loopwright/py.typed" in names
    assert not [n for n in names if n.endswith((".pth", ".pyc")) or n.startswith("tests")]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_demo_repairs_and_refuses(wheel, tmp_path):
    unpacked, place = tmp_path / "unpacked", tmp_path / "place"
    place.mkdir()
    zipfile.ZipFile(wheel).extractall(unpacked)
    env = {
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "PYTHONPATH": str(unpacked),
        "LANG": "C.UTF-8",
        # Of pytest's plug-ins the one that `make demo` installs: compiling our own for every gate takes seconds.
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTEST_PLUGINS": "pytest_cov.plugin",
    }

    def loopwright(*args: str) -> subprocess.CompletedProcess:
        argv = [sys.executable, "-m", "loopwright", *args]
        return subprocess.run(
            argv, cwd=place, env=env, capture_output=True, text=True, timeout=250, check=False
        )

    shown = loopwright("demo")
    assert shown.returncode == 0, shown.stderr
    repaired = json.loads(loopwright("show", "repair", "--json", "-C", "loopwright-demo/pocket").stdout)
    assert repaired["reason"] == "quality_reached"
    assert repaired["iterations"] >= 4
    refused = json.loads(loopwright("show", "cheat", "--json", "-C", "loopwright-demo/cheated").stdout)
    assert (refused["reason"], refused["exit_code"]) == ("health", 4)
    assert "put back: tests/" in shown.stderr
    for line in shown.stderr.splitlines()[-3:]:  # the three commands to try
        tried = loopwright(*line.split()[1:])
        assert tried.returncode == 0
        assert tried.stdout
    scores = [
        row["score"]
        for row in _closed(loopwright("show", "repair", "--events", "--json", "-C", "loopwright-demo/pocket"))
    ]
    assert scores == sorted(scores), "the scores rise"


def _closed(done: subprocess.CompletedProcess) -> list[dict]:
    return [fact["verdict"] for fact in json.loads(done.stdout) if fact["type"] == "Judged"]


def test_a_folder_that_is_not_the_demos_is_left_alone(tmp_path):
    (tmp_path / "loopwright-demo").mkdir()
    (tmp_path / "loopwright-demo" / "mine.txt").write_text("mine")
    argv = [sys.executable, "-m", "loopwright", "demo", "-C", str(tmp_path)]
    env = {**os.environ, "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])}
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "was not made by the demo" in done.stderr
    assert (tmp_path / "loopwright-demo" / "mine.txt").read_text() == "mine"
