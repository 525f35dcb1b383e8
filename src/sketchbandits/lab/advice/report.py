"""The report of `Advice`: facts, warnings, two tables and the recommendation in 80 columns; and all of it as JSON."""

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sketchbandits.lab.advice.candidates import ESTIMATED, EXPECTED, Candidate
from sketchbandits.lab.advice.clusters import ClusterRow
from sketchbandits.lab.advice.facts import NEAR_COPY, ArmFacts
from sketchbandits.lab.advice.recommend import microseconds_of
from sketchbandits.lab.advice.timing import ROUNDS
from sketchbandits.policies.multiscale.randomised import CAUTION

if TYPE_CHECKING:
    from sketchbandits.lab.advice.advisor import Advice

WIDTH = 80
SHOWN_VALUES = 5


def text(advice: "Advice") -> str:
    """The whole report."""
    parts = [_facts(advice.facts), _bullets(advice.warnings, "! "), _clusters(advice), _finalists(advice)]
    paragraphs = (advice.sentence, advice.hybrid.sentences)
    parts += [textwrap.wrap(words, WIDTH, break_on_hyphens=False) for words in paragraphs]
    parts += [_bullets(advice.notes, "- ")]
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def in_order(finalists: Sequence[Candidate]) -> list[Candidate]:
    """From the least bound; policies without one come last."""
    return sorted(finalists, key=lambda found: (found.bound is None, found.bound or 0.0))


def all_candidates(advice: "Advice") -> list[Candidate]:
    """Every candidate; those that were timed with their times."""
    timed = {found.call: found for found in advice.finalists}
    own = {found.call for found in advice.candidates}
    others = [found for call, found in timed.items() if call not in own]  # with another budget than the default
    return [*(timed.get(found.call, found) for found in advice.candidates), *others]


def notes(advice: "Advice") -> list[str]:
    """What was sampled, and what bounds and times mean."""
    facts, said = advice.facts, []
    if facts.spectrum.rows < facts.n_arms:
        said.append(f"The spectrum is that of {facts.spectrum.rows:,} arms, drawn at random.")
    sampled = [row.sampled for row in advice.clusters if row.sampled]
    if sampled:
        said.append(
            f"Clusters marked ~ are estimates, mostly too high, from {_span(sampled)} arms drawn at random and half of "
            "them."
        )
    said.append(
        "Bounds hold with probability 1 - delta. mean: on the mean regret; est.: an estimate, as though a sketch "
        "dropped the tail of the arms' spectrum, all played equally often; vac.: vacuous, no less than 2 S L T = "
        f"{advice.case.trivial:,.0f}; over: slower than the budget."
    )
    if advice.case.draws:
        said.append(
            f"MultiscaleCSLB: by default it chooses at random, with {CAUTION:g} times the bound of explore='optimism' "
            "and, where that was measured, a fraction of its regret."
        )
    said.append(
        f"us: processor time of a select and an update from Python, measured now, the mean of up to {ROUNDS} rounds "
        "near the start. MB: the memory of arms and state."
    )
    sampled = [found.sampled for found in advice.finalists if found.sampled]
    if sampled:
        said.append(f"Times and memory marked ~ are extrapolated from {_span(sampled)} arms drawn at random.")
    return said


def _span(counts: Sequence[int]) -> str:
    low, high = min(counts), max(counts)
    return f"{high:,}" if low == high else f"{low:,} to {high:,}"


def as_json(advice: "Advice") -> dict[str, Any]:
    """Plain numbers and texts; labels of single arms are left out."""
    model = ("rounds", "noise", "theta_norm", "ridge", "delta", "trivial")
    return {
        "arms": _arms_json(advice.facts),
        "model": {name: getattr(advice.case, name) for name in model},
        "budget_us": advice.budget_us,
        "warnings": advice.warnings,
        "clusters": [row._asdict() | {"score": row.score, "deficiency": row.deficiency} for row in advice.clusters],
        "candidates": [
            {"call": each.call} | {k: v for k, v in each._asdict().items() if k != "options"}
            for each in all_candidates(advice)
        ],
        "sketch_size": advice.sketch_size,
        "budget": advice.budget,
        "recommendation": advice.sentence,
        "hybrid": advice.hybrid.as_json(),
        "notes": advice.notes,
    }


