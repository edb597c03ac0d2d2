"""Why a run stands where it stands: what happened, the figures that decided, what would have to change.

Rule: from facts on record alone. Every ending has a text of its own; a figure that is not known is not
said.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, assert_never

from loopwright.core import events as ev
from loopwright.core.limits import Limits, of_day, spent, used_tokens
from loopwright.core.monitors import CALM
from loopwright.core.recorded import limits_of
from loopwright.core.state import LoopState
from loopwright.figures import at_most, brief, count, moment, money, safe, score, seconds, tokens
from loopwright.report.telling import decision
from loopwright.report.values import Report, Request
from loopwright.units import duration

REASONS: Final = 12  # lines of one gate's reason
# The limit that each ending is about, by the name of its figure.
DECIDED: Final[Mapping[str, str]] = {
    "max_iterations": "iterations",
    "max_duration": "work",
    "max_wait": "waiting",
    "budget": "money",
    "cost_unknown": "money",
    "max_tokens": "tokens",
    "consecutive_errors": "errors in a row",
}


# What a person can do about what holds work back though no gate says so.
LIFTED: Final[Mapping[str, str]] = {
    "evidence": "If that change is the work, it takes a loop whose may_change names the files.",
    "ratchet": "If less is what is wanted, a person can accept it (a run with --approve always asks); a new run counts anew.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Why:
    """What happened, in sentences, and what it would take to go on or to end otherwise (`change`).

    `figures` are the bounds with what was used of them, the one that decided marked; `blocked` the reasons
    of what holds the work back.
    """

    what: str
    figures: tuple[str, ...] = ()
    blocked: tuple[str, ...] = ()
    change: str = ""

    @property
    def lines(self) -> list[str]:
        """The whole of it, for a terminal."""
        told = self.what.splitlines()
        if self.figures:
            told += ["figures:", *(f"  {line}" for line in self.figures)]
        if self.blocked:
            told.append("held back by:")
        for reason in self.blocked:
            first, *rest = reason.splitlines() or [""]
            told += [f"  {first}", *(f"    {line}" for line in at_most(rest, REASONS))]
        return [*told, *([self.change] if self.change else [])]


def why(report: Report) -> Why:
    """Why this run stands where it stands."""
    state = report.state
    what, change = _ended(report, state.finished) if state.finished else _under_way(report)
    word = state.finished.reason if state.finished else ""
    passed = state.finished is not None and state.finished.phase == "complete"
    verdict = (state.current.verdict if state.current else None) or state.last
    reasons = verdict.reasons if verdict and not (passed and verdict.passed) else ()
    lifted = [LIFTED[name] for name in (verdict.blockers if verdict and not passed else ()) if name in LIFTED]
    return Why(
        what=what,
        figures=tuple(_figures(limits_of(state), state, DECIDED.get(word, ""))),
        blocked=tuple(safe(r) for r in reasons[:20]),
        change=" ".join(line for line in (change, *lifted) if line),
    )


def _figures(limits: Limits, state: LoopState, decided: str) -> list[str]:
    """Each bound with what is used of it; the one that decided is marked."""
    totals = state.totals
    unknown = f", {count(totals.unknown_costs, 'attempt')} told no cost" if totals.unknown_costs else ""
    rows = [
        ("iterations", f"{state.iteration} of {limits.max_iterations}"),
        ("work", f"{seconds(totals.seconds)} of {duration(limits.max_duration)}"),
    ]
    if totals.waited_s or decided == "waiting":
        rows.append(("waiting", f"{seconds(totals.waited_s)} of {duration(limits.max_wait)}"))
    listed = " at list prices: a plan pays" if totals.plan else ""
    gates = sum(state.gate_costs.values())
    told = f"{f', {money(gates)} of it by gates' if gates else ''}{listed}{unknown}"
    if limits.budget is not None:
        rows.append(("money", f"{money(spent(limits, totals))} of {money(limits.budget)}{told}"))
    elif totals.plan:
        rows += [("money", f"{money(gates)} by gates, no budget")] if gates else []
    elif totals.known_costs or gates:
        rows.append(("money", f"{money(totals.cost_usd)}, no budget{told}"))
    if totals.plan and limits.max_tokens is None:
        more = f", {count(totals.unknown_tokens, 'attempt')} told none" if totals.unknown_tokens else ""
        rows.append(("tokens", f"{tokens(used_tokens(totals)).partition(' ')[0]}, a plan pays{more}"))
    if limits.max_tokens is not None:
        told = f", {count(totals.unknown_tokens, 'attempt')} told none" if totals.unknown_tokens else ""
        rows.append(("tokens", f"{used_tokens(totals):,} of {limits.max_tokens:,}{told}"))
    if state.errors:
        rows.append(("errors in a row", f"{state.errors} of {limits.max_consecutive_errors}"))
    if state.best is not None:
        passed = "passed" if state.best.passed else "not passed"
        rows.append(("best", f"{score(state.best.score)} in iteration {state.best.iteration}, {passed}"))
    wide = max(len(name) for name, _ in rows)
    return [f"{name:<{wide}}  {text}{'   <- decided' if name == decided else ''}" for name, text in rows]


def _ended(report: Report, end: ev.RunFinished) -> tuple[str, str]:
    """What happened and what would have to change, for each reason of the closed list."""
    match end.reason:
        case "quality_reached" | "already_satisfied" | "limits_reached":
            return _good(report, end)
        case "max_iterations" | "max_duration" | "max_wait" | "budget" | "cost_unknown" | "max_tokens":
            return _limited(report, end)
        case "converged" | "health":
            return _ill(report, end)
        case "rejected" | "stopped_by_user":
            return _by_people(report, end)
        case (
            "consecutive_errors"
            | "permanent_error"
            | "gate_error"
            | "interrupted_too_often"
            | "policy_violation"
        ):
            return _broken(report, end)
        case _:
            assert_never(end.reason)


def _good(report: Report, end: ev.RunFinished) -> tuple[str, str]:
    state = report.state
    if end.reason == "already_satisfied":
        what = "Every required gate passed before any work, so no agent was started."
        return what, 'With if_passing = "run" it works on all the same.'
    spoke = _accepting(report)
    by = f"\n{spoke}." if spoke else ""
    if end.reason == "limits_reached":
        best = state.best
        kept = f"iteration {best.iteration} (score {score(best.score)})" if best else "an iteration"
        what = f"It worked until a limit was met, as it was told to, and kept the best: {kept}.\n"
        return f"{what}{brief(end.explanation)}.{by}", "A fork of it with a higher limit works on."
    verdict = state.last
    if verdict is not None and not verdict.passed:
        return f"Iteration {state.iteration} did not pass every required gate.{by}", ""
    value = "" if verdict is None else f" (score {score(verdict.score)})"
    return f"Iteration {state.iteration} passed every required gate{value}.{by}", ""


def _limited(report: Report, end: ev.RunFinished) -> tuple[str, str]:
    state = report.state
    said = brief(end.explanation)
    gates = ", ".join(map(safe, state.last.blockers)) if state.last and state.last.blockers else ""
    held = (
        f"It ends well when what holds it back ({gates}) passes"
        if gates
        else "It ends well when an iteration passes"
    )
    match end.reason:
        case "max_iterations":
            return f"It had all the iterations it may have and none was accepted: {said}.", (
                f"{held}; it goes on with more iterations."
            )
        case "max_duration":
            return f"Agents and gates used up their time: {said}.", (f"{held}; it goes on with more time.")
        case "max_wait":
            return f"It waited as long as it may for the agent to be available: {said}.", (
                "It goes on once the agent's own limit is lifted; a new run may be allowed to wait longer "
                "(limits.max_wait)."
            )
        case "budget" if of_day(state):
            return f"The money of the day does not reach for another attempt: {said}.", (
                "It goes on tomorrow (UTC); a new run may be allowed more (limits.budget_per_day)."
            )
        case "budget":
            return f"The money does not reach for another attempt: {said}.", (
                "It goes on with a larger budget. If an attempt costs less than was set aside for it, a new run can "
                "be told what one costs (limits.reserve)."
            )
        case "cost_unknown":
            return f"It cannot be known what was spent, and unknown is never zero: {said}.", (
                "A new run needs an agent that says what it uses, or an estimate of what an attempt costs "
                "(limits.reserve)."
            )
        case _:
            return f"The tokens are used up: {said}.", "A new run needs a higher limits.max_tokens."


def _ill(report: Report, end: ev.RunFinished) -> tuple[str, str]:
    state = report.state
    if end.reason == "converged":
        rule = limits_of(state).convergence
        span = (
            f"{rule.patience} × {count(rule.window, 'graded iteration')}" if rule else "the last iterations"
        )
        last = next((c for c in reversed(state.recent) if c.graded), None)
        items = f", {count(len(last.failing), 'item')} still failing" if last and last.failing else ""
        least = f" by {rule.within:g}" if rule else ""
        what = f"Nothing got better over {span}: the best score did not rise{least} and no failing item went away.\n"
        nudged = " It was nudged to try another way before." if rule and rule.patience > 1 else ""
        return f"{what}Best score {score(state.peak)}{items}.{nudged}", (
            "It goes on with a note that says what to try; a smaller goal or another agent may help more than time."
        )
    counted = [a for a in state.alerts if a.kind not in CALM or a.action == "stop"]
    alerts = [f"{a.kind} in iteration {a.iteration}: {brief(a.message)}" for a in counted[-8:]]
    many = any(a.critical for a in counted[-1:])
    first = "Too many alerts in a short time stopped it:" if many else "A monitor stopped it:"
    kind = counted[-1].kind.lower() if counted else "KIND"
    key = "monitors.critical" if many else f"monitors.{kind}"
    listed = alerts if many else alerts[-1:]
    return "\n".join([first, *(f"  {line}" for line in listed)]), (
        f"It goes on with a note that says what to try; {key} says when this happens."
    )


def _by_people(report: Report, end: ev.RunFinished) -> tuple[str, str]:
    if end.reason == "stopped_by_user":
        stop = report.stop
        by = (brief(stop.by, 60) if stop else "") or "A person"
        how = "at once" if stop and stop.now else "after the iteration that was under way"
        return (
            f"{by} asked it to stop, {how}. Its state and its work are kept.",
            "It goes on when it is resumed.",
        )
    request = _answered(report)
    if request is None or request.decided is None:
        return (
            f"{brief(end.explanation)}.",
            "It goes on when it is resumed, best with a note that says what is wanted.",
        )
    asked = f"“{brief(request.asked.question)}” was asked on {moment(request.at)}."
    if request.decided.answer == "expired":
        return (
            f'{asked}\nNobody answered in time, and here silence is a no (approval.on_timeout = "reject").',
            ('It goes on when it is resumed; with on_timeout = "hold" it would have waited.'),
        )
    return f"{asked}\n{decision(request.decided)}.", (
        "It goes on when it is resumed, best with a note that says what is wanted instead."
    )


def _broken(report: Report, end: ev.RunFinished) -> tuple[str, str]:
    state = report.state
    said = safe(end.explanation.strip())[:1500]
    match end.reason:
        case "consecutive_errors":
            last = next((row.problem for row in reversed(report.rows) if row.problem), "")
            shown = f"\nThe last one: {safe(last.strip())[:600]}" if last else ""
            return f"{count(state.errors, 'iteration')} in a row brought no result.{shown}", (
                "It goes on when it is resumed, better once what makes the agent fail is mended."
            )
        case "permanent_error":
            return f"The agent failed in a way that trying again cannot mend:\n  {_inside(said)}", (
                "It goes on when it is resumed, once that is mended."
            )
        case "gate_error":
            when = "before any work" if not state.iteration else "twice in a row"
            return f"A required gate's tool could not run, {when}, so nothing can be judged.", (
                "It goes on when it is resumed, once the tool or the gate's command is mended."
            )
        case "interrupted_too_often":
            return f"{state.interruptions} crashes in a row cut the agent off.", (
                "It goes on when it is resumed; something ends its process: memory, a reboot, a kill."
            )
        case _:
            return f"The agent changed what is not its to change, so it was stopped:\n  {_inside(said)}", (
                "It goes on when it is resumed; look first at what was done there."
            )


def _inside(text: str) -> str:
    return "\n  ".join(text.splitlines())


def _under_way(report: Report) -> tuple[str, str]:
    """What a run that is not over waits for."""
    state = report.state
    it = state.current
    if state.approval is not None:
        return _asking(state, report.requests)
    if state.expired:
        question = report.requests[-1].asked.question if report.requests else ""
        asked = f" “{brief(question)}”" if question else ""
        return (
            f"Nobody answered in time{asked}; the work is kept and nothing runs.",
            "Resumed, it asks again.",
        )
    if state.paused:
        pause = report.pause
        by = (brief(pause.by, 60) if pause else "") or "a person"
        return f"Paused by {by}; its state and its work are kept.", "It goes on when it is resumed."
    if report.alone:
        claim = state.claim
        who = f" ({safe(claim.owner.partition(':')[0])} on {safe(claim.host)})" if claim else ""
        where = f"in the middle of iteration {it.number}" if it else f"after iteration {state.iteration}"
        return (
            f"The process that drove it{who} is gone, {where}. Nothing recorded is lost.",
            "It goes on when it is resumed.",
        )
    if state.wait_until is not None:
        said = f"\nThe last attempt: {brief(it.failed.message)}" if it is not None and it.failed else ""
        return f"It waits until {moment(state.wait_until)}: {brief(state.wait_why)}.{said}", (
            "Then it goes on by itself."
        )
    return _working(state), ""


def _asking(state: LoopState, requests: Sequence[Request]) -> tuple[str, str]:
    asked = state.approval
    assert asked is not None
    at = next((r.at for r in reversed(requests) if r.asked.id == asked.id), None)
    silence = (state.spec.get("approval") or {}).get("on_timeout", "hold")
    then = {
        "hold": "the run rests, with its work kept",
        "reject": "it counts as a no",
        "continue": "it goes on without being accepted",
    }.get(str(silence), "the run rests")
    until = "" if asked.deadline is None else f"\nWithout an answer by {moment(asked.deadline)}, {then}."
    since = f" since {moment(at)}" if at else ""
    return f"It waits for a person{since}: {brief(asked.question)}{until}", "It goes on with an answer."


def _working(state: LoopState) -> str:
    it = state.current
    if it is None:
        return f"Iteration {state.iteration + 1} is about to begin."
    if it.open is not None:
        most = f", for {seconds(it.open.allowance_s)} at most"
        return f"The agent works on iteration {it.number}, attempt {it.open.attempt}{most}."
    if it.done:
        have = ", ".join(safe(s.gate) for s in it.scores) or "none"
        return f"Iteration {it.number} is being judged; gates that have spoken: {have}."
    return f"Iteration {it.number} is between two attempts."


def _answered(report: Report) -> Request | None:
    return next((r for r in reversed(report.requests) if r.decided is not None), None)


def _accepting(report: Report) -> str:
    """Who accepted the end, if a person did."""
    request = _answered(report)
    if request is None or request.decided is None or request.asked.about != "accept":
        return ""
    return decision(request.decided) if request.decided.answer == "approve" else ""
