"""The page of events is true: its loops load, what its example signs is taken, and it names every status there is."""

import inspect
import os
import re
import tomllib
from datetime import UTC, datetime
from pathlib import Path

from loopwright import signatures, vocabulary
from loopwright.serving import hooks
from loopwright.triggers import watch, webhook
from loopwright.unattended import triggers_of

PAGE = (Path(__file__).parents[2] / "docs" / "triggers-events.md").read_text(encoding="utf-8")
WHSEC = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_the_loops_of_the_page_load():
    found = []
    for text in blocks("toml"):
        said, faults = vocabulary.read(vocabulary.flat(tomllib.loads(text))[0])
        assert faults == []
        found += triggers_of(said["trigger"])
    hook, files = found
    assert webhook.problems(hook, {"GITHUB_HOOK_SECRET": "x" * 16}) == []
    assert watch.problems(files.watch) == []
    assert hook.overlap == files.overlap == "queue"
    assert triggers_of([{"cron": "0 2 * * *"}])[0].overlap == "skip"


def test_what_the_example_signs_is_taken(monkeypatch):
    monkeypatch.setitem(os.environ, "HOOK_SECRET", WHSEC)
    said = {}
    (example,) = blocks("python")
    exec(example, said)
    (trigger,) = triggers_of([{"webhook": "x", "secret": "HOOK_SECRET", "key": ("ticket",)}])
    keys = webhook.keys_of(WHSEC, "standard")
    event = webhook.read(trigger, said["headers"], said["body"].encode(), keys=keys, now=datetime.now(UTC))
    assert event == webhook.Event(key=("key", "17"))


def test_every_status_has_its_row():
    code = inspect.getsource(hooks) + inspect.getsource(webhook)
    real = set(re.findall(r"status=([2-5]\d\d)\b|return ([2-5]\d\d),", code))
    assert set(re.findall(r"^\| ([2-5]\d\d) \|", PAGE, re.MULTILINE)) == {a or b for a, b in real}
    assert all(f"`{word}`" in PAGE for word in ("started", "duplicate", "skipped", "ignored", "pong"))


def test_the_figures_of_the_page():
    assert webhook.MOST_BYTES == 1 << 20
    assert "above 1 MB" in PAGE
    assert f"{webhook.DEPTH} levels deep" in PAGE
    assert f"Each has {signatures.SHORTEST} bytes" in PAGE
    assert f"{watch.MOST:,} files" in PAGE
