"""What is shown of a bandit: pages of arms, clusters with their sentinels, activity.

Arms and clusters are shown from a `Picture`, in the thread that has computed it.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sketchbandits.kernels.linalg import Floats
from sketchbandits.policies.assumptions import Diagnostics
from sketchbandits.service.bandits.bandit import Bandit
from sketchbandits.service.bandits.pictures import Picture
from sketchbandits.service.bandits.places import FREED
from sketchbandits.service.http.schemas import ArmsQuery


def bandit_entry(bandit: Bandit) -> dict[str, Any]:
    """A bandit in numbers."""
    totals = bandit.totals
    return {
        "name": bandit.name,
        "policy": bandit.config.policy,
        "arms": int(bandit.active.size),
        "dimension": bandit.policy.dim,
        "decisions": totals.decisions,
        "rewards": totals.rewards,
        "outstanding": len(bandit.waiting),
        "defaults": totals.defaults,
        "retracted": totals.retracted,
        "mean_reward": totals.reward_sum / totals.rewards if totals.rewards else None,
        "reward_range": bandit.config.reward_range,
        "memory_bytes": bandit.state_bytes,
        "assumptions": _assumptions(bandit.diagnosed),
        "created": bandit.created,
    }


def _assumptions(found: Diagnostics) -> dict[str, Any]:
    """What the rewards say of the policy's parameters."""
    return {
        "noise": found.noise,
        "noise_seen": None if found.noise_seen is None else _finite(found.noise_seen),
        "theta_norm": found.theta_norm,
        "violated": [
            {name: value if name == "parameter" else _finite(value) for name, value in violation._asdict().items()}
            for violation in found.violated
        ],
    }


def arms_page(name: str, picture: Picture, query: ArmsQuery) -> dict[str, Any]:
    """Arms whose id contains the search text, in order; among equals the one that was added first."""
    wanted = query.search.lower()
    found = np.flatnonzero(~np.isnan(picture.estimates))
    if wanted:
        found = np.array([i for i in found.tolist() if wanted in picture.ids[i].lower()], np.int64)
    page = _order(picture, query.sort, found)[query.offset : query.offset + query.limit]
    shown = [
        {
            "id": picture.ids[i],
            "pulls": picture.counts.item(i),
            "mean": _finite(picture.means[i]),
            "estimate": _finite(picture.estimates[i]),
            "bound": _finite(picture.bounds[i]),
            "active": bool(picture.active[i]),
            "pending": picture.outstanding.item(i),
        }
        for i in page.tolist()
    ]
    return {"bandit": name, "total": int(found.size), "arms": shown}


def _order(picture: Picture, sort: str, found: NDArray[np.int64]) -> NDArray[np.int64]:
    if sort == "id":
        return np.array(sorted(found.tolist(), key=lambda i: picture.ids[i]), np.int64)
    columns = {"pulls": picture.counts, "mean": picture.means, "estimate": picture.estimates, "bound": picture.bounds}
    ordered: NDArray[np.int64] = found[np.argsort(-columns[sort][found], kind="stable")]
    return ordered


def policy_view(bandit: Bandit, picture: Picture, limit: int) -> dict[str, Any]:
    """The policy's settings, its memory, and its clusters where it has any."""
    return {
        "bandit": bandit.name,
        "policy": bandit.config.policy,
        "settings": {name: _shown(value) for name, value in picture.settings.items()},
        "arms": int(picture.active.sum()),
        "dimension": picture.dim,
        "rewards": picture.rewards,
        "memory_bytes": picture.memory_bytes,
        "clusters": None if picture.labels is None else _clusters(picture, limit),
    }


def _clusters(picture: Picture, limit: int) -> dict[str, Any]:
    """Each cluster with the largest bound in it, largest first; one whose arms are all removed has none to show."""
    assert picture.labels is not None and picture.ranks is not None
    own = np.flatnonzero(picture.labels != FREED)
    labels, ranks = picture.labels[own], picture.ranks
    bounds = np.where(picture.active[own], picture.bounds[own], -np.inf)
    by_cluster = np.lexsort((np.arange(labels.size), -bounds, labels))
    clusters, first = np.unique(labels[by_cluster], return_index=True)
    sentinels = by_cluster[first]
    sizes = np.bincount(labels, weights=picture.active[own], minlength=ranks.size)
    pulls = np.bincount(labels, weights=picture.counts[own], minlength=ranks.size)
    order = [c for c in np.argsort(-bounds[sentinels], kind="stable").tolist() if bounds[sentinels[c]] > -np.inf]
    shown = [
        {
            "cluster": int(clusters[c]),
            "arms": int(sizes[clusters[c]]),
            "rank": int(ranks[clusters[c]]),
            "pulls": int(pulls[clusters[c]]),
            "sentinel": {"arm": picture.ids[own[sentinels[c]]], "bound": _finite(bounds[sentinels[c]])},
        }
        for c in order[:limit]
    ]
    return {"total": int(ranks.size), "shown": shown}


def minutes(bandit: Bandit) -> list[dict[str, Any]]:
    """The last day by minutes, oldest first."""
    names = ("decisions", "rewards", "reward_sum", "defaults")
    kept = sorted(bandit.totals.minutes.items())  # a copy: a thread may add to it meanwhile
    return [{"time": start, **dict(zip(names, minute, strict=True))} for start, minute in kept]


def _finite(value: float | Floats) -> float | None:
    return float(value) if math.isfinite(value) else None


def _shown(value: Any) -> Any:
    """A setting as JSON can say it."""
    if isinstance(value, bool | int | str | None):
        return value
    return _finite(value) if isinstance(value, float) else repr(value)
