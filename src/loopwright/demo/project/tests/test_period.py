from datetime import date

from pocket.period import Period, merge, month

MARCH = month(2024, 3)


def week(first, last):
    return Period(date(2024, 3, first), date(2024, 3, last))


def test_the_first_day_is_in():
    assert date(2024, 3, 1) in MARCH


def test_the_last_day_is_in():
    assert date(2024, 3, 31) in MARCH


def test_the_end_is_out():
    assert date(2024, 4, 1) not in MARCH
    assert date(2024, 2, 29) not in MARCH


def test_days():
    assert month(2024, 2).days == 29


def test_december_ends_with_the_year():
    assert month(2024, 12) == Period(date(2024, 12, 1), date(2025, 1, 1))


def test_periods_that_touch_do_not_overlap():
    assert not week(1, 8).overlaps(week(8, 15))
    assert not week(8, 15).overlaps(week(1, 8))


def test_periods_with_a_day_in_common_overlap():
    assert week(1, 9).overlaps(week(8, 15))
    assert week(8, 15).overlaps(week(1, 9))


def test_merge_joins_neighbours():
    assert merge([week(8, 15), week(1, 8), week(20, 22)]) == [week(1, 15), week(20, 22)]


def test_merge_keeps_the_longer_end():
    assert merge([week(1, 20), week(3, 5)]) == [week(1, 20)]
