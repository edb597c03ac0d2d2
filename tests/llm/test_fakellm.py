"""The scripted LLM server speaks four wire formats and fails as told."""

import json
import urllib.error
import urllib.request

from fakellm import Fake

ANTHROPIC = ("/v1/messages", {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]})
CHAT = (
    "/v1/chat/completions",
    {
        "model": "m",
        "messages": [{"role": "user", "content": "hi"}],
        "stream_options": {"include_usage": True},
    },
)
RESPONSES = ("/v1/responses", {"model": "m", "input": "hi"})
GEMINI = ("/v1beta/models/m:generateContent", {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]})


def post(fake, path, body, stream=False):
    if stream and "generateContent" in path:
        path = path.replace("generateContent", "streamGenerateContent") + "?alt=sse"
    elif stream:
        body = {**body, "stream": True}
    req = urllib.request.Request(
        fake.url + path, json.dumps(body).encode(), {"content-type": "application/json"}
    )
    with urllib.request.urlopen(req, timeout=10) as r:
        text = r.read().decode()
    if not stream:
        return json.loads(text)
    return [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]


def test_text_tool_and_usage_on_every_api():
    turn = {
        "text": "hello there",
        "tool_calls": [{"name": "f", "args": {"a": 1}}],
        "usage": {"input": 7, "output": 3},
    }
    for path, body in (ANTHROPIC, CHAT, RESPONSES, GEMINI):
        for stream in (False, True):
            with Fake({"turns": [turn]}) as fake:
                text = json.dumps(post(fake, path, body, stream))
                assert "hello" in text and '"f"' in text and ": 7" in text, (path, stream, text)
                assert fake.failures == []


def test_error_with_headers_then_success():
    script = {
        "turns": [
            {"error": {"status": 429, "message": "slow", "headers": {"retry-after": "3"}}},
            {"text": "ok"},
        ]
    }
    with Fake(script) as fake:
        try:
            post(fake, *ANTHROPIC)
            raise AssertionError("no error")
        except urllib.error.HTTPError as e:
            assert e.code == 429 and e.headers["retry-after"] == "3"
            assert json.loads(e.read())["error"]["type"] == "rate_limit_error"
        assert post(fake, *ANTHROPIC)["content"][0]["text"] == "ok"


def test_expectations_sides_and_exhaustion():
    script = {
        "turns": [{"text": "a", "expect": {"last_contains": "absent"}}],
        "sides": [{"when": {"model": "^title"}, "reply": {"text": "side"}}],
    }
    with Fake(script) as fake:
        path, body = CHAT
        assert post(fake, path, {**body, "model": "title-1"})["choices"][0]["message"]["content"] == "side"
        post(fake, path, body)
        assert "unmet" in fake.failures[0]
        try:
            post(fake, path, body)
        except urllib.error.HTTPError as e:
            assert e.code == 400
        assert len(fake.failures) == 2 and [e["answer"] for e in fake.entries] == [
            "side0",
            "turn0",
            "exhausted",
        ]


def test_disconnect():
    for how in ("before", "mid"):
        with Fake({"turns": [{"text": "x" * 200, "disconnect": how}]}) as fake:
            try:
                post(fake, *CHAT, stream=True)
            except Exception as e:  # reset, or an incomplete read
                assert isinstance(e, (OSError, urllib.error.URLError)) or "Incomplete" in type(e).__name__, e
            else:
                raise AssertionError(how)


def test_variables():
    with Fake({"turns": [{"text": "${WHERE}/x"}]}, variables={"WHERE": '/a "b"'}) as fake:
        assert post(fake, *CHAT)["choices"][0]["message"]["content"] == '/a "b"/x'
