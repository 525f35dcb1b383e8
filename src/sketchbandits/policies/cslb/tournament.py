"""The largest sentinel of many clusters: a tournament tree, O(log K) to set one and to find the winner.

Among capped sentinels that tie, the largest uncapped bound is searched by branch and bound: O(log K) where the best
promise is kept, O(K) at worst.

Node i of the tree has children 2 i and 2 i + 1 and holds the largest sentinel below it and the largest uncapped bound;
cluster c is the leaf ``K' + c``, K' the next power of two. Up to `FEW_CLUSTERS` a scan is cheaper and there is no tree.
"""

import numpy as np

from sketchbandits.kernels.compiled import kernel
from sketchbandits.kernels.linalg import Floats, tie_threshold
from sketchbandits.policies.cslb.layout import SENTINEL, UNCAPPED

FEW_CLUSTERS = 64


def build_tree(level: Floats) -> Floats:
    """The tree over the sentinels as they stand; empty where a scan will do."""
    k = level.shape[0]
    if k <= FEW_CLUSTERS:
        return np.zeros((2, 0))
    leaves = 1 << (k - 1).bit_length()
    tree = np.full((2, 2 * leaves), -np.inf)
    tree[:, leaves : leaves + k] = level[:, [SENTINEL, UNCAPPED]].T
    for i in range(leaves - 1, 0, -1):
        tree[:, i] = np.maximum(tree[:, 2 * i], tree[:, 2 * i + 1])
    return tree


@kernel
def put_sentinel(level: Floats, tree: Floats, c: int, value: float, uncapped: float) -> None:
    """Give cluster ``c`` its sentinel."""
    level[c, SENTINEL] = value
    level[c, UNCAPPED] = uncapped
    if tree.shape[1] == 0:
        return
    i = tree.shape[1] // 2 + c
    tree[0, i] = value
    tree[1, i] = uncapped
    while i > 1:
        i //= 2
        tree[0, i] = max(tree[0, 2 * i], tree[0, 2 * i + 1])
        tree[1, i] = max(tree[1, 2 * i], tree[1, 2 * i + 1])


@kernel
def first_cluster(level: Floats, tree: Floats) -> int:
    """The first cluster whose sentinel ties with the largest."""
    if tree.shape[1] > 0:
        return first_leaf(tree, tie_threshold(tree[0, 1]), -np.inf)
    return scan_clusters(level)


@kernel
def scan_clusters(level: Floats) -> int:
    """`first_cluster` without a tree."""
    top = level[0, SENTINEL]
    for c in range(1, level.shape[0]):
        if level[c, SENTINEL] > top:
            top = level[c, SENTINEL]
    threshold = tie_threshold(top)
    c = 0
    while level[c, SENTINEL] < threshold:
        c += 1
    return c


@kernel
def first_capped_cluster(level: Floats, tree: Floats) -> int:
    """The first cluster by (sentinel, uncapped bound of its arm, lowest index)."""
    if tree.shape[1] > 0:
        threshold = tie_threshold(tree[0, 1])
        return first_leaf(tree, threshold, tie_threshold(largest_uncapped(tree, threshold)))
    first = first_cluster(level, tree)
    top = level[first, SENTINEL]
    for c in range(first + 1, level.shape[0]):
        top = max(top, level[c, SENTINEL])
    threshold = tie_threshold(top)
    uncapped = -np.inf
    for c in range(first, level.shape[0]):
        if level[c, SENTINEL] >= threshold:
            uncapped = max(uncapped, level[c, UNCAPPED])
    least = tie_threshold(uncapped)
    c = first
    while level[c, SENTINEL] < threshold or level[c, UNCAPPED] < least:
        c += 1
    return c


@kernel
def largest_uncapped(tree: Floats, threshold: float) -> float:
    """The largest uncapped bound among leaves with a sentinel of at least ``threshold``."""
    leaves, i = tree.shape[1] // 2, 1
    # A good start: down to the child that promises more, of those with such a leaf.
    while i < leaves:
        i *= 2
        if tree[0, i] < threshold or (tree[0, i + 1] >= threshold and tree[1, i + 1] > tree[1, i]):
            i += 1
    best, i = tree[1, i], 1
    while True:
        if tree[0, i] >= threshold and tree[1, i] > best:
            if i < leaves:
                i *= 2
                continue
            best = tree[1, i]
        i = next_subtree(i)
        if i == 0:
            return best


@kernel
def first_leaf(tree: Floats, threshold: float, least: float) -> int:
    """The first leaf with a sentinel of at least ``threshold`` and an uncapped bound of at least ``least``."""
    leaves, i = tree.shape[1] // 2, 1
    while True:
        if tree[0, i] >= threshold and tree[1, i] >= least:
            if i >= leaves:
                return i - leaves
            i *= 2
        else:
            i = next_subtree(i)


@kernel
def next_subtree(i: int) -> int:
    """The node after the subtree of ``i`` from left to right; 0 after the last."""
    while i % 2 == 1:
        i //= 2
        if i == 0:
            return 0
    return i + 1
