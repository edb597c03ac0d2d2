"""A scripted, offline stand-in for LLM HTTP APIs, to drive real agents and clients against (README.md).

Rule: it binds to 127.0.0.1 only and uses the standard library only. A turn of the script says what to answer, or which
failure to act out: an HTTP error, a delay, a hang, a dropped connection, an error in mid-stream.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import re
import socket
import struct
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

sys.path.append(str(Path(__file__).parent))

from fake_script import Asked, Script, asked
from fake_wire import RENDER, api_of, error_body, in_stream_error

KEPT = re.compile(r"(?i)user-agent|x-stainless-retry|anthropic-|x-app|session|x-session|originator|x-claude")
LOGINS = {"x-api-key": "x-api-key", "authorization": "bearer", "x-goog-api-key": "x-goog-api-key"}


class Answering(BaseHTTPRequestHandler):
    """One connection of a client."""

    protocol_version = "HTTP/1.1"
    server: Fake

    def log_message(self, *_: Any) -> None:
        pass

    def reply(self, status: int, data: Any, headers: dict[str, Any] | None = None) -> None:
        raw = data.encode() if isinstance(data, str) else json.dumps(data).encode()
        self.send_response(status)
        for k, v in {"content-type": "application/json", **(headers or {})}.items():
            self.send_header(k, str(v))
        self.send_header("content-length", str(len(raw)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(raw)

    def nothing_here(self) -> None:
        self.reply(404, {"error": {"message": "fakellm: not found", "type": "not_found_error"}})

    def do_HEAD(self) -> None:
        self.reply(200, {})

    def do_GET(self) -> None:
        s, p = self.server, self.path.split("?", maxsplit=1)[0]
        if p == "/__fake/state":
            return self.reply(200, s.state())
        if p == "/__fake/log":
            return self.reply(200, s.entries)
        models = p.endswith("/models")
        s.note(
            {
                "method": "GET",
                "path": self.path,
                "ua": self.headers.get("user-agent"),
                "upgrade": self.headers.get("upgrade"),
                "answer": "models" if models else "404",
            }
        )
        if not models:
            return self.nothing_here()
        about = {
            "object": "model",
            "type": "model",
            "created": 0,
            "owned_by": "fake",
            "created_at": "2026-01-01T00:00:00Z",
        }
        names = s.script.data.get("models", ["fake-model"])
        data = [{"id": name, "display_name": name, **about} for name in names]
        return self.reply(200, {"object": "list", "data": data, "has_more": False})

    def body(self) -> bytes:
        """What was sent, unpacked."""
        if "chunked" in (self.headers.get("transfer-encoding") or ""):
            out, n = b"", 1
            while n:
                n = int(self.rfile.readline().split(b";")[0], 16)
                out += self.rfile.read(n)
                self.rfile.readline()
        else:
            out = self.rfile.read(int(self.headers.get("content-length") or 0))
        packed = (self.headers.get("content-encoding") or "").lower() == "gzip"
        return gzip.decompress(out) if packed else out

    def do_POST(self) -> None:
        s, raw, p = self.server, self.body(), self.path.split("?", maxsplit=1)[0]
        try:
            body = json.loads(raw or b"{}")
        except ValueError:
            body = {}
        if p == "/__fake/script":
            s.script = Script(body, s.variables)
            return self.reply(200, {"ok": True})
        if p.endswith(("/messages/count_tokens", ":countTokens")):
            s.note({"method": "POST", "path": self.path, "answer": "count_tokens"})
            count = s.script.data.get("count_tokens", 100)
            return self.reply(200, {"input_tokens": count, "totalTokens": 100})
        api = api_of(self.path)
        if api is None:
            ua = self.headers.get("user-agent")
            s.note({"method": "POST", "path": self.path, "answer": "404", "ua": ua})
            return self.nothing_here()
        ask = asked(api, body, self.path)
        label, turn = s.script.pick(ask)
        n = s.note(self.about(ask, label, turn, len(raw)))
        if s.dump:
            (s.dump / f"{n:03d}-{api}.json").write_text(json.dumps(body, indent=1))
        return self.act(ask, turn)

    def about(self, ask: Asked, label: str, turn: dict[str, Any], size: int) -> dict[str, Any]:
        """What the log keeps of a model request."""
        fault = {"hang", "disconnect"} & set(turn)
        return {
            "method": "POST",
            "path": self.path,
            "api": ask.api,
            "model": ask.model,
            "stream": ask.stream,
            "auth": next((word for name, word in LOGINS.items() if self.headers.get(name)), "none"),
            "headers": {k.lower(): v for k, v in self.headers.items() if KEPT.match(k)},
            "tools": ask.tools,
            "messages": len(ask.messages),
            "bytes": size,
            "last": ask.last[-300:],
            "answer": label,
            "kind": "error" if "error" in turn else "fault" if fault else "ok",
        }

    def drop(self) -> None:
        """Close with a TCP reset, as a dying server would."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True
        self.rfile.close()
        self.connection.close()

    def act(self, ask: Asked, turn: dict[str, Any]) -> None:
        """Answers, or fails as the turn says."""
        self.server.stopping.wait(float(turn.get("delay", 0)))
        if turn.get("hang"):
            self.server.stopping.wait(float(turn["hang"]) if turn["hang"] is not True else 3600)
            return self.drop()
        if turn.get("disconnect") == "before" or (turn.get("disconnect") and not ask.stream):
            return self.drop()
        err = turn.get("error")
        if err and not (err.get("in_stream") and ask.stream):
            return self.reply(int(err.get("status", 500)), error_body(ask.api, err), err.get("headers"))
        body, events = RENDER[ask.api](ask, turn, int(turn.get("chunk", 24)))
        if not ask.stream:
            return self.reply(200, turn.get("body", body), turn.get("headers"))
        try:
            self.stream(ask, turn, events)
        except (BrokenPipeError, ConnectionResetError):
            self.server.note({"event": "client closed the stream"})
            self.close_connection = True
        return None

    def stream(self, ask: Asked, turn: dict[str, Any], events: list[tuple[str | None, Any]]) -> None:
        """Sends the events, or half of them and then what goes wrong."""
        err, middrop = turn.get("error"), turn.get("disconnect") == "mid"
        self.send_response(200)
        usual = {"content-type": "text/event-stream", "cache-control": "no-cache"}
        for k, v in {**usual, **turn.get("headers", {})}.items():
            self.send_header(k, str(v))
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        cut = len(events) // 2 if middrop or err or turn.get("stall") else len(events)
        for kind, data in events[:cut]:
            self.sse(kind, data)
            time.sleep(float(turn.get("chunk_delay", 0)))
        if turn.get("stall"):
            self.server.stopping.wait(float(turn["stall"]))
        if middrop or turn.get("stall"):
            return self.drop()
        if err:
            self.sse(*in_stream_error(ask.api, err))
        self.wfile.write(b"0\r\n\r\n")
        return None

    def sse(self, kind: str | None, data: Any) -> None:
        said = data if isinstance(data, str) else json.dumps(data)
        raw = ((f"event: {kind}\n" if kind else "") + f"data: {said}\n\n").encode()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(raw), raw))
        self.wfile.flush()


