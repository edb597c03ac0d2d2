"""The gate on a task list: what an item is, and which ticks count."""

import asyncio
import os
from dataclasses import replace
from types import SimpleNamespace

import pytest
from a_place import place, score
from workspace_repo import git, new_repo, write

from loopwright import Loop, Result, standing
from loopwright.errors import ConfigError
from loopwright.evidence.checklist import Item, items
from loopwright.gates.checklist import MAX_BYTES, checklist
from loopwright.gates.command import command
from loopwright.hosts.local import resume, start
from loopwright.hosts.ways import Ways
from loopwright.ports import Past
from loopwright.registry import resolve_gate
from loopwright.stores.memory import MemoryStore
from loopwright.workspace.opened import Look

ENV = {"PATH": os.environ["PATH"]}
LIST = "# Plan\n- [ ] one\n- [ ] two\n- [ ] three\n"


def texts(markdown):
    return [f"{'x' if item.ticked else '-'} {item.text}" for item in items(markdown.encode())]


class TestItems:
    @pytest.mark.parametrize(
        ("line", "item"),
        [
            ("- [ ] a", "- a"),
            ("* [x] a", "x a"),
            ("- [X] a", "x a"),
            ("+ [ ] a", "- a"),
            ("1. [ ] a", "- a"),
            ("12) [x] a", "x a"),
            ("    - [ ] deep", "- deep"),
            ("\t- [ ] deep", "- deep"),
            ("> - [ ] quoted", "- quoted"),
            ("- 1. [ ] a", "- a"),
            ("-   [ ]   a   b  ", "- a b"),
            ("- [ ] a <!-- said -->", "- a"),
            ("- [ ] read `<!--` in it", "- read `<!--` in it"),
            ("- [\t] a", "- a"),
        ],
    )
    def test_what_is_one(self, line, item):
        assert texts(f"text\n{line}\n- [ ] after\n") == [item, "- after"]

    @pytest.mark.parametrize(
        "line",
        [
            "- [] a",
            "- [ ]a",
            "- [ ]",
            "- [ ] <!-- a -->",
            "- [~] a",
            "- [-] a",
            "[ ] a",
            "-[ ] a",
            "a - [ ] b",
        ],
    )
    def test_what_is_none(self, line):
        assert texts(f"{line}\n- [x] after") == ["x after"]

    @pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
    def test_line_ends(self, end):
        assert texts(f"\ufeff- [ ] a{end}- [x] b{end}") == ["- a", "x b"]

    @pytest.mark.parametrize(
        "hidden",
        [
            "```\n- [ ] no\n```",
            "~~~ md\n- [ ] no\n```\n- [ ] no\n~~~~",
            "````\n```\n- [ ] no\n````",
            "- ```\n  - [ ] no\n  ```",
            "<!--\n- [ ] no\n-->",
            "<!-- - [ ] no\n- [ ] no -->",
            "<!-- a --> <!-- b\n- [ ] no\n-->",
        ],
    )
    def test_code_and_comments_hold_none(self, hidden):
        assert texts(f"- [x] a\n{hidden}\n- [ ] b\n") == ["x a", "- b"]

    def test_a_fence_that_nobody_closes_goes_on_and_inline_code_opens_none(self):
        assert texts("- [ ] a\n```\n- [ ] b\n") == ["- a"]
        assert texts("```a``` is code\n- [ ] b\n") == ["- b"]

    def test_bytes_that_are_no_text(self):
        assert items(b"- [ ] caf\xe9") == (Item("caf\ufffd", ticked=False),)


def judged(tmp_path, now, *, began=LIST, left=LIST, elsewhere=True, mark=0.0, per_iteration=1):
    def as_bytes(text):
        return None if text is None else text.encode()

    past = Past(now=as_bytes(now), began=as_bytes(began), left=as_bytes(left), elsewhere=elsewhere)
    gate = checklist(file="PLAN.md", per_iteration=per_iteration)
    return score(gate, place(tmp_path), past={"PLAN.md": past}.get, mark=mark)


def ticked(*names, of=LIST):
    for name in names:
        of = of.replace(f"[ ] {name}", f"[x] {name}")
    return of


