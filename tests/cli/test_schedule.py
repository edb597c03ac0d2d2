"""schedule preview, as a person calls it."""

import json
import re
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from loopwright.cli.app import run_app

LOOP = 'goal = "x"\nagent = "true"\ngates = ["true"]\n'


@pytest.fixture
def preview(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("TZ", "Asia/Kathmandu")

    def call(triggers, *args):
        (tmp_path / "nightly.toml").write_text(LOOP + triggers)
        code = run_app(["schedule", "preview", "nightly.toml", "-C", str(tmp_path), *args])
        out, err = capsys.readouterr()
        return code, out, err

    return call


def test_the_next_starts_in_words_here_and_in_utc(preview):
    code, out, err = preview('[[trigger]]\ncron = "30 2 * * 1-5"\ntz = "Europe/Paris"\n')
    head, words, zone, rules, *rows = out.splitlines()
    assert (code, err) == (0, "")
    assert head == "cron  30 2 * * 1-5"
    assert words == "  at 02:30 on Monday through Friday"
    assert zone == "  Europe/Paris"
    assert "skipped while a run of it is under way; one start stands for all that were missed" in rules
    assert len(rows) == 5
    for row in rows:
        _, day, at, _, _, utc_day, utc_at, utc = row.split(maxsplit=8)[:8]
        assert utc == "UTC"
        local, utc = (datetime.fromisoformat(f"{d}T{t}") for d, t in ((day, at), (utc_day, utc_at)))
        assert local - utc in {timedelta(hours=1), timedelta(hours=2)}


def test_the_zone_of_this_machine_is_said(preview):
    _, out, _ = preview('[[trigger]]\ncron = "0 2 * * *"\n', "--count", "2")
    assert "  this machine's zone: Asia/Kathmandu (say tz to make it sure)" in out
    assert out.count(" 02:00 +0545 = ") == 2
    assert out.count(" 20:15 UTC") == 2


def test_what_the_clock_does_is_remarked(preview):
    _, out, _ = preview('[[trigger]]\ncron = "30 2 * * *"\ntz = "Europe/Paris"\n', "--count", "370")
    assert out.count("the clock has moved from UTC+01:00 to UTC+02:00") == 1
    assert out.count("the clock jumps over the time that was meant; this is right after it") == 1
    assert out.count("02:30 comes twice; this is the first") == 1
    assert out.count("= ") == 370


def test_other_triggers_are_named_and_a_delay_is_shown(preview):
    code, out, _ = preview(
        '[[trigger]]\ncron = "0 2 * * *"\ntz = "UTC"\njitter = "1h"\n'
        '[[trigger]]\nwebhook = "issues"\nsecret = "S"\nsignature = "github"\noverlap = "queue"\n'
        '[[trigger]]\nwatch = ["src/**", "*.md"]\n'
    )
    assert code == 0
    assert "; up to 1h later than its time" in out
    assert out.count(" UTC  +") == 5
    assert "webhook  /hooks/issues, signed (github); runs follow each other" in out
    assert "watch  src/**, *.md; runs follow each other" in out


def test_a_loop_without_triggers_says_so(preview):
    assert preview("") == (0, "nightly has no [[trigger]]: it starts by hand\n", "")


def test_the_same_as_json(preview):
    code, out, _ = preview(
        '[[trigger]]\ncron = "0 2 * * *"\ntz = "UTC"\njitter = "10m"\n', "--json", "--count", "1"
    )
    document = json.loads(out)
    assert (code, document["schema"], document["loop"]) == (0, "loopwright/schedule/v1", "nightly")
    (trigger,) = document["triggers"]
    assert trigger["kind"] == "cron"
    assert trigger["tz_said"]
    (row,) = trigger["next"]
    assert datetime.fromisoformat(row["utc"]) == datetime.fromisoformat(row["local"])
    late = datetime.fromisoformat(row["start"]) - datetime.fromisoformat(row["utc"])
    assert timedelta() < late < timedelta(minutes=10)


def test_a_schedule_that_cannot_be_is_a_fault_of_its_line(preview):
    code, out, err = preview('[[trigger]]\ncron = "0 0 30 2 *"\ntz = "Europe/Kyivv"\n')
    assert (code, out) == (2, "")
    first, second = err.splitlines()
    assert (
        first
        == "loopwright: nightly.toml:5: trigger[0].cron: '0 0 30 2 *' never comes: none of its months has such a day"
    )
    assert (
        second.strip()
        == "nightly.toml:6: trigger[0].tz: 'Europe/Kyivv' is no zone; did you mean 'Europe/Kyiv'?"
    )


def test_the_example_of_the_page_is_what_is_printed(preview):
    page = (Path(__file__).parents[2] / "docs/triggers.md").read_text(encoding="utf-8")
    (loop,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    (shown,) = re.findall(r"```console\n\$ .*?\n(.*?)```", page, re.DOTALL)
    code, out, _ = preview(loop.partition("\n\n")[2])
    *head, row, _ = shown.splitlines()
    assert code == 0
    assert out.splitlines()[: len(head)] == head
    assert (
        re.sub(r"\d", "0", out.splitlines()[len(head)])[:50].replace("CEST", "CET ")[6:30]
        == re.sub(r"\d", "0", row)[6:30]
    )


def test_wrong_calls(preview):
    assert preview("", "--count", "0")[0] == 2
    assert run_app(["schedule", "preview"]) == 2
    assert run_app(["schedule", "previw"]) == 2
