"""A card as a Slack message, and the forms that its buttons open.

Rule: within Slack's limits whatever is in the card, and nothing an agent wrote looks like words of ours. A button
holds which request it answers and nothing else.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final, Literal, TypeAlias

from loopwright.cards import Card, Decided
from loopwright.channels._slack_text import (
    Block,
    bars,
    cut,
    escaped,
    labelled,
    line,
    marked,
    moment,
    plain,
    said,
    small,
    strong,
    table,
)
from loopwright.core.showing import Effect, Shown
from loopwright.core.values import Scored
from loopwright.figures import MARKS, count, score, seconds

Word: TypeAlias = Literal["approve", "override", "revise", "reject"]

MOST: Final = 12_000  # characters of all blocks as JSON: Slack refuses a little more than 13,000
NOTE: Final = 3000  # characters of a form's field
FIELD: Final = "said"
FORM: Final = "loopwright"
_GATES: Final = 25
_PERSON: Final = re.compile(r"[UW][A-Z0-9]{2,20}")
_ENDED: Final = {
    "approve": "Approved",
    "revise": "Sent back",
    "reject": "Rejected",
    "expired": "Nobody answered in time",
    "withdrawn": "No longer asked",
}
_LABELS: Final = {"approve": "Approve", "revise": "Send back", "reject": "Reject"}
_ABOUT: Final = {"needs_you": "Needs you", "failed": "Failed", "finished": "Finished", "alert": "Alert"}


def value(word: Word, approval: str, run: str) -> str:
    """What a button or a form keeps of the request it answers."""
    return f"{word}:{approval}:{run}"


def message(card: Card) -> tuple[str, list[Block]]:
    """The text of the notice and the blocks of the message."""
    blocks: list[Block] = []
    for share in (1.0, 0.5, 0.2):  # of the room that foreign texts have
        blocks = list(_request(card, card.shown, share) if card.shown is not None else _news(card, share))
        if len(json.dumps(blocks, ensure_ascii=False)) <= MOST:
            break
    return escaped(line(f"{card.loop}: {card.title}", 280), 300), blocks


def is_open(card: Card) -> bool:
    """Whether the card asks for an answer still."""
    return card.approval is not None and card.decided is None and not card.superseded


def form(word: Word, approval: str, run: str) -> Block:
    """The form for the note that goes with an answer, or for the reason of an override."""
    title, label, submit = (
        ("Send back", "What should the agent do? It reads this.", "Send back")
        if word == "revise"
        else ("Approve all the same", "It has not passed. Why is it accepted? This is on record.", "Approve")
    )
    field = {"type": "plain_text_input", "action_id": FIELD, "multiline": True, "max_length": NOTE}
    return {
        "type": "modal",
        "callback_id": FORM,
        "private_metadata": value(word, approval, run),
        "title": plain(title, 24),
        "submit": plain(submit, 24),
        "close": plain("Cancel", 24),
        "blocks": [
            {"type": "section", "text": plain(f"Run {run}", 200)},
            {"type": "input", "block_id": FIELD, "label": plain(label, 200), "element": field},
        ],
    }


def notice(title: str, text: str) -> Block:
    """What takes the place of a form whose answer was not taken."""
    return {
        "type": "modal",
        "title": plain(title, 24),
        "close": plain("Close", 24),
        "blocks": [{"type": "section", "text": plain(text, 2900)}],
    }


def people(text: str) -> str:
    """A text in Slack's markup with the ids of its people as their names."""
    return re.sub(r"\bby ([UW][A-Z0-9]{6,20}) \(slack", r"by <@\1> (slack", text)


def _request(card: Card, shown: Shown, share: float) -> Iterator[Block]:
    def room(most: int) -> int:
        return int(most * share)

    asks = is_open(card)
    yield {"type": "header", "text": plain(f"{card.loop} · {card.run}", 150)}
    yield from _outcome(card, room(800))
    if shown.about == "blocked":
        yield from said("The agent cannot go on alone and says", shown.question, room(900))
    else:
        yield strong(cut(shown.question, room(900)))
    why = [("Why now", line(shown.why, room(300)))] if asks else []
    goal = ("Goal", line(shown.goal, room(300)))
    yield from labelled([*why, ("Iteration", f"{shown.iteration}"), goal])
    if asks:
        yield from labelled((_LABELS[each.answer], line(each.does, room(400))) for each in shown.effects)
    yield from labelled(_facts(card, shown, share))
    yield from table(_rows(card, shown.gates[:_GATES]), room(2600))
    if len(shown.gates) > _GATES:
        yield small(f"and {len(shown.gates) - _GATES} more gates")
    yield from said("The agent says", shown.summary, room(800))
    if asks:
        yield from _asked(card, shown)


def _outcome(card: Card, most: int) -> Iterator[Block]:
    if card.superseded:
        yield marked("*Superseded*: this was about an earlier state, and the newest request counts.")
    if (end := card.decided) is None:
        return
    yield marked(f"*{_ENDED.get(end.answer, 'Answered')}*{_by(end)}")
    yield from said("Note", end.note, most)
    yield from said("Accepted though it had not passed, because", end.why or "", most)


