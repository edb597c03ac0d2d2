from pocket import table


def test_columns_are_as_wide_as_their_widest_cell():
    drawn = table.render(["name", "city"], [["Ann", "Rome"], ["Leopold", "Bonn"]])
    assert drawn.splitlines() == [
        "name     city",
        "-------  ----",
        "Ann      Rome",
        "Leopold  Bonn",
    ]


def test_numbers_are_aligned_right():
    drawn = table.render(["item", "price"], [["tea", "4.20"]], right="p")
    assert drawn.splitlines()[2] == "tea    4.20"


def test_bar_shows_the_share():
    assert table.bar(30, 60) == "#####     "


def test_bar_is_never_longer_than_its_width():
    assert table.bar(90, 60, width=4) == "####"


def test_bar_without_a_whole_is_empty():
    assert table.bar(5, 0, width=3) == "   "


def test_shorten_marks_the_cut():
    assert table.shorten("groceries", 5) == "groc."


def test_shorten_keeps_what_fits():
    assert table.shorten("rent", 4) == "rent"
