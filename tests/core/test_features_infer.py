"""Proposed schemas: what becomes of each column, and why."""

import datetime

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sketchbandits.features import Categorical, Embedding, Features, Hashed, Numeric

RNG = np.random.default_rng(2)
N = 100
TABLE = {
    "user_id": [f"u{i}" for i in range(N)],
    "age": np.where(np.arange(N) % 9 == 0, np.nan, RNG.normal(40.0, 10.0, N)).tolist(),
    "price": RNG.lognormal(3.0, 1.5, N).tolist(),
    "stars": RNG.integers(1, 6, N).tolist(),
    "member": (np.arange(N) % 3 == 0).tolist(),
    "country": [["NL", "DE", "NL", "FR"][i % 4] for i in range(N)],
    "city": [f"city{i % 50}" for i in range(N)],
    "review": [f"very good thing number {i}" for i in range(N)],
    "tags": [["a", f"b{i % 5}"] for i in range(N)],
    "picture": RNG.normal(size=(N, 30)).tolist(),
    "currency": ["EUR"] * N,
    "seen": [datetime.datetime(2020, 1, 1) + datetime.timedelta(days=i) for i in range(N)],
    "empty": [None] * N,
}
RECORDS = [{name: values[i] for name, values in TABLE.items()} for i in range(N)]


def arrow(table):
    return pytest.importorskip("pyarrow").table(
        {name: pd.Series(values).replace(np.nan, None).tolist() for name, values in table.items()}
    )


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, lambda _: RECORDS, arrow])
def test_each_column_by_its_values(make):
    frame = make(TABLE)
    features = Features.infer(frame, interactions=[("age", "country")])
    columns = {column.name: column for column in features.columns}
    known = np.array([x for x in TABLE["age"] if x == x])
    assert columns["age"] == Numeric("age", known.mean(), known.std(), missing=True)
    logs = np.log1p(TABLE["price"])
    assert columns["price"].log and columns["price"].mean == pytest.approx(logs.mean())
    assert columns["stars"] == Numeric("stars", np.mean(TABLE["stars"]), np.std(TABLE["stars"]))
    assert columns["member"] == Categorical("member", ["false", "true"], other=False)
    assert columns["country"] == Categorical("country", ["NL", "DE", "FR"])  # by frequency, then by name
    assert columns["city"] == Hashed("city", 32)
    assert columns["review"] == Hashed("review", 32, words=True)
    assert columns["tags"] == Hashed("tags", 32)
    assert columns["picture"] == Embedding.fit("picture", TABLE["picture"], 16)
    assert features.id_column == "user_id" and features.ignored == ("currency", "seen", "empty")
    assert len(columns) == 9 and features.interactions == (("age", "country"),)
    assert set(features.notes) == set(TABLE)
    out = features.transform(frame)
    assert np.isfinite(out).all() and features.ids(frame) == TABLE["user_id"]
    for name in ("age", "price", "stars"):
        assert (out[:, features.names.index(name)] ** 2).mean() == pytest.approx(1.0, abs=0.12)


def test_settings_change_the_proposal():
    features = Features.infer(
        TABLE_FRAME, id_column="city", ignore=["age", "seen"], most_values=3, hash_size=8, embedding_size=4
    )
    columns = {column.name: column for column in features.columns}
    assert features.id_column == "city" and features.ignored[0] == "age"
    assert columns["user_id"] == Hashed("user_id", 8) and columns["picture"].size == 4
    assert columns["country"] == Categorical("country", ["NL", "DE", "FR"])
    assert Hashed("country", 32) in Features.infer(TABLE_FRAME, most_values=2).columns


TABLE_FRAME = pl.DataFrame(TABLE)


