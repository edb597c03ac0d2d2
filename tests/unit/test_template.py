"""The user's own template of the prompt: read once, filled once, wrong words refused with their line."""

from dataclasses import replace

import pytest
from test_prompt import ATTEMPT, closed, told

from loopwright.assembled import assemble
from loopwright.config import load
from loopwright.core.values import Best, Notes
from loopwright.errors import ConfigError
from loopwright.loop import Loop
from loopwright.prompt import FEEDBACK_BYTES, NOTES_BYTES, prompt
from loopwright.readers import WrongError
from loopwright.template import MOST_BYTES, PLACEHOLDERS, fill, read_goal, read_template


def written(tmp_path, text, name="p.md"):
    (tmp_path / name).write_text(text, encoding="utf-8")
    return read_template(name, tmp_path)


def faults(tmp_path, text):
    with pytest.raises(WrongError) as error:
        written(tmp_path, text)
    return [what for _, what in error.value.faults]


def work(attempt):
    return attempt.prompt


def good(output):
    return True


def test_a_template_is_filled_with_what_it_names_and_nothing_else():
    text = prompt(replace(ATTEMPT, template="Iteration {iteration}: {goal}!\n"))
    assert text == "Iteration 3: Make the tests pass!\n"


def test_every_placeholder_has_its_value():
    attempt = replace(
        told(reasons=("pytest: 2 failed",), notes=("keep the API",), history=(closed(2, summary="tried"),)),
        template="".join(f"<{word}>{{{word}}}</{word}>\n" for word in PLACEHOLDERS),
        previous="last words",
        best=Best(iteration=2, score=0.25, passed=False, snapshot="t"),
        notes=Notes(file="/w/n.md", text="remember me", size=11),
    )
    text = prompt(attempt)
    value = {word: text.partition(f"<{word}>")[2].partition(f"</{word}>")[0] for word in PLACEHOLDERS}
    wanted = {
        "goal": "Make the tests pass",
        "iteration": "3",
        "limits": "there can be 4 more",
        "feedback": "pytest: 2 failed",
        "previous": "> last words",
        "best": "score 0.25",
        "history": "| 2 | not accepted",
        "notes": "> remember me",
    }
    assert {word: word for word in PLACEHOLDERS if wanted[word] in value[word]}.keys() == wanted.keys()
    assert "keep the API" in value["feedback"]


def test_what_is_put_in_is_never_looked_at_again():
    attempt = replace(
        told(reasons=("say {goal} and {{goal}}",)), goal="{feedback}", template="{goal}|{feedback}\n"
    )
    text = prompt(attempt)
    assert text.startswith("{feedback}|## What does not pass yet\n\n- say {goal} and {{goal}}")


def test_other_braces_stay_and_doubled_ones_are_text():
    text = 'a {"b": {}} {x:1} {0} { goal } ${HOME} {Goal} {{ goal }} {{goal}} {{{goal}}} {iteration}'
    values = {"goal": "G", "iteration": "3"}
    kept = 'a {"b": {}} {x:1} {0} { goal } ${HOME} {Goal} {{ goal }} {goal} {{goal}} 3'
    assert fill(text, values) == kept


def test_what_there_is_nothing_of_yet_is_said_so():
    text = prompt(replace(ATTEMPT, template="{feedback}\n{best}\n{history}\n{previous}\n"))
    assert text == "(nothing yet)\n" * 4


def test_a_filled_template_is_bounded():
    big = "x {goal} \n" * 200_000
    attempt = replace(
        told(reasons=(big,) * 50, notes=(big,) * 5, nudges=(big,) * 5),
        template="{feedback}{previous}{best}{history}{notes}\n",
        previous=big,
        notes=Notes(file="n", text=big, size=len(big)),
    )
    assert len(prompt(attempt).encode()) < FEEDBACK_BYTES + 2 * NOTES_BYTES + 1000


def test_wrong_words_are_all_named_with_their_line_and_the_nearest_right_one(tmp_path):
    text = "Do {goal}\n\n{feedbak} {feedbak}\nf'{name}' {zzz}\n"
    assert faults(tmp_path, text) == [
        "p.md:3: unknown placeholder {feedbak}; did you mean 'feedback'? (write {{feedbak}} for the text itself)",
        f"p.md:4: unknown placeholder {{name}}; there are {', '.join(PLACEHOLDERS)} (write {{{{name}}}} for the text itself)",
        f"p.md:4: unknown placeholder {{zzz}}; there are {', '.join(PLACEHOLDERS)} (write {{{{zzz}}}} for the text itself)",
    ]


def test_a_placeholder_stands_ten_times_at_most(tmp_path):
    assert written(tmp_path, "{goal}\n" * 10)
    assert faults(tmp_path, "{goal}\n" * 11) == ["p.md:11: {goal} stands more than 10 times"]


