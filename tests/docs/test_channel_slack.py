"""The page about Slack is complete and true, by the code."""

import inspect
import tomllib

from test_reference import REQUIRED, blocks, default, missing_words, prose, table, text

from loopwright.begin.slack import SCOPES, manifest
from loopwright.channels._slack_api import _DO, HOOKS
from loopwright.channels._slack_hear import DRIFT_S
from loopwright.channels.slack import _WHERE, slack
from loopwright.config import load
from loopwright.options import parameters
from loopwright.registry import resolve_channels

PAGE = "channel-slack"


def test_every_option_has_its_row_with_its_default():
    rows = table(PAGE, "Options")
    taken = parameters("slack", slack)
    assert missing_words(rows, taken) == ([], [])
    for name, parameter in taken.items():
        wanted = REQUIRED if parameter.default is inspect.Parameter.empty else parameter.default
        assert default(rows[name][1]) == wanted, name


def test_the_loop_file_of_the_page_loads_and_is_what_the_page_says(tmp_path):
    (complete,) = blocks(PAGE, "toml")
    (tmp_path / "loop.toml").write_text(complete)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/claude").touch(mode=0o755)
    loop = load("loop.toml", folder=tmp_path, path=f"{tmp_path / 'bin'}:/usr/bin:/bin").loop
    values = tomllib.loads(complete)["approval"]["channels"]
    assert next(iter(loop.approval["channels"])) == "inbox"
    found, faults = resolve_channels([*values, "slack:#loops"], project=tmp_path, path="")
    assert not faults
    assert [channel.listen is not None for channel in found] == [False, True, False]
    assert found[1].secrets == ("SLACK_APP_TOKEN", "SLACK_BOT_TOKEN")


def test_the_secrets_are_those_that_are_asked_for():
    rows = table(PAGE, "From nothing to a button")
    both = {name for mode in ("http", "socket") for name in slack(channel="#l", mode=mode).secrets}
    assert set(rows) == both
    assert len(_WHERE) == len(rows)
    for mode, name in (("socket", "SLACK_APP_TOKEN"), ("http", "SLACK_SIGNING_SECRET")):
        assert f'mode = "{mode}"' in rows[name][2]
        assert name in slack(channel="#l", mode=mode).secrets


def test_what_is_said_of_the_app_is_in_its_manifest():
    assert all(f"`{scope}`" in prose(PAGE) for scope in SCOPES)
    made = manifest(slack(channel="#l"), "https://x.example")
    assert made["settings"]["interactivity"]["request_url"].endswith("/channels/slack")
    assert f"/invite @{made['features']['bot_user']['display_name']}" in prose(PAGE)


def test_the_bounds_and_refusals_are_those_of_the_code():
    assert f"more than {DRIFT_S} seconds" in prose(PAGE).replace("\n", " ")
    assert f"`{HOOKS}`" in text(PAGE)
    named = set(table(PAGE, "When it does not work"))
    assert named - {"ratelimited"} <= set(_DO)
