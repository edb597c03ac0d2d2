"""Python functions as gates."""

import asyncio
import functools
import threading
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
from a_place import place, score

from loopwright.core.limits import Limits
from loopwright.core.values import Score
from loopwright.errors import BadEvidence, ConfigError, NotStartable
from loopwright.gates.function import Work, as_gate, gate
from loopwright.gates.measure import measure
from loopwright.ports import Seen
from loopwright.redact import PLAIN
from loopwright.running import inside


class Changed:
    lines, text, paths = 3, "diff", ("a.py",)


def judged(fn, where, **seen):
    return score(as_gate(fn), where, **seen)


def test_a_function_stays_a_function_and_is_a_gate():
    @gate
    def long_enough(result):
        return len(result) > 3

    assert long_enough("abcd")
    made = as_gate(long_enough)
    assert (made.name, made.rule.weight, made.rule.required, made.rule.min) == (
        "long_enough",
        2.0,
        True,
        None,
    )
    assert made is as_gate(long_enough)


def test_options_become_the_rule():
    @gate(
        name="n",
        required=False,
        min=0.5,
        timeout=3,
        after=["pytest"],
        parallel=True,
        objective=True,
        min_gain=0.1,
    )
    def check(result):
        return 1.0

    made = as_gate(check)
    assert (made.name, made.rule.weight, made.rule.required, made.rule.min) == ("n", 1.0, False, 0.5)
    assert (made.timeout, made.after, made.parallel, made.writes) == (3, ("pytest",), True, False)
    assert (made.rule.objective, made.rule.min_gain) == (True, 0.1)
    assert as_gate(gate(weight=5)(lambda result: True)).rule.weight == 5


def test_options_out_of_range_are_refused():
    for options in ({"weight": -1}, {"weight": float("nan")}, {"min": 1.5}, {"timeout": 0}, {"min_gain": -1}):
        with pytest.raises(ConfigError):
            gate(**options)


def test_names_come_from_what_is_there():
    class Checker:
        def __call__(self, result):
            return True

        def method(self, result):
            return True

    def named(result, limit):
        return True

    assert as_gate(lambda result: True).name == "function"
    assert as_gate(functools.partial(named, limit=3)).name == "named"
    assert as_gate(Checker()).name == "Checker"
    assert as_gate(Checker().method).name == "method"


def test_it_gets_the_output_or_for_an_agent_in_a_folder_the_work(tmp_path):
    got = []

    def keep(result):
        got.append(result)
        return True

    where = place(tmp_path)
    assert judged(keep, where, output={"a": 1}, workdir=None).status == "pass"
    assert got.pop() == {"a": 1}
    calls = []
    judged(keep, where, output="o", summary="s", diff=lambda: calls.append(1) or Changed())
    work = got.pop()
    assert isinstance(work, Work)
    assert (work.output, work.summary, work.workdir) == ("o", "s", where.root)
    assert calls == []
    assert (work.diff.lines, work.diff.text, work.diff.paths) == (3, "diff", ("a.py",))
    assert calls == [1]


def test_a_missing_diff_is_an_error_that_says_so(tmp_path):
    found = judged(lambda result: result.diff.lines < 3, place(tmp_path))
    assert (found.status, found.evidence["code"]) == ("error", "no_diff")
    assert "no snapshots" in found.reason


def test_it_sees_the_run_when_it_asks(tmp_path):
    where = place(tmp_path)
    assert judged(lambda result, seen: seen.iteration == 7, where, iteration=7).status == "pass"
    assert judged(lambda result, seen=None: seen.iteration == 7, where, iteration=7).status == "pass"
    assert judged(lambda result, limit=3: limit == 3, where).status == "pass"
    assert judged(lambda *both: len(both) == 1, where).status == "pass"


def test_what_cannot_be_called_with_a_result_is_refused():
    def two_more(result, seen, more):
        return True

    def keyword(result, *, limit):
        return True

    for bad in (lambda: True, two_more, keyword, 3):
        with pytest.raises(ConfigError):
            as_gate(bad)
    with pytest.raises(ConfigError):
        gate(lambda: True)


def test_what_it_returns_is_a_score(tmp_path):
    where = place(tmp_path)
    for value, status, number in (
        (True, "pass", 1.0),
        (False, "fail", 0.0),
        (0.25, None, 0.25),
        (1, None, 1.0),
        (Score(0.5, "half", status="fail", raw=3), "fail", 0.5),
    ):
        found = judged(lambda result, value=value: value, where)
        assert (found.status, found.value) == (status, number)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1.01, -1, 95, None, "1", [1], {}])
