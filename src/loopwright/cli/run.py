"""Starting and resuming: run, resume.

Rule: what a person typed becomes a loop and an id; the host does the rest.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

import click

from loopwright.calling import alone
from loopwright.cli import words
from loopwright.cli.asked import Terminal
from loopwright.cli.read import emit
from loopwright.cli.view import View, fancy
from loopwright.cli.where import Where, as_json, enter, find, opened, outside, places, the_run, who
from loopwright.codec import encode_signal
from loopwright.core import events as ev
from loopwright.core.head import document
from loopwright.core.values import positive
from loopwright.errors import ConfigError
from loopwright.hosts.local import resume, start
from loopwright.hosts.ways import Held, Ways
from loopwright.loop import table_of
from loopwright.running import Run
from loopwright.stores.opened import owner, store_exists, store_path
from loopwright.unattended import server_of

if TYPE_CHECKING:
    from loopwright.config import Loaded

F = TypeVar("F", bound=Callable[..., Any])


class Amount(click.ParamType[float]):
    """A duration as people write it, in seconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The seconds; a usage error when it is none."""
        try:
            return positive("it", words.duration(str(value)))
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Money(click.ParamType[float]):
    """An amount of US dollars."""

    name = "usd"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The dollars; a usage error when they are none, infinite or not above zero."""
        try:
            return positive("it", float(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


@dataclass(slots=True)
class Keys:
    """Ctrl-C and TERM, turned into what DESIGN §8 says: once pauses after the iteration, twice now."""

    view: View
    code: int | None = None
    presses: int = 0

    def connect(self, run: Run) -> None:
        """Takes the signals over for as long as the loop of this thread runs."""
        self.view.at(run.journal.state.iteration)
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, self._pause, run)
        loop.add_signal_handler(signal.SIGTERM, self._leave, run)

    def _pause(self, run: Run) -> None:
        if run.waits and run.journal.state.approval is not None:  # nothing is at work that could be finished
            self.code = 130
            run.leaving.set()
            self.view.line("left: the request stays open")
            return
        self.presses += 1
        rests = run.journal.state.phase == "waiting"  # for a time: nothing is at work that could be finished
        now = self.presses > 1 or rests
        key = f"pause/{secrets.token_hex(8)}"
        run.journal.store.signal(
            run.journal.run, key, encode_signal(ev.PauseRequested(now=now, by=who(), key=key))
        )
        if self.presses > 1:
            self.code = 130
        self.view.line("pausing now" if now else "pausing after this iteration; Ctrl-C again: now")

    def _leave(self, run: Run) -> None:
        self.code = 143
        run.leaving.set()


def check_channels(loaded: Loaded, tell: Callable[[str], None]) -> None:
    """`ConfigError` where nobody would send a request of this loop, or hear an answer: that takes a server."""
    if not (table_of(loaded.loop.approval).get("channels") or table_of(loaded.loop.notify).get("to")):
        return
    from loopwright.assembled import assemble
    from loopwright.serving.heard import only_told, server_alive, unheard

    made = assemble(loaded.loop, project=loaded.project, path=loaded.path, places=loaded.places)
    path = store_path(loaded.loop.store, loaded.project)
    alive = False
    if path is not None and store_exists(path):
        with opened(Where(loaded.project, loaded.loop.store)) as store:
            alive = server_alive(store, owner())
    public_url = server_of(loaded.loop.server).public_url
    if wrong := unheard(made, server_alive=alive, public_url=public_url):
        raise ConfigError(*wrong)
    for line in only_told(made, server_alive=alive, public_url=public_url):
        tell(line)


@contextmanager
def traced(ways: Ways) -> Iterator[Ways]:
    """The same ways, with spans sent where the environment names a collector."""
    if not any(name.startswith("OTEL_EXPORTER_OTLP") for name in ways.environ):  # nothing to load
        yield ways
        return
    from loopwright.serving.tracing import observer

    tracing = observer(ways.environ, tell=ways.tell)
    try:
        yield ways if tracing is None else replace(ways, follow=(tracing.follow,))
    finally:
        if tracing is not None:
            tracing.close()


def typing() -> bool:
    """Whether a person can be shown something here and can type an answer."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def _finish(held: Held, view: View, keys: Keys, where: Where, *, json_: bool, exit_zero: bool) -> int:
    """Prints how it ended; the exit code."""
    state = held.state
    code = held.exit_code
    if state.finished is None and keys.code is not None:
        code = keys.code  # a signal ended our part; the run's own end comes first
    if exit_zero and code in {3, 4}:
        code = 0
    if json_:
        emit({**document(state), "exit_code": code})
    if state.finished is not None and not view.seen:
        view.line(f"{state.run} was over already: nothing was run; another --as ID begins a new run")
    for line in words.three_lines(state, where, ours=True):
        view.line(line)
    if os.environ.get("GITHUB_STEP_SUMMARY"):
        from loopwright.cli.report import summarize

        summarize(state.run, where)
    return code


@click.command("run")
@click.argument("loopfile", required=False)
@click.option("--goal", metavar="TEXT|@FILE", help="What is wanted.")
@click.option("--agent", metavar="NAME|CMD", help="Who does the work.")
@click.option("--gate", multiple=True, metavar="NAME|CMD", help="Who judges it; may be given several times.")
@click.option("--tasks", metavar="FILE", help="Work through the task list in FILE; all of it must be ticked.")
@click.option("--max-iterations", metavar="N", help="At most N iterations.")
@click.option("--max-duration", metavar="30m", help="At most so long, agents and gates together.")
@click.option("--threshold", metavar="X", help="The weighted score that required gates must reach.")
@click.option("--budget", metavar="USD", help="At most so many US dollars.")
@click.option("--approve", metavar="never|passed|always|alert", help="When a person is asked.")
@click.option("--workspace", metavar="in_place|worktree|folder|none", help="Where the agent works.")
@click.option("--as", "run_id", metavar="RUN", help="The run's id; the same id again resumes it.")
@click.option(
    "--set",
    "sets",
    multiple=True,
    metavar="K=V",
    help="Any setting of a loop file, such as limits.attempts=2.",
)
@click.option("--env", multiple=True, metavar="NAME", help="Let a withheld environment variable through.")
@click.option("--no-baseline", is_flag=True, help="Do not judge the state before any work.")
@click.option("--no-wait", is_flag=True, help="Exit 6 instead of waiting for a person.")
@click.option("--no-input", is_flag=True, help="Never ask on the terminal.")
@click.option("--exit-zero", is_flag=True, help="Exit 0 where it would be 3 or 4.")
@click.option("--dry-run", is_flag=True, help="Judge what is there once, without agent or record.")
@click.option("--accept-changes", is_flag=True, help="Go on under this id with another goal, agent or gates.")
@as_json
@places
def run_(
    loopfile: str | None,
    run_id: str | None,
    sets: tuple[str, ...],
    exit_zero: bool,
    dry_run: bool,
    accept_changes: bool,
    json_: bool,
    folder: str,
    store: str | None,
    no_wait: bool,
    no_input: bool,
    **flags: Any,
) -> int:
    """Run a loop until it is good or a limit is met.

    The loop is what LOOPFILE says (else loop.toml or [tool.loopwright], here or above), and the options.

    \b
    loopwright run --goal "Make the tests pass" --agent "sh agent.sh" --gate pytest --max-iterations 5

    Exit codes: 0 passed, 2 usage, 3 ended without passing, 4 health, 5 stopped, 6 paused or waiting,
    7 the agent or a gate could not run, 8 locked, 9 store.
    """  # noqa: D301 - click reads \b as "leave these lines as they are"
    from loopwright.config import load

    if dry_run:
        from loopwright.cli.dry_run import dry

        return dry(loopfile, enter(folder), run_id, sets, {**flags, "store": store}, json_=json_)
    view = View()
    environ = dict(os.environ)
    said = {**flags, "store": store}
    loaded = load(loopfile, folder=enter(folder), path=environ.get("PATH", ""), sets=sets, flags=said)
    check_channels(loaded, view.line)
    keys = Keys(view)
    where = Where(loaded.project, loaded.loop.store, named=store is not None)
    terminal = Terminal(view=view, where=where, types=not no_input and typing())
    ways = Ways(
        project=loaded.project,
        store=loaded.loop.store,
        environ=environ,
        observe=(view.see, terminal.see),
        hear=view.hear if fancy() else None,
        begin=view.begin,
        tell=view.line,
        signals=keys.connect,
        wait=not no_wait,
        person=terminal.attend,
        accept_changes=accept_changes,
        by=who(),
        defined_in=() if loaded.file is None else (loaded.file,),
    )
    with view.live(), traced(ways) as open_ways:
        held = alone(lambda: start(loaded.loop, run_id, open_ways))
    return _finish(held, view, keys, where, json_=json_, exit_zero=exit_zero)


@click.command("resume")
@click.argument("run")
@click.option("--note", metavar="TEXT", help="Words for the next attempt.")
@click.option("--add-iterations", type=click.IntRange(1), metavar="N", help="Allow N more iterations.")
@click.option("--add-duration", type=Amount(), metavar="D", help="Allow so much more time.")
@click.option("--add-budget", type=Money(), metavar="USD", help="Allow so much more money.")
@click.option("--no-wait", is_flag=True, help="Exit 6 instead of waiting for a person.")
@as_json
@places
def resume_(
    run: str,
    note: str | None,
    add_iterations: int | None,
    add_duration: float | None,
    add_budget: float | None,
    no_wait: bool,
    json_: bool,
    folder: str,
    store: str | None,
) -> int:
    """Go on with RUN where it stands.

    After a crash, a pause, a stop, or an end that a limit brought.
    """
    outside("resume")
    where = find(folder, store)
    with opened(where) as runs:
        name = the_run(runs, run)
    view = View()
    keys = Keys(view)
    terminal = Terminal(view=view, where=where, types=typing())
    add: Mapping[str, float | None] = {
        "max_iterations": add_iterations,
        "max_duration": add_duration,
        "budget": add_budget,
    }
    ways = Ways(
        project=where.project,
        store=where.store,
        environ=dict(os.environ),
        observe=(view.see, terminal.see),
        hear=view.hear if fancy() else None,
        begin=view.begin,
        tell=view.line,
        signals=keys.connect,
        wait=not no_wait,
        person=terminal.attend,
        by=who(),
        note=None if note is None else os.fsencode(note).decode(errors="replace"),
        add={k: v for k, v in add.items() if v is not None},
    )
    with view.live(), traced(ways) as ways:
        held = alone(lambda: resume(name, ways))
    return _finish(held, view, keys, where, json_=json_, exit_zero=False)
