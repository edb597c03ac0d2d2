"""Agents do not decide: not with a token that they found, not from a process that forgot where it comes from."""

import subprocess
import sys
from contextlib import closing

import pytest

from loopwright.around import UnseenError, run_of, run_of_peer
from loopwright.codec import decode_signal
from loopwright.core.events import Noticed

CLIENT = """
import http.client, json, sys
port, path, token, body = sys.argv[1:]
link = http.client.HTTPConnection("127.0.0.1", int(port), timeout=20)
link.request("POST", path, body, {"Authorization": "Bearer " + token, "Content-Type": "application/json"})
answer = link.getresponse()
print(json.dumps([answer.status, json.loads(answer.read())]))
"""


@pytest.fixture
def asked(live):
    from loopwright.web.server import start

    server = start(live, port=0)
    run, request = live.asks()
    yield server, run, request
    server.stop()


def post(server, path, body, *before, env):
    """A POST with the right token of a process of its own, started through `before`."""
    token = server.app.state.tokens.current()["mira"]
    argv = [*before, sys.executable, "-IS", "-c", CLIENT, str(server.port), path, token, body]
    import json

    return json.loads(subprocess.run(argv, env=env, capture_output=True, text=True, check=True).stdout)


def noticed(live, run):
    with live.stores() as store:
        found = [
            decode_signal(run, key, record)
            for key, record in store.signals(run)
            if key.startswith("noticed/")
        ]
    return [event for event in found if isinstance(event, Noticed)]


INSIDE = {"LOOPWRIGHT_RUN": "tidy-wxyz", "PATH": "/usr/bin:/bin"}
FORGETS = ("sh", "-c", 'env -u LOOPWRIGHT_RUN "$@"; :', "sh")


@pytest.mark.parametrize("before", [(), FORGETS])
def test_a_process_of_a_run_answers_nothing_and_that_is_on_record(live, asked, before):
    server, run, request = asked
    path = f"/api/v1/runs/{run}/approvals/{request}/decision"
    for _ in range(2):
        status, said = post(server, path, '{"answer": "approve"}', *before, env=INSIDE)
        assert status == 403 and "tidy-wxyz" in said["detail"] and "agents do not decide" in said["detail"]
    (event,) = noticed(live, run)
    assert event.approval == request and event.channel == "page"
    assert "a process of run tidy-wxyz tried to answer as mira" in event.problem
    with live.stores() as store:
        assert not [key for key, _ in store.signals(run) if key.startswith("decision/")]
    assert live.go(run).approval.id == request  # it is still asked, and the attempt is in the journal now
    with live.stores() as store:
        assert b"tried to answer as mira" in b"".join(line for _, line in store.read(run))


def test_a_process_of_a_run_steers_nothing_and_starts_nothing(live, asked):
    server, run, _ = asked
    paths = [f"/api/v1/runs/{run}/{what}" for what in ("stop", "pause", "resume", "ask-again")]
    for path in (*paths, "/api/v1/loops/tidy/start"):
        assert post(server, path, "{}", env=INSIDE)[0] == 403
    assert [run for run, _ in live.store.heads()] == [run]


def test_a_person_on_this_machine_answers(live, asked):
    server, run, request = asked
    path = f"/api/v1/runs/{run}/approvals/{request}/decision"
    status, said = post(server, path, '{"answer": "approve"}', env={"PATH": "/usr/bin:/bin"})
    assert (status, said["word"], said["by"], said["channel"]) == (200, "recorded", "mira", "page")
    assert live.go(run).finished.reason == "quality_reached" and not noticed(live, run)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_the_other_end_of_a_connection_is_found(host):
    import socket

    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    if family == socket.AF_INET6 and not _has_six():
        pytest.skip("there is no IPv6 here")
    with closing(socket.socket(family)) as server:
        server.bind((host, 0))
        server.listen()
        code = f"import socket, sys; s = socket.create_connection(({host!r}, {server.getsockname()[1]})); sys.stdin.read()"
        for env, run in ((INSIDE, "tidy-wxyz"), ({}, None)):
            with subprocess.Popen(
                [sys.executable, "-IS", "-c", code], env=env, stdin=subprocess.PIPE
            ) as process:
                link, peer = server.accept()
                with link:
                    here = link.getsockname()
                    assert run_of_peer(here[:2], peer[:2]) == run == run_of(process.pid)
                    assert run_of_peer(here[:2], (peer[0], peer[1] ^ 1)) is None
                    with pytest.raises(UnseenError):
                        run_of_peer(here[:2], peer[:2], within_s=-1)  # no time to look
                process.stdin.close()
    assert run_of_peer(("127.0.0.1", 1), ("no address", 2)) is None


def _has_six():
    import socket

    try:
        with closing(socket.socket(socket.AF_INET6)) as sock:
            sock.bind(("::1", 0))
    except OSError:
        return False
    return True


HIDES = """
import array, socket, sys
port, path, token, body = sys.argv[1:]
link = socket.create_connection(("127.0.0.1", int(port)))
head = [f"POST {path} HTTP/1.1", f"Host: 127.0.0.1:{port}", "Authorization: Bearer " + token]
head += ["Content-Type: application/json", f"Content-Length: {len(body)}", "Connection: close", "", ""]
one, other = socket.socketpair(socket.AF_UNIX)
copy = link.dup()
text = "\\r\\n".join(head).encode()
link.sendall(text[:-1])
one.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [link.fileno()]))])
link.sendall(text[-1:])
link.close(), copy.close()
import time
time.sleep(1)
_, ancillary, _, _ = other.recvmsg(1, 64)
link = socket.socket(fileno=array.array("i", ancillary[0][2])[0])
link.sendall(body.encode())
print(link.recv(4000).split(b" ")[1].decode())
"""


def test_a_connection_that_nobody_holds_for_a_moment_decides_nothing(live, asked):
    """On its way through another socket it is in no table of a process."""
    server, run, _ = asked
    token = server.app.state.tokens.current()["mira"]
    argv = [sys.executable, "-IS", "-c", HIDES, str(server.port), f"/api/v1/runs/{run}/stop", token, "{}"]
    found = subprocess.run(argv, env=INSIDE, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "403"
