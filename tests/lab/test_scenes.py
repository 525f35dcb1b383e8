"""Scenes: draws from a seed, what they depend on, arms of a file, refusals."""

import dataclasses
import json
import math

import numpy as np
import pytest

from sketchbandits.environments import correlated_arms, heavy_tailed_arms, isotropic_parameter, uniform_parameter
from sketchbandits.environments.generators import normalized
from sketchbandits.lab.experiments.scenes import FileScene, Model, Scene, file_digest

N, D, L = 13, 6, 4
MODEL = Model(L, noise=0.25, theta_norm=2.0)
OPTIONS = (("n_arms", N), ("dim", D), ("group_size", 2))
SCENE = Scene("tiny", MODEL, "correlated", OPTIONS)


@pytest.fixture
def values():
    return np.random.default_rng(0).standard_normal((N, D))


@pytest.fixture
def file_of(tmp_path):
    """Write arms into a file and give its scene."""

    def write(values, name="arms.npy", **fields):
        path = tmp_path / name
        if isinstance(values, str):
            path.write_text(values)
        else:
            np.save(path, values)
        return FileScene(name, MODEL, str(path), file_digest(str(path)), **fields)

    return write


def same(one, two):
    return np.array_equal(one.arms, two.arms) and np.array_equal(one.env.theta, two.env.theta)


# --- draws ---


@pytest.mark.parametrize(
    ("generator", "options"),
    [
        ("correlated", OPTIONS),
        ("heavy-tailed", (("n_arms", N), ("dim", D), ("decay", 0.3))),
        ("subspaces", (("n_arms", N), ("dim", D), ("n_subspaces", 3), ("rank", 2))),
        ("low-rank", (("n_arms", N), ("dim", D), ("rank", 2), ("noise", 0.1))),
        ("duplicated", (("n_arms", N), ("dim", D), ("n_centres", 4))),
        ("embedding-like", (("n_arms", N), ("dim", D))),
    ],
)
@pytest.mark.parametrize("normalize", ["max", "unit"])
@pytest.mark.parametrize("parameter", ["uniform", "isotropic"])
def test_a_seed_gives_a_draw(generator, options, normalize, parameter):
    scene = Scene("tiny", MODEL, generator, options, normalize, parameter)
    one, again, other = (scene.draw(seed) for seed in (5, 5, 6))
    assert same(one, again)
    assert not np.array_equal(one.arms, other.arms)
    assert not np.array_equal(one.env.theta, other.env.theta)
    assert one.arms.shape == one.env.arms.shape == (N, D)
    assert np.array_equal(one.arms, one.env.arms)
    assert np.linalg.norm(one.env.theta) == pytest.approx(2.0)
    assert one.env.noise_scale == 0.25
    norms = np.linalg.norm(one.arms, axis=1)
    assert norms.max() == pytest.approx(1.0)
    assert bool(norms.min() > 1 - 1e-12) is (normalize == "unit")


def test_a_draw_is_the_generators_arms_and_then_the_parameter():
    rng = np.random.default_rng(5)
    arms = correlated_arms(n_arms=N, dim=D, group_size=2, normalize="unit", seed=rng)
    theta = uniform_parameter(D, norm=2.0, seed=rng)
    drawn = Scene("tiny", MODEL, "correlated", OPTIONS, "unit").draw(5)
    assert np.array_equal(drawn.arms, arms)
    assert np.array_equal(drawn.env.theta, theta)
    rng = np.random.default_rng(5)
    arms = heavy_tailed_arms(n_arms=N, dim=D, decay=0.3, seed=rng)
    options = (("n_arms", N), ("dim", D), ("decay", 0.3))
    drawn = Scene("tiny", MODEL, "heavy-tailed", options, parameter="isotropic").draw(5)
    assert np.array_equal(drawn.arms, arms)
    assert np.array_equal(drawn.env.theta, isotropic_parameter(D, norm=2.0, seed=rng))


# --- what a scene depends on ---

MODEL_CHANGES = {
    "sketch_size": 5, "ridge": 1.5, "noise": 0.5, "theta_norm": 1.0, "arm_norm": 3.0, "delta": 0.02,
}  # fmt: skip
SCENE_CHANGES = {
    "name": "other",
    "generator": "heavy-tailed",
    "options": (("n_arms", N), ("dim", D), ("group_size", 3)),
    "normalize": "unit",
    "parameter": "isotropic",
}
FILE_CHANGES = {
    "name": "other",
    "digest": "0" * 64,
    "id_column": "id",
    "features": ("a", "b"),
    "theta": (0.5,) * D,
    "normalize": "max",
    "parameter": "uniform",
}


