"""The API: what it says is what the command line says, and an answer counts once."""

import sqlite3
import threading
from contextlib import closing, suppress
from datetime import UTC, datetime

import httpx2
import pytest
from behind import LOOP, behind

from loopwright.codec import encode_signal
from loopwright.core import events as ev
from loopwright.hosts import people
from loopwright.web import reading
from loopwright.web.problems import Trouble
from loopwright.web.server import start

HEAD = {
    "schema",
    "run",
    "goal",
    "phase",
    "reason",
    "explanation",
    "next",
    "passed",
    "iterations",
    "score",
    "best_score",
    "best_iteration",
    "cost_usd",
    "tokens",
    "plan",
    "duration_s",
    "started_at",
    "alerts",
    "exit_code",
}
PROBLEM = {"type", "title", "status", "detail"}


@pytest.fixture
def api(live):
    """Asks the API as mira; what it says, checked to be a problem where it is one."""
    server = start(live, port=0)
    token = server.app.state.tokens.current()["mira"]
    with httpx2.Client(
        base_url=server.address.url + "/api/v1", headers={"authorization": f"Bearer {token}"}, timeout=20
    ) as client:

        def ask(method, path, body=None, expect=200, **more):
            more |= {} if body is None else {"json": body}
            answer = client.request(method, path, **more)
            assert answer.status_code == expect, answer.text
            if expect >= 400:
                assert answer.headers["content-type"] == "application/problem+json"
                assert answer.json().keys() >= PROBLEM and answer.json()["status"] == expect
            return answer.json() if "json" in answer.headers["content-type"] else answer

        yield ask
    server.stop()


def decision(run, request):
    return f"/runs/{run}/approvals/{request}/decision"


def test_runs_are_paged_and_picked(live, api):
    ids = [live.begin("tidy", origin="test", key=str(n))[0] for n in range(7)]
    for run in ids[:3]:
        live.go(run)
    api("POST", decision(ids[0], api("GET", f"/runs/{ids[0]}")["approval"]), {"answer": "reject"})
    live.go(ids[0])
    every = api("GET", "/runs")["runs"]
    assert {row["run"] for row in every} == {*ids} and all(row.keys() >= HEAD for row in every)
    assert [row["updated_at"] for row in every] == sorted((row["updated_at"] for row in every), reverse=True)
    pages, cursor = [], None
    while True:
        page = api("GET", "/runs", params={"limit": 3, **({"cursor": cursor} if cursor else {})})
        pages.append([row["run"] for row in page["runs"]])
        if (cursor := page["next"]) is None:
            break
        live.go(ids[len(pages) + 3])  # news of another run moves nothing twice into a page
    seen = [run for page in pages for run in page]
    assert len(pages) >= 2 and len(seen) == len(set(seen)) and {*seen} >= {*ids} - {*ids[4:6]}
    assert [row["run"] for row in api("GET", "/runs", params={"active": False})["runs"]] == [ids[0]]
    assert {row["run"] for row in api("GET", "/runs", params={"active": True})["runs"]} == {*ids[1:]}
    assert len(api("GET", "/runs", params={"loop": "tidy"})["runs"]) == 7
    assert api("GET", "/runs", params={"loop": "another"})["runs"] == []
    assert len(api("GET", "/runs", params={"since": "1h"})["runs"]) == 7
    assert api("GET", "/runs", params={"since": "0s"})["runs"] == []
    for wrong in (
        {"cursor": "x"},
        {"cursor": "W10"},
        {"since": "soon"},
        {"limit": 0},
        {"limit": 201},
        {"active": "maybe"},
    ):
        api("GET", "/runs", params=wrong, expect=422)


def test_a_run_says_what_its_document_says(live, api):
    run, request = live.asks()
    told = api("GET", f"/runs/{run}")
    with live.stores() as store:
        state = reading.known(store, run)
    for name, value in reading.head_of(state).items():
        assert told[name] == value, name
    assert (told["loop"], told["origin"], told["approval"], told["working"]) == (
        "tidy",
        "test",
        request,
        False,
    )
    assert told["asked"]["question"] == state.approval.question and told["limits"]["max_iterations"] == 3
    assert [(g["iteration"], g["gate"], g["status"]) for g in api("GET", f"/runs/{run}/gates")["gates"]] == [
        (1, "true", "pass")
    ]
    assert api("GET", f"/runs/{run}/health")["healthy"] is True
    one = api("GET", f"/runs/{run}/iterations/1")
    assert (one["iteration"], one["attempts"], one["gates"][0]["gate"]) == (1, 1, "true")
    api("GET", f"/runs/{run}/iterations/2", expect=404)
    api("GET", f"/runs/{run}/iterations/1/diff", expect=404)  # it keeps no snapshots
    api("GET", f"/runs/{run}/iterations/-1", expect=422)


