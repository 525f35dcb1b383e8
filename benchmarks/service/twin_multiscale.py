"""Multi-scale CS-LB by explicit matrices: `naive.NaiveMultiscale` with arms that come and go and pulls pending."""

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

import naive

SPARE = 8  # CS-LB makes one more empty cluster for so many
MORE_ARMS = 1.1  # the space's ridge is looked at again when there are so many times as many arms


class Multiscale(naive.NaiveMultiscale):
    """The policy; fits are kept until they change, and what a look costs counts slots without an arm too."""

    grows, frees, cheap, slow = True, False, False, True  # see `twins.Fixed`
    kept = None  # means and half-widths of all arms on their rays, then in their clusters

    def __init__(self, arms, *, horizon=None, **options):
        """``horizon`` only warns."""
        super().__init__(arms, **options)
        self.bases = [naive.span(self.arms[of]) for of in self.members]
        self.basis = np.linalg.svd(self.arms, full_matrices=False)[2][: self.D]
        self.first_rays, self.first_clusters = self.n_rays, self.K
        self.ridges, self.arms_seen = 1, self.N

    # Fits.

    def direction(self):
        return self.fits()[0]

    def cluster(self):
        return self.fits()[1]

    def fits(self):
        if self.kept is None:
            self.kept = np.zeros((2, 2, self.N))
            for ray in range(self.n_rays):
                self._fit_ray(ray)
            for c in range(len(self.members)):
                self._fit_cluster(c)
        return self.kept

    def _fit_ray(self, ray):
        own = np.flatnonzero(self.rays == ray)
        self.kept[0][:, own] = self.ray_interval(own, self.ray_shares[ray])

    def _fit_cluster(self, c):
        means, widths, beta = self.fit_of(c, self.counts)
        self.kept[1][:, self.members[c]] = means, beta * widths

    def fit_of(self, c, counts):
        """A cluster's fit, with the number of its arms' rewards."""
        as_one = np.zeros(self.N, int)
        return self.fit(counts, self.sums, as_one, self.rank, self.cluster_shares[c], self.members[c])

    # The round.

    def absorb(self, arm, reward):
        super().absorb(arm, reward)
        self._fit_cluster(self.labels[arm])
        if self.rays[arm] >= 0:
            self._fit_ray(self.rays[arm])

    def record(self, arm, reward):
        self.update(arm, reward)

    def chooses(self, pending, allowed, C=1.0):
        """The choice with pulls outstanding."""
        if not len(pending) and allowed[self.choice]:
            return self.choice
        if self.draws:
            return self.drawn(allowed, pending)
        return Pending(self, (1.0 + C) * (1.0 + naive.TIE)).choose(pending, allowed)

    # Arms that come and go.

    def remove(self, arms):
        self.active[arms] = False
        self.choice = self.best()

    def add(self, arms):
        if self.given_budget != 0:
            for x in arms:
                self.basis = naive.extend(self.basis, x)
            self.D = len(self.basis)
        for x in arms:
            self._join(x)
        self._number()
        if self.D > 0:
            self.show()
            self.ask(np.arange(self.N - len(arms), self.N))
        self.choice = self.best()
        self.set_budget()
        self._follow_rank()

    def _join(self, x):
        """Append an arm of which nothing is known, and make room for it."""
        c = naive.join(self.bases, x, self.sketch_size)
        if c == len(self.members):
            self.members.append(np.zeros(0, int))
        if c == len(self.rooms):
            self.rooms += [min(self.sketch_size, self.d)] * max(1, c // SPARE)
        elif self.members[c].size == self.rooms[c]:
            self.rooms[c] *= 2
        self.members[c] = np.append(self.members[c], self.N)
        self.arms, self.N = np.vstack([self.arms, x]), self.N + 1
        of_new = {"labels": c, "active": True, "counts": 0, "sums": 0, "space": np.inf, "stamps": -1}
        for name, value in (of_new | {"guess": 0, "width": np.inf}).items():
            setattr(self, name, np.append(getattr(self, name), value))

    def _number(self):
        """What follows from all arms and their clusters."""
        self.kept, self.order = None, np.concatenate(self.members)
        self.norms = np.linalg.norm(self.arms, axis=1)
        self.L = max(self.L, self.norms.max())
        self.rays = naive.lines(self.arms)
        self.n_rays = self.rays.max() + 1
        self.ray_shares = _shares(0.9 * 0.5 * self.delta, self.first_rays, self.n_rays)
        self.cluster_shares = _shares(0.9 * 0.1 * self.delta, self.first_clusters, len(self.members))

    def _follow_rank(self):
        """The ridge doubles where the effective rank has; each ridge has its own share of delta."""
        if self.given_ridge or self.D == 0 or MORE_ARMS * self.arms_seen > self.N:
            return
        self.arms_seen, unit = self.N, max(self.R / self.S, 1e-3 * self.L) ** 2
        doublings = np.floor(np.log2(self.effective_rank(unit) * unit / self.ridge_of(self.effective)) + 1e-9)
        if doublings < 1:
            return
        self.effective *= 2**doublings
        self.ridges += int(doublings)
        self.space_share = 0.4 * self.delta * 0.1 / (self.ridges * (self.ridges - 1))
        self.version += 1
        self.show()
        self.ask(np.flatnonzero(self.stamps >= 0))
        self.choice = self.best()


class Pending:
    """Each pull outstanding returned its mean: its cluster's V and its ray's grow by it, by a factor ``limit`` at most.

    All radii are multiplied by the root of the largest growth; widths on the scales of direction and space are divided
    by the root of the ray's. Whoever leads with a width of an older fit of the space is looked at in the published one.
    """

    def __init__(self, twin, limit):
        self.twin, self.limit, self.counts, self.pulls = twin, limit, twin.counts.copy(), np.zeros(twin.N, int)
        self.ratio, self.full = np.ones(len(twin.members)), np.zeros(len(twin.members), bool)
        self.ray_ratio = np.ones(twin.n_rays + 1)  # the last: of zero arms, which have no ray
        self.ray, self.cluster = twin.direction(), twin.cluster().copy()
        known = (twin.stamps >= 0) & (twin.stamps == twin.version)
        self.space = np.array([twin.guess, np.where(known, twin.beta * twin.width, np.inf)])
        self.stale = (twin.stamps >= 0) & ~known
        prior = twin.S * twin.norms
        in_cluster = np.minimum(self.cluster[0] - self.cluster[1], prior)
        self.lower = np.max([in_cluster, self.ray[0] - self.ray[1], self.space[0] - self.space[1]], axis=0)

    def growths(self, arm):
        """Of the determinants of the cluster's V, as a factor, and of the ray's, as a summand, by one more pull."""
        twin, c, ray = self.twin, self.twin.labels[arm], self.twin.rays[arm]
        _, widths, _ = twin.fit_of(c, self.counts)
        gain, own = 0.0, np.flatnonzero(twin.rays == ray)
        if ray >= 0:
            lengths, information, ridge = twin.on_ray(own)
            gain = lengths[own == arm].item() ** 2 / (ridge + information)
        return 1.0 + widths[twin.members[c] == arm].item() ** 2, gain

    def fits(self, arm):
        (factor, gain), c = self.growths(arm), self.twin.labels[arm]
        if self.full[c] or self.ray_ratio[self.twin.rays[arm]] + gain > self.limit:
            return False
        return self.ratio[c] * factor <= self.limit

    def pull(self, arm):
        (factor, gain), c = self.growths(arm), self.twin.labels[arm]
        self.pulls[arm] += 1
        if self.full[c] or not self.fits(arm):
            self.full[c] = True
            return
        before = self.twin.fit_of(c, self.counts)[1]
        self.ratio[c] *= factor
        self.ray_ratio[self.twin.rays[arm]] += gain
        self.counts[arm] += 1
        after = self.twin.fit_of(c, self.counts)[1]
        self.cluster[1, self.twin.members[c]] *= np.divide(after, before, out=np.ones(after.size), where=before > 0)

    def bounds(self):
        """Inflated, with the prior's cap and without."""
        twin, factor = self.twin, np.sqrt(max(self.ratio.max(), self.ray_ratio.max()))
        on_ray = factor / np.sqrt(self.ray_ratio[twin.rays])
        scales = [(self.cluster, factor), (self.ray, on_ray), (self.space, on_ray)]
        upper = np.min([twin.space, *(fit[0] + f * fit[1] for fit, f in scales)], axis=0)
        return np.minimum(upper, twin.S * twin.norms), upper

    def first(self, among):
        capped, upper = self.bounds()
        return int(among[naive.ordered_argmax(capped[among], upper[among])])

    def choose(self, pending, allowed):
        for arm in pending:
            self.pull(arm)
        twin, among = self.twin, self.twin.order[allowed[self.twin.order]]
        while self.stale[best := self.first(among)]:
            self.stale[best] = False
            self.space[:, best] = twin.shown_means[best], twin.beta * twin.shown_widths[best]
        if self.fits(best):
            return best
        capped, _ = self.bounds()
        least = self.lower[among].max()
        plausible = among[capped[among] >= least - naive.TIE * abs(least)]
        plausible = plausible if plausible.size else among
        pulls = self.pulls[plausible]
        return self.first(plausible[pulls == pulls.min()])


def _shares(part, first, total):
    """delta' of each: ``first`` known at the beginning have one share of ``first + 1``, later ones divide the last."""
    later = np.arange(1, total - first + 1)
    return part / (first + 1) / np.concatenate([np.ones(min(first, total)), later * (later + 1.0)])
