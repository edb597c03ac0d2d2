"""The page on telemetry names every metric, span and attribute there is, and no other."""

import re
from pathlib import Path

import pytest

from loopwright.serving import semconv
from loopwright.serving.metrics import Metrics
from loopwright.stores.memory import MemoryStore

PAGE = (Path(__file__).parents[2] / "docs" / "telemetry.md").read_text(encoding="utf-8")
UNITS = {"usd": "US dollars", "seconds": "seconds", "tokens": "tokens", "score": "0 to 1"}


def rows():
    """Each metric of the page: its labels, its unit, what it is."""
    found = re.findall(r"^\| `(loopwright_\w+)` \| (.*?) \| (.*?) \| (.*?) \|$", PAGE, re.MULTILINE)
    assert len({name for name, *_ in found}) == len(found)
    return {name: (tuple(re.findall(r"`(\w+)`", labels)), unit, what) for name, labels, unit, what in found}


def test_the_page_has_every_metric_with_its_labels_and_words():
    pytest.importorskip("prometheus_client")
    made = Metrics()
    text = made.text(MemoryStore()).decode()
    helped = dict(re.findall(r"^# HELP (\S+) (.+)\.$", text, re.MULTILINE))
    page = rows()
    assert {name: what for name, (_, _, what) in page.items()} == helped
    from loopwright.serving.metrics import COUNTED, PRESENT

    labelled = {f"loopwright_{name}_total": labels for name, labels, _ in COUNTED}
    labelled |= {f"loopwright_{name}": labels for name, labels, _ in PRESENT}
    labelled |= {"loopwright_gate_seconds": ("loop", "gate"), "loopwright_attempt_seconds": ("loop",)}
    assert {name: labels for name, (labels, _, _) in page.items()} == labelled


def test_the_unit_of_a_metric_is_the_last_word_of_its_name():
    for name, (_, unit, _) in rows().items():
        word = name.removesuffix("_total").rpartition("_")[2]
        expected = "seconds since 1970" if "timestamp" in name else UNITS.get(word, unit)
        assert unit == expected, name
        assert unit in {*UNITS.values(), "seconds since 1970", "count", "0 or 1", "1"}


def test_the_alerts_ask_for_metrics_that_exist():
    asked = set(re.findall(r"\b(loopwright_\w+)(?:\{| *\)|\))", PAGE.split("### Three alerts")[1]))
    assert asked
    assert asked <= rows().keys()


def test_the_page_has_every_span_event_and_attribute():
    names = {value for name, value in vars(semconv).items() if name.isupper() and isinstance(value, str)}
    names -= {semconv.SCOPE, semconv.VERSION}
    written = set(re.findall(r"`([a-z_.]+)(?: [A-Z]+)?`", PAGE))
    assert sorted(names - written) == []
    of_ours = {name for name in written if name.startswith(("gen_ai.", "loopwright."))}
    assert sorted(of_ours - names) == []
    assert f'`loopwright.semconv = "{semconv.VERSION}"`' in PAGE