def test_facts_are_paged_by_whole_commits(live, api):
    run, _ = live.asks()
    whole = api("GET", f"/runs/{run}/events", params={"limit": 1000})
    assert whole["next"] is None and whole["events"][0]["type"] == "RunStarted"
    with live.stores() as store:
        assert whole["events"][-1]["n"] == max(n for n, _ in store.read(run))
    found, after = [], 0
    while after is not None:
        page = api("GET", f"/runs/{run}/events", params={"limit": 1, "after": after})
        found, after = found + page["events"], page["next"]
    assert found == whole["events"]
    assert api("GET", f"/runs/{run}/events", params={"after": 10_000})["events"] == []


def test_gates_are_paged_by_iteration(tmp_path):
    text = LOOP.replace('gates = ["true"]', 'gates = ["false"]')
    with behind(tmp_path, text) as live:
        run, _ = live.begin("tidy", origin="test")
        live.go(run)
        server = start(live, port=0)
        token = server.app.state.tokens.current()["mira"]
        with httpx2.Client(
            base_url=server.address.url + "/api/v1", headers={"authorization": f"Bearer {token}"}
        ) as client:
            first = client.get(f"/runs/{run}/gates", params={"limit": 2}).json()
            assert [g["iteration"] for g in first["gates"]] == [1, 2] and first["next"] == 2
            rest = client.get(f"/runs/{run}/gates", params={"after": first["next"]}).json()
            assert [g["iteration"] for g in rest["gates"]] == [3] and rest["next"] is None
        server.stop()


def test_the_first_answer_stands(live, api):
    run, request = live.asks()
    where = decision(run, request)
    api("POST", where, {"answer": "revise"}, expect=422)  # needs a note
    api("POST", where, {"answer": "maybe"}, expect=422)
    api("POST", where, {"answer": "approve", "by": "somebody"}, expect=422)
    api("POST", decision(run, request[:6]), {"answer": "approve"}, expect=404)  # no id, only how one begins
    api("POST", decision(run, "0" * len(request)), {"answer": "approve"}, expect=404)
    api("POST", decision("another", request), {"answer": "approve"}, expect=404)
    other, _ = live.asks()
    api("POST", decision(other, request), {"answer": "approve"}, expect=404)  # of another run
    first = api("POST", where, {"answer": "approve", "note": "good"})
    assert (first["word"], first["by"], first["channel"], first["answer"]) == (
        "recorded",
        "mira",
        "page",
        "approve",
    )
    assert api("POST", where, {"answer": "approve", "note": "good"}) == {
        **first,
        "word": "again",
        "text": f"already {first['text']}",
    }
    conflict = api("POST", where, {"answer": "reject"}, expect=409)
    assert (conflict["answer"], conflict["by"], conflict["channel"]) == (
        "approve",
        "mira",
        "page",
    ) and conflict["at"]
    assert live.go(run).finished.reason == "quality_reached"
    assert api("POST", where, {"answer": "approve", "note": "good"})["word"] == "again"  # long after
    api("POST", where, {"answer": "reject"}, expect=409)
    told = api("GET", "/approvals", params={"all": True})["approvals"]
    assert {row["run"]: row["answer"] for row in told} == {run: "approve", other: None}


def test_an_answer_to_an_earlier_request_is_told_which_is_open(live, api):
    run, old = live.asks()
    api("POST", decision(run, old), {"answer": "revise", "note": "shorter"})
    new = live.go(run).approval.id
    assert new != old
    conflict = api("POST", decision(run, old), {"answer": "approve"}, expect=409)
    assert conflict["answer"] == "revise"
    assert [row["approval"] for row in api("GET", "/approvals")["approvals"]] == [new]
    api("POST", decision(run, new), {"answer": "approve"})


def test_too_late_is_gone(live, api):
    run, request = live.asks()
    with live.stores() as store:
        expired = ev.ApprovalDecided(id=request, answer="expired", by="time", channel="host")
        store.signal(run, f"decision/{request}", encode_signal(expired, datetime.now(UTC)))
    api("POST", decision(run, request), {"answer": "approve"}, expect=410)
    live.go(run)
    assert api("POST", f"/runs/{run}/ask-again")["word"] == "recorded"
    again = live.go(run).approval.id
    assert api("POST", f"/runs/{run}/ask-again", expect=409)["live"] == again
    api("POST", f"/runs/{run}/stop", {"now": True})
    live.go(run)
    api("POST", decision(run, again), {"answer": "approve"}, expect=410)
    api("POST", f"/runs/{run}/ask-again", expect=410)


