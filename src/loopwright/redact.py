"""Secrets out, at every boundary where something is written: logs, facts, prompts, records, the live view.

Rule: what stands in a file of ours, or is shown, went through here first. Two kinds are found: the exact values of
the environment variables that hold secrets (plain and as JSON, XML, URLs and base64 write them), and texts that look
like a secret whatever their source (tokens of known makers, private keys, passwords in URLs). Each becomes
`[redacted:NAME]`. Redacting twice changes nothing, and a stream cut anywhere comes out like the whole.

A value that would eat ordinary text (shorter than six characters, only digits, a word that reports are made of, the
path of a file that exists) is left alone.

How it is quick: nearly everything holds no secret, and a byte that is not there at all is found out at the speed of
memory. So every text is first asked for the rarest byte of each needle, then for the needle; only then does the one
compiled pattern read it.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final

from loopwright.core import events as ev

SECRET_NAME: Final = re.compile(
    r"OTLP\w*_HEADERS|SECRET|PASSWORD|PASSWD|CREDENTIAL|(?:KEY|TOKEN)S?(?![A-Z])", re.IGNORECASE
)
SECRET_URL: Final = re.compile(
    r"[a-z][a-z0-9+.-]*://[^/?#\s@:]*:[^/?#\s@]+@"  # scheme://user:password@
    r"|https?://[^/?#\s@]+@"  # a token in place of the user; ssh://git@ is none
    r"|://\S*[?&][^=&\s]*(?:password|passwd|secret|token|key)=[^&\s]",
    re.IGNORECASE,
)
EVERYDAY: Final = frozenset(
    {"HOSTNAME", "LANG", "LOGNAME", "SHELL", "TERM", "TZ", "USER"}
)  # let through or not
OURS: Final = frozenset({"LOOPWRIGHT_KEY"})  # looks like a secret by its name and is printed everywhere
SHORTEST: Final = 6
# Words that reports, JSON and programs are made of: a password like these cannot be told from the text around it.
WORDS: Final = frozenset(
    """
    default disabled enabled required optional password passwd secret secrets token tokens changeme example
    result results status success passed failed failure failures errors skipped testcase testsuite testsuites
    message output summary assert report reports string number object public private localhost postgres
    """.split()  # noqa: SIM905 - legible
)
REACH: Final = 16 << 10  # bytes; no pattern matches more than this

# What secrets of known makers look like, each with the texts of which one must be there. The group marks the secret
# and its name is the tag's; one that is empty and last marks all that matched. Each begins with one certain character,
# which is what makes the search quick. No class holds a bracket (a tag never becomes part of a match), a quote or a
# lone backslash (JSON stays JSON), and but for private keys none goes beyond a line or holds more than two blanks:
# `Stream` relies on that. Lookbehinds reach two bytes back; they refuse `]` as they refuse a letter (a tag in front
# changes nothing) and know a line end as JSON writes it. No text makes one scan much more than once.
_BODY: Final = r"[A-Za-z0-9._~+/=-]"
_DIGIT: Final = r"(?=[A-Za-z._~+/=-]{0,200}[0-9])"
_BEARER: Final = rf"earer (?P<bearer>{_DIGIT}{_BODY}{{16,4000}})"
_HEADER: Final = (
    rf"""uthorization["']?[:=] ?["']?(?:[A-Za-z]{{3,10}} )?(?P<authorization>{_BODY}{{16,4000}})"""
)
_QUERY: Final = (
    r"(?:[A-Za-z]{1,16}[_-])?(?:token|secret|password|passwd|key|sig|signature)="
    r"""(?P<url_secret>[^\s&#"'<>\\\[\]]{8,512})"""
)
_PEM: Final = (  # without its end (a file shown in part) as far as it looks like one
    r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY-----"
    r"(?:(?:[A-Za-z0-9+/=\s,:]|\\{1,2}[nrt]|-(?!-)){0,5000}-----END [A-Z0-9 ]{0,40}PRIVATE KEY-----"
    r"|(?:(?:\s|\\{1,2}[nrt]){0,8}[A-Za-z0-9+/=]{16,80}){0,150})(?P<private_key>)"
)
_JWT: Final = (  # begun once in a run of its letters: many beginnings would be slow
    r"eyJ(?:(?<![A-Za-z0-9_\]-]eyJ)|(?<=\\[nrt]eyJ))[A-Za-z0-9_-]{8,4000}+\.eyJ[A-Za-z0-9_-]{8,8000}+"
    r"\.[A-Za-z0-9_-]{0,2000}(?P<jwt>)"
)
PATTERNS: Final = (
    (r"A[KS]IA(?:(?<![A-Za-z0-9\]]A[KS]IA)|(?<=\\[nrt]A[KS]IA))[0-9A-Z]{16}(?P<aws_key>)", ("AKIA", "ASIA")),
    (r"gh[pousr]_[A-Za-z0-9]{30,255}(?P<github_token>)", ("ghp_", "gho_", "ghu_", "ghs_", "ghr_")),
    (r"github_pat_[A-Za-z0-9_]{22,255}(?P<github_token>)", ("github_pat_",)),
    (r"glpat-[A-Za-z0-9_-]{20,255}(?P<gitlab_token>)", ("glpat-",)),
    (
        r"sk-(?:(?<![A-Za-z0-9_\]-]sk-)|(?<=\\[nrt]sk-))(?=[A-Za-z_-]{0,200}[0-9])[A-Za-z0-9_-]{20,255}(?P<api_key>)",
        ("sk-",),
    ),
    (r"xox[a-z]-[A-Za-z0-9-]{10,255}(?P<slack_token>)", ("xox",)),
    (r"xapp-[A-Za-z0-9-]{10,255}(?P<slack_token>)", ("xapp-",)),
    (r"AIza[0-9A-Za-z_-]{35}(?P<google_key>)", ("AIza",)),
    (_JWT, ("eyJ",)),
    (_PEM, ("PRIVATE KEY-----",)),
    (
        r"""://[^\s/?#@:"'<>\\\[\]]{0,256}:(?P<url_password>[^\s/?#@"'<>\\\[\]]{1,256})(?=@)""",
        ("://",),
    ),
    ("[?]" + _QUERY, ("token=", "secret=", "password=", "passwd=", "key=", "sig=", "signature=")),
    ("&" + _QUERY, ()),
    ("B" + _BEARER, ("Bearer ",)),
    ("b" + _BEARER, ("bearer ",)),
    ("A" + _HEADER, ("uthorization",)),
    ("a" + _HEADER, ()),
)
_ATOMS: Final = frozenset({type(None), bool, int, float})
_SAYING: Final = frozenset(  # the facts that hold what agents, gates and people said
    {
        ev.AttemptSucceeded,
        ev.AttemptFailed,
        ev.GateScored,
        ev.NoteAdded,
        ev.ApprovalDecided,
        ev.Noticed,
        ev.Delivered,
    }
)
_TAG: Final = r"\[redacted:[A-Za-z0-9_.-]{1,80}\](?P<tag>)"

