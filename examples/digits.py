"""Find the 3 among ten handwritten digits: a contextual bandit on scikit-learn's digits.

    pip install 'sketchbandits[test]'    # scikit-learn comes with the extra "test"
    python examples/digits.py

Each round shows one image of every digit, shuffled; choosing the image of the target digit pays 1, any other 0. A
policy sees the 64 pixels of every image and learns only from the one it chose.
"""

from collections.abc import Callable, Mapping
from typing import Any

from outcome import BAD_INPUT, band, options, run, say, stop, table

import sketchbandits as sb
from sketchbandits.environments import LabelledEnvironment

NOISE = 0.5  # rewards in [0, 1] are 1/2-sub-Gaussian

# Add a line for a policy of your own: anything with select(contexts) and update(context, reward).
CONTENDERS: Mapping[str, Callable[[int, int], Any]] = {
    "OFUL log-det": lambda dim, seed: sb.OFUL.contextual(dim=dim, noise=NOISE, radius="logdet"),
    "LinUCB": lambda dim, seed: sb.LinUCB.contextual(dim=dim, alpha=NOISE),
    "LinTS v=R": lambda dim, seed: sb.LinTS.contextual(dim=dim, scale=NOISE, seed=seed),
    "LinTS theory": lambda dim, seed: sb.LinTS.contextual(dim=dim, noise=NOISE, radius="logdet", seed=seed),
    "SOFUL l=20": lambda dim, seed: sb.SOFUL.contextual(dim=dim, sketch_size=20, noise=NOISE, radius="logdet"),
    "CBSCFD l=20": lambda dim, seed: sb.CBSCFD.contextual(dim=dim, sketch_size=20, noise=NOISE, radius="logdet"),
    "MultiscaleCSLB": lambda dim, seed: sb.MultiscaleCSLB.contextual(dim=dim, noise=NOISE),
}


def build(target: int) -> LabelledEnvironment:
    """The images as contexts."""
    try:
        from sklearn.datasets import load_digits  # an optional dependency
    except ModuleNotFoundError:
        stop(BAD_INPUT, "digits.py needs scikit-learn: pip install 'sketchbandits[test]'")
    digits = load_digits()
    return LabelledEnvironment(digits.data, digits.target, target=target)


def report(result: sb.Result) -> None:
    """Print one line per policy, from the least regret to the largest."""
    rows = []
    for name, regret in sorted(result.final_regret.items(), key=lambda item: item[1].mean()):
        reward = 1 - regret.mean() / result.rounds  # the image of the target pays 1 in every round
        rows.append([name, f"{reward:.4f}", *band(regret, 0)])
    table(["policy", "reward", "regret", "95 % interval"], rows)


def main() -> None:
    """Load, play, show."""
    parser = options(__doc__, rounds=5_000)
    parser.add_argument("--target", type=int, default=3, choices=range(10), help="the digit that pays (default 3)")
    chosen = parser.parse_args()
    env = build(chosen.target)
    say(f"Find the {chosen.target} among {env.n_arms} digits. Rounds: {chosen.rounds:,}. Runs: {chosen.runs}.")
    policies = {name: make(env.dim, chosen.seed) for name, make in CONTENDERS.items()}
    report(sb.simulate(env, policies, rounds=chosen.rounds, runs=chosen.runs, seed=chosen.seed))


if __name__ == "__main__":
    run(main)
