"""Check of policies whose arms may be freed: those that are kept notice nothing."""

import numpy as np

from sketchbandits.checks.tools import N_ARMS, Make, make_arms, mean_rewards, refuses, same, snapshot_of


def freed_arms_are_not_missed(make: Make) -> None:
    """After `free_arms` the kept arms have the bounds and estimates that they had, and one of them is played."""
    arms = make_arms()
    policy, twin = make(arms), make(arms)
    if not hasattr(policy, "free_arms"):
        return
    means, generator = mean_rewards(arms)
    for arm in generator.integers(0, N_ARMS, 150).tolist():
        for one in (policy, twin):
            one.update(arm, float(means[arm]))
    try:
        policy.remove_arms([3, 8, 4, 20])
    except ValueError:  # not with these options
        return
    twin.remove_arms([3, 8, 4, 20])
    before = snapshot_of(policy)
    refuses(lambda: policy.free_arms([3, 0]), "ids", "free_arms of an arm that may be played")
    assert same(before, snapshot_of(policy)), "a refused call must leave the state alone"
    kept = policy.free_arms([20, 3, 8])
    number = np.flatnonzero(kept >= 0)
    assert np.array_equal(kept[number], np.delete(np.arange(N_ARMS), [3, 8, 20])), "free_arms must keep the order"
    assert not policy.active[kept < 0].any(), "arms that carry what freed ones taught must never be played"
    for read in ("bounds", "estimates"):
        found, expected = getattr(policy, read)()[number], getattr(twin, read)()[kept[number]]
        assert np.allclose(found, expected, rtol=1e-9, atol=1e-9), f"{read}() of kept arms must stay as without freeing"
    for _ in range(100):
        arm = policy.select()
        assert policy.active[arm], "select() must give an arm that may be played"
        policy.update(arm, float(means[kept[arm]]))
