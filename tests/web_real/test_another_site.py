"""In a real browser: what another site can do with the cookie of a person who is signed in here. Nothing, but link."""

import contextlib
import http.server
import threading

import pytest
from behind import behind
from playwright.sync_api import sync_playwright

from loopwright.web.server import start

EVIL = """<!doctype html><title>elsewhere</title>
<a id="link" href="{url}/nothing">a link</a>
<form id="form" method="post" action="{url}/api/v1/runs/{run}/stop"><button>Win</button></form>
<iframe src="{url}/api/v1/loops"></iframe><img src="{url}/api/v1/loops"><script src="{url}/api/v1/loops"></script>
"""
TRIES = """async ([url, run]) => {
  const said = [];
  for (const [path, how] of [
    ["/api/v1/loops", {}],
    ["/api/v1/loops", {mode: "no-cors"}],
    [`/api/v1/runs/${run}/stop`, {method: "POST"}],
    [`/api/v1/runs/${run}/stop`, {method: "POST", mode: "no-cors", body: "{}", headers: {"Content-Type": "text/plain"}}],
    [`/api/v1/runs/${run}/stop`, {method: "POST", body: "{}", headers: {"Content-Type": "application/json"}}],
  ]) {
    try {
      const answer = await fetch(url + path, {credentials: "include", ...how});
      said.push(answer.type);
    } catch { said.push("refused"); }
  }
  return said;
}"""


@pytest.fixture
def elsewhere():
    """A page of another site: another name of this machine."""
    pages = {}

    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(pages.get("/", "").encode())

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://localhost:{server.server_address[1]}/", pages
        server.shutdown()


@contextlib.contextmanager
def answering(live):
    """Its web server, and a run that asks."""
    run, _ = live.asks()
    server = start(live, port=0)
    try:
        yield server, run
    finally:
        server.stop()


def test_another_site_does_nothing_with_a_persons_cookie(tmp_path, elsewhere):
    url, pages = elsewhere
    with behind(tmp_path) as live, answering(live) as (server, run), sync_playwright() as play:
        browser = play.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        page = browser.new_page()
        answers = []
        page.on("response", lambda answer: answers.append((answer.request.method, answer.url, answer.status)))
        page.goto(*server.links().values())
        assert "token" not in page.url
        page.goto(server.address.url + "/api/v1/loops")
        assert "tidy" in page.content()  # signed in
        pages["/"] = EVIL.format(url=server.address.url, run=run)
        answers.clear()
        page.goto(url)
        assert page.evaluate(TRIES, [server.address.url, run]) == ["refused"] * 5
        page.click("#form button")
        page.wait_for_load_state()
        ours = [(method, status) for method, where, status in answers if where.startswith(server.address.url)]
        assert ours and {status for _, status in ours} <= {401, 403, 405}, answers
        with live.stores() as store:
            assert list(store.signals(run)) == []
        page.goto(url)
        page.click("#link")
        page.wait_for_selector("text=there is nothing at this address")  # a link leads here, signed in
        browser.close()


def test_a_person_signs_in_on_the_page_and_goes_on_to_where_a_link_led(tmp_path, elsewhere):
    url, pages = elsewhere
    with behind(tmp_path) as live, answering(live) as (server, _), sync_playwright() as play:
        browser = play.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        page = browser.new_page()
        pages["/"] = f'<a id="link" href="{server.address.url}/runs/x?i=3">a link</a>'
        page.goto(url)
        page.click("#link")
        page.fill("input[name=token]", server.app.state.tokens.current()["mira"])
        page.click("button")
        page.wait_for_url("**/runs/x?i=3")
        assert "input" not in page.content() or "token" not in page.inner_html("body")
        (cookie,) = page.context.cookies()
        assert (
            cookie["httpOnly"]
            and cookie["sameSite"] == "Strict"
            and cookie["name"] == f"loopwright-{server.port}"
        )
        browser.close()
