"""Vectors of records and frames: against an obvious twin, and the same bits by every way in."""

import copy
import hashlib
import math
import pickle
import re
import threading

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sketchbandits.features import Categorical, Embedding, Features, Hashed, Numeric

RNG = np.random.default_rng(8)
TIMES = "\N{MULTIPLICATION SIGN}"
HASHED = [1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0]  # Amsterdam, with seed 0 and with seed 1
RANDOM = [-0.3019841434413557, 0.5360864394587109, -0.5286402553949818]
POINTS = RNG.normal(size=(40, 6)) * [1.0, 2.0, 3.0, 0.1, 0.2, 0.3] + 5.0
COLUMNS = [
    Numeric("age", mean=40.0, deviation=12.5, missing=True),
    Numeric("price", mean=2.0, deviation=0.7, log=True),
    Numeric("member"),
    Categorical("country", ["NL", "DE", "FR"]),
    Categorical("size", [36, 37, 38], other=False, missing=False),
    Hashed("city", size=8, seed=3, missing=True),
    Hashed("title", size=16, words=True),
    Hashed("tags", size=5, seed=2**64 - 1),
    Embedding.fit("picture", POINTS, 3),
    Embedding.random("sound", 4, 2, seed=5, missing=True),
]
FEATURES = Features(
    COLUMNS, interactions=[("age", "country"), ("member", "picture", "country")], id_column="id", ignored=["comment"]
)


def naive_hashes(tokens, size, seed):
    out = [0.0] * size
    for token in set(tokens):
        digest = hashlib.blake2b(token.encode(), digest_size=8, key=seed.to_bytes(8, "little")).digest()
        bits = int.from_bytes(digest, "little")
        out[bits // 2 % size] += -1.0 if bits % 2 else 1.0
    return [value / math.sqrt(len(set(tokens))) if tokens else 0.0 for value in out]


def naive_block(column, value):
    gap = value is None or value != value
    if isinstance(column, Numeric):
        x = column.mean if gap else float(value)
        if column.log:
            x = math.copysign(math.log(1.0 + abs(x)), x)
        return [(x - column.mean) / column.deviation] + [float(gap)] * column.missing
    if isinstance(column, Categorical):
        slots = [*column.values, "other", None] if column.other else list(column.values)
        word = None if gap else str(value)
        return [float(slot == (word if word in slots else "other")) for slot in slots]
    if isinstance(column, Hashed):
        words = re.findall(r"\w+", value.lower()) if column.words else value if isinstance(value, list) else [value]
        return naive_hashes([] if gap else words, column.size, column.seed) + [float(gap)] * column.missing
    result = [0.0] * column.size if gap else list(column.components @ (np.array(value) - column.mean))
    return result + [float(gap)] * column.missing


def naive_vector(features, record):
    blocks = {column.name: naive_block(column, record.get(column.name)) for column in features.columns}
    result = [value for block in blocks.values() for value in block]
    for group in features.interactions:
        product = np.array([1.0])
        for name in group:
            product = np.kron(product, blocks[name])
        result += list(product)
    return np.array(result)


def some_records(count, rng):
    def record(i):
        return {
            "id": f"r{i}",
            "age": None if rng.random() < 0.2 else float(rng.normal(40.0, 12.0)),
            "price": float(rng.lognormal(2.0, 1.0)) * (1 if rng.random() < 0.9 else -1),
            "member": bool(rng.integers(2)),
            "country": [None, "NL", "DE", "FR", "IT", "nl"][rng.integers(6)],
            "size": int(rng.integers(36, 39)),
            "city": None if rng.random() < 0.2 else f"city {rng.integers(50)}",
            "title": " ".join(rng.choice(["The", "the", "cat,", "sat", "Ümläut", "42"], rng.integers(5))),
            "tags": [f"t{k}" for k in rng.integers(6, size=rng.integers(1, 4))],
            "picture": rng.normal(size=6).tolist(),
            "sound": None if rng.random() < 0.2 else rng.normal(size=4).tolist(),
            "comment": "not encoded",
        }

    return [record(i) for i in range(count)]


RECORDS = some_records(60, RNG)


def arrow(records):
    return pytest.importorskip("pyarrow").Table.from_pylist(records)


FRAMES = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "Arrow": arrow, "tuple": tuple}


def test_vectors_are_those_of_the_twin():
    for record in RECORDS:
        assert np.allclose(FEATURES.vector(record), naive_vector(FEATURES, record), rtol=1e-12, atol=1e-12)
    assert len(FEATURES.names) == FEATURES.dim == FEATURES.vector(RECORDS[0]).size


