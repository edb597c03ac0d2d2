"""What a stranger reads: the next command can be typed, nothing is silent, nothing is cut without a word."""

import signal

import pytest
from stage import FREE, WORK

from loopwright.cli.app import VERBS


def test_a_run_whose_process_is_gone_says_resume(stage):
    stage.script({**WORK, "hold": True})
    with stage.started(*stage.loop()) as process:
        stage.held(process)
        for words in ("why r", "show r", "list"):
            assert "loopwright show r" in stage(*words.split(), expect=0).out
        process.send_signal(signal.SIGKILL)
        process.wait()
    for words in ("why r", "show r", "list", "list --json", "show r --json"):
        assert "loopwright resume r" in stage(*words.split(), expect=0).out
    assert "its process is gone" in stage("why", "r").out
    assert VERBS.keys() >= {"show", "resume"}


def test_who_hands_over_says_resume(stage):
    stage.script({**WORK, "hold": True})
    with stage.started(*stage.loop()) as process:
        stage.held(process)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 143
        assert process.stderr.read().splitlines()[-1] == "  next: loopwright resume r"


@pytest.mark.parametrize("what", ["", "--gates", "--log", "--prompt", "--diff"])
def test_an_iteration_that_is_not_there(stage, what):
    stage.run("--max-iterations", "1", expect=3)
    told = stage("show", "r", "--iteration", "9", *what.split(), expect=2).err
    assert "iteration 9" in told


@pytest.mark.parametrize("what", ["log", "prompt"])
def test_texts_as_json(stage, what):
    stage.run("--max-iterations", "1", expect=3)
    plain = stage("show", "r", f"--{what}", expect=0).out
    doc = stage("show", "r", f"--{what}", "--json", expect=0).doc
    assert (doc["iteration"], doc["attempt"], doc["text"]) == (1, 1, plain)


def test_nothing_to_show_is_said(stage):
    stage.script(FREE)
    stage.run("--max-iterations", "1", expect=3)
    stage.script({})
    stage("resume", "r", "--add-iterations", "1", expect=3)
    assert "no changes" in stage("diff", "r", expect=0).err
    assert "printed nothing" in stage("show", "r", "--log", expect=0).err


def test_wide_words_keep_the_columns_of_list(stage):
    name = "a-name-that-is-longer-than-twenty-four-letters"
    stage.run("--max-iterations", "1", expect=3)
    stage.script({"exit": 3, "err": "x"})
    stage("run", "--goal", "g", "--agent", stage.agent, "--gate", "false", "--as", name, expect=3)
    title, *rows = stage("list", "--all", expect=0).out.splitlines()
    assert {row[title.index("NEXT") :].partition(" ")[0] for row in rows} == {"loopwright"}
    assert all(row[title.index("STATE") :].split()[0] for row in rows)


def test_what_is_cut_is_said(stage):
    stage.write("long.sh", "seq 1 60; exit 1\n")
    stage(
        "run",
        "--goal",
        "g",
        "--agent",
        stage.agent,
        "--gate",
        "sh long.sh",
        "--max-iterations",
        "1",
        "--as",
        "s",
    )
    for words in ("show s --gates", "why s"):
        assert " more lines" in stage(*words.split(), expect=0).out


def test_the_reason_of_a_gate_that_could_not_judge_is_on_the_screen(stage):
    stage.write("kept.txt", "1\n")
    ran = stage.run("--max-iterations", "1", "--no-baseline", gate="sh -c 'date +%N > kept.txt'", expect=3)
    assert "it changed kept.txt" in ran.err


def test_the_same_id_again_says_that_nothing_ran(stage):
    stage.run("--max-iterations", "1", expect=3)
    assert "nothing was run" in stage.run("--max-iterations", "1", expect=3).err


def test_config_show_prints_values_as_a_loop_file_has_them(stage):
    stage.file(
        'protected = ["tests/**"]\n[[gate]]\nuse = "command"\nrun = "true"\nrequired = false\n[[gate]]\nuse = "command"\nrun = "true"'
    )
    lines = stage("config", "show", "--origin", expect=0).out.splitlines()
    assert 'goal = "g"    # loop.toml:1' in lines
    assert any(line.startswith('protected = ["tests/**"]') for line in lines)
    assert any(
        line.startswith('gates[0] = { use = "command", run = "true", required = false') for line in lines
    )


def test_config_show_without_a_loop_file_says_which_verb_takes_a_goal(stage):
    told = stage("config", "show", expect=2).err
    assert "name a loop file, or start one with run --goal" in told


def test_a_bare_number_on_the_command_line_is_seconds(stage):
    stage.run("--max-iterations", "1", "--max-duration", "60", expect=3)
    stage("list", "--since", "60", expect=0)
    told = stage("resume", "r", "--add-duration", "60", expect=2).err
    assert "is not a duration" not in told


def test_help_of_a_verb_is_one_whole_line(stage):
    assert "..." not in stage("--help", expect=0, COLUMNS="80").out.partition("Commands:")[2]
    assert "loopwright run --goal" in stage("run", "--help", expect=0).out


def test_colours_of_an_agent_are_left_out_of_the_last_output():
    from loopwright.cli.words import colourless

    assert colourless("\x1b[1;31mred\x1b[0m \x1b]0;title\x07end\x1b[2K") == "red end"


def test_one_file_is_no_files(stage):
    stage.run("--max-iterations", "1", expect=3)
    assert "1 file restored" in stage("restore", "r", "--iteration", "0", expect=0).err


def test_the_verbs_find_the_store_that_the_loop_file_names(stage):
    file = stage.file('gates = ["true"]\n[store]\nurl = "sqlite:///elsewhere/runs.db"')
    stage("run", file, "--as", "r", expect=0)
    assert (stage.folder / "elsewhere/runs.db").exists()
    assert "quality_reached" in stage("list", "--all", expect=0).out
    assert "quality_reached" in stage("why", "r", expect=0).out


def test_the_next_command_can_be_typed_where_the_verb_was(stage):
    sub = stage.folder / "sub"
    sub.mkdir()
    done = stage(
        "run", "--goal", "g", "--agent", stage.agent, "--gate", "true", "--as", "r", "-C", "sub", expect=0
    )
    step = done.err.splitlines()[-1].split("next: ")[1]
    assert step == "loopwright diff r -C sub"
    stage(*step.split()[1:], expect=0)


def test_a_run_without_snapshots_is_not_told_to_diff(stage):
    done = stage.run("--workspace", "none", gate="true", expect=0)
    assert done.doc["next"] == "loopwright show r"


def test_the_morning_after_has_what_ended_and_what_waits_however_long(stage):
    stage.run("--max-iterations", "1", expect=3)
    stage("run", "--goal", "g", "--agent", stage.agent, "--gate", "true", "--as", "good", expect=0)
    stage(*stage.loop(gate="true")[:-1], "asks", "--approve", "passed", "--no-wait", expect=6)
    told = stage("list", "--since", "12h", expect=0)
    assert "last 12h: 1 complete, 1 ended otherwise, 1 wait for a person, 0 at work" in told.out
    assert {line.split()[0] for line in told.out.splitlines()} >= {"r", "good", "asks"}
    later = {row["run"] for row in stage("list", "--since", "0.001", "--json", expect=0).doc}
    assert later == {"asks"}
