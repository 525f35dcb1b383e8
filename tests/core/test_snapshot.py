"""Saved policies: files of every format, damaged and manipulated ones, and what a refusal says."""

import io
import json
import zipfile
from pathlib import Path

import numpy as np
import pytest
from catalogue import CONTEXTUAL, POLICIES
from conftest import JIT

import sketchbandits
from sketchbandits import CBRAP, OFUL, SOFUL, UCB1, DBSLinUCB, LinTS, LinUCB, MultiscaleCSLB
from sketchbandits.policies.contextual import ContextualRidge
from sketchbandits.policies.fits.contextual_sketched import ContextualSketch
from sketchbandits.policies.streaming.policy import ContextualMultiscale
from sketchbandits.sketches.base import SHRUNK
from sketchbandits.snapshot import FORMAT, leaves

# One state of every variant of the catalogue in each older format, and how it goes on. Version 0.1.0 wrote format 1.
OLD = {n: zipfile.ZipFile(Path(__file__).parent / "data" / f"states_format_{n}.zip") for n in (1, 2)}
EXPECTED = {n: json.loads(file.read("expected.json")) for n, file in OLD.items()}
LATER = {
    "oful-capped",
    "contextual-oful-mixture",
    "hybrid",
    "hybrid-clusters",
}  # variants that those versions did not have
CONTEXTUAL_CLASSES = {cls.__name__: cls for cls in (ContextualRidge, ContextualSketch, ContextualMultiscale)}
N, D = 14, 6


@pytest.mark.parametrize("old", OLD)
def test_every_variant_of_the_catalogue_has_an_old_file(old):
    assert set(EXPECTED[old]) >= {*POLICIES, *(f"contextual-{name}" for name in CONTEXTUAL)} - LATER


def go_on(policy):
    rewards = np.random.default_rng(9).normal(size=20)
    bounds, choices = [policy.bounds()], []
    for reward in rewards.tolist():
        choices.append(policy.select())
        policy.update(choices[-1], reward)
    return choices, [*bounds, policy.bounds()]


def go_on_with_contexts(policy):
    generator = np.random.default_rng(9)
    bounds, choices = [policy.bounds(np.eye(D))], []
    for _ in range(20):
        rows = generator.normal(size=(4, D))
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        choices.append(policy.select(rows))
        policy.update(rows[choices[-1]], float(generator.normal()))
    return choices, [*bounds, policy.bounds(np.eye(D))]


@pytest.mark.parametrize(("old", "name"), [(old, name) for old, names in EXPECTED.items() for name in names])
def test_a_file_of_an_older_format_goes_on_with_the_same_choices(old, name, tmp_path):
    path, expected = tmp_path / "state.npz", EXPECTED[old][name]
    path.write_bytes(OLD[old].read(f"{name}.npz"))
    contextual = name.startswith("contextual")
    cls = CONTEXTUAL_CLASSES[expected["class"]] if contextual else getattr(sketchbandits, expected["class"])
    policy = cls.load(path)
    assert policy.diagnostics().freedom == 0  # what was recorded before is not known
    choices, bounds = (go_on_with_contexts if contextual else go_on)(policy)
    assert choices == expected["choices"]
    np.testing.assert_allclose(bounds, expected["bounds"], rtol=1e-9)
    lossy = isinstance(policy, ContextualSketch) and policy.state.sketch.level[SHRUNK] > 0  # no least squares any more
    assert (policy._seen["freedom"][0] > 0) == (not lossy)


def arms():
    rows = np.random.default_rng(0).normal(size=(N, D))
    return rows / np.linalg.norm(rows, axis=1).max()


def saved(policy, path):
    for t in range(30):
        policy.update(t % N, float(t % 3))
    policy.save(path)
    return path


def changed(path, **arrays):
    """The same file with other arrays, by their dotted names."""
    with np.load(path) as file:
        content = {name: file[name] for name in file.files}
    for name, change in arrays.items():
        content[name.replace("__", ".")] = change(content[name.replace("__", ".")])
    np.savez(path, **content)
    return path


