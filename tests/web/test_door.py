"""The door: names it answers to, whose browser asks, how much is taken in, what every response says."""

import socket
import threading
import time

import pytest

from loopwright.errors import ConfigError
from loopwright.unattended import Server
from loopwright.web.address import Address, check_bind
from loopwright.web.bounds import Rate


def raw(served, *lines, body=b"", close=True):
    """What the server says to exactly these lines: its status and all that follows."""
    port = served.port
    text = "\r\n".join(line.replace("PORT", str(port)) for line in lines)
    with socket.create_connection(("127.0.0.1", port), timeout=10) as sock:
        sock.sendall(
            text.encode("latin-1") + (b"\r\nConnection: close" if close else b"") + b"\r\n\r\n" + body
        )
        found = b""
        while chunk := sock.recv(65536):
            found += chunk
    return int(found.split(b" ", 2)[1]), found


@pytest.fixture(scope="module")
def bearer(served):
    return f"Authorization: Bearer {served.app.state.tokens.current()['mira']}"


GOOD = [
    "127.0.0.1:PORT",
    "localhost:PORT",
    "LOCALHOST:PORT",
    "loops.example.org",
    "loops.example.org:443",
    "Loops.Example.org",
]
BAD = [
    "evil.example",
    "127.0.0.1",
    "localhost",
    "127.0.0.1:1",
    "localhost.:PORT",
    "127.0.0.1.:PORT",
    "127.1:PORT",
    "2130706433:PORT",
    "0x7f.0.0.1:PORT",
    "0.0.0.0:PORT",
    "[::1]:PORT",
    "[::ffff:127.0.0.1]:PORT",
    "127.0.0.1:PORT.evil.example",
    "evil.example:PORT",
    "user@127.0.0.1:PORT",
    "127.0.0.1:PORT@evil.example",
    "127.0.0.1:PORT, evil.example",
    "loops.example.org.",
    "loops.example.org:80",
    "xloops.example.org",
    "loops.example.org.evil.example",
    "",
]


@pytest.mark.parametrize("host", GOOD)
def test_it_answers_to_its_names(served, bearer, host):
    assert raw(served, "GET /api/v1/loops HTTP/1.1", f"Host: {host}", bearer)[0] == 200


@pytest.mark.parametrize("host", BAD)
def test_it_answers_to_no_other_name_whatever_is_asked(served, bearer, host):
    for path in ("/api/v1/loops", "/health"):
        assert raw(served, f"GET {path} HTTP/1.1", f"Host: {host}", bearer)[0] in {400, 421}


def test_two_hosts_none_or_an_address_in_the_place_of_a_path_are_refused(served, bearer):
    one = "Host: 127.0.0.1:PORT"
    assert raw(served, "GET /api/v1/loops HTTP/1.1", one, "Host: evil.example", bearer)[0] == 400
    assert raw(served, "GET /api/v1/loops HTTP/1.1", one, one, bearer)[0] == 400
    assert raw(served, "GET /api/v1/loops HTTP/1.1", bearer)[0] == 400
    assert raw(served, "GET /api/v1/loops HTTP/1.0", bearer)[0] == 421
    for uri in (
        "http://evil.example/api/v1/loops",
        "http://127.0.0.1:PORT/api/v1/loops",
        "//evil.example/api/v1/loops",
        "*",
    ):
        assert raw(served, f"GET {uri} HTTP/1.1", one, bearer)[0] in {400, 404, 421}, uri
    forwarded = (
        "X-Forwarded-Host: evil.example",
        "Forwarded: host=evil.example",
        "X-Forwarded-For: 10.0.0.1",
    )
    assert raw(served, "GET /api/v1/loops HTTP/1.1", one, bearer, *forwarded)[0] == 200


