"""Which film pleases most? Policies on real MovieLens ratings.

    python examples/movielens.py FOLDER

FOLDER holds u.data and u.item (GroupLens), or one .inter and its .item (RecBole). Arms are the films with at least 20
of the latest 20 % of the ratings, described by factors of the earlier 80 %; a pull of a film draws one of its later
ratings, the lowest worth 0 and the highest 1.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from outcome import BAD_INPUT, band, options, run, say, stop, table

import sketchbandits as sb
from sketchbandits.environments import Ratings, ReplayEnvironment, item_factors, read_movielens
from sketchbandits.kernels.threads import one_blas_thread
from sketchbandits.progress import Bar

NOISE = 0.5  # rewards in [0, 1] are 1/2-sub-Gaussian
DIM, LEAST, TRAINED = 10, 20, 0.8
SHOWN_EVERY = 1_000  # rounds between two steps of the progress bar

# Add a line for a policy of your own: anything with select() and update(arm, reward).
CONTENDERS: Mapping[str, Callable[["Game", Any], Any]] = {
    "UCB1": lambda game, seed: sb.UCB1(game.env.arms, noise=NOISE),
    "OFUL log-det": lambda game, seed: sb.OFUL(game.env.arms, radius="logdet", **game.model),
    "LinTS theory": lambda game, seed: sb.LinTS(game.env.arms, radius="logdet", seed=seed, **game.model),
    "LinTS v=R": lambda game, seed: sb.LinTS(game.env.arms, scale=NOISE, seed=seed, **game.model),
    "CS-LB log-det": lambda game, seed: sb.CSLB(game.env.arms, sketch_size=5, radius="logdet", **game.model),
    "MultiscaleCSLB": lambda game, seed: sb.MultiscaleCSLB(game.env.arms, sketch_size=5, **game.model),
}


class Game(NamedTuple):
    """The environment, the title of every arm, and the model parameters that are passed to the linear policies."""

    env: ReplayEnvironment
    titles: list[str]
    model: dict[str, float]


class Played(NamedTuple):
    """One run of one policy: mean reward, regret, and how often each arm was played."""

    reward: float
    regret: float
    counts: NDArray[np.int64]


def build(ratings: Ratings) -> Game:
    """Arms from the earlier ratings, rewards from the later ones."""
    earlier, later = ratings.split(TRAINED)
    films = np.intersect1d(earlier.rated_items(), later.rated_items(LEAST))
    if not films.size:
        raise ValueError(f"the later ratings must hold {LEAST} of at least one film rated before, got none")
    arms = item_factors(earlier, DIM, items=films)
    # The length of the parameter that fits the earlier ratings is all that the policies may know about it.
    known = ReplayEnvironment(arms, *earlier.rewards(films)).means
    theta_norm = float(np.linalg.norm(np.linalg.lstsq(arms, known)[0]))
    env = ReplayEnvironment(arms, *later.rewards(films))
    return Game(env, [ratings.titles[film] for film in films], {"noise": NOISE, "theta_norm": theta_norm})


def described(game: Game) -> str:
    """How much better the best film is than a random one, and how far the rewards are from linear."""
    env = game.env
    left = env.means - env.arms @ np.linalg.lstsq(env.arms, env.means)[0]
    return (
        f"{env.n_arms} films, {env.dim} features. A random film pays {env.means.mean():.3f}, the best "
        f"{env.means.max():.3f}: {game.titles[env.best_arm]}. The best linear fit to the features explains "
        f"{1 - left.var() / env.means.var():.0%} of the variance between films; it misses one by {abs(left).max():.2f}."
    )


def play(env: ReplayEnvironment, policy: Any, rounds: int, luck: np.random.Generator) -> Iterator[Played]:
    """The whole loop: select, draw a reward, update. Yields what has been played so far, regularly and at the end."""
    total, counts = 0.0, np.zeros(env.n_arms, np.int64)
    for t in range(1, rounds + 1):
        arm = policy.select()
        reward = env.reward(arm, luck)
        policy.update(arm, reward)
        total += reward
        counts[arm] += 1
        if t % SHOWN_EVERY == 0 or t == rounds:
            yield Played(total / t, float(counts @ env.gaps), counts)


def compare(game: Game, rounds: int, runs: int, seed: int) -> dict[str, list[Played]]:
    """Play every policy; in round t of a run all draw with the same luck, so that the comparison is paired."""
    ended: dict[str, list[Played]] = {name: [] for name in CONTENDERS}
    games = [(index, name) for index in range(runs) for name in CONTENDERS]
    streams = [stream.spawn(2) for stream in np.random.SeedSequence(seed).spawn(runs)]
    with one_blas_thread(), Bar() as bar:
        for done, (run_index, name) in enumerate(games):
            luck, own = map(np.random.default_rng, streams[run_index])
            for played in play(game.env, CONTENDERS[name](game, own), rounds, luck):
                share = (done + played.counts.sum() / rounds) / len(games)
                bar.show(share, f"{name}, run {run_index + 1}")
            ended[name].append(played)
    return ended


def report(game: Game, played: dict[str, list[Played]]) -> None:
    """Print one line per policy, from the least regret to the largest."""
    rows = []
    for name, games in played.items():
        regret, reward = np.array([game.regret for game in games]), np.array([game.reward for game in games])
        favourite = game.titles[int(np.sum([one.counts for one in games], axis=0).argmax())]
        rows.append((regret.mean(), [name, f"{reward.mean():.4f}", *band(regret, 0), favourite[:24]]))
    table(["policy", "reward", "regret", "95 % interval", "most played film"], [row for _, row in sorted(rows)])


def main() -> None:
    """Read, play, show."""
    parser = options(__doc__, rounds=50_000)
    parser.add_argument("folder", help="a folder with MovieLens ratings")
    chosen = parser.parse_args()
    try:
        ratings = read_movielens(chosen.folder)
        game = build(ratings)
    except (ValueError, OSError) as error:
        stop(BAD_INPUT, str(error))
    say(f"{ratings!r}. Rounds: {chosen.rounds:,}. Runs: {chosen.runs}.")
    say(described(game))
    report(game, compare(game, chosen.rounds, chosen.runs, chosen.seed))


if __name__ == "__main__":
    run(main)
