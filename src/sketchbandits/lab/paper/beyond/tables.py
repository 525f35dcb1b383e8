"""The result of `beyond` as a page shows it."""

from collections.abc import Sequence

import numpy as np

from sketchbandits.lab.experiments.study import Study
from sketchbandits.lab.paper.beyond.arm_sets import ArmSet
from sketchbandits.lab.paper.beyond.plan import FAIR, GUARANTEED, OTHERS, OURS, VARIANTS
from sketchbandits.lab.paper.beyond.rows import Row, ablation, living, sentence, table
from sketchbandits.policies.registry import PolicySpec

LIVING = {
    "E1": "15 arms, 485 more added before the first round; built with 500 (d = 20)",
    "E2": "8 arms, 992 more added before the first round; built with 1,000 (d = 10)",
    "F": "the ten best of 500 arms hidden in every round; removed before the first (d = 10)",
}


def short(name: str) -> str:
    """A policy's label, with a word for OFUL that has all it can use."""
    return "OFUL, fair" if name == str(FAIR) else PolicySpec.parse(name).label


def markdown(study: Study, sets: Sequence[ArmSet]) -> str:
    """The main table, the targets of every variant, what each part is worth, and living arms."""
    rows = table(study, sets)
    lines = [*_main(rows), ""]
    for policy in VARIANTS:
        lines += [sentence(table(study, sets, policy), policy), ""]
    lines += [*_policies(rows), "", *_ablation(study), "", *_living(study)]
    return "\n".join(lines) + "\n"


def _main(rows: Sequence[Row]) -> list[str]:
    """One line per set: regret, the best rival, the ratio and its upper end, at both horizons."""
    lines = ["| set | N, d | norm |" + " regret | best rival | ratio (upper) |" * len(rows[0].reaches)]
    lines[0] += " to LinTS | time/OFUL |"
    lines.append("|---|---|---|" + "---:|---|---:|" * len(rows[0].reaches) + "---:|---:|")
    for row in rows:
        cells = [row.scene, f"{row.n_arms:,}, {row.dim}", row.normalize]
        for at in row.reaches:
            rival = f"{short(at.best)} {at.regrets[at.best]:,.0f}"
            cells += [f"{at.regrets[str(OURS)]:,.0f}", rival, f"{at.ratio:.2f} ({at.upper:.2f})"]
        cells += [number(row.reaches[-1].sampling), number(row.times)]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def all_regrets(rows: Sequence[Row]) -> str:
    """Every policy's mean regret on every set, at all horizons; those without a guarantee are the last ones."""
    names = [str(policy) for policy in (*VARIANTS, *GUARANTEED, *OTHERS)]
    lines = ["| set | norm | rounds | " + " | ".join(map(short, names)) + " |", "|---|---|---:|" + "---:|" * len(names)]
    for row in rows:
        for at in row.reaches:
            cells = [f"{at.regrets[name]:,.0f}" if name in at.regrets else "-" for name in names]
            lines.append(f"| {row.scene} | {row.normalize} | {at.rounds:,} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def number(value: float) -> str:
    """Two digits, or a dash where nothing was measured."""
    return "-" if np.isnan(value) else f"{value:.2f}"


def _policies(rows: Sequence[Row]) -> list[str]:
    """How often each rival was the best with a guarantee, at the last horizon."""
    best = [row.reaches[-1].best for row in rows]
    counts = [f"{short(name)} {best.count(name)}" for name in sorted(set(best), key=lambda name: -best.count(name))]
    return [f"The best rival at the end: {', '.join(counts)}."]


def _ablation(study: Study) -> list[str]:
    lines = ["| variant | geometric mean of ratios | largest |", "|---|---:|---:|"]
    return lines + [f"| {short(str(a.policy))} | {a.mean:.2f} | {a.largest:.2f} |" for a in ablation(study)]


def _living(study: Study) -> list[str]:
    lines = ["| living arms | policy | regret | with the arms fixed | ratio |", "|---|---|---:|---:|---:|"]
    for each in living(study):
        what = f"{each.name}: {LIVING[each.name]}"
        cells = [what, each.policy.label, f"{each.changed:,.0f}", f"{each.plain:,.0f}"]
        cells.append(str(each.target).removeprefix(f"{each.name} "))
        lines.append("| " + " | ".join(cells) + " |")
    return lines
