"""What a partition tells about itself, what it takes as arms, and the tolerances it is made with."""

import dataclasses

import naive
import numpy as np
import pytest
import scipy
from conftest import rounds
from test_subspaces import ROUNDING, union_of

from sketchbandits import CSLB, Partition


def test_residuals_are_those_of_the_spans():
    arms = np.array([[2.0, 0, 0], [0, 3, 0], [0, 0, 5], [0, 0, 0], [4, 3, 0]])
    partition = Partition.first_fit(arms, sketch_size=2)
    assert partition.labels.tolist() == [0, 0, 1, 0, 0]
    assert partition.residuals(arms).tolist() == [0.0] * 5
    arms[4, 2] = 12.0
    assert partition.residuals(arms)[4] == pytest.approx(12 / 13)
    with pytest.raises(ValueError, match="arms must have 5 rows"):
        partition.residuals(arms[:2])


def test_a_partition_of_other_arms_is_refused():
    arms = np.random.default_rng(13).normal(size=(30, 6))
    partition = Partition.first_fit(arms, sketch_size=2)
    for wrong, options, message in (
        (arms[:29], {}, r"partition must be one of arms of shape \(29, 6\), got one of shape \(30, 6\)"),
        (arms[::-1], {}, "partition must be one of these arms, within 1e-08 of the spans of their clusters, got arm"),
        (arms, {"sketch_size": 3}, "sketch_size must be left out or the partition's 2, got 3"),
        (arms, {"sketch_size": 2.0}, "sketch_size must be a whole number >= 1, got 2.0"),
    ):
        with pytest.raises(ValueError, match=message):
            CSLB(wrong, partition=partition, **options)
    with pytest.raises(ValueError, match="partition must be a Partition or None, got 5"):
        CSLB(arms, partition=5)
    with pytest.raises(ValueError, match="sketch_size must be a whole number >= 1, got None"):
        CSLB(arms)


def test_partitions_are_equal_by_value():
    X = np.random.default_rng(3).normal(size=(9, 4))
    partition, same = (Partition.first_fit(arms, sketch_size=2) for arms in (X, X.copy()))
    assert partition == same
    changes = {
        "labels": same.labels[::-1],
        "ranks": same.ranks + 1,
        "bases": same.bases[:3],
        "sketch_size": 3,
        "tolerance": 1e-6,
    }
    for field, value in changes.items():
        assert partition != dataclasses.replace(same, **{field: value}), field
    assert partition != "a partition"
    with pytest.raises(TypeError, match="unhashable"):
        hash(partition)


def test_a_partition_describes_itself():
    partition = Partition.first_fit(np.repeat(np.eye(30), 2, axis=0), sketch_size=2, tolerance=1e-7)
    text = "60 arms of dimension 30 in 15 clusters of rank at most 2, tolerance 1e-07"
    assert repr(partition) == f"Partition({text})"
    page = partition._repr_html_()
    assert page.startswith(f"<p>{text}</p>") and page.count("<tr>") == 11
    assert "<tr><th>9</th><td>4</td><td>2</td></tr>" in page
    assert "5 smaller clusters, with 20 arms" in page
    few = Partition.first_fit(np.eye(4), sketch_size=2)._repr_html_()
    assert few.count("<tr>") == 3 and "smaller" not in few


@pytest.mark.parametrize("kind", ["booleans", "lists", "csr", "coo"])
def test_booleans_and_sparse_matrices_are_arms(kind):
    flags = np.random.default_rng(4).random((40, 6)) < 0.4
    expected = Partition.first_fit(flags.astype(float), sketch_size=2)
    given_arms = {
        "booleans": flags,
        "lists": flags.tolist(),
        "csr": scipy.sparse.csr_matrix(flags),
        "coo": scipy.sparse.coo_array(flags.astype(float)),
    }[kind]
    assert Partition.first_fit(given_arms, sketch_size=2) == expected
    assert Partition.subspaces(given_arms, 2) == Partition.subspaces(flags.astype(float), 2)
    assert np.array_equal(expected.residuals(given_arms), expected.residuals(flags.astype(float)))


@pytest.mark.parametrize("tolerance", [1e-6, 1e-3, 1e-2, 0.1, 0.3, 0.9])
@pytest.mark.parametrize("kind", ["union", "general", "decaying"])
def test_first_fit_with_a_tolerance_is_the_plain_loop(tolerance, kind):
    rng, n, d, l = np.random.default_rng(17), rounds(500, 120), 23, 4
    arms = {
        "union": union_of([n // 3] * 3, [3] * 3, d, noise=tolerance / 3),
        "general": rng.normal(size=(n, d)),
        "decaying": rng.normal(size=(n, d)) / np.arange(1, d + 1) ** 2,
    }[kind]
    part = Partition.first_fit(arms, sketch_size=l, tolerance=tolerance)
    labels, ranks, bases = naive.plain_first_fit(arms, l, tolerance)
    assert part.tolerance == tolerance
    assert np.array_equal(part.labels, labels) and np.array_equal(part.ranks, ranks)
    assert np.array_equal(part.bases, bases)
    assert part.residuals(arms).max() <= tolerance * ROUNDING


def test_the_default_tolerance_is_the_one_of_the_dtype():
    arms = np.random.default_rng(18).normal(size=(30, 7))
    for dtype, tolerance in ((np.float64, 1e-8), (np.float32, 1e-6), (np.float16, 1e-2), (np.int64, 1e-8)):
        given_arms = (arms * 10).astype(dtype)
        for part in (
            Partition.first_fit(given_arms, sketch_size=3),
            Partition.first_fit(given_arms, sketch_size=3, tolerance=tolerance),
            Partition.subspaces(given_arms, 3),
        ):
            assert part.tolerance == tolerance
            assert np.array_equal(part.labels, Partition.first_fit(given_arms, sketch_size=3).labels)
