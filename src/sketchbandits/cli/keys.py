"""``sketchbandits keys``: make, list and revoke the keys of a service."""

import contextlib
import time
from collections.abc import Iterator
from typing import Annotated

import typer

from sketchbandits.cli import terminal
from sketchbandits.cli.flags import bad_values_refused, flag
from sketchbandits.cli.state import DEFAULT, STATE, state_folder
from sketchbandits.service.folder import KEYS
from sketchbandits.service.keys import KeyRing, KeysUnreadable

app = typer.Typer(no_args_is_help=True, help="Make, list and revoke the keys of a service.")


@app.command("create")
def create_key(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Who or what will use it.")],
    role: Annotated[str, flag("ROLE", "client: decide, reward, read; admin: everything.", "client")] = "client",
    state: Annotated[str, STATE] = DEFAULT,
) -> None:
    """Make a key and print it: it is not kept and cannot be shown again."""
    with _ring(state) as ring:
        print(ring.create(name, role))


@app.command("list")
def list_keys(state: Annotated[str, STATE] = DEFAULT) -> None:
    """List keys: id, role, when they were made, whether they are revoked, name."""
    with _ring(state) as ring:
        for key in ring.all():
            standing = "valid" if key.revoked is None else f"revoked {_day(key.revoked)}"
            print(f"{key.id}  {key.role:6}  {_day(key.created)}  {standing:18}  {key.name}")


@app.command("revoke")
def revoke_key(
    key_id: Annotated[str, typer.Argument(metavar="ID", help="The id that `keys list` shows.")],
    state: Annotated[str, STATE] = DEFAULT,
) -> None:
    """Refuse a key from now on, in a running service too."""
    with _ring(state) as ring:
        print(f"revoked {ring.revoke(key_id).id}")


@contextlib.contextmanager
def _ring(state: str) -> Iterator[KeyRing]:
    with bad_values_refused(id="ID"):
        try:
            yield KeyRing(state_folder(state) / KEYS)
        except (KeysUnreadable, OSError) as error:
            terminal.stop(terminal.IO_ERROR, str(error))


def _day(seconds: float) -> str:
    return time.strftime("%Y-%m-%d", time.localtime(seconds))
