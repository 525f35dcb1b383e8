"""The state of a hybrid policy before any reward, and whether it fits into memory."""

import math
import os
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sketchbandits.kernels.linalg import Floats
from sketchbandits.policies.hybrid.groups import Groups, groups_of
from sketchbandits.policies.hybrid.half_life import WATCHED, half_life_of
from sketchbandits.policies.hybrid.layout import LEVEL, RANDOMISED, THEORY, TS, UCB, HybridState
from sketchbandits.policies.hybrid.watch import WATCH, WatchedState

RULES = {"randomised": RANDOMISED, "ucb": UCB, "ts": TS, "theory": THEORY}
NEVER = 2**62
RIDGES = 1e-8, 1e8  # the ridges that can be given; beyond them fits lose their digits
GIVEN = {"given_noise": "noise", "given_ridge": "ridge", "given_share": "own_share"}


class Shape(NamedTuple):
    """Of the largest arrays: n arms, k clusters of rank r, contexts of length p with their constant."""

    n: int
    k: int
    r: int
    p: int
    sampled: bool  # whether there is a triangular factor per cluster
    copies: int
    offered: bool  # whether arms come with requests

    @property
    def numbers(self) -> int:
        """How many numbers the state has."""
        n, k, r, p = self[:4]
        s = p * r
        shared = k * ((1 + self.sampled) * s * s + s) + self.offered * ((s + 2) ** 2 + (p + 1) ** 2)
        return self.copies * (n * ((p + 1) ** 2 + 2 * p * p + p + r) + shared)


def check_memory(shape: Shape, given: str) -> None:
    """Refuse a state that cannot fit, before anything is allocated."""
    there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 2**40
    if 8 * shape.numbers > there:
        raise ValueError(
            f"arms must be few enough for the memory, {there / 2**30:.0f} GiB, got {given}, whose statistics take "
            f"{shape.numbers / 2**27:.0f} GiB: a smaller sketch_size or shorter contexts need less"
        )


def shape_of(n: int, k: int, r: int, p: int, settings: dict[str, Any]) -> Shape:
    """The shape of the state of a policy with these settings."""
    copies = 1 + half_life_of(settings["half_life"]).watched
    return Shape(n, k, r, p, settings["explore"] == "ts", copies, settings["feature_dim"] is not None)


def groups_for(arms: Floats, p: int, settings: dict[str, Any]) -> Groups:
    """The clusters and coordinates of the arms; those that come with requests have none yet."""
    if settings["feature_dim"] is None:
        return groups_of(arms, p, settings["sketch_size"], as_given=settings["explore"] == "theory")
    return Groups(np.zeros(len(arms), np.int64), np.zeros((len(arms), settings["feature_dim"] + 1)), True)


def new_state(groups: Groups, p: int, settings: dict[str, Any], key: NDArray[np.uint64]) -> HybridState | WatchedState:
    """The state of one copy, or of two."""
    half_life = half_life_of(settings["half_life"])
    main = new_copy(groups, p, settings, key)
    if not half_life.watched:
        return main
    fast = new_copy(groups, p, settings, key)
    fast.level["half_life"], fast.level["learns"] = WATCHED, NEVER
    return WatchedState(main.choice.copy(), main, fast, np.zeros(1, WATCH))


def new_copy(groups: Groups, p: int, settings: dict[str, Any], key: NDArray[np.uint64]) -> HybridState:
    """A model that has seen no rewards; it is to be refitted before it is used."""
    (n, r), k = groups.coordinates.shape, int(groups.cluster.max()) + 1
    s, offered, sampled = p * r, settings["feature_dim"] is not None, settings["explore"] == "ts"
    return HybridState(
        choice=np.zeros(1, np.int64),
        counts=np.zeros(n, np.int64),
        cluster=groups.cluster.copy(),
        members=np.argsort(groups.cluster, kind="stable"),
        starts=np.array([0, 0]) if offered else np.concatenate([[0], np.cumsum(np.bincount(groups.cluster))]),
        coordinates=groups.coordinates.copy(),
        factors=np.zeros((n, p + 1, p + 1)),
        own=np.zeros((n, p)),
        spread=np.zeros((n, p, p)),
        inverse=np.zeros((n, p, p)),
        shared=np.zeros((k, p, r)),
        shared_inverse=np.zeros((k, s, s)),
        shared_factor=np.zeros((k if sampled else 0, s, s)),
        logdet=np.zeros(k),
        gone=np.zeros((s + 2, s + 2) if offered else (0, 0)),
        moments=np.zeros((p + 1, p + 1) if offered else (0, 0)),
        scale=np.ones(p),
        active=np.ones(n, np.bool_),
        level=_level(groups, p, settings),
        key=key.copy(),
    )


def _level(groups: Groups, p: int, settings: dict[str, Any]) -> NDArray[Any]:
    level, half_life = np.zeros(1, LEVEL), half_life_of(settings["half_life"])
    level["rule"], level["boldness"] = RULES[settings["explore"]], 1.0
    level["constant"], level["unit"], level["shortest"] = groups.constant, 1.0, math.inf
    level["half_life"], level["timed"], level["now"] = half_life.length, half_life.timed, -math.inf
    for name, given in GIVEN.items():
        level[name] = math.nan if settings[given] is None else settings[given]
    if settings["explore"] == "theory":
        level["ridge"], level["own_ridge"] = theory_ridges(settings)
        for name in ("delta", "theta_norm", "own_norm"):
            level[name] = settings[name]
    return level


def theory_ridges(settings: dict[str, Any]) -> tuple[float, float]:
    """Ridges that do not depend on rewards: given, or such that each norm adds as much to the radius as the noise."""
    noise, share, least, most = settings["noise"], settings["own_share"], *RIDGES
    ridge = settings["ridge"] or min(max(noise / settings["theta_norm"], least**0.5), most**0.5) ** 2
    if share is not None:
        return ridge, min(max(ridge * (1.0 - share) / share, least), most)
    if settings["own_norm"] == 0.0:
        return ridge, most
    return ridge, min(max(noise / settings["own_norm"], least**0.5), most**0.5) ** 2
