"""Largest errors of widths and means against 80 digits, for every ridge and scale: the table of docs/precision.md."""

import sys
from pathlib import Path

import numpy as np

from sketchbandits import CBSCFD, CSLB, OFUL, SOFUL, DBSLinUCB
from sketchbandits.policies.cslb.layout import SLOT
from sketchbandits.policies.rounds import MEAN, WIDTH2

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
import naive

RIDGES, SCALES, PULLS = (1e-8, 1e-4, 1.0, 1e4, 1e8), (1e-6, 1.0, 1e6), 20_000
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


def main() -> None:
    print("| policy | arm scale | " + " | ".join(f"ridge {ridge:.0e}" for ridge in RIDGES) + " |")
    print("|---" * (2 + len(RIDGES)) + "|")
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


if __name__ == "__main__":
    main()