def test_an_address_knows_its_names():
    six = Address(host="::1", port=7733)
    assert six.hosts == {"[::1]:7733", "localhost:7733"} and six.url == "http://[::1]:7733"
    everywhere = Address(host="0.0.0.0", port=80, public_url="http://loops.lan:8080")
    assert everywhere.hosts == {"localhost:80", "localhost", "127.0.0.1:80", "127.0.0.1", "loops.lan:8080"}
    assert "http://loops.lan:8080" in everywhere.origins and not everywhere.secure
    assert "0.0.0.0:80" not in everywhere.hosts
    lan = Address(host="192.168.1.5", port=7733, public_url="https://loops.example.org")
    assert lan.hosts == {"192.168.1.5:7733", "loops.example.org", "loops.example.org:443"}
    assert lan.origins == {
        "http://192.168.1.5:7733",
        "https://loops.example.org",
        "https://loops.example.org:443",
    }


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "loops.lan"])
def test_who_listens_for_others_says_so_twice(host):
    people, url = {"people": ("mira",)}, {"public_url": "https://loops.example.org"}
    for said, missing in (({}, "people"), (people, "public_url"), (url, "people")):
        with pytest.raises(ConfigError, match=missing):
            check_bind(Server(**said), host)
    check_bind(Server(**people, **url), host)
    with pytest.raises(ConfigError, match="has a path"):
        check_bind(Server(public_url="https://example.org/loops"), "127.0.0.1")
    for own in ("127.0.0.1", "127.0.0.5", "::1", "localhost"):
        check_bind(Server(), own)


@pytest.fixture(scope="module")
def cookie(served, ask):
    token = served.app.state.tokens.current()["mira"]
    answer = ask("GET", f"/?token={token}", None, follow_redirects=False)
    assert (
        answer.status_code == 303 and answer.headers["location"] == "/" and token not in str(answer.headers)
    )
    name, _, rest = answer.headers["set-cookie"].partition("=")
    assert name == f"loopwright-{served.port}"
    value, *attributes = rest.split("; ")
    assert {*attributes} >= {
        "HttpOnly",
        "SameSite=strict",
        "Path=/",
        "Secure",
    } and token not in value  # https elsewhere
    return {"cookie": f"{name}={value}"}


def test_a_token_in_the_address_becomes_a_cookie_for_one_port(served, ask, cookie):
    assert ask("GET", "/api/v1/loops", None, headers=cookie).status_code == 200
    renamed = {"cookie": cookie["cookie"].replace(str(served.port), str(served.port + 1))}
    assert ask("GET", "/api/v1/loops", None, headers=renamed).status_code == 401
    beside = {"cookie": f"a=b; loopwright-{served.port}=old; {cookie['cookie']}"}
    assert ask("GET", "/api/v1/loops", None, headers=beside).status_code == 200
    assert ask("GET", "/?token=wrong", None, follow_redirects=False).status_code == 401
    assert (
        ask("GET", "/api/v1/loops?token=" + served.app.state.tokens.current()["mira"], None).status_code
        == 401
    )
    assert ask("POST", "/?token=" + served.app.state.tokens.current()["mira"], None).status_code == 401


STOP = "/api/v1/runs/nothing/stop"  # 404 once it is let in


def test_a_cookie_alone_changes_nothing(served, ask, cookie):
    own = served.address.url
    let_in = [
        {"sec-fetch-site": "same-origin"},
        {"sec-fetch-site": "none"},
        {"origin": own},
        {"origin": "https://loops.example.org"},
        {"sec-fetch-site": "same-origin", "origin": "null"},  # a form, where nothing is told of where it was
    ]
    shut_out = [
        {},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},  # another port of this host
        {"sec-fetch-site": "cross-site", "origin": own},
        {"sec-fetch-site": "SAME-ORIGIN"},
        {"sec-fetch-site": ""},
        {"origin": "null"},
        {"origin": "http://evil.example"},
        {"origin": own + ".evil.example"},
        {"origin": own.replace("http", "https")},
        {"origin": "http://localhost"},
        {"referer": own + "/"},
        {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"},
    ]
    for method in ("POST", "DELETE", "PUT", "PATCH"):
        for more in let_in:
            assert ask(method, STOP, None, headers={**cookie, **more}).status_code in {404, 405}, more
        for more in shut_out:
            assert ask(method, STOP, None, headers={**cookie, **more}).status_code == 403, more
    assert (
        ask("POST", STOP, headers={"sec-fetch-site": "cross-site"}).status_code == 404
    )  # a token was sent along: no page can