LAYOUTS = {
    "a row less": lambda array: array[:-1],
    "one dimension more": lambda array: array[None],
    "another type": lambda array: np.zeros(array.shape, np.float32 if array.dtype.kind in "fV" else np.int32),
    "the other byte order": lambda array: array.astype(array.dtype.newbyteorder()),
}


@pytest.mark.parametrize("how", LAYOUTS)
@pytest.mark.parametrize("name", POLICIES)
def test_an_array_of_another_type_or_shape_is_refused(name, how, tmp_path):
    policy = POLICIES[name](arms())
    original = saved(policy, tmp_path / "state.npz").read_bytes()
    for leaf, array in leaves(policy.state):
        if how == "a row less" and len(array) == 0:
            continue
        if how == "the other byte order" and array.dtype.itemsize == 1:
            continue  # a byte has none
        path = tmp_path / "changed.npz"
        path.write_bytes(original)
        changed(path, **{leaf: LAYOUTS[how]})
        with pytest.raises(ValueError, match="path must"):
            type(policy).load(path)


@pytest.mark.parametrize("how", LAYOUTS)
@pytest.mark.parametrize("name", CONTEXTUAL)
def test_an_array_of_another_type_or_shape_is_refused_in_a_contextual_policy(name, how, tmp_path):
    policy = CONTEXTUAL[name](D)
    policy.update_many(arms(), np.arange(N))
    policy.save(tmp_path / "state.npz")
    original, path = (tmp_path / "state.npz").read_bytes(), tmp_path / "changed.npz"
    for leaf, array in leaves(policy.state):
        if how == "a row less" and len(array) == 0:
            continue
        path.write_bytes(original)
        changed(path, **{leaf: LAYOUTS[how]})
        with pytest.raises(ValueError, match="path must"):
            type(policy).load(path)


