"""What a round of multi-scale CS-LB costs compared with OFUL's, side by side in one run: the mean over a whole game.

python benchmarks/multiscale.py            # a minute or two
python benchmarks/multiscale.py --quick    # seconds: shows that it runs
"""

import argparse
import time

import numpy as np

from sketchbandits import OFUL, MultiscaleCSLB
from sketchbandits.environments import LinearEnvironment, correlated_arms, uniform_parameter
from sketchbandits.kernels.threads import one_blas_thread

SHAPES = ((1000, 20, 4, 1), (1000, 20, 4, 10), (2000, 10, 4, 1))
CHUNK = 5_000


def microseconds(shape, normalize, rounds, seed=0):
    """Time a round of both policies, in turns of a chunk each: the mean of each over the game."""
    n_arms, dim, sketch_size, group_size = shape
    arms = correlated_arms(n_arms=n_arms, dim=dim, group_size=group_size, normalize=normalize, seed=seed)
    env = LinearEnvironment(arms, uniform_parameter(dim, seed=seed), noise=1.0)
    policies = (MultiscaleCSLB(arms, sketch_size=sketch_size), OFUL(arms, radius="logdet"))
    generator, spent = np.random.default_rng(seed), np.zeros((2, rounds // CHUNK))
    for policy in policies:
        policy.play_rounds(env.means, env.gaps, np.zeros(0))
    for chunk in range(rounds // CHUNK):
        noise = env.draw_noise(generator, CHUNK)
        for k, policy in enumerate(policies):
            started = time.perf_counter()
            policy.play_rounds(env.means, env.gaps, noise)
            spent[k, chunk] = 1e6 * (time.perf_counter() - started) / CHUNK
    return spent


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a short game")
    rounds = 2 * CHUNK if parser.parse_args().quick else 200_000
    print("N, d, l, m; norm: us per round of multi-scale, of OFUL, ratio of means (target: at most 0.2)")
    with one_blas_thread():
        for shape in SHAPES:
            for normalize in ("max", "unit"):
                own, oful = microseconds(shape, normalize, rounds).mean(axis=1)
                print(f"{shape}; {normalize}: {own:.2f}, {oful:.2f}, {own / oful:.2f}", flush=True)


if __name__ == "__main__":
    main()
