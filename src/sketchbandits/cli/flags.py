"""Values of flags: texts become numbers and words, and whatever is refused is one line that names the flag."""

import contextlib
import re
from collections.abc import Iterator
from typing import Any

import typer

from sketchbandits.cli import terminal


def flag(metavar: str, text: str, default: Any = "") -> Any:
    """An option that arrives as text: plans check all values, so that every refusal reads alike."""
    return typer.Option(metavar=metavar, help=text, show_default=str(default) if default != "" else False)


@contextlib.contextmanager
def bad_values_refused(argument: str = "") -> Iterator[None]:
    """Whatever a value brings about is one line; a plan's fields have the names of the flags, or of the argument."""
    try:
        yield
    except ValueError as error:
        name, _, rest = str(error).partition(" ")
        is_flag = name.isidentifier() and rest.startswith("must") and not name.isupper()  # WORKLOAD has no dashes
        flag = name.upper() if name == argument else f"--{name.replace('_', '-')}" if is_flag else name
        terminal.stop(terminal.BAD_INPUT, f"{flag} {rest}")
    except MemoryError as error:
        terminal.stop(terminal.BAD_INPUT, f"arms and policies must fit into memory: {error or 'they do not'}")


def whole(text: str) -> Any:
    """The number, or the text itself for the plan to refuse."""
    if re.fullmatch(r"\d{1,3}(,\d{3})+", text):
        text = text.replace(",", "")
    with contextlib.suppress(ValueError):
        return int(text)
    return text


def number(text: str) -> Any:
    """The same with decimals."""
    with contextlib.suppress(ValueError):
        return float(text)
    return text


def words(text: str) -> tuple[str, ...]:
    """What stands between commas."""
    return tuple(part.strip() for part in text.split(","))


def wholes(text: str) -> tuple[Any, ...]:
    """Whole numbers between commas."""
    return tuple(map(whole, words(text)))