def whole_numbers(state):
    """Every place of a state that holds a whole number, as (leaf, field or None, index); few of each array."""
    for leaf, array in leaves(state):
        fields = [None] if array.dtype.kind == "i" else array.dtype.names or ()
        for field in (field for field in fields if field is None or array.dtype[field].kind == "i"):
            for flat in sorted({0, array.size // 2, array.size - 1} & set(range(array.size))):
                yield leaf, field, np.unravel_index(flat, array.shape)


@pytest.mark.skipif(JIT, reason="plain Python raises IndexError where compiled code would read out of bounds")
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # a negative count has no root; nothing is read out of bounds
@pytest.mark.parametrize("value", [-7, 10**6])
@pytest.mark.parametrize("name", POLICIES)
def test_no_whole_number_of_a_file_leads_out_of_bounds(name, value, tmp_path):
    policy = POLICIES[name](arms())
    original, path = saved(policy, tmp_path / "state.npz").read_bytes(), tmp_path / "changed.npz"
    for leaf, field, index in whole_numbers(policy.state):
        path.write_bytes(original)
        changed(path, **{leaf: at(index, value) if field is None else at((field, index), value)})
        try:
            loaded = type(policy).load(path)
        except ValueError:
            continue
        for t in range(12):
            loaded.update(t % N, 0.5)
            assert 0 <= loaded.select() < N
        loaded.bounds(), loaded.select_many(3)


def test_a_missing_array_and_a_later_format_are_named(tmp_path):
    path = saved(UCB1(arms()), tmp_path / "state.npz")
    with np.load(path) as file:
        content = {name: file[name] for name in file.files}
    np.savez(tmp_path / "less.npz", **{k: v for k, v in content.items() if k != "state.counts"})
    with pytest.raises(ValueError, match=r"must hold the array state\.counts, which is missing"):
        UCB1.load(tmp_path / "less.npz")
    header = json.loads(str(content["header"]))
    assert header["format"] == FORMAT == 3
    np.savez(path, **{**content, "header": np.array(json.dumps({**header, "format": 4}))})
    with pytest.raises(ValueError, match="path must be a file of format 1 to 3, got format 4"):
        UCB1.load(path)


def at(index, value):
    def change(array):
        array = array.copy()
        if array.dtype.names:
            field, place = index
            array[field][place] = value
        else:
            array[index] = value
        return array

    return change


@pytest.mark.parametrize(
    ("make", "leaf", "change", "word"),
    [
        (UCB1, "state.choice", at(0, N), r"state\.choice from 0 to 13, got 14"),
        (OFUL, "state.choice", at(0, -1), r"state\.choice"),
        (LinTS, "state.choice", at(0, 10**12), r"state\.choice"),
        (LinUCB, "state.choice", at(0, N), r"state\.choice"),
        (lambda rows: SOFUL(rows, sketch_size=2), "state.sketch.size", at(0, 4), "ROWS"),
        (lambda rows: SOFUL(rows, sketch_size=2), "state.sketch.size", at(1, 1), "CLOSED|CAPACITY"),
        (lambda rows: SOFUL(rows, sketch_size=2), "state.sketch.size", at(2, 5), "RANK"),
        (lambda rows: SOFUL(rows, sketch_size=2), "state.sketch.size", at(3, 9), "CAPACITY|KEEP"),
        (lambda rows: SOFUL(rows, sketch_size=2), "state.sketch.size", at(4, 900), "CAPACITY"),
        (lambda rows: SOFUL(rows, sketch_size=2), "state.sketch.size", at(5, 3), "BLOCK_RANK"),
        (lambda rows: DBSLinUCB(rows, sketch_size=2), "state.sketch.size", at(5, 7), "BLOCK_RANK"),
        (lambda rows: DBSLinUCB(rows, sketch_size=2), "state.sketch.size", at(4, 5), "CAPACITY"),
        (lambda rows: CBRAP(rows, sketch_size=2), "projection", lambda array: array[:, :-1], "projection"),
    ],
)
def test_an_index_out_of_bounds_is_refused(make, leaf, change, word, tmp_path):
    policy = make(arms())
    path = changed(saved(policy, tmp_path / "state.npz"), **{leaf: change})
    with pytest.raises(ValueError, match=word):
        type(policy).load(path)


def test_a_file_that_is_no_state_is_refused_without_advice_on_pickles(tmp_path):
    path = tmp_path / "state.npz"
    objects = io.BytesIO()
    np.savez(objects, header=np.array({"format": 1}, dtype=object))
    plain = io.BytesIO()
    np.savez(plain, weights=np.arange(3))
    for content in (b"", b"once upon a time", objects.getvalue(), plain.getvalue()):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"path must be a file written by OFUL\.save") as refusal:
            OFUL.load(path)
        assert "pickle" not in str(refusal.value)


def test_saving_to_a_missing_folder_names_the_folder(tmp_path):
    with pytest.raises(FileNotFoundError, match="folder that exists") as refusal:
        UCB1(arms()).save(tmp_path / "nowhere" / "state.npz")
    assert str(tmp_path / "nowhere") in str(refusal.value) and ".part" not in str(refusal.value)


@pytest.mark.parametrize(
    ("leaf", "field", "value", "word"),
    [
        ("state.place", (1, 3), 5, "state.place"),  # an arm in another cluster than its slot's
        ("state.place", (2, slice(None)), -1, "ARM_AT"),
        ("state.stats", (0, 2), np.nan, "numbers in state.stats"),
        ("state.waiting", "queued", 0, "queue"),
        ("state.control", "round", -4, "round"),
    ],
)
def test_a_state_that_contradicts_itself_is_refused(leaf, field, value, word, tmp_path):
    policy = MultiscaleCSLB(arms(), sketch_size=2, budget=1)  # so poor that rewards wait

    def change(array):
        array = array.copy()
        array[field] = value
        return array

    path = changed(saved(policy, tmp_path / "state.npz"), **{leaf: change})
    with pytest.raises(ValueError, match=word):
        MultiscaleCSLB.load(path)