def _by(end: Decided) -> str:
    """By whom, when and through what, as far as it is known."""
    if end.answer in {"expired", "withdrawn"}:
        who = ""
    elif end.channel.startswith("slack") and _PERSON.fullmatch(end.by):
        who = f" by <@{end.by}>"
    else:
        who = f" by {escaped(line(end.by, 80), 200)}" if end.by else ""
    at = "" if end.at is None else f" {'at' if who else 'on'} {moment(end.at)}"
    return who + at + (f" via {escaped(end.channel, 60)}" if who and end.channel else "")


def _facts(card: Card, shown: Shown, share: float) -> Iterator[tuple[str, str]]:
    yield "Changed", _changed(card)
    trend = f"  {bars(shown.trend)}" if len(shown.trend) > 1 else ""
    yield "Score", f"{score(shown.score)}{trend}" if shown.score is not None or trend else ""
    yield "Cost", _cost(shown)
    yield "Time", seconds(shown.seconds)
    for alert in shown.alerts:
        yield "Alert", line(alert, int(300 * share))


def _changed(card: Card) -> str:
    if card.files is None:
        return "not known"
    files = f"{count(card.files, 'file')}, +{card.added:,} −{card.removed:,}"
    if is_open(card) and card.link is None and card.patch:
        return f"{files}; the diff is in the thread"
    return files


def _cost(shown: Shown) -> str:
    if shown.plan:
        used = "tokens not known" if shown.tokens is None else f"{shown.tokens:,} tokens"
        return f"a flat plan pays; {used}"
    if shown.cost_usd is None:
        return "not known"
    ahead = f", ${shown.projected_usd:.2f} with one more iteration" if shown.projected_usd is not None else ""
    return f"${shown.cost_usd:.2f}{ahead}"


def _rows(card: Card, gates: tuple[Scored, ...]) -> Iterator[tuple[str, ...]]:
    """The table of the gates; which are required is a column where that is known."""
    known = card.required
    yield ("", "gate", "value", *(() if known is None else ("",)), "reason")
    for each in gates:
        given = each.score
        value_ = score(given.value if given.status in {"pass", "fail", None} else None)
        if given.raw is not None:
            value_ += f" ({given.raw:g}{given.unit and ' ' + line(given.unit, 8)})"
        need = () if known is None else ("required" if each.gate in known else "advisory",)
        yield (
            MARKS.get(given.status, "?"),
            line(each.gate, 30),
            value_,
            *need,
            line(given.reason, 120),
        )


def _asked(card: Card, shown: Shown) -> Iterator[Block]:
    silence = escaped(line(shown.silence, 200), 400)
    if shown.deadline is not None:
        yield marked(f"*Answer until* {moment(shown.deadline)}. After that {silence}.")
    yield {"type": "actions", "elements": list(_buttons(card, shown))}
    if card.unreached:
        yield small(f"Not reached: {escaped(', '.join(card.unreached), 400)}")


def _buttons(card: Card, shown: Shown) -> Iterator[Block]:
    for effect in shown.effects:
        word: Word = effect.answer
        if word == "approve" and shown.blockers:
            word = "override"
        button: Block = {
            "type": "button",
            "action_id": f"{FORM}-{word}",
            "text": plain(_LABELS[effect.answer] + ("…" if word in {"override", "revise"} else ""), 75),
            "value": value(word, card.approval or "", card.run),
        }
        if word in {"approve", "reject"}:
            button["style"] = "primary" if word == "approve" else "danger"
            button["confirm"] = _sure(effect)
        yield button
    if card.link is not None:
        yield {
            "type": "button",
            "action_id": f"{FORM}-page",
            "text": plain("Open the page", 75),
            "url": card.link,
        }


def _sure(effect: Effect) -> dict[str, Any]:
    label = _LABELS[effect.answer]
    return {
        "title": plain(f"{label}?", 100),
        "text": plain(f"{label}: {effect.does}", 300),
        "confirm": plain(label, 30),
        "deny": plain("Cancel", 30),
    }


def _news(card: Card, share: float) -> Iterator[Block]:
    """News: short, and nothing to press."""
    head = card.head
    yield {"type": "header", "text": plain(f"{_ABOUT[card.about]}: {card.loop} · {card.run}", 150)}
    yield strong(cut(card.title, int(600 * share)))
    cost = head.get("cost_usd")
    rows = [
        ("Why", line(str(head.get("explanation") or ""), int(600 * share))),
        ("Ended", line(str(head.get("reason") or ""), 60)),
        ("Iterations", str(head["iterations"]) if head.get("iterations") is not None else ""),
        ("Best score", score(head["best_score"]) if head.get("best_score") is not None else ""),
        (
            "Cost",
            ""
            if head.get("plan") or "cost_usd" not in head
            else "not known"
            if cost is None
            else f"${cost:.2f}",
        ),
        ("Changed", "" if card.files is None else _changed(card)),
        ("Next", line(str(head.get("next") or ""), 300)),
    ]
    yield from labelled(rows)
    if card.link is not None:
        yield small(f"<{escaped(card.link, 1500).replace('|', '%7C')}|Open the page>")
