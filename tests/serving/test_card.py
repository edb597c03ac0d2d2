"""Cards: what they say of a run, how much of it, and none of its secrets."""

import json
import os
import subprocess
from dataclasses import asdict

import pytest

from loopwright import Loop, run
from loopwright.channels import _mail, _words, webhook
from loopwright.journal import Journal
from loopwright.serving.card import Source, of_news, of_request
from loopwright.stores.opened import open_store

SECRETS = {
    "SERVICE_TOKEN": "cnry7Hq2ZkP9wL4x",
    "MAIL_PASS": "cnryMailPass88",  # not by its name: a channel is told it
    "DEPLOY": "cnryDeploy4711",  # not by its name: the loop lets it through
}
MADE = ["ghp_" + "Cn0r" * 9, "xoxb-" + "12345-cnry-" * 3]
AGENT = """
import json, os
said = " ".join([*(os.environ.get(n, n) for n in ("SERVICE_TOKEN", "MAIL_PASS", "DEPLOY")), {!r}])
open("work.txt", "a").write(said + "\\x1b[31m\\u202e\\n")
open("zeros.txt", "w").write("a line of work\\n" * 4000)
print(json.dumps({{"type": "result", "summary": said + "\\x1b]0;title\\x07" + "x" * 3000}}))
""".format(" ".join(MADE))


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def store(project):
    store = open_store("sqlite:///s.db", project)
    yield store
    store.close()


def test_a_card_holds_no_secret_and_nothing_that_drives_a_terminal(project, store, monkeypatch):
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    subprocess.run(["git", "init", "--quiet", str(project)], check=True)
    (project / ".gitignore").write_text("s.db*\n")
    (project.parent / "agent.py").write_text(AGENT)
    mail = {"use": "email", "to": ["a@example.org"], "sender": "l@example.org"}
    loop = Loop(
        f"Say {SECRETS['SERVICE_TOKEN']}",
        name="lorem",
        agent={
            "use": "command",
            "run": "python3 ../agent.py",
            "env": ["SERVICE_TOKEN", "DEPLOY"],
        },
        gates=[
            {"use": "command", "run": "true", "name": "must"},
            {"use": "command", "run": "false", "required": False},
        ],
        approval={"when": "passed", "channels": [{**mail, "user": "MAIL_USER", "password": "MAIL_PASS"}]},
        store="sqlite:///s.db",
    )
    assert run(loop, "r").reason == "approval_requested"
    approval = Journal(store, "r").state.approval.id
    source = Source(project=project, environ=dict(os.environ), public_url="https://x.org")
    card = of_request(store, "r", approval, source)
    assert (card.loop, card.about, card.approval) == ("lorem", "needs_you", approval)
    assert card.link == f"https://x.org/runs/r/approvals/{approval}"
    assert (card.files, card.added, card.removed, card.cut) == (2, 4001, 0, True)
    assert card.required == ("must",)
    assert 30_000 < len(card.patch.encode()) <= 40_000
    assert card.patch.endswith("+a line of work\n")
    drawn = [
        json.dumps(asdict(card), default=str, ensure_ascii=False),
        _words.text(card),
        _mail.page(card, card.link),
        webhook.payload(card).decode(),
    ]
    for text in drawn:
        assert not [value for value in (*SECRETS.values(), *MADE) if value in text]
        assert not {"\x1b", "\u202e", "\x07"} & set(text)
    assert "[redacted:SERVICE_TOKEN]" in card.shown.summary
    assert "[redacted:MAIL_PASS]" in card.patch
    assert "\\u001b[31m\\u202e" in card.patch
    assert "must ✓ 1.00\n" in drawn[1]
    assert "✗ 0.00 (advisory)" in drawn[1]


def test_news_say_how_it_ended(project, store):
    def agent(attempt):
        return "x"

    run(Loop("g", agent=agent, gates=[lambda _: True], store="sqlite:///s.db"), "r")
    state = Journal(store, "r").state
    key = f"quality_reached-{state.iteration}-{state.totals.attempts}"
    source = Source(project=project, environ={})
    card = of_news(store, "r", "finished", source, key=key)
    assert card.title == "r is done: quality_reached after 1 iteration, best score 1.00"
    assert (card.approval, card.shown, card.link, card.files) == (None, None, None, None)
    assert card.head["phase"] == "complete"
    assert of_news(store, "r", "failed", source, key=key) is None
    assert of_request(store, "r", "nothing", source) is None
