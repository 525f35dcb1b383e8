"""Saved policies: one ``.npz`` file of plain arrays and a JSON header, never a pickle, replaced atomically."""

import json
import os
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from os import PathLike
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

FORMAT = 1
_FUNCTION = "<function>"


def copy_state(state: Any) -> Any:
    """A deep copy of a (possibly nested) ``NamedTuple`` of arrays."""
    return type(state)(*(copy_state(part) if isinstance(part, tuple) else part.copy() for part in state))


def leaves(state: Any, prefix: str = "state") -> Iterator[tuple[str, NDArray[Any]]]:
    """Every array of a state with its dotted name."""
    for name, part in zip(state._fields, state, strict=True):
        if isinstance(part, tuple):
            yield from leaves(part, f"{prefix}.{name}")
        else:
            yield f"{prefix}.{name}", part


def write(path: str | PathLike[str], kind: str, settings: dict[str, Any], state: Any, extra: dict[str, Any]) -> None:
    """Write to a temporary file beside ``path``, flush it to disk, and rename it into place."""
    header = {"format": FORMAT, "policy": kind}
    header["settings"] = {k: _FUNCTION if callable(v) else v for k, v in settings.items()}
    target = Path(path)
    handle, temporary = tempfile.mkstemp(prefix=target.name, suffix=".part", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            arrays: dict[str, Any] = {"header": np.array(json.dumps(header)), **dict(leaves(state)), **extra}
            np.savez(file, **arrays)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, target.stat().st_mode if target.exists() else 0o644)  # not private, as temporary files are
        os.replace(temporary, target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def read(
    path: str | PathLike[str], kind: str, state_type: Callable[[dict[str, Any]], type], radius: Any
) -> tuple[dict[str, Any], Any, dict[str, NDArray[Any]]]:
    """Settings, state and further arrays of a file that `write` made for a policy of this kind."""
    try:
        with open(path, "rb") as stream, np.load(stream, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        header = json.loads(str(arrays.pop("header")))
    except (zipfile.BadZipFile, ValueError, KeyError, EOFError, TypeError, AttributeError) as error:
        raise ValueError(f"path must be a file written by {kind}.save, got {os.fspath(path)!r} ({error})") from None
    if header.get("format") != FORMAT or header.get("policy") != kind:
        found = f"a {header.get('policy')} of format {header.get('format')}"
        raise ValueError(f"path must be a {kind} of format {FORMAT}, got {found} in {os.fspath(path)!r}")
    settings = cast(dict[str, Any], header["settings"])
    if callable(radius) and settings.get("radius") != _FUNCTION:
        raise ValueError(f"radius must be left out, the saved policy has radius {settings.get('radius')!r}")
    if settings.get("radius") == _FUNCTION:
        if not callable(radius):
            raise ValueError(f"radius must be the function that the saved policy was built with, got {radius!r}")
        settings["radius"] = radius
    return settings, _take(arrays, state_type(settings), "state"), arrays


def _take(arrays: dict[str, NDArray[Any]], state_type: Any, prefix: str) -> Any:
    """Rebuild a state, taking its arrays out of ``arrays``."""
    parts = []
    for name, annotation in state_type.__annotations__.items():
        if hasattr(annotation, "_fields"):
            parts.append(_take(arrays, annotation, f"{prefix}.{name}"))
        elif f"{prefix}.{name}" in arrays:
            parts.append(arrays.pop(f"{prefix}.{name}"))
        else:
            raise ValueError(f"path must hold the array {prefix}.{name}, which is missing")
    return state_type(*parts)
