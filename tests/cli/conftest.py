"""The stage of each test."""

import pytest
from stage import Stage


@pytest.fixture
def stage(tmp_path):
    return Stage.made(tmp_path)
