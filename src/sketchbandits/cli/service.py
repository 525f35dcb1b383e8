"""The command line of the decision service: ``serve``, ``keys``, ``log`` and ``replay``.

Only ``serve`` needs the service's extra packages, so they are loaded when it runs.
"""

import contextlib
import logging
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from sketchbandits import validate
from sketchbandits.arms_file import read_arms
from sketchbandits.cli import terminal
from sketchbandits.cli.flags import bad_values_refused, flag, number, whole, words
from sketchbandits.offline import estimators as offline
from sketchbandits.policies.registry import PolicySpec
from sketchbandits.service.bandits.config import BanditConfig
from sketchbandits.service.folder import KEYS, LOG_FILE, SNAPSHOTS, set_snapshots_aside
from sketchbandits.service.keys import KeyRing, KeysUnreadable
from sketchbandits.service.log import LogDamaged, LogInUse, Uncertain, cut_back, open_log
from sketchbandits.service.log.decisions import read_bandit
from sketchbandits.service.log.progress import with_progress

STATE, LOOPBACK = "sketchbandits-state", "127.0.0.1"

keys_app = typer.Typer(no_args_is_help=True, help="Make, list and revoke the keys of a service.")


_STATE = flag("DIR", "The folder of all state.", STATE)


def serve_command(
    arms: Annotated[str | None, flag("FILE", "Arms of a new bandit, one a row: .npy, .csv or .parquet.")] = None,
    id_column: Annotated[str | None, flag("NAME", "The column of the file that names the arms.")] = None,
    features: Annotated[str | None, flag("NAME,NAME", "The columns that are features.", "all others")] = None,
    bandit: Annotated[str, flag("NAME", "The new bandit's name.", "default")] = "default",
    policy: Annotated[str, flag("NAME:OPTION=VALUE", "Its policy.", "multiscale")] = "multiscale",
    exploration: Annotated[str, flag("X", "The share of decisions drawn at random.", 0)] = "0",
    deadline: Annotated[str | None, flag("SECONDS", "How long a decision waits for its reward.", "for ever")] = None,
    default_reward: Annotated[str, flag("X", "The reward that is recorded at the deadline.", 0)] = "0",
    pending: Annotated[
        str | None, flag("N", "Outstanding decisions passed to the policy.", "1,000 if it gains by them, else 0")
    ] = None,
    seed: Annotated[str, flag("N", "The seed of the policy and of exploration.", 0)] = "0",
    state: Annotated[str, _STATE] = STATE,
    database: Annotated[str | None, flag("URL", "postgresql://... instead of SQLite in the folder.")] = None,
    host: Annotated[str, flag("HOST", "The address; others than loopback need keys.", LOOPBACK)] = LOOPBACK,
    port: Annotated[str, flag("N", "The port; 0 takes a free one.", 8000)] = "8000",
    queue: Annotated[str, flag("N", "Decisions and rewards that may wait before 503.", "4,096")] = "4096",
    snapshot_every: Annotated[str, flag("N", "Records between snapshots.", "100,000")] = "100000",
) -> None:
    """Serve decisions over HTTP: durable, crash-safe, with a dashboard at /.

    The bandit is created at the first start and goes on from the state folder at every later one.
    """
    with _extra("service"):
        from sketchbandits.service.bandits.requests import CreateBandit
        from sketchbandits.service.http import server as serve
        from sketchbandits.service.service import Settings
    folder = _state_folder(state)
    rules = {"exploration": number(exploration), "default_reward": number(default_reward), "seed": whole(seed)}
    rules["deadline"] = None if deadline is None else number(deadline)
    rules["pending"] = None if pending is None else whole(pending)
    with bad_values_refused():
        spec = PolicySpec.parse(policy)
        config = BanditConfig(policy=spec.name, options=dict(spec.options), **rules)
        wanted: tuple[CreateBandit, ...] = ()
        if arms is not None:
            with terminal.unreadable_files_refused():
                table = read_arms(arms, id_column=id_column, features=None if features is None else words(features))
            wanted = (CreateBandit(bandit, config, table.ids, table.arms.astype("f8")),)
        settings = Settings(
            folder,
            database,
            open=serve.is_loopback(host),
            hosts=serve.allowed_hosts(host) if serve.is_loopback(host) else None,
            waiting=validate.whole("queue", whole(queue)),
            snapshot_every=validate.whole("snapshot_every", whole(snapshot_every)),
            bandits=wanted,
        )
        serve.check_host(host, folder)
        number_of_port = validate.whole("port", whole(port), least=0, most=65_535)
    _serve(settings, host, number_of_port)


