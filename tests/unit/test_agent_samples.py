"""What the recorded output of real CLIs comes to, a row for every file of tests/cases/agent-samples.

A CLI that has an adapter is read by it; the others as what they are without one: a command.
"""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from test_agent_command import EXIT

from loopwright.agents import _cli, aider, claude, codex, opencode
from loopwright.agents._said import Said, event_of, last_result, outcome
from loopwright.core.values import PARTS, Failed, Session, Usage, Worked
from loopwright.ports import Place
from loopwright.supervise import Exit

SAMPLES = Path(__file__).parents[1] / "cases" / "agent-samples"
TABLE = Path(__file__).with_name("agent_samples.tsv")
NOW = datetime(2026, 11, 29, 13, 37, tzinfo=UTC)
COLUMNS = ["cli", "case", "comes to", "cost", "tokens = input + cache write + cache read + output", "turns"]
COLUMNS += ["session", "text or message"]
# The sessions that a resumed one goes on with, as the run before it is on record.
BEFORE = {
    "claude-code": Session(id="203b8f03-f431-4e4d-9d3f-26469ac82989", usage=Usage(cost_usd=0.00951)),
    "codex": Session(
        id="01a22783-6473-7fa3-acbd-b1dd9cbac4e5",
        usage=Usage(input_tokens=1500, cache_write_tokens=0, cache_read_tokens=1200, output_tokens=70),
    ),
}
CASES = sorted(
    (path.parent.name, path.name.removesuffix(".meta.json")) for path in SAMPLES.glob("*/*.meta.json")
)
ROWS = [line.split("\t") for line in TABLE.read_text(encoding="utf-8").splitlines()]


def sample(cli: str, case: str) -> Exit:
    """How the sample ended; where its harness ended it, as loopwright would have."""
    base = SAMPLES / cli / case
    status = json.loads(base.with_name(f"{case}.meta.json").read_text(encoding="utf-8"))["exit_code"]
    out = next(
        (p.read_bytes() for end in ("jsonl", "txt") if (p := base.with_name(f"{case}.{end}")).exists()), b""
    )
    err = base.with_name(f"{case}.stderr.txt")
    end = replace(EXIT, stdout=out, stdout_bytes=len(out), stderr=err.read_bytes() if err.exists() else b"")
    if status is None:
        return replace(end, code=143, ended="timeout")
    return replace(end, code=None, signal=-status) if status < 0 else replace(end, code=status)


def heard(cli: str, case: str, end: Exit, place: Place) -> tuple[Said | None, Usage]:
    """What its adapter makes of it: what it says, and what was heard of its use."""
    before = BEFORE.get(cli) if case == "resume" else None
    if cli == "aider":
        said = aider.heard(end)
        return said, said.usage if said is not None else Usage()
    events: _cli.Events
    if cli == "opencode":
        events = opencode.Heard(workdir="/WORK", model="fake/fake-model")
    elif cli == "codex":
        events = codex.Heard(model="gpt-5.5", workdir="/WORK", before=before)
    else:
        events = claude.Heard(workdir="/WORK", before=before)
    for line in end.stdout.splitlines():
        if (event := event_of(line)) is not None:  # the harness cut the last one
            events.hear(event)
    said = events.said()
    if cli == "codex":
        said = codex._last((), said, end, place)
    if cli == "opencode":
        said = opencode.last(said, end, place)
    return said, events.usage


def came_to(cli: str, case: str, place: Place) -> Worked | Failed:
    end = sample(cli, case)
    if cli not in {"claude-code", "claude-code-2.1.197", "codex", "opencode", "aider"}:
        return outcome(end, last_result(end), idle_s=None, now=NOW)
    said, usage = heard(cli, case, end, place)
    ended = outcome(end, said, idle_s=None, now=NOW, prose=cli == "aider")
    return ended if said is not None else _cli._partly(ended, usage, told=False)


def row(cli: str, case: str, ended: Worked | Failed) -> list[str]:
    result = ended.result if isinstance(ended, Worked) else ended
    usage = result.usage
    kind = ended.kind if isinstance(ended, Failed) else "timed out" if ended.timed_out else "worked"
    if isinstance(ended, Failed) and ended.retry_after_s is not None:
        kind += f", wait {ended.retry_after_s:.0f} s"
    if isinstance(ended, Failed) and ended.of_login:
        kind += ", of its login"
    if isinstance(ended, Worked) and ended.degraded:
        kind += f" ({ended.degraded})"
    text = ended.message if isinstance(ended, Failed) else ended.result.summary
    line = " ".join(text.split())
    session = {None: "-", "": "gone"}.get(result.session, "told")
    parts = [getattr(usage, name) for name in PARTS]
    tokens = "-" if usage.tokens is None else str(usage.tokens)
    if any(part is not None for part in parts):
        tokens += " = " + " + ".join("-" if part is None else str(part) for part in parts)
    cost = "-" if usage.cost_usd is None else f"{round(usage.cost_usd, 6):g}"
    turns = "-" if usage.turns is None else str(usage.turns)
    return [cli, case, kind, cost, tokens, turns, session, line[:110]]


def test_every_sample_has_its_row():
    assert ROWS[0] == COLUMNS
    assert sorted(r[:2] for r in ROWS[1:]) == sorted(list(case) for case in CASES)


@pytest.mark.parametrize("expected", ROWS[1:], ids=lambda r: f"{r[0]}-{r[1]}")
def test_what_a_sample_comes_to(expected, tmp_path):
    place = Place(
        root=tmp_path, project=tmp_path, artifacts=tmp_path, env={"HOME": str(tmp_path)}, timeout_s=9
    )
    cli, case = expected[:2]
    assert row(cli, case, came_to(cli, case, place)) == expected
