"""Verbs on what loopwright knows: config show, plugins.

Rule: they read, and say where each value comes from.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import click

from loopwright import codec
from loopwright.cli.read import emit
from loopwright.cli.where import as_json, enter


@click.group("config")
def config_() -> None:
    """Look at the configuration."""


@config_.command("show")
@click.argument("loopfile", required=False)
@click.option("--set", "sets", multiple=True, metavar="K=V", help="Replace a value, as in run.")
@click.option("--origin", is_flag=True, help="Where each value comes from.")
@click.option("-C", "folder", metavar="DIR", default=".", help="Work as if started in DIR.")
@as_json
def show(loopfile: str | None, sets: tuple[str, ...], origin: bool, folder: str, json_: bool) -> None:
    """Show the loop that run would start, with every default."""
    from loopwright.config import effective, load

    loaded = load(loopfile, folder=enter(folder), sets=sets, path=os.environ.get("PATH", ""))
    table = effective(loaded)
    if json_:
        emit([{"key": k, "value": v, "origin": o} for k, v, o in table])
        return
    for key, value, source in table:
        click.echo(f"{key} = {toml(value)}" + (f"    # {source}" if origin else ""))


def toml(value: Any) -> str:
    """`value` as a loop file would have it, on one line."""
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{k} = {toml(v)}' for k, v in value.items())} }}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(toml(v) for v in value)}]"
    return codec.dumps(value).decode()


@click.command("plugins")
@as_json
def plugins_(json_: bool) -> None:
    """List agents and gates by name, with their options."""
    from dataclasses import asdict

    from loopwright.registry import plugins

    found = plugins()
    if json_:
        emit([asdict(p) for p in found])
        return
    for p in found:
        click.echo(f"{p.kind:<7} {p.name}{p.signature}")
        click.echo(f"        {p.problem or p.doc}  [{p.where}]")
