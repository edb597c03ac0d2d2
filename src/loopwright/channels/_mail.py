"""The mail of a card: text and HTML of the same facts, threaded, with the patch as a file where there is no page.

Rule: made from the card alone; nothing foreign reaches a header but on one line, or HTML but escaped.
"""

from __future__ import annotations

import hashlib
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import parseaddr
from html import escape
from typing import Final

from loopwright.cards import Card
from loopwright.channels import _words
from loopwright.channels._tickets import with_ticket

WIRE: Final = SMTP.clone(max_line_length=78)
PATCH_LINES: Final = 150  # of the patch in the HTML part
_CELL: Final = "padding:4px 12px 4px 0;vertical-align:top;font:14px/1.45 sans-serif"
_MONO: Final = "font:12px/1.4 monospace;white-space:pre-wrap;word-break:break-word"
_NOTE: Final = "font:14px/1.45 sans-serif;margin:16px 0"


def mail(card: Card, to: str, sender: str, key: bytes, *, again: bool = False) -> EmailMessage:
    """The message to one reader; `again`: this thread has the card already, so it says what is new of it."""
    domain = parseaddr(sender)[1].rpartition("@")[2]
    root = f"<run-{_letters(card.run)}@{domain}>"
    asked = f"<{_letters('asked', card.run, card.approval or '', to)}@{domain}>"
    link = card.link
    if link and key and card.approval:
        link = with_ticket(link, key, card.run, card.approval, to)
    found = EmailMessage(policy=SMTP)
    found["From"] = sender
    found["To"] = to
    found["Subject"] = ("Re: " if again else "") + one_line(f"[{card.loop}] {card.title}")
    own = f"<{_words.key_of(card, to, again=again)}@{domain}>"
    found["Message-ID"] = asked if card.approval and not again else own
    found["In-Reply-To"] = asked if again and card.approval else root
    found["References"] = f"{root} {asked}" if again and card.approval else root
    found["List-Id"] = f"<{_label(card.loop)}.loopwright.{domain}>"
    found["Auto-Submitted"] = "auto-generated"
    found["X-Auto-Response-Suppress"] = "All"
    if again:
        found.set_content(_news(card, link))
        return found
    found.set_content(_words.text(_linked(card, link)))
    found.add_alternative(page(card, link), subtype="html")
    if link is None and card.patch:
        found.add_attachment(
            card.patch.encode("utf-8", "replace"),
            maintype="text",
            subtype="x-diff",
            filename=f"{one_line(card.run)}.diff",
        )
    return found


def one_line(text: str, most: int = 150) -> str:
    """A text as it may stand in a header: one line, nothing that is not shown."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return line if len(line) <= most else line[: most - 1] + "…"


def _letters(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


def _label(name: str) -> str:
    """A loop's name as a label of a list's id."""
    return "".join(c if c.isascii() and c.isalnum() else "-" for c in name).strip("-")[:60] or "loop"


def _linked(card: Card, link: str | None) -> Card:
    from dataclasses import replace

    return replace(card, link=link)


def _news(card: Card, link: str | None) -> str:
    """What is new of a request that the reader has: how it ended, or who else was not reached."""
    told = [card.title, ""]
    told += [line for line in (_words.outcome(card), _words.unreached(card)) if line]
    return "\n".join([*told, *([link] if link else [])]) + "\n"


def page(card: Card, link: str | None) -> str:
    """The HTML part: tables and inline styles, as mail programs need them."""
    parts = [f'<h2 style="font:600 18px/1.35 sans-serif;margin:0 0 12px">{escape(card.title)}</h2>']
    if ended := _words.outcome(card):
        parts.append(f'<p style="{_NOTE}"><b>{escape(ended)}</b></p>')
    rows = "".join(
        f'<tr><td style="{_CELL};color:#666">{escape(name)}</td>'
        f'<td style="{_CELL}">{escape(said).replace(chr(10), "<br>")}</td></tr>'
        for name, said in _words.facts(card)
    )
    parts.append(f'<table role="presentation" cellpadding="0" cellspacing="0">{rows}</table>')
    if not ended:
        parts += _answers(card, link)
    if lost := _words.unreached(card):
        parts.append(f'<p style="{_NOTE}">{escape(lost)}</p>')
    if card.patch:
        lines = card.patch.splitlines()
        more = len(lines) - PATCH_LINES
        rest = "the whole of it is on the page" if link else "the file beside this mail has more of it"
        cut = f"\n… and {more} more lines: {rest}" if more > 0 or card.cut else ""
        cut = cut if more > 0 else cut and f"\n… {rest}"
        shown = escape("\n".join(lines[:PATCH_LINES]) + cut)
        parts.append(
            f'<pre style="{_MONO};background:#f6f6f6;color:#222;padding:12px;margin:16px 0">{shown}</pre>'
        )
    body = "".join(parts)
    return (
        '<!doctype html><html><head><meta charset="utf-8"><meta name="color-scheme" content="light dark"></head>'
        f'<body style="margin:0;padding:16px"><table role="presentation" width="100%" cellpadding="0" '
        f'cellspacing="0"><tr><td style="max-width:720px">{body}</td></tr></table></body></html>'
    )


def _answers(card: Card, link: str | None) -> list[str]:
    """Where to decide, what each answer does, and until when."""
    parts = []
    if link:
        word = "Open it to decide" if card.approval else "Open it"
        parts.append(
            f'<p style="{_NOTE}"><a href="{escape(link)}" style="background:#1a56db;color:#fff;padding:10px 18px;'
            f'text-decoration:none;border-radius:6px;display:inline-block">{word}</a></p>'
        )
    rows = "".join(
        f'<tr><td style="{_CELL}"><b>{answer}</b></td><td style="{_CELL}">{escape(does)}'
        + ("" if link else f'<br><code style="{_MONO}">{escape(command)}</code>')
        + "</td></tr>"
        for answer, does, command in _words.effects(card)
    )
    if rows:
        parts.append(f'<table role="presentation" cellpadding="0" cellspacing="0">{rows}</table>')
        parts.append(f'<p style="{_NOTE};color:#666">{escape(_words.silence(card))}</p>')
    elif card.head.get("next") and not link:
        parts.append(f'<p style="{_NOTE}"><code style="{_MONO}">{escape(str(card.head["next"]))}</code></p>')
    return parts
