"""Slack: a request is a message with buttons in a channel, and whoever may presses one.

Rule: the request on record is the truth, the message a view of it. Who pressed is their Slack user id; names are for
reading alone. Without its secrets the channel does not open.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Literal

from loopwright.cards import Answer, Card, Channel, Incoming, Reply
from loopwright.channels import _slack_api
from loopwright.channels import _slack_blocks as drawn
from loopwright.channels._slack_api import Api, Payload, refused
from loopwright.channels._slack_hear import heard, posted, signed
from loopwright.channels._slack_text import escaped
from loopwright.errors import ConfigError, Undelivered

NOTE_S: Final = 2.0  # for a word about a file that could not be sent
_CHANNEL: Final = re.compile(r"#?[^\s#@<>&]{1,80}")
_WHERE: Final[Mapping[str, str]] = {
    "token": "the bot token that begins with xoxb-, under Install App",
    "secret": "the signing secret, under Basic Information",
    "app_token": "an app-level token with connections:write, which begins with xapp-, under Basic Information",
}


def slack(
    *,
    channel: str,
    token: str = "SLACK_BOT_TOKEN",  # noqa: S107 - the names of variables
    secret: str = "SLACK_SIGNING_SECRET",  # noqa: S107
    app_token: str = "SLACK_APP_TOKEN",  # noqa: S107
    mode: Literal["http", "socket"] = "http",
    url: str = "https://slack.com/api/",
) -> Channel:
    """Asks in a Slack channel, by buttons; `mode` is how the clicks come back."""
    if not _CHANNEL.fullmatch(channel):
        raise ValueError(f"channel is {channel!r}, not the name of a channel (#loops) or its ID")
    url = _slack_api.checked(url)
    names = {"token": token, **({"secret": secret} if mode == "http" else {"app_token": app_token})}

    def opened(environ: Mapping[str, str]) -> SlackLine:
        _slack_api.installed()
        _check(names, environ)
        tried = environ.get(app_token, "") if mode == "socket" else ""
        return SlackLine(channel=channel, api=Api(environ[token], url), app_token=tried)

    async def hear(incoming: Incoming, environ: Mapping[str, str], answer: Answer) -> Reply:
        if not signed(incoming, environ.get(secret, "").strip()):
            return Reply(status=401, body=b'{"error": "not signed by Slack within five minutes"}')
        return await posted(incoming, answer, Api(environ.get(token, ""), url))

    async def listen(environ: Mapping[str, str], answer: Answer) -> None:
        _slack_api.installed()
        _check(names, environ)
        api = Api(environ[token], url)

        async def clicked(payload: Payload) -> Payload | None:
            return await heard(payload, answer, api)

        await _slack_api.socket(environ[app_token], url, clicked)

    return Channel(
        name="slack",
        open=opened,
        secrets=tuple(reversed(names.values())),  # the first is what clicks are believed by
        linked=mode == "http",
        hear=hear if mode == "http" else None,
        listen=listen if mode == "socket" else None,
    )


def _check(names: Mapping[str, str], environ: Mapping[str, str]) -> None:
    """`ConfigError` for every secret that is not there or is another one."""
    problems = []
    for what, name in names.items():
        given = environ.get(name, "").strip()
        if not given:
            problems.append(f"slack: {name} is not set: it holds {_WHERE[what]} (loopwright doctor slack)")
        elif given.startswith("xapp-") != (what == "app_token"):
            problems.append(f"slack: {name} holds something else: it is for {_WHERE[what]}")
    if problems:
        raise ConfigError(*problems)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlackLine:
    """The channel, open. A message is known by `<channel id>/<its time>`."""

    channel: str
    api: Api
    app_token: str = ""

    async def show(self, card: Card, ref: str | None) -> str:
        """Posts the card, or redraws the message at `ref`; where it stands. `Undelivered` if it could not be."""
        text, blocks = drawn.message(card)
        channel, _, ts = (ref or "").partition("/")
        if ts:
            found = await self.api.ask("chat_update", channel=channel, ts=ts, text=text, blocks=blocks)
            if found.get("ok"):
                return f"{channel}/{ts}"
            if found.get("error") != "message_not_found":  # else somebody deleted it: it is sent anew
                raise refused("chat_update", found)
        sent = await self.api.call(
            "chat_postMessage",
            channel=self.channel,
            text=text,
            blocks=blocks,
            unfurl_links=False,
            unfurl_media=False,
        )
        channel, ts = str(sent.get("channel", "")), str(sent.get("ts", ""))
        if card.patch and card.link is None and drawn.is_open(card):
            await self._diff(card, channel, ts)
        return f"{channel}/{ts}"

    async def _diff(self, card: Card, channel: str, ts: str) -> None:
        """Puts what changed below the message, as a file; where that fails it says so there: the request stands."""
        tail = f"\n(cut here: loopwright diff {card.run} shows it all)\n" if card.cut else ""
        try:
            await self.api.call(
                "files_upload_v2",
                channel=channel,
                thread_ts=ts,
                filename=f"{card.run}.diff",
                title=f"{card.run}.diff",
                content=card.patch + tail,
                snippet_type="diff",
            )
        except Undelivered as error:
            text = escaped(f"The diff could not be sent ({error}). loopwright diff {card.run} shows it.", 600)
            with suppress(Undelivered):
                await self.api.ask("chat_postMessage", NOTE_S, channel=channel, thread_ts=ts, text=text)

    async def probe(self) -> str:
        """Whom the tokens are for, asked of Slack; `Undelivered` where they are not good."""
        found = await self.api.call("auth_test")
        if self.app_token:
            await Api(self.app_token, self.api.url).call("apps_connections_open", app_token=self.app_token)
        return f"{found.get('user')} in {found.get('team')}"