def test_who_is_no_approver_is_told_so(tmp_path):
    with behind(tmp_path, LOOP + 'approvers = ["page:bob"]\n', people=("mira", "bob")) as live:
        run, request = live.asks()
        server = start(live, port=0)
        tokens = server.app.state.tokens.current()
        said = {}
        for who in ("mira", "bob"):
            headers = {"authorization": f"Bearer {tokens[who]}"}
            said[who] = httpx2.post(
                server.address.url + "/api/v1" + decision(run, request),
                json={"answer": "approve"},
                headers=headers,
            )
        server.stop()
    assert said["mira"].status_code == 422 and "not among" in said["mira"].json()["detail"]
    assert said["bob"].json()["by"] == "bob"


def test_two_who_answer_at_once_get_one_answer_between_them(live, api):
    for answers in (("approve", "reject"), ("approve", "approve")):
        run, request = live.asks()
        found = []

        def say(word, run=run, request=request, found=found):
            try:
                found.append(api("POST", decision(run, request), {"answer": word})["word"])
            except AssertionError:
                found.append("conflict")

        threads = [threading.Thread(target=say, args=(word,)) for word in answers * 3]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found.count("recorded") == 1 and len(found) == 6
        assert found.count("conflict") == (3 if len({*answers}) == 2 else 0)


def test_limits_go_up_with_an_answer_and_secrets_stay_out(live, api):
    run, request = live.asks()
    api(
        "POST", decision(run, request), {"answer": "revise", "note": "x", "add": {"budget": 5}}, expect=422
    )  # it has none
    for wrong in (
        {"iterations": 0},
        {"iterations": 1.5},
        {"duration": -1},
        {"duration": "30m"},
        {"tokens": 5},
        {"budget": 1e99},
    ):
        api("POST", decision(run, request), {"answer": "revise", "note": "x", "add": wrong}, expect=422)
    note = "use horse-battery-staple"
    api("POST", decision(run, request), {"answer": "revise", "note": note, "add": {"iterations": 2}})
    with live.stores() as store:
        standing, _ = people.standing(store, run, request)
    assert dict(standing.edits) == {"max_iterations": 5} and standing.note == "use [redacted:DEPLOY_TOKEN]"


def test_stop_and_pause_are_on_record_once(live, api):
    run, _ = live.begin("tidy", origin="test")
    for what in ("stop", "pause"):
        first = api("POST", f"/runs/{run}/{what}", {"now": True}, headers={"idempotency-key": "k"})
        again = api("POST", f"/runs/{run}/{what}", {"now": True}, headers={"idempotency-key": "k"})
        assert (first["word"], again["word"]) == ("recorded", "again")
        api("POST", f"/runs/{run}/{what}", {"now": "perhaps"}, expect=422)
    with live.stores() as store:
        assert sorted(key.partition("/")[0] for key, _ in store.signals(run)) == ["pause", "stop"]
    assert live.go(run).finished.reason == "stopped_by_user"
    assert api("POST", f"/runs/{run}/stop", expect=409)["detail"].endswith("stopped_by_user")
    assert (
        api("POST", f"/runs/{run}/resume", {"note": "go on", "add": {"iterations": 1}})["word"] == "recorded"
    )
    with live.stores() as store:
        state = reading.known(store, run)
    assert state.finished is None and state.limits["max_iterations"] == 4


def test_what_is_complete_is_not_resumed(live, api):
    run, request = live.asks()
    api("POST", decision(run, request), {"answer": "approve"})
    live.go(run)
    for body in (None, {"add": {"iterations": 3}}):
        assert "complete" in api("POST", f"/runs/{run}/resume", body, expect=409)["detail"] or body is None


def test_loops_are_started_once_for_each_key(live, api):
    (loop,) = api("GET", "/loops")["loops"]
    assert (loop["name"], loop["goal"], loop["file"]) == ("tidy", "Make it tidy", "tidy.toml")
    assert loop["gates"] == [{"name": "true", "required": True}] and loop["problem"] is None
    first = api("POST", "/loops/tidy/start", {"key": "monday"}, expect=202)
    assert first["begun"] is True
    for more in ({"body": {"key": "monday"}}, {"headers": {"idempotency-key": "monday"}}):
        assert api("POST", "/loops/tidy/start", expect=202, **more) == {"run": first["run"], "begun": False}
    assert (
        api("POST", "/loops/tidy/start", expect=202)["run"]
        != api("POST", "/loops/tidy/start", expect=202)["run"]
    )
    assert api("GET", f"/runs/{first['run']}")["origin"] == "page: mira"
    api("POST", "/loops/other/start", expect=404)
    api("POST", "/loops/tidy/start", {"key": ""}, expect=422)


def test_a_file_that_says_no_loop_is_told_with_what_is_wrong(live, api):
    (live.project / "tidy.toml").write_text('goal = "x"\ngates = 3\n')
    live.book.refresh()
    told = api("GET", "/loops")
    assert "gates" in told["loops"][0]["problem"] and "gates" in told["problems"]["tidy.toml"]


