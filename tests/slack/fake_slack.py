"""A stand-in for Slack: its Web API, upload addresses, response addresses and Socket Mode, with Slack's own limits.

It refuses what Slack refuses: other tokens, other content types, blocks over a limit. What it was told stands in its lists.
"""

import base64
import hashlib
import hmac
import json
import socket
import struct
import threading
import time
from collections import defaultdict, deque
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import Queue
from urllib.parse import parse_qs, urlencode

BOT, APP, SECRET = "xoxb-good-1", "xapp-good-1", "a-signing-secret"
ENVIRON = {"SLACK_BOT_TOKEN": BOT, "SLACK_APP_TOKEN": APP, "SLACK_SIGNING_SECRET": SECRET}
MAGIC = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


def headers_of(body, at, secret=SECRET):
    """As Slack signs a body."""
    made = hmac.new(secret.encode(), f"v0:{at}:".encode() + body, hashlib.sha256).hexdigest()
    return {"x-slack-request-timestamp": str(at), "x-slack-signature": f"v0={made}"}


def encoded(payload):
    return urlencode({"payload": json.dumps(payload)}).encode()


# Block Kit's limits


def check_blocks(blocks, *, view=False):
    assert isinstance(blocks, list)
    assert 0 < len(blocks) <= (100 if view else 50)
    assert len(json.dumps(blocks, ensure_ascii=False)) <= 13_000, "msg_blocks_too_long"
    ids = [e["action_id"] for b in blocks if b["type"] == "actions" for e in b["elements"]]
    assert len(ids) == len(set(ids))
    for block in blocks:
        CHECKS[block["type"]](block)


def check_text(text, most, kinds=("plain_text",)):
    assert text["type"] in kinds
    assert 1 <= len(text["text"].encode("utf-16-le")) // 2 <= most, text["text"][:80]
    assert set(text) <= {"type", "text", "emoji", "verbatim"}
    assert ("verbatim" in text) == (text["type"] == "mrkdwn")


def check_actions(block):
    assert 1 <= len(block["elements"]) <= 25
    for each in block["elements"]:
        assert each["type"] == "button"
        assert len(each["action_id"]) <= 255
        assert len(each.get("value", "")) <= 2000
        assert len(each.get("url", "")) <= 3000
        check_text(each["text"], 75)
        if sure := each.get("confirm"):
            for word, most in (("title", 100), ("text", 300), ("confirm", 30), ("deny", 30)):
                check_text(sure[word], most)


def check_input(block):
    check_text(block["label"], 2000)
    element = block["element"]
    assert element["type"] == "plain_text_input"
    assert element["max_length"] <= 3000


def check_rich(block):
    for part in block["elements"]:
        assert part["type"] in {"rich_text_section", "rich_text_quote", "rich_text_preformatted"}
        assert part["elements"]
        for each in part["elements"]:
            assert each["type"] == "text"
            assert each["text"]


def check_context(block):
    assert 1 <= len(block["elements"]) <= 10
    for each in block["elements"]:
        check_text(each, 3000, ("mrkdwn", "plain_text"))


CHECKS = {
    "header": lambda block: check_text(block["text"], 150),
    "section": lambda block: check_text(block["text"], 3000, ("mrkdwn", "plain_text")),
    "context": check_context,
    "actions": check_actions,
    "input": check_input,
    "rich_text": check_rich,
}


def check_view(view):
    assert view["type"] == "modal"
    check_text(view["title"], 24)
    for word in ("submit", "close"):
        if word in view:
            check_text(view[word], 24)
    assert len(view.get("private_metadata", "")) <= 3000
    check_blocks(view["blocks"], view=True)


# The server


class FakeSlack:
    """`canned[method]` are answers that come before real ones: a document, or (status, headers, bytes), "hang up", or seconds of silence."""

    def __init__(self):
        self.calls, self.told, self.views = [], Queue(), Queue()
        self.messages, self.files, self.uploads = {}, [], {}
        self.canned = defaultdict(deque)
        self.sockets, self.acked, self.open = Queue(), Queue(), []
        self.goes_on = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("Asked", (Asked,), {"slack": self}))
        self._server.daemon_threads = True
        self.at = f"127.0.0.1:{self._server.server_address[1]}"
        self.url = f"http://{self.at}/api/"

    @contextmanager
    def running(self):
        thread = threading.Thread(target=lambda: self._server.serve_forever(poll_interval=0.01))
        thread.start()
        try:
            yield self
        finally:
            self.goes_on.set()
            self.hang_up()
            self._server.shutdown()
            self._server.server_close()
            thread.join()

    def hang_up(self):
        """Ends every socket, as a server does that goes away."""
        for sock in self.open:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def click(self, message, word, *, user="U0MIRA", **more):
        """What Slack sends when somebody presses a button of a message as it now is."""
        actions = [b for b in message["blocks"] if b["type"] == "actions"]
        (button,) = [e for b in actions for e in b["elements"] if e["action_id"].endswith(word)]
        return {
            "type": "block_actions",
            "user": {"id": user, "name": "mira", "username": "mira"},
            "trigger_id": "1.2.abc",
            "response_url": f"http://{self.at}/hooks/1",
            "actions": [{"type": "button", "action_id": button["action_id"], "value": button["value"]}],
            **more,
        }

    def filled(self, view, text, *, user="U0MIRA"):
        """What Slack sends when somebody fills a form in."""
        return {
            "type": "view_submission",
            "user": {"id": user, "name": "mira"},
            "view": {
                **view,
                "state": {"values": {"said": {"said": {"type": "plain_text_input", "value": text}}}},
            },
        }

    def envelope(self, sock, payload, n="e1"):
        frame(
            sock,
            json.dumps(
                {
                    "type": "interactive",
                    "envelope_id": n,
                    "payload": payload,
                    "accepts_response_payload": True,
                }
            ),
        )


