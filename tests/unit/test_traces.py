"""One trace for a run, whoever works on it: `TRACEPARENT` in children, and spans at a collector."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime, timedelta, timezone

import pytest
from collector import collecting, values

from loopwright import Loop, Score, traces
from loopwright.core import events as ev
from loopwright.core.values import Result, Usage
from loopwright.hosts.local import start
from loopwright.hosts.ways import Ways
from loopwright.journal import Journal
from loopwright.redact import redactor
from loopwright.serving import semconv as sc
from loopwright.serving.spans import Spans, agent_name
from loopwright.serving.tracing import observer
from loopwright.stores.memory import MemoryStore
from loopwright.stores.opened import open_store

AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
OUTER = "00-" + "a" * 32 + "-" + "b" * 16 + "-01"
CANARY = "canary-7f3a"


def go(loop, ways, name="r"):
    return asyncio.run(start(loop, name, ways)).state


def test_a_trace_is_made_of_the_record_alone():
    trace = traces.trace_of("r", AT, {})
    assert trace == traces.trace_of("r", AT.astimezone(timezone(timedelta(hours=5))), {})
    assert (
        len({trace.id, traces.trace_of("r2", AT, {}).id, traces.trace_of("r", AT.replace(hour=13), {}).id})
        == 3
    )
    assert trace.parent is None
    names = {trace.span("attempt", 1, 1), trace.span("attempt", 11, 1), trace.span("attempt", 1, 11)}
    assert len(names) == 3
    assert trace.header("iteration", 1) == f"00-{trace.id}-{trace.span('iteration', 1)}-01"


def test_a_run_that_is_started_in_a_span_belongs_to_its_trace():
    (label,) = traces.inherited({"TRACEPARENT": OUTER}).items()
    within = traces.trace_of("r", AT, dict([label]))
    assert (within.id, within.parent, within.sampled) == ("a" * 32, "b" * 16, True)
    assert within.span("run") == traces.trace_of("r", AT, {}).span("run")  # never another run's
    assert not traces.trace_of("r", AT, {"traceparent": OUTER[:-2] + "00"}).sampled
    assert traces.trace_of("r", AT, {"traceparent": "01" + OUTER[2:] + "-later"}).id == "a" * 32


@pytest.mark.parametrize(
    "wrong",
    [
        "",
        "nonsense",
        OUTER.upper(),
        "ff" + OUTER[2:],
        OUTER + "-more",
        OUTER + "\n",
        "00-" + "0" * 32 + OUTER[35:],
        OUTER[:36] + "0" * 16 + "-01",
        "01" + OUTER[2:] + "-" + "x" * 999,
    ],
)
def test_what_is_no_header_starts_a_trace_of_its_own(wrong):
    assert traces.inherited({"TRACEPARENT": wrong}) == {}
    assert traces.trace_of("r", AT, {"traceparent": wrong}) == traces.trace_of("r", AT, {})


def test_agents_and_gates_are_told_which_span_they_are_below(tmp_path):
    show = "sh -c 'echo \"$LOOPWRIGHT_ITERATION $TRACEPARENT\" >> {}'"
    gates = [show.format("gates"), "false"]
    loop = Loop(
        "g", agent=show.format("agents"), gates=gates, max_iterations=2, workspace={"mode": "in_place"}
    )
    store = MemoryStore()
    environ = {"PATH": os.environ["PATH"], "TRACEPARENT": OUTER}
    state = go(loop, Ways(project=tmp_path, store=store, environ=environ))
    assert state.labels == {"traceparent": OUTER}
    trace = traces.trace_of("r", state.started_at, state.labels)
    assert trace.id == "a" * 32
    agents = [line.split() for line in (tmp_path / "agents").read_text().splitlines()]
    assert agents == [[str(n), trace.header("attempt", n, 1)] for n in (1, 2)]
    gates = [line.split() for line in (tmp_path / "gates").read_text().splitlines()]
    assert gates == [[str(n), trace.header("iteration", n)] for n in (0, 1, 2)]


def worker(attempt):
    usage = Usage(cost_usd=0.25, input_tokens=10, cache_read_tokens=90, output_tokens=5, model="m-1")
    return Result(CANARY, summary=CANARY, usage=usage)


def judged(output, seen):
    return Score(seen.iteration / 2, CANARY)


def traced(collector, project, store, *, loop=None, **environ):
    told = []
    environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, **environ}
    tracing = observer(environ, tell=told.append)
    assert tracing is not None, told
    loop = loop or Loop(CANARY, name="nightly", agent=worker, gates=[judged], max_iterations=5)
    try:
        return go(loop, Ways(project=project, store=store, environ=environ, follow=(tracing.follow,))), told
    finally:
        tracing.close()


def test_the_spans_of_a_run_say_what_its_journal_says(tmp_path):
    store = MemoryStore()
    with collecting() as collector:
        state, told = traced(collector, tmp_path, store)
    assert told == []
    assert state.finished.reason == "quality_reached"
    trace = traces.trace_of("r", state.started_at, {})
    assert {span.trace_id.hex() for span in collector.spans} == {trace.id}
    assert all(values(span.attributes)[sc.SEMCONV] == "genai-0.1.0" for span in collector.spans)
    assert {r["service.name"] for r in collector.resources} == {"loopwright"}

    whole = collector.one("invoke_workflow nightly")
    assert (whole.span_id.hex(), whole.parent_span_id) == (trace.span("run"), b"")
    assert whole.start_time_unix_nano == round(state.started_at.timestamp() * 1e6) * 1000
    said = values(whole.attributes)
    assert said[sc.CONVERSATION] == said[sc.RUN] == "r"
    assert (said[sc.OPERATION], said[sc.STOP_REASON], said[sc.COST]) == (
        "invoke_workflow",
        "quality_reached",
        0.5,
    )

    first, second = collector.named("loopwright.iteration")
    assert {first.parent_span_id, second.parent_span_id} == {whole.span_id}
    assert [values(s.attributes)[sc.SCORE] for s in (first, second)] == [0.5, 1.0]
    assert [values(s.attributes)[sc.OUTCOME] for s in (first, second)] == ["not_accepted", "accepted"]
    (score,) = first.events
    assert score.name == "gen_ai.evaluation.result"
    found = values(score.attributes)
    assert (found[sc.EVALUATION_NAME], found[sc.EVALUATION_SCORE], found[sc.EVALUATION_LABEL]) == (
        "judged",
        0.5,
        "fail",
    )

    call, _ = collector.named("invoke_agent worker")
    assert (call.span_id.hex(), call.parent_span_id) == (trace.span("attempt", 1, 1), first.span_id)
    assert first.start_time_unix_nano <= call.start_time_unix_nano <= call.end_time_unix_nano
    assert call.end_time_unix_nano <= first.end_time_unix_nano <= whole.end_time_unix_nano
    used = values(call.attributes)
    assert (used[sc.INPUT_TOKENS], used[sc.CACHE_READ], used[sc.OUTPUT_TOKENS]) == (100, 90, 5)
    assert (used[sc.MODEL], used[sc.COST], used[sc.TOKENS]) == ("m-1", 0.25, 105)


def test_what_anybody_said_is_in_no_span_unless_it_is_asked_for(tmp_path):
    with collecting() as collector:
        traced(collector, tmp_path, MemoryStore())
        assert collector.spans
        assert not any(CANARY.encode() in body for body in collector.bodies)
        traced(collector, tmp_path, MemoryStore(), LOOPWRIGHT_TELEMETRY_CONTENT="true")
    spans = collector.spans[len(collector.spans) // 2 :]
    said = [values(span.attributes) for span in spans] + [
        values(e.attributes) for s in spans for e in s.events
    ]
    assert {k for each in said for k, v in each.items() if v == CANARY} == {
        sc.GOAL,
        sc.SUMMARY,
        sc.EVALUATION_WHY,
    }


def test_content_that_is_asked_for_holds_no_secret(tmp_path):
    secret = "s3cr3t-" + CANARY

    def leaky(output):
        return Score(1.0, f"it said {secret}")

    loop = Loop(f"do {secret}", agent=lambda attempt: Result("x", summary=secret), gates=[leaky])
    with collecting() as collector:
        traced(
            collector, tmp_path, MemoryStore(), loop=loop, LOOPWRIGHT_TELEMETRY_CONTENT="1", MY_TOKEN=secret
        )
    assert any(b"[redacted:MY_TOKEN]" in body for body in collector.bodies)
    assert not any(secret.encode() in body for body in collector.bodies)


def test_what_is_on_record_already_is_cleaned_again(tmp_path):
    seen, journal = [], Journal(MemoryStore(), "r")
    journal.follow = (Spans(journal, seen.append, content=True).follow,)
    journal.redact = redactor({"MY_TOKEN": "s3cr3t-value-1"})
    journal.record(AT, ev.RunStarted(run="r", spec={"goal": "do s3cr3t-value-1"}, digest="d"))
    journal.record(
        AT, ev.RunFinished(phase="stopped", reason="health", explanation="s3cr3t-value-1" + "x" * 9000)
    )
    journal.flush()
    (whole,) = seen
    assert whole.attributes[sc.GOAL] == "do [redacted:MY_TOKEN]"
    assert whole.attributes[sc.EXPLANATION].startswith("[redacted:MY_TOKEN]xx")
    assert len(whole.attributes[sc.EXPLANATION]) == 4000


def test_a_run_inside_a_trace_is_sent_below_its_span_or_not_at_all(tmp_path):
    with collecting() as collector:
        traced(collector, tmp_path, MemoryStore(), TRACEPARENT=OUTER)
        assert collector.one("invoke_workflow nightly").parent_span_id.hex() == "b" * 16
        sent = len(collector.spans)
        assert {span.trace_id.hex() for span in collector.spans} == {"a" * 32}
        traced(collector, tmp_path, MemoryStore(), TRACEPARENT=OUTER[:-2] + "00")
    assert len(collector.spans) == sent == 5


def test_failed_work_is_an_error_of_its_kind(tmp_path):
    def broken(attempt):
        raise RuntimeError(CANARY)

    loop = Loop("g", name="n", agent=broken, gates=[judged], max_consecutive_errors=1)
    with collecting() as collector:
        state, _ = traced(collector, tmp_path, MemoryStore(), loop=loop)
    assert state.finished.reason == "consecutive_errors"
    kinds = {span.name: values(span.attributes).get(sc.ERROR) for span in collector.spans}
    assert kinds == {
        "invoke_agent broken": "unknown",
        "loopwright.iteration": "unknown",
        "invoke_workflow n": "consecutive_errors",
    }
    assert {span.status.code for span in collector.spans} == {2}
    assert sc.COST not in values(collector.one("invoke_workflow n").attributes)  # unknown is not zero
    assert not any(CANARY.encode() in body for body in collector.bodies)


WORK = """
import os, signal, sys
from pathlib import Path

