"""`frozen`: to everybody a frozen dataclass, only quicker to make."""

import copy
import pickle
from collections.abc import Mapping
from dataclasses import KW_ONLY, FrozenInstanceError, asdict, dataclass, field, fields, replace
from inspect import signature
from typing import Any, get_type_hints

import msgspec
import pytest

from loopwright.core.frozen import frozen
from loopwright.core.replacing import replace as quick
from loopwright.core.values import Score


class Plain:
    """The same classes as the standard library makes them, by the same names."""

    @dataclass(frozen=True)
    class Mark:
        value: float
        why: str = "none"
        _: KW_ONLY
        unit: str
        seen: Mapping[str, Any] = field(default_factory=dict)

        def __post_init__(self) -> None:
            if self.value < 0:
                raise ValueError("below 0")

    @dataclass(frozen=True, kw_only=True)
    class Told:
        name: str
        marks: tuple[int, ...] = ()

    @dataclass(frozen=True, kw_only=True)
    class Nothing:
        pass

    @dataclass(frozen=True)
    class Place:
        x: int
        y: int = 0


class Quick:
    """Ours."""

    @frozen
    class Mark:
        value: float = field(kw_only=False)
        why: str = field(default="none", kw_only=False)
        unit: str
        seen: Mapping[str, Any] = field(default_factory=dict)

        def __post_init__(self) -> None:
            if self.value < 0:
                raise ValueError("below 0")

    @frozen
    class Told:
        name: str
        marks: tuple[int, ...] = ()

    @frozen
    class Nothing:
        pass

    @frozen
    class Place:
        x: int = field(kw_only=False)
        y: int = field(default=0, kw_only=False)


CALLS = [
    ("Mark", (1.0,), {"unit": "s"}),
    ("Mark", (1.0, "so"), {"unit": "s", "seen": {"a": 1}}),
    ("Mark", (), {"value": 1.0, "unit": "s"}),
    ("Mark", (), {}),
    ("Mark", (1.0,), {}),
    ("Mark", (1.0, "so", "s"), {}),
    ("Mark", (1.0,), {"unit": "s", "value": 2.0}),
    ("Mark", (1.0,), {"unit": "s", "colour": 2.0}),
    ("Mark", (-1.0,), {"unit": "s"}),
    ("Told", (), {"name": "x"}),
    ("Told", (), {"name": "x", "marks": (1,)}),
    ("Told", ("x",), {}),
    ("Told", (), {}),
    ("Nothing", (), {}),
    ("Nothing", (1,), {}),
    ("Place", (1,), {"y": 2}),
    ("Place", (1, 2, 3), {}),
]


def outcome(house, name, args, named):
    try:
        made = getattr(house, name)(*args, **named)
    except (TypeError, ValueError) as error:
        return type(error), str(error).replace("Quick.", "Plain.")
    return repr(made).replace("Quick.", "Plain."), vars(made), msgspec.json.encode(made)


@pytest.mark.parametrize(("name", "args", "named"), CALLS)
def test_every_call_gives_what_a_dataclass_gives(name, args, named):
    assert outcome(Quick, name, args, named) == outcome(Plain, name, args, named)


@pytest.mark.parametrize("name", ["Mark", "Told", "Nothing", "Place"])
def test_the_class_is_described_like_a_dataclass(name):
    ours, theirs = getattr(Quick, name), getattr(Plain, name)
    assert str(signature(ours)) == str(signature(theirs))
    assert ours.__match_args__ == theirs.__match_args__
    assert [(f.name, f.type, f.kw_only) for f in fields(ours)] == [
        (f.name, f.type, f.kw_only) for f in fields(theirs)
    ]
    assert ours.__init__.__module__ == __name__


def test_nothing_of_it_can_be_set_or_deleted():
    mark = Quick.Mark(1.0, unit="s")
    with pytest.raises(FrozenInstanceError):
        mark.value = 2.0
    with pytest.raises(FrozenInstanceError):
        del mark.value
    with pytest.raises(FrozenInstanceError):
        mark.other = 2.0


def test_each_one_has_its_own_of_what_a_factory_makes():
    one, other = Quick.Mark(1.0, unit="s"), Quick.Mark(1.0, unit="s")
    assert one == other
    assert one.seen is not other.seen


def test_it_is_equal_hashed_copied_and_matched_by_its_fields():
    told = Quick.Told(name="x", marks=(1, 2))
    assert told == Quick.Told(name="x", marks=(1, 2)) != Quick.Told(name="y")
    assert hash(told) == hash(Quick.Told(name="x", marks=(1, 2)))
    for again in (copy.copy(told), copy.deepcopy(told), replace(told), quick(told)):
        assert again == told
        assert again is not told
    assert replace(told, name="y") == quick(told, name="y") == Quick.Told(name="y", marks=(1, 2))
    assert asdict(told) == {"name": "x", "marks": (1, 2)}
    match Quick.Mark(1.0, unit="s"):
        case Quick.Mark(value, unit=unit):
            assert (value, unit) == (1.0, "s")


def test_it_is_checked_when_it_is_made_read_or_replaced():
    mark = Quick.Mark(1.0, unit="s")
    with pytest.raises(ValueError, match="below 0"):
        replace(mark, value=-1.0)
    with pytest.raises(ValueError, match="below 0"):
        msgspec.json.decode(b'{"value":-1.0,"unit":"s"}', type=Quick.Mark)
    assert msgspec.json.decode(msgspec.json.encode(mark), type=Quick.Mark) == mark


@frozen
class AtTheTop:
    """Found by its name, as processes that are told values need it."""

    value: int
    other: Mapping[str, Any] = field(default_factory=dict)


def test_it_can_be_told_to_another_process():
    assert pickle.loads(pickle.dumps(AtTheTop(value=3))) == AtTheTop(value=3)


def test_the_types_of_what_makes_it_are_found_where_it_stands():
    found = get_type_hints(AtTheTop.__init__)
    assert found == {**get_type_hints(AtTheTop), "return": type(None)}
    assert signature(Score, eval_str=True).parameters["value"].annotation is float
