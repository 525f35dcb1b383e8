"""MovieLens ratings from a folder that the user has, in the format of GroupLens or of RecBole.

- GroupLens: ``u.data``, lines of user, item, rating and timestamp separated by tabs, without a header; in the same
  folder ``u.item`` in latin-1, lines of item, title and more, separated by ``|``.
- RecBole: one ``NAME.inter`` in UTF-8, columns separated by tabs under a header such as ``user_id:token``; in the same
  folder ``NAME.item`` likewise, the title in the first column with "title" in its name.

**Reference** Harper, Konstan, "The MovieLens Datasets: History and Context", ACM TiiS 5(4), 2015.
"""

import math
from collections.abc import Iterator
from os import PathLike
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sketchbandits.environments.ratings.ratings import Ratings

_FORMS = "u.data (GroupLens), or exactly one file that ends in .inter (RecBole)"
_COLUMNS = ("user_id", "item_id", "rating", "timestamp")
_WANTED = "a user, an item, a finite rating and a finite timestamp"
_Event = tuple[str, str, float, float]


def read_movielens(folder: str | PathLike[str]) -> Ratings:
    """Read the ratings and titles in ``folder``, as `Ratings`.

    ``folder`` holds either ``u.data`` and ``u.item`` (GroupLens) or one ``.inter`` file and its ``.item`` file
    (RecBole); this module describes both formats. If a user has rated an item more than once, the latest rating counts
    (of two with the same time, the later line). Items and users are in the order of their ids, as numbers if they are
    numbers; items without a rating are left out. The file with the titles may be missing: an item without a title gets
    its id as title.
    """
    path = Path(folder)
    grouplens, recbole = path / "u.data", sorted(path.glob("*.inter"))
    if grouplens.is_file() + len(recbole) != 1:
        found = ", ".join(file.name for file in [*[grouplens] * grouplens.is_file(), *recbole]) or "neither"
        found = found if path.is_dir() else "no such folder"
        raise ValueError(f"folder must hold {_FORMS}, got {str(path)!r} with {found}")
    if recbole:
        events = _recbole_events(recbole[0])
        return _ratings(list(events), _recbole_titles(recbole[0].with_suffix(".item")), recbole[0])
    return _ratings(list(_grouplens_events(grouplens)), _grouplens_titles(path / "u.item"), grouplens)


def _ratings(events: list[_Event], titles: dict[str, str], file: Path) -> Ratings:
    if not events:
        raise ValueError(f"{file.name} must hold at least one rating, got none")
    latest: dict[tuple[str, str], _Event] = {}
    for event in sorted(events, key=lambda event: event[3]):  # stable: of two at one time the later line stays
        latest[event[:2]] = event
    kept = [event for event in events if latest[event[:2]] is event]
    users, items, ratings, times = zip(*kept, strict=True)
    user, user_ids = _positions(users)
    item, item_ids = _positions(items)
    return Ratings(
        user,
        item,
        np.array(ratings),
        np.array(times),
        user_ids,
        item_ids,
        tuple(titles.get(name) or name for name in item_ids),
        (min(ratings), max(ratings)),
    )


def _positions(names: tuple[str, ...]) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """The position of each name among the distinct ones, and these: numbers first, by size, then the others."""
    distinct = sorted(set(names), key=lambda name: (0, int(name), name) if name.isdecimal() else (1, 0, name))
    place = {name: i for i, name in enumerate(distinct)}
    return np.array([place[name] for name in names]), tuple(distinct)


def _grouplens_events(file: Path) -> Iterator[_Event]:
    for number, line in _lines(file, "latin-1"):
        fields = line.split("\t")
        if len(fields) != len(_COLUMNS):
            raise _malformed(file, number, f"{_WANTED}, separated by tabs", line)
        yield _event(fields, file, number, line)


def _grouplens_titles(file: Path) -> dict[str, str]:
    titles = {}
    for number, line in _lines(file, "latin-1") if file.is_file() else ():
        fields = line.split("|")
        if len(fields) < 2:
            raise _malformed(file, number, "an item and its title, separated by |", line)
        titles[fields[0].strip()] = fields[1].strip()
    return titles


def _recbole_events(file: Path) -> Iterator[_Event]:
    header, rows = _recbole_table(file)
    if missing := [name for name in _COLUMNS if name not in header]:
        allowed = ", ".join(f"{name}:TYPE" for name in _COLUMNS)
        raise ValueError(f"{file.name} line 1 must name the columns {allowed}, got none called {', '.join(missing)}")
    columns = [header.index(name) for name in _COLUMNS]
    for number, fields, line in rows:
        yield _event([fields[column] for column in columns], file, number, line)


def _recbole_titles(file: Path) -> dict[str, str]:
    if not file.is_file():
        return {}
    header, rows = _recbole_table(file)
    title = next((i for i, name in enumerate(header) if "title" in name), None)
    if title is None or "item_id" not in header:
        return {}
    item = header.index("item_id")
    return {fields[item].strip(): fields[title].strip() for _, fields, _ in rows}


def _recbole_table(file: Path) -> tuple[list[str], Iterator[tuple[int, list[str], str]]]:
    """The names of the columns, and (line number, fields, line) of every row."""
    lines = _lines(file, "utf-8-sig")
    _, first = next(lines, (1, ""))
    header = [name.partition(":")[0].strip() for name in first.split("\t")]

    def rows() -> Iterator[tuple[int, list[str], str]]:
        for number, line in lines:
            if len(fields := line.split("\t")) != len(header):
                raise _malformed(file, number, f"{len(header)} columns separated by tabs, as its header", line)
            yield number, fields, line

    return header, rows()


def _lines(file: Path, encoding: str) -> Iterator[tuple[int, str]]:
    """The lines that are not blank, with their numbers from 1."""
    try:
        with file.open(encoding=encoding) as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    yield number, line.rstrip("\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"{file.name} must be text in UTF-8, got byte {error.object[error.start]:#04x}") from None


def _event(fields: list[str], file: Path, number: int, line: str) -> _Event:
    user, item = fields[0].strip(), fields[1].strip()
    try:
        rating, time = float(fields[2]), float(fields[3])
    except ValueError:
        raise _malformed(file, number, _WANTED, line) from None
    if not (user and item and math.isfinite(rating) and math.isfinite(time)):
        raise _malformed(file, number, _WANTED, line)
    return user, item, rating, time


def _malformed(file: Path, number: int, wanted: str, line: str) -> ValueError:
    shown = line if len(line) <= 60 else f"{line[:57]}..."
    return ValueError(f"{file.name} line {number} must be {wanted}, got {shown!r}")
