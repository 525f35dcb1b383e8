"""Saved policies: one ``.npz`` file of plain arrays and a JSON header, never a pickle, replaced atomically.

`write` and `read` know nothing of policies. A policy's state is a ``NamedTuple`` of arrays whose fields say what a file
must hold, so that compiled code never meets an array of another type or shape:

    stats: Annotated[Floats, "4 n"]            float64, 4 rows, one column per arm
    work: Annotated[Floats, "2d+n"]            a sum; a name that nobody gave a value takes that of its first use
    clusters: Annotated[Records, "k", DTYPE]   an array of records

`take_state` checks them. What a layout cannot say (indices within bounds, sizes that depend on other entries) the
policy checks itself, with `within`, before the state is used.

**Formats** A file carries the format that it was written with. `read` accepts every format up to `FORMAT`; the policy
class converts what has changed since, or refuses with a sentence that says why.
"""

import json
import os
import re
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, get_args, get_type_hints

import numpy as np
from numpy.typing import NDArray

FORMAT = 3
_FUNCTION = "<function>"
_DAMAGE = (zipfile.BadZipFile, zlib.error, ValueError, LookupError, EOFError, TypeError, AttributeError, SyntaxError)


class Saved(NamedTuple):
    """What a file holds: the class that wrote it, its settings, every array by its dotted name."""

    path: str
    format: int
    kind: str
    settings: dict[str, Any]
    arrays: dict[str, NDArray[Any]]


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
    """Write to a temporary file in the folder of ``path``, flush it to disk, and rename it into place."""
    header = {"format": FORMAT, "policy": kind}
    header["settings"] = {k: _FUNCTION if callable(v) else v for k, v in settings.items()}
    target = Path(path)
    if not target.parent.is_dir():
        raise FileNotFoundError(f"path must lie in a folder that exists, got {os.fspath(path)!r}: no {target.parent}")
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


def read(path: str | PathLike[str], kind: str) -> Saved:
    """Everything in a file that `write` made; ``kind``, the class that asks, is named where the file is none."""
    name = str(os.fspath(path))
    allowed = f"path must be a file written by {kind}.save, got {name!r}"
    with open(path, "rb") as stream:
        if not zipfile.is_zipfile(stream):
            raise ValueError(f"{allowed}, which is no .npz file or was cut short")
        stream.seek(0)
        try:
            with np.load(stream, allow_pickle=False) as file:
                arrays = {entry: file[entry] for entry in file.files}
            header = json.loads(str(arrays.pop("header")))
            saved = Saved(name, header["format"], header["policy"], dict(header["settings"]), arrays)
        except _DAMAGE:
            raise ValueError(f"{allowed}, which holds something else or is damaged") from None
    if not isinstance(saved.format, int) or not 1 <= saved.format <= FORMAT:
        raise ValueError(f"path must be a file of format 1 to {FORMAT}, got format {saved.format!r} in {name!r}")
    return saved


def of_kind(saved: Saved, *kinds: str) -> Saved:
    """``saved``, refused where another class wrote it."""
    if saved.kind not in kinds:
        allowed = " or ".join(kinds)
        form = f" of {saved.settings['name']}" if "name" in saved.settings else ""
        raise ValueError(f"path must be a saved {allowed}, got a {saved.kind}{form} in {saved.path!r}")
    return saved


def converted(saved: Saved, convert: Callable[[Saved], Saved]) -> Saved:
    """``saved`` in today's layout; an older file that cannot be converted is refused as damaged."""
    try:
        return convert(saved)
    except (ValueError, LookupError, TypeError) as error:
        raise ValueError(
            f"path must hold a whole state of format {saved.format}, got a damaged one in {saved.path!r} ({error})"
        ) from None


def take(saved: Saved, name: str) -> NDArray[Any]:
    """Take one array out of ``saved.arrays``."""
    if name not in saved.arrays:
        raise ValueError(f"path must hold the array {name}, which is missing in {saved.path!r}")
    return saved.arrays.pop(name)


def with_radius(saved: Saved, radius: Callable[[int, float], float] | None) -> Saved:
    """The saved settings with the function ``radius`` that a file cannot hold."""
    known = saved.settings.get("radius")
    if callable(radius) and known != _FUNCTION:
        raise ValueError(f"radius must be left out, the saved policy has radius {known!r}")
    if known != _FUNCTION:
        return saved
    if not callable(radius):
        raise ValueError(f"radius must be the function that the saved policy was built with, got {radius!r}")
    return saved._replace(settings={**saved.settings, "radius": radius})


def take_state(saved: Saved, state_type: Any, sizes: dict[str, int], prefix: str = "state") -> Any:
    """Take a state's arrays out of ``saved.arrays``, each checked against its field's layout.

    ``sizes`` gives the names of a layout their values, and receives those that it did not know.
    """
    parts = []
    for name, hint in get_type_hints(state_type, include_extras=True).items():
        whole = f"{prefix}.{name}"
        if hasattr(hint, "_fields"):
            parts.append(take_state(saved, hint, sizes, whole))
            continue
        parts.append(take_array(saved, whole, hint, sizes))
    return state_type(*parts)


def take_array(saved: Saved, name: str, hint: Any, sizes: dict[str, int]) -> NDArray[Any]:
    """Take one array out of ``saved.arrays``, with the type and shape that ``hint`` describes; contiguous."""
    array_type, layout, *records = get_args(hint)
    dtype = records[0] if records else np.dtype(get_args(get_args(array_type)[1])[0])
    array = take(saved, name)
    dims = layout.split()
    if array.ndim == len(dims):
        for dim, length in zip(dims, array.shape, strict=True):
            if dim.isidentifier():
                sizes.setdefault(dim, length)
        expected = tuple(_length(dim, sizes) for dim in dims)
        if array.dtype == dtype and array.shape == expected:
            return np.require(array, requirements="C")
        layout = str(expected)
    raise ValueError(
        f"path must hold the array {name} as {_named(dtype)} of shape {layout}, "
        f"got {_named(array.dtype)} of shape {array.shape} in {saved.path!r}"
    )


def _named(dtype: np.dtype[Any]) -> str:
    return f"records of {', '.join(dtype.names)}" if dtype.names else str(dtype)


def _length(dim: str, sizes: dict[str, int]) -> int:
    """The value of a sum like ``2d+n+1``."""
    total = 0
    for term in dim.split("+"):
        match = re.fullmatch(r"(\d*)([a-z]\w*)?", term)
        assert match and term, f"a layout's dimension must be a sum like 2d+n, got {dim!r}"
        factor, name = match.groups()
        total += int(factor or 1) * (sizes[name] if name else 1)
    return total


def within(saved: Saved, name: str, values: Any, least: int, most: int) -> None:
    """Refuse indices outside ``[least, most]``: compiled code does not check them."""
    array = np.asarray(values)
    if array.size and not (array.min() >= least and array.max() <= most):
        raise ValueError(
            f"path must hold {name} from {least} to {most}, got {array.min()} to {array.max()} in {saved.path!r}"
        )
