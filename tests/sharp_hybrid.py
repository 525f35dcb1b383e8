"""The hybrid model in 80 digits, and games in which fast fits lose digits.

One dense Bayesian regression on shared and own coefficients, nothing eliminated.

What the policy chose is taken from it (coordinates, scale, ridges, centre); contexts and rewards are those recorded.
Python's `decimal`, in arrays of objects, takes a tenth of the time of mpmath.
"""

import decimal
from typing import NamedTuple

import numpy as np

from sketchbandits import HybridCSLB
from sketchbandits.policies.hybrid.choice import predict

DIGITS = decimal.Context(prec=80)
exactly = np.frompyfunc(lambda value: decimal.Decimal(float(value)), 1, 1)  # a float is a decimal of finite length
root = np.frompyfunc(lambda value: value.sqrt(), 1, 1)


class SharpHybrid:
    """Sums of what each arm recorded, in 80 digits and in units of the rewards and contexts; scaled when asked."""

    def __init__(self, n_arms, length):
        """``length``: of a context with its constant."""
        self.squares = exactly(np.zeros((n_arms, length, length)))
        self.pulls, self.seen = exactly(np.zeros((2, n_arms, length)))

    def record(self, arm, context, reward):
        with decimal.localcontext(DIGITS):
            x = exactly(np.append(context, 1.0))
            self.squares[arm] += np.outer(x, x)
            self.pulls[arm] += x * exactly(reward)
            self.seen[arm] += x

    def predict(self, policy, contexts):
        """``(means above the centre, widths over R)``, one row per context."""
        state, level = policy.state, policy.state.level[0]
        with decimal.localcontext(DIGITS):
            whole, pull = self._regression(state, level)
            inverse = inverted(whole)
            theta = inverse @ pull
            means, widths = np.empty((2, len(contexts), len(self.squares)))
            for t, context in enumerate(contexts):
                u = exactly(np.append(context, 1.0)) * exactly(state.scale)
                X = np.array([u @ self._features(state, arm) for arm in range(len(self.squares))])
                means[t], widths[t] = X @ theta, root(((X @ inverse) * X).sum(axis=1))
        return means, widths

    def _regression(self, state, level):
        """The precision of all coefficients, and what rewards pull. Own coefficients come after all shared ones."""
        scale, shared = exactly(state.scale), state.shared.size
        ridges = np.full(shared + self.pulls.size, level["own_ridge"])
        ridges[:shared] = level["ridge"]
        precision, pull = exactly(np.diag(ridges)), exactly(np.zeros(ridges.size))
        targets = self.pulls - exactly(level["centre"]) * self.seen
        for arm, square in enumerate(self.squares):
            F = self._features(state, arm)
            places = np.flatnonzero((F != 0).any(axis=0))
            own = F[:, places]
            precision[np.ix_(places, places)] += own.T @ (square * np.outer(scale, scale)) @ own
            pull[places] += own.T @ (targets[arm] * scale)
        return precision, pull

    def _features(self, state, arm):
        """The features of this arm per entry of the context, one row each: u (x) z for its cluster, and u for it."""
        (k, p, r), first = state.shared.shape, int(state.cluster[arm])
        F = exactly(np.zeros((p, k * p * r + self.pulls.size)))
        for m in range(p):
            F[m, (first * p + m) * r : (first * p + m + 1) * r] = exactly(state.coordinates[arm])
            F[m, k * p * r + arm * p + m] = decimal.Decimal(1)
        return F


def inverted(matrix):
    """The inverse of a positive definite matrix, by Gauss and Jordan: no pivots are needed."""
    size = len(matrix)
    rows = np.concatenate([matrix, exactly(np.eye(size))], axis=1)
    for i in range(size):
        rows[i] /= rows[i, i]
        others = np.arange(size) != i
        rows[others] -= np.outer(rows[others, i], rows[i])
    return rows[:, size:]


def predicted(policy, contexts):
    """What the policy takes for the same."""
    means, widths = np.empty((2, len(contexts), policy.n_arms))
    for t, context in enumerate(contexts):
        predict(policy.state, np.append(context, 1.0), means[t], widths[t])
    return means, widths


ARMS = np.random.default_rng(3).normal(size=(6, 3))
USERS = np.random.default_rng(4).normal(size=(400, 2))
NOISE = np.random.default_rng(5).normal(size=1_000)
NEVER = 2**62

# Who comes in round t, and which arm is played. The last arm never is.
DIARIES = {
    "everybody": lambda t: (t % 5, t % 400),
    "nearly always one arm": lambda t: ({3: 1, 11: 2}.get(t, 4), t % 400),
    "two users, then three": lambda t: (t % 5, t % 2 if t < 90 else t % 3),
    "one user": lambda t: (t % 5, 0),
    "arms that begin late": lambda t: (t % 3 if t < 90 else t % 5, t % 400),
}


class Units(NamedTuple):
    """What contexts, features and rewards are multiplied by."""

    contexts: float = 1.0
    features: float = 1.0
    rewards: float = 1.0


class Played:
    """A policy and its twin, after a refit (`to_a_refit`) and after many rewards without one (`without_refits`)."""

    def __init__(self, diary, units=None, **options):
        self.diary, self.units, self.played = diary, units or Units(), 0
        self.policy = HybridCSLB(ARMS * self.units.features, context_dim=2, **options)
        self.twin = SharpHybrid(len(ARMS), 3)
        self.users = USERS * self.units.contexts

    def play(self):
        """One reward; whether a refit followed."""
        arm, user = self.diary(self.played)
        reward, due = (NOISE[self.played] + 0.3 * arm) * self.units.rewards, self.policy.state.level["due"][0]
        self.policy.update(arm, reward, context=self.users[user])
        self.twin.record(arm, self.users[user], reward)
        self.played += 1
        return self.policy.state.level["due"][0] != due

    def to_a_refit(self, least=60):
        while not self.play() or self.played < least:
            pass
        return self

    def without_refits(self, size=60):
        self.policy.state.level["due"] = NEVER
        for _ in range(size):
            self.play()
        return self

    def errors(self):
        """Of means over the largest mean above the centre, of widths over themselves, of widths over the largest."""
        contexts = np.concatenate([self.users[:3], self.users[399:]])  # the last one is new to all arms
        means, widths = predicted(self.policy, contexts)
        sharp_means, sharp_widths = self.twin.predict(self.policy, contexts)
        off = np.abs(widths - sharp_widths)
        wrong = np.abs(means - sharp_means).max() / np.abs(sharp_means).max()
        return wrong, (off / sharp_widths).max(), off.max() / sharp_widths.max()

    def hardness(self):
        """What is known best, of an arm's own fit or of the shared one, over the smaller ridge."""
        state, level = self.policy.state, self.policy.state.level[0]
        known = np.linalg.norm(state.factors[:, :-1, :-1] * state.scale, ord=2, axis=(1, 2)) ** 2
        told = max(1.0, float(known.max()), float(known @ (state.coordinates**2).sum(axis=1)))
        return told / min(float(level["own_ridge"]), float(level["ridge"]))
