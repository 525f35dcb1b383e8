"""Peers, this library and the yardstick on the same arms and noise, side by side.

The yardstick, a plain NumPy OFUL, plays before and after every contender: a contender's rate is divided by the mean of
these two, so that a machine which slows down meanwhile slows both. All are held to one thread.
"""

import json
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sketchbandits import CSLB, validate
from sketchbandits.environments import LinearEnvironment, correlated_arms, uniform_parameter
from sketchbandits.kernels.threads import one_blas_thread
from suite.measure import CHUNK
from suite.peers import venvs
from suite.peers.drivers import protocol
from suite.yardstick import NumpyOFUL

DRIVERS = Path(protocol.__file__).parent
MOST_VARIANTS = 2  # that a driver plays, one after the other in one process
OWN = "sketchbandits"

Watch = Callable[[str, float], None]
Record = dict[str, Any]  # what `protocol.measure` gives
Row = dict[str, Any]
Contender = tuple[str, Callable[[], list[Record]]]  # its name, and how to let it play


@dataclass(frozen=True)
class Table:
    """Where one seed's game is played, and for how long."""

    seed: int
    env: LinearEnvironment
    problem: protocol.Problem
    seconds: float
    scratch: Path

    @property
    def patience(self) -> float:
        """How long a driver may take in all: far beyond what it is asked for, as it also loads and prepares."""
        return 3 * MOST_VARIANTS * self.seconds + 60


def compare(
    workload: str,
    *,
    n_arms: int,
    dim: int,
    sketch_size: int,
    rounds: int,
    seconds: float,
    seeds: Sequence[int],
    folder: Path,
    watch: Watch | None = None,
    environments: venvs.Venvs | None = None,
    drivers: Path = DRIVERS,
) -> dict[str, Any]:
    """Rounds per second of every peer, of CS-LB and of the yardstick: ``rounds`` or ``seconds`` each, once per seed.

    ``folder`` keeps the peers' environments (`venvs.Venvs`); all are made before anything is timed. ``watch`` is called
    with what comes next and the share of the plan that is done. The result can be written as JSON; it has a row
    for each variant and seed (`_row`), and one for each peer that could not be installed.
    """
    show = watch or (lambda what, share: None)
    pythons, rows = _installed(environments or venvs.Venvs(folder), show)
    with one_blas_thread(), tempfile.TemporaryDirectory() as scratch:
        for number, seed in enumerate(seeds):
            env, problem = _draw(n_arms, dim, rounds, seed)
            table = Table(seed, env, problem, seconds, Path(scratch))
            contenders = [*_own(table, sketch_size), *_peers(table, pythons, drivers)]

            def at_seed(what: str, share: float, seed: int = seed, number: int = number) -> None:
                show(f"{workload}, seed {seed}: {what}", (number + share) / len(seeds))

            rows += _in_turn(table, contenders, at_seed)
    show(workload, 1.0)
    plan = {"n_arms": n_arms, "dim": dim, "sketch_size": sketch_size, "rounds": rounds, "seconds": seconds}
    return {"workload": workload, **plan, "seeds": list(seeds), "rows": rows}


def _installed(made: venvs.Venvs, show: Watch) -> tuple[dict[str, Path], list[Row]]:
    """The Python of each peer, and a row for each that has none."""
    pythons: dict[str, Path] = {}
    missing: list[Row] = []
    for name in made.peers:
        show(f"installing {name}", 0.0)
        try:
            pythons[name] = made.python(name)
        except venvs.NotInstalledError as error:
            missing.append({"peer": name, "installed": False, "reason": str(error)})
    return pythons, missing


def _draw(n_arms: int, dim: int, rounds: int, seed: int) -> tuple[LinearEnvironment, protocol.Problem]:
    """The paper's arms, a parameter of norm 1 and the noise of all rounds."""
    arms_seed, parameter_seed, noise_seed = np.random.SeedSequence(seed).spawn(3)
    arms = correlated_arms(n_arms=n_arms, dim=dim, seed=arms_seed)
    env = LinearEnvironment(arms, uniform_parameter(dim, seed=parameter_seed))
    noise = env.draw_noise(np.random.default_rng(noise_seed), validate.whole("rounds", rounds))
    return env, protocol.Problem(env.arms, env.means, noise, seed)


def _in_turn(table: Table, contenders: Sequence[Contender], show: Watch) -> list[Row]:
    """Each contender between two runs of the yardstick."""
    rows: list[Row] = []
    yardsticks = [_yardstick(table)]
    for done, (name, play) in enumerate(contenders):
        show(name, done / len(contenders))
        records = play()
        yardsticks.append(_yardstick(table))
        rows += [_row(name, table.seed, record, yardsticks[-2:]) for record in records]
    rows.append(_yardstick_row(table.seed, yardsticks))
    _add_common_round(rows)
    return rows


def _yardstick(table: Table) -> Record:
    model = "ridge regression on arm features shared by all arms; upper confidence bounds"
    variant = protocol.Variant("NumPy OFUL", model, True, lambda problem: NumpyOFUL(problem.arms))
    return protocol.measure(variant, table.problem, table.seconds)


