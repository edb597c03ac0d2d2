"""What other programs call: their bytes are handed on as they came, and nobody is believed here."""

import asyncio
from datetime import UTC, datetime

import pytest

from loopwright.web import mounts
from loopwright.web.problems import Problem, problem


@pytest.fixture
def hooks(monkeypatch):
    """What takes events in; each of its calls."""
    calls, answers = (
        [],
        {
            "ci": (202, {"status": "started", "run": "tidy-x"}),
            "down": (503, {"status": "refused", "why": "send it again"}),
        },
    )

    def received(live, name, headers, raw, now):
        calls.append((live, name, headers, raw, now))
        return answers.get(name, (404, {"status": "refused", "why": "there is no such hook"}))

    monkeypatch.setattr(mounts, "received", received)
    return calls


RAW = b' {"a":\r\n 1}\xff\x00 '


def test_an_event_is_handed_on_as_it_came(lived, ask, hooks):
    answer = ask(
        "POST", "/hooks/ci", None, content=RAW, headers={"X-GitHub-Event": "push", "content-type": "text/x"}
    )
    assert (answer.status_code, answer.json()) == (202, {"status": "started", "run": "tidy-x"})
    ((live, name, headers, raw, now),) = hooks
    assert (live, name, raw) == (lived, "ci", RAW) and abs((datetime.now(UTC) - now).total_seconds()) < 60
    assert headers["x-github-event"] == "push" and headers["content-type"] == "text/x"


def test_an_event_that_is_not_taken_is_a_problem(ask, hooks):
    for name, status, why in (("down", 503, "send it again"), ("other", 404, "there is no such hook")):
        told = ask("POST", f"/hooks/{name}", None)
        assert told.status_code == status and told.headers["content-type"] == "application/problem+json"
        assert (told.json()["status"], told.json()["detail"]) == (status, why)


def test_other_sites_and_their_forms_may_post_events_for_these_are_signed(ask, hooks):
    for headers in (
        {"sec-fetch-site": "cross-site"},
        {"origin": "http://evil.example"},
        {"content-type": "application/x-www-form-urlencoded"},
    ):
        assert ask("POST", "/hooks/ci", None, headers=headers).status_code == 202
    assert ask("GET", "/hooks/ci", None).status_code == 401 and len(hooks) == 3


def test_of_a_header_that_came_twice_there_is_none(ask, hooks):
    twice = [("webhook-id", "a"), ("Webhook-Id", "b"), ("webhook-timestamp", "1")]
    ask("POST", "/hooks/ci", None, headers=twice)
    headers = hooks[0][2]
    assert "webhook-id" not in headers and headers["webhook-timestamp"] == "1"


def test_a_channel_hears_and_answers_in_its_own_words(ask):
    answer = ask("POST", "/channels/slack", None, content=RAW)
    assert (answer.status_code, answer.text) == (202, f"slack {len(RAW)}")
    assert (
        answer.headers["content-type"].startswith("text/plain")
        and answer.headers["x-content-type-options"] == "nosniff"
    )


def test_metrics_are_for_who_may_look(ask):
    answer = ask("GET", "/metrics", "vic")
    assert answer.text == "loopwright_up 1\n" and answer.headers["content-type"].startswith(
        "text/plain; version=0.0.4"
    )
    assert ask("GET", "/metrics", None).status_code == 401


def test_what_is_told_beside_never_takes_the_place_of_what_a_problem_says():
    told = problem(
        Problem(status=409, detail="so", more={"status": "refused", "title": "x", "type": "y", "by": "mira"})
    )
    import json

    assert json.loads(told.body) == {
        "type": "about:blank",
        "title": "Conflict",
        "status": 409,
        "detail": "so",
        "by": "mira",
    }


def test_two_names_for_the_server_are_refused_by_the_door_itself(served):
    """Its HTTP reader refuses them first; another one might not."""
    told = []

    async def send(message):
        told.append(message)

    async def receive():
        return {"type": "http.request", "body": b"", "more_body": False}

    name = f"127.0.0.1:{served.port}".encode()
    for hosts, status in (([name], 200), ([name, name], 421), ([name, b"evil.example"], 421), ([], 421)):
        told.clear()
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": "GET",
            "path": "/health",
            "raw_path": b"/health",
            "query_string": b"",
            "root_path": "",
            "scheme": "http",
            "headers": [(b"host", host) for host in hosts],
        }
        asyncio.run(served.app(scope, receive, send))
        assert told[0]["status"] == status, hosts
    scope["path"] = "http://127.0.0.1/health"
    scope["headers"] = [(b"host", name)]
    told.clear()
    asyncio.run(served.app(scope, receive, send))
    assert told[0]["status"] == 421
