"""Arm generators, hidden parameters and noise: each promise of their docstrings, and each refusal."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy  # type: ignore[import-untyped]
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from sketchbandits.environments import (
    correlated_arms,
    duplicated_arms,
    embedding_like_arms,
    heavy_tailed_arms,
    low_rank_arms,
    one_hot_arms,
    subspace_arms,
    truncated_gaussian,
    uniform_parameter,
)

GENERATORS: dict[str, Callable[..., NDArray[np.float64]]] = {
    "low-rank": lambda **options: low_rank_arms(n_arms=23, dim=7, rank=3, noise=0.1, **options),
    "duplicated": lambda **options: duplicated_arms(n_arms=23, dim=7, n_centres=5, **options),
    "embedding-like": lambda **options: embedding_like_arms(n_arms=23, dim=7, **options),
    "correlated": lambda **options: correlated_arms(n_arms=23, dim=7, **options),
    "grouped": lambda **options: correlated_arms(n_arms=23, dim=7, group_size=4, **options),
    "heavy-tailed": lambda **options: heavy_tailed_arms(n_arms=23, dim=7, **options),
    "subspace": lambda **options: subspace_arms(n_arms=23, dim=7, n_subspaces=4, rank=2, **options),
    "shuffled": lambda **options: subspace_arms(
        n_arms=23, dim=7, n_subspaces=4, rank=2, shuffle=True, noise=0.1, **options
    ),
}


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def norms(arms: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(np.linalg.norm(arms, axis=1))


# --- every arm generator -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", GENERATORS.values(), ids=GENERATORS)
def test_arms_have_the_shape_type_and_norms_asked_for(make: Callable[..., NDArray[np.float64]]) -> None:
    largest_one, all_one = make(seed=1), make(seed=1, normalize="unit")
    for arms in (largest_one, all_one):
        assert arms.shape == (23, 7)
        assert arms.dtype == np.float64
        assert arms.flags.c_contiguous
    assert norms(largest_one).max() == pytest.approx(1.0, abs=1e-14)
    assert norms(largest_one).min() < 0.9
    np.testing.assert_allclose(norms(all_one), 1.0, atol=1e-14)
    np.testing.assert_allclose(all_one, largest_one / norms(largest_one)[:, None], atol=1e-14)


@pytest.mark.parametrize("make", GENERATORS.values(), ids=GENERATORS)
def test_a_seed_decides_the_arms(make: Callable[..., NDArray[np.float64]]) -> None:
    np.testing.assert_array_equal(make(seed=5), make(seed=5))
    assert not np.isclose(make(seed=5), make(seed=6)).any()
    np.testing.assert_array_equal(make(seed=5), make(seed=rng(5)))
    shared = rng(5)
    assert not np.isclose(make(seed=shared), make(seed=shared)).any()


@pytest.mark.parametrize("make", GENERATORS.values(), ids=GENERATORS)
def test_an_unknown_normalization_or_seed_is_refused(make: Callable[..., NDArray[np.float64]]) -> None:
    with pytest.raises(ValueError, match=r"normalize must be one of 'max', 'unit', got 'l1'"):
        make(normalize="l1")
    with pytest.raises(ValueError, match=r"seed must be .* got -1"):
        make(seed=-1)


# --- the paper's arms ----------------------------------------------------------------------------------------------


@settings(deadline=None, derandomize=True, max_examples=50)
@given(
    n_arms=st.integers(1, 40),
    dim=st.integers(2, 9),
    group_size=st.integers(2, 50),
    seed=st.integers(0, 2**32),
)
def test_groups_are_parallel_and_different_groups_are_not(n_arms: int, dim: int, group_size: int, seed: int) -> None:
    arms = correlated_arms(n_arms=n_arms, dim=dim, group_size=group_size, seed=seed)
    unit = arms / norms(arms)[:, None]
    chords = np.sqrt(((unit[:, None] - unit[None]) ** 2).sum(axis=2))
    group = np.arange(n_arms) // group_size
    same = group[:, None] == group[None]
    assert chords[same].max() < 1e-14
    assert np.all(chords[~same] > 1e-8)
    assert (arms > 0).all()


def test_coefficients_of_a_group_differ_within_their_range() -> None:
    lengths = norms(correlated_arms(n_arms=4000, dim=3, group_size=2000, seed=2))
    for group in (lengths[:2000], lengths[2000:]):
        assert len(np.unique(group)) > 1900
        assert 9.5 < group.max() / group.min() <= 10.0
        assert group.mean() / group.max() == pytest.approx(0.55, abs=0.02)


def test_ungrouped_coefficients_are_the_integers_one_to_ten() -> None:
    # With many dimensions the largest uniform component is nearly 1, so that the largest of an arm shows its integer.
    arms = correlated_arms(n_arms=2000, dim=500, seed=3)
    estimate = 10 * arms.max(axis=1) / arms.max()
    assert np.abs(estimate - estimate.round()).max() < 0.3
    counts = np.bincount(estimate.round().astype(int), minlength=11)
    assert counts[0] == 0
    assert scipy.stats.chisquare(counts[1:]).pvalue > 1e-3


def test_unit_norm_makes_dataset_four_twenty_vectors_repeated() -> None:
    arms = correlated_arms(n_arms=200, dim=50, group_size=10, normalize="unit", seed=0)
    _, counts = np.unique(arms, axis=0, return_counts=True)
    assert counts.tolist() == [10] * 20
    kept = correlated_arms(n_arms=200, dim=50, group_size=10, seed=0)
    assert len(np.unique(kept, axis=0)) == 200
    assert np.linalg.matrix_rank(kept) == 20


def test_the_parameter_has_the_norm_asked_for_and_no_kinship_with_arms_of_the_same_seed() -> None:
    for seed in range(20):
        theta = uniform_parameter(6, norm=2.5, seed=seed)
        assert theta.shape == (6,)
        assert (theta > 0).all()
        assert np.linalg.norm(theta) == pytest.approx(2.5, rel=1e-14)
        arms = correlated_arms(n_arms=9, dim=6, normalize="unit", seed=seed)
        assert (arms @ theta / 2.5).max() < 1 - 1e-4
    np.testing.assert_array_equal(uniform_parameter(6, seed=4), uniform_parameter(6, seed=4))
    assert not np.isclose(uniform_parameter(6, seed=4), uniform_parameter(6, seed=5)).any()
    shared = rng(4)
    assert not np.isclose(uniform_parameter(6, seed=shared), uniform_parameter(6, seed=shared)).any()


# --- other arms ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("decay", [0.0, 0.5, 1.5])
def test_the_heavy_tailed_spectrum_falls_as_asked(decay: float) -> None:
    arms = heavy_tailed_arms(n_arms=20_000, dim=11, decay=decay, seed=1)
    spectrum = np.linalg.svd(arms, compute_uv=False) ** 2
    expected = np.arange(1.0, 12.0) ** -decay
    np.testing.assert_allclose(spectrum / spectrum.mean(), expected / expected.mean(), rtol=0.08)


def test_the_heavy_tailed_basis_is_not_the_axes() -> None:
    arms = heavy_tailed_arms(n_arms=20_000, dim=11, decay=2.0, seed=1)
    assert np.abs(np.corrcoef(arms.T) - np.eye(11)).max() > 0.3


def test_ordered_subspace_arms_have_the_rank_asked_for_in_every_block() -> None:
    arms = subspace_arms(n_arms=38, dim=11, n_subspaces=5, rank=3, seed=2)
    blocks = np.split(arms, [8, 16, 24, 31])  # 38 = 3 * 8 + 2 * 7: earlier subspaces take one more
    assert [int(np.linalg.matrix_rank(block)) for block in blocks] == [3] * 5
    assert np.linalg.matrix_rank(arms) == 11
    straddling = [int(np.linalg.matrix_rank(arms[at - 3 : at + 3])) for at in (8, 16, 24, 31)]
    assert straddling == [6] * 4


def test_shuffling_moves_subspace_arms_and_changes_none() -> None:
    options: dict[str, Any] = {"n_arms": 40, "dim": 11, "n_subspaces": 5, "rank": 3, "seed": 2}
    ordered, shuffled = subspace_arms(**options), subspace_arms(**options, shuffle=True)
    np.testing.assert_allclose(shuffled[np.lexsort(shuffled.T)], ordered[np.lexsort(ordered.T)])
    assert all(np.linalg.matrix_rank(block) > 3 for block in np.split(shuffled, 5))


@pytest.mark.parametrize("noise", [1e-3, 0.5])
def test_subspace_noise_is_the_relative_distance_from_the_subspace(noise: float) -> None:
    options: dict[str, Any] = {"n_arms": 26, "dim": 9, "n_subspaces": 2, "rank": 4, "normalize": "unit", "seed": 3}
    clean, noisy = subspace_arms(**options), subspace_arms(**options, noise=noise)
    for block, off in zip(np.split(clean, 2), np.split(noisy, 2), strict=True):
        basis = np.linalg.svd(block)[2][:4]
        inside = off @ basis.T @ basis
        np.testing.assert_allclose(norms(off - inside), noise * norms(inside), rtol=1e-9)
        np.testing.assert_allclose(inside / norms(inside)[:, None], block, atol=1e-12)
    assert np.linalg.matrix_rank(noisy[:13]) == 9


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: correlated_arms(n_arms=0, dim=3), r"n_arms must be a whole number >= 1, got 0"),
        (lambda: correlated_arms(n_arms=4, dim=2.0), r"dim must be a whole number >= 1, got 2\.0"),  # type: ignore[arg-type]
        (lambda: correlated_arms(n_arms=4, dim=3, group_size=0), r"group_size must be .* >= 1, got 0"),
        (lambda: heavy_tailed_arms(n_arms=-1, dim=3), r"n_arms must be .* got -1"),
        (lambda: heavy_tailed_arms(n_arms=4, dim=True), r"dim must be .* got True"),
        (lambda: heavy_tailed_arms(n_arms=4, dim=3, decay=-0.5), r"decay must be a number >= 0 .* got -0\.5"),
        (lambda: heavy_tailed_arms(n_arms=4, dim=3, decay=np.nan), r"decay must be .* got nan"),
        (lambda: subspace_arms(n_arms=9, dim=1, n_subspaces=2, rank=1), r"dim must be .* >= 2, got 1"),
        (lambda: subspace_arms(n_arms=9, dim=4, n_subspaces=0, rank=2), r"n_subspaces must be .* >= 1, got 0"),
        (lambda: subspace_arms(n_arms=9, dim=4, n_subspaces=2, rank=4), r"rank must be .* from 1 to 3, got 4"),
        (lambda: subspace_arms(n_arms=5, dim=4, n_subspaces=2, rank=3), r"n_arms must be .* >= 6, got 5"),
        (lambda: subspace_arms(n_arms=9, dim=4, n_subspaces=2, rank=3, noise=-1), r"noise must be .* >= 0 .* got -1"),
        (
            lambda: subspace_arms(n_arms=9, dim=4, n_subspaces=2, rank=3, shuffle="no"),  # type: ignore[arg-type]
            r"shuffle must be True or False, got 'no'",
        ),
        (lambda: uniform_parameter(0), r"dim must be .* got 0"),
        (lambda: uniform_parameter(3, norm=0.0), r"norm must be .* > 0 .* got 0\.0"),
        (lambda: uniform_parameter(3, seed="x"), r"seed must be .* got 'x'"),
    ],
)
def test_arm_generators_refuse(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


# --- noise ---------------------------------------------------------------------------------------------------------


class FixedUniforms(np.random.Generator):
    """Hands out the extreme uniforms, which chance would show once in centuries."""

    def __init__(self) -> None:
        super().__init__(np.random.PCG64(0))

    def random(self, *_: Any, **__: Any) -> Any:
        return np.array([0.0, 2.0**-53, 0.5, 1 - 2.0**-53])


@pytest.mark.parametrize("cut", [1e-6, 0.3, 3.0, 8.1, 8.25, 8.3, 40.0, 1e100])
@pytest.mark.parametrize("scale", [1e-50, 0.7, 1e100])
def test_noise_stays_finite_and_inside_at_the_extreme_uniforms(cut: float, scale: float) -> None:
    noise = truncated_gaussian(FixedUniforms(), 4, scale=scale, cut=cut)
    assert np.abs(noise).max() <= min(cut, 9.0) * scale
    assert noise[0] <= noise[1] <= noise[2] <= noise[3]
    assert noise[0] < -0.9 * min(cut, 8.0) * scale
    assert noise[3] > 0.9 * min(cut, 8.0) * scale


@pytest.mark.parametrize(("scale", "cut"), [(1.0, 3.0), (0.4, 1.2), (5.0, 0.01), (2.0, 50.0)])
def test_noise_has_the_moments_and_the_law_of_a_truncated_gaussian(scale: float, cut: float) -> None:
    noise = truncated_gaussian(rng(1), 200_000, scale=scale, cut=cut)
    law = scipy.stats.truncnorm(-cut, cut, scale=scale)
    assert np.abs(noise).max() <= cut * scale
    assert noise.mean() == pytest.approx(0.0, abs=4 * law.std() / np.sqrt(noise.size))
    assert noise.var() == pytest.approx(law.var(), rel=0.015)
    assert scipy.stats.kstest(noise[:5000], law.cdf).pvalue > 1e-3


def test_noise_by_default_is_the_papers() -> None:
    noise = truncated_gaussian(rng(1), 200_000)
    assert 2.9 < noise.max() <= 3.0
    assert noise.var() == pytest.approx(0.973, rel=0.01)


@settings(deadline=None, derandomize=True, max_examples=50)
@given(first=st.integers(0, 300), second=st.integers(0, 300), seed=st.integers(0, 2**32))
def test_noise_drawn_in_chunks_equals_noise_drawn_at_once(first: int, second: int, seed: int) -> None:
    chunked, whole = rng(seed), rng(seed)
    parts = [truncated_gaussian(chunked, first, scale=0.6), truncated_gaussian(chunked, second, scale=0.6)]
    np.testing.assert_array_equal(np.concatenate(parts), truncated_gaussian(whole, first + second, scale=0.6))
    assert chunked.bit_generator.state == whole.bit_generator.state


def test_noise_without_scale_is_zero_and_advances_the_generator_alike() -> None:
    silent, loud = rng(), rng()
    zeros = truncated_gaussian(silent, (3, 5), scale=0.0)
    assert zeros.shape == (3, 5)
    assert not zeros.any()
    assert truncated_gaussian(loud, (3, 5)).all()
    assert silent.random() == loud.random()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"generator": 0}, r"generator must be a numpy\.random\.Generator, got 0"),
        ({"size": -1}, r"size must be .* >= 0, got -1"),
        ({"size": 2.5}, r"size must be .* got 2\.5"),
        ({"size": (3, "4")}, r"size must be .* got '4'"),
        ({"scale": -1.0}, r"scale must be a number >= 0 .* got -1\.0"),
        ({"scale": np.inf}, r"scale must be .* got inf"),
        ({"cut": 0.0}, r"cut must be a number >= 1e-06 .* got 0\.0"),
    ],
)
def test_noise_refuses_and_leaves_the_generator_alone(options: dict[str, Any], message: str) -> None:
    generator = rng()
    with pytest.raises(ValueError, match=message):
        truncated_gaussian(**{"generator": generator, "size": 4, **options})
    assert generator.random() == rng().random()


# --- low rank, near-duplicates, embeddings, categories --------------------------------------------------------------


def test_low_rank_arms_have_the_rank_asked_for_and_noise_of_its_share() -> None:
    exact = low_rank_arms(n_arms=400, dim=12, rank=3, seed=2)
    assert np.linalg.matrix_rank(exact) == 3
    near = low_rank_arms(n_arms=400, dim=12, rank=3, noise=0.05, seed=2)
    assert np.linalg.matrix_rank(near) == 12
    basis = np.linalg.svd(exact, full_matrices=False)[2][:3]
    outside = near - near @ basis.T @ basis  # three of twelve directions of the noise are inside
    share = np.sqrt((outside**2).sum() / (near**2).sum())
    assert share == pytest.approx(0.05 * np.sqrt(9 / 12), rel=0.05)
    assert np.linalg.matrix_rank(low_rank_arms(n_arms=30, dim=4, rank=4, seed=1)) == 4
    with pytest.raises(ValueError, match="rank must be a whole number from 1 to 4, got 5"):
        low_rank_arms(n_arms=30, dim=4, rank=5)


def test_duplicated_arms_lie_around_their_centres() -> None:
    exact = duplicated_arms(n_arms=23, dim=7, n_centres=5, spread=0.0, seed=3)
    assert len(np.unique(exact.round(12), axis=0)) == 5
    np.testing.assert_array_equal(exact[:18], exact[5:])
    unit = duplicated_arms(n_arms=2000, dim=30, n_centres=4, spread=0.02, normalize="unit", seed=3)
    centres = np.stack([unit[k::4].mean(axis=0) for k in range(4)])
    distances = norms(unit - centres[np.arange(2000) % 4])
    assert np.sqrt((distances**2).mean()) == pytest.approx(0.02, rel=0.05)
    with pytest.raises(ValueError, match="n_centres must be a whole number from 1 to 3, got 4"):
        duplicated_arms(n_arms=3, dim=7, n_centres=4)


def test_embedding_like_arms_have_a_mean_a_decaying_spectrum_and_norms_of_many_sizes() -> None:
    arms = embedding_like_arms(n_arms=4000, dim=10, decay=2.0, mean=2.0, norm_spread=0.0, seed=5)
    centre = arms.mean(axis=0)
    own = np.linalg.svd(arms - centre, compute_uv=False) ** 2
    np.testing.assert_allclose(
        own / own.sum(), 1 / np.arange(1, 11) ** 2.0 / (1 / np.arange(1, 11) ** 2.0).sum(), rtol=0.1
    )
    assert norms(centre[None])[0] / np.sqrt(own.sum() / 4000) == pytest.approx(2.0, rel=0.03)
    spread = np.log(norms(embedding_like_arms(n_arms=4000, dim=10, mean=30.0, norm_spread=0.4, seed=5)))
    assert spread.std() == pytest.approx(0.4, rel=0.05)


def test_one_hot_arms_have_one_category_in_each_field() -> None:
    arms = one_hot_arms(n_arms=2000, dim=11, n_fields=3, seed=6)
    ones = arms > 0
    assert np.allclose(arms[ones], 1 / np.sqrt(3))
    for first, last in ((0, 4), (4, 8), (8, 11)):
        assert (ones[:, first:last].sum(axis=1) == 1).all()
        counts = ones[:, first:last].sum(axis=0)
        assert (abs(counts - 2000 / (last - first)) < 5 * np.sqrt(2000 / (last - first))).all()
    np.testing.assert_allclose(
        arms, one_hot_arms(n_arms=2000, dim=11, n_fields=3, normalize="unit", seed=6), atol=1e-14
    )
    with pytest.raises(ValueError, match="n_fields must be a whole number from 1 to 2, got 3"):
        one_hot_arms(n_arms=5, dim=2, n_fields=3)
