"""The largest sentinel of many clusters: a tournament tree, O(log K) to set one and to find the winner.

Among capped sentinels that tie, the largest uncapped bound is searched by branch and bound: O(log K) where the node
that promises most keeps its promise, O(K) at worst.

Node i of the tree has children 2 i and 2 i + 1. It holds the largest sentinel below it and the largest uncapped bound,
in two rows of ``2 K'`` numbers that stand in ``fits`` from ``control["tree"]`` on. Cluster c is the leaf ``K' + c``, K'
the next power of two. Up to `FEW_CLUSTERS` a scan is cheaper and there is no tree.
"""

import numpy as np

from sketchbandits.kernels.compiled import inlined_kernel, kernel
from sketchbandits.kernels.linalg import Floats, tie_threshold
from sketchbandits.policies.cslb.layout import Record, Records

FEW_CLUSTERS = 64


def n_leaves(n_clusters: int) -> int:
    """The leaves of the tree over so many clusters; 0 where a scan is cheaper."""
    return 0 if n_clusters <= FEW_CLUSTERS else 1 << (n_clusters - 1).bit_length()


def fill_tree(control: Records, clusters: Records, fits: Floats) -> None:
    """Write the tree over the sentinels as they are, where there is one."""
    leaves, start = int(control["leaves"][0]), int(control["tree"][0])
    if leaves == 0:
        return
    tree = fits[start : start + 4 * leaves].reshape(2, 2 * leaves)
    tree[:] = -np.inf
    for row, name in enumerate(("sentinel", "uncapped")):
        tree[row, leaves : leaves + clusters.size] = clusters[name]
    for i in range(leaves - 1, 0, -1):
        tree[:, i] = np.maximum(tree[:, 2 * i], tree[:, 2 * i + 1])


@kernel
def put_sentinel(control: Record, own: Record, c: int, fits: Floats, value: float, uncapped: float) -> None:
    """Give cluster ``c``, whose record is ``own``, its sentinel."""
    own["sentinel"] = value
    own["uncapped"] = uncapped
    leaves = control["leaves"]
    if leaves == 0:
        return
    high, low = control["tree"], control["tree"] + 2 * leaves
    i = leaves + c
    fits[high + i] = value
    fits[low + i] = uncapped
    while i > 1:
        i //= 2
        fits[high + i] = max(fits[high + 2 * i], fits[high + 2 * i + 1])
        fits[low + i] = max(fits[low + 2 * i], fits[low + 2 * i + 1])


@inlined_kernel
def first_cluster(control: Record, clusters: Records, fits: Floats) -> int:
    """The first cluster whose sentinel ties with the largest."""
    if control["leaves"] > 0:
        return first_leaf(control, fits, tie_threshold(fits[control["tree"] + 1]), -np.inf)
    top = clusters[0]["sentinel"]
    for c in range(1, clusters.size):
        if clusters[c]["sentinel"] > top:
            top = clusters[c]["sentinel"]
    threshold = tie_threshold(top)
    c = 0
    while clusters[c]["sentinel"] < threshold:
        c += 1
    return c


@inlined_kernel
def first_capped_cluster(control: Record, clusters: Records, fits: Floats) -> int:
    """The first cluster by (sentinel, uncapped bound of its arm, lowest index)."""
    if control["leaves"] > 0:
        threshold = tie_threshold(fits[control["tree"] + 1])
        return first_leaf(control, fits, threshold, tie_threshold(largest_uncapped(control, fits, threshold)))
    top = uncapped = -np.inf
    for c in range(clusters.size):
        top = max(top, clusters[c]["sentinel"])
    threshold = tie_threshold(top)
    for c in range(clusters.size):
        if clusters[c]["sentinel"] >= threshold:
            uncapped = max(uncapped, clusters[c]["uncapped"])
    least = tie_threshold(uncapped)
    c = 0
    while clusters[c]["sentinel"] < threshold or clusters[c]["uncapped"] < least:
        c += 1
    return c


@kernel
def largest_uncapped(control: Record, fits: Floats, threshold: float) -> float:
    """The largest uncapped bound among leaves with a sentinel of at least ``threshold``."""
    leaves, high = control["leaves"], control["tree"]
    low, i = high + 2 * leaves, 1
    # A good start: down to the child that promises more, of those with such a leaf.
    while i < leaves:
        i *= 2
        right = fits[high + i + 1] >= threshold and fits[low + i + 1] > fits[low + i]
        if fits[high + i] < threshold or right:
            i += 1
    best, i = fits[low + i], 1
    while True:
        if fits[high + i] >= threshold and fits[low + i] > best:
            if i < leaves:
                i *= 2
                continue
            best = fits[low + i]
        i = next_subtree(i)
        if i == 0:
            return best


@kernel
def first_leaf(control: Record, fits: Floats, threshold: float, least: float) -> int:
    """The first leaf with a sentinel of at least ``threshold`` and an uncapped bound of at least ``least``."""
    leaves, high = control["leaves"], control["tree"]
    low, i = high + 2 * leaves, 1
    while True:
        if fits[high + i] >= threshold and fits[low + i] >= least:
            if i >= leaves:
                return i - leaves
            i *= 2
        else:
            i = next_subtree(i)
            if i == 0:
                return 0  # only where sentinels are no numbers


@kernel
def next_subtree(i: int) -> int:
    """The node after the subtree of ``i`` from left to right; 0 after the last."""
    while i % 2 == 1:
        i //= 2
        if i == 0:
            return 0
    return i + 1
