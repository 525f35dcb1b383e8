"""The report of `Advice`: facts, warnings, two tables and the recommendation in 80 columns; and all of it as JSON."""

import io
import json
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sketchbandits.lab.advice.clusters import ClusterRow
from sketchbandits.lab.advice.look import NEAR_COPY, Look
from sketchbandits.lab.advice.predictions import ESTIMATED, EXPECTED, Prediction
from sketchbandits.lab.advice.recommend import best_of

if TYPE_CHECKING:
    from sketchbandits.lab.advice.advise import Advice

WIDTH = 80
SHOWN_VALUES = 5
PNG_DPI = 160


def text(advice: "Advice") -> str:
    """The whole report."""
    parts = [_facts(advice.look), _bullets(advice.warnings, "! "), _clusters(advice), _predictions(advice)]
    parts += [textwrap.wrap(advice.sentence, WIDTH, break_on_hyphens=False), _bullets(advice.notes, "- ")]
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def advice_files(advice: "Advice") -> dict[str, bytes]:
    """``advice.txt``, ``advice.json`` and ``advice.png``."""
    image = io.BytesIO()
    advice.plot().savefig(image, format="png", dpi=PNG_DPI)
    numbers = json.dumps(advice.as_json(), indent=2, allow_nan=False)
    return {"advice.txt": advice.text().encode(), "advice.json": numbers.encode(), "advice.png": image.getvalue()}


def best_sizes(predictions: Sequence[Prediction]) -> list[Prediction]:
    """Every policy once, at its best sketch size; those without a bound, at their cheapest, come last."""
    groups: dict[str, list[Prediction]] = {}
    for found in predictions:
        groups.setdefault(found.name, []).append(found)
    bounded = [best_of(group) for group in groups.values() if group[0].bound is not None]
    others = [min(group, key=lambda found: found.microseconds) for group in groups.values() if group[0].bound is None]
    return sorted(bounded, key=lambda found: found.bound or 0.0) + others


def notes(advice: "Advice") -> list[str]:
    """What was sampled, how bounds and times are meant."""
    look, machine, table = advice.look, advice.machine, advice.clusters
    said = []
    if look.spectrum.rows < look.n_arms:
        said.append(f"The spectrum is that of {look.spectrum.rows:,} arms, drawn at random.")
    sampled = [row.sampled for row in table if row.sampled]
    if sampled:
        size = f"{max(sampled):,}" if min(sampled) == max(sampled) else f"{min(sampled):,} to {max(sampled):,}"
        said.append(
            f"Clusters marked ~ are estimates, mostly too high, from {size} arms drawn at random and half of them."
        )
    said.append(
        "Bounds hold with probability 1 - delta. mean: on the mean regret; est.: an estimate, as though a sketch "
        "dropped the tail of the arms' spectrum, all played equally often; vac.: vacuous, no less than 2 S L T = "
        f"{advice.case.trivial:,.0f}; over: dearer than the budget; ops: operations a round."
    )
    rates = [1e3 * rate for _, rate in machine.rates]
    said.append(
        f"Times are predictions for this machine: {machine.call_us:.2g} us for select and update from Python, and "
        f"{rates[0]:.2g} to {rates[-1]:.2g} ns an operation, measured now; expect them within a factor of two."
    )
    return said


def as_json(advice: "Advice") -> dict[str, Any]:
    """Plain numbers and texts; labels of single arms are left out."""
    look, found = advice.look, advice.look.spectrum
    return {
        "arms": {
            "n_arms": look.n_arms,
            "dim": look.dim,
            "dtype": look.dtype,
            "rank": found.rank,
            "dims_for_90_percent": found.dims_for(0.9),
            "dims_for_99_percent": found.dims_for(0.99),
            "singular_values": found.values.tolist(),
            "spectrum_rows": found.rows,
            "rays": look.n_rays,
            "distinct": len(np.unique(look.copies)),
            "distinct_up_to_rounding": len(np.unique(look.near_copies)),
            "zero": int((look.norms == 0.0).sum()),
            "least_norm": float(look.norms.min()),
            "largest_norm": float(look.norms.max()),
        },
        "model": {
            name: getattr(advice.case, name) for name in ("rounds", "noise", "theta_norm", "ridge", "delta", "trivial")
        },
        "machine": {"call_us": advice.machine.call_us, "rates": [list(pair) for pair in advice.machine.rates]},
        "budget_us": advice.budget_us,
        "warnings": advice.warnings,
        "clusters": [row._asdict() | {"score": row.score, "deficiency": row.deficiency} for row in advice.clusters],
        "predictions": [
            {"call": each.call} | {k: v for k, v in each._asdict().items() if k != "options"}
            for each in advice.predictions
        ],
        "sketch_size": advice.sketch_size,
        "budget": advice.budget,
        "recommendation": advice.sentence,
        "notes": advice.notes,
    }


