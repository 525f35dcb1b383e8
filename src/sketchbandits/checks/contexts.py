"""Checks of policies on contexts."""

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from sketchbandits.checks.tools import (
    DIM,
    Make,
    refuses,
    same,
    snapshot_of,
    twins,
)
from sketchbandits.kernels.linalg import Floats


def _play_contexts(policy: Any, rounds: int = 120, seed: int = 1) -> list[int]:
    generator = np.random.default_rng(seed)
    theta = generator.normal(size=DIM)
    chosen = []
    for _ in range(rounds):
        contexts = generator.normal(size=(int(generator.integers(1, 7)), DIM))
        contexts /= np.linalg.norm(contexts, axis=1, keepdims=True)
        choice = policy.select(contexts)
        assert type(choice) is int and 0 <= choice < len(contexts), (
            f"select(contexts) must index a row, gave {choice!r}"
        )
        chosen.append(choice)
        policy.update(contexts[choice], float(contexts[choice] @ theta + generator.normal()))
    return chosen


def contextual_rounds(make: Make) -> None:
    """Fresh contexts each round; two policies built alike choose alike; reading is pure."""
    policy = make(DIM)
    assert _play_contexts(policy) == _play_contexts(make(DIM)), (
        "the same contexts and rewards must give the same choices"
    )
    contexts = np.eye(DIM)[:4]
    before, bounds = snapshot_of(policy), policy.bounds(contexts)
    assert bounds.shape == (4,) and np.isfinite(bounds).all(), "bounds(contexts) must have one finite value per row"
    assert policy.select(contexts) == policy.select(contexts), "select(contexts) must repeat itself"
    assert np.array_equal(policy.bounds(contexts), bounds), "bounds(contexts) must repeat itself"
    assert same(before, snapshot_of(policy)), "select and bounds must not change the state"
    assert np.array_equal(contexts, np.eye(DIM)[:4]), "contexts must not be changed"


def contextual_estimates(make: Make) -> None:
    """`estimates` has one finite value per context, never above the bound, and changes nothing."""
    policy = make(DIM)
    if not hasattr(policy, "estimates"):
        return
    contexts = np.eye(DIM)[:4]
    assert np.isfinite(policy.estimates(contexts)).all(), "estimates(contexts) must be finite before the first reward"
    _play_contexts(policy)
    before, estimates, bounds = snapshot_of(policy), policy.estimates(contexts), policy.bounds(contexts)
    assert estimates.shape == (4,), "estimates(contexts) must have one value per row"
    assert np.array_equal(policy.estimates(contexts), estimates), "estimates(contexts) must repeat itself"
    assert same(before, snapshot_of(policy)), "estimates(contexts) must not change the state"
    assert (estimates <= bounds + 1e-9 * (1.0 + np.abs(bounds))).all(), "estimates must not be above bounds"


def contextual_refusals(make: Make) -> None:
    """Bad contexts and rewards are refused by name, and leave the state alone."""
    policy = make(DIM)
    _play_contexts(policy, 30)
    before, good = snapshot_of(policy), np.eye(DIM)[0]
    for bad in (np.zeros((0, DIM)), np.ones((3, DIM + 1)), np.full((3, DIM), np.nan), good, "contexts"):
        refuses(partial(policy.select, bad), "contexts", "bad contexts")
        refuses(partial(policy.bounds, bad), "contexts", "bad contexts")
    for bad in (np.ones(DIM + 1), np.full(DIM, np.inf), np.eye(DIM)):
        refuses(partial(policy.update, bad, 0.5), "context", "a bad context")
    for bad in (np.nan, np.inf, "1", None):
        refuses(partial(policy.update, good, bad), "reward", "a bad reward")
    assert same(before, snapshot_of(policy)), "a refused call must leave the state alone"


def contextual_saving(make: Make) -> None:
    """Saved, loaded and copied policies go on exactly as the original, and do not touch it."""
    policy = make(DIM)
    _play_contexts(policy)
    with tempfile.TemporaryDirectory() as folder:
        policy.save(Path(folder) / "state.npz")
        loaded = type(policy).load(Path(folder) / "state.npz")
    before, twin = snapshot_of(policy), policy.copy()
    chosen = _play_contexts(twin, seed=2)
    assert same(before, snapshot_of(policy)), "playing a copy must not change the original"
    assert chosen == _play_contexts(loaded, seed=2) == _play_contexts(policy, seed=2), "all three must go on alike"
    assert np.array_equal(loaded.bounds(np.eye(DIM)), policy.bounds(np.eye(DIM))), "load must continue bit for bit"


def _contextual_batch() -> tuple[Floats, Floats]:
    generator = np.random.default_rng(4)
    contexts, rewards = generator.normal(size=(90, DIM)), generator.normal(size=90)
    return contexts / np.linalg.norm(contexts, axis=1, keepdims=True), rewards


def contextual_batches(make: Make) -> None:
    """`update_many` leaves, bit for bit, what `update` leaves after the same rewards; an empty batch leaves nothing."""
    single, batch = twins(make(DIM))
    if not hasattr(batch, "update_many"):
        return
    contexts, rewards = _contextual_batch()
    for context, reward in zip(contexts, rewards.tolist(), strict=True):
        single.update(context, reward)
    given = contexts.copy()
    batch.update_many(given[:30], rewards[:30])
    batch.update_many([], [])
    batch.update_many(given[30:].tolist(), rewards[30:].tolist())
    assert np.array_equal(given, contexts), "update_many must not change the caller's contexts"
    assert same(snapshot_of(single), snapshot_of(batch)), "update_many must leave what the same calls of update leave"
    assert _play_contexts(single, 30) == _play_contexts(batch, 30), "after update_many the same choices must follow"


def contextual_refused_batches(make: Make) -> None:
    """One bad row or reward refuses a whole batch by name; nothing is recorded."""
    policy = make(DIM)
    if not hasattr(policy, "update_many"):
        return
    _play_contexts(policy, 30)
    before, (contexts, rewards) = snapshot_of(policy), _contextual_batch()
    for bad in (np.where(np.arange(90)[:, None] == 7, np.nan, contexts), np.ones((90, DIM + 1)), contexts[0]):
        refuses(partial(policy.update_many, bad, rewards), "contexts", "a batch with bad contexts")
    for bad in (np.where(np.arange(90) == 7, np.inf, rewards), rewards[1:], "rewards"):
        refuses(partial(policy.update_many, contexts, bad), "rewards", "a batch with bad rewards")
    assert same(before, snapshot_of(policy)), "a refused batch must leave the state alone"


CONTEXTUAL_CHECKS: tuple[Callable[[Make], None], ...] = (
    contextual_rounds,
    contextual_estimates,
    contextual_refusals,
    contextual_saving,
    contextual_batches,
    contextual_refused_batches,
)
