"""A store on a disk that cannot be written can be read, with or without the log of whoever writes it elsewhere."""

from __future__ import annotations

import os
from contextlib import closing

import pytest

from loopwright.errors import StoreError
from loopwright.stores.sqlite import SqliteStore


@pytest.mark.parametrize("written", [True, False], ids=["while it is written", "at rest"])
def test_a_store_in_a_folder_that_cannot_be_written_is_read_as_it_is(tmp_path, monkeypatch, written):
    path = tmp_path / "a b?" / "runs.db"
    writer = SqliteStore(path)
    writer.append("r", 1, b"a")
    writer.append("r", 2, b"b")
    if not written:
        writer.close()
    before = sorted(os.listdir(path.parent))
    assert (len(before) == 3) is written, "SQLite puts its log away with the last connection"
    monkeypatch.setattr("os.access", lambda *_: False)  # a chmod does not keep root out
    with closing(SqliteStore(path)) as store:
        assert list(store.read("r")) == [(1, b"a"), (2, b"b")]
        assert list(store.signals("r")) == []
        with pytest.raises(StoreError, match="readonly"):
            store.append("r", 3, b"c")
    assert sorted(os.listdir(path.parent)) == before
