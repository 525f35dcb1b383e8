"""The arm sets on which a review found multi-scale CS-LB far worse than the best of OFUL, UCB1 and CS-LB.

python benchmarks/reviewed_arms.py            # 50,000 rounds, ten runs: a quarter of an hour
python benchmarks/reviewed_arms.py --quick    # seconds: shows that it runs

Every set is one that `MultiscaleCSLB` was changed for: the numbers say whether the causes are gone, not how good the
policy is elsewhere (that is `sketchbandits beyond`). R = S = 1, delta = 0.01, largest norm 1, default parameters.
"""

import argparse

import numpy as np

from sketchbandits import CSLB, OFUL, UCB1, MultiscaleCSLB, simulate
from sketchbandits.environments import (
    LinearEnvironment,
    duplicated_arms,
    embedding_like_arms,
    heavy_tailed_arms,
    isotropic_parameter,
    low_rank_arms,
)


def low_rank(n, d, rank, noise=0.0):
    """Arms of this rank, exactly or nearly."""
    return lambda seed: low_rank_arms(n_arms=n, dim=d, rank=rank, noise=noise, seed=seed)


def gaussian(n, d):
    """Arms without any structure."""
    return lambda seed: heavy_tailed_arms(n_arms=n, dim=d, decay=0.0, seed=seed)


SETS = {  # how arms are drawn, the sketch size, theta_norm, and multi-scale / best as the review found it
    "rank 6, N=500, d=200": (low_rank(500, 200, 6), 4, 1.0, 9.1),
    "rank 6, N=1000, d=100": (low_rank(1000, 100, 6), 4, 1.0, 7.3),
    "rank 12, N=1000, d=100": (low_rank(1000, 100, 12), 8, 1.0, 4.1),
    "near rank 2, N=1000, d=50": (low_rank(1000, 50, 2, 0.01), 16, 1.0, 6.9),
    "near rank 2, N=1000, d=20": (low_rank(1000, 20, 2, 0.01), 16, 1.0, 5.2),
    "near-duplicates of 5, N=500, d=50": (
        lambda seed: duplicated_arms(n_arms=500, dim=50, n_centres=5, spread=0.01, seed=seed),
        16,
        1.0,
        1.8,
    ),
    "Gaussian, N=2000, d=50": (gaussian(2000, 50), 16, 1.0, 1.34),
    "embedding-like, N=1000, d=50": (lambda seed: embedding_like_arms(n_arms=1000, dim=50, seed=seed), 16, 1.0, 1.27),
    "near rank 4, N=200, d=256": (low_rank(200, 256, 4, 0.01), 16, 1.0, 6.1),
    "near rank 3, N=100, d=100": (low_rank(100, 100, 3, 0.01), 16, 1.0, 4.1),
    "near rank 2, N=50, d=64": (low_rank(50, 64, 2, 0.01), 16, 1.0, 3.0),
    "theta_norm=10, N=60, d=50": (gaussian(60, 50), 5, 10.0, 1.28),
}


def regrets(draw, sketch_size, theta_norm, rounds, runs):
    """Mean regret of both rules of multi-scale and of every rival, each run on arms and a parameter of its own."""
    found = {}
    for run in range(runs):
        arms = draw(run)
        env = LinearEnvironment(arms, isotropic_parameter(arms.shape[1], seed=run), noise=1.0)
        common = {"theta_norm": theta_norm}
        policies = {
            "randomised": MultiscaleCSLB(arms, sketch_size=sketch_size, seed=run, **common),
            "optimism": MultiscaleCSLB(arms, sketch_size=sketch_size, explore="optimism", **common),
            "oful": OFUL(arms, radius="logdet", **common),
            "ucb1": UCB1(arms),
            "cslb": CSLB(arms, sketch_size=sketch_size, **common),
        }
        result = simulate(env, policies, rounds=rounds, seed=run, progress=False, checkpoints=[rounds])
        for name in policies:
            found.setdefault(name, []).append(float(np.mean(result.final_regret[name])))
    return {name: float(np.mean(values)) for name, values in found.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few rounds, one run")
    rounds, runs = (500, 1) if parser.parse_args().quick else (50_000, 10)
    print("ratios to the best of OFUL, UCB1 and CS-LB: as reviewed, with random choices, with the largest bound")
    print(f"{'set':<40} {'before':>7} {'random':>7} {'largest':>7}  best rival, regret")
    for name, (draw, sketch_size, theta_norm, before) in SETS.items():
        mean = regrets(draw, sketch_size, theta_norm, rounds, runs)
        best = min(("oful", "ucb1", "cslb"), key=mean.get)
        ratios = "".join(f" {mean[own] / max(mean[best], 1e-9):>7.2f}" for own in ("randomised", "optimism"))
        print(f"{name:<40} {before:>7.2f}{ratios}  {best} {mean[best]:,.0f}", flush=True)


if __name__ == "__main__":
    main()
