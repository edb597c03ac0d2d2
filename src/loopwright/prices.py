"""What tokens cost, for agents that count tokens and name a model but no dollars.

Rule: list prices from the data that `genai-prices` (`pip install 'loopwright[llm]'`) brings along, never a download.
What cannot be priced stays unknown, never zero: no such package, a model nobody knows, tokens nobody counted.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from typing import Final

from loopwright.core.values import Usage

SHORT: Final = 30_000  # tokens of a request that no maker charges more for than for the next
_DATED: Final = re.compile(r"[-@](?:20\d{6}|20\d\d-\d\d-\d\d|latest)$")


def priced(usage: Usage) -> Usage:
    """`usage` with the dollars its tokens cost by the list prices of its model, where it told none and they are known.

    Tokens of caches that nobody told are taken for none. Some makers charge more for long requests: the tokens are
    spread over the turns, or without them over short requests. `plan` stays: then nobody pays these dollars.
    """
    if usage.cost_usd is not None or usage.input_tokens is None or usage.output_tokens is None:
        return usage
    try:
        import genai_prices
    except ImportError:
        return usage
    written, read = usage.cache_write_tokens or 0, usage.cache_read_tokens or 0
    taken = usage.input_tokens + written + read  # they count what a cache held as input, too
    requests = usage.turns or max(1, math.ceil((taken + usage.output_tokens) / SHORT))
    parts = {
        "input_tokens": taken,
        "cache_write_tokens": written,
        "cache_read_tokens": read,
        "output_tokens": usage.output_tokens,
    }
    each = genai_prices.Usage(**{name: Decimal(count) / requests for name, count in parts.items() if count})
    for model, provider in _names(usage.model or ""):
        try:
            cost = genai_prices.calc_price(each, model, provider_id=provider).total_price * requests
        except (LookupError, ValueError):  # nobody knows it, or its price is by something else than tokens
            continue
        return replace(usage, cost_usd=float(cost)) if cost > 0 else usage
    return usage


def _names(model: str) -> Iterator[tuple[str, str | None]]:
    """What the price list may call this model, with its maker: CLIs put a provider before it and a date after it.

    A provider that is named must be the one that is paid: what runs elsewhere costs what that place asks, or nothing.
    """
    name = re.sub(r"\[\w+\]$", "", model.strip())
    provider, slash, rest = name.partition("/")
    for found in dict.fromkeys((rest if slash else name, _DATED.sub("", rest if slash else name))):
        if found:
            yield found, provider if slash else None
