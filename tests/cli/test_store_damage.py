"""Whatever is damaged in a store is named with its place, kept, and never read as another history or as no run."""

import json
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from zlib import crc32

import pytest

from loopwright import Loop, gate, run
from loopwright.cli.app import run_app

FILES, SQLITE = "files:.agent-state", "sqlite:///.agent-state/loopwright.db"
ENDS = 3


async def work(attempt):
    return {"n": attempt.iteration}


@gate
async def grows(output):
    return output["n"] / 10


@pytest.fixture(scope="module", params=[FILES, SQLITE])
def made(request, tmp_path_factory):
    """A project with the runs `r` and `q`, which ended at their limit."""
    folder = tmp_path_factory.mktemp("made")
    for name in ("q", "r"):
        loop = Loop(f"goal of {name}", agent=work, gates=[grows], threshold=1.0, max_iterations=ENDS)
        run(loop, name, folder=folder, store=request.param)
    return request.param, folder


@pytest.fixture
def project(made, tmp_path):
    url, folder = made
    return url, Path(shutil.copytree(folder, tmp_path / "project"))


class Said:
    def __init__(self, url, folder, capsys):
        self.where, self.capsys = ("-C", str(folder), "--store", url), capsys

    def __call__(self, *words) -> tuple[int, str, str]:
        code = run_app([*words, *self.where])
        out, err = self.capsys.readouterr()
        assert "Traceback" not in err
        return code, out, err


@pytest.fixture
def cli(project, capsys):
    return Said(*project, capsys)


def only(kind):
    """This test is about one of the stores."""

    def decorate(test):
        return pytest.mark.parametrize("made", [kind], indirect=True)(test)

    return decorate


def listed(cli) -> set[str]:
    code, out, err = cli("list", "--all", "--json")
    return {"code": code, "runs": {row["run"] for row in json.loads(out)}, "err": err}


