"""What single values mean, in every kind of column: missing, a number, a text; and how they are refused."""

import difflib
import numbers
from collections.abc import Collection, Iterable
from decimal import Decimal
from typing import Any

import numpy as np

from sketchbandits.validate import LARGEST

NOT_A_NUMBER = float("nan")
NUMBER = f"a number from {-LARGEST:g} to {LARGEST:g}"
TEXT = "text, a whole number or a boolean"
SHOWN = 60  # characters of a refused value that a message quotes


def missing(value: Any) -> bool:
    """Whether there is no value: None, NaN, and what pandas puts into gaps (NA, NaT)."""
    if isinstance(value, (float, np.floating)):
        return bool(value != value)
    return value is None or type(value).__name__ in ("NAType", "NaTType")


def number(value: Any) -> float | None:
    """A real number as a float, NaN where it is missing, infinite where it is too large; None for any other type."""
    if isinstance(value, (numbers.Real, Decimal, np.bool_)):
        try:
            return float(value)
        except OverflowError:
            return float("inf")
        except ValueError:  # a signaling NaN of Decimal
            return None
    return NOT_A_NUMBER if missing(value) else None


def text(value: Any) -> str | None:
    """The text by which values are compared: 1, 1.0 and "1" are one value, True and "true" are; None for other types.

    Files and formats differ in how they write the same value: CSV knows only text, and pandas turns whole numbers into
    floats where one is missing.
    """
    if isinstance(value, str):
        return str.__str__(value)  # a member of an Enum of texts: its value
    if isinstance(value, (bool, np.bool_)):
        return "true" if value else "false"
    if isinstance(value, numbers.Integral):
        return str(int(value))
    if isinstance(value, (float, np.floating)) and abs(float(value)) <= LARGEST and float(value).is_integer():
        return str(int(value))
    return None


def shown(value: Any) -> str:
    """A value and its type, as messages quote it."""
    words = repr(value)
    return f"{words if len(words) <= SHOWN else words[:SHOWN] + '…'} of type {type(value).__name__}"


def refused(name: str, allowed: str, value: Any) -> ValueError:
    """The error for a value that a column does not take."""
    found = "no value" if missing(value) else shown(value)
    return ValueError(f"the column {name!r} must hold {allowed}, got {found}")


def listed(words: Iterable[Any], most: int = 10) -> str:
    """At most ``most`` of them, quoted."""
    known = list(map(repr, words))
    return ", ".join(known[:most]) + (f" and {len(known) - most} more" if len(known) > most else "")


def unknown(argument: str, name: Any, known: Collection[str]) -> ValueError:
    """The error for a column that is not among ``known``, with the one that it may be meant to be."""
    near = difflib.get_close_matches(name, known, 1) if isinstance(name, str) else []
    hint = f"; did you mean {near[0]!r}?" if near else ""
    among = f"the columns {listed(known)}" if known else "no columns"
    return ValueError(f"{argument} must hold {among}, got {name!r}{hint}")


def words(argument: str, value: Any) -> str:
    """A name or a listed value in a schema: text that is not empty and can be written to a file."""
    if not isinstance(value, str) or not value:
        raise ValueError(f"{argument} must be text that is not empty, got {value!r}")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise ValueError(f"{argument} must be valid Unicode, got {value!r}") from None
    return str.__str__(value)
