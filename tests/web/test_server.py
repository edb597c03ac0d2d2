"""The server in its thread: it begins, it stops at once, and says no to what it cannot do."""

import asyncio
import contextlib
import os
import socket
import stat
import threading
import time

import httpx2
import pytest
from starlette.responses import StreamingResponse

from loopwright.errors import ConfigError
from loopwright.web.bounds import Bounds
from loopwright.web.server import start


@pytest.fixture
def streaming(live):
    server = start(live, port=0, bounds=Bounds(streams=2))
    ended, more = [], asyncio.Event()

    @server.app.get("/stream")
    async def stream():
        async def lines():
            try:
                while True:
                    yield "data: x\n\n"
                    await more.wait()
                    more.clear()
            finally:
                ended.append(1)

        return StreamingResponse(lines(), media_type="text/event-stream")

    @server.app.get("/more")
    async def further():
        more.set()

    yield server, ended
    server.stop()


def until(holds):
    end = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.005)


def client(server):
    token = server.app.state.tokens.current()["mira"]
    return httpx2.Client(
        base_url=server.address.url, headers={"authorization": f"Bearer {token}"}, timeout=20
    )


def test_it_is_gone_within_a_second_with_streams_open(streaming, caplog):
    server, ended = streaming
    half = socket.create_connection(("127.0.0.1", server.port))  # and somebody who never says all
    half.sendall(
        f"POST /hooks/x HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nContent-Length: 9\r\n\r\nab".encode()
    )
    with client(server) as one, one.stream("GET", "/stream") as first, one.stream("GET", "/stream") as second:
        heard = [first.iter_raw(), second.iter_raw()]  # kept: one that is forgotten hangs up
        assert [next(each) for each in heard] == [b"data: x\n\n"] * 2
        began = time.monotonic()
        server.stop()
        assert time.monotonic() - began < 0.8
        assert [next(each, b"") for each in heard] == [b"", b""]  # told that this was all, not cut off
    half.close()
    assert ended == [1, 1]
    assert not caplog.records
    assert not [thread for thread in threading.enumerate() if thread.name == "loopwright-web"]
    with pytest.raises(OSError), socket.create_connection(("127.0.0.1", server.port), timeout=5):
        pass
    server.stop()  # once more is nothing


def test_what_uvicorn_says_is_in_our_log_and_noise_from_the_network_is_not(live, caplog, capfd):
    server = start(live, port=0)

    @server.app.get("/broken")
    def broken():
        def lines():
            yield "one"
            raise ValueError("afterwards")

        return StreamingResponse(lines())

    with socket.create_connection(("127.0.0.1", server.port)) as sock:
        sock.sendall(b"\x00\xff no request\r\n\r\n")
        assert sock.recv(100).startswith(b"HTTP/1.1 400")
    assert not caplog.records
    with client(server) as one, pytest.raises(httpx2.RemoteProtocolError):
        one.get("/broken")
    until(lambda: caplog.records)
    assert "afterwards" in caplog.text
    server.stop()
    assert capfd.readouterr() == ("", "")


def test_streams_have_a_bound_and_their_places_are_given_back(streaming):
    server, _ = streaming
    with client(server) as one:
        with one.stream("GET", "/stream") as first, one.stream("GET", "/stream") as second:
            heard = [first.iter_raw(), second.iter_raw()]  # kept: one that is forgotten hangs up
            assert all(next(each) for each in heard)
            full = one.get("/stream")
            assert full.status_code == 503 and full.headers["retry-after"] == "10"
            assert one.get("/api/v1/loops").status_code == 200
        until(lambda: not server.app.state.streams.open)
        with one.stream("GET", "/stream") as again:
            assert again.status_code == 200


def test_a_new_token_ends_the_streams_of_the_old_one(streaming):
    server, ended = streaming
    with client(server) as one, one.stream("GET", "/stream") as stream:
        heard = stream.iter_raw()
        assert next(heard) == b"data: x\n\n"
        assert one.get("/more").status_code == 200 and next(heard) == b"data: x\n\n"  # it goes on
        server.app.state.tokens.rotate("mira")
        with client(server) as again:
            assert again.get("/more").status_code == 200
        assert next(heard, b"") == b""  # what came after it is not said
    until(lambda: ended and not server.app.state.streams.open)


def test_a_stream_of_another_site_is_none(streaming):
    server, _ = streaming
    token = server.app.state.tokens.current()["mira"]
    with httpx2.Client(base_url=server.address.url) as browser:
        assert browser.get(f"/?token={token}").status_code == 303
        for site in ("cross-site", "same-site"):
            headers = {
                "sec-fetch-site": site,
                "sec-fetch-mode": "cors",
                "sec-fetch-dest": "empty",
                "accept": "text/event-stream",
            }
            assert browser.get("/stream", headers=headers).status_code == 403
        with browser.stream("GET", "/stream", headers={"sec-fetch-site": "same-origin"}) as own:
            assert own.status_code == 200


def test_what_takes_long_does_not_keep_it(live):
    server = start(live, port=0)
    here, go = threading.Event(), threading.Event()

    @server.app.get("/slow")
    def slow():
        here.set()
        go.wait(20)

    with client(server) as one:
        waiting = threading.Thread(target=lambda: _ignored(lambda: one.get("/slow")))
        waiting.start()
        assert here.wait(10)
        began = time.monotonic()
        server.stop()
        assert time.monotonic() - began < 1
        go.set()
        waiting.join()


def _ignored(call):
    with contextlib.suppress(httpx2.HTTPError):
        call()


def test_links_let_their_people_in_and_nobody_else(live):
    server = start(live, port=0)
    try:
        (link,) = server.links().values()
        assert link.startswith(f"http://127.0.0.1:{server.port}/?token=")
        with httpx2.Client() as browser:
            assert browser.get(link).headers["set-cookie"].startswith(f"loopwright-{server.port}=")
            assert browser.get(server.address.url + "/api/v1/loops").status_code == 200
            server.app.state.tokens.rotate("mira")
            assert browser.get(server.address.url + "/api/v1/loops").status_code == 401  # at once
            assert browser.get(link).status_code == 401
    finally:
        server.stop()


def test_it_does_not_begin_where_it_cannot_be_safe(live):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(ConfigError, match="cannot listen"):
            start(live, port=taken.getsockname()[1])
    with pytest.raises(ConfigError, match="public_url"):
        start(live, host="0.0.0.0", port=0)
    start(live, port=0).stop()
    file = live.project / ".agent-state/server/tokens.json"
    file.chmod(0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        start(live, port=0)
    assert stat.S_IMODE(file.stat().st_mode) == 0o644  # said, not mended behind a person's back
    assert os.listdir(live.project / ".agent-state/server")


def test_a_socket_that_is_given_is_used(live):
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    sock.bind(("127.0.0.1", 0))
    port = sock.getsockname()[1]
    server = start(live, sock=sock)
    try:
        with client(server) as one:
            assert server.port == port and one.get("/health").text == "ok\n"
    finally:
        server.stop()
