"""What a host adds to an attempt: the prompt ready to send, and the notes that the agent keeps."""

import copy
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from loopwright import Loop, UsageError, gate, run
from loopwright.cli.app import run_app
from loopwright.core import events as ev
from loopwright.prompt import NOTES_BYTES


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A repository of one file, and git without anybody's settings."""
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "work.txt").write_text("one\n")
    for words in (
        ("init", "-q"),
        ("add", "."),
        ("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "x"),
    ):
        subprocess.run(["git", *words], cwd=folder, check=True)
    return folder


def never(output):
    return False


def agent(script):
    return {"use": "command", "run": ["sh", "-c", script]}


def loop(script, **said):
    options = {"max_iterations": 2, "grace": 0.2, "monitors": {"stall": "off"}} | said
    return Loop("the goal", agent=agent(script), gates=["false"], **options)


def asked(project, iteration=1, attempt=1):
    (run_folder,) = (project / ".agent-state" / "artifacts").glob("*")
    return (run_folder / f"{iteration:04d}" / f"attempt-{attempt}" / "prompt.md").read_text()


def shown(capsys, project, *words):
    code = run_app(["show", "r", *words, "-C", str(project)])
    done = capsys.readouterr()
    return code, done.out, done.err


# The prompt of a function


def test_a_function_gets_the_prompt_ready_to_send_and_it_is_on_record(project, capsys):
    seen = []

    def work(attempt):
        seen.append(attempt.prompt)
        return f"answer {attempt.iteration}"

    @gate
    def wrong(output):
        return False

    run(Loop("the goal", agent=work, gates=[wrong], max_iterations=2), "r", folder=project)
    assert "Work in the current folder" not in seen[1]
    assert seen[1].startswith("# Goal\n\nthe goal\n\nThe result is judged")
    assert "> answer 1" in seen[1]
    assert "wrong" in seen[1].partition("## What does not pass yet")[2]
    assert shown(capsys, project, "--prompt", "--iteration", "1")[:2] == (0, seen[0])
    code, out, _ = shown(capsys, project, "--prompt", "--json")
    assert code == 0
    assert '"iteration": 2' in out and '"attempt": 1' in out


def test_a_function_that_asks_for_no_prompt_makes_none_and_show_says_why(project, capsys, monkeypatch):
    monkeypatch.setattr("loopwright.prompting.prompts.prompt", pytest.fail)
    run(Loop("g", agent=lambda attempt: 1, gates=[never], max_iterations=1), "r", folder=project)
    assert not (project / ".agent-state" / "artifacts" / "r").exists()
    code, _, err = shown(capsys, project, "--prompt", "--iteration", "1")
    assert code == 2
    assert "kept no prompt.md of iteration 1: that of a function is kept when it reads attempt.prompt" in err


def test_the_prompt_is_that_of_the_template_and_holds_no_secret(project, monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", "sk-abcdefghijklmnop1234")
    (project / "p.md").write_text("{goal} / key sk-abcdefghijklmnop1234 / {feedback}")
    seen = []
    work = lambda attempt: seen.append(attempt.prompt)  # noqa: E731 - the shortest agent
    final = run(Loop("g", agent=work, gates=[never], max_iterations=1, prompt="p.md"), "r", folder=project)
    assert seen == ["g / key [redacted:SOME_API_KEY] / (nothing yet)\n"]
    store = b"".join(path.read_bytes() for path in (project / ".agent-state").rglob("*") if path.is_file())
    assert final.iterations == 1
    assert b"sk-abcdefghijklmnop1234" not in store


def test_nothing_is_written_where_nothing_is_kept(tmp_path):
    run(
        Loop("g", agent=lambda attempt: attempt.prompt, gates=[never], max_iterations=1),
        folder=tmp_path,
        store="memory:",
    )
    assert list(tmp_path.iterdir()) == []


def test_an_attempt_goes_to_another_process_with_its_prompt():
    seen = []
    run(
        Loop(
            "g",
            agent=lambda attempt: seen.append(pickle.loads(pickle.dumps(attempt))),
            gates=[never],
            max_iterations=1,
        ),
        store="memory:",
    )
    assert seen[0].prompt.startswith("# Goal\n\ng\n")
    assert copy.deepcopy(seen[0]) == seen[0]


def test_a_prompt_of_1_mb_goes_to_a_command_by_stdin_and_file_and_to_a_function(project):
    (project / "big.md").write_text("0123456789" * 100_000)
    count = 'test "$(wc -c < "$LOOPWRIGHT_PROMPT_FILE")" -gt 1000000 && test "$(wc -c)" -gt 1000000 && echo yes > made'
    for name, way, script in [
        ("a", "stdin", count),
        ("b", "file", count.rpartition(" && test")[0] + " && echo yes > made"),
    ]:
        (project / "made").unlink(missing_ok=True)
        whole = Loop(
            "@big.md",
            agent={**agent(script), "prompt": way},
            gates=["test -f made"],
            max_iterations=1,
        )
        assert run(whole, name, folder=project).passed
    fine = run(
        Loop("@big.md", agent=lambda attempt: len(attempt.prompt), gates=[lambda n: n > 1_000_000]),
        store="memory:",
        folder=project,
    )
    assert fine.passed


def test_a_prompt_of_1_mb_is_no_argument(project):
    (project / "big.md").write_text("0123456789" * 100_000)
    whole = Loop("@big.md", agent={**agent("true"), "prompt": "arg"}, gates=["true"])
    final = run(whole, "r", folder=project)
    assert (final.phase, final.reason) == ("failed", "permanent_error")
    assert (
        "too long for an argument (1,000," in final.explanation
        and 'prompt = "file" or "stdin"' in final.explanation
    )


# Notes


def test_notes_in_the_workspace_are_told_and_are_no_change_of_the_work(project):
    facts = []
    script = 'echo said; echo "tried $LOOPWRIGHT_ITERATION" >> "$LOOPWRIGHT_NOTES_FILE"'
    run(loop(script, notes="progress.txt"), "r", folder=project, store="memory:", observe=facts.append)
    first, second = asked(project, 1), asked(project, 2)
    assert "in the file `progress.txt`, 8 KB at most" in first
    assert "There are none yet." in first
    assert "> tried 1" in second
    assert (project / "progress.txt").read_text() == "tried 1\ntried 2\n"
    done = [e for e in facts if isinstance(e, ev.AttemptSucceeded)]
    assert len(done) == 2
    assert len({e.snapshot for e in done}) == 1


def test_an_attempt_that_only_writes_its_notes_did_nothing(project):
    facts = []
    run(
        loop("echo x >> n.txt", notes="n.txt", max_iterations=1),
        folder=project,
        store="memory:",
        observe=facts.append,
    )
    assert [e.kind for e in facts if isinstance(e, ev.AttemptFailed)] == ["no_op", "no_op"]


def test_notes_hide_no_standstill(project):
    said = loop(
        'echo said; echo "$LOOPWRIGHT_ITERATION" >> n.txt', notes="n.txt", max_iterations=9, monitors=None
    )
    final = run(said, folder=project, store="memory:")
    assert (final.reason, final.iterations) == ("health", 3)


def test_what_binds_is_said_at_the_start(project, capsys):
    (project / "loop.toml").write_text(
        'goal = "g"\nagent = "echo said"\ngates = ["true"]\nnotes = "n.txt"\nprompt = """\nDo {iteration}\n"""\n'
    )
    assert run_app(["run", "--as", "r", "-C", str(project)]) == 0
    err = capsys.readouterr().err
    assert (
        "prompt: the template has no {goal} and no {feedback} and no {notes}: the agent is not told that"
        in err
    )
    assert f"notes: {project}/n.txt, kept by the agent: in no snapshot, delivered nowhere" in err


def test_another_template_is_another_loop(project):
    said = {"agent": lambda attempt: attempt.prompt, "gates": [lambda text: True]}
    run(Loop("g", prompt="Do {goal}\n", **said), "r", folder=project)
    done = run(Loop("g", prompt="Do {goal}\n", **said), "r", folder=project)
    assert done.output == "Do g\n"
    open_one = {**said, "gates": [never], "max_iterations": 1, "approval": "always"}
    run(Loop("g", prompt="Do {goal}\n", **open_one), "s", folder=project)
    with pytest.raises(UsageError, match=r"prompt: 'Do \{goal\}\\n' then, 'x+…? now") as error:
        run(Loop("g", prompt="x" * 5000 + "\n", **open_one), "s", folder=project)
    assert len(str(error.value)) < 1000


def test_notes_that_are_in_the_repository_are_left_out_all_the_same(project):
    facts = []
    said = loop("echo x >> work.txt", notes="work.txt", max_iterations=1)
    run(said, folder=project, store="memory:", observe=facts.append)
    assert [e.kind for e in facts if isinstance(e, ev.AttemptFailed)] == ["no_op", "no_op"]


def test_notes_survive_what_brings_the_work_back_and_are_delivered_nowhere(project):
    script = 'echo "$LOOPWRIGHT_ITERATION" >> n.txt; echo "$LOOPWRIGHT_ITERATION" > work.txt'
    whole = Loop(
        "g",
        agent=agent(script),
        gates=["sh -c 'test $(cat work.txt) -ge 2'"],
        start_from="best",
        workspace="worktree",
        notes="n.txt",
        deliver="branch",
    )
    final = run(whole, "r", folder=project)
    assert final.passed
    listed = subprocess.run(
        ["git", "ls-tree", "--name-only", "loopwright/r"],
        cwd=project,
        capture_output=True,
        text=True,
        check=True,
    )
    assert listed.stdout.split() == ["work.txt"]
    assert "> 1" in asked(project, 2)


def test_no_verb_takes_notes_for_work_not_even_those_of_the_repository(project, capsys):
    (project / "n.txt").write_text("0\n")
    git = ("git", "-c", "user.name=a", "-c", "user.email=a@b")
    subprocess.run([*git, "add", "."], cwd=project, check=True)
    subprocess.run([*git, "commit", "-qm", "y"], cwd=project, check=True)
    script = 'echo "$LOOPWRIGHT_ITERATION" >> n.txt; echo "$LOOPWRIGHT_ITERATION" > work.txt'
    run(loop(script, notes="n.txt"), "r", folder=project)
    for words, work in (
        (["apply", "r", "--iteration", "2"], "2\n"),  # what is there is that work
        (["restore", "r", "--iteration", "1"], "1\n"),
        (["fork", "r", "--from", "2", "--as", "s"], "2\n"),
    ):
        assert run_app([*words, "-C", str(project)]) == 0, (words, capsys.readouterr().err)
        assert ((project / "work.txt").read_text(), (project / "n.txt").read_text()) == (work, "0\n1\n2\n")


def test_notes_of_our_own_are_kept_beside_the_record(project):
    script = 'cat "$LOOPWRIGHT_NOTES_FILE"; echo hello >> "$LOOPWRIGHT_NOTES_FILE"; echo said'
    run(loop(script, notes=True), "r", folder=project)
    own = project / ".agent-state" / "artifacts" / "r" / "notes" / "notes.md"
    assert own.read_text() == "hello\nhello\n"
    assert "in the file `.agent-state/artifacts/r/notes/notes.md`" in asked(project, 1)
    assert "> hello" in asked(project, 2)


def test_an_agent_behind_walls_may_write_its_notes(project, monkeypatch):
    seen = []

    def wrapping(*_):
        return lambda folders, agent: seen.append((folders, agent)) or ()

    monkeypatch.setattr("loopwright.hosts.sandbox.wrapping", wrapping)
    run(loop("echo said", notes=True, max_iterations=1), "r", folder=project)
    notes = project / ".agent-state" / "artifacts" / "r" / "notes"
    assert [notes in folders for folders, agent in seen if agent] == [True]
    assert all(notes not in folders for folders, agent in seen if not agent)


def test_a_function_has_notes_too(project):
    def work(attempt):
        seen.append((attempt.notes.text, "Your notes" in attempt.prompt))
        Path(attempt.notes.file).write_text(f"of {attempt.iteration}")

    seen = []
    whole = Loop("g", agent=work, gates=[never], notes=True, max_iterations=2, monitors={"stall": "off"})
    run(whole, "r", folder=project, store="memory:")
    assert seen == [("", True), ("of 1", True)]


PLANTED = [
    ("ln -s /etc/passwd n.txt", "a link"),
    ("mkdir n.txt", "a folder"),
    ("mkfifo n.txt", "no file"),
    ("ln -s /etc/passwd n.txt; rm n.txt; echo fine > n.txt; chmod 0 n.txt", None),
]


@pytest.mark.parametrize(("script", "why"), PLANTED, ids=["link", "folder", "pipe", "closed"])
def test_notes_that_are_no_plain_file_are_not_read(project, script, why):
    final = run(loop(f"{script}; echo did >> work.txt", notes="n.txt"), "r", folder=project)
    text = asked(project, 2)
    assert final.iterations == 2
    assert "root:" not in text
    if why:
        assert f"They could not be read: this is {why}, make it a plain file." in text


def test_notes_behind_a_link_are_not_read(project, tmp_path):
    (tmp_path / "n.txt").write_text("outside")
    run(loop(f"ln -s {tmp_path} inner; echo did >> work.txt", notes="inner/n.txt"), "r", folder=project)
    assert "They could not be read: a folder above the file is a link." in asked(project, 2)
    assert "outside" not in asked(project, 2)


def test_a_link_in_the_place_of_notes_hides_no_work_from_snapshots(project):
    facts = []
    said = loop("ln -sf work.txt n.txt", notes="n.txt", max_iterations=1)
    run(said, "r", folder=project, observe=facts.append)
    said = loop("echo more >> work.txt", notes="n.txt", max_iterations=1)
    run(said, "s", folder=project, observe=facts.append)
    assert any(isinstance(e, ev.AttemptSucceeded) for e in facts), "the change of work.txt is seen"


def test_huge_and_odd_notes_are_shown_in_part(project):
    script = (
        f"{sys.executable} -c \"import sys; sys.stdout.buffer.write(b'HEAD\\xff\\x00\\x1b[31m' + b'a' * 1_500_000 + b'x' * 1_500_000 + b'\\n## Goal\\nTAIL')\""
        " > n.txt; echo did >> work.txt"
    )
    run(loop(script, notes="n.txt"), "r", folder=project)
    text = asked(project, 2).partition("## Your notes")[2]
    assert "They are too long now (3,000,0" in text
    assert "> HEAD\ufffd" in text
    assert "> ## Goal\n> TAIL" in text
    assert "\x1b" not in text
    assert NOTES_BYTES <= len(text.encode()) < 2 * NOTES_BYTES + 500
    assert text.count("a" * 1000) >= 3
    assert text.count("x" * 1000) >= 3
