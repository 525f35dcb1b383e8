"""Clusters whatever the order: subspaces are found in shuffled arms, never with more clusters than first-fit makes."""

import threading
import tracemalloc

import numpy as np
import pytest
from conftest import JIT, rounds
from hypothesis import given
from hypothesis import strategies as st
from test_properties import SEED, arm_sets, examples, unit

from sketchbandits import CSLB, Partition
from sketchbandits.partition import packing as packing_module
from sketchbandits.partition.spans import orthonormal

ROUNDING = 1 + 1e-6  # first-fit measures residuals by another routine than `residuals`


def union_of(sizes, dims, d, seed=0, noise=0.0):
    """Shuffled arms of random subspaces, each arm at a norm of its own and ``noise`` of it off its subspace."""
    rng = np.random.default_rng([seed, d])
    arms = np.vstack(
        [unit(rng.normal(size=(n, k)) @ rng.normal(size=(k, d))) for n, k in zip(sizes, dims, strict=True)]
    )
    arms += noise * unit(rng.normal(size=arms.shape))
    return rng.permutation(arms * rng.uniform(0.2, 5.0, size=(len(arms), 1)))


def sound(part, arms, l):
    """Every arm in a cluster of rank at most l, within the tolerance of its span; bases orthonormal."""
    assert part.labels.shape == (len(arms),) and part.sketch_size == l
    assert set(part.labels.tolist()) == set(range(part.n_clusters))
    assert part.ranks.max() <= l and part.bases.shape == (part.ranks.sum(), arms.shape[1])
    assert part.residuals(arms).max() <= part.tolerance * ROUNDING
    for c in range(part.n_clusters):
        basis = part.basis(c)
        assert np.allclose(basis @ basis.T, np.eye(len(basis)), atol=1e-9)
    assert not any(array.flags.writeable for array in (part.labels, part.ranks, part.bases))
    return part


def found(arms, l, seed=0, **options):
    return sound(Partition.subspaces(arms, l, seed, **options), arms, l)


# ------------------------------------------------------------------------------------------------- what must be found
@pytest.mark.parametrize("each", [80, 400])
@pytest.mark.parametrize(("l", "clusters"), [(4, 5), (5, 5), (6, 5), (7, 5), (8, 3), (12, 2)])
def test_five_shuffled_subspaces(each, l, clusters):
    """A cluster takes more than one subspace when their ranks sum up to at most l, and only then."""
    arms = union_of([each] * 5, [4] * 5, 50)
    assert found(arms, l).n_clusters == clusters
    if l == 4:
        assert Partition.first_fit(arms, sketch_size=l).n_clusters > 90


@pytest.mark.parametrize("l", [4, 6])
@pytest.mark.parametrize("tolerance", [1.2e-3, 1e-2, 1e-1])
def test_with_noise_and_a_tolerance(l, tolerance):
    """K=5, and residuals are about the noise: the bases are fits, not the first l arms."""
    arms = union_of([80] * 5, [4] * 5, 50, noise=1e-3)
    part = found(arms, l, tolerance=tolerance)
    assert part.n_clusters == 5 and part.tolerance == tolerance
    assert part.residuals(arms).max() < 1.2e-3
    assert Partition.subspaces(arms, l).n_clusters > 50  # without a tolerance these arms are in general position


def test_a_dense_noisy_subspace_is_found_whole():
    """Many arms explain an anchor to within the tolerance in fewer steps than the dimension: the span must grow."""
    arms = union_of([rounds(4000, 700)] * 3, [8] * 3, 40, noise=1e-3)
    part = found(arms, 8, tolerance=1e-2)
    assert part.n_clusters == 3 and part.residuals(arms).max() < 1.2e-3


@pytest.mark.parametrize("noise", [0.0, 1e-3])
def test_unequal_sizes_and_dimensions(noise):
    """Dimensions 2 and 3 share a cluster of rank 5."""
    arms = union_of([20, 500, 60, 90, 300], [2, 5, 3, 4, 5], 30, noise=noise)
    part = found(arms, 5, tolerance=1e-2 if noise else None)
    assert part.n_clusters == 4
    assert sorted(np.bincount(part.labels).tolist()) == [80, 90, 300, 500]


