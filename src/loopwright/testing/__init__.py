"""For the tests of those who write a store: the conformance suite that loopwright's own stores pass.

    from loopwright.testing import check_store

    def test_my_store(tmp_path):
        checked = check_store(MyStore, tmp_path)      # MyStore(folder) opens what is kept in folder
        assert not checked.losses, checked

Rule: nothing here is used by loopwright when it runs.
"""

from loopwright.testing.conformance import FAMILIES, Checked, check_store
from loopwright.testing.crash import Fault, crashed, unsynced
from loopwright.testing.operations import Around, Op, Tap, os_calls
from loopwright.testing.power import PROFILES, Disk, recorded, states, written

__all__ = [
    "FAMILIES",
    "PROFILES",
    "Around",
    "Checked",
    "Disk",
    "Fault",
    "Op",
    "Tap",
    "check_store",
    "crashed",
    "os_calls",
    "recorded",
    "states",
    "unsynced",
    "written",
]
