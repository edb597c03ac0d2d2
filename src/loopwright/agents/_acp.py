"""The bridge to an agent that speaks the Agent Client Protocol: it starts it, asks it, and tells what it hears.

A program of its own, run by file beside the agent, so that what bounds and ends a tree of processes holds for both:
`python -I _acp.py PROGRAM ARGUMENT… SETTINGS`, the prompt on stdin, JSON lines on stdout. SETTINGS is one JSON object:
`model`, `session` (to go on with), `free` (allow all), `allow` (a list of pairs: a kind of tool and a pattern), and
`looking` (commands that may have any arguments). The protocol is JSON-RPC 2.0, one message a line.

Rule: standard library only, and nothing of ours. What it does not know it neither answers with yes nor stumbles over.
"""

import contextlib
import fnmatch
import json
import os
import queue
import re
import subprocess
import sys
import threading
import time
from typing import Any

Table = dict[str, Any]

VERSION = 1  # of the protocol
LINE_BYTES = 16 << 20
CALLS = 1000  # whose kind and input are remembered
TEXT = 4000  # characters of what it says that are passed on
END_S = 3.0
AUTHENTICATE = -32000
NO_METHOD = -32601
SHELL = re.compile(r"[;&|<>$`()\n\\{}]")
LOOKS = frozenset({"read", "search", "think"})
WRITES = frozenset({"edit", "delete", "move"})


class RefusedError(Exception):
    """The agent answered with an error."""


def tell(kind: str, **fields: Any) -> None:
    """One event for whoever reads us."""
    sys.stdout.write(json.dumps({"type": kind, "timestamp": int(time.time() * 1000), **fields}) + "\n")
    sys.stdout.flush()


