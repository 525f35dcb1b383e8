"""Other bandit libraries on the same games: rounds per second and regret, compared with the yardstick's.

Only models that see the features of arms, as the game has them, have a regret to compare. Peers are installed by
`suite.peers`, each into an environment of its own; one that cannot be is listed with the reason.
"""

import statistics
from collections.abc import Sequence
from typing import Any, NamedTuple

from suite import figures
from suite.peers.compare import compare
from suite.workload import Measured, Point, Session, Summary, Workload
from suite.workloads.policies import in_thousands

Row = dict[str, Any]


class Sizes(NamedTuple):
    """Arms, dimension and sketch size of each setting; the most rounds and seconds of a run; runs."""

    settings: tuple[tuple[int, int, int], ...]
    rounds: int
    seconds: float
    runs: int


FULL = Sizes(((60, 50, 5), (1000, 200, 10)), 200_000, 3.0, 3)
QUICK = Sizes(((60, 50, 5), (1000, 200, 10)), 2_000, 0.5, 1)
_PLAYED = 25  # runs of peers and of yardsticks between them, about


def points(sizes: Sizes) -> list[Point]:
    """One point per setting; the first may have to install every peer."""
    found = []
    for i, (n, d, l) in enumerate(sizes.settings):
        shape = {"n_arms": n, "dim": d, "sketch_size": l, "rounds": sizes.rounds, "seconds": sizes.seconds}
        expected = _PLAYED * sizes.runs * (sizes.seconds + 0.5) + (120 if i == 0 else 0)
        found.append(Point(f"{n:,} arms", {**shape, "runs": sizes.runs}, expected))
    return found


def measure(shape: dict[str, Any], session: Session) -> dict[str, Any]:
    """What `compare` gives."""
    options = {name: value for name, value in shape.items() if name != "runs"}
    seeds = [1000 * session.seed + run for run in range(shape["runs"])]
    name = f"N={shape['n_arms']}, d={shape['dim']}"
    return compare(name, **options, seeds=seeds, folder=session.folder, watch=session.show)


def summarise(measured: Sequence[Measured]) -> Summary:
    """One line per setting and variant, the fastest first; then those that did not play."""
    facts, missing, models = [], {}, {}
    for shape, samples in measured:
        variants: dict[tuple[str, str], list[Row]] = {}
        for row in samples["rows"]:
            if row["installed"] and "failed" not in row:
                variants.setdefault((row["peer"], _short(row)), []).append(row)
                models[f"{row['peer']} {_short(row)}"] = row["model"]
            else:
                missing[f"{row['peer']} {_short(row)}".strip()] = row.get("reason") or row["failed"]
        found = [_fact(shape, *names, rows) for names, rows in variants.items()]
        facts += sorted(found, key=lambda fact: -statistics.median(fact["rounds_per_second"]))
    notes = ["Ratio: rounds per second over the yardstick's. Regret: over the yardstick's, after as many rounds."]
    notes += [f"{name}: {model}." for name, model in models.items()]
    notes += [f"{name}: not measured, {reason}" for name, reason in missing.items()]
    headings = ("library", "variant", "N", "d", "rounds/s", "ratio", "regret", "after")
    rows = [_row(fact) for fact in facts]
    return Summary(headings, rows, notes, {"peers": facts, "missing": missing}, left=2, group=2)


def _short(row: Row) -> str:
    """A variant's name without that of its library."""
    name, peer = str(row.get("variant", "")), str(row["peer"])
    return name[len(peer) :].strip() if name.lower().startswith(peer) else name


def _fact(shape: dict[str, Any], peer: str, variant: str, rows: Sequence[Row]) -> dict[str, Any]:
    fact: dict[str, Any] = {"n_arms": shape["n_arms"], "dim": shape["dim"], "peer": peer, "variant": variant}
    fact |= {name: [row[name] for row in rows] for name in ("rounds_per_second", "times_yardstick")}
    fact |= {"model": rows[0]["model"], "comparable": rows[0]["comparable"], "regret": None, "after": None}
    yardstick = sum(row.get("yardstick_regret", 0.0) for row in rows)
    if rows[0]["comparable"] and yardstick > 0.0:
        fact |= {"regret": sum(row["shared_regret"] for row in rows) / yardstick}
        fact |= {"after": min(row["shared_round"] for row in rows)}
    return fact


def _row(fact: dict[str, Any]) -> list[str]:
    place = [fact["peer"], fact["variant"], f"{fact['n_arms']:,}", str(fact["dim"])]
    speed = in_thousands(statistics.median(fact["rounds_per_second"]))
    ratio = f"{statistics.median(fact['times_yardstick']):.3g}"
    regret = ["-", "-"] if fact["regret"] is None else [f"{fact['regret']:.2f}", f"{fact['after']:,}"]
    return [*place, speed, ratio, *regret]


PEERS = Workload("peers", "Other libraries", FULL, QUICK, points, measure, summarise, figures.speed_of_peers)
