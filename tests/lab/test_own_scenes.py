"""The scenes of a user's own case: generated arms, and arms of a file."""

import dataclasses
import io
import os

import numpy as np
import polars
import pytest
from conftest import rounds

from sketchbandits.lab.experiments.scenes import GENERATORS, Model, file_digest
from sketchbandits.lab.own_case import GENERATOR_OPTIONS, file_scene, generated_scene

N, D, L = 13, 6, 4
MODEL = Model(L)
T = rounds(3_000, 120)


@pytest.fixture
def arms(tmp_path):
    path = tmp_path / "my arms.npy"
    np.save(path, np.random.default_rng(0).standard_normal((N, D)))
    return str(path)


@pytest.fixture
def theta(tmp_path):
    """Write a parameter and give its path."""

    def write(values):
        path = tmp_path / "theta.npy"
        if isinstance(values, bytes):
            path.write_bytes(values)
        else:
            np.save(path, values, allow_pickle=True)
        return str(path)

    return write


# --- generated arms ---


def test_every_generator_has_its_options():
    assert (
        {"correlated", "heavy-tailed", "subspaces"} == set(GENERATOR_OPTIONS) < set(GENERATORS)
    )  # of the command line


@pytest.mark.parametrize(
    ("generator", "given", "parameter"),
    [
        ("correlated", {"dim": 7, "group_size": 3}, "uniform"),
        ("heavy-tailed", {"n_arms": 20, "decay": 0.25}, "isotropic"),
        ("subspaces", {"rank": 2, "n_subspaces": 3}, "isotropic"),
    ],
)
def test_options_that_are_not_given_have_defaults(generator, given, parameter):
    scene = generated_scene(MODEL, generator, given, "unit")
    assert dict(scene.options) == {**GENERATOR_OPTIONS[generator], **given}
    assert (scene.name, scene.generator, scene.normalize) == (generator, generator, "unit")
    assert (scene.model, scene.parameter) == (MODEL, parameter)
    drawn = scene.draw(0)
    assert drawn.arms.shape == tuple(dict(scene.options)[name] for name in ("n_arms", "dim"))
    expected = GENERATORS[generator](**dict(scene.options), normalize="unit", seed=0)
    assert np.array_equal(drawn.arms, expected)


def test_the_defaults_are_the_papers_first_data_set():
    scene = generated_scene(MODEL, "correlated", {}, "max")
    assert dict(scene.options) == {"n_arms": 60, "dim": 50, "group_size": 1}