def _serve(settings: Any, host: str, port: int) -> None:
    from sketchbandits.service.http import server as serve

    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.WARNING)
    try:
        bound = serve.listen(host, port)
    except OSError as error:
        terminal.stop(terminal.IO_ERROR, f"--host and --port must be free to bind, got {host}:{port}: {error}")
    address = f"http://{f'[{host}]' if ':' in host else host}:{bound.getsockname()[1]}"

    def ready(service: Any) -> None:
        starting.close()
        found, count = service.recovered, len(service.ledger.bandits)
        if found.snapshot.seq or found.replayed:
            brought = f"snapshot {found.snapshot.seq:,} and {found.replayed:,} records after it"
            print(f"recovered from {brought} in {found.seconds:.2f} s", file=sys.stderr)
        print(f"serving {count} bandit{'' if count == 1 else 's'} at {address}", file=sys.stderr, flush=True)

    with contextlib.ExitStack() as starting, bad_values_refused():
        watch = starting.enter_context(terminal.progress())
        try:
            serve.serve(settings, bound, ready, _told(watch, "recovering"))
        except (LogDamaged, LogInUse, Uncertain, OSError) as error:
            terminal.stop(terminal.IO_ERROR, str(error))


@keys_app.command("create")
def create_key(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Who or what will use it.")],
    role: Annotated[str, flag("ROLE", "client: decide, reward, read; admin: everything.", "client")] = "client",
    state: Annotated[str, _STATE] = STATE,
) -> None:
    """Make a key and print it: it is not kept and cannot be shown again."""
    with _ring(state) as ring:
        print(ring.create(name, role))


@keys_app.command("list")
def list_keys(state: Annotated[str, _STATE] = STATE) -> None:
    """List keys: id, role, when they were made, whether they are revoked, name."""
    with _ring(state) as ring:
        for key in ring.all():
            standing = "valid" if key.revoked is None else f"revoked {_day(key.revoked)}"
            print(f"{key.id}  {key.role:6}  {_day(key.created)}  {standing:18}  {key.name}")


@keys_app.command("revoke")
def revoke_key(
    key_id: Annotated[str, typer.Argument(metavar="ID", help="The id that `keys list` shows.")],
    state: Annotated[str, _STATE] = STATE,
) -> None:
    """Refuse a key from now on, in a running service too."""
    with _ring(state) as ring:
        print(f"revoked {ring.revoke(key_id).id}")


def log_command(
    source: Annotated[str, typer.Argument(metavar="STATE", help="The folder of a service, or postgresql://...")],
    cut: Annotated[str | None, flag("N", "Cut the log back: keep aside record N and all after it.")] = None,
    state: Annotated[str | None, flag("DIR", "With postgresql://...: the folder of all other state.", STATE)] = None,
) -> None:
    """Check every record of a log; with --cut, give up what follows a damage."""
    database = _database(source)
    snapshots = _snapshots(source, database, state)
    if cut is None:
        with _records(database) as records:
            count = sum(1 for _ in records)
        print(f"{count:,} records, all good")
        return
    with bad_values_refused():
        try:
            done = cut_back(database, validate.whole("cut", whole(cut)))
            aside = set_snapshots_aside(snapshots, done.first)
        except (LogDamaged, LogInUse, OSError) as error:
            terminal.stop(terminal.IO_ERROR, str(error))
    print(f"cut back at record {done.first}: {done.records} records kept in {done.kept_in}")
    print(f"{aside} snapshot{'' if aside == 1 else 's'} set aside in {snapshots}")


