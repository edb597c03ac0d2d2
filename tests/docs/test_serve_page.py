"""The page about serving is typed as it stands, with a stand-in for Slack: the server runs, the buttons are pressed.

Each line of a `text` block must have been printed since the last one. Where a reader presses a button, the test sends
what Slack sends then, through the connection that the server has opened.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.extend(str(Path(__file__).parents[1] / folder) for folder in ("cli", "slack", "docs"))

from fake_slack import APP, BOT, FakeSlack
from stage import until
from test_tutorial import FENCE, SECOND, Shell, alike, commands

from loopwright.core import events as ev
from loopwright.journal import history
from loopwright.stores.sqlite import SqliteStore

PAGE = (Path(__file__).parents[2] / "docs/serve.md").read_text(encoding="utf-8")


@pytest.fixture
def slack():
    with FakeSlack().running() as fake:
        yield fake


class Night:
    """Two terminals, a stand-in for Slack, and what is on record."""

    def __init__(self, folder, slack):
        env = {
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
            "LANG": "C.UTF-8",
            "LOGNAME": "me",
        }
        self.folder, self.slack, self.seen = folder / "notes", slack, [0, 0]
        self.shells = [Shell(folder, env), Shell(folder, env)]

    def type(self, block):
        block = block.replace('mode = "socket"', f'mode = "socket", url = "{self.slack.url}"')
        block = block.replace("loopwright serve nightly.toml", "loopwright serve nightly.toml --port 0")
        block = block.replace("xoxb-…", BOT).replace("xapp-…", APP)
        shell = self.shells[1 if block.startswith(SECOND) else 0]
        for command in commands(block.removeprefix(SECOND)):
            shell.type(command)
            if not command.startswith("loopwright serve"):
                shell.ended()

    def printed(self, line):
        """Whether this was printed since the last look."""
        new = [
            line for shell, seen in zip(self.shells, self.seen, strict=True) for line in shell.printed[seen:]
        ]
        wanted = alike(re.sub(r"\d+/\?token=….*", "", line)).strip()  # another port and token each time
        return any(wanted in alike(each) for each in new)

    def expect(self, lines):
        for line in filter(None, lines.splitlines()):
            until(lambda: self.printed(line), 30)  # noqa: B023 - asked at once
        self.seen = [len(shell.printed) for shell in self.shells]

    def facts(self, kind):
        (state,) = self.folder.glob(".agent-state/loopwright.db")
        store = SqliteStore(state)
        try:
            return [
                e for run, _ in store.heads() for _, _, e, _ in history(store, run) if isinstance(e, kind)
            ]
        finally:
            store.close()

    def message(self, number):
        """The message of the request with this number."""
        until(lambda: len(self.facts(ev.ApprovalRequested)) == number)
        return until(lambda: next((m for m in self.slack.messages.values() if asks(m, number)), None))

    def press(self, payload):
        self.slack.envelope(self.socket, payload, f"e{len(self.slack.calls)}")
        self.slack.acked.get(timeout=20)


def asks(message, number):
    """Whether a message has buttons, and is the one of this request."""
    blocks = json.dumps(message["blocks"])
    return '"actions"' in blocks and f"iteration {number}" in blocks


@pytest.mark.slow
def test_from_an_empty_folder_to_an_approval_in_slack(tmp_path, slack):
    night = Night(tmp_path, slack)
    try:
        blocks = [(kind, body) for kind, body in FENCE.findall(PAGE) if kind in {"sh", "text"}]
        after_start = next(i for i, (_, body) in enumerate(blocks) if "loopwright start" in body) + 1
        for kind, body in blocks[:after_start]:
            night.type(body) if kind == "sh" else night.expect(body)
        night.socket = slack.sockets.get(timeout=30)
        night.press(slack.click(night.message(1), "revise"))
        view = slack.views.get(timeout=20)
        night.press(slack.filled(view, "from z to a"))
        night.press(slack.click(night.message(2), "approve"))
        until(lambda: night.facts(ev.RunFinished))
        assert [e.answer for e in night.facts(ev.ApprovalDecided)] == ["revise", "approve"]
        assert [e.to for e in night.facts(ev.Delivered)] == ["branch"]
        for kind, body in blocks[after_start:]:
            night.type(body) if kind == "sh" else night.expect(body)
        (branch,) = re.findall(
            r"loopwright/nightly-\S+", git(night.folder, "branch", "--list", "loopwright/*")
        )
        assert git(night.folder, "show", f"{branch}:list.txt").split() == ["plums", "pears", "apples"]
        assert (night.folder / "list.txt").read_text().split() == ["pears", "apples", "plums"]
    finally:
        for shell in night.shells:
            shell.close()


def git(folder, *args):
    return subprocess.run(["git", *args], cwd=folder, capture_output=True, text=True, check=True).stdout