@pytest.mark.parametrize(
    ("generator", "options", "normalize", "message"),
    [
        ("gaussian", {}, "max", "generator must be one of 'correlated', 'heavy-tailed', 'subspaces', got 'gaussian'"),
        ("correlated", {}, "none", "normalize must be one of 'max', 'unit', got 'none'"),
        ("correlated", {"rank": 3}, "max", "rank must come with the generator subspaces, got 3 with correlated"),
        ("subspaces", {"decay": 0.5}, "max", "decay must come with the generator heavy-tailed, got 0.5 with subspaces"),
        ("correlated", {"n_arms": 0}, "max", "n_arms must be a whole number >= 1, got 0"),
        ("correlated", {"dim": "many"}, "max", "dim must be a whole number >= 1, got 'many'"),
        ("heavy-tailed", {"decay": -1.0}, "max", "decay must be a number >= 0"),
        ("subspaces", {"rank": 50}, "max", "rank must be a whole number from 1 to 49, got 50"),
        ("subspaces", {"n_subspaces": 20}, "max", "n_arms must be a whole number >= 80, got 60"),
    ],
)
def test_what_a_generator_refuses_is_refused_at_once(generator, options, normalize, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        generated_scene(MODEL, generator, options, normalize)


# --- arms of a file ---


def test_a_file_becomes_a_scene(arms, theta, monkeypatch):
    known = np.linspace(-0.3, 0.4, D)
    monkeypatch.chdir(os.path.dirname(arms))
    scene = file_scene(MODEL, "my arms.npy", None, None, theta(known), "unit")
    assert (scene.name, scene.path, scene.digest) == ("my arms.npy", arms, file_digest(arms))
    assert scene.theta == tuple(known.tolist())
    assert (scene.normalize, scene.parameter, scene.model) == ("unit", "isotropic", MODEL)
    assert np.allclose(np.linalg.norm(scene.draw(3).arms, axis=1), 1.0)
    assert np.array_equal(scene.draw(3).env.theta, known)


def test_columns_are_chosen(tmp_path, theta):
    path = str(tmp_path / "arms.parquet")
    polars.DataFrame({"id": ["x", "y"], "a": [1.0, 2.0], "b": [3.0, 4.0], "c": [5.0, 6.0]}).write_parquet(path)
    scene = file_scene(MODEL, path, "id", ("c", "a"), theta(np.array([0.5, 0.25])), "none")
    assert (scene.id_column, scene.features) == ("id", ("c", "a"))
    assert scene.draw(0).arms.tolist() == [[5.0, 1.0], [6.0, 2.0]]
    assert scene.draw(0).env.means.tolist() == [2.75, 3.5]
    with pytest.raises(ValueError, match=r"theta must be .* a vector of length 2, as the arms have"):
        file_scene(MODEL, path, "id", ("c", "a"), theta(np.array([0.5, 0.25, 0.1])), "none")
    with pytest.raises(ValueError, match=r"features must be among .*, got 'd'"):
        file_scene(MODEL, path, "id", ("c", "d"), None, "none")


def test_a_parameter_of_integers_and_of_full_length_is_taken(arms, theta):
    scene = file_scene(
        dataclasses.replace(MODEL, theta_norm=2.0), arms, None, None, theta(np.eye(D, dtype=int)[2] * 2), "none"
    )
    assert scene.theta == (0.0, 0.0, 2.0, 0.0, 0.0, 0.0)


def npy(values):
    file = io.BytesIO()
    np.save(file, values)
    return file.getvalue()


def npz(values):
    file = io.BytesIO()
    np.savez(file, values)
    return file.getvalue()


GOOD = npy(np.full(D, 0.1))


@pytest.mark.parametrize(
    "values",
    [
        pytest.param(np.full(D + 1, 0.1), id="too long"),
        pytest.param(np.full(D - 1, 0.1), id="too short"),
        pytest.param(np.full((1, D), 0.1), id="a matrix"),
        pytest.param(np.array(0.1), id="one number"),
        pytest.param(np.array([0.1] * (D - 1) + [np.nan]), id="nan"),
        pytest.param(np.array(["0.1"] * D), id="words"),
        pytest.param(np.array([0.1] * D, dtype=object), id="pickled"),
        pytest.param(npz(np.full(D, 0.1)), id="an archive"),
        pytest.param(b"", id="empty"),
        pytest.param(b"0.1,0.1,0.1,0.1,0.1,0.1\n", id="text"),
        pytest.param(GOOD[:-1], id="cut in the data"),
        pytest.param(GOOD[:60], id="cut in the head"),
        pytest.param(GOOD.replace(b"}", b"{"), id="a head that does not parse"),
        pytest.param(
            GOOD.replace(b"(6,), }" + b" " * 14, b"(999999999999999,), }"), id="a head that promises too much"
        ),
    ],
)
def test_a_parameter_that_does_not_fit_is_refused(arms, theta, values):
    path = theta(values)
    with pytest.raises(
        ValueError, match=r"^theta must be a .npy file with a vector of length 6, as the arms have, got '.*theta.npy'"
    ) as caught:
        file_scene(MODEL, arms, None, None, path, "none")
    assert type(caught.value) is ValueError


def test_a_parameter_longer_than_promised_is_refused(arms, theta):
    path = theta(np.full(D, 0.5))  # of norm 1.22
    with pytest.raises(ValueError, match=r"^theta must have a norm of at most --theta-norm 1, got 1.22474$"):
        file_scene(MODEL, arms, None, None, path, "none")
    assert file_scene(Model(L, theta_norm=1.23), arms, None, None, path, "none").theta == (0.5,) * D


def test_files_that_are_not_there_are_os_errors(arms, tmp_path):
    with pytest.raises(FileNotFoundError):
        file_scene(MODEL, str(tmp_path / "none.npy"), None, None, None, "none")
    with pytest.raises(FileNotFoundError):
        file_scene(MODEL, arms, None, None, str(tmp_path / "none.npy"), "none")


def test_bad_scaling_of_a_file_is_refused(arms):
    with pytest.raises(ValueError, match="normalize must be one of 'none', 'max', 'unit', got 'l2'"):
        file_scene(MODEL, arms, None, None, None, "l2")