def _own(table: Table, sketch_size: int) -> list[Contender]:
    """CS-LB in the compiled loop, and called from Python as the peers are."""

    def make(problem: protocol.Problem) -> CSLB:
        return CSLB(problem.arms, sketch_size=sketch_size)

    model = "ridge regression on arm features shared by all arms, sketched by clusters; upper confidence bounds"
    called = protocol.Variant("CS-LB, select and update", model, True, make)
    loop = {"name": "CS-LB, compiled loop", "model": model, "comparable": True}
    return [
        (OWN, lambda: [loop | _compiled(table, make)]),
        (OWN, lambda: [protocol.measure(called, table.problem, table.seconds)]),
    ]


def _compiled(table: Table, make: Callable[[protocol.Problem], CSLB]) -> Record:
    """As `protocol.play`, whole stretches of rounds inside one kernel."""
    means, gaps, noise = table.env.means, table.env.gaps, table.problem.noise
    make(table.problem).play_rounds(means, gaps, noise[:1])  # compiled, or loaded, before the clock runs
    policy = make(table.problem)
    played, spent, regret, marks = 0, 0.0, 0.0, []
    while played < noise.size and spent < table.seconds:
        mark = 1 << played.bit_length()  # the next power of two
        stop = min(mark, played + CHUNK, noise.size)
        started = time.perf_counter()
        regret += policy.play_rounds(means, gaps, noise[played:stop])
        spent += time.perf_counter() - started
        played = stop
        if played == mark:
            marks.append((played, regret))
    marks += [(played, regret)] if not marks or marks[-1][0] < played else []
    record = {"rounds": played, "seconds": spent, "regret": regret, "regret_at": marks}
    return record | {"warmup_seconds": policy.warmup_seconds}


def _peers(table: Table, pythons: Mapping[str, Path], drivers: Path) -> list[Contender]:
    """Each peer's driver, in a process of its own."""
    problem = table.scratch / f"{table.seed}.npz"
    table.problem.save(problem)

    def contender(name: str, python: Path) -> Contender:
        return name, lambda: _driven(table, problem, name, [str(python), str(drivers / f"{name}_driver.py")])

    return [contender(name, python) for name, python in pythons.items()]


def _driven(table: Table, problem: Path, name: str, driver: list[str]) -> list[Record]:
    """What a driver wrote; a variant that it did not come to is one more record that says why."""
    output, log = (table.scratch / f"{table.seed}-{name}.{ending}" for ending in ("jsonl", "log"))
    command = [*driver, str(problem), str(output), "--seconds", str(table.seconds)]
    status = venvs.run(command, log, seconds=table.patience)
    records = [json.loads(line) for line in output.read_text().splitlines()] if output.exists() else []
    if status is None:
        return [*records, {"name": name, "failed": f"timed out after {table.patience:.0f} s"}]
    return records if status == 0 else [*records, {"name": name, "failed": venvs.last_line(log)}]


def _row(peer: str, seed: int, record: Record, yardsticks: Sequence[Record]) -> Row:
    """``times_yardstick``: rounds per second over those of the neighbouring yardstick runs.

    Of a comparable model also both regrets at ``shared_round``, the last at which both were kept. A variant that did
    not play has ``failed``, the reason, in place of all numbers.
    """
    row = {"peer": peer, "seed": seed, "installed": True, "variant": record["name"]} | record
    del row["name"]
    if "failed" in record:
        return row
    row["rounds_per_second"] = _rate(record)
    row["times_yardstick"] = _rate(record) / statistics.fmean(map(_rate, yardsticks))
    if record["comparable"]:
        own, other = dict(record["regret_at"]), dict(max(yardsticks, key=_rounds)["regret_at"])
        shared = max(own.keys() & other.keys())
        row |= {"shared_round": shared, "shared_regret": own[shared], "yardstick_regret": other[shared]}
    return row


def _yardstick_row(seed: int, yardsticks: Sequence[Record]) -> Row:
    """The longest of its runs, at the mean of their rates; all ``rates`` show how steady the machine was."""
    row = _row("yardstick", seed, max(yardsticks, key=_rounds), yardsticks)
    rates = [_rate(record) for record in yardsticks]
    return row | {"rates": rates, "rounds_per_second": statistics.fmean(rates), "times_yardstick": 1.0}


def _add_common_round(rows: Sequence[Row]) -> None:
    """The regret of all comparable rows at the last round that all of them kept: the slowest sets it."""
    comparable = [row for row in rows if row.get("comparable") and "failed" not in row]
    kept = [dict(row["regret_at"]) for row in comparable]
    common = max(set.intersection(*map(set, kept)))
    for row, regret_at in zip(comparable, kept, strict=True):
        row |= {"common_round": common, "regret_at_common_round": regret_at[common]}


def _rounds(record: Record) -> int:
    return int(record["rounds"])


def _rate(record: Record) -> float:
    return float(record["rounds"] / record["seconds"])
