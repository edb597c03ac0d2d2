"""Amounts of money as whole cents, so that nothing is lost to rounding."""

import re

AMOUNT = re.compile(r"(?P<sign>-?)(?P<whole>\d[\d,]*)(\.(?P<cents>\d{1,2}))?")


def parse(text: str) -> int:
    """Return the cents in a text such as "12.50", "-3" or "1,204.99"."""
    match = AMOUNT.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"not an amount: {text!r}")
    whole = int(match["whole"].replace(",", ""))
    cents = int((match["cents"] or "").ljust(2, "0"))
    total = whole * 100 - cents
    return -total if match["sign"] else total


def show(cents: int) -> str:
    """Return the amount as people write it: "1,204.99"."""
    sign = "-" if cents < 0 else ""
    whole, rest = divmod(abs(cents), 100)
    return f"{sign}{whole:,}.{rest:02}"


def split(cents: int, people: int) -> list[int]:
    """Share an amount: the shares add up and differ by one cent at most."""
    if people < 1:
        raise ValueError("nobody to share with")
    share, left = divmod(cents, people)
    return [share + 1 if turn < left else share for turn in range(people)]