# Bytes from rare to frequent in what programs print; those not here (not ASCII, control) are rarer still.
_OFTEN: Final = (
    b"~^`|\\@%$&+<>{}?!;*#QZXJKVYWGHBUFPMDOLNRCISTAE[]=()'\",:_-/0987654321zqjxkvbygwpfhmucdlnrsioate. \n"
)


def looks_secret(name: str, value: str) -> bool:
    """Whether an environment variable holds a secret, by its name or because it is a URL with credentials."""
    if name.upper().endswith("TOKENS") and value.isdecimal():
        return False
    return name not in OURS and bool(SECRET_NAME.search(name) or SECRET_URL.search(value))


def redactor(environ: Mapping[str, str], *, allowed: Iterable[str] = ()) -> Redactor:
    """What takes the secrets of this environment out: those that look like it by name, and the `allowed` names."""
    named = set(allowed) - EVERYDAY
    found: dict[bytes, str] = {}
    for name, value in environ.items():
        if name in named or looks_secret(name, value):
            for text in (value, value.strip(), *_in_url(value)):
                if _telling(text):
                    for form in _forms(text):
                        found.setdefault(form, re.sub(r"[^A-Za-z0-9_.-]", "_", name)[:80] or "_")
    return Redactor(literals=found)


def _in_url(value: str) -> Iterator[str]:
    """The password, or the token in place of the user, of a URL."""
    if "://" not in value or "@" not in value:
        return
    from urllib.parse import unquote, urlsplit

    try:
        parts = urlsplit(value)
    except ValueError:
        return
    if secret := parts.password or parts.username:
        yield secret
        yield unquote(secret)


