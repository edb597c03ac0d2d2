"""The colours of the page, light and dark, by what WCAG 2 AA asks: 4.5 for text, 3 for lines and marks."""

import re
from pathlib import Path

import pytest

from loopwright.web import pages

STYLE = (Path(pages.__file__).parent / "static/style.css").read_text()
GROUNDS = ("bg", "card", "ask", "sel")
TEXTS = ("ink", "soft", "good", "warn", "bad", "busy", "acc")
PAIRS = [
    *((text, ground) for text in TEXTS for ground in GROUNDS),
    *((text, "code") for text in ("ink", "soft", "bad")),
    ("add", "addbg"),
    ("del", "delbg"),
    ("soft", "code"),
    ("goink", "go"),
    ("card", "warn"),  # the bar that says that the server is gone
]


def variables(dark):
    light, other = (
        dict(re.findall(r"--(\w+):(#\w+)", part)) for part in re.findall(r":root\{([^}]*)", STYLE)
    )
    return {**light, **other} if dark else light


def light_of(colour):
    digits = colour[1:] if len(colour) == 7 else "".join(2 * digit for digit in colour[1:])
    parts = (int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4))
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one, other):
    low, high = sorted((light_of(one), light_of(other)))
    return (high + 0.05) / (low + 0.05)


def test_contrast_is_counted_as_it_is_defined():
    assert contrast("#000", "#ffffff") == 21 and round(contrast("#777777", "#fff"), 2) == 4.48


@pytest.mark.parametrize("dark", [False, True])
def test_every_text_can_be_read(dark):
    given = variables(dark)
    faint = {
        f"{text} on {ground}": round(found, 2)
        for text, ground in PAIRS
        if (found := contrast(given[text], given[ground])) < 4.5
    }
    assert not faint
    badge = re.search(r"\.badge\{background:var\(--askline\);color:(#\w+)", STYLE)[1]
    assert contrast(badge, given["askline"]) >= 4.5


@pytest.mark.parametrize("dark", [False, True])
def test_every_line_of_a_chart_can_be_seen(dark):
    given = variables(dark)
    lines = dict(re.findall(r"\.(g\d)\{stroke:(#\w+)", STYLE))
    assert len(lines) == 8
    faint = {
        name: round(found, 2)
        for name, colour in {**lines, "askline": given["askline"], "soft": given["soft"]}.items()
        if (found := contrast(colour, given["card"])) < 3
    }
    assert not faint
