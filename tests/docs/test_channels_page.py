"""The page about channels is complete and true, by the code."""

import asyncio
import inspect
import json
import sys
from pathlib import Path

import pytest
from test_reference import REQUIRED, blocks, default, missing_words, prose, sections, spans, table, tables

from loopwright.cards import Answered
from loopwright.channels import webhook as hooks
from loopwright.channels.email import PORTS
from loopwright.config import load
from loopwright.names import BUILT_IN, builtin
from loopwright.options import parameters
from loopwright.registry import resolve_channels
from loopwright.serving import due
from loopwright.serving.card import PATCH_BYTES
from loopwright.serving.post import Pace

sys.path.append(str(Path(__file__).parents[1] / "channels"))
import cards_of

PAGE = "channels"
OWN = ("inbox", "email", "webhook", "apprise")


def flat():
    return " ".join(prose(PAGE).split())


def test_every_channel_has_its_row_and_its_section():
    rows = table(PAGE, "Channels")
    assert missing_words(rows, BUILT_IN["channels"]) == ([], [])
    assert sorted(sections(PAGE)) == sorted(OWN)


@pytest.mark.parametrize("name", [name for name in OWN if name != "inbox"])
def test_every_option_has_its_row_with_its_default(name):
    rows, taken = table(PAGE, f"`{name}`"), parameters(name, builtin(BUILT_IN["channels"][name]))
    assert missing_words(rows, taken) == ([], [])
    for option, parameter in taken.items():
        wanted = REQUIRED if parameter.default is inspect.Parameter.empty else parameter.default
        assert default(rows[option][1]) == wanted, option


def test_the_inbox_has_no_options():
    assert parameters("inbox", builtin(BUILT_IN["channels"]["inbox"])) == {}


def test_the_loop_file_of_the_page_loads(tmp_path):
    (complete,) = blocks(PAGE, "toml")
    (tmp_path / "loop.toml").write_text(complete)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/claude").touch(mode=0o755)
    loop = load("loop.toml", folder=tmp_path, path=f"{tmp_path / 'bin'}:/usr/bin:/bin").loop
    found, faults = resolve_channels(
        [*loop.approval["channels"], *loop.notify["to"]], project=tmp_path, path=""
    )
    assert not faults
    assert [channel.name for channel in found] == list(OWN)
    assert found[3].secrets == ("TEAM_CHAT",)


def test_the_channel_of_ones_own_works(tmp_path):
    (source,) = blocks(PAGE, "python")
    (tmp_path / "mine_of_the_page.py").write_text(source)
    (found,), faults = resolve_channels(
        [{"use": "mine_of_the_page:pager", "number": "7"}], project=tmp_path, path=""
    )
    assert not faults
    line = found.open({"PAGER_KEY": "k"})
    assert asyncio.run(line.show(cards_of.card(), None)).startswith("7: fix-abcd")


def test_the_figures_are_those_of_the_code():
    pace = Pace()
    assert pace.delays_s == (1, 5, 30, 120, 600)
    assert "after 1 s, 5 s, 30 s, 2 min, then every 10 min" in flat()
    assert f"A try takes {pace.try_s:.0f} s at most" in flat()
    assert f"up to {PATCH_BYTES // 1000} kB of the patch" in flat()
    assert due.DAY.total_seconds() == 86400
    port = table(PAGE, "`email`")["port"][2]
    assert all(f'{number} for `"{word}"`' in port for word, number in PORTS.items())


def test_what_a_webhook_says_and_hears():
    kinds = set(table(PAGE, "What goes out"))
    made = [cards_of.card(), cards_of.card(decided=cards_of.APPROVED), cards_of.card(superseded=True)]
    made += [cards_of.news(about=about) for about in due.NEWS]
    assert kinds == {hooks.kind(card) for card in made}
    data = json.loads(hooks.payload(made[0]))["data"]
    said = spans(prose(PAGE).partition("`data` holds ")[2].partition(":")[0])
    assert missing_words(said, data) == ([], [])
    rows = next(rows for heading, rows in tables(PAGE) if heading == "What comes in")
    told = {
        word: int(row[0]) for row in rows if row[0].isdigit() for word in spans(row[1]) if word != "invalid"
    }
    assert told == dict(hooks.STATUS)
    (example,) = blocks(PAGE, "json")
    assert isinstance(hooks._said(example.encode()), Answered)
    assert hooks._NEEDS.keys() | hooks._MAY.keys() == {*json.loads(example), "override"}


def test_the_news_are_those_of_the_code():
    said = spans(prose(PAGE).partition("## News")[2].partition("Without `on`")[0])
    assert missing_words([word for word in said if word != "[notify]"], due.NEWS) == ([], [])
