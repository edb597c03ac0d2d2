"""Which runs there are: list.

Rule: it reads heads, not journals, and loads no more than that needs: it is typed often.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from loopwright.cli import words
from loopwright.cli.where import as_json, enter, nearest, opened, places
from loopwright.errors import StoreError, UsageError
from loopwright.stores.opened import store_exists, store_path

if TYPE_CHECKING:  # what only types need is not loaded: verbs that read start the sooner
    from loopwright.ports import Store


WAITING = 6  # `core.head.WAITING_CODE`, without loading it
HEAD_KEYS = ("loop", "updated_at", "approval", "wake")
OF_PAGES = ("max_iterations", "trend")  # said in a head as well, but no part of the document


@click.command("list")
@click.option("--all", "all_", is_flag=True, help="Finished runs too.")
@click.option(
    "--since", metavar="AGE", help="What happened in the last AGE, such as 12h, and what waits for a person."
)
@as_json
@places
def list_(all_: bool, since: str | None, json_: bool, folder: str, store: str | None) -> int:
    """Show active runs, newest first.

    With --since those that finished in that time too: the morning after a night.
    """
    all_ = all_ or since is not None
    after = datetime.now(UTC) - timedelta(seconds=_age(since)) if since else None
    where = nearest(enter(folder), store)
    heads: list[dict[str, Any]] = []
    damaged: list[str] = []
    beside: list[str] = []
    path = None if where is None else store_path(where.store, where.project)
    if where is not None and (where.store or (path is not None and store_exists(path))):
        with opened(where) as runs:
            for run, body in runs.heads(active=None if all_ else True):
                try:
                    row = _head(runs, run, body)
                    heads.append(row)
                    if row["exit_code"] is None and _left(runs, run):
                        row["next"] = f"loopwright resume {run}"
                except StoreError as error:  # one damaged run does not hide the others
                    damaged.append(str(error))
            if not json_:
                try:
                    beside = _beside(runs)
                except StoreError as error:
                    damaged.append(str(error))
        heads = [h for h in heads if after is None or _is_news(h, after)]
    if since is not None and not json_:
        beside.insert(0, _summed(heads, since))
    _show(heads, json_=json_, nothing="no runs yet" if all_ else "no active runs; --all shows finished ones")
    for line in beside:
        click.echo(line)
    for line in damaged:
        click.echo(f"loopwright: {line}", err=True)
    return StoreError.exit_code if damaged else 0


def _is_news(head: dict[str, Any], after: datetime) -> bool:
    """Whether a run belongs to a morning: something happened to it since, or it waits for a person, however long."""
    return bool(head["exit_code"] == WAITING) or datetime.fromisoformat(head["updated_at"]) >= after


def _summed(heads: list[dict[str, Any]], since: str) -> str:
    """A night in one line."""
    over = [head for head in heads if head["phase"] in {"complete", "failed", "stopped"}]
    good = sum(head["phase"] == "complete" for head in over)
    waits = sum(head["exit_code"] == WAITING for head in heads)
    rest = len(heads) - len(over) - waits
    return f"last {since}: {good} complete, {len(over) - good} ended otherwise, {waits} wait for a person, {rest} at work"


def _show(heads: list[dict[str, Any]], *, json_: bool, nothing: str) -> None:
    if json_:
        rows = [{k: v for k, v in row.items() if k not in {*HEAD_KEYS, *OF_PAGES}} for row in heads]
        words.put(json.dumps(rows, indent=2, ensure_ascii=False).encode())
        return
    if not heads:
        click.echo(nothing, err=True)
        return
    now = datetime.now(UTC)
    wide = max(len("RUN"), *(len(row["run"]) for row in heads))
    long = max(len("STATE"), *(len(row["reason"] or row["phase"]) for row in heads))
    costs = [words.paid(row["cost_usd"], row["tokens"], plan=row.get("plan", False)) for row in heads]
    dear = max(7, *map(len, costs))
    click.echo(f"{'RUN':<{wide}} {'STATE':<{long}} {'IT':>4} {'SCORE':>6} {'COST':>{dear}} {'NEWS':>8}  NEXT")
    for row, cost in zip(heads, costs, strict=True):
        state = row["reason"] or row["phase"]
        news = words.ago(now, datetime.fromisoformat(row["updated_at"]))
        click.echo(
            f"{row['run']:<{wide}} {state:<{long}} {row['iterations']:>4} {words.score(row['score']):>6} "
            f"{cost:>{dear}} {news:>8}  {_next(row)}"
        )


def _next(row: dict[str, Any]) -> str:
    """What to type next, or when a run that waits for a time goes on."""
    waits = row["phase"] == "waiting" and row["wake"] and not row["next"].startswith("loopwright resume")
    return words.goes_on(datetime.fromisoformat(row["wake"])) if waits else row["next"]


def _beside(store: Store) -> list[str]:
    """What all runs of a store share: what today cost, and logins that are on hold; nothing where it cannot tell."""
    if not (hasattr(store, "total") and hasattr(store, "holds")):  # one that somebody else wrote
        return []
    day = datetime.now(UTC).date().isoformat()
    spent = store.total("usd/spent", day)  # the names of `ledger`, which would load the core
    paid = spent - store.total("usd/plan", day) if spent else 0.0
    told = [f"today (UTC): {words.money(paid)} spent by the runs here"] if paid >= 0.005 else []
    return [*told, *map(words.on_hold, store.holds())]


def _left(store: Store, run: str) -> bool:
    """Whether a run is under way on record while nobody drives it."""
    from loopwright.journal import Journal

    return words.left(Journal(store, run).state)


def _head(store: Store, run: str, body: bytes) -> dict[str, Any]:
    """The head of a run; a damaged one is made anew from the journal, which alone is the truth."""
    try:
        kept = json.loads(body)
    except ValueError:
        kept = None
    if isinstance(kept, dict) and {*HEAD_KEYS, "run", "reason", "phase", "next"} <= kept.keys():
        return kept
    from loopwright import codec
    from loopwright.core.head import head
    from loopwright.journal import Journal

    made: dict[str, Any] = json.loads(codec.dumps(head(Journal(store, run).state)))
    return made


def _age(text: str) -> float:
    try:
        return words.duration(text)
    except ValueError as error:
        raise UsageError(f"--since: {error}") from None
