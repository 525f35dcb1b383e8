"""How much memory a policy will take, from its options and the shape of its arms, before anything is allocated.

Formulas in numbers of 8 bytes, one per kind of policy, for n arms of d dimensions: the arms, the state as its type
describes it (each policy's ``State`` names the shapes) and what exists besides while it is built or fitted again. Where
the state depends on the arms themselves (how many clusters there are, and of what rank) it is the most that can be.
"""

from collections.abc import Callable, Mapping
from typing import Any

from sketchbandits.partition.first_fit import BLOCK, EXTRA
from sketchbandits.policies.cslb.layout import CLUSTER_RECORD, N_STATS
from sketchbandits.policies.fits.sketched_fit import LARGEST_GRAM
from sketchbandits.policies.hybrid.building import Shape
from sketchbandits.policies.hybrid.groups import MOST
from sketchbandits.policies.multiscale.space_basis import BASIS_BLOCK, MOST_DIMENSIONS
from sketchbandits.policies.multiscale.state import N_ROWS, RAY_RECORD, WAITING_RECORD
from sketchbandits.service.bandits.config import BanditConfig
from sketchbandits.sketches.sizes import rows_of

NUMBER = 8  # bytes
FIXED = 1 << 16  # bytes that do not depend on the shape: records, counters, and what Python adds to each array

Options = Mapping[str, Any]
UNITS = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def estimated_bytes(config: BanditConfig, n_arms: int, dim: int) -> int:
    """What building and keeping the policy of a configuration takes, in bytes.

    Not counted: the caller's own copy of the arms, ids, and decisions without a reward. A policy with clusters that
    grows reserves as much again: ask for twice the arms.
    """
    options = config.options_for(n_arms, dim)
    size = options.get("sketch_size")
    sizes = {size} if type(size) is int and size > 0 else {1}  # others are refused before anything is allocated
    if config.policy == "hybrid" and size is None:
        sizes = {MOST - 1}  # what it takes where one cluster of all arms would be too large
    if config.policy == "multiscale" and config.options.get("sketch_size") is None:
        sizes.add(1)  # arms of a lower rank have a smaller one: smaller clusters, and more of them
    formula = _FORMULAS[config.policy]
    numbers = n_arms * dim + max(formula(n_arms, dim, options | {"sketch_size": size}) for size in sizes)
    return FIXED + NUMBER * numbers


def check_quota(estimate: int, quota: int, what: str = "policy") -> None:
    """Refuse what would take more than the quota; ``what`` names it."""
    if estimate > quota:
        raise ValueError(f"{what} must fit into {shown(quota)} of memory (--memory), got about {shown(estimate)}")


def shown(size: int) -> str:
    """A size for people."""
    for unit, name in UNITS:
        if size >= unit:
            return f"{size / unit:.3g} {name}"
    return f"{size} bytes"


def _ucb1(n: int, d: int, options: Options) -> int:
    return 8 * n


def _ridge(n: int, d: int, options: Options) -> int:
    """Coordinates, whitened coordinates, the inverse; a refit makes each of the two square ones again."""
    return 2 * n * d + d * d + 8 * n + 4 * d + max(d * d, n * d)


def _cbrap(n: int, d: int, options: Options) -> int:
    m = options["sketch_size"]
    return m * d + n * m + _ridge(n, m, options)


def _sketched(n: int, d: int, options: Options) -> int:
    """The sketch, the arms, their Gram matrix where they are few, their coordinates; and one decomposition."""
    rows = rows_of(dict(options), d)
    rank = min(rows, d)
    block = d * d if "error" in options else 0
    sketch = rows * d + rank * d + rank * rank + block + 2 * d + 2 * rank
    gram = n * n if n <= LARGEST_GRAM else 0
    fit = n * d + gram + rank * n + 8 * n + 4 * d + 2 * rank
    return sketch + fit + 2 * rank * rank + min(rank * d, rows * d)


def _partition(n: int, d: int, options: Options, state: int) -> int:
    """Labels and the bases of all clusters, and then the state; before that, blocks of arms in two forms."""
    rank = min(options["sketch_size"], d)
    block = min(n, BLOCK[1], max(BLOCK[0], min(64 * rank, n // 8)))
    bases = min(n, _most_clusters(n, rank) * rank) * d
    return 3 * n + bases + max(state, block * (d + min(d, rank + EXTRA)))


def _most_clusters(n: int, rank: int) -> int:
    return -(-n // rank)


def _in_coordinates(n: int, d: int, options: Options, rows: int) -> int:
    """Clusters of rank l at most: per arm ``rows`` statistics and 4 l numbers of its cluster's fit.

    Up to 2 l arms have a Gram matrix, more have two matrices of the size of the rank.
    """
    rank = min(options["sketch_size"], d)
    return (rows + 5 + 4 * rank) * n + (CLUSTER_RECORD.itemsize // NUMBER + 8) * _most_clusters(n, rank)


def _cslb(n: int, d: int, options: Options) -> int:
    if options["engine"] != "sketch":
        return _partition(n, d, options, _in_coordinates(n, d, options, N_STATS))
    rank = min(options["sketch_size"], d)
    per_cluster = CLUSTER_RECORD.itemsize // NUMBER + 8 + rank + rank * d + d
    return _partition(n, d, options, n * d + (N_STATS + 5) * n + per_cluster * _most_clusters(n, rank))


def _multiscale(n: int, d: int, options: Options) -> int:
    """Clusters, rays, and the fit of the whole space; before them a basis of the span of all arms.

    The fit has a basis, every arm's coordinates and two triangular factors. Finding the coordinates takes three copies
    of the arms, the first look at all arms three of the coordinates.
    """
    p = 0 if options["budget"] == 0 else min(n, d, MOST_DIMENSIONS)
    per_arm = (WAITING_RECORD.itemsize + RAY_RECORD.itemsize) // NUMBER
    clusters = _in_coordinates(n, d, options, N_ROWS) + per_arm * n
    space = p * d + n * p + 2 * (p + 2) * p
    building = max(p * d + n * p + 3 * n * d, clusters + space + 3 * n * p)
    return max(_basis(n, d), _partition(n, d, options, building))


def _hybrid(n: int, d: int, options: Options) -> int:
    """Without contexts: every arm's statistics and coordinates, every cluster's fit; and the decomposition of the arms.

    A refit works on copies of all statistics and of the coordinates. With ``half_life="auto"`` there are two of
    everything that is kept.
    """
    rank, copies = min(options["sketch_size"], n, d), 1 + (options["half_life"] == "auto")
    clusters = 1 if options["sketch_size"] >= min(n, d) else _most_clusters(n, rank)
    state = Shape(n, clusters, rank + 1, 1, options["explore"] == "ts", 1, False).numbers + 5 * n + 2 * clusters
    refit = state + 3 * n * rank + 4 * rank**2
    return copies * state + max(refit, 2 * n * d + min(n, d) * d)


def _basis(n: int, d: int) -> int:
    """A block of arms in two forms and its triangular factor, then the singular vectors of that."""
    rows = min(n, BASIS_BLOCK + d)
    k = min(rows, d)
    return max(2 * rows * d + k * d, 4 * k * d)


_FORMULAS: dict[str, Callable[[int, int, Options], int]] = {
    "ucb1": _ucb1,
    "oful": _ridge,
    "linucb": _ridge,
    "lints": _ridge,
    "cbrap": _cbrap,
    "soful": _sketched,
    "cbscfd": _sketched,
    "dbslinucb": _sketched,
    "cslb": _cslb,
    "multiscale": _multiscale,
    "hybrid": _hybrid,
}