def _snapshots(source: str, database: str, state: str | None) -> Path:
    """Where the snapshots of a log are: in the folder of a log file, for a database in the state folder of `serve`."""
    if "://" in source:
        return Path(state or STATE) / SNAPSHOTS
    if state is not None:
        terminal.stop(terminal.BAD_INPUT, f"--state must be left out unless STATE is postgresql://..., got {state!r}")
    return Path(database).parent / SNAPSHOTS


def replay_command(
    state: Annotated[str, typer.Argument(metavar="STATE", help="The folder of a service, or postgresql://...")],
    policy: Annotated[str, flag("NAME:OPTION=VALUE", "The policy to judge.", "multiscale")] = "multiscale",
    bandit: Annotated[str, flag("NAME", "Whose decisions.", "default")] = "default",
    estimator: Annotated[str, flag("replay|ips", "As it learns, or frozen halfway.", "replay")] = "replay",
    seed: Annotated[str, flag("N", "The same seed gives the same estimate.", 0)] = "0",
) -> None:
    """Judge another policy by a log: what it would have earned.

    Only a log with exploration permits it: see `serve --exploration`.
    """
    database = _database(state)
    with bad_values_refused():
        validate.option("estimator", estimator, ("replay", "ips"))
        spec = PolicySpec.parse(policy)
        config = BanditConfig(policy=spec.name, options=dict(spec.options), seed=whole(seed))
        with _records(database) as records:
            found = read_bandit(records, bandit)
            build = partial(config.build, found.features)
            if estimator == "replay":
                result = offline.replay(found.decisions, build, name=str(spec), seed=config.seed)
            else:
                result = offline.ips(found.decisions, build, name=str(spec))
    print(result.text(), end="")


@contextlib.contextmanager
def _records(database: str) -> Iterator[Any]:
    """The verified records of a log, which is only read; whatever goes wrong is one line."""
    try:
        with (
            bad_values_refused(),
            terminal.progress() as watch,
            contextlib.closing(open_log(database, read_only=True)) as log,
        ):
            yield with_progress(log.read(), log.last.seq, _told(watch, "reading"))
    except (LogDamaged, OSError) as error:
        terminal.stop(terminal.IO_ERROR, str(error))
    except KeyboardInterrupt:
        terminal.stop(terminal.INTERRUPTED, "interrupted: nothing was changed")


def _told(watch: Any, stage: str) -> Any:
    """Progress through the records of a log."""
    return lambda done, total: watch(stage, f"record {done:,} of {total:,}", done / max(total, 1))


def _database(state: str) -> str:
    if "://" in state:
        return state
    path = Path(state) / LOG_FILE if Path(state).is_dir() else Path(state)
    if not path.exists():
        terminal.stop(terminal.IO_ERROR, f"STATE must be the folder or log of a service, got {state!r}")
    return str(path)


@contextlib.contextmanager
def _ring(state: str) -> Iterator[Any]:
    with bad_values_refused():
        try:
            yield KeyRing(_state_folder(state) / KEYS)
        except (KeysUnreadable, OSError) as error:
            terminal.stop(terminal.IO_ERROR, str(error))


@contextlib.contextmanager
def _extra(name: str) -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        terminal.stop(terminal.BAD_INPUT, f"this needs {error.name}: pip install 'sketchbandits[{name}]'")


def _state_folder(state: str) -> Path:
    """The folder, there and for its owner alone."""
    folder = Path(state)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        terminal.stop(terminal.IO_ERROR, f"--state must be a folder that can be written to, got {state!r}: {error}")
    return folder


def _day(seconds: float) -> str:
    return time.strftime("%Y-%m-%d", time.localtime(seconds))
