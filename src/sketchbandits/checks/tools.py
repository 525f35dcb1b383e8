"""What the checks share: arms, rewards, a game, and how to compare states and refusals."""

import copy
from collections.abc import Callable
from typing import Any

import numpy as np

from sketchbandits.kernels.linalg import Floats
from sketchbandits.snapshot import leaves

N_ARMS, DIM = 23, 11  # never equal, so that a transposed loop shows
ROUNDS = 300

Make = Callable[[Any], Any]


def make_arms(seed: int = 0) -> Floats:
    """Arms of different norms, with parallel, repeated and zero ones among them."""
    arms = np.random.default_rng(seed).normal(size=(N_ARMS, DIM))
    arms[5], arms[9], arms[14] = 2.0 * arms[4], arms[8], 0.0
    scaled: Floats = arms / np.linalg.norm(arms, axis=1).max()
    return scaled


def mean_rewards(arms: Floats, seed: int = 1) -> tuple[Floats, np.random.Generator]:
    """Every arm's mean reward, and the generator that goes on with the noise."""
    generator = np.random.default_rng(seed)
    return arms @ generator.normal(size=arms.shape[1]), generator


def play(policy: Any, arms: Floats, rounds: int = ROUNDS, seed: int = 1) -> list[int]:
    """Let the policy choose and learn; returns its choices."""
    means, generator = mean_rewards(arms, seed)
    chosen = []
    for _ in range(rounds):
        arm = policy.select()
        chosen.append(arm)
        policy.update(arm, means[arm] + generator.normal())
    return chosen


def snapshot_of(policy: Any) -> dict[str, Any]:
    """Everything that a call could have changed: the state's arrays, or what the policy shows of itself."""
    if hasattr(getattr(policy, "state", None), "_fields"):
        # Scratch space means nothing between two calls.
        return {k: v.copy() for k, v in leaves(policy.state) if not k.endswith(".work")}
    shown: dict[str, Any] = {"select": policy.select()}
    if hasattr(policy, "bounds"):
        shown["bounds"] = np.array(policy.bounds())
    return shown


def same(before: dict[str, Any], after: dict[str, Any]) -> bool:
    """Whether two snapshots are identical, NaN included."""
    return before.keys() == after.keys() and all(_identical(before[k], after[k]) for k in before)


def _identical(one: Any, other: Any) -> bool:
    if getattr(one, "dtype", None) is not None and one.dtype.names:
        return bool(one.dtype == other.dtype and one.tobytes() == other.tobytes())  # records
    return np.array_equal(one, other, equal_nan=True)


def refuses(call: Callable[[], Any], word: str, why: str) -> None:
    """Assert that ``call`` raises ``ValueError`` with a message that names ``word``."""
    message = None
    try:
        call()
    except ValueError as error:
        message = str(error)
    assert message is not None, f"{why} must raise ValueError"
    assert word in message, f"{why} must be refused by a message that names {word!r}, it says: {message}"


def twins(policy: Any) -> tuple[Any, Any]:
    """Two policies in one state; even one that never draws may hold a random key of its own."""
    return policy, policy.copy() if hasattr(policy, "copy") else copy.deepcopy(policy)