def _arms_json(facts: ArmFacts) -> dict[str, Any]:
    found = facts.spectrum
    return {
        "n_arms": facts.n_arms,
        "dim": facts.dim,
        "dtype": facts.dtype,
        "rank": found.rank,
        "dims_for_90_percent": found.dims_for(0.9),
        "dims_for_99_percent": found.dims_for(0.99),
        "singular_values": found.values.tolist(),
        "spectrum_rows": found.rows,
        "rays": facts.n_rays,
        "distinct": len(np.unique(facts.copies)),
        "distinct_up_to_rounding": len(np.unique(facts.near_copies)),
        "zero": int((facts.norms == 0.0).sum()),
        "least_norm": float(facts.norms.min()),
        "largest_norm": float(facts.norms.max()),
    }


def _facts(facts: ArmFacts) -> list[str]:
    found, norms = facts.spectrum, facts.norms
    sizes = np.bincount(facts.rays[facts.rays >= 0], minlength=1)
    positive = norms[norms > 0.0]
    ratio = f", ratio {positive.max() / positive.min():.3g}" if positive.size else ""
    values = ", ".join(f"{value:.3g}" for value in found.values[:SHOWN_VALUES])
    rest = f", ... {found.values[-1]:.3g}" if len(found.values) > SHOWN_VALUES else ""
    near = facts.n_arms - len(np.unique(facts.near_copies))
    lines = {
        "rank": f"{found.rank:,} (90 % of the energy in {found.dims_for(0.9):,}, 99 % in {found.dims_for(0.99):,})",
        "spectrum": values + rest,
        "norms": f"{norms.min():.3g} to {norms.max():.3g}{ratio}",
        "copies": f"{facts.n_arms - len(np.unique(facts.copies)):,} exact, {near:,} within {NEAR_COPY:g}",
        "rays": f"{facts.n_rays:,}, the largest of {_arms(int(sizes.max()))}",
    }
    head = f"{_arms(facts.n_arms)} of {facts.dim:,} feature{'s' if facts.dim > 1 else ''} ({facts.dtype})"
    return [head, *(f"  {name:<9} {value}" for name, value in lines.items())]


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


def _finalists(advice: "Advice") -> list[str]:
    head = f"After {advice.case.rounds:,} rounds, every policy at its best sketch size"
    if advice.budget_us is not None:
        head += f" within {advice.budget_us:g} us"
    rows = [_finalist_cells(found, found == advice.choice) for found in in_order(advice.finalists)]
    return [head, *_table(["policy", "l", "bound", "us", "MB", ""], rows, left=1)]


def _finalist_cells(found: Candidate, chosen: bool) -> list[str]:
    bound = "none" if found.bound is None else _short(found.bound)
    words = {"over": not found.fits, "vac.": found.vacuous, "mean": found.guarantee == EXPECTED}
    words["est."] = found.guarantee == ESTIMATED
    size = "-" if found.sketch_size is None else f"{found.sketch_size}"
    sign = "~" if found.sampled else ""
    measured = [f"{sign}{_short(value)}" for value in (microseconds_of(found), (found.memory or 0.0) / 1e6)]
    said = " ".join(word for word, holds in words.items() if holds)
    return [f"{'* ' if chosen else ''}{found.name}", size, bound, *measured, said]


def _short(value: float) -> str:
    """Three digits of small numbers and of very large ones."""
    return f"{value:,.0f}" if 100 <= value < 1e6 else f"{value:.3g}" if value < 100 else f"{value:.2e}"


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]], left: int) -> list[str]:
    """Columns as wide as needed; the first ``left`` columns and one without a heading are aligned to the left."""
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
