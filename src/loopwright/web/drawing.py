"""Templates: values in, HTML out.

Rule: everything that a template is given is escaped, and characters that drive a terminal or turn text around are shown,
not obeyed. Only charts, made of numbers here, come as HTML.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from loopwright.figures import count, money, paid, safe, score, seconds, short, tokens

HERE: Final = Path(__file__).parent
SMALL: Final = (
    "when",
    "pill",
    "spark",
    "gate",
    "request",
    "raises",
    "patched",
)  # macros that every template may use


def _inert(value: object) -> object:
    return safe(value) if type(value) is str else value


@cache
def _environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_inert,
        auto_reload=False,
    )
    made.filters.update(
        count=count, money=money, paid=paid, score=score, seconds=seconds, short=short, tokens=tokens
    )
    made.globals["chart"] = Markup  # for the SVG of our own charts and nothing else
    made.globals["letter"] = False  # whether a mail led to the page
    small = made.get_template("parts.html").module
    made.globals.update({name: getattr(small, name) for name in SMALL})
    return made


def draw(template: str, values: Mapping[str, Any]) -> str:
    """The HTML of a template."""
    return _environment().get_template(template).render(values)


def draw_part(template: str, part: str, values: Mapping[str, Any]) -> str:
    """The HTML of one block of a template."""
    found = _environment().get_template(template)
    return "".join(found.blocks[part](found.new_context(dict(values)))).strip()
