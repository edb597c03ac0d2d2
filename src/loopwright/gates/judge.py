"""The gate that is an opinion: a model, or a command that asks one, judges the work by a rubric.

Rule: an opinion is read strictly or it is an error, never a number of ours. It is weaker than a measure, so it may be
the only required gate of a loop only where the loop says so (`alone`), and where it is unsure a person is asked.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from math import isfinite
from pathlib import Path
from statistics import median
from typing import Any, Final

from loopwright.argv import words
from loopwright.core.judge import Rule
from loopwright.core.values import Score
from loopwright.errors import BadEvidence, ConfigError, NotStartable
from loopwright.evidence import opinion as reader
from loopwright.evidence.files import whole
from loopwright.evidence.opinion import Opinion
from loopwright.evidence.text import clip, decode, one_line, steady
from loopwright.gates import _model
from loopwright.gates._candidate import Form, Question, parts_of, question
from loopwright.gates._tool import resolve
from loopwright.ports import Gate, Measure, Place, Seen
from loopwright.readers import WrongError
from loopwright.sites import inner_path
from loopwright.supervise import Process, supervise

MOST_VOTES: Final = 15
MOST_CRITERIA: Final = 20
RUBRIC_BYTES: Final = 64_000
_REASON: Final = 3800  # characters; 4 KB of it reach the next prompt
_SAID: Final = 1500
_LASTS: Final = ("timeout", "idle", "unavailable", "too_large")  # asking again does not help, or was done

Voter = Callable[[int, Question, Form], Awaitable[str]]  # the text of one vote
Probe = Callable[[Place], str]
Open = Callable[[Seen, Place], AbstractAsyncContextManager[Voter]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Court:
    """How many judge, by what form, and what their votes must say."""

    rubric: str
    form: Form
    votes: int
    quorum: int
    min: float | None
    confidence: float | None


def judge(
    *,
    rubric: str,
    model: str | None = None,
    agent: str | list[str] | None = None,
    criteria: dict[str, float] | None = None,
    scale: tuple[float, float] = (0.0, 1.0),
    votes: int = 1,
    quorum: int | None = None,
    min: float | None = None,  # noqa: A002 - the word of the loop file
    confidence: float | None = None,
    url: str | None = None,
    key: str | None = None,
    budget: float | None = None,
    alone: bool = False,
) -> Gate:
    """A gate that passes when `quorum` of `votes` opinions are at or above `min` (0 to 1; the loop's threshold).

    Value: their median. A `model` (`openai:gpt-5-mini`) or an `agent` (a command that reads the question on stdin and
    prints a verdict) judges by `rubric`, a text or `@FILE` in the workspace, on a `scale` (worst, best), each of the
    `criteria` by weight. Below `confidence` a person is asked. `budget` is USD for the whole run. ConfigError for
    options that contradict each other.
    """
    if not rubric.strip() or rubric.strip() == "@":
        raise ConfigError("judge: rubric is empty: say what is good work, or name a file: @rubric.md")
    if (model is None) == (agent is None):
        raise ConfigError("judge: say who judges: model = … or agent = … (a command), one of the two")
    court = _Court(
        rubric=_rubric(rubric),
        form=Form(scale=_scale(scale), criteria=_criteria(criteria or {}), confidence=confidence is not None),
        votes=_between("votes", votes, 1, MOST_VOTES),
        quorum=_between("quorum", votes // 2 + 1 if quorum is None else quorum, 1, votes),
        min=min if min is None else _between("min", min, 0, 1),
        confidence=confidence if confidence is None else _between("confidence", confidence, 0, 1),
    )
    env: tuple[str, ...] = ()
    asks: Probe
    if model is not None:
        whom = _model.model_of(model, url, key)
        env = () if whom.key is None else (whom.key,)
        opened, asks = _by_model(whom, budget), lambda place: _model.probed(whom, place)
    else:
        _for_models(url=url, key=key, budget=budget)
        argv = words(agent or "")
        opened, asks = _by_command(argv), lambda place: shlex.join((resolve(argv[0], place), *argv[1:]))

    async def check(seen: Seen, place: Place) -> Measure:
        return await _judged(court, opened, seen, place)

    return Gate(
        rule=Rule(name="judge", min=min),
        check=check,
        probe=_after_rubric(rubric, asks),
        env=env,
        python=agent is not None,
        opinion=True,
        alone=alone,
    )


def _between(name: str, value: Any, low: float, high: float) -> Any:
    if not low <= value <= high:
        raise ConfigError(f"judge: {name} is {value:g}; it is {low:g} to {high:g}")
    return value


def _scale(scale: tuple[float, float]) -> tuple[float, float]:
    worst, best = scale
    if not (isfinite(worst) and isfinite(best) and worst < best):
        raise ConfigError(f"judge: scale is [{worst:g}, {best:g}]; it is [worst, best], the smaller first")
    return scale


def _criteria(criteria: Mapping[str, float]) -> Mapping[str, float]:
    if len(criteria) > MOST_CRITERIA:
        raise ConfigError(f"judge: {len(criteria)} criteria; {MOST_CRITERIA} at most")
    for name, weight in criteria.items():
        if not (isfinite(weight) and weight > 0):
            raise ConfigError(f"judge: criteria.{name} weighs {weight:g}; a weight is above 0")
        if not name.strip() or not name.isprintable():
            raise ConfigError(f"judge: {name!r} is no name of a criterion")
    return criteria


def _rubric(rubric: str) -> str:
    """The rubric, or `@` and the path of its file, which is read when it is needed: the run guards it like a script."""
    if not rubric.startswith("@"):
        return rubric
    try:
        return "@" + inner_path(rubric[1:].strip().removeprefix("./"))
    except WrongError as bad:
        raise WrongError(*(("rubric", what) for _, what in bad.faults)) from None


def _after_rubric(rubric: str, asks: Probe) -> Probe:
    """A probe that wants the rubric first: one that is made later would be the agent's."""

    def probe(place: Place) -> str:
        _read(_rubric(rubric), place)
        return asks(place)

    return probe


def _read(rubric: str, place: Place) -> str:
    if not rubric.startswith("@"):
        return rubric
    name = f"the rubric {rubric[1:]}"
    path = place.root / rubric[1:]
    if not Path(os.path.realpath(path)).is_relative_to(place.root.resolve()):
        raise NotStartable(f"{name} is a link out of the folder that the gate works in")
    try:
        text = whole(path, name, RUBRIC_BYTES).decode("utf-8-sig")
    except BadEvidence as error:
        large = f"{name} is larger than {RUBRIC_BYTES:,} bytes"
        raise NotStartable(large if error.code == "too_large" else str(error)) from None
    except UnicodeDecodeError:
        raise NotStartable(f"{name} cannot be read: not UTF-8") from None
    if not text.strip():
        raise NotStartable(f"{name} is empty")
    return text


async def _judged(court: _Court, opened: Open, seen: Seen, place: Place) -> Score:
    """The votes as one score, within the gate's timeout."""
    rubric = place.redact.text(await asyncio.to_thread(_read, court.rubric, place))
    parts = await asyncio.to_thread(parts_of, seen, place)
    if not parts:
        return Score(0.0, "nothing was done yet, so there is nothing to judge", status="fail", graded=True)
    heard: list[Opinion] = []
    try:
        async with opened(seen, place) as voter:
            for number in range(1, court.votes + 1):
                heard.append(await _vote(court, voter, number, question(rubric, court.form, parts)))  # noqa: PERF401 - one after another
    except TimeoutError:
        had = f" ({len(heard)} of {court.votes} votes were there)" if court.votes > 1 else ""
        raise BadEvidence("timeout", f"no verdict within {place.timeout_s:g} s{had}") from None
    mark = court.min if court.min is not None else seen.threshold
    return _score(court, heard, mark, place)


async def _vote(court: _Court, voter: Voter, number: int, asked: Question) -> Opinion:
    """One vote; asked once more where it was no verdict."""
    for last in (False, True):
        try:
            said = await voter(number, asked, court.form)
            return reader.read(
                said, "the judge's answer", scale=court.form.scale, criteria=court.form.criteria
            )
        except BadEvidence as error:
            if last or error.code in _LASTS:
                raise
    raise AssertionError("the second time is the last")


def _for_models(**options: object) -> None:
    if given := [name for name, value in options.items() if value is not None]:
        raise ConfigError(f"judge: {', '.join(given)}: for a model only; nobody knows what a command asks")


def _by_model(model: _model.Model, budget: float | None) -> Open:
    if budget is not None and not (isfinite(budget) and budget > 0):
        raise ConfigError(f"judge: budget is {budget:g}; it is USD above 0")

    @asynccontextmanager
    async def opened(seen: Seen, place: Place) -> Any:
        spent = seen.spent_usd
        if budget is not None and spent >= budget:
            raise _spent(budget, spent)  # before the library is loaded
        async with asyncio.timeout(place.timeout_s), _model.asking(model, place) as ask:

            async def voter(_number: int, asked: Question, form: Form) -> str:
                nonlocal spent
                if budget is not None and spent >= budget:
                    raise _spent(budget, spent)
                answer = await ask(asked, form)
                place.spend(answer.usage)
                if budget is not None:
                    if answer.usage.cost_usd is None:
                        raise NotStartable(
                            f"nobody knows what {model} costs, so budget cannot be kept: remove it"
                        )
                    spent += answer.usage.cost_usd
                return answer.text

            yield voter

    return opened


def _spent(budget: float, spent: float) -> NotStartable:
    return NotStartable(
        f"the judge's budget is spent: ${spent:.4g} of ${budget:.4g}; raise budget of the gate"
    )


def _by_command(argv: tuple[str, ...]) -> Open:
    @asynccontextmanager
    async def opened(seen: Seen, place: Place) -> Any:  # noqa: ARG001 - the shape of an Open
        found = (resolve(argv[0], place), *argv[1:])
        place.artifacts.mkdir(mode=0o700, parents=True, exist_ok=True)
        until = time.monotonic() + place.timeout_s

        async def voter(number: int, asked: Question, form: Form) -> str:  # noqa: ARG001 - the form is in the text
            return await _printed(found, f"{asked.rules}\n{asked.work}\n", number, until, place)

        yield voter

    return opened


async def _printed(argv: tuple[str, ...], text: str, number: int, until: float, place: Place) -> str:
    """What the command printed; BadEvidence `exit`, `signal`, `timeout`, `idle` or `too_large` where it counts for nothing."""
    end = await supervise(
        Process(
            argv=(*place.sandbox, *argv),
            cwd=place.root,
            env=place.env,
            log=place.artifacts.absolute() / f"vote-{number}.log",
            stdin=text.encode(errors="replace"),
            timeout_s=max(0.05, until - time.monotonic()),
            idle_s=place.idle_s,
            grace_s=place.grace_s,
            active=place.active,
            redact=place.redact,
            head_bytes=4 * reader.MAX_CHARS,
        ),
        observe=place.hear,
    )
    said = clip(steady(decode(end.stderr[-4 * _SAID :]), place.root).strip(), _SAID)
    tail = f"\n{said}" if said else ""
    if end.ended == "timeout":
        raise BadEvidence("timeout", f"the judge ran longer than {place.timeout_s:g} s and was ended{tail}")
    if end.ended != "exited":
        raise BadEvidence(end.ended, f"the judge showed no sign of life and was ended{tail}")
    if end.code is None:
        raise BadEvidence("signal", f"the judge was killed by signal {end.signal}{tail}")
    if end.code:
        raise BadEvidence(
            "exit", f"the judge failed, so its verdict counts for nothing; exit {end.code}{tail}"
        )
    if end.stdout_bytes > 4 * reader.MAX_CHARS:
        raise BadEvidence("too_large", f"the judge printed {end.stdout_bytes:,} bytes")
    return end.stdout.decode(errors="replace")


def _score(court: _Court, votes: Sequence[Opinion], mark: float, place: Place) -> Score:
    """The median, and whether enough votes are at or above the mark."""
    yes = [vote for vote in votes if vote.score >= mark and vote.passes is not False]
    passed = len(yes) >= court.quorum
    sure = median(0.0 if vote.confidence is None else vote.confidence for vote in (yes or votes))
    unsure = passed and court.confidence is not None and sure < court.confidence
    value = median(vote.score for vote in votes)
    means = {name: median(vote.criteria[name] for vote in votes) for name in court.form.criteria}
    score = Score(
        value,
        clip(_reason(court, votes, yes, mark, means), _REASON),
        status="pass" if passed else "fail",
        graded=True,
        raw=median(vote.raw for vote in votes),
        direction="max",
        failing=() if passed else tuple(name for name, mean in means.items() if mean < mark),
        evidence={"votes": [_kept(vote, place) for vote in votes], "min": mark, "quorum": court.quorum},
    )
    return replace(score, unsure=True) if unsure else score


def _reason(
    court: _Court, votes: Sequence[Opinion], yes: Sequence[Opinion], mark: float, means: Mapping[str, float]
) -> str:
    if court.votes == 1:
        head = f"{votes[0].score:.2f}, {mark:g} is wanted"
        if votes[0].passes is False and votes[0].score >= mark:
            head += ", and the judge says that it does not pass"
    else:
        head = f"{len(yes)} of {len(votes)} votes at or above {mark:g}, {court.quorum} are wanted"
    if means:
        head += "; " + ", ".join(f"{name} {mean:.2f}" for name, mean in means.items())
    no = [vote for vote in votes if vote not in yes]
    said = [f"{vote.score:.2f}: {vote.reason}" for vote in (*no, *yes) if vote.reason]
    if court.votes == 1:
        said = [votes[0].reason] if votes[0].reason else []
    share = (_REASON - len(head)) // max(1, len(said)) - 3
    return "\n".join([head, *(clip(text, share) for text in said)])


def _kept(vote: Opinion, place: Place) -> dict[str, Any]:
    """A vote for the record."""
    kept: dict[str, Any] = {"score": vote.score, "reason": one_line(place.redact.text(vote.reason), 500)}
    if vote.raw != vote.score:
        kept["raw"] = vote.raw
    if vote.passes is not None:
        kept["pass"] = vote.passes
    if vote.confidence is not None:
        kept["confidence"] = vote.confidence
    if vote.criteria:
        kept["criteria"] = dict(vote.criteria)
    return kept