def variants(scene, changes):
    """The scene with one field changed, for every field and every field of its model."""
    assert set(changes) == {field.name for field in dataclasses.fields(scene)} - {"model", "path"}
    assert set(MODEL_CHANGES) == {field.name for field in dataclasses.fields(Model)}
    for name, value in changes.items():
        yield dataclasses.replace(scene, **{name: value})
    for name, value in MODEL_CHANGES.items():
        yield dataclasses.replace(scene, model=dataclasses.replace(scene.model, **{name: value}))


@pytest.mark.parametrize(
    ("scene", "changes"), [(SCENE, SCENE_CHANGES), (FileScene("tiny", MODEL, "/a.npy", "1" * 64), FILE_CHANGES)]
)
def test_identity_changes_with_every_field(scene, changes):
    identities = [json.dumps(each.identity(), sort_keys=True) for each in (scene, *variants(scene, changes))]
    assert len(set(identities)) == len(identities) == 1 + len(changes) + len(MODEL_CHANGES)
    copy = dataclasses.replace(scene)
    assert copy.identity() == scene.identity() and copy == scene and hash(copy) == hash(scene)


def test_identity_knows_a_file_by_its_content_not_its_place(file_of, values, tmp_path):
    scene = file_of(values)
    (tmp_path / "elsewhere").mkdir()
    np.save(tmp_path / "elsewhere" / "arms.npy", values)
    path = str(tmp_path / "elsewhere" / "arms.npy")
    moved = dataclasses.replace(scene, path=path, digest=file_digest(path))
    assert moved != scene
    assert moved.identity() == scene.identity()
    assert same(moved.draw(3), scene.draw(3))
    assert str(tmp_path) not in json.dumps(scene.identity())


# --- arms of a file ---


def test_a_files_arms_meet_a_new_parameter_in_every_run(file_of, values):
    scene = file_of(values)
    one, again, other = (scene.draw(seed) for seed in (5, 5, 6))
    assert np.array_equal(one.arms, values) and np.array_equal(other.arms, values)
    assert same(one, again)
    assert not np.array_equal(one.env.theta, other.env.theta)
    assert np.array_equal(one.env.theta, isotropic_parameter(D, norm=2.0, seed=5))
    assert one.env.noise_scale == 0.25


def test_the_parameter_may_be_uniform(file_of, values):
    drawn = file_of(values, parameter="uniform").draw(5)
    assert np.array_equal(drawn.env.theta, uniform_parameter(D, norm=2.0, seed=5))


@pytest.mark.parametrize("normalize", ["none", "max", "unit"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_arms_keep_their_precision(file_of, values, dtype, normalize):
    drawn = file_of(values.astype(dtype), normalize=normalize).draw(0)
    assert drawn.arms.dtype == dtype
    assert drawn.env.arms.dtype == np.float64
    assert np.array_equal(drawn.env.arms, drawn.arms.astype(np.float64))


def test_a_files_arms_are_scaled_as_asked(file_of, values):
    norms = np.linalg.norm(values, axis=1)
    assert np.array_equal(file_of(values).draw(0).arms, values)
    assert np.allclose(file_of(values, normalize="max").draw(0).arms, values / norms.max(), rtol=1e-14)
    assert np.allclose(file_of(values, normalize="unit").draw(0).arms, values / norms[:, None], rtol=1e-14)


def test_a_known_parameter_is_used_in_every_run(file_of, values):
    theta = tuple(np.linspace(-0.5, 0.5, D).tolist())
    scene = file_of(values, theta=theta)
    for seed in (1, 2):
        env = scene.draw(seed).env
        assert env.theta.tolist() == list(theta)
        assert np.allclose(env.means, values @ np.array(theta))
        assert env.noise_scale == 0.25


def test_columns_of_a_table(file_of):
    scene = file_of("id,a,b,c\nx,1,2,3\ny,4,5,6\n", "arms.csv", id_column="id", features=("c", "a"))
    assert scene.draw(0).arms.tolist() == [[3.0, 1.0], [6.0, 4.0]]
    other = dataclasses.replace(scene, features=None)
    assert other.draw(0).arms.tolist() == [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]


def test_a_file_that_has_changed_is_refused(file_of, values):
    scene = file_of(values)
    np.save(scene.path, values + 1e-12)
    with pytest.raises(
        ValueError, match=r"arms must not change while they are played, got another content of '.*arms.npy'"
    ):
        scene.draw(0)


def test_a_file_that_is_gone_is_an_os_error(file_of, values, tmp_path):
    scene = file_of(values)
    (tmp_path / "arms.npy").unlink()
    with pytest.raises(FileNotFoundError):
        scene.draw(0)


def test_a_digest_tells_any_byte(tmp_path):
    path = tmp_path / "file"
    contents = [b"", b"a", b"b", b"a" * 100_000, b"a" * 100_001]
    digests = set()
    for content in contents:
        path.write_bytes(content)
        digests.add(file_digest(str(path)))
    assert len(digests) == len(contents)


# --- refusals ---


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"generator": "gaussian"},
            "generator must be one of 'correlated', 'heavy-tailed', 'subspaces', 'low-rank', .* got 'gaussian'",
        ),
        ({"normalize": "none"}, "normalize must be one of 'max', 'unit', got 'none'"),
        ({"parameter": "sparse"}, "parameter must be one of 'uniform', 'isotropic', got 'sparse'"),
    ],
)
def test_bad_fields_of_a_scene_are_named(change, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(SCENE, **change)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"normalize": "l2"}, "normalize must be one of 'none', 'max', 'unit', got 'l2'"),
        ({"parameter": "sparse"}, "parameter must be one of 'uniform', 'isotropic', got 'sparse'"),
    ],
)
def test_bad_fields_of_a_file_are_named(change, message):
    with pytest.raises(ValueError, match=message):
        FileScene("tiny", MODEL, "/a.npy", "1" * 64, **change)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sketch_size": 0}, "sketch_size must be a whole number >= 1, got 0"),
        ({"sketch_size": 2.0}, "sketch_size must be a whole number >= 1, got 2.0"),
        ({"ridge": 0.0}, "ridge must be a number > 0"),
        ({"noise": -1.0}, "noise must be a number > 0"),
        ({"theta_norm": "x"}, "theta_norm must be a number > 0 .*, got 'x'"),
        ({"delta": 1.0}, "delta must be a number strictly between 0 and 1, got 1.0"),
    ],
)
def test_bad_fields_of_a_model_are_named(change, message):
    with pytest.raises(ValueError, match=message):
        Model(**{"sketch_size": 4, **change})