def lines(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines(keepends=True)


def joined(change: Callable[[list[bytes]], list[bytes]]) -> Callable[[Path], None]:
    return lambda path: path.write_bytes(b"".join(change(lines(path)))) and None


def zeroed(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def swapped(path: Path) -> None:
    """This file and the same one of run `q`, exchanged."""
    other = path.with_name("q" + path.name[1:])
    mine, theirs = path.read_bytes(), other.read_bytes()
    path.write_bytes(theirs)
    other.write_bytes(mine)


def replaced(old: bytes, new: bytes) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        text = path.read_bytes()
        assert old in text
        path.write_bytes(text.replace(old, new, 1))

    return change


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def tail_blank(path: Path) -> None:
    text = path.read_bytes()
    path.write_bytes(text[:-60] + bytes(59) + b"\n")


JOURNAL = {
    "truncated": truncated,
    "truncated at a line": joined(lambda rows: rows[:-1]),
    "an old copy": joined(lambda rows: rows[:3]),
    "empty": lambda path: path.write_bytes(b""),
    "all blank": zeroed,
    "its last line blank": tail_blank,
    "its third line blank": joined(lambda r: [*r[:2], bytes(len(r[2]) - 1) + b"\n", *r[3:]]),
    "of another run": swapped,
    "a line lost": joined(lambda r: [*r[:2], *r[3:]]),
    "a line twice": joined(lambda r: [*r[:3], r[2], *r[3:]]),
    "two lines exchanged": joined(lambda r: [r[0], r[2], r[1], *r[3:]]),
    "its last line another": joined(lambda r: [*r[:-1], r[-1].replace(b"max_iterations", b"max_duration")]),
    "not a number": replaced(b'"value":0.1', b'"value":NaN'),
    "a number changed": replaced(b'"value":0.1', b'"value":0.9'),
    "of another version": replaced(b'{"v":1,', b'{"v":9,'),
    "gone": lambda path: path.unlink(),
}


@only(FILES)
@pytest.mark.parametrize("name", JOURNAL)
def test_a_damaged_journal_is_named_with_its_place(project, cli, name):
    path = project[1] / ".agent-state/r.journal.jsonl"
    JOURNAL[name](path)
    before = path.read_bytes() if path.exists() else None
    for verb in (("resume", "r", "--add-iterations", "1"), ("show", "r"), ("show", "r", "--events")):
        code, out, err = cli(*verb)
        assert (code, out) == (9, ""), err
        assert str(path) in err
        assert ("commit" in err and "byte" in err) or (name == "gone" and "is missing" in err)
    there = listed(cli)
    assert there["runs"] == {"q", "r"}
    assert (path.read_bytes() if path.exists() else None) == before


BESIDE = ("heads/r.head", "r.json", "checkpoints/r-0002.json", "checkpoints/r.sha256")
DAMAGE = {
    "truncated": truncated,
    "empty": lambda path: path.write_bytes(b""),
    "all blank": zeroed,
    "of another run": swapped,
    "gone": lambda path: path.unlink(),
    "text": lambda path: path.write_text("something else"),
}


@only(FILES)
@pytest.mark.parametrize("file", BESIDE)
@pytest.mark.parametrize("name", DAMAGE)
def test_what_stands_beside_the_journal_is_made_anew(project, cli, file, name):
    path = project[1] / ".agent-state" / file
    whole, other = path.read_bytes(), path.with_name("q" + path.name[1:])
    shown, all_ = cli("show", "r", "--json"), listed(cli)
    DAMAGE[name](path)
    stood = path.read_bytes() if path.exists() else None
    assert cli("show", "r", "--json") == shown  # the journal is the truth; reading changes nothing
    assert listed(cli) == all_
    assert (path.read_bytes() if path.exists() else None) == stood
    code, _, err = cli("resume", "r")
    assert code == 2, err  # nothing left to do: it would end at once
    assert "max_iterations" in err
    if "head" in file:
        assert path.read_bytes().partition(b"\n")[2] == whole.partition(b"\n")[2]
    else:
        assert path.read_bytes() == whole
    kept = [f.read_bytes() for f in path.parent.glob(f"{path.name}.damaged-*")]
    if stood is not None and "sha256" not in file:
        assert kept == [stood]
    cli("resume", "q")
    assert other.exists()
    assert listed(cli) == all_


SCORES = {
    "not a number": replaced(b'"score": 0.2', b'"score": NaN'),
    "another number": replaced(b'"score": 0.2', b'"score": 0.9'),
    "a line less": joined(lambda rows: [row for row in rows if b'"max_iterations"' not in row]),
}


@only(FILES)
@pytest.mark.parametrize("name", SCORES)
def test_a_changed_checkpoint_is_seen(project, cli, name):
    path = project[1] / ".agent-state/checkpoints/r-0002.json"
    whole = path.read_bytes()
    SCORES[name](path)
    assert cli("resume", "r")[0] == 2
    assert path.read_bytes() == whole
    assert len(list(path.parent.glob("r-0002.json.damaged-*"))) == 1


@only(FILES)
def test_a_journal_older_than_its_checkpoints_is_said_even_without_a_head(project, cli):
    state = project[1] / ".agent-state"
    JOURNAL["an old copy"](state / "r.journal.jsonl")
    (state / "heads/r.head").unlink()
    code, _, err = cli("resume", "r")
    assert code == 9
    assert "older than checkpoints/r-000" in err


@only(FILES)
def test_a_torn_last_line_is_cut_off_kept_and_said(project, cli, capsys):
    path = project[1] / ".agent-state/r.journal.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"v":1,"n":9,"prev":"')
    shown = cli("show", "r", "--json")
    assert shown[0] == 0
    assert path.read_bytes() != whole
    code, _, err = cli("resume", "r")
    assert code == 2
    assert path.read_bytes() == whole
    torn = list(path.parent.glob("r.journal.jsonl.torn-*"))
    assert [t.read_bytes() for t in torn] == [b'{"v":1,"n":9,"prev":"']
    assert torn[0].name in err


@only(FILES)
@pytest.mark.parametrize(
    "text", ['{"pid": 12', '{"pid": 1, "host": "SAMEHOST", "cmdline": "loopwright run"}', ""]
)
def test_what_stands_in_a_lock_holds_nobody(project, cli, text):
    lock = project[1] / ".agent-state/leases/r.lock"
    lock.write_text(text)
    assert cli("resume", "r")[0] == 2
    assert cli("stop", "q")[0] == 3  # over already: it was looked at, not refused


@only(FILES)
def test_a_damaged_signal_is_said(project, cli):
    from loopwright.codec import encode_signal
    from loopwright.core import events as ev
    from loopwright.stores.files import FilesStore

    state = project[1] / ".agent-state"
    FilesStore(state).signal("r", "note/1", encode_signal(ev.NoteAdded(text="x", key="note/1")))
    (state / "signals/r/note%2F1.signal").write_bytes(b"")
    with pytest.raises(Exception, match=r"note%2F1\.signal is damaged"):
        FilesStore(state).signals("r")


@only(FILES)
def test_show_checkpoint_is_what_the_file_says(project, cli):
    for number in range(1, ENDS + 1):
        file = project[1] / f".agent-state/checkpoints/r-{number:04d}.json"
        code, out, _ = cli("show", "r", "--checkpoint", str(number), "--json")
        assert code == 0
        assert json.loads(out) == json.loads(file.read_bytes())
        assert json.loads(out)["iteration"] == number
    latest = json.loads((project[1] / ".agent-state/r.json").read_bytes())
    assert (latest["loop_id"], latest["phase"]) == ("r", "failed")


R = "(SELECT id * 4294967296 FROM runs WHERE run = 'r')"  # where the numbers of its commits begin
OF_R = f"id BETWEEN {R} + 1 AND {R} + 4294967295"
ROWS = {
    "of another run": "UPDATE runs SET run = 'x' WHERE run = 'r'; UPDATE runs SET run = 'r' WHERE run = 'q';"
    "UPDATE runs SET run = 'q' WHERE run = 'x'; DELETE FROM folds",
    "a row lost": f"DELETE FROM commits WHERE id = {R} + 3",
    "two rows exchanged": f"UPDATE commits SET id = CASE id WHEN {R} + 2 THEN -3 ELSE -2 END WHERE id IN ({R} + 2, {R} + 3);"
    f"UPDATE commits SET id = {R} - id WHERE id < 0",
    "its last a fact that cannot follow": "UPDATE commits SET body = CAST(replace(CAST(body AS TEXT),"
    f' \'"phase":"failed"\', \'"phase":"stopped"\') AS BLOB) WHERE {OF_R}',
    "empty": f"UPDATE commits SET body = x'' WHERE id = {R} + 2",
    "blank": f"UPDATE commits SET body = zeroblob(length(body)) WHERE id = {R} + 2",
    "cut": f"UPDATE commits SET body = substr(body, 1, 50) WHERE id = {R} + 2",
    "not a number": "UPDATE commits SET body = CAST(replace(CAST(body AS TEXT), '\"value\":0.1', '\"value\":NaN') AS BLOB)"
    f" WHERE {OF_R}",
    "a number changed": "UPDATE commits SET body = CAST(replace(CAST(body AS TEXT), '\"value\":0.1', '\"value\":0.9') AS BLOB)"
    f" WHERE {OF_R}",
    "of another version": "UPDATE commits SET body = CAST(replace(CAST(body AS TEXT), '{\"v\":1,', '{\"v\":9,') AS BLOB)"
    f" WHERE id = {R} + 1",
}


@only(SQLITE)
@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("linked", [True, False], ids=["by the links", "by its sum"])
def test_a_damaged_row_is_named_with_its_place(project, cli, name, linked):
    path = project[1] / ".agent-state/loopwright.db"
    db = sqlite3.connect(path, isolation_level=None)
    db.create_function("crc32", 1, crc32)
    again = "UPDATE commits SET sum = crc32(body)" if linked else ""
    db.executescript(f"BEGIN; {ROWS[name]}; {again}; COMMIT; PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()
    before = path.read_bytes()
    for verb in (("resume", "r", "--add-iterations", "1"), ("show", "r"), ("show", "r", "--events")):
        code, out, err = cli(*verb)
        assert (code, out) == (9, ""), err
        assert "commit" in err
        assert str(path) in err
    assert listed(cli)["runs"] == {"q", "r"}
    assert path.read_bytes() == before


@only(SQLITE)
def test_damaged_heads_are_made_from_the_journal(project, cli):
    path = project[1] / ".agent-state/loopwright.db"
    all_ = listed(cli)
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("UPDATE heads SET body = x'7b'")
    db.close()
    assert listed(cli) == all_


def test_one_damaged_run_does_not_hide_the_others(tmp_path, capsys):
    for name in ("q", "r"):
        loop = Loop("g", agent=work, gates=[grows], threshold=0.1, approval="passed")  # waits for a person
        run(loop, name, folder=tmp_path, store=FILES)
    cli = Said(FILES, tmp_path, capsys)
    for file in (".agent-state/r.journal.jsonl", ".agent-state/heads/r.head"):
        (tmp_path / file).write_bytes(b"")
    there = listed(cli)
    assert (there["code"], there["runs"]) == (9, {"q"})
    assert "r.journal.jsonl" in there["err"]
