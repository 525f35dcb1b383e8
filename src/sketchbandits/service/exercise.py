"""Everything that the service does with a policy, done once on a few made-up arms: afterwards its kernels are loaded.

Numba compiles a kernel for the types of its arguments, never for their sizes. A small policy therefore uses the kernels
of a large one, but for three thresholds, which `Need` carries:

- more than ``BLOCK[0]`` arms are partitioned in blocks, each of which meets the clusters of earlier ones;
- from ``PLANNED`` operations on the partition plans whole blocks (`partition.plan`);
- CS-LB clusters of ``LEAST_ARMS`` arms keep shortlists, in a state of another type. Slots of a cluster double when arms
  are added, so that half as many arms can lead there.

Otherwise sizes are capped: at 24 arms, since nothing but an extent of 1 can make a difference to Numba; at 8 dimensions
and sketches of 4, so that sketches fill within 30 rewards, and one smaller than the dimension stays so.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sketchbandits import snapshot
from sketchbandits.kernels.linalg import Floats
from sketchbandits.partition.first_fit import BLOCK, PLANNED
from sketchbandits.policies import rounds
from sketchbandits.policies.base import Policy
from sketchbandits.policies.changing_arms import TakesArms
from sketchbandits.policies.cslb.changing_clusters import ChangingClusters
from sketchbandits.policies.cslb.shortlist import LEAST_ARMS
from sketchbandits.policies.hybrid.groups import MOST
from sketchbandits.policies.registry import POLICIES, PolicySpec
from sketchbandits.precompile import PARALLEL, parallel, use_partition

MOST_ARMS, MOST_DIMENSIONS, MOST_SKETCH = 24, 8, 4
REWARDS = 30  # sketches of 4 shrink several times


class Need(NamedTuple):
    """What decides which kernels a policy uses: equal needs, equal kernels."""

    policy: str
    options: str  # JSON
    n_arms: int
    dim: int
    clusters: bool
    blocks: bool
    plans: bool
    lists: bool

    @classmethod
    def of(cls, policy: str, options: Mapping[str, Any], n_arms: int, dim: int) -> "Need":
        """The need of a policy of the registry with all of its options on so many arms of so many dimensions."""
        small, size = dict(options), options.get("sketch_size")
        if "horizon" in small and policy in ("cslb", "multiscale"):
            small["horizon"] = None  # it only leads to a warning
        if type(size) is int:
            small["sketch_size"] = min(size, MOST_SKETCH)
        clusters = _has_clusters(policy, options, n_arms, dim)
        work = n_arms * dim * min(size if type(size) is int else dim, dim)
        return cls(
            policy,
            json.dumps(small, sort_keys=True),
            min(n_arms, MOST_ARMS),
            min(dim, MOST_DIMENSIONS),
            clusters=clusters,
            blocks=clusters and n_arms > BLOCK[0],
            plans=clusters and work >= PLANNED,
            lists=options.get("scan") == "auto" and 2 * n_arms >= LEAST_ARMS,
        )

    def encoded(self) -> bytes:
        """What `decoded` takes back."""
        return json.dumps(self).encode()

    @classmethod
    def decoded(cls, text: bytes | bytearray) -> "Need":
        """What `encoded` made."""
        return cls(*json.loads(text))


def _has_clusters(policy: str, options: Mapping[str, Any], n_arms: int, dim: int) -> bool:
    """Whether such a policy partitions its arms; the hybrid one only where a single cluster would be too large."""
    if policy == "hybrid":
        return options.get("sketch_size") is not None or min(n_arms, dim) >= MOST
    return issubclass(POLICIES[policy].policy, ChangingClusters)


def use_kernels(need: Need, folder: Path | None = None) -> None:
    """Use every kernel of a need; where there is a ``folder``, policies are saved there and loaded, too."""
    options = json.loads(need.options)
    arms = _made_up(need.n_arms, need.dim) * (options.get("arm_norm") or 1.0)
    for variant in [options, options | {"scan": "shortlist"}] if need.lists else [options]:
        exercise(PolicySpec.of(need.policy, variant).build(arms, {}, 0), folder)
    if need.clusters:
        use_partition(blocks=need.blocks, plans=need.plans)


def exercise(policy: Policy, folder: Path | None = None) -> None:
    """Call, on a copy, everything that the service may call; where the policy allows it, arms come and go."""
    copy = policy.copy()
    _play(copy)
    if folder is not None:
        copy.save(folder / "state.npz")
        copy = type(policy).load(folder / "state.npz")
        _play(copy)
    if not isinstance(copy, TakesArms):
        return
    new = np.vstack([copy.arms[:1] / 2, _made_up(2, copy.dim, seed=1) * np.linalg.norm(copy.arms[0]) / 2])
    try:
        copy.add_arms(new)
    except ValueError:  # this variant of the policy has a fixed set of arms
        return
    copy.remove_arms([0])
    _play(copy)


def _play(policy: Policy) -> None:
    mask = policy.active
    arm = int(np.flatnonzero(mask)[0])
    policy.select(available=mask)
    policy.select_many(3, available=mask, pending=[arm])
    for _ in range(REWARDS):
        policy.update(policy.select(), 0.5)
    policy.select_many(3, pending=[arm] * 3)
    policy.update_many([arm, arm], [0.0, 1.0])
    policy.bounds()
    policy.estimates()
    rounds.prepare(snapshot.copy_state(policy.state))  # a refit, too


def _made_up(n_arms: int, dim: int, seed: int = 0) -> Floats:
    """Arms of norm 1 at most: the first ones on one line where there are enough, the others in general position."""
    arms = np.random.default_rng([20_061_012, seed]).standard_normal((n_arms, dim))
    arms /= np.linalg.norm(arms, axis=1, keepdims=True) * (1.0 + 1e-12)
    if n_arms >= PARALLEL:
        arms[:PARALLEL] = parallel(arms[0])
    return arms
