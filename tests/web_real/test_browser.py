"""The page in a real browser, before a real server: start, watch, send back, approve; without a script as well.

Pictures for the docs are taken anew with LOOPWRIGHT_PICTURES=1.
"""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import scene
from pictures import small
from playwright.sync_api import expect, sync_playwright

HERE = Path(__file__).parent
PICTURES = HERE.parents[1] / "docs/img"
CHROMIUM = "/usr/bin/chromium"
AGENT = """\
import json, os, time
n = int(os.environ["LOOPWRIGHT_ITERATION"])
here = os.path.dirname(os.path.abspath(__file__))
end = time.monotonic() + 60
while time.monotonic() < end and int(open(os.path.join(here, "allowed")).read() or 0) < n:
    time.sleep(0.02)
open("work.txt", "w").write(f"work of {n}\\n")
json.dump({"score": [0.3, 0.6, 1.0][min(n, 3) - 1]}, open("score.json", "w"))
print("\\x1b[31mred\\x1b[0m <b>not bold</b>")
print(json.dumps({"type": "result", "summary": f"did {n} <script>alert(1)</script>", "cost_usd": 0.25}))
"""
LOOP = """\
name = "mend"
goal = "Mend <i>everything</i>"
agent = {{ use = "command", run = "python3 {agent}" }}

[[gate]]
use = "score"
name = "depth"
run = "cat score.json"
mark = 1.0

[limits]
max_iterations = 6
budget = 5.0
reserve = 0.25
convergence = false

[approval]
when = "passed"
"""


def git(folder, *words):
    who = ("-c", "user.name=s", "-c", "user.email=s@example.invalid")
    subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True)


class Place:
    """A project, and the server before it."""

    def __init__(self, folder):
        self.folder = folder / "work"
        self.folder.mkdir()
        self.tools = folder / "tools"
        self.tools.mkdir()
        (self.tools / "agent.py").write_text(AGENT)
        self.allow(0)
        (self.folder / "score.json").write_text('{"score": 0.1}')
        (self.folder / "mend.toml").write_text(LOOP.format(agent=self.tools / "agent.py"))
        git(self.folder, "init", "-q")
        git(self.folder, "add", ".")
        git(self.folder, "commit", "-qm", "begin")
        self.process, self.link, self.port = None, "", "0"

    def allow(self, n):
        """Lets the agent go up to this iteration."""
        new = self.tools / "allowed.new"
        new.write_text(str(n))
        new.rename(self.tools / "allowed")

    def serve(self):
        words = ["serve", "mend.toml", "--port", self.port]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "loopwright", *words],
            cwd=self.folder,
            env={**os.environ, "USER": "mira", "LOGNAME": "mira"},
            stderr=subprocess.PIPE,
            text=True,
        )
        told = []
        for line in self.process.stderr:
            told.append(line)
            if found := re.search(r"the page is at (\S+) for mira:", line):
                tokens = json.loads((self.folder / ".agent-state/server/tokens.json").read_text())
                self.link = f"{found[1]}/?token={tokens['mira']}"
                break
        assert self.link, told
        self.port = self.link.split(":")[2].split("/")[0]
        self.rest = threading.Thread(target=self.process.stderr.read, daemon=True)  # it is never held up
        self.rest.start()

    def stop(self):
        """Ends the server; the seconds it took."""
        began = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(30) == 143
        took = time.monotonic() - began
        self.rest.join(5)
        self.process.stderr.close()
        return took

    @property
    def base(self):
        return self.link.partition("/?")[0]


@pytest.fixture
def place(tmp_path):
    made = Place(tmp_path)
    made.serve()
    yield made
    if made.process.poll() is None:
        made.allow(100)
        made.stop()


@pytest.fixture(scope="module")
def chromium():
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


def looked(context, problems):
    """A page that notes what it complains about, and every request that leaves the server."""
    page = context.new_page()
    page.on("console", lambda m: problems.append(m.text) if m.type == "error" else None)
    page.on("pageerror", lambda e: problems.append(str(e)))
    return page


def dots(page):
    return page.locator("#chart circle.dot")