def test_small_and_odd_columns():
    def proposed(values, **more):
        features = Features.infer([{"x": value, "y": i} for i, value in enumerate(values)], **more)
        return next((column for column in features.columns if column.name == "x"), features.notes["x"])

    assert proposed([7.0, None, 7.0]) == Numeric("x", 7.0, missing=True)
    assert proposed([7.0, 7.0]) == "the same value in every row"
    assert proposed([0.1 + 0.2, 0.3]) == "the same value in every row"  # but for rounding
    assert proposed([0, 1, 1, 0]) == Numeric("x", 0.5, 0.5)
    assert proposed([True, False, None]) == Categorical("x", ["false", "true"], other=False)
    assert proposed([True, 2.0]) == Numeric("x", 1.5, 0.5)
    assert proposed(["a", None]) == Categorical("x", ["a"])
    assert proposed([f"w{i}" for i in range(31)] + [None]) == Hashed("x", missing=True)
    assert proposed([["a"], None, []]) == Hashed("x", missing=True)
    assert proposed([[1, 2], [3, 4], None]).size == 1 and proposed([[1, 2], [3, 4], None]).missing
    assert proposed([[1.0] * 20, [2.0] * 20]) == Embedding.random("x", 20, 16)
    assert proposed([[1, 2], [1, 2]]) == "the same vector in every row"
    assert proposed([[1, 2], [3]]) == "lists of 1 to 2 numbers: they need one length"
    assert proposed([{"a": 1}, {"a": 2}]).startswith("dict values are not encoded")
    assert proposed([datetime.date(2020, 1, 1)] * 2).startswith("date values are not encoded")


def test_ids_are_found_by_name_and_by_values():
    def found(**columns):
        rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
        return Features.infer([{**row, "y": i} for i, row in enumerate(rows)]).id_column

    assert found(user_id=["a", "b"], ID=[1, 2]) == "ID"
    assert found(user_id=["a", "b"], ID=[1, 1]) == "user_id"
    assert found(user_id=["a", None], id=[0.5, 1.5]) is None
    assert found(ident=["a", "b"]) is None


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        ([], {}, "frame must have a column to encode, got no columns"),
        ([{"x": 1}, {"x": 1}], {}, r"frame must have a column to encode, got 'x' \(the same value in every row\)"),
        ([{"x": 1}, {"x": "a"}], {}, "frame must hold values of one kind in the column 'x', got 1 of type int and, in"),
        ([{"x": 1}, {"x": float("inf")}], {}, r"the column 'x' must hold a number from .*, got inf in row 1"),
        ([{"x": 1}, {"x": 2}], {"id_column": "X"}, r"id_column must hold the columns 'x', got 'X'"),
        ([{"x": 1}, {"x": 2}], {"ignore": ["xx"]}, r"ignore must hold the columns 'x', got 'xx'; did you mean 'x'\?"),
        ([{"x": 1}, {"x": 2}], {"ignore": "x"}, "ignore must be a list of names of columns, got 'x'"),
        ([{"x": 1}, {"x": 2}], {"most_values": 0}, "most_values must be a whole number"),
        ([{"x": 1}, {"x": 2}], {"interactions": [["x", "z"]]}, r"interactions\[0\] must hold the columns 'x', got 'z'"),
    ],
)
def test_what_cannot_be_inferred_is_refused(rows, options, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        Features.infer(rows, **options)


VALUES = [
    st.none() | st.floats(-1e9, 1e9),
    st.none() | st.booleans(),
    st.none() | st.integers(-(2**70), 2**70),
    st.none() | st.text(st.characters(codec="utf-8"), max_size=8),
    st.none() | st.lists(st.text("ab", max_size=3), max_size=3),
    st.none() | st.lists(st.floats(-9.0, 9.0), min_size=2, max_size=2),
]


@settings(max_examples=80, deadline=None, derandomize=True)
@given(st.data(), st.integers(1, 12))
def test_a_proposal_takes_the_data_that_it_comes_from(data, rows):
    table = {f"c{i}": data.draw(st.lists(kind, min_size=rows, max_size=rows)) for i, kind in enumerate(VALUES)}
    table["z"] = list(range(rows + 1))[1:]
    records = [{name: values[i] for name, values in table.items()} for i in range(rows)]
    try:
        features = Features.infer(records, most_values=3)
    except ValueError as error:
        features, reason = None, str(error)
    if features is None:
        assert rows == 1 and "must have a column to encode" in reason
        return
    out = features.transform(records)
    assert np.isfinite(out).all() and features.dim == len(features.names) == out.shape[1]
    assert Features.from_json(features.to_json()) == features
    assert max(map(len, features.describe().splitlines())) <= 80
    for record, row in zip(records, out, strict=True):
        assert features.vector(record).tobytes() == row.tobytes()
