"""A card in words, for channels that show text: the same facts in the same order.

Rule: made from the card alone. Texts of agents are cut to a line or a few, so that none can look like ours.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from loopwright.cards import Card
from loopwright.errors import ConfigError
from loopwright.figures import MARKS, at_most, brief, count, moment, money, paid, score, seconds

SHORT: Final = 12  # characters of an approval's id that people are shown and commands take
_DONE: Final = {
    "approve": "approved",
    "revise": "sent back",
    "reject": "rejected",
    "expired": "expired: nobody answered in time",
    "withdrawn": "withdrawn: it is not asked any more",
}


def of_env(said: str, environ: Mapping[str, str], what: str) -> str:
    """What an option says: itself, or with `env:NAME` that environment variable; `ConfigError` where it is not set."""
    if not said.startswith("env:"):
        return said
    name = said.removeprefix("env:")
    if not environ.get(name):
        raise ConfigError(f"{what}: the environment variable {name} is not set")
    return environ[name]


def key_of(card: Card, *more: str, again: bool = False) -> str:
    """32 letters that say which message this is: the same for every try to send it, after a restart too.

    `again`: it brings something that was sent up to date, so it is another for everything that is new.
    """
    news = "" if card.approval else f"{card.title} {card.head.get('reason')}"
    if card.about in {"failed", "finished"}:  # a run that was taken up again can end again
        news += f" {card.head.get('iterations')} {card.head.get('duration_s')}"
    parts = [card.run, card.about, card.approval or "", news, *more]
    if again:
        over = "" if card.decided is None else f"{card.decided.answer} {card.decided.by} {card.decided.at}"
        parts += ["again", over, str(card.superseded), *card.unreached]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


def outcome(card: Card) -> str:
    """How the request ended, in a line; empty while it is open."""
    decided = card.decided
    if card.superseded:
        return "superseded: something newer is asked"
    if decided is None:
        return ""
    if decided.answer in {"expired", "withdrawn"}:
        return _DONE[decided.answer]
    when = "" if decided.at is None else f" at {moment(decided.at)}"
    through = f" ({decided.channel})" if decided.channel else ""
    note = f": {brief(decided.note)}" if decided.note else ""
    over = f", overriding what blocks it: {brief(decided.why)}" if decided.why else ""
    return f"{_DONE.get(decided.answer, decided.answer)} by {decided.by or 'somebody'}{through}{when}{note}{over}"


def changed(card: Card) -> str:
    """What changed since the run began, in figures."""
    if card.files is None:
        return ""
    return f"{count(card.files, 'file')}, +{card.added} −{card.removed}"


def facts(card: Card) -> list[tuple[str, str]]:
    """What the card says, as names and lines (one or several) in the order that people ask for them."""
    shown = card.shown
    if shown is None:
        told = [("why", brief(str(card.head.get("explanation") or ""), 500))]
        if card.head.get("score") is not None:
            told.append(("score", score(card.head["score"])))
        cost = paid(card.head.get("cost_usd"), card.head.get("tokens"), plan=bool(card.head.get("plan")))
        told.append(("cost", f"{cost} · {seconds(float(card.head.get('duration_s') or 0))} of work"))
        told.append(("changed", changed(card)))
        return [(name, text) for name, text in told if text]
    cost = paid(shown.cost_usd, shown.tokens, plan=shown.plan)
    if shown.projected_usd and not shown.plan:
        cost += f", about {money(shown.projected_usd)} with one more iteration"
    told = [
        ("goal", brief(shown.goal)),
        ("why now", shown.why),
        ("gates", "\n".join(gates(card)) or "none"),
        ("scores", " ".join(score(value) for value in shown.trend)),
        ("cost", f"{cost} · {seconds(shown.seconds)} of work"),
        ("alerts", "\n".join(brief(alert) for alert in shown.alerts)),
        ("it says", brief(shown.summary, 500)),
        ("changed", changed(card)),
    ]
    return [(name, text) for name, text in told if text]


def gates(card: Card) -> list[str]:
    """A line for each gate of a request, and why it did not pass."""
    told = []
    for scored in card.shown.gates if card.shown is not None else ():
        given = scored.score
        free = " (advisory)" if card.required is not None and scored.gate not in card.required else ""
        told.append(f"{scored.gate} {MARKS.get(given.status, '?')} {score(given.value)}{free}")
        if given.status != "pass" and given.reason:
            told += [f"  {line}" for line in at_most(given.reason.splitlines(), 5)]
    return told


def effects(card: Card) -> list[tuple[str, str, str]]:
    """Each answer, what it does, and the command that gives it."""
    if card.shown is None or not card.approval:
        return []
    which = f"{card.run} --approval {card.approval[:SHORT]}"
    typed = {
        "approve": f"loopwright approve {which}" + (' --override "…"' if card.shown.blockers else ""),
        "revise": f'loopwright revise {which} --note "…"',
        "reject": f"loopwright reject {which}",
    }
    return [(effect.answer, effect.does, typed[effect.answer]) for effect in card.shown.effects]


def silence(card: Card, now: datetime | None = None) -> str:
    """Until when an answer counts and what comes of none."""
    if card.shown is None:
        return ""
    if card.shown.deadline is None:
        return "no limit"
    left = (card.shown.deadline - (now or datetime.now(UTC))).total_seconds()
    rest = f" ({seconds(left)} left)" if left > 0 else ""
    return f"until {moment(card.shown.deadline)}{rest}; then {card.shown.silence}"


def unreached(card: Card) -> str:
    """Which channels nobody was reached through."""
    return f"nobody was reached by: {', '.join(card.unreached)}" if card.unreached else ""


def text(card: Card) -> str:
    """The whole card as plain text."""
    told = [card.title]
    if ended := outcome(card):
        told += ["", ended]
    told.append("")
    for name, said in facts(card):
        first, *rest = said.splitlines()
        told += [f"{name + ':':<9} {first}", *(f"{'':<9} {line}" for line in rest)]
    if card.shown is not None and not ended:
        told += ["", f"answer:   {silence(card)}"]
        for answer, does, command in effects(card):
            told.append(f"  {answer + ':':<8} {does}")
            told += [f"           {command}"] if card.link is None else []
    if card.shown is None and card.link is None and card.head.get("next"):
        told += ["", f"next:     {card.head['next']}"]
    if lost := unreached(card):
        told += ["", lost]
    if card.link is not None:
        told += ["", card.link]
    return "\n".join(told) + "\n"