@pytest.mark.parametrize("kind", FRAMES)
def test_frames_of_every_kind_give_the_bits_of_vector(kind):
    frame = FRAMES[kind](RECORDS)
    result = FEATURES.transform(frame)
    assert result.dtype == np.float64 and result.flags.c_contiguous and result.shape == (60, FEATURES.dim)
    for row, record in zip(result, RECORDS, strict=True):
        assert row.tobytes() == FEATURES.vector(record).tobytes()
    assert FEATURES.ids(frame) == [f"r{i}" for i in range(60)]


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    values=st.lists(st.none() | st.floats(-1e100, 1e100) | st.integers(-(10**30), 10**30) | st.booleans(), max_size=8),
    mean=st.floats(-1e3, 1e3),
    deviation=st.floats(1e-3, 1e3),
    log=st.booleans(),
)
def test_numbers_of_every_type_give_the_same_bits(values, mean, deviation, log):
    features = Features([Numeric("x", mean=mean, deviation=deviation, missing=True, log=log)])
    records = [{"x": value} for value in values]
    expected = [features.vector(record).tobytes() for record in records]
    floats = [math.nan if value is None else float(value) for value in values]
    for frame in (records, pd.DataFrame({"x": floats}, dtype=float), pl.DataFrame({"x": floats}, {"x": pl.Float64})):
        assert [row.tobytes() for row in features.transform(frame)] == expected


@pytest.mark.parametrize(
    "series",
    [
        pl.Series([1, None, 3], dtype=pl.Int8),
        pl.Series([1, None, 3], dtype=pl.UInt64),
        pl.Series([1.0, None, 3.0], dtype=pl.Float32),
        pl.Series([True, None, 3.0], dtype=pl.Object),
        pl.Series(["1", None, "3"]).cast(pl.Decimal(10, 2)),
        pd.Series([1, None, 3], dtype="Int64"),
        pd.Series([1, None, 3], dtype="float32"),
        pd.Series([1, pd.NA, 3], dtype=object),
    ],
)
def test_missing_numbers_in_every_type_of_column(series):
    frame = pl.DataFrame({"x": series}) if isinstance(series, pl.Series) else pd.DataFrame({"x": series})
    result = Features([Numeric("x", missing=True)]).transform(frame)
    assert result.tolist() == [[1.0, 0.0], [0.0, 1.0], [3.0, 0.0]]


@pytest.mark.parametrize(
    "dtype", [pl.List(pl.Float64), pl.List(pl.Int16), pl.Array(pl.Float32, 3), pl.Array(pl.Int8, 3)]
)
def test_vectors_in_every_type_of_column(dtype):
    rows = [[1, 2, 3], None, [4, 5, 6]]
    features = Features([Embedding.random("x", 3, 2, missing=True)])
    expected = features.transform([{"x": row} for row in rows])
    assert expected[1].tolist() == [0.0, 0.0, 1.0]
    for frame in (pl.DataFrame({"x": pl.Series(rows, dtype=dtype)}), pd.DataFrame({"x": rows})):
        assert features.transform(frame).tobytes() == expected.tobytes()
    assert features.transform(pl.DataFrame({"x": pl.Series([], dtype=dtype)})).shape == (0, 3)


def test_categories_are_compared_as_text():
    features = Features([Categorical("x", [1, "b", True], missing=True)])
    assert features.names == ("x=1", "x=b", "x=true", "x is other", "x is missing")
    one, b, true, other, gap = np.eye(5).tolist()
    cases = [(1, one), (1.0, one), ("1", one), (np.int8(1), one), (True, true), ("true", true), ("True", other)]
    cases += [("b", b), ("B", other), ("", other), (2, other), (None, gap), (math.nan, gap), (np.float32("nan"), gap)]
    cases += [(pd.NA, gap), (pd.NaT, gap), (np.bool_(True), true), (np.str_("b"), b)]
    for value, expected in cases:
        assert features.vector({"x": value}).tolist() == expected, value
    frame = pd.DataFrame({"x": [1, None, 2]})  # pandas makes floats of them
    assert features.transform(frame).tolist() == [one, gap, other]
    assert features.transform(pl.DataFrame({"x": pl.Series(["b", None], dtype=pl.Categorical)})).tolist() == [b, gap]


def test_hashes_are_the_same_on_every_machine():
    features = Features([Hashed("x", size=4), Hashed("y", size=4, seed=1)])
    assert features.vector({"x": "Amsterdam", "y": "Amsterdam"}).tolist() == HASHED


def test_hashed_values_have_norm_one_and_are_orthogonal_on_average():
    features = Features([Hashed("x", size=16, words=True)])
    rows = features.transform([{"x": f"alpha{i} beta{i} gamma{i}"} for i in range(2_000)])
    assert (rows**2).sum(axis=1).mean() == pytest.approx(1.0, abs=0.05)
    products = (rows[:1000] * rows[1000:]).sum(axis=1)
    assert abs(products.mean()) < 4.0 * products.std() / 1000**0.5
    assert np.abs(rows.mean(axis=0)).max() < 0.03


def test_a_list_is_a_set_of_tags_and_is_never_cut():
    features = Features([Hashed("x", size=64, words=True)])
    expected = features.vector({"x": ["red wine", "7", "true"]}).tolist()
    for tags in (("7", "red wine", True), {"red wine", "7", "true"}, np.array(["red wine", "7", "true", "7"])):
        assert features.vector({"x": tags}).tolist() == expected
    assert features.vector({"x": "red wine 7"}).tolist() == features.vector({"x": ["red", "wine", 7]}).tolist()
    assert not features.vector({"x": ""}).any() and not features.vector({"x": []}).any()
    long = "a" * 500
    assert np.abs(features.vector({"x": long})).sum() == 1.0