class TestTicks:
    def test_one_with_work_counts_and_the_next_is_named(self, tmp_path):
        found = judged(tmp_path, ticked("one"))
        assert (found.status, found.value, found.raw, found.direction) == ("fail", 1 / 3, 1.0, "max")
        assert found.reason == "1 of 3 items done; next: 'two'"
        assert found.failing == ("two", "three")

    def test_all_ticked_one_after_the_other_is_done(self, tmp_path):
        found = judged(tmp_path, ticked("one", "two", "three"), began=ticked("one", "two"), mark=2.0)
        assert (found.status, found.value, found.failing) == ("pass", 1.0, ())

    def test_more_than_one_iteration_may_do_does_not_count(self, tmp_path):
        everything = ticked("one", "two", "three")
        found = judged(tmp_path, everything)
        assert (found.status, found.raw) == ("fail", 1.0)
        assert found.reason.startswith(
            "ticked at once: 'one', 'two', 'three': 1 in an iteration may be, so untick the others"
        )
        assert found.failing == ("not done: one", "not done: two", "not done: three")
        later = judged(tmp_path, everything, began=everything, mark=1.0)
        assert (later.status, later.raw) == ("fail", 2.0)  # one more for each iteration that works
        assert judged(tmp_path, everything, began=everything, mark=2.0).status == "pass"
        assert judged(tmp_path, everything, per_iteration=3).status == "pass"

    def test_a_tick_without_any_other_change_does_not_count_then_or_later(self, tmp_path):
        one = ticked("one")
        found = judged(tmp_path, one, elsewhere=False)
        assert (found.status, found.raw) == ("fail", 0.0)
        assert found.reason.startswith("ticked without a change elsewhere: 'one': do the work, or untick it")
        everything = ticked("one", "two", "three")
        last = judged(tmp_path, everything, began=ticked("one", "two"), elsewhere=False, mark=2.0)
        assert (last.status, last.raw) == ("fail", 2.0)
        again = judged(tmp_path, everything, began=everything, elsewhere=False, mark=2.0)
        assert (again.status, again.failing) == (
            "fail",
            ("not done: one", "not done: two", "not done: three"),
        )

    def test_what_the_user_ticked_needs_no_work(self, tmp_path):
        everything = ticked("one", "two", "three")
        for began in (LIST, everything):
            done = judged(tmp_path, everything, began=began, left=everything, elsewhere=False, mark=None)
            assert done.status == "pass"
        # While they were asked, beside one of the agent's that counted:
        both = judged(
            tmp_path, ticked("one", "two"), began=ticked("one"), left=ticked("two"), elsewhere=False, mark=1.0
        )
        assert both.raw == 2.0

    def test_what_was_done_and_undone_is_not_done_before(self, tmp_path):
        assert judged(tmp_path, ticked("one", "two"), began=LIST, mark=2.0).raw == 1.0

    @pytest.mark.parametrize(
        ("now", "gone"),
        [
            ("- [x] one\n- [ ] two\n", "'three'"),
            ("- [x] one\n- [x] two\n- [x] three, more or less\n", "'three'"),
            (ticked("one", "two") + "```", None),
            ("```\n" + LIST, "'one', 'two', 'three'"),
            ("<!--\n" + LIST + "-->\n- [x] four\n", "'one', 'two', 'three'"),
            (LIST.replace("- [ ] three", "- [~] three"), "'three'"),
        ],
    )
    def test_an_item_that_is_gone_or_reworded_is_not_done(self, tmp_path, now, gone):
        found = judged(tmp_path, now, mark=9.0, per_iteration=9)
        assert found.status == "fail"
        assert (f"gone or reworded: {gone}: put it back as it was" in found.reason) == (gone is not None)
        assert found.evidence["items"] == 3 + ("four" in now) + ("more or less" in now)

    def test_the_same_text_twice_is_two_items(self, tmp_path):
        twice = "- [ ] a\n- [ ] a\n"
        found = judged(tmp_path, "- [x] a\n", left=twice, began=twice)
        assert (found.status, found.value) == ("fail", 0.5)

    def test_the_user_may_take_items_away_and_the_agent_may_add_some(self, tmp_path):
        assert judged(tmp_path, "- [x] one\n", left="- [ ] one\n").status == "pass"
        found = judged(tmp_path, "- [x] one\n- [ ] one and a half\n", left="- [ ] one\n")
        assert (found.status, found.failing) == ("fail", ("one and a half",))

    def test_what_an_item_says_is_shown_without_control_characters_and_cut(self, tmp_path):
        found = judged(tmp_path, "- [ ] a\x1b[31m" + "b" * 5000 + "\n", left=None)
        assert "\x1b" not in found.reason
        assert max(map(len, (found.reason, *found.failing))) < 250


