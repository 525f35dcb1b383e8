"""``sketchbandits keys``: make, list and revoke the keys of a service."""

import contextlib
import json
import os
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from sketchbandits.cli import terminal
from sketchbandits.cli.flags import bad_values_refused, flag, number
from sketchbandits.cli.state import DEFAULT, STATE, state_folder
from sketchbandits.service.bandits.config import checked_name
from sketchbandits.service.folder import KEYS, LOG_FILE
from sketchbandits.service.keys import Key, KeyRing, KeysUnreadable
from sketchbandits.service.log import LogDamaged, LogInUse, NotStored, Uncertain, open_log
from sketchbandits.service.log.events import Event, Kind

app = typer.Typer(no_args_is_help=True, help="Make, list and revoke the keys of a service.")
_INDENT = " " * 14  # under the role


@app.command("create")
def create_key(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Who or what will use it.")],
    role: Annotated[str, flag("ROLE", "client: decide, reward, read; admin: everything.", "client")] = "client",
    bandit: Annotated[
        list[str] | None, flag("NAME", "A bandit that it may use; may be given several times.", "all bandits")
    ] = None,
    rate: Annotated[str | None, flag("X", "Requests per second that it may send.", "unlimited")] = None,
    state: Annotated[str, STATE] = DEFAULT,
) -> None:
    """Make a key and print it: it is not kept and cannot be shown again.

    From the first key on, every request needs one. The log records this, so a lost file of keys opens nothing.
    """
    with _ring(state) as ring:
        only = [checked_name(one) for one in bandit] if bandit else None
        first = not ring.all()
        print(ring.create(name, role, bandits=only, rate=None if rate is None else number(rate)), flush=True)
        if first:
            _record_that_keys_are_required(ring.path.with_name(LOG_FILE))


def _record_that_keys_are_required(path: Path) -> None:
    """Append that to the log; without a log, or where a service has it open, the service does so itself."""
    if not path.exists():
        return
    before = os.umask(0o077)  # as the service does: files are readable for their owner alone
    try:
        with contextlib.closing(open_log(str(path))) as log:
            for cut in log.cuts:
                print(f"log cut back at record {cut.first}: {cut.reason}; kept in {cut.kept_in}", file=sys.stderr)
            log.append([Event(Kind.KEYS_REQUIRED, None, json.dumps({"t": time.time(), "by": None}).encode())])
    except LogInUse:
        return
    except (LogDamaged, NotStored, Uncertain, OSError, ValueError) as error:
        print(
            f"the key is made; that keys are required is recorded at the next start, since now {error}", file=sys.stderr
        )
    finally:
        os.umask(before)


@app.command("list")
def list_keys(state: Annotated[str, STATE] = DEFAULT) -> None:
    """List keys: id, role, when they were made, whether they are revoked, name; below it, to what a key is limited."""
    with _ring(state) as ring:
        for key in ring.all():
            standing = "valid" if key.revoked is None else f"revoked {_day(key.revoked)}"
            line = f"{key.id}  {key.role:6}  {_day(key.created)}  {standing:18}  "
            print(textwrap.fill(line + key.name, terminal.WIDTH, subsequent_indent=" " * len(line)))
            if limits := _limits(key):
                print(textwrap.fill(limits, terminal.WIDTH, initial_indent=_INDENT, subsequent_indent=_INDENT))


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
    with bad_values_refused(id="ID", name="NAME"):
        try:
            yield KeyRing(state_folder(state) / KEYS)
        except (KeysUnreadable, OSError) as error:
            terminal.stop(terminal.IO_ERROR, str(error))


def _limits(key: Key) -> str:
    """To what a key is limited, in words; nothing where it is not."""
    rate = [] if key.rate is None else [f"{key.rate:g} requests per second"]
    bandits = [] if key.bandits is None else [f"only {', '.join(key.bandits)}"]
    return "; ".join(rate + bandits)


def _day(seconds: float) -> str:
    return time.strftime("%Y-%m-%d", time.localtime(seconds))
