"""Schemas as JSON: columns from dictionaries, text that people can read and edit, files replaced atomically."""

import json
import os
import tempfile
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from sketchbandits.features.categorical import Categorical
from sketchbandits.features.column import Column
from sketchbandits.features.embedding import Embedding
from sketchbandits.features.hashed import Hashed
from sketchbandits.features.numeric import Numeric

VERSION = 1
FIELDS = ("version", "columns", "interactions", "id_column", "ignored", "notes")
KINDS: dict[str, type[Column]] = {kind.kind: kind for kind in (Numeric, Categorical, Hashed, Embedding)}


def read_column(path: str, entries: Any) -> Column:
    """The column that one entry of ``columns`` describes; ``path`` says where it stands."""
    if not isinstance(entries, Mapping):
        raise ValueError(f"{path} must be an object with kind and name, got {_short(entries)}")
    kind = entries.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        raise ValueError(f"{path}.kind must be one of {', '.join(map(repr, KINDS))}, got {_short(kind)}")
    try:
        return KINDS[kind].from_dict({name: value for name, value in entries.items() if name != "kind"})
    except ValueError as error:
        raise ValueError(f"{path}.{error}") from None


def check_fields(document: Any) -> None:
    """An object of a version that is known, with only the fields of a schema."""
    if not isinstance(document, Mapping):
        raise ValueError(f"the schema must be an object with the fields version and columns, got {_short(document)}")
    version = document.get("version")
    if type(version) is not int or version != VERSION:
        raise ValueError(f"version must be {VERSION}, the only one that is known, got {_short(version)}")
    for name in document:
        if name not in FIELDS:
            raise ValueError(f"{_short(name)} must be left out: a schema has the fields {', '.join(FIELDS)}")
    if not isinstance(document.get("columns"), (list, tuple)):
        raise ValueError(f"columns must be a list of objects, got {_short(document.get('columns'))}")


def write_text(document: Mapping[str, Any]) -> str:
    """JSON with one line for each column."""
    parts = []
    for name, value in document.items():
        if name == "columns" and value:
            lines = ",\n".join("  " + json.dumps(column, ensure_ascii=False, allow_nan=False) for column in value)
            parts.append(f' "columns": [\n{lines}\n ]')
        else:
            parts.append(f' "{name}": {json.dumps(value, ensure_ascii=False, allow_nan=False)}')
    return "{\n" + ",\n".join(parts) + "\n}\n"


def read_text(text: Any) -> Any:
    """What JSON text holds; no NaN, no infinite numbers, no field twice in an object."""
    if not isinstance(text, str):
        raise ValueError(f"text must be JSON as text, got {_short(text)}")
    try:
        return json.loads(text, object_pairs_hook=_object, parse_constant=_constant)
    except RecursionError:
        raise ValueError("text must be JSON, got brackets nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"text must be JSON: {error}") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(name for name in names if names.count(name) > 1)!r} stands twice in one object")
    return result


def _constant(word: str) -> Any:
    raise ValueError(f"{word} is no number of JSON")


def _short(value: Any) -> str:
    words = repr(value)
    return words if len(words) <= 60 else f"{words[:60]}…"


def write_file(path: str | PathLike[str], text: str) -> None:
    """Write to a temporary file in the folder of ``path``, flush it to disk, and rename it into place."""
    target = Path(path)
    if not target.parent.is_dir():
        raise FileNotFoundError(f"path must lie in a folder that exists, got {os.fspath(path)!r}: no {target.parent}")
    handle, temporary = tempfile.mkstemp(prefix=target.name, suffix=".part", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(text.encode("utf-8"))
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, target.stat().st_mode if target.exists() else 0o644)  # not private, as temporary files are
        os.replace(temporary, target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def read_file(path: str | PathLike[str]) -> str:
    """The text of a file in UTF-8."""
    try:
        return Path(path).read_bytes().decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError:
        raise ValueError(f"path must be a file of JSON in UTF-8, got {os.fspath(path)!r}") from None
