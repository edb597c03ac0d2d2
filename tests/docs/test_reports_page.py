"""The page about reports: its example runs, and its keys are those of the document."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

PAGE = (Path(__file__).parents[2] / "docs/reports.md").read_text(encoding="utf-8")


def test_the_example_runs_and_the_json_has_the_keys_that_are_listed(tmp_path):
    (script,) = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    env = {"PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]), "LANG": "C.UTF-8"}
    done = subprocess.run(
        ["sh", "-ec", script], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "## ✓ `three`: quality_reached" in done.stdout
    written = [line for line in done.stdout.splitlines() if line.startswith("out/")]
    promised = re.search(r"the second writes (.*?)\.\n", PAGE, re.DOTALL)[1]
    assert written == re.findall(r"`(\S+)`", promised)
    report = json.loads((tmp_path / "out/report.json").read_text())
    rows = re.findall(r"^\| (`.*) \| .* \|$", PAGE.partition("## JSON")[2], re.MULTILINE)
    listed = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert listed == report.keys() - {"schema"} - {key for key in report if key.endswith("_left_out")} | {
        "iterations_left_out"
    }
    fields = re.search(r"a list: (.*?) \|", PAGE)[1]
    assert re.findall(r"`(\w+)`", fields) == list(report["iterations"][0])
