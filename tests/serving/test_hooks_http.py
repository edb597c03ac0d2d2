"""2,000 deliveries over real HTTP by several clients at once, of which some come again and some are forged."""

import http.client
import json
import os
import random
import resource
import socket
import threading
import time
from datetime import UTC, datetime

import pytest
import standardwebhooks
import uvicorn
from a_hook import WHSEC, live, runs
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse
from starlette.routing import Route

from loopwright.serving import hooks

HOOK = '[[trigger]]\nwebhook = "ci"\nsecret = "HOOK_SECRET"\nkey = "event"\n'
EVENTS, AGAIN, FORGED, CLIENTS = 1700, 200, 100, 4


class Serving:
    """The server, and a real HTTP server in front of it in a thread of its own."""

    def __init__(self, server):
        async def hook(request):
            raw, headers = await request.body(), dict(request.headers)
            name, now = request.path_params["name"], datetime.now(UTC)
            status, answer = await run_in_threadpool(hooks.received, server, name, headers, raw, now)
            return JSONResponse(answer, status_code=status)

        app = Starlette(routes=[Route("/hooks/{name}", hook, methods=["POST"])])
        # Of this protocol by name: else asyncio leaves small answers to wait for 40 ms (Nagle).
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        self.socket.bind(("127.0.0.1", 0))
        self.socket.listen()
        config = uvicorn.Config(app, log_level="error", lifespan="off", access_log=False)
        self.uvicorn = uvicorn.Server(config)
        self.thread = threading.Thread(target=lambda: self.uvicorn.run(sockets=[self.socket]))

    def __enter__(self):
        self.thread.start()
        return self.socket.getsockname()[1]

    def __exit__(self, *_):
        self.uvicorn.should_exit = True
        self.thread.join()
        self.socket.close()


def deliveries():
    """Signed, signed again (some under another id, as a second hook sends them) and forged, in no order."""
    signer, forger = standardwebhooks.Webhook(WHSEC), standardwebhooks.Webhook("whsec_" + "A" * 32)
    made, at = [], datetime.now(UTC)

    def add(kind, name, event, by):
        body = json.dumps({"event": event, "text": "x" * 200})
        signature = by.sign(msg_id=name, timestamp=at, data=body)
        stamp = str(int(at.timestamp()))
        headers = {"webhook-id": name, "webhook-timestamp": stamp, "webhook-signature": signature}
        made.append((kind, event, {**headers, "content-type": "application/json"}, body))

    for n in range(EVENTS):
        add("new", f"m{n}", f"e{n}", signer)
    for n in range(AGAIN):
        add("again", f"m{n}" if n % 2 else f"other{n}", f"e{n}", signer)
    for n in range(FORGED):
        add("forged", f"f{n}", f"forged{n}", forger)
    random.Random(5).shuffle(made)
    return made


@pytest.mark.slow
def test_of_2000_deliveries_none_is_lost_and_none_is_double(tmp_path, monkeypatch, record_property):
    monkeypatch.setattr(os, "fsync", lambda _: None)  # no power is lost here
    server = live(tmp_path, environ={"HOOK_SECRET": WHSEC}, green=HOOK)
    sent, answers, seconds = deliveries(), [], []
    used = resource.getrusage(resource.RUSAGE_SELF)

    def client(mine):
        connection = http.client.HTTPConnection("127.0.0.1", port)
        for kind, event, headers, body in mine:
            began = time.perf_counter()
            connection.request("POST", "/hooks/ci", body, headers)
            answer = connection.getresponse()
            answers.append((kind, event, answer.status, json.loads(answer.read())))
            seconds.append(time.perf_counter() - began)
        connection.close()

    with Serving(server) as port:
        clients = [threading.Thread(target=client, args=(sent[n::CLIENTS],)) for n in range(CLIENTS)]
        began = time.perf_counter()
        for thread in clients:
            thread.start()
        for thread in clients:
            thread.join()
        took = time.perf_counter() - began
    now = resource.getrusage(resource.RUSAGE_SELF)
    cpu = now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime
    assert len(answers) == len(sent) == 2000
    right = [each for each in answers if each[0] != "forged"]
    assert all(status == 401 for kind, _, status, _ in answers if kind == "forged")
    assert all(status == 202 for _, _, status, _ in right)
    of_event = {}
    for _, event, _, answer in right:
        of_event.setdefault(event, []).append(answer)
    begun = runs(server.store)
    lost = [event for event, each in of_event.items() if each[0]["run"] not in begun]
    double = [e for e, each in of_event.items() if [a["status"] for a in each].count("started") != 1]
    assert (lost, double) == ([], [])
    assert len(begun) == len(of_event) == EVENTS
    assert all(len({a["run"] for a in each}) == 1 for each in of_event.values())
    for event, each in of_event.items():
        file = tmp_path / ".agent-state" / "artifacts" / each[0]["run"] / "payload.json"
        assert json.loads(file.read_bytes())["event"] == event
    seconds.sort()
    record_property(
        "measured",
        f"2,000 webhook deliveries (10 % again, 5 % forged) by {CLIENTS} clients: {len(lost)} lost, {len(double)} double; "
        f"{took:.1f} s, {cpu:.1f} s CPU, half answered in {seconds[1000] * 1000:.1f} ms, 99 % in {seconds[1980] * 1000:.1f} ms",
    )