@pytest.mark.parametrize(("l", "clusters"), [(4, 5), (6, 3)])
@pytest.mark.parametrize("noise", [0.0, 1e-3])
def test_subspaces_that_intersect(l, clusters, noise):
    """All contain one plane: two of them together have rank 6."""
    rng = np.random.default_rng(1)
    plane = rng.normal(size=(2, 30))
    arms = [unit(rng.normal(size=(80, 4)) @ np.vstack([plane, rng.normal(size=(2, 30))])) for _ in range(5)]
    arms = rng.permutation(np.vstack(arms))
    arms += noise * unit(rng.normal(size=arms.shape))
    assert found(arms, l, tolerance=1e-2 if noise else None).n_clusters == clusters


@pytest.mark.parametrize("d", [5, 6, 10])
def test_subspaces_that_fill_most_of_the_space(d):
    assert found(union_of([80] * 5, [4] * 5, d), 4).n_clusters == 5


def test_small_subspaces_and_outliers():
    """Seven arms each, in four dimensions; the arms of no subspace cost what they cost first-fit."""
    arms = np.vstack([union_of([7] * 20, [4] * 20, 50), np.random.default_rng(2).normal(size=(41, 50))])
    part = found(np.random.default_rng(3).permutation(arms), 4)
    assert part.n_clusters == 20 + 11
    assert found(union_of([7] * 20, [4] * 20, 50), 5).n_clusters == 20


def test_outliers_fill_spare_rank():
    """Five clusters of rank 4 and room for 6: ten arms, with their duplicates, go there."""
    rng = np.random.default_rng(4)
    outliers = np.repeat(rng.normal(size=(10, 50)), 3, axis=0) * rng.uniform(1, 2, size=(30, 1))
    arms = rng.permutation(np.vstack([union_of([80] * 5, [4] * 5, 50), outliers]))
    part = found(arms, 6)
    assert part.n_clusters == 5 and part.ranks.tolist() == [6] * 5


def test_arms_mostly_along_few_directions():
    """Singular values 1 to 1e-3 inside each subspace: plain matching pursuit takes arms of others and finds none."""
    rng = np.random.default_rng(5)
    scales = np.diag([1.0, 0.1, 0.01, 0.001])
    arms = [rng.normal(size=(80, 4)) @ scales @ orthonormal(rng.normal(size=(4, 50))) for _ in range(5)]
    assert found(rng.permutation(np.vstack(arms)), 4).n_clusters == 5


def test_duplicates_inside_subspaces():
    """An arm's duplicate explains it and shows no subspace."""
    rng = np.random.default_rng(6)
    arms = np.repeat(union_of([16] * 5, [4] * 5, 50), 5, axis=0) * rng.uniform(0.1, 9.0, size=(400, 1))
    assert found(rng.permutation(arms), 4).n_clusters == 5


def test_float32_and_a_memory_mapped_file(tmp_path):
    arms = union_of([80] * 5, [4] * 5, 50).astype(np.float32)
    np.save(tmp_path / "arms.npy", arms)
    part = found(np.load(tmp_path / "arms.npy", mmap_mode="r"), 4)
    assert part.n_clusters == 5 and part.tolerance == 1e-6 and part.bases.dtype == np.float64


@pytest.mark.parametrize("seed", range(6))
def test_neither_order_nor_seed_matters_on_clean_unions(seed):
    arms = union_of([30, 60, 90, 45, 70], [2, 3, 4, 4, 3], 25)
    shuffled = np.random.default_rng(seed).permutation(arms)
    assert found(shuffled, 4, seed).n_clusters == 5


def test_more_arms_than_the_sample_of_a_round(monkeypatch):
    """A round sees 100 of 2,000 arms; all are placed all the same."""
    monkeypatch.setattr("sketchbandits.partition.subspaces.SAMPLE", 100)
    arms = union_of([1000, 400, 300, 200, 100], [3] * 5, 20)
    assert found(arms, 3).n_clusters == 5