def test_another_site_reads_nothing_with_a_cookie_and_may_only_lead_here(ask, cookie):
    def get(**more):
        headers = {name.replace("_", "-"): value for name, value in more.items()}
        return ask("GET", "/api/v1/loops", None, headers={**cookie, **headers}).status_code

    assert get() == get(sec_fetch_site="same-origin") == get(sec_fetch_site="none") == 200
    assert (
        get(sec_fetch_site="cross-site", sec_fetch_mode="navigate", sec_fetch_dest="document") == 200
    )  # a link
    for dest in ("empty", "image", "script", "iframe", "frame", "object", "embed"):
        for mode in ("cors", "no-cors", "navigate"):
            for site in ("cross-site", "same-site"):
                assert get(sec_fetch_site=site, sec_fetch_mode=mode, sec_fetch_dest=dest) == 403
    assert get(origin="http://evil.example") == get(origin="null", accept="text/event-stream") == 403


def test_no_other_site_is_ever_allowed_by_name(ask):
    for headers in ({"origin": "http://evil.example"}, {"origin": "null"}):
        for method in ("GET", "OPTIONS", "POST"):
            answer = ask(
                method, "/api/v1/loops", headers={**headers, "access-control-request-method": "POST"}
            )
            assert not [name for name in answer.headers if name.startswith("access-control")]


def test_every_response_says_what_a_browser_may_do_with_it(ask):
    seen = set()
    asked = [
        ("GET", "/health", None),
        ("GET", "/x", None),
        ("GET", "/x", "mira"),
        ("GET", "/api/v1/loops", "mira"),
        ("POST", "/api/v1/loops", "mira"),
        ("POST", STOP, "vic"),
        ("GET", "/api/v1/openapi.json", "mira"),
        ("POST", "/hooks/x", None),
        ("GET", "/?token=x", None),
    ]
    for method, path, who in asked:
        answer = ask(method, path, who)
        seen.add(answer.status_code)
        policy = answer.headers["content-security-policy"].split("; ")
        assert {
            "default-src 'self'",
            "frame-ancestors 'none'",
            "object-src 'none'",
            "base-uri 'none'",
            "form-action 'self'",
        } == {*policy}
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["cross-origin-opener-policy"] == "same-origin"
        assert answer.headers["cache-control"] == "no-store"
        assert "server" not in answer.headers
    assert seen == {200, 401, 403, 404, 405}


def test_health_says_nothing_but_that_it_answers(ask):
    assert ask("GET", "/health", None).text == "ok\n"
    assert ask("HEAD", "/health", None).content == b""


def test_a_form_of_another_page_is_no_json(ask):
    for media in (
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "application/jsonx",
        "application/problem+json",
    ):
        assert ask("POST", STOP, content=b"{}", headers={"content-type": media}).status_code == 415
    assert ask("POST", STOP, content=b"{}").status_code == 415
    for media in ("application/json", "Application/JSON; charset=utf-8"):
        assert ask("POST", STOP, content=b"{}", headers={"content-type": media}).status_code == 404
    assert ask("POST", STOP).status_code == 404  # no body, nothing to say what it is


