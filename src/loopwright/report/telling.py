"""What a person wants to know of one fact, in a line: for the timeline and for `watch`.

Rule: made from the fact and the states around it; foreign text is shown, not obeyed, and short.
"""

from __future__ import annotations

from loopwright.core import events as ev
from loopwright.core.state import LoopState
from loopwright.core.values import Scored
from loopwright.figures import MARKS, brief, moment, paid, safe, score, seconds
from loopwright.report.values import Kind


def told(before: LoopState, event: ev.Event, after: LoopState) -> tuple[Kind, str] | None:
    """The line for `event` and what kind of news it is; `None` for facts that are no news by themselves."""
    match event:
        case ev.GateScored() | ev.Judged():  # first, for there are most of them
            return None
        case ev.RunStarted() | ev.PolicyChanged() | ev.RunReopened() | ev.RunFinished() | ev.Delivered():
            return "run", _of_the_run(event)
        case ev.Claimed(epoch=epoch, host=host):
            return ("run", f"taken up again on {safe(host)}") if epoch > 1 else None
        case ev.AttemptStarted(attempt=number):
            return ("work", f"attempt {number} begins") if number > 1 else None
        case ev.AttemptFailed(kind=kind, message=message):
            return "work", f"the attempt failed ({kind}): {brief(message)}"
        case ev.AttemptInterrupted(cause=cause):
            return "work", f"the attempt was cut off ({cause})"
        case ev.AttemptSucceeded(degraded=degraded, timed_out=late):
            what = "the attempt ran out of time, its work is kept" if late else ""
            what = what or (
                f"the attempt gave a result beside a problem: {brief(degraded)}" if degraded else ""
            )
            return ("work", what) if what else None
        case ev.WaitStarted(until=until, why=why):
            return "work", f"waits until {moment(until)}: {brief(why)}"
        case ev.DaySpent(day=day, cost_usd=cost):
            return "work", f"${cost:.2f} are spent on {day} by all runs here"
        case ev.WorkspaceChanged(cause=cause):
            words = {
                "user": "the workspace was edited from outside",
                "restored": "a snapshot was brought back",
            }
            return ("work", words[cause]) if cause in words else None
        case ev.EvidenceChanged(paths=paths, action=action):
            return "alert", f"evidence was changed ({action}): {_some(paths)}"
        case ev.AlertRaised(kind=kind, action=action, message=message, critical=critical):
            return "alert", f"{kind} ({'critical' if critical else action}): {brief(message)}"
        case ev.IterationClosed(outcome=outcome):
            return "close", closed(before, outcome, after)
        case ev.Noticed(channel=channel, problem=str(problem)):
            return "people", f"{brief(channel, 40)}: {brief(problem)}"
        case ev.Noticed():
            return None
        case _:
            return "people", _of_people(event)


def _of_the_run(
    event: ev.RunStarted | ev.PolicyChanged | ev.RunReopened | ev.RunFinished | ev.Delivered,
) -> str:
    match event:
        case ev.RunStarted(origin=origin):
            return f"the run began ({brief(origin)})"
        case ev.PolicyChanged():
            return "the loop was redefined"
        case ev.RunReopened(by=by):
            return f"reopened by {_who(by)}"
        case ev.RunFinished(reason=reason, explanation=explanation):
            return f"ended: {reason}: {brief(explanation)}"
        case ev.Delivered(to=to, ref=ref, problem=problem):
            return (
                f"not delivered to {to}: {brief(problem)}" if problem else f"delivered to {to} {brief(ref)}"
            )


def _of_people(
    event: ev.ApprovalRequested
    | ev.ApprovalDecided
    | ev.StopRequested
    | ev.PauseRequested
    | ev.Resumed
    | ev.NoteAdded
    | ev.LimitsChanged,
) -> str:
    match event:
        case ev.ApprovalRequested(question=question, deadline=deadline):
            until = f" (until {moment(deadline)})" if deadline else ""
            return f"a person is asked: {brief(question)}{until}"
        case ev.ApprovalDecided():
            return decision(event)
        case ev.StopRequested(now=now, by=by):
            return f"{_who(by)} asked it to stop{' at once' if now else ''}"
        case ev.PauseRequested(now=now, by=by):
            return f"{_who(by)} asked it to pause{' at once' if now else ''}"
        case ev.Resumed(by=by):
            return f"resumed by {_who(by)}"
        case ev.NoteAdded(text=text, by=by):
            return f"{_who(by)} left a note: {brief(text)}"
        case ev.LimitsChanged(limits=limits, by=by):
            return f"{_who(by)} set {', '.join(f'{safe(k)} = {v:g}' for k, v in limits.items())}"


def decision(given: ev.ApprovalDecided) -> str:
    """`ann approved it (slack): “ship it”`."""
    if given.answer == "expired":
        return "nobody answered in time"
    word = {"approve": "approved it", "revise": "sent it back", "reject": "rejected it"}[given.answer]
    if given.override:
        word = f"accepted it although it did not pass (“{brief(given.override)}”)"
    where = f" ({brief(given.channel)})" if given.channel else ""
    note = f": “{brief(given.note)}”" if given.note else ""
    raised = ", ".join(f"{safe(k)} = {v:g}" for k, v in given.edits.items())
    return f"{_who(given.by)} {word}{where}{note}{f', with {raised}' if raised else ''}"


def closed(before: LoopState, outcome: str, after: LoopState) -> str:
    """The line of an iteration that is over: gates, score with its trend, cost, time."""
    it = before.current
    if it is None:
        return outcome
    gates = "  ".join(gate(scored) for scored in it.scores)
    plan = before.totals.plan
    known = it.tokens if plan else it.cost_usd
    cost = f"  {paid(it.cost_usd, it.tokens, plan=plan)}" if known else ""
    if it.verdict is None:
        failed = f" ({it.failed.kind}: {brief(it.failed.message, 100)})" if it.failed else ""
        return f"{outcome}{failed}{cost}  {seconds(it.seconds)}"
    last = before.last.score if before.last else None
    value = it.verdict.score
    moved = last is not None and abs(value - last) >= 0.005
    trend = f" {'▲' if value > (last or 0.0) else '▼'} {abs(value - (last or 0.0)):.2f}" if moved else ""
    best = "  best so far" if after.best is not None and after.best.iteration == it.number else ""
    return f"{outcome}  {gates}  score {score(value)}{trend}{best}{cost}  {seconds(it.seconds)}"


def gate(scored: Scored) -> str:
    """`pytest ✗ 0.87`."""
    given = scored.score
    plain = given.value in {0.0, 1.0} and not given.graded
    return f"{safe(scored.gate)} {MARKS[given.status]}{'' if plain else f' {score(given.value)}'}"


def _some(paths: tuple[str, ...]) -> str:
    more = f" and {len(paths) - 5} more" if len(paths) > 5 else ""
    return safe(", ".join(paths[:5])) + more


def _who(by: str) -> str:
    return brief(by, 60) or "a person"
