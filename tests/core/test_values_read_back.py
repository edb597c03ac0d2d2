"""What a gate or an agent of a user gives can be written down and read back, or it cannot be made."""

import pytest

from loopwright.core.values import Score, Usage

BAD_SCORES = {
    "cause": {"status": "error", "cause": "network"},
    "direction": {"direction": "up"},
    "unit": {"unit": 5},
    "reason": {"reason": 5},
    "failing text": {"failing": "abc"},
    "failing numbers": {"failing": [1, 2]},
    "evidence list": {"evidence": [1]},
    "graded": {"graded": "yes"},
}


@pytest.mark.parametrize("given", BAD_SCORES.values(), ids=BAD_SCORES)
def test_a_score_that_could_not_be_read_back_cannot_be_made(given):
    with pytest.raises(ValueError, match="score"):
        Score(0.5, **given)


def test_tokens_are_whole():
    assert Usage(tokens=1500.0).tokens == 1500
    assert isinstance(Usage(turns=2.0).turns, int)
    with pytest.raises(ValueError, match="whole"):
        Usage(tokens=1.5)
