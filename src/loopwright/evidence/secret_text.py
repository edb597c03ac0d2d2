"""Secrets in the lines of a change: what a person would not want committed, and little else.

Rule: a find names a kind, never the secret. Here a false alarm stops honest work, so a value that stands for one (an
example, a placeholder, words) is none; `redact`, where a false alarm costs nothing, is wider.

The shapes are those that the makers document for their tokens; "assigned" is a value of high entropy given to a name
that says it is secret.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from math import log2
from typing import Final

SHORTEST: Final = 12  # bytes of a line in which one can stand
_PEM: Final = r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
_B: Final = r"(?<![A-Za-z0-9_])"
# Each with the texts of which one must be there: nearly every line has none of them, and is not read further.
_MAKERS: Final = tuple(
    (kind, tuple(needle.encode() for needle in needles.split()), re.compile(pattern.encode()))
    for kind, needles, pattern in (
        ("an AWS access key", "AKIA ASIA", _B + r"A[KS]IA[A-Z2-7]{16}(?![A-Za-z0-9])"),
        (
            "a GitHub token",
            "ghp_ gho_ ghu_ ghs_ ghr_ github_pat_",
            _B + r"(?:gh[pousr]_[A-Za-z0-9]{36,255}|github_pat_[A-Za-z0-9_]{22,255})",
        ),
        ("a GitLab token", "gl", _B + r"gl(?:pat|rt|dt|ptt|cbt|ft|oas)-[A-Za-z0-9_-]{20,255}"),
        ("a Slack token", "xox xapp-", _B + r"(?:xox[abeoprs]|xapp)-[A-Za-z0-9-]{10,255}"),
        (
            "a Slack webhook",
            "hooks.slack.com",
            r"hooks\.slack\.com/(?:services|workflows)/[A-Z0-9]{8,12}/[A-Z0-9]{8,12}/[A-Za-z0-9/]{20,60}",
        ),
        (
            "a Stripe key",
            "k_live_ k_test_ whsec_",
            _B + r"(?:[sr]k_(?:live|test)_[A-Za-z0-9]{16,255}|whsec_[A-Za-z0-9+/=]{32,255})",
        ),
        ("an Anthropic key", "sk-ant-", _B + r"sk-ant-[a-z0-9]{2,10}-[A-Za-z0-9_-]{20,255}"),
        (
            "an OpenAI key",
            "sk-",
            _B + r"sk-(?:(?:proj|svcacct|admin|or-v1)-[A-Za-z0-9_-]{20,255}|[A-Za-z0-9]{32,255})",
        ),
        (
            "a Google key",
            "AIza GOCSPX-",
            _B + r"(?:AIza[0-9A-Za-z_-]{35}|GOCSPX-[0-9A-Za-z_-]{28})(?![0-9A-Za-z_-])",
        ),
        (
            "a registry token",
            "npm_ pypi-AgEI",
            _B + r"(?:npm_[A-Za-z0-9]{36}(?![A-Za-z0-9])|pypi-AgEIcHlwaS5vcmc[A-Za-z0-9_-]{50,255})",
        ),
        ("a Hugging Face token", "hf_", _B + r"hf_[A-Za-z]{30,60}(?![A-Za-z0-9])"),
        ("a SendGrid key", "SG.", _B + r"SG\.[A-Za-z0-9_-]{22}\.[A-Za-z0-9_-]{43}"),
        ("a DigitalOcean token", "_v1_", _B + r"do[opr]_v1_[a-f0-9]{64}"),
        ("a Shopify token", "shp", _B + r"shp(?:at|ca|pa|ss)_[a-fA-F0-9]{32}"),
        ("an Azure key", "AccountKey=", r"AccountKey=[A-Za-z0-9+/]{86}=="),
        (
            "a JWT",
            ".eyJ",
            _B + r"eyJ[A-Za-z0-9_-]{10,4000}\.eyJ[A-Za-z0-9_-]{10,8000}\.[A-Za-z0-9_-]{20,2000}",
        ),
        (  # a key begins after its head; a program that only looks for heads quotes them whole
            "a private key",
            "-----BEGIN",
            _PEM + r"(?:\s{0,20}$|(?:\\[nr]|\s){1,9}(?:[A-Za-z0-9+/=]{16}|[\"'+,\s\\]{0,9}$))",
        ),
    )
)
_NEEDLE: Final = re.compile(b"|".join(re.escape(needle) for _, needles, _ in _MAKERS for needle in needles))
_IN_URL: Final = re.compile(
    rb"[a-z][a-z0-9+.-]{1,20}://[^\s/?#@:\"'<>{}$]{1,100}:([^\s/?#@\"'<>{}$]{8,200})@([A-Za-z0-9.-]{1,200})"
)
_NAME: Final = (
    rb"([A-Za-z0-9_.-]{0,60}(?:secret|passwd|password|passphrase|api[_-]?key|access[_-]?key|private[_-]?key"
    rb"|signing[_-]?key|encryption[_-]?key|credentials?|token)(?:[_-]?(?:key|value|base64|\d))?)"
)
_WORD: Final = re.compile(rb"secret|passw|passphrase|key|credential|token", re.IGNORECASE)
_QUOTED: Final = re.compile(
    rb"(?<![A-Za-z0-9_.-])"
    + _NAME
    + rb"[\"'`]?\]?\s{0,8}(?::=|=>|=|:)\s{0,8}[\"'`]([^\s\"'`]{16,512})[\"'`]",
    re.IGNORECASE,
)
_BARE: Final = re.compile(
    rb"(?:\s|- |export |ENV ){0,40}" + _NAME + rb"\s{0,8}[=:]\s{0,8}([A-Za-z0-9+/_.~!@#%^&*=-]{16,512})\s*",
    re.IGNORECASE,
)
_SETTINGS: Final = re.compile(
    r"(?:^|/)[^/]*\.(?:env|ya?ml|ini|cfg|conf|properties|toml|tfvars)(?:\.[^/]*)?$|(?:^|/)\.env"
)
_ENV_LINE: Final = re.compile(rb"\s*(?:export |ENV )?\s*[A-Z][A-Z0-9_]*=")
_LISTS: Final = re.compile(
    r"(?:^|/)(?:[^/]*\.lock|[^/]*-lock\.(?:json|ya?ml)|npm-shrinkwrap\.json|go\.sum|[^/]*\.(?:min\.js|map|svg|ipynb|po))$"
)
_STANDS_FOR: Final = re.compile(
    rb"example|sample|dummy|placeholder|change.?me|your|x{4}|\*{3}|test|fake|mock|redacted|insert|replace|todo|foobar"
    rb"|password|secret|123456|abcdef|<|\$\{|\$\(|\{\{|%\(",
    re.IGNORECASE,
)
_MADE_UP: Final = re.compile(rb"example|x{6}|your|0123456789|1234567890|abcdefgh|redacted", re.IGNORECASE)
_NO_SECRET: Final = re.compile(rb"public|publishable", re.IGNORECASE)
_HEX: Final = re.compile(rb"[0-9a-f]+", re.IGNORECASE)


def secrets(path: str, line: bytes) -> Iterator[tuple[str, bytes]]:
    """The secrets in one line of a file: what each looks like, and its text, for comparing only."""
    if len(line) < SHORTEST:
        return
    for kind, needles, pattern in _MAKERS if _NEEDLE.search(line) else ():
        for found in pattern.finditer(line) if any(needle in line for needle in needles) else ():
            if not _MADE_UP.search(found[0]) and (len(set(found[0])) > 8 or kind == "a private key"):
                yield f"looks like {kind}", found[0]
    for found in _IN_URL.finditer(line) if b"://" in line else ():
        host = found[2].lower()
        if (
            b"." in host
            and not _STANDS_FOR.search(found[0])
            and not host.startswith(b"127.")
            and _mixed(found[1])
        ):
            yield "has a password in a URL", found[1]
    if not _LISTS.search(path):
        yield from _assigned(path, line)


def _assigned(path: str, line: bytes) -> Iterator[tuple[str, bytes]]:
    if not _WORD.search(line):
        return
    found = [each.groups() for each in _QUOTED.finditer(line)]
    # In a program a text without quotes is a name, not a value.
    if (_ENV_LINE.match(line) or _SETTINGS.search(path)) and (bare := _BARE.fullmatch(line)):
        found.append(bare.groups())
    for name, value in found:
        if _NO_SECRET.search(name) or _STANDS_FOR.search(value) or value.startswith((b"/", b"./", b"http")):
            continue
        if _HEX.fullmatch(value):  # shorter ones are ids and parts of digests
            random = len(value) >= 32 and _entropy(value) >= 3.0
        else:
            random = _mixed(value) and _entropy(value) >= 3.5
        if random:
            yield "gives a secret-looking name a random value", value


def _mixed(value: bytes) -> bool:
    """Whether it is no words: letters and digits mixed in one long part, or capitals, small letters and digits."""
    classes = (rb"[a-z]", rb"[A-Z]", rb"[0-9]")
    if all(re.search(each, value) for each in classes):
        return True
    return any(
        len(part) >= 12 and re.search(rb"[A-Za-z]", part) and re.search(rb"[0-9]", part)
        for part in re.split(rb"[^A-Za-z0-9+=]+", value)
    )


def _entropy(value: bytes) -> float:
    """Bits for each character, by how often each is there (Shannon)."""
    return -sum(n / len(value) * log2(n / len(value)) for n in Counter(value).values())
