"""What a saved hybrid policy must hold before compiled code may use it."""

from typing import Any

import numpy as np

from sketchbandits import snapshot
from sketchbandits.features import Features
from sketchbandits.kernels.linalg import Floats
from sketchbandits.policies.hybrid.building import GIVEN, RULES
from sketchbandits.policies.hybrid.half_life import WATCHED, half_life_of
from sketchbandits.policies.hybrid.layout import HybridState
from sketchbandits.policies.hybrid.parameters import checked_settings
from sketchbandits.policies.hybrid.rounds import main_of

MOST = 2**39  # rewards
WHOLE = {"samples": MOST, "due": 2**62, "learns": 2**62, "unlearned": 2**62, "since": MOST}
FLAGS = ("waits", "constant", "timed")
POSITIVE = ("ridge", "own_ridge", "unit")
AT_LEAST_ZERO = ("noise", "scatter", "floor", "boldness")
SCHEMAS = ("context_features", "arm_features")


def check_settings(saved: snapshot.Saved) -> None:
    """Refuse settings that the constructor would not have written."""
    settings, arms = saved.settings, saved.arrays.get("arms")
    if arms is None or arms.ndim != 2 or 0 in arms.shape:
        raise ValueError(f"path must hold the array arms, a matrix, got another in {saved.path!r}")
    try:
        given = {**settings, "arms": None if settings["feature_dim"] is not None else arms}
        given |= {name: None if settings[name] is None else Features.from_dict(settings[name]) for name in SCHEMAS}
        if settings["counted"]:
            given["arms"] = len(arms)
        again = checked_settings(given)
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        others = f"path must hold the settings of a HybridCSLB, got others in {saved.path!r}"
        raise ValueError(f"{others}: {error}") from None
    if again != settings:
        raise ValueError(f"path must hold the settings of a HybridCSLB, got others in {saved.path!r}")
    shape = (settings["max_arms"], settings["feature_dim"])
    if settings["feature_dim"] is not None and arms.shape != shape:
        raise ValueError(f"path must hold arms of shape {shape}, got {arms.shape} in {saved.path!r}")


def check_state(saved: snapshot.Saved, state: Any, arms: Floats) -> None:
    """Refuse indices, sizes and numbers that would lead compiled code astray, in every copy."""
    main = main_of(state)
    _check_copy(saved, "state" if main is state else "state.main", main, arms)
    for name in ("given_noise", "given_ridge", "given_share"):
        told = saved.settings[GIVEN[name]]
        if not np.array_equal(main.level[name][0], np.nan if told is None else told, equal_nan=True):
            raise ValueError(f"path must hold {name} as in its settings, got another in {saved.path!r}")
    if main is not state:
        _check_copy(saved, "state.fast", state.fast, arms)
        snapshot.within(saved, "state.watch[changed]", state.watch["changed"], 0, 1)
        snapshot.within(saved, "state.watch[restarts]", state.watch["restarts"], 0, MOST)


def _check_copy(saved: snapshot.Saved, name: str, state: HybridState, arms: Floats) -> None:
    (k, p, r), n, settings = state.shared.shape, len(arms), saved.settings
    snapshot.within(saved, f"{name}.choice", state.choice, 0, n - 1)
    snapshot.within(saved, f"{name}.counts", state.counts, 0, MOST)
    snapshot.within(saved, f"{name}.cluster", state.cluster, 0, k - 1)
    for field, most in {**WHOLE, **dict.fromkeys(FLAGS, 1)}.items():
        snapshot.within(saved, f"{name}.level[{field}]", state.level[field], 0, most)
    for field, array in zip(state._fields, state, strict=True):
        if array.dtype == np.float64 and not np.isfinite(array).all():
            raise ValueError(f"path must hold finite numbers in {name}.{field}, got others in {saved.path!r}")
    _check_level(saved, name, state.level[0])
    offered, sampled = settings["feature_dim"] is not None, settings["explore"] == "ts"
    whole = (
        state.shared_inverse.shape[1] == p * r
        and len(state.shared_factor) == (k if sampled else 0)
        and len(state.gone) == (p * r + 2 if offered else 0)
        and len(state.moments) == (p + 1 if offered else 0)
        and (not offered or (k, r) == (1, settings["feature_dim"] + 1))
        and _places_are_whole(state, n, offered)
        and state.active.any()
    )
    if not whole:
        raise ValueError(f"path must hold a whole state, got one with other clusters in {saved.path!r}")


def _places_are_whole(state: HybridState, n: int, offered: bool) -> bool:
    """Whether every arm is listed once, with its cluster."""
    starts, members = state.starts, state.members
    if starts.size != len(state.shared) + 1 or starts[0] != 0 or (np.diff(starts) < 0).any():
        return False
    if not np.array_equal(np.sort(members), np.arange(n)) or starts[-1] > n or not (offered or starts[-1] == n):
        return False
    labels = np.repeat(np.arange(len(state.shared)), np.diff(starts))
    return np.array_equal(state.cluster[members[: starts[-1]]], labels)


def _check_level(saved: snapshot.Saved, name: str, level: Any) -> None:
    half_life, fast = half_life_of(saved.settings["half_life"]), name.endswith("fast")
    wrong = [field for field in POSITIVE if not 0.0 < level[field] < np.inf]
    wrong += [field for field in AT_LEAST_ZERO if not 0.0 <= level[field] < np.inf]
    wrong += [field for field in ("centre", "faded") if not np.isfinite(level[field])]
    wrong += [] if level["now"] < np.inf else ["now"]
    wrong += [] if level["shortest"] >= 0.0 else ["shortest"]
    wrong += [] if level["rule"] == RULES[saved.settings["explore"]] else ["rule"]
    wrong += [] if bool(level["timed"]) == half_life.timed else ["timed"]
    lengths = (WATCHED,) if fast else (half_life.length, WATCHED) if half_life.watched else (half_life.length,)
    wrong += [] if level["half_life"] in lengths else ["half_life"]
    if wrong:
        raise ValueError(f"path must hold a sound {name}.level[{wrong[0]}], got {level[wrong[0]]} in {saved.path!r}")