def code(found):
    assert (found.status, found.value, found.cause) == ("error", 0.0, "evidence")
    return found.evidence["code"]


class TestNoEvidence:
    def test_without_a_file_items_or_snapshots(self, tmp_path):
        assert code(judged(tmp_path, "nothing to do\n", left=None)) == "no_items"
        missing = judged(tmp_path, None)
        assert (code(missing), missing.reason) == ("missing_report", "there is no PLAN.md; put it back")
        assert judged(tmp_path, None, left=None).reason == "there is no PLAN.md"
        assert code(judged(tmp_path, "x" * (MAX_BYTES + 1))) == "too_large"
        nowhere = score(checklist(file="PLAN.md"), place(tmp_path))
        assert code(nowhere) == "no_snapshots"
        assert "git on PATH" in nowhere.reason

    def test_a_list_that_git_ignores(self, tmp_path):
        where = place(tmp_path)
        (where.root / "PLAN.md").write_text(LIST)
        assert "take it out of .gitignore" in judged(tmp_path, None, left=None).reason

    def test_options_that_cannot_be(self, tmp_path):
        for bad in ("../PLAN.md", "/PLAN.md", "~/PLAN.md", ".git/x", ""):
            with pytest.raises((ConfigError, ValueError)):
                checklist(file=bad)
        with pytest.raises(ConfigError, match="per_iteration is 0"):
            checklist(file="PLAN.md", per_iteration=0)
        with pytest.raises(ConfigError, match="file: '../x' is not a path inside"):
            resolve_gate("checklist:../x", project=tmp_path, path="")

    def test_the_string_form(self, tmp_path):
        assert resolve_gate("checklist:docs/my plan.md", project=tmp_path, path="").name == "checklist"

    def test_a_gate_of_an_inner_folder_finds_its_file_from_there(self, tmp_path):
        where = place(tmp_path)
        inner = place(tmp_path, root=where.root / "api")
        asked = []
        score(checklist(file="./PLAN.md"), inner, past=asked.append, workdir=where.root)
        assert asked == ["api/PLAN.md"]


@pytest.fixture
def repo(tmp_path):
    root = new_repo(tmp_path / "repo")
    write(root, {"PLAN.md": LIST})
    git(root, "add", "-A")
    git(root, "commit", "-qm", "plan")
    return root


def looped(repo, work, *, gates=("checklist:PLAN.md",), most=5):
    """The state at the end of a run in the repository whose agent is this function of the folder and the iteration."""

    def agent(attempt):
        work(repo, attempt.iteration)
        return Result("worked", summary="worked")

    loop = Loop("g", agent=agent, gates=list(gates), workspace={"mode": "in_place"}, max_iterations=most)
    return asyncio.run(start(loop, "r", Ways(project=repo, store=MemoryStore(), environ=ENV))).state


def tick(repo, *names):
    plan = repo / "PLAN.md"
    plan.write_text(ticked(*names, of=plan.read_text()))


def one_by_one(repo, n):
    (repo / "a.txt").write_text(f"{n}\n")
    tick(repo, ("one", "two", "three")[n - 1])


def committed(repo, n):
    one_by_one(repo, n)
    git(repo, "commit", "-qam", f"item {n}")


def ticks_only(repo, n):
    tick(repo, *("one", "two", "three")[n - 1 : n])


def ticks_and_writes_the_report(repo, n):
    (repo / "report.txt").write_text(f"{n}\n")
    ticks_only(repo, n)


