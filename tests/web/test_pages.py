"""The pages as a browser without a script gets them: what they say of every run, and what their forms do."""

import hashlib
import os
import re
from datetime import UTC, datetime, timedelta
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import pytest
from pages_seen import Written

from loopwright.core import events as ev
from loopwright.web import pages

STATIC = Path(pages.__file__).parent / "static"
ENDS = {
    "quality_reached": "complete",
    "max_iterations": "failed",
    "max_duration": "failed",
    "max_wait": "failed",
    "budget": "failed",
    "cost_unknown": "failed",
    "max_tokens": "failed",
    "converged": "failed",
    "consecutive_errors": "failed",
    "permanent_error": "failed",
    "gate_error": "failed",
    "interrupted_too_often": "failed",
    "health": "stopped",
    "rejected": "stopped",
    "stopped_by_user": "stopped",
    "policy_violation": "stopped",
}
HOSTILE = "<script>alert(1)</script>\x1b[31mred\x1b]0;title\x07 \u202etxt.exe\u2066 \x00nul <img src=x onerror=y> \"'{{7*7}}"


@pytest.fixture(scope="module")
def store(lived):
    with lived.stores() as store:
        yield store


@pytest.fixture
def page(ask):
    """The text of a page, after looking for what no page may have."""

    def page(path, who="mira", status=200):
        answer = ask("GET", path, who)
        assert answer.status_code == status, answer.text[:500]
        harmless(answer.text)
        return answer.text

    return page


@pytest.fixture
def post(ask):
    return lambda path, who="mira", **fields: ask("POST", path, who, data=fields)


class Strict(HTMLParser):
    """Complains about what no page may have."""

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        assert tag not in {"style", "iframe", "object", "embed", "base"}, tag
        assert tag != "script" or given["src"].startswith("/static/")
        assert tag != "form" or given.get("method") == "post", "a form that a GET would send"
        for name, value in attrs:
            assert name != "style" and not name.startswith("on"), (tag, name)
            if name in {"src", "href", "action", "hx-sse:connect"}:
                assert value[:1] in {"/", "#"} and value[1:2] not in {"/", "\\"}, (tag, value)

    def handle_data(self, data):
        assert (
            self.get_starttag_text() is None
            or not self.get_starttag_text().startswith("<script")
            or not data.strip()
        )


def harmless(text):
    """Nothing of elsewhere, no script or style inside, no form that changes by a GET, nothing that drives a terminal."""
    Strict().feed(text)
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", text)


def message(ask, answer):
    """What the page says to which a form came back."""
    assert answer.status_code == 303, answer.text
    text = ask("GET", answer.headers["location"]).text
    return unescape(re.sub("<[^>]+>", "", re.search(r'<p class="said [^>]*>(.*?)</p>', text)[1]))


def pill(text):
    return unescape(
        re.sub(
            "<[^>]+>",
            "",
            re.search(r'<span class="pill.*?</span></span>|<span class="pill.*?</span> [^<]*</span>', text)[
                0
            ],
        )
    )


def test_each_ending_says_its_reason_and_why(store, page):
    for reason, phase in ENDS.items():
        run = Written(store, f"end-{reason.replace('_', '-')}").work(
            1.0, 1.0, passed=reason == "quality_reached"
        )
        run.close("accepted" if reason == "quality_reached" else "not_accepted").end(phase, reason)
        text = page(f"/runs/{run.journal.run}")
        assert reason.replace("_", " ") in pill(text)
        assert "Why it stands so" in text
        offers = "/resume" in text
        assert offers == (phase != "complete"), reason


def test_each_phase_says_what_happens(store, page):
    soon = datetime.now(UTC) + timedelta(hours=2)
    cases = {
        "about to begin": Written(store, "at-planning"),
        "agent at work": Written(store, "at-executing").begin(),
        "being judged": Written(store, "at-validating").begin().say(ev.AttemptSucceeded(result=None, seconds=1.0)),
        "waits for you": Written(store, "at-asking").work(1.0, 1.0, passed=True).ask(deadline=soon),
        "waits for its agent": Written(store, "at-waiting").begin().say(ev.AttemptFailed(kind="rate_limited", message="429", seconds=1.0)).say(ev.WaitStarted(until=soon, seconds=7200.0, why="rate limit")),
        "paused": Written(store, "at-pause").work(0.5, 0.5).close().say(ev.PauseRequested(by="ann", key="pause/1")),
        "nobody answered in time": Written(store, "at-expired").work(1.0, 1.0, passed=True).ask(deadline=soon).decide("expired"),
    }  # fmt: skip
    for word, run in cases.items():
        assert word in pill(page(f"/runs/{run.journal.run}")), (word, run.state.phase)
    assert "1 h" in pill(page("/runs/at-asking")) and "left" in pill(page("/runs/at-asking"))
    text = page("/")
    assert text.index("at-asking") < text.index("at-executing"), "who needs a person comes first"


