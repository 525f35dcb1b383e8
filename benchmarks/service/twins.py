"""Slow, obvious twins of a bandit's policy, for `checker.py`: those of ``tests/naive.py``, with arms that come and go.

A twin books rewards, adds and removes arms, and says every arm's bound. `chooses` says which arm the policy plays while
decisions are outstanding, None where there is no slow rule to compare with.
"""

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

import naive

SKETCH_SIZE = 5  # the service's, where a bandit is not given one
SPARE = 8  # CS-LB makes one more empty cluster for so many


class Fixed:
    """A twin from ``naive`` whose arms stay: only its bounds are compared."""

    def __init__(self, policy):
        self.policy, self.active = policy, np.ones(policy.N, bool)
        self.cheap = isinstance(policy, naive.UCB1)  # to ask for a choice

    def book(self, arm, reward):
        self.policy.update(arm, reward)

    def bounds(self):
        return self.policy.bounds()

    def chooses(self, pending, allowed):
        return None

    def add(self, arms):
        raise NotImplementedError

    def remove(self, arms):
        raise NotImplementedError


class Growing(Fixed):
    """OFUL, LinUCB and UCB1: one more arm is one more row."""

    def add(self, arms):
        policy, more = self.policy, len(arms)
        policy.arms = np.vstack([policy.arms, arms])
        policy.N, policy.norms = len(policy.arms), np.linalg.norm(policy.arms, axis=1)
        if hasattr(policy, "counts"):
            policy.counts, policy.sums = (np.append(old, np.zeros(more)) for old in (policy.counts, policy.sums))
        self.active = np.append(self.active, np.ones(more, bool))

    def remove(self, arms):
        self.active[arms] = False

    def chooses(self, pending, allowed):
        policy, pending = self.policy, np.array(pending, int)
        if getattr(policy, "switching", None) is not None:
            return None
        rule = naive.pending_ucb1 if isinstance(policy, naive.UCB1) else naive.pending_select
        return rule(policy, pending, allowed)


class Clustered(Fixed):
    """CS-LB on fixed arms."""

    def chooses(self, pending, allowed):
        if not len(pending):
            return self.policy.select() if allowed[self.policy.select()] else None
        return naive.pending_select(self.policy, np.array(pending, int), allowed)