def all_at_once(repo, n):
    (repo / "a.txt").write_text("1\n")
    tick(repo, "one", "two", "three")


def takes_away(repo, n):
    (repo / "a.txt").write_text(f"{n}\n")
    (repo / "PLAN.md").write_text("- [x] one\n")


def hides(repo, n):
    (repo / "a.txt").write_text(f"{n}\n")
    (repo / "PLAN.md").write_text("- [x] one\n```\n" + LIST)


def hides_the_file(repo, n):
    (repo / ".git/info/exclude").write_text("PLAN.md\n")
    takes_away(repo, n)


@pytest.mark.parametrize(
    ("work", "end"),
    [
        (one_by_one, ("quality_reached", 3)),
        (committed, ("quality_reached", 3)),
        (ticks_only, ("max_iterations", 5)),
        (all_at_once, ("health", 4)),  # the first of its ticks counts, then nothing changes
        (takes_away, ("max_iterations", 5)),
        (hides, ("max_iterations", 5)),
        (hides_the_file, ("max_iterations", 5)),
    ],
)
def test_a_list_is_done_by_working_through_it_and_by_nothing_else(repo, work, end):
    state = looped(repo, work)
    assert (state.finished.reason, state.iteration) == end


def test_files_that_gates_leave_are_no_work_and_hide_no_stall(repo):
    writes = command(run=["sh", "-c", "date +%N > report.txt"])
    state = looped(repo, ticks_only, gates=(writes, "checklist:PLAN.md"), most=7)
    assert (state.finished.reason, state.iteration) == ("health", 6)
    assert len({closed.snapshot for closed in state.recent[-3:]}) == 3
    assert state.measured["checklist"] == 0.0


def test_nor_is_what_an_agent_writes_into_them(repo):
    writes = command(run=["sh", "-c", "echo > report.txt"])
    state = looped(repo, ticks_and_writes_the_report, gates=(writes, "checklist:PLAN.md"), most=3)
    assert state.measured["checklist"] == 0.0


def test_what_the_user_does_to_the_list_between_two_parts_of_a_run_holds(repo):
    """The agent takes `three` away, the user `two`; the user ticks `one` as well."""
    agent = "sh -c 'echo x >> a.txt; test -e ran || echo \"- [ ] one\n- [ ] two\" > PLAN.md; echo > ran; echo worked'"
    ways = Ways(project=repo, store=MemoryStore(), environ=ENV)
    loop = Loop("g", agent=agent, gates=["checklist:PLAN.md"], max_iterations=1, convergence=False)
    first = asyncio.run(start(loop, "r", ways)).state
    assert "gone or reworded: 'three'" in first.last.reasons[0]
    (repo / "a.txt").write_text("mine\n")  # of no concern to the list
    second = asyncio.run(resume("r", replace(ways, add={"max_iterations": 2.0}))).state
    assert "gone or reworded: 'three'" in second.last.reasons[0], "an edit beside it accepts nothing"
    (repo / "PLAN.md").write_text("- [x] one\n- [ ] four\n")
    third = asyncio.run(resume("r", replace(ways, add={"max_iterations": 1.0}))).state
    assert third.last.reasons == ("checklist: 1 of 2 items done; next: 'four'",), "it is as the user left it"
    assert len(third.edits) == 2


def test_a_change_after_the_gates_is_the_users_and_what_gates_left_is_not(repo):
    recorded = []
    journal = SimpleNamespace(
        state=SimpleNamespace(snapshot="a"), record=lambda _, fact: recorded.append(fact)
    )
    of = SimpleNamespace(gated=True, left="b", journal=journal, clock=SimpleNamespace(now=lambda: None))

    def whose(tree):
        return standing._whose(of, Look(tree=tree, evidence=None)), [fact.snapshot for fact in recorded]

    assert whose("b") == ("gate", [])
    assert whose("c") == ("user", ["b"])
    journal.state.snapshot = "b"
    assert whose("c") == ("user", ["b"])
    of.left = None
    assert whose("c")[0] == "gate"  # it was cut off: nobody knows
    of.gated = False
    assert whose("c")[0] == "user"
