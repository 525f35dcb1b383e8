"""The tables of `benchmarks/practice.py`, in Markdown."""

from collections.abc import Iterable, Mapping, Sequence

from suite.practice.contenders import CONTENDERS, HYBRID, KNOWN
from suite.practice.peers import VARIANTS
from suite.practice.summary import BEST, QUANTITIES, TOLD, Results, estimate, mean, rounded
from suite.practice.targets import targets

HEADINGS = ("world", "policy", "setting", "seeds", "regret", "second half", "mean reward", "µs per round", "note")


def page(results: Results, worlds: Sequence[str], about: Iterable[str]) -> str:
    """Everything: what was played, the targets, and a table with all policies."""
    intro = (
        "Means over seeds, ± half the width of a 95 % interval (Student's t, over seeds). "
        f'"{BEST.capitalize()}": of five values the one with the least mean regret over these very seeds. '
        f'"{TOLD}": the scale is the noise R of the world.\n'
    )
    parts = [
        "# Benchmark of decisions for users\n",
        "\n".join(f"- {line}" for line in about) + "\n",
        "## Targets\n",
        targets_table(results),
        "## Every policy\n",
        intro,
        table(results, worlds),
    ]
    if results.absent:
        parts += ["## Not played\n", _markdown(("policy", "reason"), results.absent.items())]
    return "\n".join(parts)


def targets_table(results: Results) -> str:
    """The goals, what was found, and whether they are met."""
    rows = []
    for target in targets(results):
        goal = f"{'≥' if target.at_least else '≤'} {target.goal:g}"
        rows.append((target.what, goal, target.found.shown() if target.found else "-", target.met))
    return _markdown(("target", "goal", "found", "met"), rows)


def table(results: Results, worlds: Sequence[str]) -> str:
    """World by world; rivals with a scale have a row for the best value, and one for the noise if that is another."""
    rows: list[tuple[str, ...]] = []
    for world in worlds:
        for policy in [*CONTENDERS, *(variant.label for variant in VARIANTS)]:
            rows += _rows(results, world, policy)
    return _markdown(HEADINGS, rows)


def _rows(results: Results, world: str, policy: str) -> list[tuple[str, ...]]:
    scales, note = results.scales(world, policy), results.notes.get((world, policy), "")
    if not scales:
        return [(world, policy, *["-"] * 6, note)] if note else []
    best = results.best_scale(world, policy)
    one = CONTENDERS.get(policy)
    settings = {best: ""}
    if best is not None and one is not None:
        settings = {best: f"{best:g}{' R' * (one.unit == 'R')}, {BEST}"}
        if one.unit == "R" and KNOWN in scales:
            settings[KNOWN] = settings[KNOWN] + f", {TOLD}" if best == KNOWN else TOLD
    named = f"**{policy}**" if one is not None and one.family == HYBRID else policy
    return [(world, named, how, *_cells(results, world, policy, scale), note) for scale, how in settings.items()]


def _cells(results: Results, world: str, policy: str, scale: float | None) -> Iterable[str]:
    yield str(len(results.seeds(world, policy, scale)))
    for quantity in QUANTITIES:
        found = estimate(mean, results.column(world, policy, scale, quantity))
        yield rounded(found.value, 3) if quantity == "microseconds" else found.shown()


def times(expected: Mapping[tuple[str, str], float], runs: Mapping[tuple[str, str], int]) -> str:
    """Seconds of one run, and how many are planned, for each world and policy."""
    worlds, policies = ([*dict.fromkeys(pair[i] for pair in expected)] for i in (0, 1))
    rows = []
    for policy in policies:
        pairs = [(world, policy) for world in worlds]
        cells = [f"{rounded(expected[pair], 2)} x {runs.get(pair, 0)}" if pair in expected else "-" for pair in pairs]
        rows.append((policy, *cells, f"{sum(expected.get(pair, 0.0) * runs.get(pair, 0) for pair in pairs):,.0f}"))
    return _markdown(("seconds x runs", *worlds, "in all"), rows, left=1)


def _markdown(headings: Sequence[str], rows: Iterable[Sequence[str]], left: int = 3) -> str:
    numbers = [i >= left and heading not in ("note", "met") for i, heading in enumerate(headings)]
    lines = [headings, ["---:" if number else "---" for number in numbers], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"