def test_what_others_wrote_is_shown_and_never_obeyed(store, page):
    said = HOSTILE.replace("\x00", "")  # no loop file takes it
    run = Written(store, "hostile-run", goal=said, name=said, labels={said: said})
    run.work(0.2, 0.3, summary=HOSTILE, reason=HOSTILE, failing=(HOSTILE,)).close()
    run.say(ev.AlertRaised(kind="ODD", iteration=1, action="note", message=HOSTILE))
    run.say(ev.NoteAdded(text=HOSTILE, by=HOSTILE, key="note/1"))
    run.begin().say(ev.AttemptFailed(kind="unknown", message=HOSTILE, seconds=1.0)).close("errored")
    run.work(0.9, 0.9, passed=True).ask(question=HOSTILE)
    for path in ("/runs/hostile-run", "/runs/hostile-run?i=1", "/runs/hostile-run?i=2", "/", "/approvals", f"/runs/hostile-run/approvals/{run.state.approval.id}"):  # fmt: skip
        text = page(path)
        assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text, path
        assert "\\u202e" in text or path == "/", path
        assert "{{7*7}}" in unescape(text) and "<img" not in text


def test_a_request_shows_all_that_it_is_about(store, page):
    soon = datetime.now(UTC) + timedelta(minutes=41)
    run = Written(store, "asked-once").work(0.5, 0.9).close().alert()
    run.work(1.0, 1.0, passed=True, summary="all good").ask(question="accept iteration 2?", deadline=soon)
    for path in ("/runs/asked-once", f"/runs/asked-once/approvals/{run.state.approval.id}"):
        text = unescape(page(path))
        for part in ("accept iteration 2?", "Why now: every required gate passed", "cost $0.50", "≈ $0.75 with one more iteration", "pytest passed", "OSCILLATION (#1): it swings", "“all good”", "in 40 min", "the run rests, its work kept", "the run stops; its work is kept", "the agent reads the note and goes on"):  # fmt: skip
            assert part in text, (path, part)
        assert re.findall(r'accesskey="(.)"', text) == ["a", "n", "f", "x"]
    first = re.search(r'<main.*?(<button|<input type="submit")', text := page("/runs/asked-once"), re.DOTALL)
    assert text[first.end() :].startswith(' class="go" accesskey="a"'), "approving is the first thing to do"


def test_what_has_not_passed_is_accepted_for_a_reason_alone(store, page, post, ask):
    run = Written(store, "not-passed").work(0.5, 0.9).ask()
    there = f"/runs/not-passed/approvals/{run.state.approval.id}"
    text = page("/runs/not-passed")
    assert 'name="override"' in text and "Not passed: pytest" in text
    refused = post(there, answer="approve")
    assert refused.status_code == 422 and "has not passed" in refused.text and "All runs" in refused.text
    assert message(ask, post(there, answer="approve", override="known flake")).startswith(
        "✓ approved by mira (page)"
    )


def test_answers_once_again_otherwise_late_and_to_another_request(store, lived, page, post, ask):
    before = lived.workers
    run = Written(store, "answered-run").work(1.0, 1.0, passed=True).ask()
    there = f"/runs/answered-run/approvals/{run.state.approval.id}"
    assert "needs a note" in post(there, answer="revise", note="  ").text
    assert post(there, answer="maybe").status_code == 422
    assert post(there, "vic", answer="approve").status_code == 403
    told = post(there, answer="revise", note="use <b>\r\nmore\x00 words")
    assert message(ask, told).startswith("✓ sent back by mira (page)")
    assert before is lived.workers
    assert message(ask, post(there, answer="revise", note="use <b>\nmore\ufffd words")).startswith(
        "✓ already sent back by mira"
    )
    for given in ({"answer": "approve"}, {"answer": "reject"}):
        late = post(there, "bob", **given)
        assert late.status_code == 409 and "already sent back by mira" in late.text
    text = unescape(page("/runs/answered-run"))
    assert (
        "mira sent it back (page)" in text and "the run takes it in" in text and 'value="approve"' not in text
    )
    old = Written(store, "stale-run").work(1.0, 1.0, passed=True).ask(ident="b2" * 16)
    old.decide("revise", note="more").close("revised").work(1.0, 1.0, passed=True).ask(ident="c3" * 16)
    assert post(f"/runs/stale-run/approvals/{'b2' * 16}", answer="reject").status_code == 409
    assert "Something else is asked now" in page(f"/runs/stale-run/approvals/{'b2' * 16}")
    over = (
        Written(store, "late-run")
        .work(1.0, 1.0, passed=True)
        .ask(deadline=datetime.now(UTC) - timedelta(seconds=1))
    )
    gone = post(f"/runs/late-run/approvals/{over.state.approval.id}", answer="approve")
    assert gone.status_code == 410 and "Too late" in gone.text
    assert post(f"/runs/late-run/approvals/{'d4' * 16}", answer="approve").status_code == 404
    assert post(f"/runs/nobody/approvals/{'d4' * 16}", answer="approve").status_code == 404


