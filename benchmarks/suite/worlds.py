"""The worlds of `benchmarks/practice.py`: users and arms as one meets them, drawn by a seed.

The recipe is that of the project's specification of hybrid policies; the generators were committed before the policy
was tuned. The worlds of films need a folder with MovieLens-100k (``u.data`` or ``.inter``, with the users' file).
"""

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sketchbandits.environments import ContextualEnvironment, ReplayEnvironment, ViewersEnvironment
from sketchbandits.environments.ratings import item_factors, read_movielens

Floats = NDArray[np.float64]
N, P, NOISE, SHORT = 60, 6, 0.2, 4_000
CLICK_ARMS, CLICK_ROUNDS = 500, 200_000
REVERSAL_ARMS, REVERSAL_ROUNDS = 200, 60_000
FILM_ROUNDS, VIEWER_ROUNDS = 50_000, 10_000
FILM_DIM, FILM_LEAST, FILM_TRAINED = 9, 20, 0.8
MOST_RATED, OFFERED, LEAST_RATED, LEAST_GENRE = 200, 20, 5, 3
AGES = (22, 30, 40)


class World(NamedTuple):
    """Arms, where they are played, and for how long; ``noise`` is what a rival with a known R is told."""

    arms: Floats
    env: Any
    rounds: int
    noise: float


def _unit(rows: Floats) -> Floats:
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.divide(rows, norms, out=np.zeros_like(rows), where=norms > 0.0)


def _synthetic(rng: np.random.Generator, arms: Floats, length: float = 1.0, own: Floats | None = None) -> World:
    theta = rng.standard_normal((P, arms.shape[1]))
    theta *= length / np.linalg.norm(theta)
    return World(arms, ContextualEnvironment(arms, theta, own=own, noise=NOISE), SHORT, NOISE)


def shared(rng: np.random.Generator) -> World:
    """All arms follow one parameter."""
    return _synthetic(rng, _unit(rng.standard_normal((N, 12))))


def nothing_shared(rng: np.random.Generator) -> World:
    """Features that say nothing: every arm is on its own."""
    return _synthetic(rng, np.eye(N), length=np.sqrt(P))


def clusters(rng: np.random.Generator) -> World:
    """Ten groups of six arms, each in a random plane of R^20."""
    planes = [np.linalg.qr(rng.standard_normal((20, 2)))[0] for _ in range(10)]
    return _synthetic(rng, _unit(np.concatenate([rng.standard_normal((6, 2)) @ plane.T for plane in planes])))


def segments(rng: np.random.Generator) -> World:
    """Six segments of ten equal arms."""
    return _synthetic(rng, np.eye(6)[np.arange(N) % 6])


def deviations(rng: np.random.Generator) -> World:
    """One parameter, and every arm deviates from it."""
    arms = _unit(rng.standard_normal((N, 12)))
    return _synthetic(rng, arms, own=0.1 * rng.standard_normal((N, P)))


def _scores(rng: np.random.Generator, n_arms: int) -> tuple[Floats, Floats, Floats]:
    """Arms with a constant and nine features, a parameter, and the score of every arm in [0, 1]."""
    arms = np.column_stack([np.ones(n_arms), rng.standard_normal((n_arms, 9))])
    theta = rng.standard_normal(10)
    raw = arms @ theta
    theta = theta / (raw.max() - raw.min())
    theta[0] -= (arms @ theta).min()
    return arms, theta, arms @ theta


def clicks(rng: np.random.Generator) -> World:
    """Five hundred advertisements with click rates from 0.5 to 3 per cent, linear in ten features."""
    arms, theta, _ = _scores(rng, CLICK_ARMS)
    rate = 0.025 * theta
    rate[0] += 0.005
    return World(arms, ContextualEnvironment(arms, rate, rewards="bernoulli"), CLICK_ROUNDS, 0.15)


