"""Charts as SVG text: the score over iterations, and what it cost.

Rule: readable without colour and by a screen reader (`role`, title, description), no script, no style
of its own but classes; what has no class stylesheet still draws in black. Numbers only: no foreign text
but gate names, escaped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from html import escape
from typing import Final, TypeAlias

from loopwright.core.closing import best_now
from loopwright.figures import count, money, safe, score, short, tokens
from loopwright.report.landing import landing
from loopwright.report.values import Report

WIDE: Final = 880
HIGH: Final = 260
LEFT, RIGHT, TOP, BOTTOM = 44, 24, 16, 28
DOTS: Final = 60  # points up to which each is a dot of its own
COLOURS: Final = 8  # classes g0 to g7 for gates

Points: TypeAlias = Sequence[tuple[int, float]]
Along: TypeAlias = Callable[[float], float]


def score_chart(
    report: Report,
    *,
    ident: str = "score",
    wide: int = WIDE,
    ahead: bool = False,
    link: Callable[[int], str] | None = None,
) -> str:
    """The score of each iteration in bold, its gates thin, threshold, alerts and the best; `ident` must be unique on a page.

    `ahead`: with room for a few iterations to come; `link` is where an iteration's point leads.
    """
    points = report.series.score
    if not points:
        return ""
    last, first = max(report.state.iteration, 1), min(points[0][0], 1)
    last += _room(report, last) if ahead else 0
    right = wide - RIGHT
    x, y = _scale(first, last, wide), _heights(1.0, HIGH)
    best = best_now(report.state)
    threshold = report.state.spec.get("threshold")
    drawn = [
        *(
            f'<line class="grid" x1="{LEFT}" x2="{right}" y1="{y(v):.1f}" y2="{y(v):.1f}" '
            f'stroke="#d8d8d4"/><text class="axis" x="{LEFT - 8}" y="{y(v) + 4:.1f}" text-anchor="end">{v:g}</text>'
            for v in (0.0, 0.25, 0.5, 0.75, 1.0)
        ),
        *_ticks(first, last, x, wide),
        *_alerts(report, x),
    ]
    if isinstance(threshold, int | float):
        drawn.append(
            f'<line class="mark" x1="{LEFT}" x2="{right}" y1="{y(threshold):.1f}" y2="{y(threshold):.1f}" '
            f'stroke="#2f6f55" stroke-dasharray="6 4"/>'
            f'<text class="axis" x="{LEFT + 6}" y="{y(threshold) - 5:.1f}">threshold {threshold:g}</text>'
        )
    for i, (name, line) in enumerate(report.series.gates.items()):
        drawn.append(
            f'<polyline class="gate g{i % COLOURS}" fill="none" stroke="#888" points="{_path(line, x, y)}">'
            f"<title>{escape(safe(name))}</title></polyline>"
        )
    drawn.append(
        f'<polyline class="score" fill="none" stroke="#222" stroke-width="3" points="{_path(points, x, y)}"/>'
    )
    if len(points) <= DOTS:
        drawn += [_dot(n, v, x, y, link) for n, v in points]
    if best is not None and first <= best.iteration:
        drawn.append(
            f'<circle class="best" cx="{x(best.iteration):.1f}" cy="{y(best.score):.1f}" r="8" fill="none" '
            f'stroke="#222"><title>best: #{best.iteration}, {score(best.score)}</title></circle>'
        )
    said = (
        f"{count(len(points), 'point')} from iteration {points[0][0]} ({points[0][1]:.2f}) to {points[-1][0]} "
        f"({points[-1][1]:.2f})"
        + (f"; the best is {score(best.score)} in iteration {best.iteration}" if best else "")
        + (f"; {count(len(report.state.alerts), 'alert')}" if report.state.alerts else "")
    )
    return _svg(ident, "Score over iterations", said, wide, HIGH, drawn)


def _dot(n: int, v: float, x: Along, y: Along, link: Callable[[int], str] | None) -> str:
    """A point that says its number; for a mouse it leads on, a keyboard has the table."""
    dot = (
        f'<circle class="dot" cx="{x(n):.1f}" cy="{y(v):.1f}" r="4"><title>#{n}: {score(v)}</title></circle>'
    )
    return dot if link is None else f'<a href="{escape(link(n))}" tabindex="-1">{dot}</a>'


def _room(report: Report, last: int) -> int:
    """How many iterations to come are drawn: a quarter of those done, no more than there may be."""
    most = _limit(report, "max_iterations")
    if report.state.finished is not None or not isinstance(most, int | float):
        return 0
    return max(0, min(int(most) - last, max(2, last // 4)))


def _limit(report: Report, name: str) -> float | None:
    """A limit in force, as the run says it."""
    state = report.state
    found = state.limits.get(name, (state.spec.get("limits") or {}).get(name))
    return found if isinstance(found, int | float) else None


def cost_chart(report: Report, *, ident: str = "cost", wide: int = WIDE, ahead: bool = False) -> str:
    """US dollars spent by the end of each iteration, with the budget; empty when nothing is known or free.

    Where a plan pays they are tokens, without the budget, which is in dollars. `ahead`: with a line to where it lands.
    """
    plan = report.state.totals.plan
    points = report.series.tokens if plan else report.series.spent
    budget = None if plan else _limit(report, "budget")
    most = max([v for _, v in points], default=0.0)
    if len(points) < 2 or most <= 0:
        return ""
    high, right = 120, wide - RIGHT
    lands = _lands(report, plan=plan) if ahead else None
    top = max(most, budget or 0.0, lands[1] if lands else 0.0)
    x = _scale(points[0][0], max(points[-1][0], lands[0] if lands else 0), wide)
    y = _heights(top, high)

    def shown(value: float) -> str:
        return short(round(value)) if plan else money(value)

    drawn = [
        f'<polyline class="score" fill="none" stroke="#222" stroke-width="2" points="{_path(points, x, y)}"/>',
        f'<text class="axis" x="{LEFT - 6}" y="{y(0) + 4:.1f}" text-anchor="end">{"0" if plan else "$0"}</text>',
        f'<text class="axis" x="{LEFT - 6}" y="{y(most) + 4:.1f}" text-anchor="end">{shown(most)}</text>',
    ]
    if lands is not None:
        drawn.append(
            f'<polyline class="ahead" fill="none" stroke="#777" stroke-dasharray="4 4" '
            f'points="{_path((points[-1], lands), x, y)}"/>'
        )
    if isinstance(budget, int | float):
        drawn.append(
            f'<line class="bound" x1="{LEFT}" x2="{right}" y1="{y(budget):.1f}" y2="{y(budget):.1f}" '
            f'stroke="#a33" stroke-dasharray="4 4"/><text class="axis" x="{right}" y="{y(budget) + 14:.1f}" '
            f'text-anchor="end">budget {money(budget)}</text>'
        )
    sum_of = tokens(round(most)) if plan else money(most)
    said = f"{sum_of} by iteration {points[-1][0]}" + (f" of {money(budget)}" if budget else "")
    said += f"; lands near {shown(lands[1])} at iteration {lands[0]}" if lands else ""
    return _svg(ident, "Tokens over iterations" if plan else "Cost over iterations", said, wide, high, drawn)


def _lands(report: Report, *, plan: bool) -> tuple[int, float] | None:
    """Where the line of the costs goes on to."""
    found = landing(report.state)
    value = None if found is None else found.tokens if plan else found.usd
    return None if found is None or value is None else (found.iteration, value)


def _svg(ident: str, title: str, said: str, wide: int, high: int, drawn: Iterable[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" width="100%" role="img" '
        f'font-size="12" font-family="sans-serif" '
        f'aria-labelledby="{ident}-title {ident}-desc"><title id="{ident}-title">{escape(title)}</title>'
        f'<desc id="{ident}-desc">{escape(said)}</desc>{"".join(drawn)}</svg>'
    )


def _scale(first: int, last: int, wide: int) -> Along:
    """Where an iteration stands, from left to right."""
    step = (wide - LEFT - RIGHT) / max(1, last - first)
    return lambda number: LEFT + (number - first) * step


def _heights(top: float, high: int) -> Along:
    """Where a value stands, from bottom to top."""
    unit = (high - TOP - BOTTOM) / top
    return lambda value: high - BOTTOM - value * unit


def _path(points: Points, x: Along, y: Along) -> str:
    return " ".join(f"{x(n):.1f},{y(v):.1f}" for n, v in points)


def _ticks(first: int, last: int, x: Along, wide: int) -> Iterable[str]:
    step = max(1, -(-(last - first) // (wide // 56)))
    for number in range(first, last + 1, step):
        yield f'<text class="axis" x="{x(number):.1f}" y="{HIGH - 8}" text-anchor="middle">{number}</text>'


def _alerts(report: Report, x: Along) -> Iterable[str]:
    """A band under each iteration that raised alerts, with their kinds."""
    kinds: dict[int, list[str]] = {}
    for alert in report.alerts:
        kinds.setdefault(alert.iteration, []).append(alert.kind)
    for number, names in kinds.items():
        yield (
            f'<rect class="alert" x="{x(number) - 6:.1f}" y="{TOP}" width="12" height="{HIGH - TOP - BOTTOM}" '
            f'fill="#f0dcc0"><title>#{number}: {escape(safe(", ".join(names)))}</title></rect>'
        )
