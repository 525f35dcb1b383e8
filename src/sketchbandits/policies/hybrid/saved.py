"""What a saved hybrid policy must hold before compiled code may use it."""

from typing import Any

import numpy as np

from sketchbandits import snapshot
from sketchbandits.policies.hybrid.building import RULES
from sketchbandits.policies.hybrid.layout import HybridState
from sketchbandits.policies.hybrid.rounds import main_of

MOST = 2**39  # rewards
SETTINGS = {  # and what files of the first version had without saying so
    "context_dim": None,
    "feature_dim": None,
    "sketch_size": None,
    "explore": "randomised",
    "half_life": None,
    "max_arms": None,
    "noise": None,
    "ridge": None,
    "own_share": None,
    "delta": None,
    "theta_norm": None,
    "own_norm": None,
    "counted": False,
    "context_features": None,
    "arm_features": None,
}
WHOLE = {"samples": MOST, "due": 2**62, "learns": 2**62, "unlearned": 2**62, "since": MOST, "rule": len(RULES) - 1}
FLAGS = ("waits", "constant", "timed")


def complete_settings(saved: snapshot.Saved) -> snapshot.Saved:
    """All settings, checked as far as the shape of the state depends on them."""
    settings = SETTINGS | saved.settings
    for name in ("context_dim", "feature_dim", "sketch_size", "max_arms"):
        if settings[name] is not None and (type(settings[name]) is not int or settings[name] < 1):
            raise ValueError(f"path must hold a whole {name} >= 1, got {settings[name]!r} in {saved.path!r}")
    if settings["explore"] not in RULES or unknown(settings):
        raise ValueError(f"path must hold the settings of a HybridCSLB, got others in {saved.path!r}")
    return saved._replace(settings=settings)


def unknown(settings: dict[str, Any]) -> set[str]:
    """Settings that no version has."""
    return set(settings) - set(SETTINGS)


def check_state(saved: snapshot.Saved, state: Any, n: int) -> None:
    """Refuse indices and sizes that would lead compiled code out of bounds, in every copy."""
    main = main_of(state)
    copies = [("state", main)] if main is state else [("state.main", main), ("state.fast", state.fast)]
    if main is not state:
        snapshot.within(saved, "state.watch[changed]", state.watch["changed"], 0, 1)
        snapshot.within(saved, "state.watch[restarts]", state.watch["restarts"], 0, MOST)
    for name, copy in copies:
        _check_copy(saved, name, copy, n)


def _check_copy(saved: snapshot.Saved, name: str, state: HybridState, n: int) -> None:
    (k, p, r), starts = state.shared.shape, state.starts
    snapshot.within(saved, f"{name}.counts", state.counts, 0, MOST)
    snapshot.within(saved, f"{name}.cluster", state.cluster, 0, k - 1)
    snapshot.within(saved, f"{name}.members", state.members, 0, n - 1)
    snapshot.within(saved, f"{name}.starts", starts, 0, n)
    for field, most in {**WHOLE, **dict.fromkeys(FLAGS, 1)}.items():
        snapshot.within(saved, f"{name}.level[{field}]", state.level[field], 0, most)
    if not all(np.isfinite(array).all() for array in (state.factors, state.gone, state.moments)):
        raise ValueError(f"path must hold finite statistics, got others in {saved.path!r}")
    offered, sampled = state.gone.size > 0, state.level["rule"][0] == RULES["ts"]
    whole = (
        state.shared_inverse.shape[1] == p * r
        and starts.size == k + 1
        and starts[0] == 0
        and (offered or starts[-1] == n)
        and (np.diff(starts) >= 0).all()
        and len(state.shared_factor) == (k if sampled else 0)
        and (not offered or (len(state.gone), len(state.moments), k) == (p * r + 2, p + 1, 1))
    )
    if not whole:
        raise ValueError(f"path must hold a whole state, got one with other clusters in {saved.path!r}")
