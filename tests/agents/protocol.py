"""An agent that speaks the Agent Client Protocol by a plan: `protocol.py PLAN`, a JSON file.

    able {capability: value} · new/load {result} or {"error": …} · prompt [step, …], each of them one of
    update {…} · ask {tool call} · line TEXT · result {…} · error {…} · exit CODE

What it is sent is written to PLAN.heard, a message a line.
"""

import json
import sys

with open(sys.argv[1]) as file:
    plan = json.load(file)
OPTIONS = [
    {"optionId": kind, "kind": kind, "name": kind} for kind in ("allow_always", "allow_once", "reject_once")
]


def send(**message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def read():
    line = sys.stdin.readline()
    if not line:
        sys.exit(0)
    with open(sys.argv[1] + ".heard", "a") as heard:
        heard.write(line)
    return json.loads(line)


def answer(request, value):
    send(id=request["id"], **(value if "error" in value else {"result": value}))


def play(request):
    for number, step in enumerate(plan["prompt"]):
        [(what, value)] = step.items()
        if what == "update":
            send(method="session/update", params={"sessionId": "s", "update": value})
        elif what == "ask":
            params = {"sessionId": "s", "toolCall": value, "options": OPTIONS}
            send(id=f"a{number}", method="session/request_permission", params=params)
            read()
        elif what == "call":
            send(id=f"c{number}", method=value, params={})
            read()
        elif what == "line":
            print(value, flush=True)
        elif what == "exit":
            sys.exit(value)
        else:
            answer(request, {"error": value} if what == "error" else value)


while True:
    request = read()
    if request["method"] == "initialize":
        info = {"name": plan.get("name", "plan"), "version": "1"}
        answer(request, {"protocolVersion": 1, "agentInfo": info, "agentCapabilities": plan.get("able", {})})
    elif request["method"] == "session/new":
        answer(request, plan.get("new", {"sessionId": "s"}))
    elif request["method"] in {"session/load", "session/resume"}:
        send(method="session/update", params={"sessionId": "s", "update": {"sessionUpdate": "tool_call", "toolCallId": "old", "kind": "edit", "title": "old"}})  # fmt: skip
        answer(request, plan.get("load", {}))
    elif request["method"] == "session/prompt":
        play(request)
    else:
        answer(request, {})