def test_limits_are_raised_with_an_answer(store, post, ask):
    run = Written(store, "raised-run").work(1.0, 1.0, passed=True).ask()
    there = f"/runs/raised-run/approvals/{run.state.approval.id}"
    for wrong in ({"add_iterations": "1.5"}, {"add_budget": "-1"}, {"add_budget": "nan"}, {"add_duration": "soon"}, {"add_iterations": "1e99"}):  # fmt: skip
        assert post(there, answer="revise", note="more", **wrong).status_code == 422, wrong
    told = post(there, answer="revise", note="more", add_iterations="+5", add_budget="2", add_duration="30m")
    assert message(ask, told).startswith("✓ sent back")
    (signal,) = [record for key, record in store.signals("raised-run") if key.startswith("decision/")]
    assert (
        b'"edits":{"max_iterations":25' in signal
        and b'"budget":8.0' in signal
        and b'"max_duration":3600.0' in signal
    )


def test_stop_and_pause_are_on_record_and_said(store, page, post, ask):
    Written(store, "steered").begin()
    assert message(ask, post("/runs/steered/stop")) == "✓ steered will stop after this iteration"
    assert message(ask, post("/runs/steered/pause", now="1")) == "✓ steered will pause now"
    text = page("/runs/steered")
    assert "mira asked it to stop after this iteration: on record, not taken in yet" in text
    done = (
        Written(store, "steered-done")
        .work(1.0, 1.0, passed=True)
        .close("accepted")
        .end("complete", "quality_reached")
    )
    assert message(ask, post(f"/runs/{done.journal.run}/stop")).startswith("! steered-done is over already")
    assert (
        post("/runs/nobody/stop").status_code == 404 and post("/runs/steered/stop", "vic").status_code == 403
    )


def test_a_loop_is_started_once_with_a_key(lived, page, post, ask):
    assert "Start a run" in page("/loops") and "Start a run" not in page("/loops", "vic")
    first = post("/loops/tidy/start", key="monday")
    run = first.headers["location"].split("/")[2].split("?")[0]
    assert "is started" in message(ask, first)
    assert "was started with this key before" in message(ask, post("/loops/tidy/start", key="monday"))
    assert "waits for a place" in pill(page(f"/runs/{run}"))
    assert post("/loops/nothing/start").status_code == 404
    state = lived.go(run)
    ended = post(f"/runs/{run}/approvals/{state.approval.id}", answer="reject", note="no")
    assert "rejected by mira" in message(ask, ended)
    lived.go(run)
    text = unescape(page(f"/runs/{run}"))
    assert "mira rejected it (page): “no”" in text and "stopped: rejected" in text
    assert "goes on" in message(ask, post(f"/runs/{run}/resume", note="try again", add_iterations="2"))
    assert "limit" in page(f"/runs/{run}") and "3" in page(f"/runs/{run}")


def test_a_message_is_only_what_was_said(page):
    assert '<p class="said' not in page("/?said=You+won") and "You won" not in page("/?said=You+won")


def test_old_iterations_are_found_however_long_the_run(store, page):
    run = Written(store, "long-run", limits={"max_iterations": 500})
    for n in range(1, 131):
        run.work(0.3 + n / 1000, 0.5, reason=f"reason of {n}", summary=f"did {n}").close()
    text = page("/runs/long-run")
    assert "#130" in text and "#116" in text and ">#115<" not in text
    older = re.search(r'href="/runs/long-run\?top=(\d+)[^"]*">older', text)
    assert older[1] == "115" and ">#101<" in page("/runs/long-run?top=115")
    text = page("/runs/long-run?i=47")
    assert "reason of 47" in text and "did 47" in text and ">#47<" in text and 'aria-current="true"' in text
    for odd in (
        "?i=99999999",
        "?i=-1",
        "?i=x",
        "?top=0",
        "?top=9999",
        "?i=1&top=3&against=nobody",
        "?i=" + "9" * 500,
    ):
        page(f"/runs/long-run{odd}")