def test_files_that_are_no_template(tmp_path):
    (tmp_path / "bytes.md").write_bytes(b"\xff\xfe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "blank.md").write_text(" \n")
    with (tmp_path / "huge.md").open("wb") as file:
        file.truncate(MOST_BYTES + 1)
    for name, why in [
        ("missing.md", "No such file"),
        ("bytes.md", "not UTF-8"),
        ("folder", "Is a directory"),
        ("blank.md", "empty"),
        ("huge.md", "larger than 4 MB"),
    ]:
        with pytest.raises(WrongError, match=f"{name}.*{why}.*prompt names the file"):
            read_template(name, tmp_path)
        with pytest.raises(WrongError, match=f"{name}.*{why}.*begins with @"):
            read_goal(f"@{name}", tmp_path)


def test_reading_what_was_read_is_the_same(tmp_path):
    once = written(tmp_path, "\ufeff  One line {goal}  ")
    assert once == "One line {goal}\n"
    assert read_template(once, tmp_path / "nowhere") == once


def test_the_text_goes_on_record_and_counts_as_what_the_loop_is(tmp_path):
    (tmp_path / "p.md").write_text("First {goal}")
    loop = Loop("g", agent=work, gates=[good], prompt="p.md")
    first = assemble(loop, project=tmp_path, path="").loop
    assert first.spec()["prompt"] == "First {goal}\n"
    (tmp_path / "p.md").write_text("Second {goal}")
    assert assemble(loop, project=tmp_path, path="").loop.digest() != first.digest()
    (tmp_path / "p.md").unlink()
    again = assemble(Loop.from_spec(first.spec()), project=tmp_path, path="").loop
    assert (again.prompt, again.digest()) == (first.prompt, first.digest())


def test_a_loop_without_one_keeps_its_digest():
    body = Loop("g", agent="a", gates=["true"])
    assert body.digest() == replace(body, notes="n.md").digest()


def problems(tmp_path, text, *sets):
    (tmp_path / "loop.toml").write_text(text)
    with pytest.raises(ConfigError) as error:
        load(folder=tmp_path, path="/usr/bin:/bin", sets=sets)
    return list(error.value.problems)


LOOP = 'goal = "g"\nagent = "true"\ngates = ["true"]\n'


def test_the_loop_file_names_it_from_its_own_folder_and_is_named_in_faults(tmp_path):
    (tmp_path / "p.md").write_text("{gaol}")
    (said,) = problems(tmp_path, f'{LOOP}prompt = "p.md"\n')
    assert said.startswith("loop.toml:4: prompt: p.md:1: unknown placeholder {gaol}; did you mean 'goal'?")
    (said,) = problems(tmp_path, LOOP, "prompt=q.md")
    assert said.startswith(f"--set prompt: {tmp_path}/q.md: No such file")
    (tmp_path / "p.md").write_text("{goal}")
    (tmp_path / "loop.toml").write_text(f'{LOOP}prompt = "p.md"\n')
    assert load(folder=tmp_path, path="/usr/bin:/bin").loop.prompt == "{goal}\n"


def test_a_template_in_the_loop_file_itself(tmp_path):
    (said,) = problems(tmp_path, f'{LOOP}prompt = """\nDo {{goal}}\n{{gool}}"""\n')
    assert said.startswith("loop.toml:4: prompt: line 2: unknown placeholder {gool}")


def test_notes_in_a_template_need_notes(tmp_path):
    (said,) = problems(tmp_path, f'{LOOP}prompt = """\n{{notes}}\n"""\n')
    assert said == 'loop.toml:4: prompt: the template has {notes}: say notes = "progress.txt" or notes = true'


@pytest.mark.parametrize(
    "value", ['"../n"', '"/n"', '"~/n"', '".git/n"', '".GIT/n"', '".agent-state/n"', "3", '"a/./n"']
)
def test_notes_that_lead_out_of_the_workspace_are_refused(tmp_path, value):
    (said,) = problems(tmp_path, f"{LOOP}notes = {value}\n")
    assert said.startswith("loop.toml:4: notes: ")


def test_notes_that_would_be_put_back_are_refused(tmp_path):
    (said,) = problems(tmp_path, f'{LOOP}notes = "progress.txt"\nprotected = ["*.md", "*.txt"]\n')
    assert said == "loop.toml:4: notes: 'progress.txt' is protected by '*.txt', so it would be put back"


def test_notes_in_a_workspace_that_is_none_are_refused(tmp_path):
    loop = Loop("g", agent=work, gates=[good], notes="n.md")
    with pytest.raises(ConfigError, match=r"notes: 'n.md' needs a workspace .* or notes = true"):
        assemble(loop, project=tmp_path, path="")