def test_a_large_body_is_refused_before_anybody_reads_it(served, bearer):
    post = ("POST /api/v1/runs/x/stop HTTP/1.1", "Host: 127.0.0.1:PORT", "Content-Type: application/json")
    began = time.monotonic()
    assert raw(served, *post, bearer, "Content-Length: 1000001")[0] == 413  # none of it was sent
    assert time.monotonic() - began < 5
    chunk = b"10000\r\n" + b" " * 65536 + b"\r\n"
    status, _ = raw(served, *post, bearer, "Transfer-Encoding: chunked", body=chunk * 16 + b"0\r\n\r\n")
    assert status == 413
    assert raw(served, *post, bearer, "Transfer-Encoding: chunked", body=chunk * 15 + b"0\r\n\r\n")[0] in {
        404,
        422,
    }
    hook = ("POST /hooks/x HTTP/1.1", "Host: 127.0.0.1:PORT")  # where nobody is known
    assert raw(served, *hook, "Content-Length: 10000000")[0] == 413
    assert raw(served, *hook, "Transfer-Encoding: chunked", body=chunk * 16 + b"0\r\n\r\n")[0] == 413
    for length in ("-1", "1e3", "٣", "1, 2"):
        assert raw(served, *post, bearer, f"Content-Length: {length}".encode().decode("latin-1"))[0] in {
            400,
            413,
        }


def test_headers_have_a_bound(served, bearer):
    get = ("GET /api/v1/loops HTTP/1.1", "Host: 127.0.0.1:PORT", bearer)
    assert raw(served, *get, "X-Long: " + "a" * 30_000)[0] == 200
    assert raw(served, *get, "X-Long: " + "a" * 33_000)[0] in {400, 431}
    assert raw(served, *get, *(f"X-{n}: {'a' * 100}" for n in range(400)))[0] in {400, 431}
    assert raw(served, "GET /" + "a" * 70_000 + " HTTP/1.1", "Host: 127.0.0.1:PORT", bearer)[0] in {
        400,
        404,
        414,
        431,
    }


def test_a_body_that_never_ends_is_given_up(lived):
    from loopwright.web.bounds import Bounds
    from loopwright.web.server import start

    server = start(lived, port=0, bounds=Bounds(body_s=0.2, streams=1))
    try:
        post = ("POST /hooks/x HTTP/1.1", "Host: 127.0.0.1:PORT", "Content-Length: 10")
        assert raw(server, *post, body=b"half")[0] == 408
    finally:
        server.stop()


def test_wrong_tokens_are_counted_by_address_and_a_right_one_is_always_let_in(lived):
    import httpx2

    from loopwright.web.bounds import Bounds
    from loopwright.web.server import start

    server = start(lived, port=0, bounds=Bounds(wrong_tokens=5, changes=3))
    good = {"authorization": f"Bearer {server.app.state.tokens.current()['mira']}"}
    try:
        with httpx2.Client(base_url=server.address.url) as client:
            told = [
                client.get(f"/?token=wrong{n}" if n % 2 else "/x", headers={"authorization": "Bearer no"})
                for n in range(8)
            ]
            assert [answer.status_code for answer in told] == [401] * 5 + [429] * 3
            assert 0 < int(told[-1].headers["retry-after"]) <= 60
            assert client.get("/api/v1/loops", headers=good).status_code == 200
            changes = [client.post(STOP, headers=good) for _ in range(5)]
            assert [answer.status_code for answer in changes] == [404] * 3 + [429] * 2
            assert (
                changes[-1].headers["retry-after"]
                and client.get("/api/v1/loops", headers=good).status_code == 200
            )
    finally:
        server.stop()


def test_a_rate_forgets_after_a_minute_and_knows_a_bounded_number():
    now = [0.0]
    rate = Rate(2, now=lambda: now[0])
    assert [rate.wait_s("a"), rate.wait_s("a"), rate.wait_s("b")] == [0, 0, 0]
    assert rate.wait_s("a") == 60
    now[0] = 59.0
    assert rate.wait_s("a") == 1
    now[0] = 60.0
    assert rate.wait_s("a") == 0
    for n in range(10_000):
        rate.wait_s(f"address {n}")
    assert len(rate._seen) <= 4096


