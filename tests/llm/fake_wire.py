"""How a turn looks on the wire: Anthropic Messages, OpenAI Chat and Responses, Gemini; errors likewise.

Rule: each renderer gives (the body of a plain answer, [(name of the event or None, its data), …] of a stream).
"""

from __future__ import annotations

import json
import time
import uuid
from typing import Any

from fake_script import Asked

Turn = dict[str, Any]
Events = list[tuple[str | None, Any]]

ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    503: "api_error",
    529: "overloaded_error",
}
GEMINI_STATUS = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
}


def rid(prefix: str) -> str:
    """A new id."""
    return f"{prefix}{uuid.uuid4().hex[:24]}"


def usage_of(turn: Turn) -> tuple[int, int, int, int]:
    """Input, output, cached and reasoning tokens."""
    u = turn.get("usage", {})
    return (
        int(u.get("input", 100)),
        int(u.get("output", 20)),
        int(u.get("cached", 0)),
        int(u.get("reasoning", 0)),
    )


def calls_of(turn: Turn) -> list[dict[str, Any]]:
    """The tool calls, each with an id and its arguments as text."""
    return [
        {
            "id": c.get("id") or rid("call_"),
            "name": c["name"],
            "raw": c["args_raw"] if "args_raw" in c else json.dumps(c.get("args", {}), ensure_ascii=False),
            "args": c.get("args", {}),
            "input": c.get("input"),
            "namespace": c.get("namespace"),
        }
        for c in turn.get("tool_calls", [])
    ]


def pieces(text: str, size: int) -> list[str]:
    """The text in parts of this many characters."""
    return [text[i : i + size] for i in range(0, len(text), size)] or [""]


def _anthropic_block(n: int, block: dict[str, Any], raw: str, size: int) -> Events:
    kind = block["type"]
    start = {
        "text": {"type": "text", "text": ""},
        "thinking": {"type": "thinking", "thinking": "", "signature": ""},
        "tool_use": {"type": "tool_use", "id": block.get("id"), "name": block.get("name"), "input": {}},
    }[kind]
    if kind == "thinking":
        deltas = [
            {"type": "thinking_delta", "thinking": block["thinking"]},
            {"type": "signature_delta", "signature": block["signature"]},
        ]
    elif kind == "text":
        deltas = [{"type": "text_delta", "text": p} for p in pieces(block["text"], size)]
    else:
        deltas = [{"type": "input_json_delta", "partial_json": p} for p in pieces(raw, size)]
    names = ("content_block_start", "content_block_delta", "content_block_stop")
    return [
        (names[0], {"type": names[0], "index": n, "content_block": start}),
        *((names[1], {"type": names[1], "index": n, "delta": d}) for d in deltas),
        (names[2], {"type": names[2], "index": n}),
    ]


def anthropic(ask: Asked, turn: Turn, size: int) -> tuple[Any, Events]:
    """Anthropic Messages."""
    i, o, cached, _ = usage_of(turn)
    content: list[tuple[dict[str, Any], str]] = []
    if turn.get("thinking"):
        content.append(({"type": "thinking", "thinking": turn["thinking"], "signature": "ZmFrZQ=="}, ""))
    if turn.get("text"):
        content.append(({"type": "text", "text": turn["text"]}, ""))
    calls = calls_of(turn)
    for c in calls:
        tool = {"type": "tool_use", "id": c["id"].replace("call_", "toolu_"), "name": c["name"]}
        content.append(({**tool, "input": c["args"]}, c["raw"]))
    stop = turn.get("stop") or ("tool_use" if calls else "end_turn")
    use = {
        "input_tokens": i,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached,
        "output_tokens": o,
        "service_tier": "standard",
    }
    head = {
        "id": rid("msg_"),
        "type": "message",
        "role": "assistant",
        "model": turn.get("model") or ask.model,
        "stop_sequence": None,
    }
    body = {**head, "content": [b for b, _ in content], "stop_reason": stop, "usage": use}
    begun = {**head, "content": [], "stop_reason": None, "usage": {**use, "output_tokens": 1}}
    ends = {"stop_reason": stop, "stop_sequence": None}
    return body, [
        ("message_start", {"type": "message_start", "message": begun}),
        *(e for n, (b, raw) in enumerate(content) for e in _anthropic_block(n, b, raw, size)),
        ("message_delta", {"type": "message_delta", "delta": ends, "usage": use}),
        ("message_stop", {"type": "message_stop"}),
    ]