class Agent:
    """The agent's side of the conversation."""

    def __init__(self, argv: list[str], settings: Table) -> None:
        """Starts it."""
        self.settings = settings
        self.process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.outbox: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self.asked = 0
        self.calls: dict[str, Table] = {}
        self.replays = False
        threading.Thread(target=self.write, daemon=True).start()

    def write(self) -> None:
        """Sends what is to be sent; a large prompt must not keep us from reading."""
        assert self.process.stdin is not None
        with contextlib.suppress(OSError, ValueError):
            while True:
                self.process.stdin.write(self.outbox.get())
                self.process.stdin.flush()

    def send(self, **message: Any) -> None:
        """Puts a message on its way."""
        self.outbox.put(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    def ask(self, method: str, **params: Any) -> Table:
        """The answer to a request; all that comes before it is dealt with. Raises RefusedError for an error."""
        assert self.process.stdout is not None
        self.asked += 1
        self.send(id=self.asked, method=method, params=params)
        while line := self.process.stdout.readline(LINE_BYTES):
            if not line.endswith(b"\n"):
                while (rest := self.process.stdout.readline(LINE_BYTES)) and not rest.endswith(b"\n"):
                    pass
                continue
            try:
                message = json.loads(line)
            except ValueError:
                continue  # a word of its own that is no message
            if not isinstance(message, dict):
                continue
            if "method" in message:
                self.deal(message)
            elif message.get("id") == self.asked:
                if message.get("error"):
                    raise RefusedError(message["error"])
                found = message.get("result")
                return found if isinstance(found, dict) else {}
        code = self.process.wait()
        raise RefusedError(
            {"message": f"the agent ended (exit {code}) before it answered {method}", "exit": code}
        )

    def deal(self, message: Table) -> None:
        """Takes a message that is no answer."""
        params = message.get("params")
        params = params if isinstance(params, dict) else {}
        if message["method"] == "session/update":
            if isinstance(update := params.get("update"), dict):
                self.update(update)
        elif message.get("id") is None:
            pass
        elif message["method"] == "session/request_permission":
            self.send(id=message["id"], result={"outcome": self.permit(params)})
        else:
            error = {"code": NO_METHOD, "message": f"{message['method']} is not offered"}
            self.send(id=message["id"], error=error)

    def update(self, update: Table) -> None:
        """Passes on what matters of an update."""
        kind = update.get("sessionUpdate")
        if kind in {"tool_call", "tool_call_update"}:
            self.known(update)
        if self.replays or kind not in {
            "agent_message_chunk",
            "tool_call",
            "tool_call_update",
            "usage_update",
        }:
            return
        kept = (
            "sessionUpdate",
            "toolCallId",
            "kind",
            "title",
            "status",
            "used",
            "cost",
            "_meta",
            "messageId",
        )
        short = {key: update[key] for key in kept if key in update}
        if kind == "agent_message_chunk" and isinstance(content := update.get("content"), dict):
            text = content.get("text")
            short["content"] = {
                "type": content.get("type"),
                "text": text[:TEXT] if isinstance(text, str) else "",
            }
        for key, inner in (("rawInput", ("command", "filePath", "path")), ("rawOutput", ("error",))):
            if isinstance(raw := update.get(key), dict):
                short[key] = {name: raw[name][:TEXT] for name in inner if isinstance(raw.get(name), str)}
        tell("update", update=short)

    def known(self, call: Table) -> Table:
        """What is known of a call, with what this message adds."""
        found = self.calls.pop(str(call.get("toolCallId")), {})
        found.update({key: value for key, value in call.items() if value})
        self.calls[str(call.get("toolCallId"))] = found
        if len(self.calls) > CALLS:
            self.calls.pop(next(iter(self.calls)))
        return found

    def permit(self, params: Table) -> Table:
        """The answer to a request for permission."""
        call = params.get("toolCall")
        call = self.known(call if isinstance(call, dict) else {})
        denied = "" if self.settings.get("free") else denial(call, self.settings)
        wanted = ("reject_once", "reject_always") if denied else ("allow_once", "allow_always")
        options = params.get("options")
        options = [o for o in options if isinstance(o, dict)] if isinstance(options, list) else []
        if denied:
            tell("denied", what=denied)
        for kind in wanted:
            for option in options:
                if option.get("kind") == kind:
                    return {"outcome": "selected", "optionId": option.get("optionId")}
        return {"outcome": "cancelled"}


def denial(call: Table, settings: Table) -> str:
    """What may not be done, as `allow` would let it; empty for what may be done."""
    kind = str(call.get("kind") or "other")
    what = subject(call, kind)
    for allowed, pattern in settings.get("allow", []):
        if allowed == kind and (pattern is None or fits(what, pattern, kind)):
            return ""
    if kind in LOOKS:
        return ""
    if kind in WRITES:
        paths = places(call)
        if paths and all(inside(path) for path in paths):
            return ""
    if (
        kind == "execute" and not SHELL.search(what) and " --ou" not in what
    ):  # git writes to what --output names
        for looking in settings.get("looking", []):
            if what == looking or what.startswith(f"{looking} "):
                return ""
    return f"{kind}({what})" if what else kind


def fits(what: str, pattern: str, kind: str) -> bool:
    """Whether a pattern lets this: a command with a `*` in it lets no shell syntax in the place of the star."""
    if what == pattern:
        return True
    return (
        "*" in pattern
        and fnmatch.fnmatchcase(what, pattern)
        and not (kind == "execute" and SHELL.search(what))
    )


def subject(call: Table, kind: str) -> str:
    """What a call is about: its command, else where it works, else its title."""
    raw = call.get("rawInput")
    command = raw.get("command") if isinstance(raw, dict) else None
    if isinstance(command, list):
        command = " ".join(map(str, command))
    if kind == "execute" or command:
        return str(command or call.get("title") or "")[:TEXT].strip()
    paths = places(call)
    return str(paths[0] if paths else call.get("title") or "")[:TEXT]


def places(call: Table) -> list[str]:
    """The paths that a call names."""
    found = call.get("locations")
    listed = [item.get("path") for item in found if isinstance(item, dict)] if isinstance(found, list) else []
    raw = call.get("rawInput")
    named = [raw.get(key) for key in ("filePath", "file_path", "path")] if isinstance(raw, dict) else []
    content = call.get("content")
    diffs = (
        [item.get("path") for item in content if isinstance(item, dict)] if isinstance(content, list) else []
    )
    return [path for path in (*listed, *named, *diffs) if isinstance(path, str) and path]


def inside(path: str) -> bool:
    """Whether a path is in the working folder, through whatever links."""
    here = os.path.realpath(".")
    return os.path.commonpath([here, os.path.realpath(path)]) == here


def choose_model(agent: Agent, session: str, found: Table) -> None:
    """Asks for the model, the way this agent takes it."""
    model = agent.settings.get("model")
    if not model:
        return
    options = found.get("configOptions")
    for option in options if isinstance(options, list) else []:
        if isinstance(option, dict) and option.get("category") == "model":
            agent.ask("session/set_config_option", sessionId=session, configId=option.get("id"), value=model)
            return
    agent.ask("session/set_model", sessionId=session, modelId=model)


def open_session(agent: Agent, able: Table) -> tuple[str, Table]:
    """The session to work in: the one to go on with where the agent can, else a new one."""
    where = {"cwd": os.path.realpath("."), "mcpServers": []}
    before = agent.settings.get("session")
    kinds = able.get("sessionCapabilities")
    resumes = isinstance(kinds, dict) and "resume" in kinds
    if before and (resumes or able.get("loadSession")):
        agent.replays = True
        try:
            found = agent.ask("session/resume" if resumes else "session/load", sessionId=before, **where)
        except RefusedError as error:
            if isinstance(error.args[0], dict) and error.args[0].get("code") != AUTHENTICATE:
                tell("gone", session=before)
            raise
        agent.replays = False
        return before, found
    found = agent.ask("session/new", **where)
    return str(found.get("sessionId")), found


def converse(agent: Agent, prompt: str) -> None:
    """The whole conversation: one prompt, and what came of it."""
    said = agent.ask(
        "initialize",
        protocolVersion=VERSION,
        clientCapabilities={"fs": {"readTextFile": False, "writeTextFile": False}, "terminal": False},
        clientInfo={"name": "loopwright", "version": "1"},
    )
    info, able = said.get("agentInfo"), said.get("agentCapabilities")
    tell("agent", info=info if isinstance(info, dict) else {})
    session, found = open_session(agent, able if isinstance(able, dict) else {})
    tell("session", session=session)
    choose_model(agent, session, found)
    answer = agent.ask("session/prompt", sessionId=session, prompt=[{"type": "text", "text": prompt}])
    kept = ("stopReason", "usage", "_meta")
    tell("result", **{key: answer[key] for key in kept if key in answer})


def main() -> None:
    """Runs the agent that the command line names; the exit code is 0 when it answered."""
    *argv, settings = sys.argv[1:]
    prompt = sys.stdin.buffer.read().decode(errors="replace")
    try:
        agent = Agent(argv, json.loads(settings))
    except OSError as error:
        sys.exit(f"{argv[0]}: command not found ({error.strerror})")
    code = 0
    try:
        converse(agent, prompt)
    except RefusedError as error:
        tell("result", error=error.args[0])
        code = 1
    agent.process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        agent.process.wait(END_S)
    os._exit(code)  # the thread that writes may wait for ever


if __name__ == "__main__":
    main()
