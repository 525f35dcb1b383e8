"""Checks of `update_many` and `play` on fixed arms."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from sketchbandits.checks.tools import (
    N_ARMS,
    ROUNDS,
    Make,
    make_arms,
    mean_rewards,
    play,
    refuses,
    same,
    snapshot_of,
    twins,
)
from sketchbandits.kernels.linalg import Floats


def _log(policy: Any, arms: Floats, matches: bool) -> tuple[list[int], list[float], list[int]]:
    """Arms, rewards and the choices before them, of a slow replay; about half of the log's arms are the choice."""
    means, generator = mean_rewards(arms, seed=3)
    logged, rewards, choices = [], [], []
    for _ in range(ROUNDS):
        choice = policy.select()
        arm = choice if generator.random() < 0.5 else int(generator.integers(0, N_ARMS))
        reward = float(means[arm] + generator.normal())
        if arm == choice or not matches:
            policy.update(arm, reward)
        logged.append(arm)
        rewards.append(reward)
        choices.append(choice)
    return logged, rewards, choices


def batches_are_single_updates(make: Make) -> None:
    """`update_many` leaves, bit for bit, what `update` leaves after the same rewards; an empty batch leaves nothing."""
    arms = make_arms()
    single, batch = twins(make(arms))
    if not hasattr(batch, "update_many"):
        return
    logged, rewards, _ = _log(single, arms, matches=False)
    half = ROUNDS // 3
    batch.update_many(logged[:half], rewards[:half])
    batch.update_many([], [])
    batch.update_many(np.array(logged[half:]), np.array(rewards[half:]))
    assert same(snapshot_of(single), snapshot_of(batch)), "update_many must leave what the same calls of update leave"
    assert play(single, arms, 60) == play(batch, arms, 60), "after update_many the same arms must follow"


def replays_are_loops(make: Make) -> None:
    """`play` gives the choices of a loop of `select` and `update` over the log, and leaves the same state."""
    arms = make_arms()
    for learn in ("all", "matches"):
        slow, fast = twins(make(arms))
        if not hasattr(fast, "update_many"):
            return
        logged, rewards, expected = _log(slow, arms, matches=learn == "matches")
        choices = fast.play((logged, rewards), learn=learn)
        assert choices.dtype == np.int64, f"play must give int64, gave {choices.dtype}"
        assert choices.tolist() == expected, f"play(learn={learn!r}) must give what select gave before each event"
        assert same(snapshot_of(slow), snapshot_of(fast)), f"play(learn={learn!r}) must leave what the loop leaves"


def _bad_batches() -> Iterator[tuple[Any, Any, str]]:
    """Arms, rewards, and what their refusal must name."""
    for bad in (-1, N_ARMS, 1.5, True, None):
        yield [0, 1, bad], [0.5, 0.5, 0.5], "arms[2]"
    for bad in (np.nan, np.inf, 1e300, None):
        yield [0, 1, 2], [0.5, bad, 0.5], "rewards[1]"
    yield np.array([0.0, 1.0]), [0.5, 0.5], "arms[0]"
    yield np.zeros((2, 2), int), [0.5, 0.5], "arms"
    yield [0, 1], [0.5], "rewards"


def refused_batches_change_nothing(make: Make) -> None:
    """One bad entry refuses a whole batch, by the argument's name and the entry's position; nothing is recorded."""
    arms = make_arms()
    policy = make(arms)
    if not hasattr(policy, "update_many"):
        return
    play(policy, arms, 50)
    before = snapshot_of(policy)
    for logged, rewards, word in _bad_batches():
        refuses(partial(policy.update_many, logged, rewards), word, f"update_many({logged!r}, {rewards!r})")
        refuses(partial(policy.play, (logged, rewards)), word, f"play(({logged!r}, {rewards!r}))")
    refuses(partial(policy.play, [0, 1, 2]), "batch", "a batch that is no pair")
    refuses(partial(policy.play, ([0], [0.5]), learn="some"), "learn", "learn='some'")
    assert same(before, snapshot_of(policy)), "a refused batch must leave the state alone"
