"""Arm sets and hidden parameters, drawn from a seed.

Every arm set is an ``(n_arms, dim)`` float64 array scaled in one of two ways: ``normalize="max"`` divides all arms by
the largest norm, so that norms are at most 1 (up to rounding) and their ratios are kept; ``"unit"`` divides each arm by
its own norm. ``seed`` is a whole number, a ``SeedSequence``, a ``Generator`` (which is advanced) or ``None``.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sketchbandits import validate

NORMALIZATIONS = ("max", "unit")


def correlated_arms(
    *, n_arms: int, dim: int, group_size: int = 1, normalize: str = "max", seed: Any = None
) -> NDArray[np.float64]:
    """``n_arms`` arms as in the CS-LB paper: groups of ``group_size`` successive arms share a direction.

    The arms of a group differ in length only.

    Formula: ``arm_i = a_i x_g`` with ``g = i // group_size`` and the components of ``x_g`` uniform on (0, 1); the last
    group is smaller where ``group_size`` does not divide ``n_arms``.
    Cost: ``O(N d)``.
    Reference: the CS-LB paper, "Experimental Setup" (``group_size`` is its ``m^l``).
    Departures: the paper names no law for the coefficients; here they are integers uniform on 1..10 for
    ``group_size=1`` ("a random integer coefficient") and reals uniform on (0.1, 1) otherwise ("real-valued"). It also
    prints ``x / |x|``, which erases the coefficients and makes a group one repeated vector: that is ``"unit"``, while
    the default ``"max"`` keeps them and still ensures ``|x| <= 1``, the paper's stated aim.

    ``normalize="max"`` divides all arms by the largest norm, ``"unit"`` divides each by its own. ``seed`` is a whole
    number, a ``SeedSequence``, a ``Generator`` (which is advanced) or None.
    """
    n_arms, dim = validate.whole("n_arms", n_arms), validate.whole("dim", dim)
    group_size = validate.whole("group_size", group_size)
    normalize = validate.option("normalize", normalize, NORMALIZATIONS)
    rng = validate.generator(seed)
    group = np.arange(n_arms) // min(group_size, n_arms)
    directions = _positive_uniform(rng, (int(group[-1]) + 1, dim))
    if normalize == "unit":
        return unit_rows(directions)[group]  # scaled before repeating: the arms of a group are bit-for-bit identical
    coefficients: NDArray[Any] = rng.integers(1, 11, n_arms) if group_size == 1 else rng.uniform(0.1, 1.0, n_arms)
    return normalized(coefficients[:, None] * directions[group], normalize)


def heavy_tailed_arms(
    *, n_arms: int, dim: int, decay: float = 0.5, normalize: str = "max", seed: Any = None
) -> NDArray[np.float64]:
    """``n_arms`` Gaussian arms whose spectrum falls slowly: every sketch of fixed size loses a large share of it.

    Formula: ``arm ~ N(0, Q diag(i**-decay) Q^T)``, ``i = 1..dim``, ``Q`` a random orthonormal basis. ``decay >= 0``: 0
    makes all directions alike, and for ``decay < 1`` the ``l`` leading directions hold only about
    ``(l/d)**(1 - decay)`` of the variance.
    Cost: ``O(N d^2 + d^3)``.

    ``normalize="max"`` divides all arms by the largest norm, ``"unit"`` divides each by its own. ``seed`` is a whole
    number, a ``SeedSequence``, a ``Generator`` (which is advanced) or None.
    """
    n_arms, dim = validate.whole("n_arms", n_arms), validate.whole("dim", dim)
    decay = validate.number("decay", decay, least=0.0)
    normalize = validate.option("normalize", normalize, NORMALIZATIONS)
    rng = validate.generator(seed)
    basis = _orthonormal(rng, dim, dim)
    deviations = np.arange(1.0, dim + 1.0) ** (-decay / 2)
    return normalized((rng.standard_normal((n_arms, dim)) * deviations) @ basis.T, normalize)


def subspace_arms(
    *,
    n_arms: int,
    dim: int,
    n_subspaces: int,
    rank: int,
    shuffle: bool = False,
    noise: float = 0.0,
    normalize: str = "max",
    seed: Any = None,
) -> NDArray[np.float64]:
    """``n_arms`` arms in a union of ``n_subspaces`` random subspaces of dimension ``rank``.

    Formula: ``arm = Q_s z + noise |z| u``, ``z`` standard normal, ``u`` a random unit vector orthogonal to the span of
    ``Q_s``: the distance of an arm from its subspace is ``noise`` times the length of its part inside. All subspaces
    get the same number of arms, or the earlier ones get one more. The arms come in the order of their subspaces, or
    with ``shuffle=True`` in random order. Neither ``shuffle`` nor ``noise`` changes the subspaces and the parts inside
    that a seed gives.
    Cost: ``O(N d r)``, plus ``O(d r^2)`` per subspace.

    ``normalize="max"`` divides all arms by the largest norm, ``"unit"`` divides each by its own. ``seed`` is a whole
    number, a ``SeedSequence``, a ``Generator`` (which is advanced) or None.

    Refused: ``rank >= dim`` (all subspaces would be the whole space, with nothing outside) and
    ``n_arms < n_subspaces * rank`` (some subspace would hold too few arms to have its rank).
    """
    dim = validate.whole("dim", dim, least=2)
    n_subspaces = validate.whole("n_subspaces", n_subspaces)
    rank = validate.whole("rank", rank, most=dim - 1)
    n_arms = validate.whole("n_arms", n_arms, least=n_subspaces * rank)
    shuffle = validate.flag("shuffle", shuffle)
    noise = validate.number("noise", noise, least=0.0)
    normalize = validate.option("normalize", normalize, NORMALIZATIONS)
    rng = validate.generator(seed)
    sizes = np.bincount(np.arange(n_arms) % n_subspaces)
    arms = np.concatenate([_subspace_block(rng, size, dim, rank, noise) for size in sizes])
    return normalized(rng.permutation(arms) if shuffle else arms, normalize)


def low_rank_arms(
    *, n_arms: int, dim: int, rank: int, noise: float = 0.0, normalize: str = "max", seed: Any = None
) -> NDArray[np.float64]:
    """``n_arms`` Gaussian arms in or near one random subspace of dimension ``rank``.

    Formula: ``arm = Q z + noise sqrt(rank/dim) g``, ``z`` and ``g`` standard normal in ``rank`` and ``dim`` dimensions:
    the two parts' root mean square lengths are in the ratio ``noise``, in [0, 1] as a rule. `subspace_arms` puts every
    arm at the same relative distance from its subspace instead. ``noise`` changes neither the subspace nor the parts
    inside that a seed gives.
    Cost: ``O(N d r + d r^2)``.

    ``normalize="max"`` divides all arms by the largest norm, ``"unit"`` divides each by its own. ``seed`` is a whole
    number, a ``SeedSequence``, a ``Generator`` (which is advanced) or None.
    """
    n_arms, dim = validate.whole("n_arms", n_arms), validate.whole("dim", dim)
    rank = validate.whole("rank", rank, most=dim)
    noise = validate.number("noise", noise, least=0.0)
    normalize = validate.option("normalize", normalize, NORMALIZATIONS)
    rng = validate.generator(seed)
    inside = rng.standard_normal((n_arms, rank)) @ _orthonormal(rng, dim, rank).T
    return normalized(inside + noise * np.sqrt(rank / dim) * rng.standard_normal((n_arms, dim)), normalize)


def duplicated_arms(
    *, n_arms: int, dim: int, n_centres: int, spread: float = 0.01, normalize: str = "max", seed: Any = None
) -> NDArray[np.float64]:
    """``n_arms`` arms that are nearly copies of ``n_centres`` Gaussian ones, as versions of one item are.

    Formula: ``arm = c + spread |c| g / sqrt(dim)``, ``c`` one of the centres, ``g`` standard normal. Arm i belongs to
    centre ``i % n_centres``; ``spread=0`` makes exact copies.
    Cost: ``O(N d)``.

    ``normalize="max"`` divides all arms by the largest norm, ``"unit"`` divides each by its own. ``seed`` is a whole
    number, a ``SeedSequence``, a ``Generator`` (which is advanced) or None.
    """
    n_arms, dim = validate.whole("n_arms", n_arms), validate.whole("dim", dim)
    n_centres = validate.whole("n_centres", n_centres, most=n_arms)
    spread = validate.number("spread", spread, least=0.0)
    normalize = validate.option("normalize", normalize, NORMALIZATIONS)
    rng = validate.generator(seed)
    centres = rng.standard_normal((n_centres, dim))[np.arange(n_arms) % n_centres]
    lengths = np.linalg.norm(centres, axis=1, keepdims=True)
    return normalized(centres + spread / np.sqrt(dim) * lengths * rng.standard_normal((n_arms, dim)), normalize)


def embedding_like_arms(
    *,
    n_arms: int,
    dim: int,
    decay: float = 1.0,
    mean: float = 1.0,
    norm_spread: float = 0.3,
    normalize: str = "max",
    seed: Any = None,
) -> NDArray[np.float64]:
    """``n_arms`` arms shaped like learned embeddings: a common mean, a decaying spectrum, norms of several sizes.

    Formula: ``arm = exp(norm_spread h) (mean m + Q diag(s) g)``, ``m`` a random unit vector, ``s_i`` proportional to
    ``i**(-decay/2)`` with ``sum s_i^2 = 1``, ``g`` and ``h`` standard normal, ``Q`` a random orthonormal basis. The
    common part is ``mean`` times as long as the root mean square of what tells arms apart.
    Cost: ``O(N d^2 + d^3)``.

    ``normalize="max"`` divides all arms by the largest norm, ``"unit"`` divides each by its own. ``seed`` is a whole
    number, a ``SeedSequence``, a ``Generator`` (which is advanced) or None.
    """
    n_arms, dim = validate.whole("n_arms", n_arms), validate.whole("dim", dim)
    decay, mean = validate.number("decay", decay, least=0.0), validate.number("mean", mean, least=0.0)
    norm_spread = validate.number("norm_spread", norm_spread, least=0.0)
    normalize = validate.option("normalize", normalize, NORMALIZATIONS)
    rng = validate.generator(seed)
    deviations = np.arange(1.0, dim + 1.0) ** (-decay / 2)
    basis = _orthonormal(rng, dim, dim) * (deviations / np.linalg.norm(deviations))
    own = rng.standard_normal((n_arms, dim)) @ basis.T
    common = mean * unit_rows(rng.standard_normal((1, dim)))
    return normalized(np.exp(norm_spread * rng.standard_normal((n_arms, 1))) * (common + own), normalize)


def one_hot_arms(
    *, n_arms: int, dim: int, n_fields: int, normalize: str = "max", seed: Any = None
) -> NDArray[np.float64]:
    """``n_arms`` arms of ``n_fields`` categorical fields, each coded by a 1 among its share of the ``dim`` columns.

    The columns are divided evenly among the fields (the first ones get one more), and every category is equally likely.
    Arms may repeat, as items with the same categories do. All norms are ``sqrt(n_fields)`` before scaling.
    Cost: ``O(N d)``.

    ``normalize="max"`` divides all arms by the largest norm, ``"unit"`` divides each by its own: the same here.
    ``seed`` is a whole number, a ``SeedSequence``, a ``Generator`` (which is advanced) or None.
    """
    n_arms, dim = validate.whole("n_arms", n_arms), validate.whole("dim", dim)
    n_fields = validate.whole("n_fields", n_fields, most=dim)
    normalize = validate.option("normalize", normalize, NORMALIZATIONS)
    rng = validate.generator(seed)
    sizes = np.bincount(np.arange(dim) % n_fields)
    columns = np.cumsum(sizes) - sizes + rng.integers(0, sizes, (n_arms, n_fields))
    arms = np.zeros((n_arms, dim))
    np.put_along_axis(arms, columns, 1.0, axis=1)
    return normalized(arms, normalize)


def uniform_parameter(dim: int, *, norm: float = 1.0, seed: Any = None) -> NDArray[np.float64]:
    """A hidden parameter of ``dim`` components, uniform on (0, 1) and then scaled to length ``norm``.

    Reference: the CS-LB paper, "Experimental Setup": generated "in the same manner" as the arms, with ``S = 1``.
    Departures: the paper leaves the length at ``|theta| <= 1``; here it is ``norm`` exactly, since the scaling absorbs
    any coefficient.
    """
    dim = validate.whole("dim", dim)
    norm = validate.positive("norm", norm)
    # A child stream: drawn straight from the seed, the parameter would be parallel to the first arm of
    # correlated_arms with the same seed, which would then always be the best direction.
    rng = np.random.default_rng(validate.generator(seed).integers(2**63, size=4))
    return norm * unit_rows(_positive_uniform(rng, (1, dim))).ravel()


def isotropic_parameter(dim: int, *, norm: float = 1.0, seed: Any = None) -> NDArray[np.float64]:
    """A hidden parameter of ``dim`` components in a uniformly random direction, of length ``norm``."""
    dim = validate.whole("dim", dim)
    norm = validate.positive("norm", norm)
    rng = np.random.default_rng(validate.generator(seed).integers(2**63, size=4))  # a child stream, as above
    return norm * unit_rows(rng.standard_normal((1, dim))).ravel()


def unit_rows(rows: NDArray[Any]) -> NDArray[Any]:
    """Every row divided by its norm; a zero row stays zero."""
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.where(norms > 0.0, norms, 1.0)


def normalized(arms: NDArray[Any], normalize: str) -> NDArray[Any]:
    """All arms divided by the largest norm (``"max"``), or each by its own (``"unit"``); zero stays zero."""
    exact = np.asarray(arms, dtype=np.float64)  # the squares of float32 numbers may overflow
    if normalize == "unit":
        return unit_rows(exact).astype(arms.dtype)
    largest = np.linalg.norm(exact, axis=1).max()
    return (exact / largest).astype(arms.dtype) if largest > 0.0 else arms.copy()


def _positive_uniform(rng: np.random.Generator, shape: tuple[int, int]) -> NDArray[np.float64]:
    return 1.0 - rng.random(shape)  # (0, 1] instead of [0, 1): a direction is never zero


def _orthonormal(rng: np.random.Generator, dim: int, rank: int) -> NDArray[np.float64]:
    """Columns spanning uniformly random directions (their signs are not random, which a Gaussian does not see)."""
    return np.linalg.qr(rng.standard_normal((dim, rank)))[0]


def _subspace_block(rng: np.random.Generator, size: int, dim: int, rank: int, noise: float) -> NDArray[np.float64]:
    basis = _orthonormal(rng, dim, rank)
    inside = rng.standard_normal((size, rank)) @ basis.T
    outside = rng.standard_normal((size, dim))  # drawn even without noise: the next block must not depend on it
    outside -= (outside @ basis) @ basis.T
    lengths: NDArray[np.float64] = np.linalg.norm(inside, axis=1, keepdims=True)
    return inside + noise * lengths * unit_rows(outside)
