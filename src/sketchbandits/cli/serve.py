"""``sketchbandits serve``: decisions over HTTP. Its packages are an extra, so they are loaded when it runs."""

import contextlib
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from sketchbandits import validate
from sketchbandits.arms_file import read_arms
from sketchbandits.cli import terminal
from sketchbandits.cli.flags import FEATURES, ID_COLUMN, bad_values_refused, features_of, flag, number, whole
from sketchbandits.cli.state import DEFAULT, STATE, record_progress, state_folder
from sketchbandits.policies.registry import PolicySpec
from sketchbandits.progress import stages
from sketchbandits.service.bandits.config import BanditConfig
from sketchbandits.service.log import LogDamaged, LogInUse, Uncertain

LOOPBACK = "127.0.0.1"


def command(
    arms: Annotated[str | None, flag("FILE", "Arms of a new bandit, one per row: .npy, .csv or .parquet.")] = None,
    id_column: Annotated[str | None, ID_COLUMN] = None,
    features: Annotated[str | None, FEATURES] = None,
    bandit: Annotated[str, flag("NAME", "The new bandit's name.", "default")] = "default",
    policy: Annotated[str, flag("NAME:OPTION=VALUE", "Its policy.", "multiscale")] = "multiscale",
    exploration: Annotated[str, flag("X", "The share of decisions drawn at random.", 0)] = "0",
    deadline: Annotated[str | None, flag("SECONDS", "How long a decision waits for its reward.", "for ever")] = None,
    default_reward: Annotated[str, flag("X", "The reward that is recorded at the deadline.", 0)] = "0",
    pending: Annotated[
        str | None, flag("N", "Outstanding decisions passed to the policy.", "1,000 if it gains by them, else 0")
    ] = None,
    seed: Annotated[str, flag("N", "The seed of the policy and of exploration.", 0)] = "0",
    state: Annotated[str, STATE] = DEFAULT,
    database: Annotated[str | None, flag("URL", "postgresql://... instead of SQLite in the folder.")] = None,
    host: Annotated[str, flag("HOST", "The address; others than loopback need keys.", LOOPBACK)] = LOOPBACK,
    port: Annotated[str, flag("N", "The port; 0 takes a free one.", 8000)] = "8000",
    queue: Annotated[str, flag("N", "Decisions and rewards of a bandit that may wait before 503.", "4,096")] = "4096",
    snapshot_every: Annotated[str, flag("N", "Records between snapshots.", "100,000")] = "100000",
    reward_range: Annotated[str, flag("LOW:HIGH", "The rewards that are accepted; none for any.", "0:1")] = "0:1",
    remove_missing_arms: Annotated[
        bool, typer.Option("--remove-missing-arms", help="Remove arms that FILE no longer lists.")
    ] = False,
    require_keys: Annotated[bool, typer.Option("--require-keys", help="Also while no key exists.")] = False,
    access_log: Annotated[str | None, flag("FILE", "One line of JSON per request.")] = None,
    connections: Annotated[str | None, flag("N", "Connections at a time.", "what the system allows, to 10,000")] = None,
    connections_per_address: Annotated[
        str | None, flag("N", "Connections of one address at a time.", "three quarters of all")
    ] = None,
    memory: Annotated[str, flag("MIB", "The memory that one bandit's policy may take.", "1,024")] = "1024",
    scrub_rate: Annotated[
        str, flag("N", "Records of the log that are verified again per second; 0 for none.", 500)
    ] = "500",
) -> None:
    """Serve decisions over HTTP: durable, crash-safe, with a dashboard at /.

    The bandit is created at the first start and continues from the state folder at every later start.
    """
    with _service_packages():
        from sketchbandits.service.bandits.requests import CreateBandit
        from sketchbandits.service.http import server
        from sketchbandits.service.service import Settings
    folder = state_folder(state)
    rules = {"exploration": number(exploration), "default_reward": number(default_reward), "seed": whole(seed)}
    rules["deadline"] = None if deadline is None else number(deadline)
    rules["pending"] = None if pending is None else whole(pending)
    rules["reward_range"] = _range(reward_range)
    with bad_values_refused(command, policies="--policy"):
        spec = PolicySpec.parse(policy)
        config = BanditConfig(policy=spec.name, options=dict(spec.options), **rules)
        wanted: tuple[CreateBandit, ...] = ()
        if arms is not None:
            with terminal.unreadable_files_refused():
                table = read_arms(arms, id_column=id_column, features=features_of(features))
            wanted = (CreateBandit(bandit, config, table.ids, table.arms.astype("f8")),)
        settings = Settings(
            folder,
            database,
            open=server.is_loopback(host),
            hosts=server.allowed_hosts(host) if server.is_loopback(host) else None,
            require_keys=require_keys,
            waiting=validate.whole("queue", whole(queue)),
            snapshot_every=validate.whole("snapshot_every", whole(snapshot_every)),
            connections=_least_one("connections", connections),
            connections_per_address=_least_one("connections_per_address", connections_per_address),
            access_log=None if access_log is None else Path(access_log),
            memory=validate.whole("memory", whole(memory)) << 20,
            scrub_rate=validate.number("scrub_rate", number(scrub_rate), least=0.0),
            remove_missing_arms=remove_missing_arms,
            bandits=wanted,
        )
        server.check_host(host, folder)
        number_of_port = validate.whole("port", whole(port), least=0, most=65_535)
    _serve(settings, host, number_of_port)


def _range(text: str) -> Any:
    """Two numbers, or the text itself for a check to refuse."""
    if text == "none":
        return None
    low, found, high = text.partition(":")
    return (number(low), number(high)) if found else (text, text)


def _least_one(name: str, text: str | None) -> int | None:
    return None if text is None else validate.whole(name, whole(text))


def _serve(settings: Any, host: str, port: int) -> None:
    from sketchbandits.service.http import server

    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.WARNING)
    try:
        bound = server.listen(host, port)
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

    with contextlib.ExitStack() as starting:
        starting.enter_context(bad_values_refused(command))  # the log is checked against the flags until `ready`
        watch = starting.enter_context(stages())
        try:
            server.serve(settings, bound, ready, record_progress(watch, "recovering"))
        except (LogDamaged, LogInUse, Uncertain, OSError) as error:
            terminal.stop(terminal.IO_ERROR, str(error))


@contextlib.contextmanager
def _service_packages() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        terminal.stop(terminal.BAD_INPUT, f"this needs {error.name}: pip install 'sketchbandits[service]'")
