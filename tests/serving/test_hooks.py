"""Deliveries to hooks: one event, one run; what is kept before it is answered; what is skipped, and said so."""

import json
import os
import re
import signal
import stat
import threading
from pathlib import Path

import pytest
from a_hook import ENV, HOOK, NOW, delivery, live, runs, said, sent

from loopwright.core.events import RunFinished
from loopwright.errors import StoreError
from loopwright.journal import Journal
from loopwright.serving import hooks, starts
from loopwright.serving.others import first
from loopwright.stores import disk
from loopwright.testing.crash import ended

CASES = Path(__file__).parents[1] / "cases" / "events" / "github_deliveries.jsonl"
STORES = ["sqlite:///.agent-state/loopwright.db", "files:.agent-state"]


def finish(store, run):
    """The run ends, as if it had been driven."""
    journal = Journal(store, run)
    journal.record(NOW, RunFinished(phase="stopped", reason="stopped_by_user", explanation="over"))
    journal.flush()


@pytest.fixture
def server(tmp_path):
    return live(tmp_path, environ=ENV, green=HOOK)


@pytest.mark.parametrize("url", STORES)
def test_the_deliveries_of_the_case(tmp_path, url):
    server = live(tmp_path, url, environ=ENV, green=HOOK)
    lines = [json.loads(line) for line in CASES.read_text(encoding="utf-8").splitlines()]
    bodies = [line["body"] for line in lines]
    bodies = [bodies[0] if isinstance(body, str) else body for body in bodies]
    began, answers = {}, []
    for line, body in zip(lines, bodies, strict=True):
        head = {name.lower(): value for name, value in line["headers"].items()}
        status, answer = sent(server, body, head["x-github-delivery"], event=head["x-github-event"])
        answers.append(answer)
        assert status == 202
        if new := re.search(r"run started (R\d)", line["expected"]):
            name = new[1]
            assert answer["status"] == "started"
            assert answer["run"] not in began.values()
            began[name] = answer["run"]
        else:
            assert "duplicate_of R1" in line["expected"]
            assert answer == {"run": began["R1"], "status": "duplicate", "duplicate_of": began["R1"]}
            finish(server.store, began["R1"]) if answer is answers[1] else None
            server.store.close()  # and after a restart
            server = live(tmp_path, url, environ=ENV)
            assert sent(server, body)[1] == answer
    assert runs(server.store) == set(began.values())
    assert len(began) == 2


def test_what_came_is_a_private_file_before_the_run_begins(server, monkeypatch):
    body = b'{ "as": "it came" }'
    seen = []

    def looked(store, assembled, run, **said):
        file = server.project / ".agent-state" / "artifacts" / run / "payload.json"
        seen.append((file.read_bytes(), stat.S_IMODE(file.stat().st_mode), said["origin"]))
        return True

    monkeypatch.setattr(starts, "begin", looked)
    assert sent(server, body)[0] == 202
    assert seen == [(body, 0o600, "webhook ci")]


def test_the_run_says_where_it_comes_from_and_is_looked_at_at_once(server, monkeypatch):
    nudged = []
    monkeypatch.setattr(type(server), "nudge", lambda self: nudged.append(1))
    _, answer = sent(server, {"n": 1})
    assert first(server.store, answer["run"]).origin == "webhook ci"
    sent(server, {"n": 1})
    assert nudged == [1], "a duplicate is nothing new"


def test_the_first_payload_of_an_event_is_the_one_its_run_reads(tmp_path):
    server = live(tmp_path, environ=ENV, green=HOOK + 'key = ["n"]\n')
    _, one = sent(server, {"n": 1, "of": "first"})
    _, two = sent(server, {"n": 1, "of": "second"}, "d-2")
    assert two["duplicate_of"] == one["run"]
    file = tmp_path / ".agent-state" / "artifacts" / one["run"] / "payload.json"
    assert json.loads(file.read_bytes())["of"] == "first"
    file.unlink()
    assert sent(server, {"n": 1})[1] == two
    assert not file.exists(), "of a run that is on record nothing is written again"


@pytest.mark.parametrize(
    ("hook", "change", "status"),
    [
        ("nothing", {}, 404),
        ("..", {}, 404),
        ("ci", {"x-hub-signature-256": "sha256=" + "0" * 64}, 401),
        ("ci", {"x-hub-signature-256": ""}, 401),
        ("ci", {"content-type": "text/html"}, 415),
    ],
)
def test_what_is_refused_leaves_nothing(server, hook, change, status):
    headers, body = delivery({"secret thing": 1})
    got, answer = hooks.received(server, hook, {**headers, **change}, body, NOW)
    assert got == status
    assert "secret thing" not in str(answer)
    assert runs(server.store) == set()
    assert not (server.project / ".agent-state" / "artifacts").exists()


def test_a_body_that_is_no_json_and_one_that_is_too_large(server):
    assert sent(server, b"{")[0] == 400
    assert sent(server, b" " * (1 << 20) + b"{}")[0] == 413
    assert sent(server, b" " * ((1 << 20) - 2) + b"{}")[0] == 202


def test_a_filter_and_a_ping_start_nothing(tmp_path):
    server = live(tmp_path, environ=ENV, green=HOOK + 'filter = { action = "labeled" }\n')
    assert sent(server, {"action": "opened"}) == (200, {"status": "ignored", "why": "filter"})
    assert sent(server, {}, event="ping") == (200, {"status": "pong"})
    assert runs(server.store) == set()
    assert sent(server, {"action": "labeled"})[0] == 202


