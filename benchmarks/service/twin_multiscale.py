"""Multi-scale CS-LB by explicit matrices, as `naive.NaiveMultiscale`, with arms that come and go and pulls pending."""

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

import naive

SKETCH_SIZE = 5  # of bandits that version 0.1.0 created without one
SPARE = 8  # CS-LB makes one more empty cluster for so many


class Multiscale:
    """The policy; its budget counts free slots too: a full cluster's slots double, and empty ones are made ahead."""

    grows, frees, cheap, slow = True, False, False, True  # see `twins.Fixed`

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
        self.counts, self.sums = np.zeros(n), np.zeros(n)
        self.space, self.space_width = np.full(n, np.inf), np.zeros(n)
        self.stamps = np.zeros(n, int)
        self.queued, self.frozen = np.zeros((2, n)), np.zeros((2, n))  # counts and sums: all so far, and when frozen
        self.published = None  # theta, V and radius
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
        self.cluster, self.fits = np.zeros(len(self.arms)), [None] * len(self.members)
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
        self.space_width = np.append(self.space_width, np.zeros(more))
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
        """theta, V and radius of a ridge fit."""
        ridge = self.policy.ridge_of(rank)
        V = ridge * np.eye(self.d) + rows.T @ (counts[:, None] * rows)
        return np.linalg.solve(V, rows.T @ sums), V, self._beta(naive.logdet(V / ridge), share, ridge)

    def _fit_cluster(self, c):
        of = self.members[c]
        fit = self._fit(self.arms[of], self.counts[of], self.sums[of], self.rank, self.cluster_shares[c])
        theta, V, beta = self.fits[c] = fit
        self.cluster[of] = self.arms[of] @ theta + beta * naive.norms_under(self.arms[of], np.linalg.inv(V))

    def _rays(self):
        """Means, widths and V of every arm's ray, which is one number: V = ridge + sum n s^2, b = sum s y."""
        ridge, own, count, s = self.policy.ridge_of(1), self.rays >= 0, self.ray_shares.size, self.lengths
        information, b = (
            np.bincount(self.rays[own], value[own], count) for value in (self.counts * s**2, self.sums * s)
        )
        V = ridge + information
        beta = self._beta(np.log(V / ridge), self.ray_shares, ridge)
        return s * (b / V)[self.rays], np.abs(s) * (beta / np.sqrt(V))[self.rays], V[self.rays]

    def _direction(self):
        mean, width, _ = self._rays()
        return mean + width

    def _uncapped(self):
        return np.minimum(np.minimum(self._direction(), self.cluster), self.space)

    def bounds(self):
        return np.minimum(self._uncapped(), self.S * self.norms)

    # The round.

    def record(self, arm, reward):
        c = self.labels[arm]
        x = self.arms[arm]
        self.news += x @ np.linalg.solve(self.fits[c][1], x)
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
            theta, V, beta = self.published
            x = self.arms[arm]
            self.space_width[arm] = beta * np.sqrt(x @ np.linalg.solve(V, x))
            self.space[arm], self.stamps[arm] = x @ theta + self.space_width[arm], self.version

    def _leader(self, capped, uncapped):
        clusters = [of[self.active[of]] for of in self.members if self.active[of].any()]
        heads = [of[naive.ordered_argmax(capped[of], uncapped[of])] for of in clusters]
        return int(heads[naive.ordered_argmax([capped[of].max() for of in clusters], uncapped[heads])])

    def chooses(self, pending, allowed, C=1.0):
        """The choice with pulls outstanding; see `Pending`."""
        if not len(pending) and allowed[self.choice]:
            return self.choice
        return Pending(self, (1.0 + C) * (1.0 + naive.TIE)).choose(pending, allowed)


class Pending:
    """Each pull outstanding returned its mean: its cluster's V and its ray's grow by it, by a factor ``limit`` at most.

    All radii are multiplied by the root of the largest growth; widths on the scales of direction and space are divided
    by the root of the ray's.
    """

    def __init__(self, twin, limit):
        self.twin, self.limit = twin, limit
        self.ray_mean, self.ray_width, ray_V = twin._rays()
        self.gain = np.where(twin.rays >= 0, twin.lengths**2 / ray_V, 0.0)
        self.V = [fit[1] for fit in twin.fits]
        self.ratio, self.full = np.ones(len(self.V)), np.zeros(len(self.V), bool)
        self.ray_ratio, self.pulls = np.ones(twin.ray_shares.size + 1), np.zeros(len(twin.arms), int)  # last: no ray

    def growth(self, arm):
        """Of the cluster's determinant, by one more pull."""
        x = self.twin.arms[arm]
        return 1.0 + x @ np.linalg.solve(self.V[self.twin.labels[arm]], x)

    def fits(self, arm):
        c = self.twin.labels[arm]
        if self.full[c] or self.ray_ratio[self.twin.rays[arm]] + self.gain[arm] > self.limit:
            return False
        return self.ratio[c] * self.growth(arm) <= self.limit

    def pull(self, arm):
        c = self.twin.labels[arm]
        self.pulls[arm] += 1
        if not self.full[c] and self.fits(arm):
            self.ratio[c] *= self.growth(arm)
            self.V[c] = self.V[c] + np.outer(self.twin.arms[arm], self.twin.arms[arm])
            self.ray_ratio[self.twin.rays[arm]] += self.gain[arm]
        else:
            self.full[c] = True

    def bounds(self):
        """Inflated bounds without cap, and observed lower bounds."""
        twin = self.twin
        factor = np.sqrt(max(self.ratio.max(), self.ray_ratio.max()))
        upper, lower = np.zeros(len(twin.arms)), np.zeros(len(twin.arms))
        for of, (theta, observed, beta), imagined in zip(twin.members, twin.fits, self.V, strict=True):
            rows = twin.arms[of]
            upper[of] = rows @ theta + factor * beta * naive.norms_under(rows, np.linalg.inv(imagined))
            lower[of] = rows @ theta - beta * naive.norms_under(rows, np.linalg.inv(observed))
        f = factor / np.sqrt(self.ray_ratio[twin.rays])
        space_mean = twin.space - twin.space_width
        upper = np.min([upper, self.ray_mean + f * self.ray_width, space_mean + f * twin.space_width], axis=0)
        below = np.where(np.isinf(space_mean), -np.inf, space_mean - twin.space_width)
        lower = np.minimum(lower, twin.S * twin.norms)
        return upper, np.max([lower, self.ray_mean - self.ray_width, below], axis=0)

    def choose(self, pending, allowed):
        for arm in pending:
            self.pull(arm)
        upper, lower = self.bounds()
        capped = np.minimum(upper, self.twin.S * self.twin.norms)
        order = np.concatenate(self.twin.members)
        among = order[allowed[order]]

        def first(among):
            return int(among[naive.ordered_argmax(capped[among], upper[among])])

        if self.fits(best := first(among)):
            return best
        least = lower[among].max()
        plausible = among[capped[among] >= least - naive.TIE * abs(least)]
        plausible = plausible if plausible.size else among
        pulls = self.pulls[plausible]
        return first(plausible[pulls == pulls.min()])


def _shares(part, first, total):
    """delta' of each: ``first`` known at the beginning have one share of ``first + 1``, later ones divide the last."""
    later = np.arange(1, total - first + 1)
    return part / (first + 1) / np.concatenate([np.ones(min(first, total)), later * (later + 1.0)])
