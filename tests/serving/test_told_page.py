"""Where a server says its page is: with what lets people in on a terminal alone."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess

from test_serve import loop, serving


def test_a_log_is_told_no_token(stage):
    loop(stage)
    with serving(stage) as process:
        told = ""
        for line in process.stderr:
            told += line
            if "serving nightly" in line:
                break
        process.kill()
    tokens = json.loads((stage.folder / ".agent-state/server/tokens.json").read_text())
    assert re.search(
        r"the page is at http://127\.0\.0\.1:\d+ for \w+: their tokens are in \.agent-state", told
    )
    assert tokens
    assert not any(token in told for token in tokens.values())


def test_a_person_at_a_terminal_gets_an_address_that_lets_them_in(stage):
    loop(stage)
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        stage.command("serve", "--port", "0"), cwd=stage.folder, env=stage.env, stderr=theirs
    )
    os.close(theirs)
    told = b""
    try:
        while b"serving nightly" not in told:
            told += os.read(ours, 4096)
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    (token,) = json.loads((stage.folder / ".agent-state/server/tokens.json").read_text()).values()
    assert f"/?token={token}".encode() in told
