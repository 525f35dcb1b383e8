"""Largest errors of widths and means against 80 digits, for every ridge and scale: the tables of docs/precision.md.

python benchmarks/precision.py             # both tables, five minutes
python benchmarks/precision.py --hybrid    # that of HybridCSLB only, a minute
"""

import argparse
import sys
from pathlib import Path

import numpy as np

from sketchbandits import CBSCFD, CSLB, OFUL, SOFUL, DBSLinUCB
from sketchbandits.policies.cslb.layout import SLOT
from sketchbandits.policies.rounds import MEAN, WIDTH2

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
import naive
from sharp_hybrid import DIARIES, Played, Units

RIDGES, SCALES, PULLS = (1e-8, 1e-4, 1.0, 1e4, 1e8), (1e-6, 1.0, 1e6), 20_000
OWN_SHARES = {"1e-8": 1e-8, "1e-3": 1e-3, "1/2": 0.5, "1 - 1e-3": 1.0 - 1e-3, "1 - 1e-8": 1.0 - 1e-8}
# Powers of two keep parallel arms exactly parallel, which 80 digits would notice.
MANY = (1.0, 0.5, 2.0, 0.25)
POLICIES = {
    "CS-LB few": lambda arms, ridge: CSLB(arms, sketch_size=3, ridge=ridge),
    "CS-LB many": lambda arms, ridge: CSLB(np.concatenate([arms[:3] * f for f in MANY]), sketch_size=2, ridge=ridge),
    "CS-LB sketch": lambda arms, ridge: CSLB(arms, sketch_size=3, ridge=ridge, engine="sketch"),
    "OFUL": lambda arms, ridge: OFUL(arms, ridge=ridge),
    "SOFUL": lambda arms, ridge: SOFUL(arms, sketch_size=5, ridge=ridge),
    "CBSCFD": lambda arms, ridge: CBSCFD(arms, sketch_size=5, ridge=ridge),
    "DBSLinUCB": lambda arms, ridge: DBSLinUCB(arms, sketch_size=5, ridge=ridge),
}


def errors(policy, ridge):
    """(widths, means): the largest relative error, and the largest error over the largest mean."""
    stats, groups = policy.state.stats, [np.arange(policy.n_arms)]
    if isinstance(policy, CSLB):
        stats = stats[:, policy.state.place[SLOT]]
        groups = [policy.partition.members(c) for c in range(policy.partition.n_clusters)]
    widths, means = np.zeros(policy.n_arms), np.zeros(policy.n_arms)
    for group in groups:
        arms, counts, sums = policy.arms[group], policy.counts[group], (stats[2] + stats[3])[group]
        widths[group] = naive.sharp_widths(arms, counts, ridge)
        means[group] = naive.sharp_means(arms, counts, sums, ridge)
    wrong = np.abs(np.sqrt(stats[WIDTH2]) / widths - 1).max()
    return wrong, np.abs(stats[MEAN] - means).max() / np.abs(means).max()


def header(*names):
    print("| " + " | ".join([*names, *(f"ridge {ridge:.0e}" for ridge in RIDGES)]) + " |")
    print("|---" * (len(names) + len(RIDGES)) + "|")


def exact_policies() -> None:
    """The policies with one parameter."""
    header("policy", "arm scale")
    for name, make in POLICIES.items():
        for scale in SCALES:
            cells = []
            for ridge in RIDGES:
                policy = make(np.random.default_rng(3).normal(size=(9, 5)) * scale, ridge)
                for arm, reward, pulls in ((4, 0.7, PULLS), (1, 0.3, 1), (7, -0.2, 1)):
                    for _ in range(pulls):
                        policy.update(arm, reward)
                cells.append("{:.0e} / {:.0e}".format(*errors(policy, ridge)))
            print(f"| {name} | {scale:.0e} | " + " | ".join(cells) + " |", flush=True)


def hybrid_cell(diary, units, ridge, share):
    """Widths, means and, in brackets, widths over the largest: the worse of a fresh fit and one moved 200 times."""
    if ridge * (1.0 - share) / share < 0.99 * RIDGES[0]:
        return "refused"  # as the arms' own ridge would be too small
    game = Played(diary, units, noise=units.rewards, ridge=ridge, own_share=share).to_a_refit()
    fresh = game.errors()
    means, widths, of_largest = np.maximum(fresh, game.without_refits(200).errors())
    return f"{widths:.0e} / {means:.0e} ({of_largest:.0e})"


def hybrid() -> None:
    """`HybridCSLB`: who comes, and how much of the prior variance is the arms' own; then units."""
    header("HybridCSLB", "own share")
    for name, diary in DIARIES.items():
        for shown, share in OWN_SHARES.items():
            cells = [hybrid_cell(diary, Units(), ridge, share) for ridge in RIDGES]
            print(f"| {name} | {shown} | " + " | ".join(cells) + " |", flush=True)
    for what in Units._fields:
        for factor in (1e-6, 1e6):
            units = Units()._replace(**{what: factor})
            cells = [hybrid_cell(DIARIES["everybody"], units, ridge, 0.5) for ridge in RIDGES]
            print(f"| everybody, {what} x {factor:.0e} | 1/2 | " + " | ".join(cells) + " |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--hybrid", action="store_true", help="the table of HybridCSLB only")
    if not parser.parse_args().hybrid:
        exact_policies()
        print()
    hybrid()


if __name__ == "__main__":
    main()
