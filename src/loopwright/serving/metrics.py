"""The figures of a server for Prometheus: what it saw happen, and what its store says when it is asked.

Rule: what happens is counted from facts that are durable; what *is* (runs, requests, holds, money of today) is read from
the store at each scrape, so that a server says the truth from its first moment. Labels have few values: loops, gates,
channels and closed words, never runs or texts. Unknown is counted apart, never as zero.
"""

from __future__ import annotations

import platform
from collections import Counter as Tally
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Literal

from loopwright import ledger
from loopwright.codec import loads
from loopwright.core import events as ev
from loopwright.core.values import Usage
from loopwright.errors import NotStartable, StoreError
from loopwright.hosts.people import requests
from loopwright.ports import Observe, Store

if TYPE_CHECKING:
    from prometheus_client import Metric

MEDIA: Final = "text/plain; version=0.0.4; charset=utf-8"
ACTIVE: Final = 10_000  # runs under way that are looked at
ENDED: Final = 1000  # the newest runs of the store that are looked at, over or not
MOST: Final = 100  # different values of a label; what comes later is "other"
READ: Final = 50  # journals that one scrape reads, to learn when a person was asked
_GATE_S: Final = (0.1, 0.5, 1, 5, 15, 60, 300, 600, 1800)
_ATTEMPT_S: Final = (1, 5, 15, 60, 300, 900, 1800, 3600, 10_800)