def test_unknown_is_never_zero(store, page):
    run = Written(store, "unknown-cost").work(0.5, 0.5, cost=None).close()
    text = unescape(page("/runs/unknown-cost"))
    assert "<dt>cost</dt><dd>unknown" in text and "$0.00 and what is unknown of $6.00" in text
    assert "where it lands is unknown" in text
    Written(store, "no-cost").begin()
    assert "<dt>cost</dt><dd>unknown" in page("/runs/no-cost")
    assert run.state.totals.unknown_costs == 1


def test_it_says_where_it_lands_and_when_it_stops(store, page):
    run = Written(store, "lands", limits={"max_iterations": 10, "max_duration": 1800.0, "budget": 6.0})
    for _ in range(4):
        run.work(0.5, 0.5).close()
    text = unescape(page("/runs/lands"))
    assert "≈ $0.25 per iteration → lands near $2.50 at #10" in text
    assert "its iterations end first: at #10" in text
    assert "lands near $2.50 at iteration 10" in text, "a chart says the same to who cannot see it"
    assert text.count('role="img"') >= 2 and "<desc" in text and 'stroke-dasharray="4 4"' in text


def test_no_path_leads_out_and_no_link_is_followed(store, lived, page, ask, tmp_path):
    Written(store, "logged-run").begin()
    folder = lived.project / ".agent-state/artifacts/logged-run/0001/attempt-1"
    folder.mkdir(parents=True)
    (folder / "agent.log").write_text("\x1b[1mall <b>good</b>\x1b[0m\r\n\u202eodd")
    text = page("/runs/logged-run")
    assert "all &lt;b&gt;good&lt;/b&gt;" in text and "\\u202eodd" in text
    (folder / "agent.log").unlink()
    secret = tmp_path / "secret"
    secret.write_text("TOP SECRET")
    (folder / "agent.log").symlink_to(secret)
    assert "TOP SECRET" not in page("/runs/logged-run")
    (folder / "agent.log").unlink()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "agent.log").write_text("TOP SECRET")
    folder.rmdir()
    folder.symlink_to(elsewhere)
    assert "TOP SECRET" not in page("/runs/logged-run")
    folder.unlink()
    folder.mkdir()
    os.mkfifo(folder / "agent.log")
    page("/runs/logged-run")
    for odd in ("%2e%2e", "..%2f..", "a%00b", "trigger:tidy", "latest", "x" * 65):
        assert ask("GET", f"/runs/{odd}").status_code in {404, 400}, odd


def test_every_problem_teaches(ask, page):
    for path, status, says in (
        ("/runs/nobody", 404, "There is nothing here"),
        ("/nowhere", 404, "There is nothing here"),
    ):
        assert says in page(path, status=status)
    nobody = ask("GET", "/runs/x", None)
    assert nobody.status_code == 401 and "Sign in" in nobody.text and 'type="password"' in nobody.text
    harmless(nobody.text)
    assert "This is not yours to do" in ask("POST", "/runs/at-planning/stop", "vic").text
    assert ask("DELETE", "/approvals").status_code == 405


def test_who_may_only_look_is_offered_nothing(store, page):
    Written(store, "viewed-run").work(1.0, 1.0, passed=True).ask()
    for path in ("/runs/viewed-run", "/approvals", "/loops", "/"):
        assert "<form" not in page(path, "vic"), path
    assert "You may look and not decide" in page("/runs/viewed-run", "vic")


def test_what_is_vendored_is_what_was_published():
    """htmx 4.0.1 and its extension for streams, as npm has them, with their licence."""
    digests = {
        "htmx.min.js": "a0abb04f2f45a1f89d1d4844023245537e5e6014c87b144553e0607b4cc32130",
        "hx-sse.min.js": "18ef2761356ec1fe0bb6d92612315b37517a7c1e9856b661c5ae81fef239d103",
    }
    for name, digest in digests.items():
        assert hashlib.sha256((STATIC / name).read_bytes()).hexdigest() == digest, name
    assert "Zero-Clause BSD" in (STATIC / "htmx-LICENSE.txt").read_text()


def test_a_first_load_is_small(store, page, ask):
    run = Written(store, "heavy-run")
    for _ in range(20):
        run.work(0.5, 0.7, summary="did a thing and told of it at length " * 5).close()
    files = ("style.css", "htmx.min.js", "hx-sse.min.js", "live.js", "icon.svg")
    plain = len(page("/runs/heavy-run").encode()) + sum((STATIC / name).stat().st_size for name in files)
    assert plain <= 100_000, "all of it, not packed"
    for name in files:
        got = ask("GET", f"/static/{name}", None, headers={"accept-encoding": "gzip"})
        assert got.content == (STATIC / name).read_bytes()
        assert got.headers["content-encoding"] == "gzip" and "immutable" in got.headers["cache-control"]
