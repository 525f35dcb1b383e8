"""Slow, obvious twins of a bandit's policy, for `checker.py`: those of ``tests/naive.py``, with arms that come and go.

A twin records rewards, adds and removes arms, and says every arm's bound. `chooses` says which arm the policy plays
while decisions are outstanding, None where there is no slow rule to compare with; ``C`` is the limit of the rule for
pending decisions, by default 1.
"""

import numpy as np
from twin_multiscale import Multiscale, naive


class Fixed:
    """A twin from ``naive`` whose arms stay: only its bounds are compared, and those until the arms change."""

    grows = frees = False  # whether it follows arms that come and go, and arms that are freed
    slow = False  # to learn a reward

    def __init__(self, policy):
        self.policy, self.active = policy, np.ones(policy.N, bool)
        self.cheap = isinstance(policy, naive.UCB1)  # to ask for a choice

    def record(self, arm, reward):
        self.policy.update(arm, reward)

    def bounds(self):
        return self.policy.bounds()

    def chooses(self, pending, allowed, C=1.0):
        return None


class Growing(Fixed):
    """OFUL, LinUCB and UCB1: one more arm is one more row. What freed arms taught stays as it is."""

    grows = frees = True

    def add(self, arms):
        policy, more = self.policy, len(arms)
        policy.arms = np.vstack([policy.arms, arms])
        policy.N, policy.norms = len(policy.arms), np.linalg.norm(policy.arms, axis=1)
        if hasattr(policy, "counts"):
            policy.counts, policy.sums = (np.append(old, np.zeros(more)) for old in (policy.counts, policy.sums))
        self.active = np.append(self.active, np.ones(more, bool))

    def remove(self, arms):
        self.active[arms] = False

    def chooses(self, pending, allowed, C=1.0):
        policy, pending = self.policy, np.array(pending, int)
        if getattr(policy, "switching", None) is not None:
            return None
        if isinstance(policy, naive.UCB1):
            return naive.pending_ucb1(policy, pending, allowed)
        return naive.pending_select(policy, pending, allowed, C)


class Clustered(Fixed):
    """CS-LB on fixed arms."""

    def chooses(self, pending, allowed, C=1.0):
        if not len(pending):
            return self.policy.select() if allowed[self.policy.select()] else None
        return naive.pending_select(self.policy, np.array(pending, int), allowed, C)


UNRECORDED = 5  # the sketch size that version 0.1.0 used where it recorded none
_SHARED = {"ridge", "noise", "theta_norm", "arm_norm", "delta"}
_SKETCHED = _SHARED | {"sketch_size", "shrink", "radius"}
KINDS = {  # policy: twin, slow policy, the options that it knows, under which names
    "multiscale": (None, Multiscale, _SHARED | {"sketch_size", "radius", "budget", "explore", "horizon", "seed"}),
    "cslb": (Clustered, naive.CSLB, _SHARED | {"sketch_size", "radius"}),
    "oful": (Growing, naive.OFUL, _SHARED | {"radius", "switching", "cap"}),
    "linucb": (Growing, naive.LinUCB, {"ridge", "alpha"}),
    "ucb1": (Growing, naive.UCB1, {"noise", "exploration"}),
    "lints": (Fixed, naive.LinTS, _SHARED | {"radius", "horizon"}),
    "soful": (Fixed, naive.SOFUL, _SKETCHED),
    "cbscfd": (Fixed, naive.CBSCFD, _SKETCHED),
}
NEUTRAL = {"tolerance": 0.0, "engine": "coordinates", "scan": "auto", "exploration": "ucb"}  # as though not given


def twin_of(config, arms):
    """The twin of a bandit as the log describes it, None where there is none for its policy and options."""
    options = {name: _value(value) for name, value in config["options"].items()}
    options = {
        name: value
        for name, value in options.items()
        if (value is not None or name == "ridge") and NEUTRAL.get(name) != value
    }
    wrapper, policy, known = KINDS.get(config["policy"], (None, None, set()))
    if policy is None or set(options) - known:
        return None
    if policy is Multiscale and "explore" not in options:
        return None  # decisions of an earlier version, whose algorithm was another
    if "sketch_size" in known:
        options.setdefault("sketch_size", UNRECORDED)
    if "exploration" in options:
        options["c"] = options.pop("exploration")
    if "seed" in known:
        options["seed"] = config["seed"]
    slow = policy(arms, **options)
    return slow if wrapper is None else wrapper(slow)


def taught(twin, counts, sums):
    """Let a new twin learn so many rewards of each arm, each their mean, arm by arm."""
    for arm in np.flatnonzero(counts).tolist():
        for _ in range(int(counts[arm])):
            twin.record(arm, sums[arm] / counts[arm])


def _value(value):
    """Options may be written as text."""
    if not isinstance(value, str):
        return value
    try:
        return float(value) if set(value) & set(".eE") else int(value)
    except ValueError:
        return {"true": True, "false": False, "none": None}.get(value.lower(), value)
