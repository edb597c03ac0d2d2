"""A day's money: what may be spent stands on the ledger first, and whatever crashes, never too little does."""

import math
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_store_ledgers import DAY, KINDS

from loopwright import ledger
from loopwright.errors import StoreError
from loopwright.stores.memory import MemoryStore


@pytest.fixture(params=KINDS)
def store(request, tmp_path):
    made = KINDS[request.param](tmp_path)
    yield made
    made.close()


def test_a_reservation_is_told_from_money_spent(store):
    assert ledger.spent(store, DAY) == (0.0, 0.0)
    assert ledger.reserve(store, f"{DAY}/a/1/1", 0.5) == 0.5
    assert ledger.reserve(store, f"{DAY}/b/1/1", 0.2) == 0.7
    assert ledger.spent(store, DAY) == (0.0, 0.7)
    ledger.settle(store, f"{DAY}/a/1/1", 0.8)
    assert ledger.spent(store, DAY) == (0.8, 0.2)
    ledger.settle(store, f"{DAY}/b/1/1", 0.0)
    assert ledger.spent(store, DAY) == (0.8, 0.0)
    assert ledger.spent(store, "2026-12-01") == (0.0, 0.0)


def test_whatever_is_said_again_counts_once(store):
    for _ in range(2):
        ledger.reserve(store, f"{DAY}/a/1/1", 0.5)
    for usd in (0.3, 0.3, 7.0):
        ledger.settle(store, f"{DAY}/a/1/1", usd)
        ledger.reserve(store, f"{DAY}/a/1/1", 0.5)
    assert ledger.spent(store, DAY) == (0.3, 0.0)


def test_what_was_never_reserved_is_spent_all_the_same(store):
    ledger.settle(store, f"{DAY}/a/1/1", 0.3)
    assert ledger.spent(store, DAY) == (0.3, 0.0)


def test_the_reservation_that_stands_there_is_given_back_whatever_a_loop_file_says_by_now(store):
    ledger.reserve(store, f"{DAY}/a/1/1", 0.5)
    assert ledger.reserve(store, f"{DAY}/a/1/1", 9.0) == 0.5
    ledger.settle(store, f"{DAY}/a/1/1", 0.1)
    assert ledger.spent(store, DAY) == (0.1, 0.0)


@pytest.mark.parametrize("usd", [-0.01, math.nan, math.inf])
def test_what_is_no_amount_is_refused(store, usd):
    for act in (ledger.reserve, ledger.settle):
        with pytest.raises(ValueError, match="no amount of dollars"):
            act(store, f"{DAY}/a/1/1", usd)
    assert ledger.spent(store, DAY) == (0.0, 0.0)


def test_what_is_settled_while_one_looks_is_not_left_out():
    store = MemoryStore()
    ledger.reserve(store, f"{DAY}/a/1/1", 0.5)

    class Interrupted:
        add = hold = holds = lift = None

        def total(self, *args):
            found = store.total(*args)
            ledger.settle(store, f"{DAY}/a/1/1", 0.5)
            return found

    assert sum(ledger.spent(Interrupted(), DAY)) >= 0.5


class Without:
    """A store that somebody wrote before there were ledgers."""

    def append(self, run, n, commit):
        raise AssertionError("not called")


def test_a_store_without_ledgers_is_said():
    assert ledger.kept(MemoryStore())
    assert not ledger.kept(Without())
    for act in (
        lambda: ledger.spent(Without(), DAY),
        lambda: ledger.reserve(Without(), f"{DAY}/a/1/1", 1.0),
        lambda: ledger.settle(Without(), f"{DAY}/a/1/1", 1.0),
    ):
        with pytest.raises(StoreError, match="keeps no ledgers"):
            act()


def test_a_day_is_a_day_of_utc():
    assert ledger.today(datetime(2026, 11, 30, 23, 59, tzinfo=UTC)) == "2026-11-30"
    assert ledger.today(datetime(2026, 11, 30, 23, 59, tzinfo=timezone(timedelta(hours=-5)))) == "2026-12-01"
    with pytest.raises(ValueError, match="time zone"):
        ledger.today(datetime(2026, 11, 30))


class Crashed(Exception):
    pass


class Crashing:
    """A store whose process dies at its `n`th call, before or after it is done; `look` is called after each."""

    def __init__(self, inner, at, after, look):
        self._inner, self._left, self._after, self._look = inner, at, after, look
        self.hold = self.holds = self.lift = None

    def _call(self, name, *args):
        self._left -= 1
        if self._left == 0 and not self._after:
            raise Crashed
        result = getattr(self._inner, name)(*args)
        self._look()
        if self._left == 0:
            raise Crashed
        return result

    def add(self, *args):
        return self._call("add", *args)

    def total(self, *args):
        return self._call("total", *args)


CENTS = st.integers(0, 300).map(lambda cents: cents / 100)
STEPS = st.lists(
    st.tuples(
        st.integers(0, 3),  # whose attempt goes on
        st.sampled_from(["reserve", "spend", "settle"]),
        CENTS,
        st.integers(0, 6),  # the call at which its process dies; 0: none
        st.booleans(),
    ),
    max_size=25,
)


class Attempts:
    """Some attempts of a run, what they really spent, and the ledger that should know."""

    def __init__(self):
        self.store = MemoryStore()
        self.usd = {}  # really spent, by those that began: their reservation was acknowledged
        self.over = set()  # they spend no more, and their cost is on record
        self.settled = set()  # and that was acknowledged

    def reserved(self, me):
        return self.store.total(ledger.RESERVED, DAY, f"run/{me}/1")

    def enough(self):
        """Before it is settled, only what an attempt spends within its reservation can be on the ledger."""
        known = [usd if me in self.settled else min(usd, self.reserved(me)) for me, usd in self.usd.items()]
        assert sum(ledger.spent(self.store, DAY)) >= math.fsum(known) - 1e-9

    def step(self, me, what, usd, at, after):
        store = Crashing(self.store, at, after, self.enough)
        match what:
            case "reserve" if (
                me not in self.usd
            ):  # again with another amount, perhaps, when it crashed before
                ledger.reserve(store, f"{DAY}/run/{me}/1", usd)
                self.usd[me] = 0.0
            case "spend" if me in self.usd and me not in self.over:
                self.usd[me] += usd
            case "settle" if me in self.usd:
                self.over.add(me)
                ledger.settle(store, f"{DAY}/run/{me}/1", self.usd[me])
                self.settled.add(me)


@settings(max_examples=200, deadline=None)
@given(STEPS)
def test_whatever_crashes_never_too_little_is_on_the_ledger(steps):
    attempts = Attempts()
    for step in steps:
        with suppress(Crashed):
            attempts.step(*step)
        attempts.enough()
    for me, usd in attempts.usd.items():
        ledger.settle(attempts.store, f"{DAY}/run/{me}/1", usd)
    spent, reserved = ledger.spent(attempts.store, DAY)
    assert math.isclose(spent, math.fsum(attempts.usd.values()), abs_tol=1e-9)
    never_began = [attempts.reserved(me) for me in range(4) if me not in attempts.usd]
    assert math.isclose(reserved, math.fsum(never_began), abs_tol=1e-9)