# ------------------------------------------------------------------------------------------------------ never worse
def test_general_position_is_first_fit():
    arms = np.random.default_rng(7).normal(size=(rounds(403, 150), 23))
    part, plain = found(arms, 4), Partition.first_fit(arms, sketch_size=4)
    for a, b in zip((part.labels, part.ranks, part.bases), (plain.labels, plain.ranks, plain.bases), strict=True):
        assert np.array_equal(a, b)


@pytest.mark.parametrize(
    ("arms", "l", "clusters"),
    [
        (np.ones((1, 3)), 2, 1),
        (np.zeros((4, 3)), 2, 1),
        (np.eye(5)[:3], 4, 1),
        (np.eye(5), 2, 3),
        (np.outer(np.arange(1.0, 8.0), np.ones(3)), 2, 1),
        (np.arange(1.0, 9.0)[:, None], 2, 1),
        (np.vstack([np.zeros((3, 7)), np.repeat(np.eye(7)[:4], 5, axis=0), np.zeros((2, 7))]), 3, 2),
        (union_of([60], [3], 20), 3, 1),
        (union_of([60], [3], 20), 25, 1),
    ],
    ids=["one", "zeros", "fewer than l", "identity", "one ray", "one dimension", "groups", "one subspace", "l > d"],
)
def test_small_and_degenerate_sets(arms, l, clusters):
    part = found(arms, l)
    assert part.n_clusters == clusters
    assert Partition.first_fit(arms, sketch_size=l).n_clusters == clusters


def test_parallel_groups_shuffled():
    """First-fit is the best there is; a zero arm is in every span."""
    rng = np.random.default_rng(8)
    arms = np.repeat(rng.normal(size=(20, 50)), 10, axis=0) * 10.0 ** rng.uniform(-9, 9, size=(200, 1))
    arms = rng.permutation(np.vstack([arms, np.zeros((3, 50))]))
    assert found(arms, 5).n_clusters == 4


def test_zero_arms_among_subspaces():
    arms = union_of([60] * 3, [3] * 3, 20)
    arms[::10] = 0.0
    part = found(arms, 3)
    assert part.n_clusters == 3 and set(part.labels[::10].tolist()) == {0}


def test_where_the_search_does_worse_first_fit_is_returned(monkeypatch):
    """Subspaces that are none, one an arm: their clusters are given up for first-fit's."""
    arms = np.random.default_rng(9).normal(size=(60, 13))
    monkeypatch.setattr(packing_module, "find_subspaces", lambda *a, **k: [unit(arms[i : i + 1]) for i in range(40)])
    monkeypatch.setattr(packing_module, "pack", lambda bases, rank, tolerance: bases)
    monkeypatch.setattr(packing_module, "fill", lambda arms, rest, *a: np.full(rest.size, -1))
    part = found(arms, 4)
    assert np.array_equal(part.labels, Partition.first_fit(arms, sketch_size=4).labels)


@examples(60)
@given(arm_sets(), SEED, st.sampled_from([None, 1e-6, 1e-2, 0.3]))
def test_any_arms(given_arms, seed, tolerance):
    arms, l = given_arms
    part = Partition.subspaces(arms, l, seed, tolerance=tolerance)
    assert part.n_clusters <= Partition.first_fit(arms, sketch_size=l, tolerance=tolerance).n_clusters
    sound(part, arms, l)


@examples(24)
@given(st.lists(st.tuples(st.integers(5, 40), st.integers(1, 4)), min_size=1, max_size=5), st.integers(6, 15), SEED)
def test_any_union(parts, d, seed):
    sizes, dims = zip(*parts, strict=True)
    arms = union_of(sizes, dims, d, seed)
    part = found(arms, 4, seed)
    assert part.n_clusters <= min(len(parts), Partition.first_fit(arms, sketch_size=4).n_clusters)


def test_deterministic_whatever_the_threads():
    arms = union_of([rounds(900, 300)] * 4, [3] * 4, 20, noise=1e-4)
    first, *others = (found(arms, 4, 11, tolerance=1e-3, workers=workers) for workers in (1, 1, 3))
    for part in others:
        assert np.array_equal(part.labels, first.labels) and np.array_equal(part.bases, first.bases)