def chat(ask: Asked, turn: Turn, size: int) -> tuple[Any, Events]:
    """OpenAI Chat Completions."""
    i, o, cached, reasoning = usage_of(turn)
    calls = calls_of(turn)
    stop = turn.get("stop") or ("tool_calls" if calls else "stop")
    use = {
        "prompt_tokens": i,
        "completion_tokens": o,
        "total_tokens": i + o,
        "prompt_tokens_details": {"cached_tokens": cached},
        "completion_tokens_details": {"reasoning_tokens": reasoning},
    }
    head = {"id": rid("chatcmpl-"), "created": int(time.time()), "model": turn.get("model") or ask.model}
    message: dict[str, Any] = {"role": "assistant", "content": turn.get("text") or None}
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    if turn.get("thinking"):
        message["reasoning_content"] = turn["thinking"]
        deltas.append({"reasoning_content": turn["thinking"]})
    if turn.get("text"):
        deltas += [{"content": p} for p in pieces(turn["text"], size)]
    if calls:
        message["tool_calls"] = [
            {"id": c["id"], "type": "function", "function": {"name": c["name"], "arguments": c["raw"]}}
            for c in calls
        ]
    for n, c in enumerate(calls):
        named = {"index": n, "id": c["id"], "type": "function"}
        deltas.append({"tool_calls": [{**named, "function": {"name": c["name"], "arguments": ""}}]})
        deltas += [
            {"tool_calls": [{"index": n, "function": {"arguments": p}}]} for p in pieces(c["raw"], size)
        ]
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": stop}
    body = {**head, "object": "chat.completion", "usage": use, "choices": [choice]}
    chunk = {**head, "object": "chat.completion.chunk"}
    ev: Events = [
        (None, {**chunk, "choices": [{"index": 0, "delta": d, "finish_reason": None}]}) for d in deltas
    ]
    ev.append((None, {**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": stop}]}))
    if (ask.body.get("stream_options") or {}).get("include_usage"):
        ev.append((None, {**chunk, "choices": [], "usage": use}))
    return body, [*ev, (None, "[DONE]")]


def _items(turn: Turn) -> list[dict[str, Any]]:
    """The output items of a Responses answer."""
    items: list[dict[str, Any]] = []
    if turn.get("thinking"):
        summary = [{"type": "summary_text", "text": turn["thinking"]}]
        items.append(
            {"type": "reasoning", "id": rid("rs_"), "encrypted_content": None, "summary": summary},
        )
    if turn.get("text"):
        part = {"type": "output_text", "text": turn["text"], "annotations": [], "logprobs": []}
        head = {"type": "message", "id": rid("msg_"), "status": "completed", "role": "assistant"}
        items.append({**head, "content": [part]})
    for c in calls_of(turn):
        shared = {"status": "completed", "call_id": c["id"], "name": c["name"]}
        if c["namespace"]:
            shared["namespace"] = c["namespace"]
        if c["input"] is not None:
            items.append({"type": "custom_tool_call", "id": rid("ctc_"), **shared, "input": c["input"]})
        else:
            items.append({"type": "function_call", "id": rid("fc_"), **shared, "arguments": c["raw"]})
    return items


def _item_events(n: int, item: dict[str, Any], size: int) -> list[tuple[str, dict[str, Any]]]:
    """What a stream says about one output item."""
    at = {"item_id": item["id"], "output_index": n}
    begun = {**item, "status": "in_progress"}
    added, done = "response.output_item.added", "response.output_item.done"
    last = (done, {"output_index": n, "item": item})
    if item["type"] == "message":
        part, inside = item["content"][0], {**at, "content_index": 0}
        name = "response.output_text"
        return [
            (added, {"output_index": n, "item": {**begun, "content": []}}),
            ("response.content_part.added", {**inside, "part": {**part, "text": ""}}),
            *((f"{name}.delta", {**inside, "delta": p, "logprobs": []}) for p in pieces(part["text"], size)),
            (f"{name}.done", {**inside, "text": part["text"], "logprobs": []}),
            ("response.content_part.done", {**inside, "part": part}),
            last,
        ]
    kinds = {
        "function_call": ("arguments", "response.function_call_arguments", {"name": item.get("name")}),
        "custom_tool_call": ("input", "response.custom_tool_call_input", {}),
    }
    if item["type"] not in kinds:
        return [(added, {"output_index": n, "item": {**item, "summary": []}}), last]
    key, name, extra = kinds[item["type"]]
    return [
        (added, {"output_index": n, "item": {**begun, key: ""}}),
        *((f"{name}.delta", {**at, "delta": p}) for p in pieces(item[key], size)),
        (f"{name}.done", {**at, **extra, key: item[key]}),
        last,
    ]


def responses(ask: Asked, turn: Turn, size: int) -> tuple[Any, Events]:
    """OpenAI Responses."""
    i, o, cached, reasoning = usage_of(turn)
    items = _items(turn)
    cut = turn.get("stop") in {"max_tokens", "length"}
    final = {
        "id": rid("resp_"),
        "object": "response",
        "created_at": int(time.time()),
        "status": "incomplete" if cut else "completed",
        "error": None,
        "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
        "model": turn.get("model") or ask.model,
        "output": items,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": ask.body.get("tools") or [],
        "usage": {
            "input_tokens": i,
            "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": 0},
            "output_tokens": o,
            "output_tokens_details": {"reasoning_tokens": reasoning},
            "total_tokens": i + o,
        },
    }
    head = {**final, "status": "in_progress", "output": [], "usage": None, "incomplete_details": None}
    said: list[tuple[str, dict[str, Any]]] = [
        ("response.created", {"response": head}),
        ("response.in_progress", {"response": head}),
        *(e for n, item in enumerate(items) for e in _item_events(n, item, size)),
        ("response.incomplete" if cut else "response.completed", {"response": final}),
    ]
    return final, [
        (kind, {"type": kind, "sequence_number": n, **data}) for n, (kind, data) in enumerate(said)
    ]


def gemini(ask: Asked, turn: Turn, _size: int) -> tuple[Any, Events]:
    """Gemini generateContent."""
    i, o, cached, reasoning = usage_of(turn)
    parts: list[dict[str, Any]] = []
    if turn.get("thinking"):
        parts.append({"text": turn["thinking"], "thought": True})
    if turn.get("text"):
        parts.append({"text": turn["text"]})
    parts += [{"functionCall": {"name": c["name"], "args": c["args"]}} for c in calls_of(turn)]
    meta = {
        "promptTokenCount": i,
        "candidatesTokenCount": o,
        "totalTokenCount": i + o + reasoning,
        "cachedContentTokenCount": cached,
        "thoughtsTokenCount": reasoning,
    }
    head = {"usageMetadata": meta, "modelVersion": turn.get("model") or ask.model, "responseId": rid("r")}
    stop = {"max_tokens": "MAX_TOKENS", "length": "MAX_TOKENS"}.get(turn.get("stop", ""), "STOP")

    def one(said: list[dict[str, Any]], *, last: bool) -> dict[str, Any]:
        ends = {"finishReason": stop} if last else {}
        return {"candidates": [{"content": {"role": "model", "parts": said}, "index": 0, **ends}], **head}

    return one(parts, last=True), [(None, one([p], last=p is parts[-1])) for p in parts]


RENDER = {"anthropic": anthropic, "chat": chat, "responses": responses, "gemini": gemini}


def error_body(api: str, err: dict[str, Any]) -> Any:
    """An error as this API words it."""
    if "body" in err:
        return err["body"]
    status, message = int(err.get("status", 500)), err.get("message", "fakellm: scripted error")
    kind = err.get("type") or ERROR_TYPES.get(status, "api_error")
    if api == "anthropic":
        return {"type": "error", "error": {"type": kind, "message": message}, "request_id": rid("req_")}
    if api == "gemini":
        word = GEMINI_STATUS.get(status, "UNKNOWN")
        return {"error": {"code": status, "message": message, "status": word}}
    said = {"message": message, "type": kind, "param": None, "code": err.get("code")}
    return {"error": {**said, **err.get("extra", {})}}


def in_stream_error(api: str, err: dict[str, Any]) -> tuple[str | None, Any]:
    """The event that ends a stream with this error."""
    if api != "responses":
        return ("error" if api == "anthropic" else None), error_body(api, err)
    error = {"code": err.get("code", "server_error"), "message": err.get("message", "")}
    failed = {"id": rid("resp_"), "object": "response", "status": "failed", "output": [], "error": error}
    kind = "response.failed"
    return kind, {"type": kind, "sequence_number": 99, "response": failed}


def api_of(path: str) -> str | None:
    """Which API a path belongs to."""
    p = path.split("?", maxsplit=1)[0].rstrip("/")
    ends = {"/messages": "anthropic", "/chat/completions": "chat", "/responses": "responses"}
    for end, api in ends.items():
        if p.endswith(end):
            return api
    return "gemini" if p.endswith((":generateContent", ":streamGenerateContent")) else None
