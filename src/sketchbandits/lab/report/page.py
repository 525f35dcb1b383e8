"""What a page is made of, and its rendering: Python collects plain texts and numbers, the templates make HTML of them.

Autoescaping is on, so that a file, a policy or an option may have any name.
"""

import re
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from jinja2 import Environment


class Cell(NamedTuple):
    """A figure of a table, in bold type where it is the best; ``small`` is the interval or remark below it."""

    text: str
    small: str = ""
    best: bool = False


class Table(NamedTuple):
    """A table whose first ``text_columns`` columns hold words and whose other columns hold figures."""

    caption: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str | Cell]]
    text_columns: int = 1

    def kind(self, column: int) -> str:
        """The class of a column in the style sheet."""
        return "text" if column < self.text_columns else "number"


class Tables(NamedTuple):
    """Tables, with a sentence before them where there is one."""

    tables: Sequence[Table]
    sentence: str = ""


class Section(NamedTuple):
    """A part of the page: its heading, the template that shows it, and what the template shows."""

    heading: str
    template: str
    content: Any

    @property
    def anchor(self) -> str:
        """The name that links use."""
        return re.sub("[^a-z]+", "-", self.heading.lower())


def render(title: str, abstract: Sequence[str], sections: Sequence[Section]) -> bytes:
    """The whole page: a title, an abstract of sentences, and the sections."""
    page = _templates().get_template("page.html")
    return (page.render(title=title, abstract=abstract, sections=sections) + "\n").encode()


@cache
def _templates() -> "Environment":
    from jinja2 import Environment, PackageLoader, StrictUndefined  # only a report needs it: start-up stays short

    return Environment(
        loader=PackageLoader("sketchbandits.lab.report"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
