"""Every route, with every method, for everybody: what is not let in is not reached, and looking changes nothing."""

import contextlib
import re
import sqlite3

import pytest
from fastapi.routing import iter_route_contexts

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "QUERY")
FILES = {f"/static/{name}" for name in ("style.css", "htmx.min.js", "hx-sse.min.js", "live.js", "icon.svg")}
OPEN = {
    ("GET", "/health"),
    ("HEAD", "/health"),
    ("POST", "/hooks/{name}"),
    ("POST", "/channels/{name}"),
    *((method, path) for method in ("GET", "HEAD") for path in FILES),
}


def routes(app):
    """Each path of the application, as it is declared."""
    return sorted({route.path for route in iter_route_contexts(app.routes)})


@pytest.fixture(scope="module")
def paths(lived, served):
    run, request = lived.asks()
    words = {"run": run, "approval": request, "number": "1", "name": "tidy", "iteration": "1"}
    declared = routes(served.app)
    assert {
        "/health",
        "/api/v1/runs",
        "/hooks/{name}",
        "/api/v1/runs/{run}/approvals/{approval}/decision",
    } <= {*declared}
    return {
        path: re.sub(r"\{(\w+)(:\w+)?\}", lambda found: words.get(found[1], "x"), path) for path in declared
    }


def test_nobody_and_a_wrong_token_reach_what_is_open_and_nothing_else(paths, ask):
    for declared, path in paths.items():
        for method in METHODS:
            for who in (None, "wrong"):
                status = ask(method, path, who).status_code
                if (method, declared) in OPEN:
                    assert status not in {401, 403}, (method, path, who)
                else:
                    assert status == 401, (method, path, who)


def test_who_may_look_changes_nothing_and_sees_what_others_see(paths, ask):
    for declared, path in paths.items():
        for method in METHODS:
            if (method, declared) in OPEN:
                continue
            status = ask(method, path, "vic").status_code
            if method in {"GET", "HEAD"}:
                assert status == ask(method, path, "mira").status_code not in {401, 403}, (method, path)
            else:
                assert status == 403, (method, path)


def test_who_may_decide_reaches_every_route_and_hears_of_every_method_that_is_none(paths, ask):
    for path in paths.values():
        answers = {method: ask(method, path) for method in METHODS}
        assert not {a.status_code for a in answers.values()} & {401, 403, 500}, path
        for answer in answers.values():
            if answer.status_code == 405:
                assert answer.headers["allow"]


@pytest.mark.parametrize(
    "path",
    [
        "/x/health",
        "/health/",
        "/health/x",
        "//health",
        "/HEALTH",
        "/health;x",
        "/api/v1/runs/health",
        "/api/v1/health",
        "/hooks/a/b",
        "/hooks/",
        "/hooks/../api/v1/runs",
        "/hooks/..%2fapi%2fv1%2fruns",
        "/channels/a%2fb",
        "/static/../api/v1/runs",
        "/.",
        "/x",
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_a_path_that_looks_like_an_open_one_is_closed(ask, path, method):
    assert ask(method, path, None).status_code == 401


def test_looking_changes_nothing_on_record(paths, lived, ask):
    def everything():
        with contextlib.closing(sqlite3.connect(lived.project / ".agent-state/loopwright.db")) as db:
            names = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type='table'")]
            return {name: db.execute(f"SELECT * FROM {name}").fetchall() for name in names}

    before = everything()
    assert before
    for path in paths.values():
        for method in ("GET", "HEAD"):
            ask(method, path, params={"answer": "approve", "now": "true", "all": "true"})
    assert everything() == before


@pytest.mark.parametrize(
    "run",
    [
        "latest",
        "%2e",
        "%2e%2e",
        "..%2f..%2fetc%2fpasswd",
        "tid",
        "TIDY",
        "a" * 5000,
        "trigger:tidy",
        "%00",
        "tidy%20",
        "*",
    ],
)
def test_a_run_is_named_by_its_whole_id_and_never_by_a_path(ask, run):
    for rest in (
        "",
        "/gates",
        "/events",
        "/health",
        "/iterations/1",
        "/iterations/1/log",
        "/iterations/1/diff",
    ):
        assert ask("GET", f"/api/v1/runs/{run}{rest}").status_code == 404, rest
    assert ask("POST", f"/api/v1/runs/{run}/stop").status_code in {404, 405}


def test_a_page_is_asked_for_its_head_too(paths, ask):
    for path in (
        "/",
        "/loops",
        "/approvals",
        paths["/runs/{run}"],
        paths["/runs/{run}/approvals/{approval}"],
    ):
        answer = ask("HEAD", path)
        assert (answer.status_code, answer.content) == (200, b""), path
