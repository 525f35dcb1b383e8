"""A schema as a small table, for terminals and notebooks."""

import html
import textwrap
from collections.abc import Sequence

Row = tuple[str, str, str, str]

HEADINGS: Row = ("column", "kind", "outputs", "what and why")
WIDTHS = (20, 11, 7)
WIDTH = 80


def as_text(rows: Sequence[Row]) -> str:
    """At most 80 characters per line; long names and reasons go on in the next line."""
    widths = [max(len(row[i]) for row in (HEADINGS, *rows)) for i in range(3)]
    widths = [min(width, most) for width, most in zip(widths, WIDTHS, strict=True)]
    widths.append(WIDTH - sum(widths) - 6)
    lines = []
    for row in (HEADINGS, tuple("-" * width for width in widths), *rows):
        cells = [textwrap.wrap(cell, width) or [""] for cell, width in zip(row, widths, strict=True)]
        for i in range(max(map(len, cells))):
            parts = [cell[i] if i < len(cell) else "" for cell in cells]
            lines.append("  ".join(part.ljust(width) for part, width in zip(parts, widths, strict=True)).rstrip())
    return "\n".join(lines)


def as_html(rows: Sequence[Row], caption: str) -> str:
    """The same as an HTML table."""
    head = "".join(f"<th>{heading}</th>" for heading in HEADINGS)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<p>{caption}</p><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
