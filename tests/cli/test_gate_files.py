"""What gates write: their own new files are theirs, the work they judge is not."""

from pathlib import Path

from loopwright.core import events as ev

REPORT = """
[[gate]]
use = "command"
name = "writer"
run = ["sh", "-c", "echo run >> report.txt; false"]
"""


def statuses(stage, gate):
    return [e.score.status for e in stage.facts() if isinstance(e, ev.GateScored) and e.gate == gate]


def test_a_gate_may_write_its_own_file_again_and_after_a_resume(stage):
    file = stage.file(REPORT)
    stage("run", file, "--as", "r", "--max-iterations", "2", expect=3)
    stage("resume", "r", "--add-iterations", "1", expect=3)
    assert statuses(stage, "writer") == ["fail"] * 4
    assert len((stage.folder / "report.txt").read_text().splitlines()) == 4


def test_a_gate_that_changes_the_work_is_an_error_and_says_how_to_allow_it(stage):
    stage.write("data.txt", "1\n")
    file = stage.file(REPORT.replace("report.txt", "data.txt"))
    stage("run", file, "--as", "r", "--max-iterations", "1", "--no-baseline", expect=3)
    (score,) = [e.score for e in stage.facts() if isinstance(e, ev.GateScored)]
    assert (score.status, score.cause) == ("error", "evidence")
    assert "it changed data.txt" in score.reason
    assert "writes = true" in score.reason


def test_before_any_work_such_a_gate_ends_the_run_since_no_agent_can_mend_it(stage):
    stage.write("data.txt", "1\n")
    file = stage.file(REPORT.replace("report.txt", "data.txt"))
    assert "gate_error" in stage("run", file, "--as", "r", expect=7).err
    assert not [e for e in stage.facts() if isinstance(e, ev.AttemptStarted)]


def test_a_glob_that_protects_nothing_is_said(stage):
    file = stage.file("gates = ['true']\nprotected = ['test/**']")
    assert "protected: 'test/**' matches no file" in stage("run", file, "--as", "r", expect=0).err


def test_a_gate_that_may_write_does_not_spoil_the_gates_after_it(stage):
    stage.write("data.txt", "1\n")
    allowed = REPORT.replace("report.txt", "data.txt").replace(
        'name = "writer"', 'name = "writer"\nwrites = true'
    )
    file = stage.file(allowed + '[[gate]]\nuse = "command"\nname = "second"\nrun = "true"\n')
    stage("run", file, "--as", "r", "--max-iterations", "1", expect=3)
    assert set(statuses(stage, "second")) == {"pass"}
    assert set(statuses(stage, "writer")) == {"fail"}


CLEAN = """
[[gate]]
use = "command"
name = "pristine"
clean = true
run = ["sh", "-c", "test -f work.txt -a ! -e ignored.txt -a ! -e deep/ignored.txt -a -L node_modules; s=$?; pwd >> $LOOPWRIGHT_ARTIFACTS/where; echo mine > work.txt; exit $s"]
[[gate]]
use = "command"
name = "here"
run = "test -e ignored.txt"
"""


def test_a_clean_gate_judges_the_snapshot_and_nothing_that_lies_beside_it(stage):
    stage.git("init", "-q", "-b", "main")
    stage.write(".gitignore", "ignored.txt\nnode_modules\n")
    (stage.folder / "deep").mkdir()
    (stage.folder / "node_modules").mkdir()
    for name in ("ignored.txt", "deep/ignored.txt"):
        stage.write(name, "left lying about\n")
    stage("run", stage.file(CLEAN), "--as", "r", expect=0)
    assert statuses(stage, "pristine")[-1] == "pass"
    assert statuses(stage, "here")[-1] == "pass"
    (where,) = (stage.folder / ".agent-state/artifacts/r/0001/gate-pristine").glob("where")
    made = where.read_text().strip()
    assert not made.startswith(str(stage.folder))
    assert not Path(made).parent.exists(), "it is removed afterwards"
    assert (stage.folder / "work.txt").read_text() == "1\n", "what it writes is thrown away"


def test_a_clean_gate_without_snapshots_cannot_run(stage):
    file = stage.file(CLEAN + '[workspace]\nmode = "none"\n')
    assert "pristine: clean needs a workspace" in stage("run", file, expect=2).err
    no_git = stage.folder.parent / "bin"
    no_git.mkdir()
    for tool in ("sh", "test"):
        (no_git / tool).symlink_to(f"/bin/{tool}" if tool == "sh" else "/usr/bin/test")
    ran = stage("run", stage.file('may_change = ["t/**"]\n' + CLEAN), "--as", "r", expect=7, PATH=str(no_git))
    assert "clean = true needs snapshots of the work" in ran.err
    assert "may_change: tests are judged as they are; their old text needs snapshots" in ran.err


def test_clean_and_writes_contradict_each_other(stage):
    file = stage.file(CLEAN.replace("clean = true", "clean = true\nwrites = true"))
    assert "clean = true writes is thrown away" in stage("run", file, expect=2).err


FORMATS = """
[[gate]]
use = "command"
name = "format"
run = "sh -c 'echo formatted > work.txt'"
writes = true
[[gate]]
use = "command"
name = "tests"
run = "sh -c 'read x < work.txt; test $x = formatted'"
"""


def test_what_a_gate_made_of_the_work_is_what_is_judged_and_kept(stage):
    stage.git("init", "-q", "-b", "main")
    file = stage.file(FORMATS + '[workspace]\nmode = "worktree"\n[deliver]\nto = "branch"\n')
    stage.git("commit", "-q", "--allow-empty", "-m", "x")
    ran = stage("run", file, "--as", "r", "--no-baseline", "--json", expect=0)
    assert ran.doc["reason"] == "quality_reached"
    assert stage.git("show", "loopwright/r:work.txt") == "formatted\n"
    assert [s.score.status for s in stage.of(ev.GateScored)] == ["pass"] * 4, "judged again as it is kept"


def test_a_gate_that_spoils_the_work_after_the_others_judged_it_never_lets_it_pass(stage):
    first, _, last = FORMATS.partition('[[gate]]\nuse = "command"\nname = "tests"')
    spoils = first.replace("echo formatted > work.txt", "date +%N > work.txt")
    file = stage.file('[[gate]]\nuse = "command"\nname = "tests"' + last + spoils)
    stage.script({"write": {"work.txt": "formatted\n"}, "say": "worked"})
    ran = stage("run", file, "--as", "r", "--no-baseline", "--max-iterations", "1", "--json", expect=3)
    assert ran.doc["passed"] is False
    assert ran.doc["reason"] == "max_iterations"


def test_copies_of_protected_files_that_an_agent_removed_are_missed(stage):
    stage.write("tests/t.py", "true\n")
    agent = "sh -c 'rm -r .agent-state/artifacts; echo cheat > tests/t.py; echo hi'"
    stage.write("loop.toml", f'goal = "g"\nagent = "{agent}"\ngates = ["false"]\nprotected = ["tests/**"]\n')
    ran = stage("run", "--no-baseline", "--as", "r", expect=2)
    assert "'tests/t.py' cannot be put back: there is no copy of it in" in ran.err
