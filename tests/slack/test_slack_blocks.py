"""A card as Slack shows it: all that a person needs to decide, within Slack's limits, and no foreign word in ours."""

import json
from datetime import UTC, datetime

import pytest
from fake_slack import check_blocks, check_text, check_view

from loopwright.cards import Decided
from loopwright.channels import _slack_blocks as drawn
from loopwright.channels._slack_text import bars, clean, cut, escaped
from loopwright.core.showing import Effect
from loopwright.core.values import Score, Scored

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
EVIL = (
    "<!channel> <!here> <@U0MIRA> <#C1|loops> <https://evil.example|Approve> @channel https://evil.example "
    "*Approved* by _loopwright_ ```code``` &lt; \x1b[31mred\x1b[0m \u202egnp \u200b \x07 \ud800 :skull:"
)


def texts(block):
    """Every text object or rich element, each with its type."""
    if isinstance(block, dict):
        if isinstance(block.get("text"), str) and "type" in block:
            yield block["type"], block["text"]
        for each in block.values():
            yield from texts(each)
    elif isinstance(block, list):
        for each in block:
            yield from texts(each)


def drawn_of(card):
    text, blocks = drawn.message(card)
    check_text({"type": "plain_text", "text": text}, 3000)
    check_blocks(blocks)
    return text, blocks


def all_text(blocks):
    return "\n".join(text for _, text in texts(blocks))


def buttons(blocks):
    return {e["action_id"]: e for b in blocks if b["type"] == "actions" for e in b["elements"]}


def test_a_request_has_all_that_a_person_needs_to_decide(card):
    notice, blocks = drawn_of(card(required=("pytest", "ruff"), unreached=("email",)))
    assert notice == "fix: accept iteration 3?"
    said = all_text(blocks)
    for piece in (
        "fix · fix-abcd",
        "accept iteration 3 (score 0.91, passed every required gate)?",
        "every required gate passed, and a person has the last word",
        "the agent reads the note and goes on",
        "2 files, +10 −3; the diff is in the thread",
        "0.91  ▂·▅▇",
        "$0.31, $0.41 with one more iteration",
        "1m15s",
        "plateau (#2): no better for 3 iterations",
        "✗  pytest  0.88 (14 passed)  required  2 of 16 fail: t_a, t_b",
        "✓  ruff    1.00              required",
        "!  judge   -                 advisory  no answer",
        "The agent says",
        "I mended the parser.",
        "*Answer until* <!date^1772409600^{date_short_pretty} {time}|2026-03-02 00:00 UTC>. After that the run rests",
        "Not reached: email",
    ):
        assert piece in said, piece
    approve, revise, reject = buttons(blocks).values()
    assert [b["value"] for b in (approve, revise, reject)] == [
        f"{word}:{'4f2a' * 16}:fix-abcd" for word in ("approve", "revise", "reject")
    ]
    assert approve["confirm"]["text"]["text"] == "Approve: the run is complete, with this work"
    assert approve["style"] == "primary"
    assert reject["style"] == "danger"
    assert "confirm" in reject
    assert "confirm" not in revise


def test_which_gates_are_required_is_said_only_where_it_is_known(card):
    assert "required  " not in all_text(drawn_of(card())[1])


def test_what_is_not_known_is_not_zero(card, shown):
    nothing = shown(cost_usd=None, projected_usd=None, score=None, trend=(), gates=(), summary="", alerts=())
    said = all_text(drawn_of(card(shown=nothing, files=None, patch=""))[1])
    assert "Changed: \nnot known" in said
    assert "Cost: \nnot known" in said
    assert "Score" not in said
    assert "$" not in said
    plan = all_text(drawn_of(card(shown=shown(plan=True, tokens=None)))[1])
    assert "a flat plan pays; tokens not known" in plan
    assert "$" not in plan


def test_work_that_has_not_passed_is_approved_through_a_form_for_the_reason(card, shown):
    blocks = drawn_of(card(shown=shown(blockers=("pytest",))))[1]
    first = next(iter(buttons(blocks).values()))
    assert first["text"]["text"] == "Approve…"
    assert first["value"].startswith("override:")
    assert "confirm" not in first


def test_the_page_is_linked_only_where_there_is_one(card):
    with_page = drawn_of(card(link="https://loops.example.org/runs/fix-abcd"))[1]
    page = buttons(with_page)["loopwright-page"]
    assert page["url"] == "https://loops.example.org/runs/fix-abcd"
    assert "in the thread" not in all_text(with_page)
    assert "loopwright-page" not in buttons(drawn_of(card())[1])


@pytest.mark.parametrize(
    ("end", "piece"),
    [
        (
            {"answer": "approve", "by": "U0MIRA", "channel": "slack"},
            "*Approved* by <@U0MIRA> at <!date^1772366400^",
        ),
        ({"answer": "approve", "by": "U0MIRA", "channel": "slack-2"}, "UTC> via slack-2"),
        ({"answer": "revise", "by": "mira", "channel": "page"}, "*Sent back* by mira at"),
        ({"answer": "reject", "by": "<!channel>", "channel": "webhook"}, "*Rejected* by &lt;!channel&gt; at"),
        ({"answer": "reject", "by": "U0MIRA", "channel": "webhook"}, "*Rejected* by U0MIRA at"),
        ({"answer": "expired", "by": "loopwright"}, "*Nobody answered in time* on <!date^"),
        ({"answer": "withdrawn"}, "*No longer asked* on <!date^"),
    ],
)
def test_an_outcome_takes_the_place_of_the_buttons(card, end, piece):
    decided = Decided(at=NOON, note="add a <!here> test", why="flaky", **end)
    blocks = drawn_of(card(decided=decided))[1]
    assert piece in all_text(blocks)
    assert not buttons(blocks)
    assert "Why now" not in all_text(blocks)
    assert "Answer until" not in all_text(blocks)
    assert ("text", "add a <!here> test") in list(texts(blocks))
    assert ("text", "flaky") in list(texts(blocks))


