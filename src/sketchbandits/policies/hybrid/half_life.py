"""How long a reward counts: a number of rewards, a time, or found out by watching."""

import datetime
import math
import re
from typing import Any, NamedTuple

from sketchbandits import validate

SECONDS = {"s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0, "w": 604_800.0}
ALLOWED = 'None, a whole number of rewards >= 1, a time such as "90s", "15m", "6h", "7d" or "2w", or "auto"'
WATCHED = 1_500  # rewards, the half-life of the copy that watches for changes


class HalfLife(NamedTuple):
    """``length`` in rewards or, where ``timed``, in seconds; infinite where nothing is forgotten by itself."""

    length: float
    timed: bool
    watched: bool


def plain(value: Any) -> int | str | None:
    """A user's ``half_life``, checked, as it is saved."""
    half_life_of(value)
    return value if value is None or isinstance(value, str) else int(value)


def half_life_of(value: Any) -> HalfLife:
    """What a user's ``half_life`` means."""
    if value is None or (isinstance(value, str) and value == "auto"):
        return HalfLife(math.inf, False, value is not None)
    if not isinstance(value, str):
        return HalfLife(float(_whole(value)), False, False)
    parts = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([smhdw])\s*", value)
    length = float(parts[1]) * SECONDS[parts[2]] if parts else 0.0
    if not 0.0 < length <= validate.LARGEST:
        raise ValueError(f"half_life must be {ALLOWED}, got {value!r}")
    return HalfLife(length, True, False)


def _whole(value: Any) -> int:
    try:
        return validate.whole("half_life", value)
    except ValueError:
        raise ValueError(f"half_life must be {ALLOWED}, got {value!r}") from None


def checked_time(at: Any, *, timed: bool) -> float:
    """Seconds since any fixed moment; NaN where no time is needed."""
    if not timed:
        if at is not None:
            raise ValueError(f'at must be None unless half_life is a time such as "6h", got {at!r}')
        return math.nan
    allowed = "at must be a number of seconds or a datetime with a time zone, as half_life is a time"
    if isinstance(at, datetime.datetime):
        if at.tzinfo is None:
            raise ValueError(f"{allowed}, got {at!r} without a time zone")
        return at.timestamp()
    try:
        return validate.number("at", at)
    except ValueError:
        raise ValueError(f"{allowed}, got {at!r}") from None