# What is counted: name, labels, what it is.
COUNTED: Final = (
    ("runs_started", ("loop",), "Runs that this server was the first to work on."),
    ("runs_finished", ("loop", "phase", "reason"), "Runs that ended here, by their ending."),
    ("iterations", ("loop", "outcome"), "Iterations that closed; the baseline is none."),
    ("attempts", ("loop", "kind"), "Calls of an agent: succeeded, interrupted, or how they failed."),
    ("gate_results", ("loop", "gate", "status"), "Scores that gates gave."),
    ("cost_usd", ("loop", "spender"), "US dollars spent by agents and gates, as far as they told."),
    ("cost_unknown", ("loop", "spender"), "Calls whose cost nobody told; they are not in the dollars."),
    ("tokens", ("loop", "spender"), "Tokens used by agents and gates, as far as they told."),
    ("tokens_unknown", ("loop", "spender"), "Calls whose tokens nobody told."),
    ("wait_seconds", ("loop",), "Seconds of back-off and rate limits that runs began to wait."),
    ("alerts", ("loop", "kind"), "Illnesses of a loop that were named."),
    ("approvals_requested", ("loop", "about"), "Times that a person was asked."),
    ("approvals_decided", ("answer", "channel"), "Answers, expired ones included."),
    ("slots", ("loop", "status"), "Times of a schedule: started, or skipped."),
    ("deliveries", ("hook", "status"), "Requests to a webhook, by what became of them."),
    ("notices", ("channel", "status"), "Cards for people: sent, failed (it is tried again), undelivered."),
)
# What is so at a scrape: name, labels, what it is.
PRESENT: Final = (
    (
        "runs",
        ("loop", "phase", "reason"),
        "Runs in the store: all under way, and what ended of the newest 1,000.",
    ),
    ("score", ("loop",), "The last score of the loop's newest run that has one, 0 to 1."),
    ("best_score", ("loop",), "The best score of the loop's newest run that has one, 0 to 1."),
    ("last_success_timestamp_seconds", ("loop",), "When a run of the loop last ended complete."),
    ("approvals_pending", ("loop",), "Requests that wait for a person."),
    ("approval_oldest_seconds", (), "How long the oldest open request has waited; none: no sample."),
    ("agent_holds", ("agent",), "Logins of an agent that wait for a limit or a new login."),
    ("spent_today_usd", (), "US dollars on the ledger of this day (UTC), of all runs of the store."),
    ("reserved_today_usd", (), "US dollars set aside today for attempts under way."),
    ("store_up", (), "1 if the store could be read; if not, nothing that it says is shown."),
    ("queue_length", (), "Runs that wait for a worker."),
    ("workers_busy", (), "Runs that this server works on."),
    ("workers", (), "Runs that this server works on at once, at most."),
    ("notices_undelivered", (), "Requests and news that a channel gave up on and nobody has seen."),
    ("build_info", ("version", "python"), "Always 1."),
)
Numbers = list[tuple[tuple[str, ...], float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """What only the server itself knows of this moment; `None` is not known, and is not shown."""

    queue_length: int | None = None
    workers_busy: int | None = None
    workers: int | None = None
    notices_undelivered: int | None = None


class Metrics:
    """The figures of one server. It may be told of facts in one thread and asked in another.

    `NotStartable` without the package `prometheus-client`.
    """

    def __init__(self) -> None:
        try:
            from prometheus_client import CollectorRegistry, Counter, Histogram
        except ImportError as error:
            raise NotStartable(f"{error.name} is not installed; pip install 'loopwright[serve]'") from None
        self._registry = CollectorRegistry()
        self._counted = {
            name: Counter(f"loopwright_{name}", what, labels, registry=self._registry)
            for name, labels, what in COUNTED
        }
        self._seconds = {
            name: Histogram(
                f"loopwright_{name}", what, ("loop", *more), buckets=edges, registry=self._registry
            )
            for name, more, edges, what in (
                ("gate_seconds", ("gate",), _GATE_S, "Seconds that a gate took."),
                ("attempt_seconds", (), _ATTEMPT_S, "Seconds that a call of an agent took."),
            )
        }
        self._known: dict[str, set[str]] = {}
        self._asked: dict[str, datetime] = {}  # when each open request was made
        self._success: dict[str, float] = {}

    def observe(self, run: str, loop: str) -> Observe:  # noqa: ARG002 - runs are never labels
        """What counts the facts of a run (`Ways.observe`)."""
        name = self._bounded("loop", loop)
        baseline = False

        def observe(event: ev.Event) -> None:
            nonlocal baseline
            match event:
                case ev.Claimed(epoch=1):
                    baseline = True
                    self._count("runs_started", name)
                case ev.AttemptStarted():
                    baseline = False
                case ev.IterationClosed(outcome=outcome) if not baseline:
                    self._count("iterations", name, outcome)
                case _:
                    self._fact(name, event)

        return observe

    def slot(self, loop: str, status: Literal["started", "skipped"]) -> None:
        """A time of a schedule has come."""
        self._count("slots", self._bounded("loop", loop), status)

    def delivery(self, hook: str, status: str) -> None:
        """A request came to a webhook; `status` is one of a few words, such as started, duplicate, forged."""
        self._count("deliveries", self._bounded("hook", hook), self._bounded("delivery", status))

    def notice(self, channel: str, status: Literal["sent", "failed", "undelivered"]) -> None:
        """A card was sent to people, or was not."""
        self._count("notices", self._bounded("channel", channel), status)

    def text(self, store: Store, server: Server | None = None, *, now: datetime | None = None) -> bytes:
        """All figures as Prometheus reads them (`MEDIA`). A store that cannot be read is one of them."""
        from prometheus_client import generate_latest
        from prometheus_client.core import GaugeMetricFamily

        found: dict[str, Numbers] = {name: [] for name, _, _ in PRESENT}
        try:
            self._of_store(store, found, now or datetime.now(UTC))
            found["store_up"] = [((), 1)]
        except StoreError:
            found = {name: [] for name, _, _ in PRESENT}
            found["store_up"] = [((), 0)]
        self._of_server(found, server or Server())
        families: list[Metric] = [_without_births(family) for family in self._registry.collect()]
        for name, labels, what in PRESENT:
            family = GaugeMetricFamily(f"loopwright_{name}", what, labels=labels)
            for values, number in found[name]:
                family.add_metric(values, number)
            families.append(family)
        return generate_latest(_Families(families))

    def _fact(self, loop: str, event: ev.Event) -> None:
        """Counts what happened in a run of this loop."""
        match event:
            case ev.AttemptSucceeded() | ev.AttemptFailed() | ev.AttemptInterrupted():
                self._attempt(loop, event)
            case ev.GateScored():
                gate = self._bounded("gate", event.gate)
                self._seconds["gate_seconds"].labels(loop, gate).observe(event.seconds)
                self._count("gate_results", loop, gate, event.score.status or "fail")
                if event.usage is not None:
                    self._used(loop, "gate", event.usage)
            case ev.WaitStarted():
                self._count("wait_seconds", loop, by=event.seconds)
            case ev.AlertRaised():
                self._count("alerts", loop, self._bounded("alert", event.kind))
            case ev.ApprovalRequested():
                self._count("approvals_requested", loop, event.about)
            case ev.ApprovalDecided():
                channel = self._bounded("channel", event.channel or "none")
                self._count("approvals_decided", event.answer, channel)
            case ev.RunFinished():
                self._count("runs_finished", loop, event.phase, event.reason)
            case _:
                pass

    def _attempt(
        self, loop: str, event: ev.AttemptSucceeded | ev.AttemptFailed | ev.AttemptInterrupted
    ) -> None:
        match event:
            case ev.AttemptSucceeded():
                kind, usage = "succeeded", event.usage
            case ev.AttemptFailed():
                kind, usage = event.kind, event.usage
            case ev.AttemptInterrupted():
                kind, usage = "interrupted", Usage()
        self._count("attempts", loop, kind)
        self._seconds["attempt_seconds"].labels(loop).observe(event.seconds)
        self._used(loop, "agent", usage)

    def _used(self, loop: str, spender: str, usage: Usage) -> None:
        for name, unknown, amount in (
            ("cost_usd", "cost_unknown", usage.cost_usd),
            ("tokens", "tokens_unknown", usage.tokens),
        ):
            if amount is None:
                self._count(unknown, loop, spender)
            else:
                self._count(name, loop, spender, by=amount)

    def _count(self, name: str, *labels: str, by: float = 1.0) -> None:
        self._counted[name].labels(*labels).inc(by)

    def _bounded(self, kind: str, value: str) -> str:
        """The value as a label, as long as there are not too many of its kind."""
        known = self._known.setdefault(kind, set())
        text = value[:80]
        if text not in known:
            if len(known) >= MOST:
                return "other"
            known.add(text)
        return text

    def _of_store(self, store: Store, found: dict[str, Numbers], now: datetime) -> None:
        """What the store says just now."""
        heads: dict[str, Mapping[str, Any]] = {}
        for lines in (store.heads(limit=ENDED), store.heads(active=True, limit=ACTIVE)):
            for run, line in lines:
                if run not in heads and (head := _head(line)) is not None:
                    heads[run] = head
        self._of_runs(heads.values(), found)
        self._of_requests(store, heads, found, now)
        if ledger.kept(store):
            logins = Tally(self._bounded("agent", hold.login.partition("/")[0]) for hold in store.holds())
            found["agent_holds"] = [((agent,), count) for agent, count in sorted(logins.items())]
            spent, reserved = ledger.spent(store, ledger.today(now))
            found["spent_today_usd"], found["reserved_today_usd"] = [((), spent)], [((), reserved)]

    def _of_runs(self, heads: Iterable[Mapping[str, Any]], found: dict[str, Numbers]) -> None:
        runs: Tally[tuple[str, ...]] = Tally()
        last: dict[str, dict[str, float]] = {"score": {}, "best_score": {}}
        for head in heads:  # the newest first
            loop = self._loop(head)
            runs[loop, str(head.get("phase")), str(head.get("reason") or "")] += 1
            for name, known in last.items():
                if (score := head.get(name)) is not None:
                    known.setdefault(loop, score)
            if head.get("phase") == "complete" and (at := _time(head.get("updated_at"))) is not None:
                self._success[loop] = max(at.timestamp(), self._success.get(loop, 0.0))
        found["runs"] = sorted(runs.items())
        for name, known in (*last.items(), ("last_success_timestamp_seconds", self._success)):
            found[name] = [((loop,), number) for loop, number in sorted(known.items())]

    def _of_requests(
        self,
        store: Store,
        heads: Mapping[str, Mapping[str, Any]],
        found: dict[str, Numbers],
        now: datetime,
    ) -> None:
        """Who waits for a person, and how long the one has who waits longest."""
        waiting = [(run, head) for run, head in heads.items() if head.get("approval")]
        pending = Tally(self._loop(head) for _, head in waiting)
        found["approvals_pending"] = [((loop,), count) for loop, count in sorted(pending.items())]
        asked: dict[str, datetime] = {}
        left = READ
        for run, head in sorted(waiting, key=lambda each: str(each[1].get("updated_at"))):
            request = str(head["approval"])
            at = self._asked.get(request)
            if at is None and left > 0:
                left -= 1
                at = _when(store, run, request)
            if at is not None:
                asked[request] = at
        self._asked = asked
        if asked:
            age = (now - min(asked.values())).total_seconds()
            found["approval_oldest_seconds"] = [((), max(0.0, age))]

    def _of_server(self, found: dict[str, Numbers], server: Server) -> None:
        from loopwright import __version__

        for name in ("queue_length", "workers_busy", "workers", "notices_undelivered"):
            if (number := getattr(server, name)) is not None:
                found[name] = [((), number)]
        found["build_info"] = [((__version__, platform.python_version()), 1)]

    def _loop(self, head: Mapping[str, Any]) -> str:
        return self._bounded("loop", str(head.get("loop") or "loop"))


@dataclass(frozen=True, slots=True)
class _Families:
    """Metrics as the package collects them."""

    families: list[Metric]

    def collect(self) -> Iterator[Metric]:
        return iter(self.families)


def _without_births(family: Metric) -> Metric:
    """The metric without when each of its series began: that would be a metric of its own."""
    family.samples = [sample for sample in family.samples if not sample.name.endswith("_created")]
    return family


def _head(line: bytes) -> Mapping[str, Any] | None:
    """The run document in a store's line; `None` for one that is damaged: it does not hide the others."""
    try:
        found = loads(line)
    except ValueError:
        return None
    return found if isinstance(found, Mapping) else None


def _time(text: object) -> datetime | None:
    try:
        return datetime.fromisoformat(str(text))
    except ValueError:
        return None


def _when(store: Store, run: str, request: str) -> datetime | None:
    """When this was asked; `None` where its journal cannot be read."""
    try:
        return next((asked.at for asked in requests(store, run) if asked.request.id == request), None)
    except StoreError:
        return None
