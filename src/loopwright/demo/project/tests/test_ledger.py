from datetime import date

from pocket import ledger
from pocket.ledger import Entry
from pocket.period import month

BOOK = [
    Entry(date(2024, 3, 1), -4000, "food"),
    Entry(date(2024, 3, 3), 10000, "wages"),
    Entry(date(2024, 3, 4), -2500, "food"),
    Entry(date(2024, 3, 9), -7000, "rent"),
    Entry(date(2024, 4, 1), -900, "food"),
]


def test_read_sorts_and_skips_comments():
    text = "2024-03-02 -12.50 eating out\n\n# nothing\n2024-03-01 3 gift # aunt"
    assert ledger.read(text) == [
        Entry(date(2024, 3, 1), 300, "gift"),
        Entry(date(2024, 3, 2), -1250, "eating out"),
    ]


def test_balance():
    assert ledger.balance(BOOK, opening=5000) == 600


def test_lowest_is_met_on_the_way():
    assert ledger.lowest(BOOK) == -4400
    assert ledger.lowest(BOOK[:4]) == -4000


def test_spent_adds_up_by_category():
    assert ledger.spent(BOOK[:4], month(2024, 3)) == {"food": 6500, "rent": 7000}


def test_spent_leaves_out_the_next_month():
    assert ledger.spent(BOOK, month(2024, 3))["food"] == 6500


def test_spent_counts_no_income():
    assert "wages" not in ledger.spent(BOOK, month(2024, 3))


def test_longest_pause():
    assert ledger.longest_pause(BOOK[:4]) == 4
    assert ledger.longest_pause(BOOK) == 22


def test_no_pause_between_neighbours():
    assert ledger.longest_pause(BOOK[1:3]) == 0