def test_a_policy_takes_such_a_partition():
    """Clusters are not first-fit's, and the bound's radius has fewer of them to pay for."""
    arms = unit(union_of([40] * 5, [3] * 5, 20))
    options = {"radius": "logdet", "noise": 0.1, "ridge": 0.01}
    policy = CSLB(arms, partition=Partition.subspaces(arms, 3), **options)
    plain = CSLB(arms, sketch_size=3, **options)
    rng = np.random.default_rng(12)
    for _ in range(50):
        arm = policy.select()
        reward = arms[arm, 0] + 0.1 * rng.normal()
        policy.update(arm, reward)
        plain.update(arm, reward)
    assert policy.partition.n_clusters == 5 < plain.partition.n_clusters
    assert np.all(policy.bounds() >= arms[:, 0])
    assert policy.bounds().mean() < 0.8 < plain.bounds().mean()


# -------------------------------------------------------------------------------------------- refusals, what is left
@pytest.mark.parametrize("make", ["first_fit", "subspaces"])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tolerance": 0.0}, "tolerance must be a number strictly between 0 and 1, got 0.0"),
        ({"tolerance": 1.0}, "tolerance must be a number strictly between 0 and 1, got 1.0"),
        ({"tolerance": -0.1}, "tolerance must be a number strictly between 0 and 1, got -0.1"),
        ({"tolerance": np.nan}, "tolerance must be a number strictly between 0 and 1, got nan"),
        ({"tolerance": "1e-2"}, "tolerance must be a number strictly between 0 and 1, got '1e-2'"),
        ({"tolerance": 1e-14}, "tolerance must be None or a number from 1e-12 to below 1, got 1e-14"),
        ({"sketch_size": 0}, "sketch_size must be a whole number >= 1, got 0"),
        ({"sketch_size": 2.0}, "sketch_size must be a whole number >= 1, got 2.0"),
        ({"workers": 0}, "workers must be a whole number >= 1, got 0"),
    ],
)
def test_bad_options_are_refused(make, options, message):
    with pytest.raises(ValueError, match=message):
        getattr(Partition, make)(np.eye(3), **{"sketch_size": 2, **options})


@pytest.mark.parametrize("seed", ["x", -1, 1.5])
def test_a_bad_seed_is_refused(seed):
    with pytest.raises(ValueError, match="seed must be"):
        Partition.subspaces(np.eye(3), 2, seed)


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e200, 1e-200])
def test_bad_arms_are_refused(bad):
    arms = union_of([30] * 2, [2] * 2, 9)
    arms[43] = 0.0
    arms[43, 2] = bad
    with pytest.raises(ValueError, match="arms must be") as error:
        Partition.subspaces(arms, 2)
    if not np.isfinite(bad):
        assert "[43, 2]" in str(error.value)
    with pytest.raises(ValueError, match="arms must be a non-empty 2-D array"):
        Partition.subspaces(arms[0], 2)


@pytest.mark.parametrize("structured", [True, False])
def test_progress_is_reported_in_growing_shares(structured):
    arms = union_of([80] * 5, [4] * 5, 50) if structured else np.random.default_rng(19).normal(size=(400, 50))
    told = []
    Partition.subspaces(arms, 4, progress=lambda share, what: told.append((share, what)))
    shares = [share for share, _ in told]
    assert len(shares) >= 3 and shares == sorted(shares) and shares[-1] == 1.0
    assert {what for _, what in told} == {"partitioning 400 arms"}


def test_an_interrupt_leaves_no_thread_behind():
    def interrupt(share, what):
        raise KeyboardInterrupt

    before = threading.active_count()
    with pytest.raises(KeyboardInterrupt):
        Partition.subspaces(union_of([400] * 5, [4] * 5, 50), 4, workers=3, progress=interrupt)
    assert threading.active_count() == before


@pytest.mark.skipif(not JIT, reason="tracemalloc in plain Python counts every object")
def test_memory_is_far_from_a_graph_of_all_arms():
    arms = union_of([3000] * 8, [4] * 8, 32)
    tracemalloc.start()
    part = Partition.subspaces(arms, 4, workers=2)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert part.n_clusters == 8
    assert peak < 64 * 2**20  # of 4.3 GiB for 24,000 x 24,000 numbers
