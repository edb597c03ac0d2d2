"""`backtest` on runs that really happened."""

from __future__ import annotations

from stage import WORK


def test_a_table_and_json_of_what_would_have_been(stage):
    file = stage.file('gates = ["false"]\n[limits]\nmax_iterations = 3\nconvergence = false')
    stage("run", file, "--no-baseline", "--as", "a", expect=3)
    before = stage.facts("a")
    same = stage("backtest", file, expect=0)
    assert "same" in same.out and "0 would have ended otherwise" in same.err
    ran = stage("backtest", file, "--set", "limits.max_iterations=2", expect=0)
    really, would = ran.out.splitlines()[1:3]
    assert "a " in really and "max_iterations   3" in really
    assert "would" in would and "max_iterations   2" in would and "2 iterations done, 2 allowed" in would
    doc = stage("backtest", file, "--set", "limits.max_iterations=9", "--json", expect=0).doc
    assert doc["schema"] == "loopwright/backtest/v1"
    (row,) = doc["runs"]
    assert (row["run"], row["same"], row["would"]["reason"]) == ("a", False, "beyond the record")
    assert stage.facts("a") == before and len(stage.calls) == 3


def test_runs_of_other_loops_and_gates_are_passed_over(stage):
    stage.script(WORK)
    file = stage.file('gates = ["false"]\nname = "one"\n[limits]\nmax_iterations = 1')
    stage("run", file, "--no-baseline", "--as", "a", expect=3)
    other = stage.file('gates = ["true"]\nname = "one"')
    ran = stage("backtest", other, expect=0)
    assert "a: passed over, true never judged it" in ran.err
    third = stage.file('gates = ["true"]\nname = "two"')
    assert "no run of a loop named two" in stage("backtest", third, expect=0).err
    assert stage("backtest", "missing.toml", expect=2).out == ""
