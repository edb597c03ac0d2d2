"""The program: its verbs, loaded when they are called, and what an error looks like.

Rule: stdout is data, stderr is progress and errors. An error says what happened and what to do, and
has the exit code of its kind.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Any

import click

from loopwright.errors import LoopwrightError

VERBS = {
    "run": "run",
    "resume": "run",
    "list": "listing",
    "show": "read",
    "watch": "watch",
    "why": "read",
    "report": "report",
    "diff": "files",
    "restore": "files",
    "apply": "files",
    "fork": "fork",
    "backtest": "backtest",
    "approvals": "people",
    "approve": "people",
    "revise": "people",
    "reject": "people",
    "ask-again": "people",
    "stop": "steer",
    "pause": "steer",
    "serve": "serve",
    "start": "serve",
    "schedule": "schedule",
    "config": "settings",
    "plugins": "settings",
    "init": "begin",
    "doctor": "begin",
    "demo": "demo",
}


class Verbs(click.Group):
    """The group of all verbs; each is imported when it is named."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - the shape of a group
        """The verbs, in the order of a run's life."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - the same
        """The verb of that name."""
        if cmd_name not in VERBS:
            return None
        command: click.Command = getattr(
            import_module(f"loopwright.cli.{VERBS[cmd_name]}"), f"{cmd_name.replace('-', '_')}_"
        )
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """The verb, or an error naming the nearest one."""
        if args and args[0] not in VERBS and not args[0].startswith("-"):
            import difflib

            near = difflib.get_close_matches(args[0], VERBS, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"the verbs are {', '.join(VERBS)}"
            raise click.UsageError(f"there is no verb {args[0]!r}; {hint}", ctx)
        return super().resolve_command(ctx, args)


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="loopwright", message="%(prog)s %(version)s")
def app() -> None:
    """Run any agent in a loop that knows when to stop.

    Begin with loopwright demo, or with loopwright init in a project of yours.
    """


def run_app(args: list[str] | None = None) -> int:
    """The exit code of the command line `args` (default: this program's)."""
    try:
        with app.make_context("loopwright", sys.argv[1:] if args is None else args) as ctx:
            code = app.invoke(ctx)
    except click.exceptions.Exit as done:
        return done.exit_code
    except click.exceptions.Abort:
        return 130
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return error.exit_code
    except click.ClickException as error:
        _say(_wrong(error))
        return error.exit_code
    except LoopwrightError as error:
        _say(str(error) or type(error).__name__)
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # nobody reads on: not an error of ours
        return 0
    except Exception:  # noqa: BLE001 - the last line of defence
        import traceback

        traceback.print_exc()
        print(
            "loopwright: this is a fault of loopwright itself; please report the lines above", file=sys.stderr
        )
        return 1
    return code if isinstance(code, int) else 0


def _say(message: str) -> None:
    """An error as people see it: its first line says what happened."""
    for i, line in enumerate(message.splitlines()):
        print(f"loopwright: {line}" if i == 0 else f"  {line}", file=sys.stderr)


def _wrong(error: click.ClickException) -> str:
    """What is wrong with a command line, with the nearest right word and where all of them stand."""
    message = error.format_message()
    if isinstance(error, click.NoSuchOption):
        import difflib

        near = difflib.get_close_matches(error.option_name, error.possibilities or (), 1)
        message = f"no such option {error.option_name}" + (f"; did you mean {near[0]}?" if near else "")
    lines = [message[:1].lower() + message[1:].rstrip(".")]
    if isinstance(error, click.UsageError) and error.ctx is not None:
        lines.append(f"{error.ctx.command_path} --help shows what there is")
    return "\n".join(lines)