def test_without_its_secret_a_hook_is_closed(tmp_path):
    for environ in ({}, {"HOOK_SECRET": ""}, {"HOOK_SECRET": "short"}):
        server = live(tmp_path, environ=environ, green=HOOK)
        for key in ("", "short", *environ.values()):
            assert sent(server, {"n": 1}, secret=key)[0] == 401
        (problem,) = hooks.problems(server.book.loops["green"], environ)
        assert "HOOK_SECRET" in problem
    assert hooks.problems(server.book.loops["green"], ENV) == []


def test_one_name_is_one_hook(tmp_path):
    server = live(tmp_path, environ=ENV, green=HOOK, red=HOOK)
    for served in server.book.loops.values():
        (problem,) = hooks.problems(served, ENV, server.book.loops.values())
        assert "green and red" in problem
        assert hooks.problems(served, ENV) == []


def test_a_store_that_is_away_is_for_the_sender_to_try_again(server, monkeypatch):
    told = []
    server.tell = told.append

    def gone(*_, **__):
        raise StoreError("no store")

    monkeypatch.setattr(server.store, "append_with", gone)
    status, answer = sent(server, {"a secret thing": 1})
    assert status == 503
    assert "no store" not in str(answer)
    assert told == ["a delivery to /hooks/ci could not be kept: no store"]
    monkeypatch.undo()
    assert sent(server, {"a secret thing": 1})[1]["status"] == "started"


def test_a_disk_that_is_full_is_for_the_sender_to_try_again(server, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(disk, "create", full)
    assert sent(server, {"n": 1})[0] == 503
    assert runs(server.store) == set()


def test_what_became_of_deliveries_is_counted(server, monkeypatch):
    counted = []
    monkeypatch.setattr(server.figures, "delivery", lambda hook, status: counted.append((hook, status)))
    sent(server, {"n": 1})
    sent(server, {"n": 1})
    sent(server, {}, event="ping")
    sent(server, {"n": 2}, secret="x")
    sent(server, b"{")
    sent(server, {"n": 1}, hook="nothing")
    words = ["started", "duplicate", "pong", "forged", "refused"]
    assert counted == [("ci", word) for word in words], "a name that anybody can make up is not counted"


# One run at a time


def test_events_wait_for_each_other_unless_told_otherwise(server):
    assert [sent(server, {"n": n}, f"d-{n}")[1]["status"] for n in range(3)] == ["started"] * 3


SKIP = HOOK + 'overlap = "skip"\n'


@pytest.mark.parametrize("url", STORES)
def test_what_comes_meanwhile_is_skipped_and_said_so(tmp_path, url):
    server = live(tmp_path, url, environ=ENV, green=SKIP, red=HOOK.replace("ci", "other"))
    sent(server, {"n": 0}, hook="other")
    _, one = sent(server, {"n": 1})
    assert one["status"] == "started", "the run of another loop is no reason"
    status, two = sent(server, {"n": 2}, "d-2")
    assert status == 202
    assert two == {"run": two["run"], "status": "skipped", "why": f"{one['run']} is under way (planning)"}
    assert sent(server, {"n": 2}, "d-2")[1] == two
    ((key, record),) = said(server.store, "green").items()
    assert key.startswith("delivery/")
    assert {**record, "at": ""} == {**two, "at": ""}
    assert sent(server, {"n": 1})[1]["duplicate_of"] == one["run"]
    assert two["run"] not in runs(server.store)
    finish(server.store, one["run"])
    assert sent(server, {"n": 2}, "d-2")[1] == {"run": two["run"], "status": "started"}, "sent again by hand"
    assert said(server.store, "green") == {}


def test_of_what_was_skipped_only_so_much_is_kept(tmp_path, monkeypatch):
    monkeypatch.setattr("loopwright.serving.others.LEFT_OUT", 6)
    server = live(tmp_path, environ=ENV, green=SKIP)
    for n in range(12):
        sent(server, {"n": n}, f"d-{n}")
    kept = list(said(server.store, "green").values())
    assert len(kept) <= 6
    assert kept[-1]["run"] == sent(server, {"n": 11}, "d-11")[1]["run"]


def test_of_many_at_once_one_is_started(tmp_path):
    server = live(tmp_path, environ=ENV, green=SKIP)
    answers, gate = [], threading.Barrier(8)

    def send(n):
        gate.wait()
        answers.append(sent(server, {"n": n}, f"d-{n}")[1]["status"])

    threads = [threading.Thread(target=send, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == ["skipped"] * 7 + ["started"]
    assert len(runs(server.store)) == 1


# Killed


@pytest.mark.parametrize("moment", ["before the run", "after the run"])
def test_a_kill_leaves_no_delivery_lost_and_none_doubled(tmp_path, moment):
    live(tmp_path, environ=ENV, green=HOOK).store.close()
    readable, writable = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            begin = starts.begin

            def killed(*args, **said):
                if moment == "after the run":
                    begin(*args, **said)
                os.kill(os.getpid(), signal.SIGKILL)

            starts.begin = killed
            server = live(tmp_path, environ=ENV)
            os.write(writable, b"+" + str(sent(server, {"n": 1})).encode() + b"\n")
        finally:
            os._exit(3)
    os.close(writable)
    end = ended(pid, readable)
    assert end.killed
    assert not end.said, "it was not answered"
    (file,) = tmp_path.glob(".agent-state/artifacts/*/payload.json")
    server = live(tmp_path, environ=ENV)
    assert runs(server.store) == (set() if moment == "before the run" else {file.parent.name})
    status, answer = sent(server, {"n": 1})  # the sender got no answer and sends it again
    assert status == 202
    assert answer["run"] == file.parent.name
    assert answer["status"] == ("started" if moment == "before the run" else "duplicate")
    assert sent(server, {"n": 1})[1]["status"] == "duplicate"
    assert runs(server.store) == {file.parent.name}
    assert json.loads(file.read_bytes()) == {"n": 1}