def test_what_is_no_score_is_an_error(value, tmp_path):
    found = judged(lambda result: value, place(tmp_path))
    assert (found.status, found.value, found.cause) == ("error", 0.0, "evidence")
    assert found.evidence["code"] in {"not_finite", "out_of_range", "no_score"}


@pytest.mark.parametrize(
    ("kind", "cause"),
    [
        (TypeError, "tool"),
        (NameError, "tool"),
        (ImportError, "tool"),
        (AttributeError, "tool"),
        (NotStartable, "tool"),
        (ValueError, "evidence"),
        (AssertionError, "evidence"),
        (StopIteration, "evidence"),
        (SystemExit, "evidence"),
    ],
)
def test_an_exception_is_an_error_and_never_a_fail(kind, cause, tmp_path):
    def sync(result):
        raise kind("why")

    async def awaited(result):
        raise kind("why")

    for fn in (sync, awaited):
        found = judged(fn, place(tmp_path))
        assert (found.status, found.value, found.cause) == ("error", 0.0, cause)
        assert found.graded is False
        if fn is awaited and kind is StopIteration:
            continue  # Python makes a RuntimeError of that one
        said, first, line = found.reason.splitlines()[:3]
        assert said.endswith(f"{kind.__name__}: why")
        assert "test_gates_function.py" in first  # our own frames are left out
        assert line == '    raise kind("why")'


def test_bad_evidence_keeps_its_code(tmp_path):
    def check(result):
        raise BadEvidence("odd", "why")

    found = judged(check, place(tmp_path))
    assert (found.status, found.cause, found.reason, found.evidence["code"]) == (
        "error",
        "evidence",
        "why",
        "odd",
    )


def test_an_error_whose_text_fails_is_still_one(tmp_path):
    class OddError(Exception):
        def __str__(self):
            raise RuntimeError("no text")

    def check(result):
        raise OddError

    assert judged(check, place(tmp_path)).status == "error"


@pytest.mark.parametrize("value", [True, False])
def test_scores_of_true_and_false_share_nothing(tmp_path, value):
    one, two = (judged(lambda result: value, place(tmp_path)) for _ in range(2))
    one.evidence["mine"] = 1
    assert two.evidence == {}
    assert judged(lambda result: value, place(tmp_path)).evidence == {}


def test_async_functions_are_awaited_and_others_run_in_a_thread(tmp_path):
    threads = []

    async def awaited(result):
        await asyncio.sleep(0)
        threads.append(threading.current_thread())
        return True

    def sync(result):
        threads.append(threading.current_thread())
        return True

    class Checker:
        async def __call__(self, result):
            await asyncio.sleep(0)
            return True

    where = place(tmp_path)
    for fn in (awaited, sync, functools.partial(awaited), Checker()):
        assert judged(fn, where).status == "pass"
    assert [t is threading.main_thread() for t in threads] == [True, False, True]


def test_one_that_takes_too_long_is_an_error_and_holds_nothing_up(tmp_path):
    release = threading.Event()
    where = replace(place(tmp_path), timeout_s=0.2)
    began = time.monotonic()
    found = judged(lambda result: release.wait(60), where)
    assert (found.status, found.evidence["code"]) == ("error", "timeout")
    assert found.reason == "took longer than 0.2 s; a thread cannot be ended, so it may still be running"
    assert time.monotonic() - began < 30
    release.set()


def test_an_async_function_that_is_too_late_or_not_wanted_any_more_is_cancelled(tmp_path):
    ended = []

    async def slow(result):
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(True)

    async def main():
        seen = Seen(iteration=1)
        late = await measure(as_gate(slow), seen, replace(place(tmp_path), timeout_s=0.2))
        assert (late.evidence["code"], ended) == ("timeout", [True])
        task = asyncio.create_task(measure(as_gate(slow), seen, place(tmp_path)))
        await asyncio.sleep(0.1)
        task.cancel()
        await asyncio.wait({task})
        await asyncio.sleep(0)
        assert (task.cancelled(), ended) == (True, [True, True])

    asyncio.run(main())


def test_the_place_of_who_is_not_told_where_it_works_is_made_again_for_another_limit(tmp_path):
    run = SimpleNamespace(
        inside={},
        workspace=SimpleNamespace(root=tmp_path),
        project=tmp_path,
        artifacts=tmp_path,
        env={},
        policy=SimpleNamespace(limits=Limits()),
        journal=SimpleNamespace(redact=PLAIN),
    )
    first = inside(run, "", 10.0)
    assert inside(run, "", 10.0) is first
    assert [inside(run, "", 5.0).timeout_s, inside(run, "gate", 7.0).timeout_s] == [5.0, 7.0]
