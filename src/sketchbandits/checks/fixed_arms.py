"""Checks of policies on fixed arms: choices, bounds, refusals, copies and files."""

import tempfile
from functools import partial
from pathlib import Path

import numpy as np

from sketchbandits.checks.tools import (
    DIM,
    N_ARMS,
    ROUNDS,
    Make,
    make_arms,
    mean_rewards,
    play,
    refuses,
    same,
    snapshot_of,
)
from sketchbandits.snapshot import leaves


def selects_valid_arms(make: Make) -> None:
    """`select` gives a Python int that indexes an arm, also before any reward."""
    arms = make_arms()
    for arm in play(make(arms), arms):
        assert type(arm) is int and 0 <= arm < N_ARMS, f"select() must give an int from 0 to {N_ARMS - 1}, gave {arm!r}"


def reading_is_pure(make: Make) -> None:
    """`select` and `bounds` change nothing, and repeat themselves."""
    arms = make_arms()
    policy = make(arms)
    for _ in range(3):
        play(policy, arms, 40)
        before = snapshot_of(policy)
        first, bounds = policy.select(), policy.bounds()
        bounds_again = policy.bounds()
        assert policy.select() == first, "select() must repeat itself until the next update"
        assert np.array_equal(bounds, bounds_again), "bounds() must repeat itself"
        bounds_again[:] = -1.0
        assert np.array_equal(policy.bounds(), bounds), "bounds() must return an array of its own"
        assert same(before, snapshot_of(policy)), "select() and bounds() must not change the state"


def bounds_have_one_value_per_arm(make: Make) -> None:
    """`bounds` is a float array with one value per arm, never NaN; with data on every arm it is finite."""
    arms = make_arms()
    policy = make(arms)
    assert policy.bounds().shape == (N_ARMS,), "bounds() must have one value per arm"
    assert not np.isnan(policy.bounds()).any(), "bounds() must not be NaN before the first reward"
    for arm in range(N_ARMS):
        policy.update(arm, 0.1)
    assert np.isfinite(policy.bounds()).all(), "bounds() must be finite once every arm has a reward"


def estimates_are_means(make: Make) -> None:
    """`estimates` has one finite value per arm, never above the bound, follows the rewards, and changes nothing."""
    arms = make_arms()
    policy = make(arms)
    if not hasattr(policy, "estimates"):
        return
    assert policy.estimates().shape == (N_ARMS,), "estimates() must have one value per arm"
    assert np.isfinite(policy.estimates()).all(), "estimates() must be finite before the first reward"
    play(policy, arms, 60)
    before, estimates = snapshot_of(policy), policy.estimates()
    policy.estimates()[:] = -1.0
    assert np.array_equal(policy.estimates(), estimates), "estimates() must repeat itself, in an array of its own"
    assert same(before, snapshot_of(policy)), "estimates() must not change the state"
    excess = estimates - policy.bounds()
    assert (excess <= 1e-9 * (1.0 + np.abs(policy.bounds()))).all(), "estimates() must not be above bounds()"
    high, low = make(arms), make(arms)
    for _ in range(200):
        high.update(0, 1.0)
        low.update(0, -1.0)
    assert high.estimates()[0] > 0.0 > low.estimates()[0], "estimates() must follow the rewards of an arm"


def input_is_not_aliased(make: Make) -> None:
    """The caller's arms are neither kept nor changed."""
    arms = make_arms()
    mine = arms.copy()
    policy = make(mine)
    play(policy, arms, 20)
    assert np.array_equal(mine, arms), "arms must not be changed"
    twin = make(arms)
    play(twin, arms, 20)
    mine[:] = 7.0
    assert play(policy, arms, 20, seed=2) == play(twin, arms, 20, seed=2), "arms must be copied, not kept"


def same_seed_same_arms(make: Make) -> None:
    """Two policies built alike choose alike."""
    arms = make_arms()
    assert play(make(arms), arms) == play(make(arms), arms), "the same policy and rewards must give the same arms"


def rewards_may_be_late(make: Make) -> None:
    """Any arm may be updated at any time, in any order, and every reward is counted."""
    arms = make_arms()
    means, generator = mean_rewards(arms)
    policy = make(arms)
    pairs = [(int(a), float(means[a] + generator.normal())) for a in generator.integers(0, N_ARMS, 200)]
    for arm, reward in pairs:
        policy.update(arm, reward)
        assert not np.isnan(policy.bounds()).any(), "bounds() must not be NaN after a late reward"
    if hasattr(policy, "counts"):
        expected = np.bincount([arm for arm, _ in pairs], minlength=N_ARMS)
        assert np.array_equal(policy.counts, expected), "counts must say how many rewards each arm got"


def refused_calls_change_nothing(make: Make) -> None:
    """Bad input raises ``ValueError`` that names the argument, and leaves the state alone."""
    arms = make_arms()
    policy = make(arms)
    play(policy, arms, 50)
    before = snapshot_of(policy)
    for bad in (-1, N_ARMS, 1.5, "3", None, True):
        refuses(partial(policy.update, bad, 0.5), "arm", f"update({bad!r}, 0.5)")
    for bad in (np.nan, np.inf, -np.inf, "1", None, 1e300):
        refuses(partial(policy.update, 0, bad), "reward", f"update(0, {bad!r})")
    assert same(before, snapshot_of(policy)), "a refused call must leave the state alone"


def bad_arms_are_refused(make: Make) -> None:
    """NaN, infinite, empty or wrongly shaped arms are refused."""
    arms = make_arms()
    spoiled = [np.where(np.arange(DIM) == 3, bad, arms) for bad in (np.nan, np.inf, 1e200)]
    for bad in (*spoiled, arms[0], np.zeros((0, DIM)), np.zeros((N_ARMS, 0)), [["a", "b"], ["c", "d"]]):
        refuses(partial(make, bad), "arms", "a bad arm set")


def saving_continues_bit_for_bit(make: Make) -> None:
    """A policy that was saved and loaded in the middle of a run goes on exactly as the one that was not."""
    arms = make_arms()
    policy = make(arms)
    if not hasattr(policy, "save"):
        return
    play(policy, arms)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "state.npz"
        policy.save(path)
        loaded = type(policy).load(path)
        assert sorted(p.name for p in Path(folder).iterdir()) == ["state.npz"], (
            "save must leave one file, under its name"
        )
    assert np.array_equal(loaded.bounds(), policy.bounds()), "load must give the same bounds, bit for bit"
    assert play(loaded, arms, seed=2) == play(policy, arms, seed=2), "load must go on with the same arms"
    assert np.array_equal(loaded.bounds(), policy.bounds()), "load must continue bit for bit"


def copies_are_independent(make: Make) -> None:
    """What a copy learns does not reach the original."""
    arms = make_arms()
    policy = make(arms)
    if not hasattr(policy, "copy"):
        return
    play(policy, arms, 60)
    before = snapshot_of(policy)
    twin = policy.copy()
    assert same(before, snapshot_of(twin)), "a copy must start in the same state"
    play(twin, arms, 60, seed=2)
    assert same(before, snapshot_of(policy)), "playing a copy must not change the original"


def memory_is_bounded(make: Make) -> None:
    """The state does not grow with the number of rewards."""
    arms = make_arms()
    policy = make(arms)
    if not hasattr(getattr(policy, "state", None), "_fields"):
        return
    size = sum(part.nbytes for _, part in leaves(policy.state))
    play(policy, arms, 3 * ROUNDS)
    after = sum(part.nbytes for _, part in leaves(policy.state))
    assert after == size, f"the state must not grow, it went from {size} to {after} bytes"