def test_an_old_request_says_that_it_is_superseded(card):
    blocks = drawn_of(card(superseded=True))[1]
    assert "*Superseded*" in all_text(blocks)
    assert not buttons(blocks)


def test_news_is_short_and_has_nothing_to_press(card):
    head = {
        "explanation": "the budget of $5 is used up",
        "reason": "budget",
        "iterations": 7,
        "best_score": 0.8,
    }
    head |= {"cost_usd": None, "plan": False, "next": "loopwright resume fix-abcd --add-budget 5"}
    link = "https://x.example/runs/fix-abcd?a=<b>|c"
    blocks = drawn_of(
        card(about="failed", shown=None, approval=None, head=head, title="it ended", link=link)
    )[1]
    said = all_text(blocks)
    assert "Failed: fix · fix-abcd" in said
    assert "the budget of $5 is used up" in said
    assert "Cost: \nnot known" in said
    assert "<https://x.example/runs/fix-abcd?a=&lt;b&gt;%7Cc|Open the page>" in said
    assert not buttons(blocks)
    assert len(blocks) <= 4
    check_blocks(drawn.message(card(about="finished", shown=None, head={}, files=None))[1])


def test_no_foreign_text_mentions_links_or_looks_like_ours(card, shown):
    seen = shown(
        goal=EVIL,
        question=EVIL,
        why=EVIL,
        effects=(Effect(answer="approve", does=EVIL),),
        silence=EVIL,
        gates=(Scored(gate=EVIL, score=Score(0.5, EVIL, status="fail", unit=EVIL, raw=1)),),
        alerts=(EVIL,),
        summary=EVIL,
    )
    ended = Decided(answer="revise", by=EVIL, channel=EVIL, at=NOON, note=EVIL, why=EVIL)
    for about in ("accept", "blocked"):
        for decided in (None, ended):
            notice, blocks = drawn_of(
                card(
                    run="r",
                    loop=EVIL,
                    title=EVIL,
                    decided=decided,
                    unreached=(EVIL,),
                    shown=shown(**{**vars(seen), "about": about}),
                )
            )
            every = [*texts(blocks), ("mrkdwn", notice)]
            for kind, text in every:
                assert not set(text) & {"\x1b", "\u202e", "\u200b", "\x07", "\ud800"}
                if kind == "mrkdwn":
                    assert not {"<!channel>", "<!here>", "<@U0MIRA>", "<#C1", "<https"} & {
                        text[i : i + n] for i in range(len(text)) for n in (10, 7, 9, 4, 6)
                    }
            assert all(b["text"]["emoji"] is False for b in blocks if b["type"] == "header")
    json.dumps(blocks).encode()


def test_what_an_agent_wrote_is_quoted_under_words_of_ours(card, shown):
    blocked = drawn_of(card(shown=shown(about="blocked", question="Approved by U0MIRA")))[1]
    quoted = [
        [part["elements"][0]["text"] for part in b["elements"]]
        for b in blocked
        if b["type"] == "rich_text" and b["elements"][-1]["type"] == "rich_text_quote"
    ]
    assert quoted == [
        ["The agent cannot go on alone and says", "Approved by U0MIRA"],
        ["The agent says", "I mended the parser."],
    ]


@pytest.mark.parametrize("fill", ["x", "&", "\U0001f480", "\x1b", '"', "a b\n"])
def test_whatever_is_in_a_card_slack_takes_it(card, shown, fill):
    much = fill * (60_000 // len(fill))
    huge = shown(
        run="r" * 64,
        goal=much,
        question=much,
        why=much,
        effects=tuple(Effect(answer=a, does=much) for a in ("approve", "revise", "reject")),
        silence=much,
        gates=tuple(
            Scored(gate=f"{i}{much}", score=Score(0.5, much, unit=much, raw=1e300)) for i in range(300)
        ),
        alerts=(much,) * 5,
        summary=much,
        trend=(0.5,) * 10,
    )
    decided = Decided(answer="approve", by=much, channel=much, at=NOON, note=much, why=much)
    for end in (None, decided):
        _, blocks = drawn_of(
            card(run="r" * 64, loop=much, title=much, shown=huge, decided=end, unreached=(much,) * 3)
        )
        assert "…" in all_text(blocks) or fill == "a b\n"
        assert bool(buttons(blocks)) == (end is None)
    drawn_of(card(about="failed", shown=None, title=much, head={"explanation": much, "next": much}))
    check_view(drawn.notice(much, much))


def test_forms_hold_which_request_they_are_about(card):
    for word, title in (("revise", "Send back"), ("override", "Approve all the same")):
        view = drawn.form(word, "4f2a" * 16, "r" * 64)
        check_view(view)
        assert view["title"]["text"] == title
        assert view["private_metadata"] == f"{word}:{'4f2a' * 16}:{'r' * 64}"


def test_the_small_parts():
    assert bars((0.0, None, 1.0)) == "▁·█"
    assert clean("a\x1b[1mb\x1b[0m\r\n\tc\u2066") == "ab\n\tc\\u2066"
    assert cut("x" * 5, 5) == "xxxxx"
    assert cut("x" * 6, 5) == "xxxx…"
    assert cut("\U0001f480" * 3, 5) == "\U0001f480\U0001f480…"
    assert escaped("a<b>&", 20) == "a&lt;b&gt;&amp;"
    assert len(escaped("&" * 500, 100)) <= 100
    assert drawn.people("already approved by U0MIRA12 (slack) at noon") == (
        "already approved by <@U0MIRA12> (slack) at noon"
    )
