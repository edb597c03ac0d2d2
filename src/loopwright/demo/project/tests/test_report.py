from pocket import ledger, report

BOOK = """
2024-03-01  1,200.00  wages
2024-03-02    -40.00  food
2024-03-05   -500.00  rent
2024-03-20    -35.00  food
"""
BUDGET = {"food": 10000, "rent": 45000}


def test_overspent_needs_a_budget_and_more_than_it():
    totals = {"rent": 45001, "food": 10000, "fun": 900}
    assert report.overspent(totals, BUDGET) == ["rent"]


def test_monthly():
    assert report.monthly(ledger.read(BOOK), 2024, 3, BUDGET).splitlines() == [
        "category   spent  budget",
        "--------  ------  ----------",
        "rent      500.00  ##########",
        "food       75.00  #######",
        "total     575.00",
        "over budget: rent",
    ]


def test_monthly_within_budget():
    drawn = report.monthly(ledger.read(BOOK), 2024, 3, {"rent": 50000})
    assert drawn.endswith("\nwithin budget\n")


def test_a_month_without_expenses():
    drawn = report.monthly([], 2024, 3, BUDGET)
    assert drawn.splitlines()[2].split() == ["total", "0.00"]