class Asked(BaseHTTPRequestHandler):
    slack = None
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        key = self.headers["Sec-WebSocket-Key"] + MAGIC
        accept = base64.b64encode(hashlib.sha1(key.encode()).digest()).decode()
        self.wfile.write(
            f"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {accept}\r\n\r\n".encode()
        )
        self.close_connection = True
        frame(self.connection, json.dumps({"type": "hello", "num_connections": 1}))
        self.slack.open.append(self.connection)
        self.slack.sockets.put(self.connection)
        while (got := unframed(self.rfile)) is not None:
            opcode, data = got
            if opcode == 9:
                frame(self.connection, data, opcode=10)
            elif opcode == 1:
                self.slack.acked.put(json.loads(data))

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        where, _, rest = self.path.lstrip("/").partition("/")
        kind = (self.headers["Content-Type"] or "").partition(";")[0]
        if where == "hooks":
            assert kind == "application/json"
            self.slack.told.put(json.loads(body))
            return self.reply(200, {}, b"ok")
        if where == "upload":
            self.slack.uploads[rest] = body
            return self.reply(200, {}, b"OK - 1")
        args = (
            json.loads(body)
            if kind == "application/json"
            else {k: v[0] for k, v in parse_qs(body.decode()).items()}
        )
        self.slack.calls.append((rest, args))
        canned = self.slack.canned[rest]
        first = canned.popleft() if canned else None
        if isinstance(first, int | float):
            self.slack.goes_on.wait(first)
        elif first == "hang up":
            self.close_connection = True
            return self.connection.shutdown(socket.SHUT_RDWR)
        elif first is not None:
            status, headers, data = (
                first if isinstance(first, tuple) else (200, {}, json.dumps(first).encode())
            )
            return self.reply(status, headers, data)
        token = self.headers["Authorization"] or ""
        good = APP if rest == "apps.connections.open" else BOT
        if token != f"Bearer {good}":
            found = {"ok": False, "error": "invalid_auth"}
        else:
            try:
                found = {"ok": True, **METHODS[rest](self.slack, args)}
            except AssertionError as error:
                found = {"ok": False, "error": str(error) if str(error).isidentifier() else "invalid_blocks"}
        return self.reply(200, {}, json.dumps(found).encode())

    def reply(self, status, headers, data):
        self.send_response(status)
        for name, value in {
            "Content-Type": "application/json",
            **headers,
            "Content-Length": str(len(data)),
        }.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)


def post(slack, args):
    assert args["channel"] in {"#loops", "C1"}, "channel_not_found"
    assert args["text"], "no_text"
    if "blocks" in args:
        check_blocks(args["blocks"])
    ts = f"{time.time_ns() / 1e9:.6f}"
    slack.messages["C1", ts] = args
    return {"channel": "C1", "ts": ts}


def update(slack, args):
    assert args["channel"] == "C1", "channel_not_found"
    assert (args["channel"], args["ts"]) in slack.messages, "message_not_found"
    check_blocks(args["blocks"])
    slack.messages[args["channel"], args["ts"]] = args
    return {"channel": "C1", "ts": args["ts"]}


def view_open(slack, args):
    view = args["view"] if isinstance(args["view"], dict) else json.loads(args["view"])
    assert args["trigger_id"], "invalid_trigger"
    check_view(view)
    slack.views.put(view)
    return {"view": view}


def upload(slack, args):
    assert int(args["length"]) > 0, "invalid_length"
    return {
        "upload_url": f"http://{slack.at}/upload/F{len(slack.uploads)}",
        "file_id": f"F{len(slack.uploads)}",
    }


def complete(slack, args):
    files = args["files"] if isinstance(args["files"], list) else json.loads(args["files"])
    assert args["channel_id"] == "C1", "channel_not_found"
    slack.files += [
        {**each, "thread": args["thread_ts"], "data": slack.uploads[each["id"]]} for each in files
    ]
    return {"files": [{"id": each["id"]} for each in files]}


METHODS = {
    "chat.postMessage": post,
    "chat.update": update,
    "views.open": view_open,
    "files.getUploadURLExternal": upload,
    "files.completeUploadExternal": complete,
    "auth.test": lambda slack, args: {"user": "loopwright", "team": "Acme", "user_id": "UBOT"},
    "apps.connections.open": lambda slack, args: {"url": f"ws://{slack.at}/link/?ticket=1"},
}


# The wire of web sockets


def frame(sock, data, opcode=1):
    data = data.encode() if isinstance(data, str) else data
    size = bytes([len(data)]) if len(data) < 126 else b"\x7e" + struct.pack(">H", len(data))
    sock.sendall(bytes([0x80 | opcode]) + size + data)


def unframed(stream):
    """The opcode and data of the next frame; `None` at the end."""
    try:
        head = stream.read(2)
        if len(head) < 2 or head[0] & 15 == 8:
            return None
        size = head[1] & 127
        size = struct.unpack(">H", stream.read(2))[0] if size == 126 else size
        mask = stream.read(4)
        return head[0] & 15, bytes(b ^ mask[i % 4] for i, b in enumerate(stream.read(size)))
    except OSError:
        return None
