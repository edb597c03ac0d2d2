"""What error texts look like: one table of patterns as data, and the rows a user puts before it.

Rule: a pattern that ends a run (permanent) must be narrow, one that waits may be wide: a wrong wait costs a little time.
A pattern of the user's is tried before it is used: one that would take for ever on some text is refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from re import _parser as parser  # type: ignore[attr-defined] # the only way to see what a pattern repeats
from typing import Any, Final

from loopwright.core.values import FailureKind
from loopwright.errors import ConfigError
from loopwright.readers import hint
from loopwright.units import shown

LINE_CHARS: Final = 1000  # of a line that a user's pattern is tried on
FEW: Final = 8  # as often may a part be repeated that itself varies
SAID: Final[tuple[FailureKind, ...]] = (
    "rate_limited",
    "transient",
    "context_overflow",
    "blocked",
    "permanent",
)


@dataclass(frozen=True, slots=True)
class Rule:
    """One row of the table: lines that `pattern` finds something in are of that kind, for that reason."""

    kind: FailureKind
    why: str
    pattern: re.Pattern[str]


def _rule(kind: FailureKind, why: str, *patterns: str) -> Rule:
    return Rule(kind, why, re.compile("|".join(patterns), re.IGNORECASE))


def _http(codes: str) -> str:
    """A status code where it is one: after a word that announces it, in brackets, before a body; not any number."""
    return (
        r"\b(?:https?(?:/[\d.]+)?|status(?:[_ ]?code)?|code|error(?:[_ ]code)?)[\"']?\s?[:=(\[]?\s?[\"']?(?:status )?"
        rf"(?:{codes})\b(?!\s*(?:[!=]=|%|tests?\b|files?\b|lines?\b|ms\b))|\s\((?:{codes})\)(?!:)"
        rf"|^(?:{codes})\s+\{{"
    )


_FILE: Final = (
    r"\w{0,60}\.(?:[jt]sx?|pyi?|go|rs|rb|java|cc?|cpp|h|txt|md|json|ya?ml|toml|log|sh)\b"  # no error, a name
)
_STATED: Final = r"(?:try again|retry|available|resets?|reset)\b.{0,20}?\b(?:in|after)\s+\d"
_LIMIT_WORDS: Final = r"(?:usage|rate|session|hour(?:ly)?|daily|weekly|monthly|request|quota|plan|token|concurrency|per (?:second|minute|hour|day))"
_OVER: Final = r"exceed(?:s|ed)?|beyond|larger than|ran out of|too (?:long|large|big)|overflow"

RULES: Final[tuple[Rule, ...]] = (
    _rule(
        "permanent",
        "billing",
        r"insufficient[_ ]quota",
        r"billing_error|billing[_ ]hard[_ ]limit",
        r"credit balance is too low|out of credits?\b|insufficient (?:credits?|funds|balance)",
        r"payment required|requires more credits|can only afford \d|extra usage is required",
        r"exceeded your (?:[\w-]+ ){0,3}credits\b|budget has been exceeded|\bExceededBudget\b",
        rf"\bspend(?:ing)? (?:limit|cap)\b(?!.*{_STATED})|\bkey limit exceeded\b(?! \((?:dai|week|month)ly)",
        r"\bto use \w+ with your \w+ plan, upgrade\b",
        r"no active subscription|subscription (?:has |is )?(?:expired|ended|inactive|cancell?ed)|free trial (?:has )?(?:ended|expired)",
        r"payment (?:method )?(?:was |has been )?(?:declined|failed)|add a payment method",
        _http("402"),
        # Gemini says the same of a limit per minute, but then with a time.
        rf"(?<!\w)exceeded your current quota(?!.*{_STATED})|check your (?:plan and )?billing(?!.*{_STATED})",
    ),
    _rule(
        "context_overflow",
        "the context is full",
        r"prompt(?: is|_)?[ _]?too[ _]long|rejected the prompt as too long|input (?:is )?too long|conversation is too long",
        r"context[_ ]length[_ ]exceeded|context[_ ]?overflow|maximum context length|exceeds? (?:the )?context limit",
        r"context[_ ]?window[_ ]?exceeded|exceed_context_size|\binput_too_large\b",
        rf"\b(?:{_OVER})\b.{{0,60}}\bcontext (?:window|size|limit|length)",
        rf"\bcontext (?:window|size|limit|length)\b.{{0,60}}\b(?:{_OVER}|is full)\b",
        r"exceeds? (?:the )?(?:model['’]s )?maximum context|(?:input|prompt) tokens? exceeds?",
        r"exceeds? the (?:maximum|max)(?: allowed)?(?: number of)?(?: input)? tokens|string[_ ](?:above_max_length|too long)",
        r"request[_ ](?:entity[_ ])?too[_ ]large",
        _http("413"),
    ),
    _rule(
        "rate_limited",
        "rate limited",
        _http("429"),
        r"^429\W*$",
        r"too ?many ?requests|too many tokens(?: per \w+)?, please wait|\b429\b.{0,40}\b(?:try again|retry)",
        rf"(?:\brate[ _-]?|(?-i:Rate))limit(?!ers?(?![a-z])|{_FILE})|\bthrottl(?:ed|ing)(?:exception|error)?\b|usage_limit_reached",
        rf"\b{_LIMIT_WORDS}[ -]?limits?[ :]*(?:has been |have been |was )?(?:reached|exceeded|hit|exhausted)",
        r"\b(?:hit|reached|exceeded) (?:your|the|its|an?) (?:[\w'’.-]+ ){0,4}(?:limits?|quota|allowance|usage)\b",
        r"\b(?:limits?|quota|usage|tokens?|access) (?:will )?(?:be )?(?:resets?|refills?|renews?|lifted|restored) (?:at|on|in|tomorrow|\w{3,9} \d|\w{3,6}day)",
        r"\breset[_-](?:at|time)[\"']?\s?[:=]\s?[\"']?\d{10}",
        r"resource(?:_| (?:has been )?)exhausted|exhausted your (?:[\w-]+ ){0,2}(?:capacity|quota)",
        r"quota(?: will reset|[_ ]?exceeded| has been exceeded)|exceed quota limits?|capacity exceeded",
        r"exceeded your current quota|\blimit reached\b.*\b(?:resets?|again|wait|retry)\b|\bquota reached\b|request a quota increase",
        r"\b(?:usage|quota|allowance) (?:is |has been )?(?:exceeded|exhausted|used up)\b|\bout of (?:extra |free )?usage\b",
        r"requests? too (?:quickly|fast|frequently)|\bplease slow down\b",
        r"\bresets?(?: at)? (?:[A-Z][a-z]{2,8}\.? \d{1,2},? (?:at )?)?\d{1,2}(?::\d\d)?\s*[ap]\.?m\b",
    ),
    _rule(
        "permanent",
        "model",
        r"(?:\b|[a-z])model_?not_?(?:found|available|supported)|(?:unknown|invalid|unsupported|no such) model(?:$|[:,.]|\s*['\"`(]| (?:name|id|identifier|specified)\b| \S*\d)",
        r"\bnot a valid model",
        r"\bmodel\b:?\s+\S{1,100}\s+(?:was |is )?not (?:found|supported|available)\b|\bmodel not found",
        r"\bmodels/\S{1,100} is not (?:found|supported)|\bmodel identifier is invalid|on-demand throughput isn.t supported",
        r"\bmodel\b.{0,100}\bdoes not exist|(?:issue|problem) with the selected model",
        r"\bmodel\b.{0,60}\bhas been (?:deprecated|retired|decommissioned|removed)|n[o']t have access to (?:the |this )?model\b",
        r"\bno endpoints found|DeploymentNotFound|\bLLM Provider NOT provided",
        rf"(?:{_http('404')}).{{0,100}}\bmodel\b",
    ),
    _rule(
        "permanent",
        "authentication",
        _http("401|403"),
        r"(?:invalid|incorrect|missing|expired|revoked|malformed|no)[ _](?:x-)?api[ _-]?key\b(?! rotation)",
        r"api key (?:not |is not |is |has been |has )?(?:valid|found|set|missing|invalid|expired|revoked|disabled)\b|api_key client option must be set",
        r"\b[A-Z]+_(?:API_KEY|TOKEN)\b.{0,40}\b(?:(?:is |are )?(?:not set|missing|required)|must be set)|missing environment variable",
        r"authentication[_ ](?:error|failed)|AuthenticationError|failed to authenticate|\bunauthorized\b|\b403 forbidden\b|\bpermission_error\b|(?-i:\bUNAUTHENTICATED\b)",
        r"(?-i:\bPERMISSION_DENIED\b)|AccessDeniedException|ExpiredToken|UnrecognizedClientException|\binvalid_(?:grant|client)\b",
        r"invalid (?:authentication|auth|api|bearer|oauth|access|refresh)[ _](?:credentials?|tokens?)|security token included in the request",
        r"could not (?:resolve authentication|load (?:the default )?credentials)|unable to locate credentials",
        r"no auth(?:entication)? (?:credentials|information) found|set an auth method|reauthentication is (?:needed|required)",
        r"\b(?:account|organi[sz]ation|workspace|user|consumer)\b(?: \S{1,60})? (?:has been |is |was )(?:disabled|suspended|deactivated|terminated)",
        r"not logged in|must be logged in|please (?:run /?log ?in|log ?in|sign in)|\brun \S{2,20} (?:auth )?login\b|login required|sign in again",
        r"(?:token|credentials)(?: has| have| is| has been)? (?:expired|revoked)|\btoken_expired\b|refresh token was",
        r"(?:country|region|territory|location) (?:is )?not supported",
    ),
    _rule(
        "permanent",
        "the command line",
        r"(?:unknown|unrecogni[sz]ed|no such|unexpected) (?:command.line )?(?:option|argument|flag|(?:sub)?command)s?\b",
        r"(?:invalid|illegal) (?:option|flag)\b|flag provided but not defined|required arguments were not provided",
        r"the following arguments are required|requires an argument\b|missing (?:argument|option|parameter) ['\"]",
        r"\busage error\b|cannot be used with\b",
    ),
    _rule(
        "blocked",
        "not allowed",
        r"permission denied|operation not permitted|permission_denied",
        r"(?:needs|requires|require|awaiting|waiting for) (?:your |user |human |manual )?(?:approval|permission)",
        r"(?:tool|command|action)\b.{0,60}\b(?:was|is|were) (?:denied|refused|rejected|not allowed|not permitted)",
        r"permissions? to .{1,80}\b(?:denied|haven['’]t granted)",
        r"\b(?:denied|refused) (?:the )?(?:use of|permission|access to (?:the )?tool)",
        r"violat\w{1,5} (?:our|the|\S{1,20}['’]s) (?:usage |content )?polic|content[_ ]?policy[_ ]?violation|content filter(?:ing)? policy|content management policy",
    ),
    _rule(
        "transient",
        "a passing fault",
        _http(r"408|500|502|503|504|52\d|530"),
        r"overloaded|(?:at|out of|no) capacity|\bserver_error\b|is (?:currently )?loading$|internal ?server ?(?:error|exception)|bad ?gateway|service ?unavailable|gateway time-?out",
        r"temporarily unavailable|temporary (?:failure|errors?)|experiencing high demand|server is busy|ModelNotReadyException",
        r"timed out|\b(?:Connect|Read)(?:Timeout|Error)\b|\btime-?out\b(?! (?:option|setting|value|is|to)\b|\s?[=:]\s?\d)|deadline exceeded",
        r"connection (?:was |is )?(?:reset|refused|aborted|closed|dropped|error|lost|failed|terminated)|all connection attempts failed|APIConnectionError",
        r"\bERR_(?:CONNECTION|NETWORK|TIMED|INTERNET)|: (?:unexpected )?EOF$",
        r"\bE(?:CONNRESET|CONNREFUSED|CONNABORTED|TIMEDOUT|HOSTUNREACH|NETUNREACH|NOTFOUND|AI_AGAIN|PIPE)\b",
        r"could not resolve host|name resolution|network (?:is unreachable|error|request failed)|socket hang ?up|fetch failed|error sending request",
        r"stream disconnected|broken pipe|waiting for network|remote end closed|peer closed connection|premature close",
        r"(?:cannot|could not|unable to|failed to) connect\b|provider returned error|upstream connect error",
    ),
)
# What accompanies every fault: it decides only where nothing else was said.
ADVICE: Final[tuple[Rule, ...]] = (
    _rule("rate_limited", "rate limited", r"\bretry[-_]after[\"']?\s*[:=]\s*\S"),
    _rule(
        "transient",
        "a passing fault",
        r"try again (?:later|in a (?:moment|few))|you can retry your request|\bplease retry\b",
    ),
)


def own(errors: Sequence[Mapping[str, Any]], where: str = "errors") -> tuple[Rule, ...]:
    """The rows of an `errors` option, in its order; ConfigError names every one that cannot be used.

    Each is `{kind = "rate_limited", pattern = "quota used up"}`: a regular expression that is looked for in
    each line of the error text, whatever the case of its letters.
    """
    rules, problems = list[Rule](), list[str]()
    for number, row in enumerate(errors):
        place = f"{where}[{number}]"
        if not isinstance(row, Mapping) or set(row) != {"kind", "pattern"}:
            problems.append(
                f'{place} is {shown(row)}: write {{ kind = "rate_limited", pattern = "quota used up" }}'
            )
            continue
        kind, text = row["kind"], row["pattern"]
        if kind not in SAID:
            near = hint(kind, SAID) if isinstance(kind, str) else ""
            problems.append(f"{place}.kind is {shown(kind)}, not one of {', '.join(SAID)}{near}")
        if wrong := _wrong(text):
            problems.append(f"{place}.pattern {shown(text)} {wrong}")
        if not problems:
            rules.append(Rule(kind, "your rule", re.compile(text, re.IGNORECASE)))
    if problems:
        raise ConfigError(*problems)
    return tuple(rules)


def _wrong(text: object) -> str:
    """Why a pattern cannot be used, else nothing."""
    if not isinstance(text, str) or not text.strip():
        return "is no text to look for"
    try:
        tree = parser.parse(text)
        pattern = re.compile(text, re.IGNORECASE)
        steps = _steps(tree)
    except (re.error, OverflowError, RecursionError) as error:
        return f"is not a regular expression: {error}"
    if pattern.search(""):
        return "fits every line: name a word that must be there"
    if steps is None:
        return "repeats a group that repeats or chooses inside, as (a+)+ or (a|b)*: on some texts that takes for ever"
    if steps > LINE_CHARS**2:
        return "has too many .* in it: write .{0,80} where a few words may stand between"
    return ""


def _steps(tree: Any) -> int | None:
    """In how many ways the wide repeats of a pattern can share out a line; `None`: in exponentially many."""
    ways = 1
    for op, value in tree:
        match str(op):
            case "MAX_REPEAT" | "MIN_REPEAT":
                low, high, body = value
                inner = _steps(body)
                if int(high) > 1 and inner is not None and _varies(body):
                    inner = inner ** int(high) if high <= FEW else None
                elif _wide(body):
                    ways *= min(int(high), LINE_CHARS) - low + 1
            case "SUBPATTERN":
                inner = _steps(value[-1])
            case "BRANCH":
                each = [_steps(branch) for branch in value[1]]
                inner = None if None in each else max(count or 1 for count in each)
            case "ASSERT" | "ASSERT_NOT":
                inner = _steps(value[1])
            case "ATOMIC_GROUP":
                inner = _steps(value)
            case _:
                inner = 1
        if inner is None:
            return None
        ways *= inner
    return ways


def _varies(tree: Any) -> bool:
    """Whether a repeated part can itself match one text in several ways: it repeats or chooses."""
    for op, value in tree:
        match str(op):
            case "MAX_REPEAT" | "MIN_REPEAT":
                if value[0] != value[1] or _varies(value[2]):
                    return True
            case "BRANCH":
                return True
            case "SUBPATTERN":
                if _varies(value[-1]):
                    return True
            case _:
                pass
    return False


def _wide(tree: Any) -> bool:
    """Whether a repeated part takes nearly any character: a dot, a negated set, all of a word."""
    for op, value in tree:
        match str(op):
            case "ANY" | "NOT_LITERAL":
                return True
            case "IN" if any(
                str(kind) == "NEGATE" or "NOT" in str(v) or "WORD" in str(v) for kind, v in value
            ):
                return True
            case "SUBPATTERN" if _wide(value[-1]):
                return True
            case _:
                pass
    return False
