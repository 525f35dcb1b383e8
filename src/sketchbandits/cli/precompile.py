"""``sketchbandits precompile``: fills the cache of compiled kernels, for example while an image is built."""

import os
from pathlib import Path
from typing import Annotated

import typer

from sketchbandits.cli import terminal
from sketchbandits.cli.flags import bad_values_refused
from sketchbandits.policies.registry import POLICIES, parse_policies
from sketchbandits.precompile import cache_folders, precompile
from sketchbandits.progress import stages

VARIABLE = "NUMBA_CACHE_DIR"


def command(
    policies: Annotated[
        list[str] | None, typer.Argument(metavar="POLICY", help=f"Some of {', '.join(POLICIES)}; all if none is named.")
    ] = None,
) -> None:
    """Compile every kernel of policies and keep them in the cache: later processes start without compiling.

    The cache is the folder NUMBA_CACHE_DIR, or one next to the installed library. It holds for this version of the
    library and for processors like this one; elsewhere kernels are compiled again.
    """
    with bad_values_refused(policies="POLICY"):
        wanted = parse_policies(",".join(policies)) if policies else ()
        for policy in wanted:
            if policy.options:
                raise ValueError(f"policies must be names without options, got {str(policy)!r}")
    folder = _cache_folder()
    try:
        with stages() as watch:
            found = precompile([policy.name for policy in wanted], lambda what, share: watch("compiling", what, share))
    except KeyboardInterrupt:
        terminal.stop(terminal.INTERRUPTED, "interrupted: kernels compiled so far are kept")
    except OSError as error:  # such as a full disk
        terminal.stop(terminal.IO_ERROR, f"the cache of kernels in {str(folder)!r} could not be written: {error}")
    print(f"compiled {len(found.compiled):,} kernels, found {found.found:,} in the cache\n{folder}")


def _cache_folder() -> Path:
    """The folder that holds the cache; where none can be written, or not the wanted one, that ends the command."""
    wanted, folders = os.environ.get(VARIABLE, ""), cache_folders()
    if not folders:
        rule = f"{VARIABLE} must be a folder that can be written to, where the library's own cannot"
        terminal.stop(terminal.IO_ERROR, f"{rule}, got {wanted!r}: nothing that is compiled would be kept")
    folder = Path(os.path.commonpath(folders))
    if wanted and not folder.is_relative_to(os.path.abspath(wanted)):
        message = f"{VARIABLE} must be a folder that can be written to, got {wanted!r}"
        terminal.stop(terminal.IO_ERROR, f"{message}: kernels would be kept in {str(folder)!r} instead")
    return Path(wanted) if wanted else folder
