"""What comes back from Slack: whether it is Slack's, what a person pressed or wrote, and what they are told.

Rule: nothing is parsed before its signature holds over the bytes as they came. What a click decides is on record
before it is acknowledged; everything else that a click causes happens after that.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import re
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, Final, get_args
from urllib.parse import parse_qs

from loopwright.cards import Answer, Answered, Incoming, Reply, Told
from loopwright.channels import _slack_blocks as drawn
from loopwright.channels._slack_api import FORM_S, Api, Payload
from loopwright.channels._slack_blocks import Word
from loopwright.channels._slack_text import escaped
from loopwright.errors import LoopwrightError, Undelivered

DRIFT_S: Final = 300  # exactly so old is still good
ACK_S: Final = 0.9  # Slack waits for three seconds
LATER: Final = 100  # things that may be under way after their clicks were acknowledged
_WORDS: Final[dict[str, Word]] = {word: word for word in get_args(Word)}
_TASKS: Final[set[asyncio.Task[Any]]] = set()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Press:
    """A button that was pressed, or a form that was sent (`sent`), by whom, with what was written into it."""

    word: Word
    run: str
    approval: str
    by: str
    text: str = ""
    sent: bool = False
    trigger: str = ""
    where: str = ""


def signed(incoming: Incoming, secret: str) -> bool:
    """Whether Slack signed these bytes not longer than five minutes ago (and not later from now)."""
    stamp = incoming.headers.get("x-slack-request-timestamp", "")
    given = incoming.headers.get("x-slack-signature", "")
    if not secret or not re.fullmatch(r"[0-9]{1,12}", stamp):
        return False
    if abs(incoming.now.timestamp() - int(stamp)) > DRIFT_S:
        return False
    made = hmac.new(secret.encode(), b"v0:" + stamp.encode() + b":" + incoming.body, hashlib.sha256)
    return hmac.compare_digest(f"v0={made.hexdigest()}".encode(), given.encode("utf-8", "replace"))


async def posted(incoming: Incoming, answer: Answer, api: Api) -> Reply:
    """What a POST whose signature holds is answered."""
    try:
        text = incoming.body.decode("utf-8")
        form = {} if text.lstrip()[:1] == "{" else parse_qs(text, max_num_fields=20)
        payload = json.loads(form["payload"][0] if "payload" in form else "null" if form else text or "null")
    except (ValueError, RecursionError):  # what is no text, no form, no JSON
        return Reply(status=400, body=b'{"error": "not readable"}')
    if not isinstance(payload, dict):
        return Reply(status=200, media="text/plain")  # ssl_check, and what is meant for others
    if payload.get("type") == "url_verification":
        return Reply(status=200, body=json.dumps({"challenge": _at(payload, "challenge")}).encode())
    said = await heard(payload, answer, api)
    if said is None:
        return Reply(status=200, media="text/plain")
    return Reply(status=200, body=json.dumps(said).encode())


async def heard(payload: Payload, answer: Answer, api: Api) -> Payload | None:
    """What an interaction is acknowledged with; `None`: with nothing."""
    press = _pressed(payload)
    if press is None:
        return None
    if not press.sent and press.word in {"override", "revise"}:
        _later(_open(press, api))
        return None
    taking = _task(_taken(press, answer))
    done, _ = await asyncio.wait({taking}, timeout=ACK_S)
    if not done:
        _later(_tell_late(taking, press, api))
        return None
    told = taking.result()
    if not press.sent:
        if told.word != "recorded":  # the message itself will show what stands
            _later(_tell(told, press, api))
        return None
    match told.word:
        case "recorded" | "again":
            return None
        case "refused":
            return {"response_action": "errors", "errors": {drawn.FIELD: told.text[:300]}}
        case _:
            return {"response_action": "update", "view": drawn.notice("Not taken", told.text)}


async def _taken(press: _Press, answer: Answer) -> Told:
    """What became of the answer, also where it could not be written down."""
    override = press.word == "override"
    try:
        return await answer(
            Answered(
                run=press.run,
                approval=press.approval,
                answer="approve" if press.word == "override" else press.word,
                by=press.by,
                note="" if override else press.text,
                override=press.text if override else None,
            )
        )
    except LoopwrightError as error:
        why = f"it could not be recorded ({type(error).__name__}): press again, or see loopwright approvals"
        return Told(word="refused", text=why)


async def _open(press: _Press, api: Api) -> None:
    """Opens the form for what is to be written; a person who waits for it in vain is told."""
    view = drawn.form(press.word, press.approval, press.run)
    try:
        await api.call("views_open", FORM_S, trigger_id=press.trigger, view=view)
    except Undelivered as error:
        verb = "revise" if press.word == "revise" else "approve"
        text = f"the form could not be opened ({error}): press again, or type loopwright {verb} {press.run}"
        await _tell(Told(word="refused", text=text), press, api)


async def _tell(told: Told, press: _Press, api: Api) -> None:
    if press.where:
        await api.tell(press.where, drawn.people(escaped(told.text, 2000)))


async def _tell_late(taking: asyncio.Task[Told], press: _Press, api: Api) -> None:
    """Tells what became of an answer that took longer than Slack waits."""
    await _tell(await taking, press, api)


def _task(work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    task = asyncio.get_running_loop().create_task(work)
    _TASKS.add(task)
    task.add_done_callback(_over)
    return task


def _later(work: Coroutine[Any, Any, Any]) -> None:
    """Begins what happens after the acknowledgement, unless too much is under way: then a person is not told."""
    if len(_TASKS) < LATER:
        _task(work)
    else:
        work.close()


def _over(task: asyncio.Task[Any]) -> None:
    _TASKS.discard(task)
    if not task.cancelled():
        task.exception()  # nobody is left who could be told


def _pressed(payload: Payload) -> _Press | None:
    """Which answer this is; `None` for everything that is none of ours, or not whole."""
    if payload.get("type") == "view_submission":
        sent, meant = True, _at(payload, "view", "private_metadata")
        if _at(payload, "view", "callback_id") != drawn.FORM:
            return None
    elif payload.get("type") == "block_actions":
        sent, meant = False, _at(payload, "actions", 0, "value")
    else:
        return None
    first, _, rest = meant.partition(":")
    word = _WORDS.get(first)
    approval, _, run = rest.partition(":")
    by = _at(payload, "user", "id")
    if word is None or not approval or not run or not by:
        return None
    return _Press(
        word=word,
        run=run,
        approval=approval,
        by=by,
        text=_at(payload, "view", "state", "values", drawn.FIELD, drawn.FIELD, "value").strip(),
        sent=sent,
        trigger=_at(payload, "trigger_id"),
        where=_at(payload, "response_url"),
    )


def _at(value: Any, *path: str | int) -> str:
    """The text at a path; empty where there is none."""
    for step in path:
        if isinstance(step, int):
            value = value[step] if isinstance(value, list) and step < len(value) else None
        else:
            value = value.get(step) if isinstance(value, dict) else None
    return value if isinstance(value, str) else ""
