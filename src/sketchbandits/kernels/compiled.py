"""The one decorator of every compiled function, and the stamp that keeps the on-disk cache honest.

Numba caches a kernel under a stamp of the file that defines it, and inlines what the kernel calls: after an edit of
``linalg.py`` a cached policy would go on with the old arithmetic. Here every kernel carries a stamp of *all* files in
the folders that hold kernels, so an edit of any recompiles what is used, and an unchanged package never compiles twice.
"""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import numba

Function = TypeVar("Function", bound=Callable[..., Any])


# Only what is below: reading the sources of the lab and the service would make every import slower.
STAMPED = ("confidence.py", "kernels/*.py", "partition/*.py", "policies/**/*.py", "sketches/*.py")


def _kernels_stamp() -> bytes:
    root, digest = Path(__file__).parents[1], hashlib.blake2b(digest_size=16)
    for pattern in STAMPED:
        for source in sorted(root.glob(pattern)):
            digest.update(source.read_bytes())
    return digest.digest()


_STAMP = _kernels_stamp()


def kernel(function: Function) -> Function:
    """Compile ``function`` with Numba: cached on disk, without the GIL, IEEE arithmetic (no ``fastmath``)."""
    return _compiled(function, forceinline=False)


def inlined_kernel(function: Function) -> Function:
    """`kernel` for a function that LLVM puts into its callers: the round of a loop, whose call would cost as much."""
    return _compiled(function, forceinline=True)


def _compiled(function: Function, *, forceinline: bool) -> Function:
    # Nobody passes a kernel as a function pointer: without that wrapper a kernel compiles in less time.
    options: dict[str, Any] = {"forceinline": forceinline, "no_cfunc_wrapper": True}
    options |= {"nogil": True, "error_model": "numpy"}
    try:
        dispatcher = numba.njit(cache=True, **options)(function)
    except RuntimeError:  # no folder for a cache can be written: every process compiles for itself
        return cast(Function, numba.njit(**options)(function))
    # Not a public attribute of Numba: where a future release renames it, the cache falls back to per-file stamps.
    cache_file = getattr(getattr(dispatcher, "_cache", None), "_cache_file", None)
    if cache_file is not None and hasattr(cache_file, "_source_stamp"):
        cache_file._source_stamp = _STAMP
        cache_file._load_index = _forgiving(cache_file._load_index)
    return cast(Function, dispatcher)


def _forgiving(load_index: Callable[[], Any]) -> Callable[[], Any]:
    """An index that names a state type which is gone (another version's, another program's) counts as empty."""

    def load() -> Any:
        try:
            return load_index()
        except (ImportError, AttributeError):
            return {}

    return load
