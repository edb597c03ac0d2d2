"""The shim is named as compiled only while that is what its source says."""

import os
import shutil
import sys
from pathlib import Path

import pytest

from loopwright import shim


@pytest.fixture
def source(tmp_path, monkeypatch):
    """A shim of its own, not compiled yet."""
    made = tmp_path / "_shim.py"
    shutil.copy2(shim.SOURCE, made)
    monkeypatch.setattr(shim, "SOURCE", made)
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    shim._compiled.cache_clear()
    yield made
    shim._compiled.cache_clear()


def test_it_is_compiled_once_and_again_when_the_source_changes(source):
    first = Path(shim.shim())
    assert (first.suffix, first.parent.parent) == (".pyc", source.parent)
    before = first.read_bytes()
    source.write_text(source.read_text() + "\n# another\n")
    os.utime(source, (1, 1))
    shim._compiled.cache_clear()
    assert Path(shim.shim()).read_bytes() != before


def test_what_somebody_tidied_up_is_not_named(source):
    Path(shim.shim()).unlink()
    assert shim.shim() == str(source)


def test_where_python_keeps_nothing_it_is_the_source(source, monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    assert shim.shim() == str(source)


def test_a_stale_one_that_cannot_be_written_anew_is_not_used(source, monkeypatch):
    stale = Path(shim.shim())
    os.utime(source, (1, 1))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    shim._compiled.cache_clear()
    assert shim.shim() == str(source)
    assert stale.exists()