def agent(attempt):
    if attempt.iteration == 2 and "killed" in os.environ:
        sys.stdin.readline()  # until the collector has what ended before
        os.kill(os.getpid(), signal.SIGKILL)
    return attempt.iteration

def gate(output):
    return output == 3
"""
MAIN = """
import asyncio, os, sys
from pathlib import Path
from loopwright import Loop
from loopwright.hosts.local import start
from loopwright.hosts.ways import Ways
from loopwright.serving.tracing import observer
from loopwright.stores.opened import open_store

tracing = observer(os.environ, tell=print)
ways = Ways(project=Path.cwd(), store=open_store("sqlite:///runs.db", Path.cwd()), environ=os.environ, follow=(tracing.follow,))
asyncio.run(start(Loop("g", name="n", agent="work:agent", gates=["work:gate"]), "r", ways))
"""


def test_a_run_that_was_killed_goes_on_in_the_same_trace(tmp_path, monkeypatch):
    (tmp_path / "work.py").write_text(WORK)
    monkeypatch.setattr(sys, "path", [*sys.path])
    with collecting() as collector:
        environ = {"PATH": os.environ["PATH"], "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "killed": "yes"}
        environ["OTEL_BSP_SCHEDULE_DELAY"] = "20"
        with subprocess.Popen(
            [sys.executable, "-c", MAIN], cwd=tmp_path, env=environ, stdin=subprocess.PIPE
        ) as first:
            arrived = []
            while "loopwright.iteration" not in arrived:
                arrived += collector.arrived.get(timeout=60)
            first.stdin.write(b"\n")
        assert first.returncode == -signal.SIGKILL
        assert sorted(arrived) == ["invoke_agent agent", "loopwright.iteration"]
        store = open_store("sqlite:///runs.db", tmp_path)
        try:
            loop = Loop("g", name="n", agent="work:agent", gates=["work:gate"])
            state, told = traced(collector, tmp_path, store, loop=loop)
        finally:
            store.close()
            sys.modules.pop("work", None)
    assert (state.finished.reason, told) == ("quality_reached", [])
    trace = traces.trace_of("r", state.started_at, {})
    assert {span.trace_id.hex() for span in collector.spans} == {trace.id}
    assert len({span.span_id for span in collector.spans}) == len(collector.spans) == 8
    whole = collector.one("invoke_workflow n")
    iterations = collector.named("loopwright.iteration")
    assert [span.parent_span_id for span in iterations] == [whole.span_id] * 3
    calls = collector.named("invoke_agent agent")
    key = [(values(c.attributes)[sc.INDEX], values(c.attributes)[sc.ATTEMPT]) for c in calls]
    assert key == [(1, 1), (2, 1), (2, 2), (3, 1)]
    assert [values(c.attributes).get(sc.ERROR) for c in calls] == [None, "crash", None, None]
    assert (
        calls[1].start_time_unix_nano >= iterations[0].end_time_unix_nano
    )  # as the dead process recorded it
    assert iterations[1].start_time_unix_nano == calls[1].start_time_unix_nano


def test_a_collector_that_does_not_answer_costs_a_run_nothing(tmp_path):
    never = threading.Event()
    with collecting(hold=never) as collector:
        began = time.monotonic()
        state, _ = traced(collector, tmp_path, MemoryStore())
        assert state.finished.reason == "quality_reached"
        assert 1.5 < time.monotonic() - began < 4  # two seconds at the end, for what is left
        never.set()


def test_a_collector_that_refuses_is_said_once(tmp_path, monkeypatch):
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "1")
    with collecting(answer=400) as collector:
        state, told = traced(collector, tmp_path, MemoryStore())
    assert state.finished.reason == "quality_reached"
    assert len(collector.bodies) == 5
    assert len(told) == 1
    assert told[0].startswith("traces cannot be sent to 127.0.0.1:")


def test_without_a_collector_nothing_is_loaded_and_a_wrong_setting_is_said():
    told = []
    base = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}
    assert observer({}, tell=told.append) is None
    assert observer({**base, "OTEL_SDK_DISABLED": "true"}, tell=told.append) is None
    assert observer({**base, "OTEL_TRACES_EXPORTER": "none"}, tell=told.append) is None
    assert told == []
    assert observer({**base, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, tell=told.append) is None
    assert told == ["traces are not sent: loopwright speaks OTLP as http/protobuf, not grpc"]


def test_without_the_package_it_is_said_which(monkeypatch):
    told = []
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    assert observer({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}, tell=told.append) is None
    assert told[0].endswith("pip install 'loopwright[otel]'")


def test_a_fault_of_ours_ends_the_spans_of_a_run_and_not_the_run(tmp_path, monkeypatch):
    def fault(*_):
        raise ZeroDivisionError("ours")

    monkeypatch.setattr(Spans, "_scored", fault)
    with collecting() as collector:
        state, told = traced(collector, tmp_path, MemoryStore())
    assert state.finished.reason == "quality_reached"
    assert told == ["spans of run r are missing: ZeroDivisionError: ours"]
    monkeypatch.setattr(Spans, "__init__", fault)
    with collecting() as collector:
        state, told = traced(collector, tmp_path, MemoryStore())
    assert (state.finished.reason, len(told), collector.spans) == ("quality_reached", 1, [])


def test_a_request_is_a_span_although_nobody_watched_while_it_was_open(tmp_path):
    store, seen = MemoryStore(), []
    loop = Loop(
        "g", name="n", agent=lambda attempt: 1, gates=[lambda output: True], approval={"when": "passed"}
    )
    state = go(loop, Ways(project=tmp_path, store=store))
    asked = state.approval
    journal = Journal(store, "r")
    journal.follow = (Spans(journal, seen.append).follow,)
    at = state.updated_at + timedelta(hours=1)
    journal.record(
        at, ev.ApprovalDecided(id=asked.id, answer="approve", by="Zoë", channel="slack", note=CANARY)
    )
    journal.record(at, ev.IterationClosed(outcome="accepted"))
    journal.record(at, ev.RunFinished(phase="complete", reason="quality_reached", explanation=""))
    assert seen == []  # not before it is durable
    journal.flush()
    approval, iteration, whole = seen
    assert approval.name == "loopwright.approval"
    assert approval.parent == iteration.id
    assert approval.attributes[sc.WAITED] == pytest.approx(3600, abs=5)
    assert (approval.attributes[sc.ANSWER], approval.attributes[sc.CHANNEL]) == ("approve", "slack")
    assert "Zoë" not in str(approval)
    assert [e.name for e in iteration.events] == [sc.EVALUATION]  # read from the journal
    assert whole.began == state.started_at


def test_a_run_that_is_reopened_has_a_second_span_below_the_first(tmp_path):
    store, seen = MemoryStore(), []
    loop = Loop("g", name="n", agent=lambda attempt: 1, gates=[lambda output: False], max_iterations=1)
    follow = (lambda journal: Spans(journal, seen.append).follow,)
    state = go(loop, Ways(project=tmp_path, store=store, follow=follow))
    journal = Journal(store, "r")
    journal.follow = (Spans(journal, seen.append).follow,)
    at = state.updated_at + timedelta(hours=1)
    journal.record(at, ev.RunReopened(by="Zoë"))
    journal.record(at, ev.RunFinished(phase="stopped", reason="stopped_by_user", explanation=""))
    journal.flush()
    first, second = (span for span in seen if span.name == "invoke_workflow n")
    assert second.parent == first.id
    assert second.id != first.id
    assert (first.error, second.error) == ("max_iterations", None)


@pytest.mark.parametrize(
    ("said", "name"),
    [
        ("claude", "claude"),
        ("claude:opus", "claude"),
        ("work:Agents.agent", "agent"),
        ("script:/home/ann/a loop.py#f.<locals>.mine", "mine"),
        ("/opt/bin/agent --key=sk-1", "agent"),
        ("sh -c 'curl -H $TOKEN'", "sh"),
        ({"use": "command", "run": ["./run.sh", "secret"]}, "run.sh"),
        ({"run": "./run.sh 'unclosed"}, "run.sh"),
        ({"use": "codex", "model": "x"}, "codex"),
        (None, "agent"),
    ],
)
def test_an_agent_is_called_by_its_name_and_never_by_its_arguments(said, name):
    assert agent_name({"agent": said}, 1) == name
    assert agent_name({"agent": "claude", "improve": said}, 2) == (name if said else "claude")
