"""Flags: those that several commands share, how their texts are read, and how a bad value is refused."""

import contextlib
import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

import typer

from sketchbandits.arms_file import SchemaFile
from sketchbandits.cli import terminal
from sketchbandits.policies.registry import POLICIES

# The sentence with which every check of the library refuses a value: "rounds must be ..., got ...".
_REFUSAL = re.compile(r"(\w+)( \S+)? must ")

SCHEMA = ".json"  # how the name of a schema ends


def flag(metavar: str, text: str, default: Any = "") -> Any:
    """An option that arrives as text: plans check all values, so that every refusal reads alike."""
    return typer.Option(metavar=metavar, help=text, show_default=str(default) if default != "" else False)


ID_COLUMN = flag("NAME", "The column of the file that names the arms.")
FEATURES = flag(
    "A,B|FILE.json", "The columns that are features, or a schema as `features` writes it.", "all other columns"
)
RIDGE = flag("X", "The ridge, lambda.", 1)
THETA_NORM = flag("X", "The bound S on the parameter's norm.", 1)
DELTA = flag("X", "The failure probability.", 0.01)
SEED = flag("N", "The same seed gives the same regrets.", 0)
JOBS = flag("N", "Processes that play at the same time; times are taken alone.", "all cores")
POLICY_NAMES = f"Some of {', '.join(POLICIES)}, or all; name:option=value gives one its own options."


@contextlib.contextmanager
def bad_values_refused(command: Callable[..., None] | None = None, /, **names: str) -> Iterator[None]:
    """Around the checks of a command's values: what they refuse ends the command with one line that names the flag.

    Only a sentence of the form "name must ..." is a refusal. Any other `ValueError` is an error in the library and
    keeps its traceback. ``names`` says how a name is spelled on the command line where that is not ``--name``; where
    values also come from elsewhere, ``command`` tells which names are flags at all.
    """
    try:
        yield
    except ValueError as error:
        found = _REFUSAL.match(str(error))
        if found is None:
            raise
        name, rest = found[1], str(error)[len(found[1]) :]
        known = command is None or name in inspect.signature(command).parameters
        is_flag = found[2] is None and not name.isupper() and known
        usual = f"--{name.replace('_', '-')}" if is_flag else name
        terminal.stop(terminal.BAD_INPUT, names.get(name, usual) + rest)
    except MemoryError as error:
        terminal.stop(terminal.BAD_INPUT, f"arms and policies must fit into memory: {str(error) or 'they do not'}")


def whole(text: str) -> Any:
    """The whole number, or the text itself for a check to refuse."""
    if re.fullmatch(r"\d{1,3}(,\d{3})+", text):
        text = text.replace(",", "")
    with contextlib.suppress(ValueError):
        return int(text)
    return text


def number(text: str) -> Any:
    """The number, or the text itself for a check to refuse."""
    with contextlib.suppress(ValueError):
        return float(text)
    return text


def words(text: str) -> tuple[str, ...]:
    """The texts between commas."""
    return tuple(part.strip() for part in text.split(","))


def wholes(text: str) -> tuple[Any, ...]:
    """The whole numbers between commas."""
    return tuple(map(whole, words(text)))


def features_of(text: str | None) -> tuple[str, ...] | SchemaFile | None:
    """What ``--features`` names: columns or, with a value that ends in .json, a schema; none where it was left out."""
    if text is None:
        return None
    return SchemaFile.load(text) if is_schema(text) else words(text)


def is_schema(text: str) -> bool:
    """Whether a name is that of a schema."""
    return text.lower().endswith(SCHEMA)
