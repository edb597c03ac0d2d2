"""Setting Slack up: the app's manifest to paste, and what is still missing before the first button can be pressed.

Rule: without a network and without a loop file there is a manifest all the same. Nothing is sent unless it is asked for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from loopwright.begin.findings import Finding, Status
from loopwright.calling import alone
from loopwright.cards import Card, Channel
from loopwright.channels.slack import SlackLine, slack
from loopwright.config import Loaded, load
from loopwright.core.showing import Effect, Shown
from loopwright.errors import ConfigError, Undelivered, UsageError
from loopwright.loop import table_of
from loopwright.registry import resolve_channels
from loopwright.unattended import server_of

SCOPES: Final = ("chat:write", "files:write")
ELSEWHERE: Final = "https://YOUR-SERVER.example"
_PERSON: Final = re.compile(r"slack(?::[UW][A-Z0-9]{2,20})?")
_PRESSED: Final = "the server says that there is no such run, so the way back works"


def manifest(channel: Channel, public_url: str | None) -> dict[str, Any]:
    """The app as api.slack.com/apps takes it: Create New App, From a manifest, JSON."""
    clicks: dict[str, Any] = {"is_enabled": True}
    if channel.hear is not None:
        clicks["request_url"] = f"{public_url or ELSEWHERE}/channels/{channel.name}"
    return {
        "display_information": {
            "name": "loopwright",
            "description": "Shows what a loop has done and asks whether it is good.",
        },
        "features": {"bot_user": {"display_name": "loopwright", "always_online": False}},
        "oauth_config": {"scopes": {"bot": list(SCOPES)}},
        "settings": {
            "interactivity": clicks,
            "org_deploy_enabled": False,
            "socket_mode_enabled": channel.listen is not None,
            "token_rotation_enabled": False,
        },
    }


def examine(
    folder: Path, loopfile: str | None, environ: Mapping[str, str], *, send: bool = False
) -> tuple[dict[str, Any], list[Finding]]:
    """The manifest for the loop here, and everything that was found; `send` posts a test card."""
    findings: list[Finding] = []
    found: list[Channel] = []
    public_url, loaded = None, None
    try:
        loaded = load(loopfile, folder=folder, path=environ.get("PATH", ""))
        found = _channels(loaded, environ)
        public_url = server_of(table_of(loaded.loop.server)).public_url
    except (ConfigError, UsageError) as error:
        status: Status = "fail" if loopfile is not None else "warn"
        do = "name a loop file that loads: loopwright doctor slack LOOPFILE"
        findings.append(Finding(name="loop file", status=status, what=str(error), do=do))
    if loaded is not None:
        findings += _approvers(loaded)
        if not found:
            do = '[approval] channels = [{ use = "slack", channel = "#loops" }]'
            findings.append(Finding(name="loop file", status="warn", what="no channel in it is slack", do=do))
    shown = found or [slack(channel="#loops")]
    for channel in shown:
        findings += _way_back(channel, public_url)
        findings += _reached(channel, environ, send=send and bool(found))
    if send and not found:
        do = "say which channel in a loop file"
        findings.append(Finding(name="test card", status="fail", what="nothing says where to send it", do=do))
    return manifest(shown[0], public_url), findings


def _channels(loaded: Loaded, environ: Mapping[str, str]) -> list[Channel]:
    """The Slack channels that requests and news of the loop go to."""
    tables = ((loaded.loop.approval, "channels"), (loaded.loop.notify, "to"))
    values = [value for table, word in tables for value in table_of(table).get(word, ()) if _is_slack(value)]
    found, faults = resolve_channels(values, project=loaded.project, path=environ.get("PATH", ""))
    if faults:
        raise ConfigError(*(f"slack{key}: {what}" for key, what in faults))
    return list(found)


def _is_slack(value: object) -> bool:
    name = table_of(value).get("use") if not isinstance(value, str) else value
    return isinstance(name, str) and name.partition(":")[0] == "slack"


def _approvers(loaded: Loaded) -> Iterator[Finding]:
    named = table_of(loaded.loop.approval).get("approvers", ())
    for each in named:
        if each.startswith("slack") and not _PERSON.fullmatch(each):
            do = "write slack:U0123ABCD, with the member ID: profile, ⋮, Copy member ID"
            yield Finding(name="approvers", status="fail", what=f"{each!r} is nobody on Slack", do=do)


def _way_back(channel: Channel, public_url: str | None) -> Iterator[Finding]:
    if channel.hear is None:
        yield Finding(
            name="clicks", status="ok", what="come through Socket Mode: no public address is needed"
        )
    elif public_url is None:
        do = 'say [server] public_url = "https://…", or mode = "socket", which needs no address'
        yield Finding(name="clicks", status="fail", what="Slack has no address to send clicks to", do=do)
    else:
        yield Finding(name="clicks", status="ok", what=f"come to {public_url}/channels/{channel.name}")


def _reached(channel: Channel, environ: Mapping[str, str], *, send: bool) -> Iterator[Finding]:
    try:
        line = channel.open(environ)
    except ConfigError as error:
        for problem in error.problems:
            yield Finding(
                name="secrets", status="fail", what=problem, do="set it where loopwright serve runs"
            )
        return
    yield Finding(name="secrets", status="ok", what=f"{', '.join(channel.secrets)} are set")
    if not isinstance(line, SlackLine):
        return
    try:
        yield Finding(name="token", status="ok", what=f"good for {alone(line.probe)}")
        if send:
            ref = alone(lambda: line.show(_test(channel), None))
            do = f"press a button while loopwright serve runs: {_PRESSED}"
            yield Finding(name="test card", status="ok", what=f"sent to {line.channel} ({ref})", do=do)
    except Undelivered as error:
        yield Finding(name="slack", status="fail", what=str(error), do="mend that, then try again")


def _test(channel: Channel) -> Card:
    """A request that no run has asked."""
    does = f"nothing: {_PRESSED}"
    shown = Shown(
        run="doctor-test",
        goal="See that requests arrive and that answers come back.",
        iteration=0,
        number=1,
        about="alert",
        question="This is a test card of loopwright doctor. Does it arrive?",
        why="somebody typed loopwright doctor slack --send",
        effects=(Effect(answer="approve", does=does), Effect(answer="reject", does=does)),
        silence="nothing happens",
        deadline=None,
        blockers=(),
        gates=(),
        score=None,
        trend=(),
        cost_usd=None,
        projected_usd=None,
        tokens=None,
        plan=False,
        seconds=0.0,
        alerts=(),
        before=None,
        after=None,
        summary="",
    )
    return Card(
        run=shown.run,
        loop=channel.name,
        about="needs_you",
        title="a test card",
        head={},
        shown=shown,
        approval="test",
    )