def _facts(look: Look) -> list[str]:
    found, norms = look.spectrum, look.norms
    sizes = np.bincount(look.rays[look.rays >= 0], minlength=1)
    positive = norms[norms > 0.0]
    ratio = f", ratio {positive.max() / positive.min():.3g}" if positive.size else ""
    values = ", ".join(f"{value:.3g}" for value in found.values[:SHOWN_VALUES])
    rest = f", ... {found.values[-1]:.3g}" if len(found.values) > SHOWN_VALUES else ""
    near = look.n_arms - len(np.unique(look.near_copies))
    facts = {
        "rank": f"{found.rank:,} (90 % of the energy in {found.dims_for(0.9):,}, 99 % in {found.dims_for(0.99):,})",
        "spectrum": values + rest,
        "norms": f"{norms.min():.3g} to {norms.max():.3g}{ratio}",
        "copies": f"{look.n_arms - len(np.unique(look.copies)):,} exact, {near:,} within {NEAR_COPY:g}",
        "rays": f"{look.n_rays:,}, the largest of {_arms(int(sizes.max()))}",
    }
    head = f"{_arms(look.n_arms)} of {look.dim:,} feature{'s' if look.dim > 1 else ''} ({look.dtype})"
    return [head, *(f"  {name:<9} {value}" for name, value in facts.items())]


def _arms(count: int) -> str:
    return "1 arm" if count == 1 else f"{count:,} arms"


def _clusters(advice: "Advice") -> list[str]:
    best = min(advice.clusters, key=lambda row: row.score)
    head = f"Clusters: l^2 K(l) is least, {best.score:,}, at sketch_size={best.sketch_size} (K={best.fewest:,})"
    rows = [_cluster_cells(row, row is best) for row in advice.clusters]
    headings = ["l", "K first-fit", "K subspaces", "l^2 K", "largest", "unused rank"]
    return [head, *_table(headings, rows, left=0)]


def _cluster_cells(row: ClusterRow, best: bool) -> list[str]:
    sign = "~" if row.sampled else ""
    counts = [row.clusters, row.subspaces, row.score, row.largest, row.deficiency]
    cells = ["-" if count is None else f"{sign}{count:,}" for count in counts]
    return [f"{'*' if best else ''}{row.sketch_size}", *cells]


def _predictions(advice: "Advice") -> list[str]:
    head = f"After {advice.case.rounds:,} rounds, every policy at its best sketch size"
    if advice.budget_us is not None:
        head += f" within {advice.budget_us:g} us"
    rows = [_prediction_cells(found, found == advice.choice) for found in best_sizes(advice.predictions)]
    return [head, *_table(["policy", "l", "bound", "ops", "us", "MB", ""], rows, left=1)]


def _prediction_cells(found: Prediction, chosen: bool) -> list[str]:
    bound = "none" if found.bound is None else _short(found.bound)
    words = {"over": not found.fits, "vac.": found.vacuous, "mean": found.guarantee == EXPECTED}
    words["est."] = found.guarantee == ESTIMATED
    size = "-" if found.sketch_size is None else f"{found.sketch_size}"
    numbers = [_short(found.operations), _short(found.microseconds), _short(found.memory / 1e6)]
    said = " ".join(word for word, holds in words.items() if holds)
    return [f"{'* ' if chosen else ''}{found.name}", size, bound, *numbers, said]


def _short(value: float) -> str:
    """Three digits of small numbers and of very large ones."""
    return f"{value:,.0f}" if 100 <= value < 1e6 else f"{value:.3g}" if value < 100 else f"{value:.2e}"


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]], left: int) -> list[str]:
    """Columns as wide as they need; the first ``left`` and one without a heading stand to the left."""
    cells = [list(headings), *map(list, rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    sides = ["<" if i < left or not heading else ">" for i, heading in enumerate(headings)]
    return [
        ("  " + "  ".join(f"{c:{s}{w}}" for c, s, w in zip(row, sides, widths, strict=True))).rstrip() for row in cells
    ]


def _bullets(sentences: Iterable[str], sign: str) -> list[str]:
    return [line for each in sentences for line in _bullet(each, sign)]


def _bullet(sentence: str, sign: str) -> Iterator[str]:
    indent = " " * len(sign)
    yield from textwrap.wrap(sentence, WIDTH, initial_indent=sign, subsequent_indent=indent, break_on_hyphens=False)