def _reversal(rng: np.random.Generator, *, reverses: bool) -> World:
    arms, theta, _ = _scores(rng, REVERSAL_ARMS)
    before, after = 0.1 * theta, -0.1 * theta
    before[0] += 0.05
    after[0] += 0.15
    drift = [(REVERSAL_ROUNDS // 2, after)] if reverses else []
    return World(arms, ContextualEnvironment(arms, before, rewards="bernoulli", drift=drift), REVERSAL_ROUNDS, 0.3)


def reversal(rng: np.random.Generator) -> World:
    """Two hundred advertisements with rates from 5 to 15 per cent; at half time the best become the worst."""
    return _reversal(rng, reverses=True)


def no_reversal(rng: np.random.Generator) -> World:
    """The world of `reversal`, in which nothing changes: what does it cost to be prepared?"""
    return _reversal(rng, reverses=False)


def films(folder: Path, *, shuffled: bool = False) -> Callable[[np.random.Generator], World]:
    """Films without users, of `examples/movielens.py`; ``shuffled`` features say nothing."""

    def draw(rng: np.random.Generator) -> World:
        earlier, later = read_movielens(folder).split(FILM_TRAINED)
        items = np.intersect1d(earlier.rated_items(), later.rated_items(FILM_LEAST))
        arms = item_factors(earlier, dim=FILM_DIM, items=items)
        env = ReplayEnvironment(arms, *later.rewards(items))
        return World(rng.permutation(arms) if shuffled else arms, env, FILM_ROUNDS, 0.5)

    return draw


def viewers(folder: Path) -> Callable[[np.random.Generator], World]:
    """Films with users: which of twenty films will this user like?"""

    def draw(rng: np.random.Generator) -> World:
        ratings = read_movielens(folder)
        items = np.sort(np.argsort(-np.bincount(ratings.item), kind="stable")[:MOST_RATED])
        genres = _genres(folder, [ratings.item_ids[i] for i in items])
        common = genres[:, genres.sum(axis=0) >= LEAST_GENRE]
        arms = _unit(np.column_stack([np.ones(len(items)), common]))
        env = ViewersEnvironment(ratings, items, _people(folder, ratings.user_ids), offered=OFFERED, least=LEAST_RATED)
        return World(arms, env, VIEWER_ROUNDS, 0.25)

    return draw


def _table(folder: Path, ending: str) -> dict[str, dict[str, str]]:
    """A RecBole table by its first column."""
    (file,) = folder.glob(f"*{ending}")
    with file.open(encoding="utf-8") as lines:
        rows = csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)
        header = [name.partition(":")[0] for name in next(rows)]
        return {row[0]: dict(zip(header, row, strict=True)) for row in rows}


def _genres(folder: Path, ids: list[str]) -> Floats:
    rows = _table(folder, ".item")
    listed = [rows[name]["class"].split() for name in ids]
    names = sorted({genre for genres in listed for genre in genres})
    return np.array([[float(name in genres) for name in names] for genres in listed])


def _people(folder: Path, ids: tuple[str, ...]) -> Floats:
    """1, female, one of four groups of age; of unit norm."""
    rows = _table(folder, ".user")
    ages = np.array([float(rows[name]["age"]) for name in ids])
    groups = np.eye(len(AGES) + 1)[np.searchsorted(AGES, ages, side="right")]
    female = np.array([float(rows[name]["gender"] == "F") for name in ids])
    return _unit(np.column_stack([np.ones(len(ids)), female, groups]))


SYNTHETIC = {
    "shared": shared,
    "nothing shared": nothing_shared,
    "clusters": clusters,
    "segments": segments,
    "deviations": deviations,
}


def worlds(folder: Path | None) -> dict[str, Callable[[np.random.Generator], World]]:
    """Every world by name; those with films where there is a folder of them."""
    drawn = {**SYNTHETIC, "clicks": clicks, "reversal": reversal, "no reversal": no_reversal}
    if folder is None:
        return drawn
    return drawn | {
        "films": films(folder),
        "films, shuffled": films(folder, shuffled=True),
        "films with users": viewers(folder),
    }
