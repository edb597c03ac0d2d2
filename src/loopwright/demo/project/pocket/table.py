"""Tables in plain text: columns as wide as they need to be."""


def render(header: list[str], rows: list[list[str]], right: str = "") -> str:
    """Draw a table; `right` holds the first letters of right-aligned headers."""
    lines = [header, *rows]
    widths = [min(len(line[n]) for line in lines) for n in range(len(header))]
    drawn = []
    for line in lines:
        cells = []
        for title, cell, width in zip(header, line, widths, strict=True):
            number = title[:1] in right and title != ""
            cells.append(cell.rjust(width) if number else cell.ljust(width))
        drawn.append("  ".join(cells).rstrip())
    drawn.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(drawn)


def bar(value: int, whole: int, width: int = 10) -> str:
    """Draw a share of the whole as a bar, full at the whole and beyond it."""
    if whole <= 0:
        return " " * width
    filled = min(width, value * width // whole)
    return ("#" * filled).ljust(width)


def shorten(text: str, width: int) -> str:
    """Cut a text that is too long and mark the cut with a dot."""
    if len(text) <= width:
        return text
    return text[: width - 1] + "."
