"""The pieces that order-free partitions are made of: pursuit, least squares, packing, refits."""

import numpy as np
from test_properties import unit
from test_subspaces import union_of

from sketchbandits.kernels.threads import Threads
from sketchbandits.partition.packing import pack, refit, union
from sketchbandits.partition.spans import groups, least_squares, members, nearest, orthonormal, residuals, slimmed
from sketchbandits.partition.subspaces import Pursuit, find_subspaces


def test_pursuit_needs_as_many_arms_as_the_dimension():
    rows = unit(union_of([60] * 2, [3, 5], 30))
    found = Pursuit(rows, np.arange(40), 2e-8, Threads()).run(6)
    assert len(found) == 40
    for anchor, atoms in found:
        assert atoms.size in (3, 5) and anchor not in atoms
        assert residuals(rows[[anchor]], orthonormal(rows[atoms]))[0] < 1e-12
    assert not Pursuit(unit(np.random.default_rng(13).normal(size=(90, 30))), np.arange(40), 2e-8, Threads()).run(6)


def test_a_search_returns_the_subspaces_themselves():
    arms = union_of([50, 70], [3, 4], 22)
    options = {"threads": Threads(), "show": lambda share: None}
    bases = find_subspaces(arms, np.arange(120), 6, 1e-8, np.random.default_rng(0), **options)
    assert sorted(map(len, bases)) == [3, 4]
    assert sorted(members(unit(arms), basis, 1e-8).size for basis in bases) == [50, 70]
    assert np.bincount(nearest(arms, np.arange(120), bases, 1e-8, Threads())).sum() == 120


def test_least_squares_is_the_truncated_svd():
    rng = np.random.default_rng(14)
    rows = unit(unit(rng.normal(size=(90, 4)) @ rng.normal(size=(4, 17))) + 1e-4 * rng.normal(size=(90, 17)))
    basis = least_squares(rows, orthonormal(rows[:4]))
    exact = np.linalg.svd(rows, full_matrices=False)[2][:4]
    assert np.linalg.norm(basis.T @ basis - exact.T @ exact) < 1e-6
    assert residuals(rows, basis).max() < residuals(rows, orthonormal(rows[:4])).max() / 2


def test_slimmed_keeps_the_axes_that_rows_need():
    rng = np.random.default_rng(15)
    rows = unit(rng.normal(size=(40, 2)) @ rng.normal(size=(2, 9)))
    wide = orthonormal(np.vstack([rows[:2], rng.normal(size=(3, 9))]))
    assert slimmed(rows, wide, 1e-8).shape == (2, 9)
    assert residuals(rows, slimmed(rows, wide, 1e-8)).max() < 1e-12
    assert np.array_equal(slimmed(rows, wide[4:], 1e-8), wide[4:])  # no line holds them: as it was


def test_union_and_pack_count_shared_directions_once():
    axes = orthonormal(np.random.default_rng(16).normal(size=(9, 20)))
    first, second, third = axes[:4], np.vstack([axes[2:4], axes[4:6]]), axes[6:9]
    joint = union(first, second, 1e-8)
    assert joint.shape == (6, 20) and np.allclose(joint @ joint.T, np.eye(6))
    assert np.array_equal(union(first, first[1:3], 1e-8), first)
    packed = pack([third, first, second], 6, 1e-8)
    assert [len(basis) for basis in packed] == [6, 3]
    assert [len(basis) for basis in pack([third, first, second], 4, 1e-8)] == [4, 4, 3]


def test_groups_are_in_order():
    assert [own.tolist() for own in groups(np.array([2, -1, 0, 2, 0]), 3)] == [[2, 4], [], [0, 3]]


def test_a_refit_that_would_lose_an_arm_is_not_made():
    """Ninety arms along one axis outweigh the one that the basis was made to hold."""
    arms = np.vstack([np.tile([1.0, 0.0], (90, 1)), [[1.0, 0.019]]])
    labels, ranks, middle = np.zeros(91, np.int64), np.array([1]), unit(np.array([[1.0, 0.0095]]))
    assert np.array_equal(refit(arms, (labels, ranks, middle.copy()), 0.01)[2], middle)
    assert residuals(unit(arms), refit(arms, (labels, ranks, middle.copy()), 0.02)[2]).max() <= 0.02
    assert not np.array_equal(refit(arms, (labels, ranks, middle.copy()), 0.02)[2], middle)
