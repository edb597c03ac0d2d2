"""What a person wants to know at the end of a month."""

from pocket import ledger, money, table
from pocket.period import month


def overspent(totals: dict[str, int], budget: dict[str, int]) -> list[str]:
    """Return the categories that went over their budget, in order."""
    return [
        category
        for category in sorted(totals)
        if category in budget and totals[category] > budget[category]
    ]


def monthly(
    entries: list[ledger.Entry], year: int, number: int, budget: dict[str, int]
) -> str:
    """Return the month as a table, the largest expense first, then a verdict."""
    totals = ledger.spent(entries, month(year, number))
    rows = [
        [category, money.show(cents), table.bar(cents, budget.get(category, 0))]
        for category, cents in totals.most_common()
    ]
    rows.append(["total", money.show(totals.total()), ""])
    over = overspent(totals, budget)
    verdict = f"over budget: {', '.join(over)}" if over else f"within budget"
    return (
        table.render(["category", "spent", "budget"], rows, right="s")
        + f"\n{verdict}\n"
    )
