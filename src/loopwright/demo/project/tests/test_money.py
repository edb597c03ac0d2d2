import pytest

from pocket import money


@pytest.mark.parametrize(
    ("text", "cents"), [("7", 700), ("1,204.99", 120499), ("-3.5", -350)]
)
def test_parse(text, cents):
    assert money.parse(text) == cents


@pytest.mark.parametrize("text", ["", "1.234"])
def test_parse_refuses_what_is_no_amount(text):
    with pytest.raises(ValueError, match="not an amount"):
        money.parse(text)


@pytest.mark.parametrize(("cents", "text"), [(120499, "1,204.99"), (-5, "-0.05")])
def test_show(cents, text):
    assert money.show(cents) == text


def test_split_gives_the_odd_cents_to_the_first():
    assert money.split(1001, 3) == [334, 334, 333]


def test_split_without_a_remainder():
    assert money.split(900, 3) == [300, 300, 300]


def test_split_needs_people():
    with pytest.raises(ValueError, match="nobody"):
        money.split(100, 0)
