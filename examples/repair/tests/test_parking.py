from datetime import datetime, timedelta

import pytest

import parking

MONDAY = datetime(2024, 3, 4, 9, 0)


def after(**stay):
    return parking.fee(MONDAY, MONDAY + timedelta(**stay))


def test_half_an_hour_is_free():
    assert after(minutes=30) == 0


def test_an_hour_begun_is_paid():
    assert after(minutes=31) == 250
    assert after(minutes=91) == 500


def test_a_full_hour_is_one_hour():
    assert after(minutes=90) == 250


def test_a_day_costs_the_maximum():
    assert after(hours=20) == 1800


def test_days_and_hours_add_up():
    assert after(days=2, hours=1) == 3850


def test_nobody_leaves_before_coming():
    with pytest.raises(ValueError, match="before"):
        after(hours=-1)


def test_the_gate_is_shut_at_night():
    assert not parking.gate_opens(MONDAY.replace(hour=7), resident=False)
    assert not parking.gate_opens(MONDAY.replace(hour=20), resident=False)


def test_the_gate_is_open_by_day():
    assert parking.gate_opens(MONDAY.replace(hour=8), resident=False)


def test_residents_come_and_go():
    assert parking.gate_opens(MONDAY.replace(hour=23), resident=True)


def test_places_are_taken_and_left():
    assert parking.free_places(10, ["in", "in", "out", "in"]) == 8


def test_a_place_cannot_be_left_twice():
    assert parking.free_places(10, ["out", "in"]) == 9