def test_a_run_from_its_start_to_its_approval(place, chromium):
    problems, elsewhere = [], []
    context = chromium.new_context(viewport={"width": 1280, "height": 900})
    page = looked(context, problems)
    page.on("request", lambda r: None if r.url.startswith(place.base) else elsewhere.append(r.url))
    page.on("dialog", lambda d: problems.append(f"dialog {d.message}"))
    page.goto(place.link)
    expect(page.get_by_role("heading", name="No run is active")).to_be_visible()
    page.get_by_role("button", name="Start mend").click()
    expect(page.get_by_role("status").filter(has_text="is started")).to_be_visible()
    run = page.url.partition("/runs/")[2].partition("?")[0]

    page.evaluate("window.mark = 'the same page'")
    expect(dots(page)).to_have_count(1)  # the baseline, pushed
    for n in (1, 2):
        place.allow(n)
        expect(dots(page)).to_have_count(n + 1)
        expect(page.locator("#matrix tbody tr").filter(has_text=f"#{n}").first).to_contain_text(
            ["0.30", "0.60"][n - 1]
        )
    expect(page.locator("#health")).to_contain_text("this server works on it")
    place.allow(3)
    expect(page.locator("#ask")).to_contain_text("Approval needed")
    expect(page.locator("#ask")).to_contain_text("did 3 <script>alert(1)</script>")
    expect(page.locator("#log pre")).to_contain_text("red <b>not bold</b>")
    assert page.evaluate("window.mark") == "the same page"

    # What is typed stays while the page is brought up to date.
    page.get_by_text("Send back with feedback").click()
    feedback = page.locator("#ask form").filter(has_text="the agent reads it").locator("textarea[name=note]")
    feedback.fill("use fewer words & <keep> them")
    page.wait_for_timeout(5500)
    assert feedback.input_value() == "use fewer words & <keep> them"
    page.get_by_role("button", name="Send back", exact=True).click()
    expect(page.get_by_role("status").filter(has_text="sent back by mira (page)")).to_be_visible()
    place.allow(4)
    expect(page.locator("#ask")).to_contain_text("number 2")
    prompt = place.folder / f".agent-state/artifacts/{run}/0004/attempt-1/prompt.md"
    assert "use fewer words & <keep> them" in prompt.read_text()

    keys = page.locator("#ask [accesskey]").evaluate_all("all => all.map(each => each.accessKey)")
    assert keys == ["a", "n", "f", "x"]
    page.locator("#ask [accesskey=a]").press("Enter")
    expect(page.get_by_role("status").filter(has_text="approved by mira (page)")).to_be_visible()
    expect(page.locator("#head .pill")).to_contain_text("passed: quality reached")
    audit = page.locator("#audit")
    expect(audit).to_contain_text("mira sent it back (page): “use fewer words & <keep> them”")
    expect(audit).to_contain_text("mira approved it (page)")
    page.goto(f"{place.base}/")
    expect(page.get_by_role("heading", name="No run is active")).to_be_visible()
    page.goto(f"{place.base}/?since=12h")
    expect(page.locator("#runs")).to_contain_text("1 passed")
    assert not problems and not elsewhere, (problems, elsewhere)
    context.close()


def test_without_a_script_everything_can_be_done(place, chromium):
    context = chromium.new_context(java_script_enabled=False, viewport={"width": 390, "height": 844})
    page = context.new_page()
    place.allow(100)
    page.goto(place.link)
    page.goto(f"{place.base}/loops")
    page.get_by_label("key").fill("once")
    page.get_by_role("button", name="Start a run").click()
    run = page.url.partition("/runs/")[2].partition("?")[0]
    end = time.monotonic() + 30
    while not page.get_by_role("button", name="Approve a").count():
        assert time.monotonic() < end
        page.reload()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.get_by_role("button", name="Approve a").click()
    expect(page.get_by_role("status")).to_contain_text("approved by mira (page)")
    while "passed: quality reached" not in page.locator("#head .pill").inner_text():
        assert time.monotonic() < end
        page.reload()
    page.goto(f"{place.base}/loops")
    page.get_by_label("key").fill("once")
    page.get_by_role("button", name="Start a run").click()
    expect(page.get_by_role("status")).to_contain_text("was started with this key before")
    assert run in page.url
    context.close()


def test_a_server_that_ends_is_missed_and_found_again(place, chromium):
    context = chromium.new_context()
    page = looked(context, [])
    page.goto(place.link)
    page.goto(f"{place.base}/loops")
    page.get_by_role("button", name="Start a run").click()
    expect(dots(page)).to_have_count(1)
    expect(page.locator(".lost")).to_be_hidden()
    assert place.stop() < 5  # with a stream open
    expect(page.locator(".lost")).to_be_visible(timeout=15_000)
    place.allow(1)
    place.serve()
    expect(page.locator(".lost")).to_be_hidden(timeout=20_000)
    expect(dots(page)).to_have_count(2, timeout=20_000)
    context.close()


def test_pictures(tmp_path, chromium):
    """Every page at every size and in both colours: nothing is wider than the screen. Kept for the docs on demand."""
    keep = os.environ.get("LOOPWRIGHT_PICTURES") == "1"
    work = scene.project(tmp_path / "scene")
    scene.play(work)
    served = scene.served(work)
    try:
        link = served.links()["mira"]
        base = link.partition("/?")[0]
        for wide, high in ((1280, 1500), (390, 1300)):
            for colours in ("light", "dark"):
                context = chromium.new_context(viewport={"width": wide, "height": high}, color_scheme=colours)
                problems = []
                page = looked(context, problems)
                blank = context.new_page()
                page.goto(link)
                for name, path in (("run", "/runs/fix-flaky-tests-7qkd"), ("list", "/?all=1"), ("inbox", "/approvals"), ("loops", "/loops")):  # fmt: skip
                    page.goto(base + path)
                    expect(page.locator("main")).to_be_visible()
                    page.wait_for_timeout(900)  # what the stream brings
                    assert page.evaluate("document.documentElement.scrollWidth") <= wide, (name, wide)
                    if keep and name != "loops":
                        tall = page.evaluate("Math.ceil(document.body.getBoundingClientRect().bottom)")
                        clip = {"x": 0, "y": 0, "width": wide, "height": min(high, tall)}
                        picture = page.screenshot(clip=clip)
                        (PICTURES / f"{name}-{wide}-{colours}.png").write_bytes(small(blank, picture))
                assert not problems, problems
                context.close()
    finally:
        served.stop()