def test_a_log_is_a_file_to_keep_and_nothing_is_followed_to_elsewhere(live, api):
    run, _ = live.asks()
    log = live.project / ".agent-state/artifacts" / run / "0001/attempt-1/agent.log"
    log.write_bytes(b"<script>\x1b[31m\xff" + b"a" * 5_000_000 + b"end")
    answer = api("GET", f"/runs/{run}/iterations/1/log")
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert answer.headers["content-disposition"] == f'attachment; filename="{run}-1.log"'
    assert len(answer.content) == 4_000_000 and answer.content.endswith(b"aend")
    log.write_bytes("\x1b[31mred\x1b]52;c;aGk=\x07 \u202eturned\n".encode())
    assert api("GET", f"/runs/{run}/iterations/1/log").text == "red \\u202eturned\n"
    log.unlink()
    api("GET", f"/runs/{run}/iterations/1/log", expect=404)
    log.symlink_to(live.project / ".agent-state/server/tokens.json")  # what an agent could leave there
    api("GET", f"/runs/{run}/iterations/1/log", expect=404)
    log.unlink()
    log.parent.rename(log.parent.with_name("was"))
    log.parent.symlink_to(live.project / ".agent-state/server")
    (live.project / ".agent-state/server/agent.log").write_text("not yours")
    api("GET", f"/runs/{run}/iterations/1/log", expect=404)
    log.parent.unlink()
    log.parent.with_name("was").rename(log.parent)
    log.write_text("printed")
    assert api("GET", f"/runs/{run}/iterations/1/log").text == "printed"
    log.parent.parent.rename(log.parent.parent.with_name("moved"))
    log.parent.parent.symlink_to(log.parent.parent.with_name("moved"))
    api("GET", f"/runs/{run}/iterations/1/log", expect=404)


@pytest.mark.parametrize("run", ["..", "../x", "latest", "a/b", "trigger:tidy", "", "a" * 65, "x.lock", "\0"])
def test_what_is_no_id_never_reaches_a_store(run):
    class Untouched:
        def __getattr__(self, name):
            raise AssertionError(f"{name} was asked of the store")

    with pytest.raises(Trouble):
        reading.known(Untouched(), run)


def test_a_damaged_run_hides_no_other_and_is_no_fault_of_the_server(live, api):
    good, bad = live.begin("tidy", origin="test")[0], live.begin("tidy", origin="test")[0]
    with closing(sqlite3.connect(live.project / ".agent-state/loopwright.db")) as db:
        tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type='table'")}
        assert {"commits", "heads"} <= tables
        db.execute(
            "UPDATE commits SET body=x'00' WHERE id / 4294967296 = (SELECT id FROM runs WHERE run=?)", (bad,)
        )
        db.execute("UPDATE heads SET body=x'00' WHERE id=(SELECT id FROM runs WHERE run=?)", (bad,))
        db.execute("DELETE FROM folds")
        db.commit()
    told = api("GET", "/runs")
    assert [row["run"] for row in told["runs"]] == [good] and bad in told["damaged"][0]
    assert bad in api("GET", f"/runs/{bad}", expect=503)["detail"]


NOTHING = [
    b"{",
    b"[]",
    b"null",
    b"\xff",
    b'{"answer": NaN}',
    b'{"answer": "approve", "note": "\\ud800"}',
    b"[" * 100_000,
    b'{"answer": ' + b"1" * 5000 + b"}",
    b'{"add": {"budget": NaN}, "answer": "approve"}',
    b'{"add": {"budget": Infinity}, "answer": "approve"}',
    b"1e400",
    b"",
]


def test_a_body_that_says_nothing_is_refused(live, api):
    run, request = live.asks()
    headers = {"content-type": "application/json"}
    for body in NOTHING:
        with suppress(AssertionError):
            api("POST", decision(run, request), expect=422, content=body, headers=headers)
            continue
        api("POST", decision(run, request), expect=400, content=body, headers=headers)
    with live.stores() as store:
        assert list(store.signals(run)) == []


def test_notes_of_any_letters_are_kept(live, api):
    run, request = live.asks()
    note = "größer \u202e\u0000\x1b[31m </script> 🐑\n" + "x" * 19_000
    api("POST", decision(run, request), {"answer": "revise", "note": note})
    with live.stores() as store:
        assert people.standing(store, run, request)[0].note == note
    api("POST", decision(run, request), {"answer": "revise", "note": "x" * 20_001}, expect=422)


def test_a_large_add_of_time_is_no_fault(live, api):
    run, request = live.asks()
    api(
        "POST",
        decision(run, request),
        {"answer": "revise", "note": "x", "add": {"duration": 9e8, "iterations": 10**9}},
    )
    assert live.go(run).approval is not None
