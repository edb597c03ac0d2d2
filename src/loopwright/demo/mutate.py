"""The one-token changes that could undo a slip of the pen.

Pure: source bytes in, edits out, no file is read. An edit is a span of bytes and what to put there, so whatever
it does not name stays byte-identical. Every edit is made by a rule that holds for any Python file: nothing here
knows which program it is looking at.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# What each token may have been meant to be. The likeliest first: people slip on boundaries more often than on meaning.
COMPARISONS: Final[dict[type[ast.cmpop], tuple[str, tuple[str, ...]]]] = {
    ast.Lt: ("<", ("<=", ">", ">=")),
    ast.LtE: ("<=", ("<", ">=", ">")),
    ast.Gt: (">", (">=", "<", "<=")),
    ast.GtE: (">=", (">", "<=", "<")),
    ast.Eq: ("==", ("!=", "<=", ">=")),
    ast.NotEq: ("!=", ("==", "<", ">")),
    ast.In: ("in", ("not in",)),
    ast.NotIn: (r"not\s+in", ("in",)),
    ast.Is: ("is", ("is not",)),
    ast.IsNot: (r"is\s+not", ("is",)),
}
ARITHMETIC: Final[dict[type[ast.operator], tuple[str, tuple[str, ...]]]] = {
    ast.Add: ("+", ("-", "*")),
    ast.Sub: ("-", ("+", "*")),
    ast.Mult: ("*", ("+", "//", "/", "**")),
    ast.Div: ("/", ("//", "*")),
    ast.FloorDiv: ("//", ("/", "%", "*")),
    ast.Mod: ("%", ("//", "*")),
    ast.Pow: ("**", ("*",)),
    ast.BitAnd: ("&", ("|",)),
    ast.BitOr: ("|", ("&",)),
    ast.BitXor: ("^", ("|", "&")),
    ast.LShift: ("<<", (">>",)),
    ast.RShift: (">>", ("<<",)),
}
PAIRS: Final = (
    ("min", "max"),
    ("any", "all"),
    ("floor", "ceil"),
    ("startswith", "endswith"),
    ("lower", "upper"),
    ("lstrip", "rstrip"),
    ("ljust", "rjust"),
    ("find", "rfind"),
    ("index", "rindex"),
    ("split", "rsplit"),
    ("partition", "rpartition"),
    ("removeprefix", "removesuffix"),
    ("union", "intersection"),
    ("append", "extend"),
)
TWINS: Final = {a: b for pair in PAIRS for a, b in (pair, pair[::-1])}

_SIMPLE = (ast.Name, ast.Call, ast.Attribute, ast.Subscript)
_NOT_CODE = frozenset({"annotation", "returns", "type_params", "type_comment"})
# Positions inside an f-string are wrong before Python 3.12: leave its inside alone on every version.
_OPAQUE = frozenset({"JoinedStr", "TemplateStr"})


@dataclass(frozen=True, slots=True)
class Edit:
    """One change of one token: bytes `start` to `end` become `new`.

    `line` is where it is, `statement` the first line of its statement, `scope` the first line of its function (0 =
    the module itself) and `rank` how far-fetched it is: 0 is the likeliest.
    """

    start: int
    end: int
    old: bytes
    new: bytes
    line: int
    statement: int
    scope: int
    rank: int


@dataclass(frozen=True, slots=True)
class _Site:
    """A node with its place, and the source as the rules need to see it."""

    node: ast.AST
    statement: int
    scope: int
    source: bytes
    starts: tuple[int, ...]

    def begin(self, node: ast.AST) -> int:
        """Where the node begins, in bytes."""
        return self.starts[node.lineno - 1] + int(node.col_offset)  # type: ignore[attr-defined]

    def end(self, node: ast.AST) -> int:
        """Where the node ends, in bytes."""
        return self.starts[node.end_lineno - 1] + int(node.end_col_offset)  # type: ignore[attr-defined]

    def edit(self, start: int, end: int, new: str, rank: int) -> Edit:
        """Make the edit of a span that belongs to this site."""
        line = self.source.count(b"\n", 0, start) + 1
        return Edit(start, end, self.source[start:end], new.encode(), line, self.statement, self.scope, rank)

    def token(self, pattern: str, start: int, end: int) -> tuple[int, int] | None:
        """Find an operator between two operands, where only brackets and comments stand beside it."""
        for found in re.finditer(rb"#[^\n]*|(?P<token>" + pattern.encode() + rb")", self.source[start:end]):
            if found["token"]:
                return start + found.start(), start + found.end()
        return None


def mutations(source: bytes) -> list[Edit]:
    """List the one-token changes of a module, in the order of the text.

    Raises SyntaxError or ValueError for what is no Python in UTF-8.
    """
    source.decode("utf-8")
    # A byte order mark would shift the columns, a lone carriage return the lines; neither is worth a rule.
    if source.startswith(b"\xef\xbb\xbf") or source.replace(b"\r\n", b"\n").count(b"\r"):
        return []
    starts = [0]
    for text in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(text))
    found = {
        (edit.start, edit.end, edit.new): edit
        for site in _sites(ast.parse(source), source, tuple(starts))
        for edit in _changes(site)
    }
    return sorted(found.values(), key=lambda edit: (edit.start, edit.rank, edit.new))


def applied(source: bytes, edit: Edit) -> bytes:
    """Return the source with the edit made."""
    return source[: edit.start] + edit.new + source[edit.end :]


def _sites(tree: ast.Module, source: bytes, starts: tuple[int, ...]) -> Iterator[_Site]:
    """Every node that is code, not annotation or text, with its statement and function."""
    waiting: list[tuple[ast.AST, int, int]] = [(tree, 0, 0)]
    while waiting:
        node, statement, scope = waiting.pop()
        if isinstance(node, ast.stmt):
            statement = node.lineno
        yield _Site(node, statement, scope, source, starts)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            scope = node.lineno
        for name, value in ast.iter_fields(node):
            children = value if isinstance(value, list) else [value]
            waiting += [
                (child, statement, scope)
                for child in children
                if isinstance(child, ast.AST)
                and name not in _NOT_CODE
                and type(child).__name__ not in _OPAQUE
            ]


def _changes(site: _Site) -> Iterator[Edit]:
    """All edits the rules have for one node."""
    match site.node:
        case ast.Compare(left, ops, comparators):
            yield from _comparison(site, [left, *comparators], ops)
        case ast.BinOp(left, operator, right):
            yield from _arithmetic(site, operator, site.end(left), site.begin(right))
        case ast.AugAssign(target, operator, value):
            yield from _arithmetic(site, operator, site.end(target), site.begin(value))
        case ast.BoolOp(operator, values):
            yield from _boolean(site, operator, values)
        case ast.UnaryOp(operator, operand):
            yield from _unary(site, operator, operand)
        case ast.Constant(value):
            yield from _constant(site, value)
        case ast.Name(name) | ast.Attribute(_, name) if name in TWINS:
            end = site.end(site.node)
            yield site.edit(end - len(name), end, TWINS[name], 0 if isinstance(site.node, ast.Name) else 2)
        case ast.Subscript(_, index):
            yield from _shifted(site, [index.lower, index.upper] if isinstance(index, ast.Slice) else [index])
        case ast.Call(ast.Name("range"), arguments):
            yield from _shifted(site, arguments)
        case ast.If(test) | ast.While(test) | ast.IfExp(test):
            yield from _negated(site, test)
        case ast.comprehension(ifs=tests):
            for test in tests:
                yield from _negated(site, test)
        case ast.Return(value):
            yield from _negated(site, value)
        case ast.Break() | ast.Continue():
            other = "continue" if isinstance(site.node, ast.Break) else "break"
            yield site.edit(site.begin(site.node), site.end(site.node), other, 2)
        case _:
            return


def _comparison(site: _Site, operands: list[ast.expr], ops: list[ast.cmpop]) -> Iterator[Edit]:
    """`a < b` could be `a <= b`, or the other way round."""
    for left, operator, right in zip(operands, ops, operands[1:], strict=False):
        pattern, others = COMPARISONS[type(operator)]
        if span := site.token(pattern, site.end(left), site.begin(right)):
            for place, other in enumerate(others):
                yield site.edit(*span, other, 2 if place else 0)


def _arithmetic(site: _Site, operator: ast.operator, start: int, end: int) -> Iterator[Edit]:
    """`a + b` could be `a - b`; the `=` of `a += b` stays where it is."""
    if type(operator) not in ARITHMETIC:
        return
    token, others = ARITHMETIC[type(operator)]
    if span := site.token(re.escape(token), start, end):
        for place, other in enumerate(others):
            yield site.edit(*span, other, 2 if place else 0)


def _boolean(site: _Site, operator: ast.boolop, values: list[ast.expr]) -> Iterator[Edit]:
    """`a and b` could be `a or b`."""
    token, other = ("and", "or") if isinstance(operator, ast.And) else ("or", "and")
    for left, right in pairwise(values):
        if span := site.token(token, site.end(left), site.begin(right)):
            yield site.edit(*span, other, 0)


def _unary(site: _Site, operator: ast.unaryop, operand: ast.expr) -> Iterator[Edit]:
    """`not a` could be `a`, `-a` could be `a`."""
    token = {ast.Not: "not", ast.USub: "-", ast.Invert: "~"}.get(type(operator))
    start = site.begin(site.node)
    if token and (span := site.token(re.escape(token) + r"\s*", start, site.begin(operand))):
        yield site.edit(*span, "", 1)


def _constant(site: _Site, value: object) -> Iterator[Edit]:
    """True could be False; a whole number could be one more or one less."""
    span = site.begin(site.node), site.end(site.node)
    if isinstance(value, bool):
        yield site.edit(*span, str(not value), 0)
    elif isinstance(value, int):
        yield site.edit(*span, str(value + 1), 1)
        yield site.edit(*span, str(value - 1), 1)


def _shifted(site: _Site, places: Sequence[ast.expr | None]) -> Iterator[Edit]:
    """`x[n]` could be `x[n + 1]` or `x[n - 1]`, and so could a bound of a slice or a range."""
    for place in places:
        if isinstance(place, _SIMPLE):
            for more in (" + 1", " - 1"):
                yield site.edit(site.end(place), site.end(place), more, 2)


def _negated(site: _Site, test: ast.expr | None) -> Iterator[Edit]:
    """`if a` could be `if not a`."""
    if isinstance(test, _SIMPLE):
        yield site.edit(site.begin(test), site.begin(test), "not ", 3)
