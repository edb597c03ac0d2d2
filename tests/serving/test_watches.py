"""Files that change start runs: real files, the system's own events, a real store; nobody sleeps for them."""

import asyncio
import os
import time
from contextlib import asynccontextmanager

import pytest
import watchfiles
from a_hook import live, runs, said

from loopwright.core.events import RunFinished
from loopwright.errors import UsageError
from loopwright.journal import Journal
from loopwright.serving import starts, watches
from loopwright.serving.others import in_place
from loopwright.triggers import watch

LOOP = '[[trigger]]\nwatch = "src/**/*.py"\n'
IN_PLACE = LOOP + '[workspace]\nmode = "in_place"\n'
QUIET_S, TICK_MS, LIMIT_S = 0.1, 20, 20


@pytest.fixture
def project(tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.py").write_text("one")
    return tmp_path


class Eyes:
    """A server that watches: what its looks came to."""

    def __init__(self, server):
        self.server = server
        self.looks = 0
        self.news = asyncio.Event()
        self.task = None

    async def looked(self, holds=lambda: True):
        """After a look that began later than now, and after which this holds."""
        wanted = self.looks + 1
        async with asyncio.timeout(LIMIT_S):
            while self.looks < wanted or not holds():
                if self.task.done():
                    await self.task
                self.news.clear()
                await self.news.wait()

    def runs(self):
        return runs(self.server.store)


@asynccontextmanager
async def watching(server):
    eyes, loop, check = Eyes(server), asyncio.get_running_loop(), watches._check

    def seen():
        eyes.looks += 1
        eyes.news.set()

    def checked(of, *args):
        try:
            check(of, *args)
        finally:
            eyes_of[id(of)][1].call_soon_threadsafe(eyes_of[id(of)][0])

    eyes_of = getattr(watches._check, "eyes_of", {})
    eyes_of[id(server)] = (seen, loop)
    if not hasattr(watches._check, "eyes_of"):
        checked.eyes_of = eyes_of
        watches._check = checked
    eyes.task = asyncio.create_task(watches.watching(server, quiet_s=QUIET_S, tick_ms=TICK_MS))
    eyes.task.add_done_callback(lambda _: eyes.news.set())
    try:
        await eyes.looked()
        yield eyes
    finally:
        eyes.task.cancel()
        await asyncio.wait([eyes.task])


@pytest.fixture(autouse=True)
def as_it_was(monkeypatch):
    monkeypatch.setattr(watches, "_check", watches._check)


def finish(store, run):
    journal = Journal(store, run)
    over = RunFinished(phase="stopped", reason="stopped_by_user", explanation="over")
    journal.record(journal.state.updated_at, over)
    journal.flush()


def one_of(store, loop):
    (record,) = said(store, loop).values()
    return record


def test_a_change_starts_a_run_and_the_same_again_none(project):
    async def main():
        async with watching(live(project, green=LOOP)) as eyes:
            assert eyes.runs() == set(), "what is there when a server first looks starts nothing"
            (project / "src" / "a.py").write_text("two")
            await eyes.looked(eyes.runs)
            (run,) = eyes.runs()
            assert one_of(eyes.server.store, "green")["run"] == run
            (project / "src" / "a.py").write_text("two")
            await eyes.looked()
            assert eyes.runs() == {run}, "written again with what it held"
            (project / "src" / "a.py").write_text("one")
            await eyes.looked(lambda: len(eyes.runs()) == 2)
            (project / "src" / "a.py").write_text("two")
            await eyes.looked(lambda: len(eyes.runs()) == 3)
            assert starts_of(eyes.server.store, run) == "watch"

    asyncio.run(main())


def starts_of(store, run):
    from loopwright.serving.others import first

    return first(store, run).origin


def test_a_restart_starts_nothing_for_what_is_known_and_a_run_for_what_is_new(project):
    async def main():
        async with watching(live(project, green=LOOP)) as eyes:
            (project / "src" / "a.py").write_text("two")
            await eyes.looked(eyes.runs)
        async with watching(live(project)) as eyes:
            assert len(eyes.runs()) == 1
        (project / "src" / "b.py").write_text("made while nobody looked")
        async with watching(live(project)) as eyes:
            assert len(eyes.runs()) == 2

    asyncio.run(main())


def test_two_servers_start_one_run(project):
    async def main():
        first, second = live(project, green=LOOP), live(project)
        async with watching(first) as one, watching(second) as two:
            for n in range(3):
                (project / "src" / "a.py").write_text(f"change {n}")
                await asyncio.gather(*(each.looked(lambda n=n: len(one.runs()) > n) for each in (one, two)))
                assert len(one.runs()) == n + 1

    asyncio.run(main())


def test_a_kill_between_the_run_and_its_record_starts_it_once(project, monkeypatch):
    async def main():
        server = live(project, green=LOOP)
        async with watching(server) as eyes:
            pass
        (project / "src" / "a.py").write_text("two")
        with monkeypatch.context() as patch:
            patch.setattr(type(server.store), "signal", lambda *_: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                async with watching(server) as eyes:
                    await eyes.looked()
        assert len(eyes.runs()) == 1
        async with watching(server) as eyes:
            assert len(eyes.runs()) == 1
            assert one_of(server.store, "green")["status"] == "started"

    asyncio.run(main())


def test_folders_that_come_and_go(project, tmp_path_factory):
    async def main():
        async with watching(live(project, green=LOOP)) as eyes:
            (project / "src" / "new" / "deep").mkdir(parents=True)
            (project / "src" / "new" / "deep" / "b.py").write_text("b")
            await eyes.looked(eyes.runs)
            (project / "src" / "new" / "deep" / "b.py").write_text("c")
            await eyes.looked(lambda: len(eyes.runs()) == 2)
            (project / "src" / "new").rename(tmp_path_factory.mktemp("outside") / "new")
            await eyes.looked(lambda: len(eyes.runs()) == 3)

    asyncio.run(main())


def test_what_is_not_named_or_ours_is_not_even_looked_at(project):
    async def main():
        loop = '[[trigger]]\nwatch = ["*.py", "data/**"]\n'
        async with watching(live(project, green=loop)) as eyes:
            for name in (".git/x.py", ".agent-state/x.py", "src/__pycache__/x.py", ".venv/x.py", "src/x.txt"):
                (project / name).parent.mkdir(exist_ok=True)
                (project / name).write_text("x")
            (project / "src" / "a.py").write_text("two")
            await eyes.looked(eyes.runs)
            assert len(eyes.runs()) == 1
            for name in (".git/x.py", ".agent-state/x.py", "src/__pycache__/x.py", "src/x.txt"):
                (project / name).write_text("y")
            (project / "data").mkdir()
            await eyes.looked()
            assert len(eyes.runs()) == 1

    asyncio.run(main())


def test_what_a_run_in_the_project_folder_leaves_starts_none(project):
    async def main():
        server = live(project, green=IN_PLACE)
        async with watching(server) as eyes:
            (project / "src" / "a.py").write_text("by a person")
            await eyes.looked(eyes.runs)
            (run,) = eyes.runs()
            (project / "src" / "a.py").write_text("by the run")
            await eyes.looked()
            (project / "src" / "a.py").write_text("by the run, which writes nothing down meanwhile")
            await eyes.looked()
            assert eyes.runs() == {run}
            finish(server.store, run)
            await eyes.looked(lambda: one_of(server.store, "green")["status"] == "seen")
            assert eyes.runs() == {run}
            (project / "src" / "a.py").write_text("by a person again")
            await eyes.looked(lambda: len(eyes.runs()) == 2)

    asyncio.run(main())


def test_a_long_silent_run_in_the_project_folder_is_seen_behind_many_others(project, monkeypatch):
    monkeypatch.setattr("loopwright.serving.others.NEWEST", 2)
    server = live(project, green=IN_PLACE, other=LOOP + '[workspace]\nmode = "none"\n')
    server.begin("green", origin="start")
    for _ in range(3):
        server.begin("other", origin="start")
    assert in_place(server.store, project, {}).busy


def test_a_run_in_the_project_folder_that_is_over_before_anybody_looks(project):
    async def main():
        server = live(project, green=IN_PLACE)
        async with watching(server) as eyes:
            starts.begin(
                server.store,
                server.book.loops["green"].assembled,
                "r1",
                project=project,
                environ=server.environ,
                origin="hand",
            )
            (project / "src" / "a.py").write_text("by the run")
            finish(server.store, "r1")
            await eyes.looked(lambda: "left them so" in one_of(server.store, "green")["why"])
            assert eyes.runs() == {"r1"}
        async with watching(server) as eyes:
            assert eyes.runs() == {"r1"}, "nor after a restart"

    asyncio.run(main())


def test_overlap(project):
    async def main():
        server = live(project, green=LOOP + 'overlap = "skip"\n')
        async with watching(server) as eyes:
            (project / "src" / "a.py").write_text("two")
            await eyes.looked(eyes.runs)
            (run,) = eyes.runs()
            (project / "src" / "a.py").write_text("three")
            await eyes.looked(lambda: one_of(server.store, "green")["status"] == "skipped")
            assert one_of(server.store, "green")["why"] == f"{run} is under way (planning)"
            assert eyes.runs() == {run}

    asyncio.run(main())


def test_a_loop_file_that_begins_to_watch(project):
    async def main():
        server = live(project, green="")
        task = asyncio.create_task(watches.watching(server, quiet_s=QUIET_S, tick_ms=TICK_MS))
        await asyncio.sleep(0)
        live(project, green=LOOP).store.close()
        server.book.refresh()
        async with watching(server) as eyes:
            task.cancel()
            live(project, green=LOOP.replace("*.py", "*.txt")).store.close()
            server.book.refresh()
            await eyes.looked(lambda: len(said(server.store, "green")) == 2)
            assert eyes.runs() == set(), "other files than before: they are only taken note of"
            (project / "src" / "a.txt").write_text("one")
            await eyes.looked(eyes.runs)

    asyncio.run(main())


def test_where_the_system_cannot_watch_so_much_it_is_looked_at_and_said(project, monkeypatch):
    async def none(*_, **__):
        raise OSError("OS file watch limit reached.")
        yield

    async def main():
        told = []
        async with watching(live(project, green=LOOP, tell=told)) as eyes:
            (line,) = told
            assert "OS file watch limit reached" in line
            assert "fs.inotify.max_user_watches" in line
            (project / "src" / "new").mkdir()
            (project / "src" / "new" / "b.py").write_text("b")
            await eyes.looked(eyes.runs)

    monkeypatch.setattr(watchfiles, "awatch", none)
    asyncio.run(main())


def test_it_ends_at_once(project):
    async def main():
        async with watching(live(project, green=LOOP)):
            return time.monotonic()

    began = asyncio.run(main())
    assert time.monotonic() - began < 0.5, "and no thread is left that asyncio waits for"


# What is looked at


def digest(project, *globs, known=None):
    return watch.digest(project, watch.look(project, globs), {} if known is None else known)


def test_the_digest_is_of_names_and_contents(project):
    known = {}
    one = digest(project, "src/**", known=known)
    os.utime(project / "src" / "a.py", (1, 1))
    assert digest(project, "src/**", known=known) == one
    (project / "src" / "a.py").rename(project / "src" / "b.py")
    assert digest(project, "src/**", known=known) != one
    (project / "src" / "b.py").rename(project / "src" / "a.py")
    assert digest(project, "src/**", known=known) == one
    (project / "src" / "a.py").write_text("two")
    assert digest(project, "src/**", known=known) != one
    assert set(known) == {"src/a.py"}


def test_links_and_pipes_are_not_followed(project, tmp_path_factory):
    outside = tmp_path_factory.mktemp("outside")
    (outside / "x.py").write_text("x")
    (project / "src" / "folder").symlink_to(outside)
    (project / "src" / "link.py").symlink_to(outside / "x.py")
    os.mkfifo(project / "src" / "pipe.py")
    found = watch.look(project, ("src/**/*.py",))
    assert set(found.files) == {"src/a.py", "src/link.py", "src/pipe.py"}
    one = digest(project, "src/**/*.py")
    (outside / "x.py").write_text("y")
    assert digest(project, "src/**/*.py") == one
    assert one[1] == ()
    (project / "src" / "link.py").unlink()
    (project / "src" / "link.py").symlink_to(outside / "y.py")
    assert digest(project, "src/**/*.py") != one


def test_only_folders_that_can_hold_such_files_are_watched(project):
    for name in ("src/deep/er", "docs/a", "node_modules/x", ".git/x", "lib"):
        (project / name).mkdir(parents=True)
    assert watch.look(project, ("src/**/*.py",)).folders == {"", "src", "src/deep", "src/deep/er"}
    assert watch.look(project, ("docs/a/x.txt", "lib/**")).folders == {"", "docs", "docs/a", "lib"}
    assert watch.look(project, ("*.py",)).folders == {
        *("", "src", "src/deep", "src/deep/er", "docs", "docs/a", "lib")
    }


def test_what_cannot_be_read_is_named_and_tried_again(project, monkeypatch):
    known = {}
    opened = os.open

    def refused(path, *args, **said):
        if str(path).endswith("a.py"):
            raise PermissionError(13, "Permission denied")
        return opened(path, *args, **said)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refused)
        one, told = digest(project, "src/**", known=known)
    assert told == ("src/a.py: Permission denied",)
    two, told = digest(project, "src/**", known=known)
    assert (one != two, told) == (True, ())


def test_there_is_a_bound(project, monkeypatch):
    monkeypatch.setattr(watch, "MOST", 3)
    for n in range(3):
        (project / "src" / f"{n}.py").write_text("x")
    with pytest.raises(UsageError, match="more than 3 files"):
        watch.look(project, ("src/**",))
    for n in range(3):
        (project / "src" / f"d{n}").mkdir()
    with pytest.raises(UsageError, match="more than 3 folders"):
        watch.look(project, ("src/**/*.txt",))
    told = []
    server = live(project, green=LOOP, tell=told)
    watches._folders(server, watches._Seen(), watches._watched(server.book.loops.values()))
    assert "more than 3" in told[0]


@pytest.mark.parametrize("glob", ["/etc/**", "../x", "a/../../x", "~/x", ".git/**", "[z-a]/x"])
def test_a_glob_that_names_no_files_of_the_project_is_a_problem(project, glob):
    server = live(project, green=f'[[trigger]]\nwatch = "{glob}"\n')
    (problem,) = watches.problems(server.book.loops["green"])
    assert repr(glob) in problem


def test_globs_that_are_fine(project):
    server = live(project, green='[[trigger]]\nwatch = ["./src/**/*.py", "*.toml"]\n')
    assert watches.problems(server.book.loops["green"]) == []
