"""What is shown of a bandit: pages of arms, clusters with their sentinels, activity."""

import math
from collections import Counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sketchbandits import snapshot
from sketchbandits.kernels.linalg import Floats
from sketchbandits.service.bandits.bandit import Bandit
from sketchbandits.service.http.schemas import ArmsQuery


def bandit_entry(bandit: Bandit) -> dict[str, Any]:
    """A bandit in numbers."""
    return {
        "name": bandit.name,
        "policy": bandit.config.policy,
        "arms": int(bandit.active.size),
        "dimension": bandit.policy.dim,
        "decisions": bandit.decisions,
        "rewards": bandit.rewards,
        "outstanding": len(bandit.waiting),
        "defaults": bandit.defaults,
        "mean_reward": bandit.reward_sum / bandit.rewards if bandit.rewards else None,
        "created": bandit.created,
    }


def arms_page(bandit: Bandit, query: ArmsQuery) -> dict[str, Any]:
    """Arms whose id contains the search text, in order; among equals the one that was added first."""
    counts = bandit.policy.counts
    sums = bandit.reward_sums
    means = np.divide(sums, counts, out=np.full(counts.size, -np.inf), where=counts > 0)
    wanted = query.search.lower()
    found = np.array([i for i, name in enumerate(bandit.ids) if wanted in name.lower()], np.int64)
    columns = {"pulls": counts, "mean": means, "estimate": bandit.estimates, "bound": bandit.bounds}
    order = _order(bandit, query.sort, found, columns)
    page, active = order[query.offset : query.offset + query.limit], bandit.policy.active
    pending = Counter(waiting.arm for waiting in bandit.waiting.values())
    shown = [
        {
            "id": bandit.ids[i],
            "pulls": int(counts[i]),
            "mean": _finite(means[i]),
            "estimate": _finite(bandit.estimates[i]),
            "bound": _finite(bandit.bounds[i]),
            "active": bool(active[i]),
            "pending": pending[i],
        }
        for i in page.tolist()
    ]
    return {"bandit": bandit.name, "total": int(found.size), "arms": shown}


def _order(bandit: Bandit, sort: str, found: NDArray[np.int64], columns: dict[str, Any]) -> NDArray[np.int64]:
    if sort == "id":
        return np.array(sorted(found.tolist(), key=lambda i: bandit.ids[i]), np.int64)
    ordered: NDArray[np.int64] = found[np.argsort(-columns[sort][found], kind="stable")]
    return ordered


def policy_view(bandit: Bandit, limit: int) -> dict[str, Any]:
    """The policy's settings, its memory, and its clusters where it has any."""
    policy = bandit.policy
    partition = getattr(policy, "partition", None)
    return {
        "bandit": bandit.name,
        "policy": bandit.config.policy,
        "settings": {name: _shown(value) for name, value in policy.settings.items()},
        "arms": int(bandit.active.size),
        "dimension": policy.dim,
        "rewards": bandit.rewards,
        "memory_bytes": sum(array.nbytes for _, array in snapshot.leaves(policy.state)),
        "clusters": None if partition is None else _clusters(bandit, partition.labels, partition.ranks, limit),
    }


def _clusters(bandit: Bandit, labels: NDArray[np.int64], ranks: NDArray[np.int64], limit: int) -> dict[str, Any]:
    """Each cluster with the largest bound in it, largest first; one whose arms are all removed has none to show."""
    bounds = np.where(bandit.policy.active, bandit.bounds, -np.inf)
    by_cluster = np.lexsort((np.arange(labels.size), -bounds, labels))
    clusters, first = np.unique(labels[by_cluster], return_index=True)
    sentinels = by_cluster[first]
    sizes = np.bincount(labels, weights=bandit.policy.active, minlength=ranks.size)
    pulls = np.bincount(labels, weights=bandit.policy.counts, minlength=ranks.size)
    order = [c for c in np.argsort(-bounds[sentinels], kind="stable").tolist() if bounds[sentinels[c]] > -np.inf]
    shown = [
        {
            "cluster": int(clusters[c]),
            "arms": int(sizes[clusters[c]]),
            "rank": int(ranks[clusters[c]]),
            "pulls": int(pulls[clusters[c]]),
            "sentinel": {"arm": bandit.ids[sentinels[c]], "bound": _finite(bounds[sentinels[c]])},
        }
        for c in order[:limit]
    ]
    return {"total": int(ranks.size), "shown": shown}


def minutes(bandit: Bandit) -> list[dict[str, Any]]:
    """The last day by minutes, oldest first."""
    names = ("decisions", "rewards", "reward_sum", "defaults")
    return [{"time": start, **dict(zip(names, bandit.minutes[start], strict=True))} for start in sorted(bandit.minutes)]


def _finite(value: float | Floats) -> float | None:
    return float(value) if math.isfinite(value) else None


def _shown(value: Any) -> Any:
    """A setting as JSON can say it."""
    if isinstance(value, bool | int | str | None):
        return value
    return _finite(value) if isinstance(value, float) else repr(value)