def test_a_fitted_embedding_is_the_pca():
    column = COLUMNS[-2]
    out = (POINTS - column.mean) @ column.components.T
    assert (out**2).sum(axis=1).mean() == pytest.approx(1.0)
    left, values, _ = np.linalg.svd(POINTS - POINTS.mean(axis=0))
    expected = (left[:, :3] * values[:3]) / ((values[:3] ** 2).sum() / 40) ** 0.5
    assert np.allclose(np.abs(out), np.abs(expected))
    assert (np.take_along_axis(column.components, np.abs(column.components).argmax(axis=1)[:, None], 1) > 0).all()
    for scale in (1e-60, 1e60):
        scaled = Embedding.fit("picture", POINTS * scale, 3)
        assert np.allclose(scaled.components * scale, column.components)


def test_random_directions_are_orthonormal_and_keep_norms_on_average():
    column = Embedding.random("v", 20, 5, seed=1)
    assert np.allclose(column.components @ column.components.T, np.eye(5) * 4.0)
    assert column == Embedding("v", 20, 5, seed=1) != Embedding.random("v", 20, 5, seed=2)
    vector = np.zeros(20)
    vector[3] = 1.0
    norms = [((Embedding.random("v", 20, 5, seed=s).components @ vector) ** 2).sum() for s in range(400)]
    assert np.mean(norms) == pytest.approx(1.0, abs=4.0 * np.std(norms) / 20.0)
    assert column.components[0, :3] == pytest.approx(RANDOM, rel=1e-12)


def test_records_may_lack_what_may_be_missing_and_bring_what_is_ignored():
    record = {name: value for name, value in RECORDS[0].items() if name not in ("age", "country", "city", "sound")}
    gaps = {**record, "age": None, "country": float("nan"), "city": None, "sound": None}
    assert FEATURES.vector(record).tobytes() == FEATURES.vector(gaps).tobytes()
    assert FEATURES.vector({k: v for k, v in RECORDS[1].items() if k not in ("id", "comment")}).size == FEATURES.dim


def test_no_rows_and_no_ids():
    plain = Features([Numeric("x")])
    assert plain.ids([{"x": 1}, {"x": 2}]) == ["0", "1"]
    assert FEATURES.transform([]).shape == (0, FEATURES.dim) and FEATURES.ids([]) == []
    assert FEATURES.transform(pl.DataFrame(RECORDS).clear()).shape == (0, FEATURES.dim)
    assert Features([Numeric("x")], id_column="n").ids(pd.DataFrame({"x": [1, 2], "n": [7, 8]})) == ["7", "8"]


def test_a_schema_cannot_be_changed_and_can_be_copied():
    with pytest.raises(AttributeError):
        FEATURES.id_column = "x"
    with pytest.raises(AttributeError):
        COLUMNS[0].mean = 3.0
    with pytest.raises(ValueError, match="read-only"):
        COLUMNS[-1].components[0, 0] = 1.0
    for twin in (copy.deepcopy(FEATURES), pickle.loads(pickle.dumps(FEATURES))):
        assert twin == FEATURES and hash(twin) == hash(FEATURES) and twin.digest == FEATURES.digest
        assert twin.vector(RECORDS[0]).tobytes() == FEATURES.vector(RECORDS[0]).tobytes()
    assert Features([Numeric("x")]) != Features([Numeric("x", mean=1.0)])
    assert Features([Numeric("x")]) == Features([Numeric("x")], notes={"x": "differs"})


def test_threads_share_a_schema():
    expected, wrong = FEATURES.transform(RECORDS).tobytes(), []

    def work():
        for _ in range(5):
            if np.array([FEATURES.vector(record) for record in RECORDS]).tobytes() != expected:
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_names_tell_every_output():
    features = Features(
        [Numeric("age", missing=True), Categorical("land", ["NL"], missing=False), Hashed("t", 2), COLUMNS[-1]],
        interactions=[("age", "land")],
    )
    assert features.names == (
        *("age", "age is missing", "land=NL", "land is other", "t#0", "t#1", "sound~0", "sound~1", "sound is missing"),
        *(f"{a} {TIMES} {b}" for a in ("age", "age is missing") for b in ("land=NL", "land is other")),
    )


def test_description_fits_a_terminal_and_a_notebook():
    wide = Features([Numeric("a long name " * 4), Categorical("<b>", [f"v{i}" for i in range(99)])], ignored=["<i>"])
    for features in (FEATURES, wide):
        text = features.describe()
        assert max(map(len, text.splitlines())) <= 80
        for column in features.columns:
            assert column.name.split()[0] in text and column.kind in text
    assert "&lt;b&gt;" in wide._repr_html_() and "<b>" not in wide._repr_html_()
    assert repr(FEATURES) == f"Features(columns encoded: 10, interactions: 2, outputs: {FEATURES.dim})"
