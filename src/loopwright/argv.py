"""A command as people write it, to the argv that is run.

Rule: never a shell. What only a shell would understand is an error that says how to ask for one.
"""

from __future__ import annotations

import shlex

from loopwright.errors import ConfigError

_SHELL = ("|", "||", "&", "&&", ";", ">", ">>", "<", "2>", "2>&1", "&>")


def words(command: str | list[str] | tuple[str, ...]) -> tuple[str, ...]:
    """The argv of `command`; `ConfigError` for shell syntax, unbalanced quotes or nothing."""
    if not isinstance(command, str):
        argv = tuple(command)
        if not argv or not all(isinstance(word, str) for word in argv) or not argv[0]:
            raise ConfigError(f"a command is a list of words, not {command!r}")
        return argv
    try:
        lexer = shlex.shlex(command, posix=True, punctuation_chars="|&;<>")
        lexer.whitespace_split = True
        lexer.commenters = ""
        tokens = list(lexer)
        argv = tuple(shlex.split(command))
    except ValueError as error:
        raise ConfigError(f"{command!r} is not a command: {str(error).lower()}") from None
    if not argv:
        raise ConfigError("an empty command")
    bare = [t for t in tokens if t in _SHELL] + (["$("] if _substitutes(command) else [])
    if bare:
        raise ConfigError(
            f"{command!r} needs a shell for {bare[0]!r} and loopwright runs none: write sh -c {shlex.quote(command)}"
        )
    if "\x00" in command:
        raise ConfigError("a command cannot hold a NUL character")
    return argv


def _substitutes(command: str) -> bool:
    """Whether `$(` stands outside quotes: inside them it is an argument for somebody else's shell."""
    quote = ""
    for i, char in enumerate(command):
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        elif command.startswith("$(", i):
            return True
    return False
