"""Every CLI as a plain command: what it is told to say and do, it does, whatever version was installed."""

import json

import pytest
from bench import CHECK, RIGHT, WRONG, Bench, missing
from fakellm import Fake
from rows import ROWS

from loopwright.core import events as ev

HALF = "def add(a, b):\n    return a * b\n"


@pytest.mark.parametrize("row", [row for row in ROWS if row.by_hand], ids=lambda row: row.name)
def test_a_plain_command_repairs_in_two_iterations(row, tmp_path):
    if missing(row):
        pytest.skip(missing(row))
    with Fake({}, dump=tmp_path / "bodies") as fake:
        bench = Bench.made(row, tmp_path, fake)
        first, second = bench.mends(WRONG, HALF), bench.mends(HALF, RIGHT)
        second[0]["expect"] = {"body_contains": "it is 6"}
        bench.script(*first, *second, strict=True)
        options = {"use": "command", "env": list(row.keys), **row.by_hand}
        table = ", ".join(f"{key} = {json.dumps(value)}" for key, value in options.items())
        bench.stage.write("loop.toml", f"goal = 'mend calc.py'\nagent = {{ {table} }}\ngates = ['{CHECK}']\n")
        done = bench.stage("run", "loop.toml", "--as", "r", "--json", "--max-iterations", "3")
    assert done.code == 0, (done.err, bench.fake.entries, fake.failures)
    assert not fake.failures
    assert done.doc["iterations"] == 2
    assert (bench.stage.folder / "calc.py").read_text() == RIGHT
    assert len(bench.stage.of(ev.AttemptStarted)) == 2
    assert bench.ended(2) == []
