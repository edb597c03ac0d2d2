"""Foreign texts in Slack messages: cut to Slack's limits, without effect on who reads them.

Rule: what agents, gates, repositories and people wrote stands in elements that Slack shows letter by letter (rich
text, plain text), never in its markup; where only markup will do it is escaped. Control and direction characters are
shown, not obeyed.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias

from loopwright import figures

Block: TypeAlias = dict[str, Any]

_MARKUP: Final = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})


def clean(text: str) -> str:
    """`text` without colours; what else could change how it is read is shown by its number."""
    return figures.safe(figures.colourless(text).replace("\r\n", "\n"))


def cut(text: str, most: int) -> str:
    """`text` made harmless, with a mark where it is cut; Slack counts as JavaScript does."""
    text = clean(text[: 4 * most])
    data = text.encode("utf-16-le")
    if len(data) <= 2 * most:
        return text
    return data[: 2 * (most - 1)].decode("utf-16-le", "ignore") + "…"


def line(text: str, most: int) -> str:
    """The same on one line."""
    return cut(" ".join(text[: 4 * most].split()), most)


def escaped(text: str, most: int) -> str:
    """A foreign text inside Slack's markup: it mentions nobody and links nowhere. `most` is counted as it is sent."""
    found = cut(text, most)
    while len(sent := found.translate(_MARKUP)) > most:
        found = cut(found, max(1, len(found) - max(1, (len(sent) - most) // 5)))
    return sent


def plain(text: str, most: int) -> Block:
    """A text object that Slack shows letter by letter, on one line."""
    return {"type": "plain_text", "text": line(text, most) or "–", "emoji": False}


def marked(text: str) -> Block:
    """A section in Slack's markup: our own words, with what is foreign in them `escaped`."""
    return {"type": "section", "text": {"type": "mrkdwn", "text": text, "verbatim": True}}


def small(text: str) -> Block:
    """A line of small print, under the same rule."""
    return {"type": "context", "elements": [{"type": "mrkdwn", "text": text, "verbatim": True}]}


def said(label: str, text: str, most: int) -> list[Block]:
    """What somebody wrote, as a quotation under a label of ours; nothing where nothing was written."""
    body = cut(text.strip(), most)
    if not body:
        return []
    head = {"type": "rich_text_section", "elements": [_text(label, bold=True)]}
    return [_rich(head, {"type": "rich_text_quote", "elements": [_text(body)]})]


def labelled(rows: Iterable[tuple[str, str]]) -> list[Block]:
    """Lines with a bold word of ours before each text, letter by letter; those without a text are left out."""
    elements: list[Block] = []
    for label, text in rows:
        if text:
            end = [_text("\n")] if elements else []
            elements += [*end, _text(f"{label}: ", bold=True), _text(text)]
    return [_rich({"type": "rich_text_section", "elements": elements})] if elements else []


def strong(text: str) -> Block:
    """One bold text, letter by letter."""
    return _rich({"type": "rich_text_section", "elements": [_text(text or "–", bold=True)]})


def table(rows: Iterable[tuple[str, ...]], most: int) -> list[Block]:
    """Columns of equal width, as far as there is room; a mark where rows are left out."""
    every = list(rows)
    if len(every) < 2:
        return []
    wide = [max(len(row[i]) for row in every) for i in range(len(every[0]) - 1)]
    lines = [
        "  ".join([*(f"{cell:<{w}}" for cell, w in zip(row, wide, strict=False)), row[-1]]).rstrip()
        for row in every
    ]
    kept: list[str] = []
    left = most
    for each in lines:
        left -= len(each) + 1
        if left < 0:
            kept.append(f"… and {len(lines) - len(kept)} more")
            break
        kept.append(each)
    return [_rich({"type": "rich_text_preformatted", "elements": [_text("\n".join(kept))]})]


def bars(values: Iterable[float | None]) -> str:
    """Numbers from 0 to 1 as small bars; a dot for what is not known."""
    return figures.bars(values).replace(" ", "·")


def moment(at: datetime) -> str:
    """A time in Slack's markup: shown in the zone of whoever reads it."""
    utc = at.astimezone(UTC)
    return f"<!date^{int(utc.timestamp())}^{{date_short_pretty}} {{time}}|{utc:%Y-%m-%d %H:%M} UTC>"


def _rich(*elements: Block) -> Block:
    return {"type": "rich_text", "elements": list(elements)}


def _text(text: str, *, bold: bool = False) -> Block:
    return {"type": "text", "text": text, "style": {"bold": True}} if bold else {"type": "text", "text": text}