# --- parameters and scaling ---


def test_an_isotropic_parameter_has_the_norm_and_no_preferred_orthant():
    draws = np.array([isotropic_parameter(3, norm=2.5, seed=seed) for seed in range(1600)])
    assert np.allclose(np.linalg.norm(draws, axis=1), 2.5, rtol=1e-14)
    counts = np.bincount((draws > 0) @ [1, 2, 4], minlength=8)
    assert (abs(counts - 200) < 5 * math.sqrt(200 * 7 / 8)).all()
    # A uniform direction: mean 0 and covariance norm^2/3, each within five standard errors.
    assert (abs(draws.mean(axis=0)) < 5 * 2.5 / math.sqrt(3 * 1600)).all()
    assert np.allclose(draws.T @ draws / 1600, np.eye(3) * 2.5**2 / 3, atol=5 * 2.5**2 * math.sqrt(4 / 45 / 1600))


def test_an_isotropic_parameter_is_not_one_of_the_arms_of_its_seed():
    for seed in range(20):
        arms = heavy_tailed_arms(n_arms=N, dim=D, normalize="unit", seed=seed)
        assert abs(arms @ isotropic_parameter(D, seed=seed)).max() < 1 - 1e-6


def test_parameters_are_checked():
    with pytest.raises(ValueError, match="dim must be a whole number >= 1, got 0"):
        isotropic_parameter(0)
    with pytest.raises(ValueError, match="norm must be a number > 0"):
        isotropic_parameter(3, norm=0.0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_scaling_keeps_zero_arms_and_leaves_its_input(dtype):
    arms = np.array([[3.0, 4.0], [0.0, 0.0], [0.0, 2.5]], dtype=dtype)
    before = arms.copy()
    arms.flags.writeable = False
    assert np.allclose(normalized(arms, "max"), [[0.6, 0.8], [0.0, 0.0], [0.0, 0.5]])
    assert np.allclose(normalized(arms, "unit"), [[0.6, 0.8], [0.0, 0.0], [0.0, 1.0]])
    assert np.array_equal(arms, before)
    for normalize in ("max", "unit"):
        zero = normalized(np.zeros((2, 3), dtype=dtype), normalize)
        assert zero.dtype == dtype and zero.tolist() == [[0.0] * 3] * 2
        assert zero.flags.writeable and normalized(arms, normalize).flags.writeable


@pytest.mark.parametrize("normalize", ["max", "unit"])
@pytest.mark.parametrize("scale", [1e-25, 1e25])
def test_scaling_float32_neither_overflows_nor_vanishes(normalize, scale):
    arms = np.array([[3.0, 4.0], [0.0, 2.5]]) * scale
    expected = normalized(arms, normalize)
    assert np.allclose(normalized(arms.astype(np.float32), normalize), expected, rtol=1e-6)
