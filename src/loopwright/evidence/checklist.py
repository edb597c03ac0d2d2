"""Task lists in Markdown: which items there are and which are ticked.

Rule: an item is what a reader of the rendered page sees as one: `- [ ] text` under any list marker and at any depth,
but not in a code fence or a comment. The same text twice is two items.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_ITEM = re.compile(r"[ \t>]*(?:(?:[-*+]|\d{1,9}[.)])[ \t]+)+\[([ \txX])\][ \t]+(\S.*)")
_FENCE = re.compile(r"[ \t>]*(?:(?:[-*+]|\d{1,9}[.)])[ \t]+)*(`{3,}|~{3,})(.*)")
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_LINE_END = re.compile(r"\r\n|\r|\n")


@dataclass(frozen=True, slots=True)
class Item:
    """One item: its text with single blanks, and whether it is ticked."""

    text: str
    ticked: bool


def items(data: bytes) -> tuple[Item, ...]:
    """The items in their order; bytes that are not UTF-8 count as U+FFFD."""
    found: list[Item] = []
    fence, commented = "", False
    for raw in _LINE_END.split(data.decode("utf-8-sig", "replace")):
        line = raw
        if fence:
            if (end := _FENCE.fullmatch(line)) and end[1].startswith(fence) and not end[2].strip():
                fence = ""
            continue
        if commented:
            _, closed, line = line.partition("-->")
            commented = not closed
        elif (begun := _FENCE.fullmatch(line)) and not (begun[1][0] == "`" and "`" in begun[2]):
            fence = begun[1]
            continue
        closed_ones, last, open_ = line.rpartition(
            "-->"
        )  # behind it nothing is closed, nor searched again and again
        line = _COMMENT.sub("", closed_ones + last) + open_
        if line.lstrip().startswith("<!--"):  # further in a line only what is closed there is a comment
            commented = True
            continue
        if (item := _ITEM.fullmatch(line)) and (text := " ".join(item[2].split())):
            found.append(Item(text, item[1] in {"x", "X"}))
    return tuple(found)