class Fake(ThreadingHTTPServer):
    """The server; as a `with` block it answers from a thread, and `entries` and `failures` say what came."""

    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True

    def __init__(
        self,
        script: dict[str, Any],
        *,
        port: int = 0,
        variables: dict[str, str] | None = None,
        log: str | os.PathLike[str] | None = None,
        dump: str | os.PathLike[str] | None = None,
    ) -> None:
        super().__init__(("127.0.0.1", port), Answering)
        self.variables = variables or {}
        self.script = Script(script, self.variables)
        self.entries: list[dict[str, Any]] = []
        self.stopping = threading.Event()
        self.t0 = time.monotonic()
        self.log = Path(log) if log else None
        self.dump = Path(dump) if dump else None
        if self.dump:
            self.dump.mkdir(parents=True, exist_ok=True)

    def note(self, entry: dict[str, Any]) -> int:
        """Adds to the log; the number of the entry."""
        with self.script.lock:
            entry = {"n": len(self.entries) + 1, "t": round(time.monotonic() - self.t0, 3), **entry}
            self.entries.append(entry)
            if self.log:
                with self.log.open("a") as file:
                    file.write(json.dumps(entry, ensure_ascii=False) + "\n")
            return len(self.entries)

    def state(self) -> dict[str, Any]:
        """How far the script is."""
        s = self.script
        return {
            "position": s.pos,
            "turns": len(s.turns),
            "requests": s.count,
            "left": len(s.turns) - s.pos,
            "failures": s.failures,
        }

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], ConnectionError | ValueError | OSError):
            super().handle_error(request, client_address)

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    @property
    def failures(self) -> list[str]:
        """Expectations that were not met."""
        return self.script.failures

    def __enter__(self) -> Self:
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stopping.set()
        self.shutdown()
        self.server_close()


def main() -> None:
    """The server as a program."""
    about = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    about.add_argument("--script", required=True, help="JSON file")
    about.add_argument("--port", type=int, default=0)
    about.add_argument("--port-file", help="write the port here once listening")
    about.add_argument("--log", help="append one JSON line per request")
    about.add_argument("--dump", help="folder for full request bodies")
    about.add_argument("--var", action="append", default=[], metavar="NAME=VALUE", help="fills ${NAME}")
    a = about.parse_args()
    script = json.loads(Path(a.script).read_text())
    variables = dict(v.split("=", 1) for v in a.var)
    fake = Fake(script, port=a.port, log=a.log, dump=a.dump, variables=variables)
    if a.port_file:
        Path(a.port_file).write_text(str(fake.server_address[1]))
    print(fake.url, flush=True)
    try:
        fake.serve_forever(0.1)
    except KeyboardInterrupt:
        fake.server_close()


if __name__ == "__main__":
    main()