def _telling(value: str) -> bool:
    """Whether a value can be taken out of a text without eating the text."""
    if len(value) < SHORTEST or value.isdecimal() or value.lower() in WORDS or "[redacted:" in value:
        return False
    if len(set(value)) < 3:
        return False
    return not (value.startswith("/") and os.path.lexists(value))


def _forms(value: str) -> Iterator[bytes]:
    """How a value is written: as it is, and as JSON, XML, URLs and base64 write it."""
    import html
    from base64 import b64encode, urlsafe_b64encode
    from urllib.parse import quote, quote_plus

    once = [json.dumps(value, ensure_ascii=ascii_only)[1:-1] for ascii_only in (True, False)]
    twice = [json.dumps(text, ensure_ascii=ascii_only)[1:-1] for text in once for ascii_only in (True, False)]
    texts = [value, *once, *twice]
    texts += [html.escape(value), html.escape(value, quote=False)]
    raw = value.encode("utf-8", "surrogateescape")
    for quoted in (quote(raw, safe=""), quote(raw), quote_plus(raw)):
        texts += [quoted, re.sub(r"%..", lambda m: m[0].lower(), quoted)]
    yield from dict.fromkeys(text.encode("utf-8", "surrogateescape") for text in texts)
    for encode in (b64encode, urlsafe_b64encode):
        for before in range(3):  # how many bytes of another text share its first group
            code = encode(b"\0" * before + raw).rstrip(b"=")
            first = (0, 2, 3)[before]
            last = len(code) if (before + len(raw)) % 3 == 0 else len(code) - 1
            if last - first >= SHORTEST + 1:
                yield code[first:last]


def _rarest(needle: bytes) -> int:
    """The byte of a needle that is least likely to be found."""
    return min(needle, key=_OFTEN.find)