def test_a_link_of_another_site_is_asked_again_by_our_own_page(ask):
    """A strict cookie is not sent along with a click elsewhere; a page of ours that asks again sends it."""
    link = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
    assert 'http-equiv="refresh"' in ask("GET", "/runs/x?i=3", None, headers=link).text
    again = ask("GET", "/runs/x?i=3", None, headers={**link, "sec-fetch-site": "same-origin"})
    assert again.status_code == 401 and 'http-equiv="refresh"' not in again.text
    assert 'action="/login"' in again.text and 'value="/runs/x?i=3"' in again.text


def test_who_has_no_cookie_signs_in_and_goes_on_to_where_they_wanted(served, ask):
    token = served.app.state.tokens.current()["vic"]

    def sign_in(given, path, **headers):
        form = {"token": given, "next": path}
        more = headers or {"sec-fetch-site": "same-origin"}
        more = {name.replace("_", "-"): value for name, value in more.items()}
        return ask("POST", "/login", None, data=form, headers=more, follow_redirects=False)

    answer = sign_in(f" {token}\n", "/runs/x?i=3")
    assert (answer.status_code, answer.headers["location"]) == (303, "/runs/x?i=3")
    assert "SameSite=strict" in answer.headers["set-cookie"]
    for path in (
        "//evil.example",
        "/\\evil.example",
        "https://evil.example",
        "javascript:x",
        "",
        "x",
        "/a\r\nb: c",
    ):
        assert sign_in(token, path).headers["location"] == "/", path
    assert sign_in("wrong", "/").status_code == 401
    assert sign_in(token, "/", sec_fetch_site="cross-site").status_code == 403
    assert sign_in(token, "/", accept="*/*").status_code == 403
    for line in ('GET /x?"><script> HTTP/1.1', 'GET /"><script> HTTP/1.1'):
        told = raw(served, line, "Host: 127.0.0.1:PORT")[1]
        assert b"401" in told.partition(b"\r\n")[0] and b"<script>" not in told


def test_what_is_asked_is_in_no_log(served, ask, caplog):
    import logging

    caplog.set_level(logging.DEBUG)
    token = served.app.state.tokens.current()["mira"]
    ask("GET", f"/?token={token}", None, follow_redirects=False)
    ask("GET", f"/x?token={token}")
    assert token not in "\n".join(
        r.getMessage() for r in caplog.records if r.name.startswith(("uvicorn", "loopwright", "asyncio"))
    )


def test_a_fault_is_a_problem_without_its_inside(lived, served, ask, caplog, monkeypatch):
    from loopwright.hosts import people

    def broken(*args, **more):
        raise KeyError("a secret of the inside")

    monkeypatch.setattr(people, "inbox", broken)
    answer = ask("GET", "/api/v1/approvals")
    assert answer.status_code == 500 and answer.headers["content-type"] == "application/problem+json"
    assert "inside" not in answer.text and answer.headers["content-security-policy"]
    assert "a secret of the inside" in caplog.text


def test_there_are_no_web_sockets(served, bearer):
    up = (
        "Upgrade: websocket",
        "Connection: Upgrade",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        "Sec-WebSocket-Version: 13",
    )
    assert raw(served, "GET /x HTTP/1.1", "Host: 127.0.0.1:PORT", *up)[0] == 401
    assert raw(served, "GET /api/v1/loops HTTP/1.1", "Host: 127.0.0.1:PORT", bearer, *up)[0] == 200


def test_many_at_once_are_answered(ask):
    found = []
    threads = [
        threading.Thread(target=lambda: found.append(ask("GET", "/api/v1/loops").status_code))
        for _ in range(12)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [200] * 12


def test_a_token_that_is_none_is_neither_shown_nor_carried_on(ask):
    """Who signs in after an old address was refused would be refused by it once more."""
    for path in ("/?token=old-token-of-mira&all=1", "/loops?token=old-token-of-mira&all=1"):
        text = ask("GET", path, None).text
        assert "old-token-of-mira" not in text
        assert f'value="{path.partition("?")[0]}?all=1"' in text