class Multiscale:
    """Multi-scale CS-LB by explicit matrices, as `naive.NaiveMultiscale`, with arms that come and go.

    Its budget counts free slots too: a cluster's room doubles when it is full, and empty clusters are made ahead.
    """

    cheap = True

    def __init__(
        self, arms, *, sketch_size=SKETCH_SIZE, ridge=None, radius="mixture", budget=2048, noise=1.0, theta_norm=1.0,
        arm_norm=None, delta=0.01,
    ):  # fmt: skip
        first = naive.NaiveMultiscale(
            arms, sketch_size=sketch_size, ridge=ridge, radius=radius, budget=budget, noise=noise,
            theta_norm=theta_norm, arm_norm=arm_norm, delta=delta,
        )  # fmt: skip
        self.policy, self.sketch_size, self.radius, self.budget = first, sketch_size, radius, float(budget)
        self.R, self.S, self.delta, self.D, self.rank = first.R, first.S, delta, first.D, first.rank
        self.most = first.most
        self.arms, self.norms = first.arms, first.norms
        n, self.d = self.arms.shape
        self.active, self.inside = np.ones(n, bool), np.full(n, self.D > 0)
        self.counts, self.sums, self.space = np.zeros(n), np.zeros(n), np.full(n, np.inf)
        self.stamps = np.zeros(n, int)
        self.queued, self.frozen = np.zeros((2, n)), np.zeros((2, n))  # counts and sums: all so far, and when frozen
        self.published = None  # theta, V^-1 and radius
        self.bank = self.news = 0.0
        self.version, self.rows_left, self.changed = 0, 0, set()
        self.first_clusters, self.first_rays = first.K, first.n_rays
        self.rooms = np.bincount(first.labels).tolist()
        self._group()
        self._find()

    # Where arms belong.

    def _group(self):
        self.labels, self.rays = naive.first_fit(self.arms, self.sketch_size), naive.lines(self.arms)
        self.members = [np.flatnonzero(self.labels == c) for c in range(self.labels.max() + 1)]
        heads = [int(np.flatnonzero(self.rays == g)[0]) for g in range(self.rays.max() + 1)]
        units = self.arms[heads] / self.norms[heads, None] if heads else np.zeros((1, self.d))
        self.lengths = np.where(self.rays < 0, 0.0, (self.arms * units[self.rays]).sum(axis=1))
        self.ray_shares = _shares(0.9 * 0.9 * self.delta, self.first_rays, max(len(heads), 1))
        self.cluster_shares = _shares(0.9 * 0.09 * self.delta, self.first_clusters, len(self.members))
        self.cluster = np.zeros(len(self.arms))
        for c in range(len(self.members)):
            self._fit_cluster(c)

    def add(self, arms):
        more = len(arms)
        for x in arms:
            self.arms = np.vstack([self.arms, x])
            self._make_room(naive.first_fit(self.arms, self.sketch_size))
        self.norms = np.linalg.norm(self.arms, axis=1)
        self.active = np.append(self.active, np.ones(more, bool))
        self.inside = np.append(self.inside, np.full(more, self.d == self.D))
        self.counts, self.sums = np.append(self.counts, np.zeros(more)), np.append(self.sums, np.zeros(more))
        self.space, self.stamps = np.append(self.space, np.full(more, np.inf)), np.append(self.stamps, [0] * more)
        self.queued, self.frozen = (np.hstack([old, np.zeros((2, more))]) for old in (self.queued, self.frozen))
        self._group()
        self._find()

    def _make_room(self, labels):
        """For the last arm."""
        c = int(labels[-1])
        if c == len(self.rooms):
            self.rooms += [self.rank] * max(1, c // SPARE)
        elif np.count_nonzero(labels == c) > self.rooms[c]:
            self.rooms[c] *= 2

    def remove(self, arms):
        self.active[arms] = False
        self._find()

    # Bounds.

    def _beta(self, information, share, ridge):
        squares = self.R**2 * (information + 2 * np.log(1 / share))
        if self.radius == "mixture":
            return np.sqrt(squares + ridge * self.S**2)
        return np.sqrt(squares) + np.sqrt(ridge) * self.S

    def _fit(self, rows, counts, sums, rank, share):
        """theta, V^-1 and radius of a ridge fit."""
        ridge = self.policy.ridge_of(rank)
        V = ridge * np.eye(self.d) + rows.T @ (counts[:, None] * rows)
        return np.linalg.solve(V, rows.T @ sums), np.linalg.inv(V), self._beta(naive.logdet(V / ridge), share, ridge)

    def _fit_cluster(self, c):
        of = self.members[c]
        theta, inverse, beta = self._fit(
            self.arms[of], self.counts[of], self.sums[of], self.rank, self.cluster_shares[c]
        )
        self.cluster[of] = self.arms[of] @ theta + beta * naive.norms_under(self.arms[of], inverse)

    def _direction(self):
        """A ray's fit is one number: V = ridge + sum n s^2, b = sum s y."""
        ridge, own, rays = self.policy.ridge_of(1), self.rays >= 0, self.ray_shares.size
        sums = [np.bincount(self.rays[own], value[own], rays) for value in (self.counts * self.lengths**2,
                                                                            self.sums * self.lengths)]  # fmt: skip
        V = ridge + sums[0]
        beta = self._beta(np.log(V / ridge), self.ray_shares, ridge)
        s = self.lengths
        return np.where(own, s * (sums[1] / V)[self.rays] + np.abs(s) * (beta / np.sqrt(V))[self.rays], 0.0)

    def _uncapped(self):
        return np.minimum(np.minimum(self._direction(), self.cluster), self.space)

    def bounds(self):
        return np.minimum(self._uncapped(), self.S * self.norms)

    # The round.

    def book(self, arm, reward):
        c = self.labels[arm]
        of, x = self.members[c], self.arms[arm]
        V = self.policy.ridge_of(self.rank) * np.eye(self.d)
        V += self.arms[of].T @ (self.counts[of][:, None] * self.arms[of])
        self.news += x @ np.linalg.solve(V, x)
        self.counts[arm] += 1
        self.sums[arm] += reward
        self._fit_cluster(c)
        if self.inside[arm]:
            self.queued[:, arm] += 1, reward
            self.changed.add(arm)
        self.bank = min(self.bank + self.budget, self.most)
        if self.D > 0:
            self._work_off()
        self._find()

    def _work_off(self):
        while self.bank >= 3 * self.D**2:
            if self.rows_left == 0:
                if not self.changed or self.news < 1 / 16:
                    return
                self.frozen, self.news = self.queued.copy(), 0.0
                self.rows_left, self.changed = len(self.changed), set()
            self.bank -= 3 * self.D**2
            self.rows_left -= 1
            if self.rows_left == 0:
                self.bank -= 1.5 * self.D**2
                self.version += 1
                self.published = self._fit(self.arms, *self.frozen, self.D, 0.01 * self.delta)

    def _find(self):
        """The arm that leads, asked for its space bound as long as that is from an older fit and can be paid."""
        direction = self._direction()
        while True:
            uncapped = np.minimum(np.minimum(direction, self.cluster), self.space)
            uncapped = np.where(self.active, uncapped, -np.inf)
            arm = self._leader(np.minimum(uncapped, self.S * self.norms), uncapped)
            cost = self.D**2 + self.rooms[self.labels[arm]] + len(self.rooms)
            if self.D == 0 or not self.inside[arm] or self.stamps[arm] == self.version or self.bank < cost:
                self.choice = arm
                return
            self.bank -= cost
            theta, inverse, beta = self.published
            x = self.arms[arm]
            self.space[arm], self.stamps[arm] = x @ theta + beta * np.sqrt(x @ inverse @ x), self.version

    def _leader(self, capped, uncapped):
        living = [of[self.active[of]] for of in self.members if self.active[of].any()]
        heads = [of[naive.ordered_argmax(capped[of], uncapped[of])] for of in living]
        return int(heads[naive.ordered_argmax([capped[of].max() for of in living], uncapped[heads])])

    def chooses(self, pending, allowed):
        """Only with nothing outstanding: there is no slow twin of its rule for pending pulls."""
        return self.choice if not len(pending) and allowed[self.choice] else None


def _shares(part, first, total):
    """delta' of each: ``first`` known at the beginning have one share of ``first + 1``, later ones divide the last."""
    later = np.arange(1, total - first + 1)
    return part / (first + 1) / np.concatenate([np.ones(min(first, total)), later * (later + 1.0)])


_SHARED = {"ridge", "noise", "theta_norm", "arm_norm", "delta"}
_SKETCHED = _SHARED | {"sketch_size", "shrink", "radius"}
KINDS = {  # policy: twin, slow policy, the options that it knows, under which names
    "multiscale": (None, Multiscale, _SHARED | {"sketch_size", "radius", "budget"}),
    "cslb": (Clustered, naive.CSLB, _SHARED | {"sketch_size", "radius"}),
    "oful": (Growing, naive.OFUL, _SHARED | {"radius", "switching"}),
    "linucb": (Growing, naive.LinUCB, {"ridge", "alpha"}),
    "ucb1": (Growing, naive.UCB1, {"noise", "exploration"}),
    "lints": (Fixed, naive.LinTS, _SHARED | {"radius", "horizon"}),
    "soful": (Fixed, naive.SOFUL, _SKETCHED),
    "cbscfd": (Fixed, naive.CBSCFD, _SKETCHED),
}


def twin_of(config, arms):
    """The twin of a bandit as the log describes it, None where there is none for its policy and options."""
    options = {name: _value(value) for name, value in config["options"].items()}
    wrapper, policy, known = KINDS.get(config["policy"], (None, None, set()))
    if policy is None or set(options) - known:
        return None
    if "sketch_size" in known:
        options.setdefault("sketch_size", SKETCH_SIZE)
    if "exploration" in options:
        options["c"] = options.pop("exploration")
    slow = policy(arms, **options)
    return slow if wrapper is None else wrapper(slow)


def _value(value):
    """Options may be written as text."""
    if not isinstance(value, str):
        return value
    try:
        return float(value) if set(value) & set(".eE") else int(value)
    except ValueError:
        return {"true": True, "false": False, "none": None}.get(value.lower(), value)