@dataclass(frozen=True)
class Redactor:
    """Takes secrets out of texts, bytes, JSON values and facts; without `literals`, those of known makers only."""

    literals: Mapping[bytes, str] = field(default_factory=dict)

    @cached_property
    def _needles(self) -> tuple[tuple[int, bytes], ...]:
        known = [needle.encode() for _, needles in PATTERNS for needle in needles]
        return tuple((_rarest(needle), needle) for needle in (*known, *self.literals))

    @cached_property
    def _pattern(self) -> tuple[re.Pattern[bytes], tuple[bytes, ...]]:
        """The one pattern, and what stands for each of its groups."""
        words = sorted(self.literals, key=len, reverse=True)
        each = [_TAG.encode(), *(re.escape(word) + b"(?P<literal>)" for word in words)]
        each += [pattern.encode() for pattern, _ in PATTERNS]
        names = [re.findall(r"\(\?P<(\w+)>", one.decode("latin-1"))[-1].replace("_", "-") for one in each]
        names[1 : len(words) + 1] = [self.literals[word] for word in words]
        bare = [re.sub(rb"\(\?P<\w+>", b"(", one) for one in each]
        tags = tuple(f"[redacted:{name}]".encode() for name in names)
        return re.compile(b"|".join(bare)), tags

    @cached_property
    def reach(self) -> int:
        """The bytes that a match may have."""
        return max([REACH, *map(len, self.literals)]) + 1

    @cached_property
    def wide(self) -> tuple[bytes, ...]:
        """The values with a blank or a line end in them."""
        return tuple(word for word in self.literals if re.search(rb"\s", word))

    def may_hold(self, data: bytes) -> bool:
        """Whether there may be a secret; `False` is certain."""
        if len(data) < SHORTEST:
            return False
        for rare, needle in self._needles:  # noqa: SIM110 - twice as fast as any()
            if rare in data and needle in data:
                return True
        return False

    def matches(self, data: bytes, start: int = 0) -> Iterator[tuple[int, int, bytes]]:
        """Where the secrets are, in order: begin, end, what to put there."""
        pattern, tags = self._pattern
        for found in pattern.finditer(data, start):
            group = found.lastindex or 1
            if group > 1:  # 1 is a tag that stands there already
                begin, end = found.span(group)
                front = data[found.start() : begin] if begin < end else b""
                yield found.start(), found.end(), self.data(front) + tags[group - 1]

    def data(self, data: bytes) -> bytes:
        """`data` without its secrets."""
        if not self.may_hold(data):
            return data
        parts, at = [], 0
        for begin, end, tag in self.matches(data):
            parts += [data[at:begin], tag]
            at = end
        return b"".join([*parts, data[at:]]) if parts else data

    def text(self, text: str) -> str:
        """`text` without its secrets."""
        if len(text) < SHORTEST:
            return text
        data = text.encode("utf-8", "surrogatepass")
        clean = self.data(data)
        return text if clean is data else clean.decode("utf-8", "surrogatepass")

    def value(self, value: Any) -> Any:
        """A JSON value without its secrets: every text in it, names of objects too."""
        if type(value) in _ATOMS:  # quick: most results of functions are
            return value
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.value(key): self.value(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return type(value)(self.value(item) for item in value)
        return value

    def event(self, event: ev.Event) -> ev.Event:
        """A fact without secrets in what agents, gates and people said; a loop as it was written stays."""
        if type(event) not in _SAYING:  # quick: most facts hold nobody's words
            return event
        match event:
            case ev.AttemptSucceeded():
                said = (event.result, event.summary, event.session, event.degraded)
                if type(event.result) in _ATOMS and not any(said[1:]):
                    return event
                result, summary, session, degraded = clean = tuple(map(self.value, said))
                if clean == said:
                    return event
                return replace(event, result=result, summary=summary, session=session, degraded=degraded)
            case ev.AttemptFailed():
                message, session = self.text(event.message), self.value(event.session)
                return replace(event, message=message, session=session)
            case ev.GateScored(score=score):
                if not (score.reason or score.failing or score.evidence or score.unit):
                    return event
                clean_score = replace(
                    score,
                    reason=self.text(score.reason),
                    unit=self.text(score.unit),
                    failing=self.value(score.failing),
                    evidence=self.value(score.evidence),
                )
                return replace(event, score=clean_score)
            case ev.NoteAdded():
                return replace(event, text=self.text(event.text))
            case ev.ApprovalDecided():
                return replace(event, note=self.text(event.note), override=self.value(event.override))
            case ev.Noticed() | ev.Delivered():
                return replace(event, ref=self.text(event.ref), problem=self.value(event.problem))
            case _:
                return event

    def stream(self) -> Stream:
        """For output that comes in chunks."""
        return Stream(self)


PLAIN: Final = Redactor()


@dataclass(slots=True)
class Stream:
    """Output without its secrets, as it comes. What may be the beginning of one is held back until it is known."""

    redactor: Redactor
    before: bytes = b""  # the bytes in front of the held text, for lookbehinds
    held: bytes = b""

    def add(self, chunk: bytes) -> bytes:
        """One more chunk; what of it and of the held text can be given out."""
        text = self.held + chunk if self.held else chunk
        cut = self._undecided(text)
        if self.redactor.may_hold(text):
            return self._given(text, cut)
        self.before, self.held = (self.before + text[max(0, cut - 2) : cut])[-2:], text[cut:]
        return text if cut == len(text) else text[:cut]

    def close(self) -> bytes:
        """The rest, at the end of the stream."""
        text, self.held = self.held, b""
        return self._given(text, len(text))

    def _given(self, text: bytes, cut: int) -> bytes:
        """What comes before `cut`, a match that crosses it included."""
        whole, past = self.before + text, len(self.before)
        parts, at, end_at = [], past, cut + past
        for begin, end, tag in self.redactor.matches(whole, past):
            if begin >= end_at:
                break
            parts += [whole[at:begin], tag]
            at, end_at = end, max(end_at, end)
        parts.append(whole[at:end_at])
        self.before, self.held = whole[max(0, end_at - 2) : end_at], whole[end_at:]
        return b"".join(parts)

    def _undecided(self, text: bytes) -> int:
        """From where on a match might go on beyond the end: the last words of the last line, or an open key."""
        first = max(0, len(text) - self.redactor.reach)
        line = max(text.rfind(b"\n", first), text.rfind(b"\r", first), first - 1) + 1
        cut = len(text)
        for _ in range(3):
            cut = text.rfind(b" ", line, cut)
            if cut < 0:
                break
        cut = cut + 1 if cut >= 0 else line
        key = text.rfind(b"-----BEGIN ", first)
        if key >= 0 and text.count(b"KEY-----", key) < 2:
            cut = min(cut, key)
        for word in self.redactor.wide:
            start = max(0, len(text) - len(word) + 1)
            while (start := text.find(word[:1], start, cut)) >= 0:
                if word.startswith(text[start:]):
                    cut = start
                    break
                start += 1
        return cut
