"""What a schema refuses: by the name of the argument or column, with what was given and what is allowed."""

import datetime
import decimal
import fractions
import re

import numpy as np
import pandas as pd
import polars as pl
import pytest

from sketchbandits.features import Categorical, Embedding, Features, Hashed, Numeric

FEATURES = Features(
    [
        Numeric("age"),
        Numeric("price", missing=True),
        Categorical("country", ["NL", "DE"], other=False, missing=False),
        Hashed("title"),
        Embedding.random("vector", 3, 2),
    ],
    id_column="id",
)
GOOD = {"age": 30, "price": 1.5, "country": "NL", "title": "x", "vector": [1.0, 2.0, 3.0]}
RANGE = "a number from -1e+100 to 1e+100"
NOT_TEXT = "text, a whole number or a boolean, or a list of such"
WRONG = [
    ("age", "30", f"the column 'age' must hold {RANGE}, got '30' of type str"),
    ("age", None, f"the column 'age' must hold {RANGE}, got no value"),
    ("age", float("nan"), f"the column 'age' must hold {RANGE}, got no value"),
    ("age", float("inf"), f"the column 'age' must hold {RANGE}, got inf of type float"),
    ("age", 1e101, f"the column 'age' must hold {RANGE}, got 1e+101 of type float"),
    ("age", 10**400, f"the column 'age' must hold {RANGE}, got 1000"),
    ("age", decimal.Decimal("sNaN"), f"the column 'age' must hold {RANGE}, got Decimal('sNaN') of type Decimal"),
    ("age", 1j, f"the column 'age' must hold {RANGE}, got 1j of type complex"),
    ("age", [1.0], f"the column 'age' must hold {RANGE}, got [1.0] of type list"),
    ("age", datetime.date(2020, 1, 1), f"the column 'age' must hold {RANGE}, got datetime.date(2020, 1, 1) of type"),
    ("price", -float("inf"), f"the column 'price' must hold {RANGE}, got -inf of type float"),
    ("price", "cheap", f"the column 'price' must hold {RANGE}, got 'cheap' of type str"),
    ("country", "FR", "the column 'country' must hold one of 'NL', 'DE', got 'FR' of type str"),
    ("country", None, "the column 'country' must hold text, a whole number or a boolean, got no value"),
    ("country", 2.5, "the column 'country' must hold text, a whole number or a boolean, got 2.5 of type float"),
    ("country", ["NL"], "the column 'country' must hold text, a whole number or a boolean, got ['NL'] of type list"),
    ("title", None, f"the column 'title' must hold {NOT_TEXT}, got no value"),
    ("title", 2.5, f"the column 'title' must hold {NOT_TEXT}, got 2.5 of type float"),
    ("title", ["a", None], f"the column 'title' must hold {NOT_TEXT}, got ['a', None] of type list"),
    ("title", ["a", ["b"]], f"the column 'title' must hold {NOT_TEXT}, got ['a', ['b']] of type list"),
    ("title", np.array([["a"]]), f"the column 'title' must hold {NOT_TEXT}, got array([['a']]"),
    ("vector", [1.0, 2.0], "the column 'vector' must hold vectors of 3 finite numbers, got [1.0, 2.0] of type list"),
    ("vector", [1.0, 2.0, float("nan")], "the column 'vector' must hold vectors of 3 finite numbers, got [1.0, 2.0, "),
    ("vector", [1.0, 2.0, 1e101], "the column 'vector' must hold vectors of 3 finite numbers, got [1.0, 2.0, 1e+101]"),
    ("vector", ["1", "2", "3"], "the column 'vector' must hold vectors of 3 finite numbers, got ['1', '2', '3']"),
    ("vector", [1, 2, None], "the column 'vector' must hold vectors of 3 finite numbers, got [1, 2, None]"),
    ("vector", [[1.0], 2.0, 3.0], "the column 'vector' must hold vectors of 3 finite numbers, got [[1.0], 2.0, 3.0]"),
    ("vector", "abc", "the column 'vector' must hold vectors of 3 finite numbers, got 'abc' of type str"),
    ("vector", None, "the column 'vector' must hold vectors of 3 finite numbers, got no value"),
]


def starts(message):
    return f"^{re.escape(message)}"


@pytest.mark.parametrize(("name", "value", "message"), WRONG)
def test_a_wrong_value_is_named(name, value, message):
    assert FEATURES.vector(GOOD).size == FEATURES.dim
    wrong = {**GOOD, name: value}
    with pytest.raises(ValueError, match=starts(message)):
        FEATURES.vector(wrong)
    with pytest.raises(ValueError, match=starts(message) + ".* in row 1$"):
        FEATURES.transform([GOOD, wrong])


@pytest.mark.parametrize("name", ["age", "country", "title", "vector"])
def test_an_absent_key_is_named(name):
    with pytest.raises(ValueError, match=f"^the column '{name}' must hold .*, got no value$"):
        FEATURES.vector({key: value for key, value in GOOD.items() if key != name})


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame])
def test_a_wrong_entry_of_a_frame_is_named(make):
    features = Features([Numeric("x")])
    for bad, found in (
        ([1.0, np.inf], "inf of type float"),
        (["a", "b"], "'a' of type str"),
        ([1.0, None], "no value"),
    ):
        row = 0 if bad[0] == "a" else 1
        with pytest.raises(ValueError, match=f"^the column 'x' must hold .*, got {found} in row {row}$"):
            features.transform(make({"x": bad}))
    with pytest.raises(ValueError, match=r"^the column 'x' must hold .*, got .* in row 0$"):
        features.transform(make({"x": [datetime.datetime(2020, 1, 1)]}))


def test_results_that_would_be_too_large_are_refused():
    features = Features([Numeric("x", deviation=1e-50)])
    for use in (features.vector, lambda record: features.transform(pl.DataFrame([record]))):
        with pytest.raises(
            ValueError, match=r"^the column 'x' must hold numbers within 1e\+100 deviations of the mean"
        ):
            use({"x": 1e60})
        assert use({"x": fractions.Fraction(1)} if use == features.vector else {"x": 1.0}).ravel() == [1e50]


def test_unknown_and_absent_columns_are_named():
    known = "the columns 'age', 'price', 'country', 'title', 'vector', 'id'"
    with pytest.raises(ValueError, match=rf"^record must hold {known}, got 'contry'; did you mean 'country'\?$"):
        FEATURES.vector({**GOOD, "contry": "NL"})
    with pytest.raises(ValueError, match=rf"^row 1 of frame must hold {known}, got 7$"):
        FEATURES.transform([GOOD, {**GOOD, 7: 1}])
    with pytest.raises(ValueError, match=rf"^frame must hold {known}, got 'Age'; did you mean 'age'\?$"):
        FEATURES.transform(pl.DataFrame([{**GOOD, "Age": 1}]))
    with pytest.raises(ValueError, match=r"^frame must have the column 'price', got only 'age', 'country'"):
        FEATURES.transform(pd.DataFrame([GOOD]).drop(columns="price"))


@pytest.mark.parametrize(
    ("frame", "found"),
    [
        (pl.LazyFrame({"age": [1]}), r"a LazyFrame: call its collect\(\) first"),
        (pd.Series([1.0]), "a Series"),
        (np.zeros((2, 2)), "a ndarray"),
        ("rows", "a str"),
        (None, "a NoneType"),
        ([1, 2], "a int in row 0"),
        ({"age": [1]}, r"one dict: put it into a list, or call vector\(record\)"),
    ],
)
def test_what_is_no_table_is_refused(frame, found):
    for use in (FEATURES.transform, FEATURES.ids, Features.infer):
        with pytest.raises(ValueError, match=rf"^frame must be a data frame .* or a list of dicts, got {found}"):
            use(frame)


def test_frames_with_odd_names_are_refused():
    with pytest.raises(ValueError, match=r"^frame must be .* whose columns have distinct names"):
        FEATURES.transform(pd.DataFrame([[1, 2]], columns=["age", "age"]))
    with pytest.raises(ValueError, match=r"^frame must have columns whose names are text, got 0"):
        FEATURES.transform(pd.DataFrame([[1, 2]]))
    with pytest.raises(ValueError, match=r"^frame must have keys that are text, got 0"):
        Features.infer([{0: 1}, {0: 2}])
    for record in ([1], None, "x", pd.Series([1.0])):
        with pytest.raises(ValueError, match=r"^record must be a dict of values, got "):
            FEATURES.vector(record)


def test_ids_are_there_and_differ():
    for bad, message in (
        (["a", "b", "a"], r"must hold every id once, got 'a' in rows 0, 2"),
        ([1, "1"], r"must hold every id once, got '1' in rows 0, 1"),
        (["a", None], r"must hold an id in every row, got None of type NoneType in row 1"),
        (["a", " "], r"must hold an id in every row, got ' ' of type str in row 1"),
        ([0.5], r"must hold an id in every row, got 0.5 of type float in row 0"),
    ):
        with pytest.raises(ValueError, match=f"^the column 'id' {message}$"):
            FEATURES.ids([{"id": value} for value in bad])
    with pytest.raises(ValueError, match=r"^frame must hold the columns 'age', got 'id'$"):
        FEATURES.ids(pl.DataFrame({"age": [1]}))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Numeric(""), "name must be text that is not empty, got ''"),
        (lambda: Numeric(3), "name must be text that is not empty, got 3"),
        (lambda: Numeric("\ud800"), "name must be valid Unicode"),
        (lambda: Numeric("x", deviation=0), "deviation must be a number"),
        (lambda: Numeric("x", mean=float("nan")), "mean must be a number"),
        (lambda: Numeric("x", missing=1), "missing must be True or False, got 1"),
        (lambda: Numeric("x", log="yes"), "log must be True or False, got 'yes'"),
        (lambda: Categorical("x"), "values must be a list of 1 to 65,534 values, got 0"),
        (lambda: Categorical("x", "NL"), "values must be a list of 1 to 65,534 values, got 'NL'"),
        (lambda: Categorical("x", [1.5]), "values must be text, whole numbers or booleans, got 1.5 at [0]"),
        (lambda: Categorical("x", ["a", None]), "values must be text, whole numbers or booleans, got None at [1]"),
        (lambda: Categorical("x", [1, "1"]), "values must be distinct as text, got 1 and '1'"),
        (lambda: Categorical("x", ["\ud800"]), "values[0] must be valid Unicode"),
        (lambda: Hashed("x", size=0), "size must be a whole number from 1 to 65535, got 0"),
        (lambda: Hashed("x", seed=2**64), "seed must be a whole number from 0 to"),
        (lambda: Embedding("x", 3, 2), "components must be given with mean, or else a seed, got none"),
        (lambda: Embedding("x", 3, 4, seed=0), "size must be a whole number from 1 to 3, got 4"),
        (lambda: Embedding("x", 3, 1, seed=0, mean=[0, 0, 0]), "seed must be left out where there are components"),
        (lambda: Embedding("x", 3, 2, components=np.eye(3), mean=np.zeros(3)), "components must have 2 rows"),
        (lambda: Embedding("x", 3, 3, components=np.eye(3), mean=np.zeros(2)), "mean must be a 1-D array"),
        (lambda: Embedding.random("x", 10**9, 10**9), "length must be a whole number from 1 to 1048576"),
        (lambda: Embedding.random("x", 4000, 2000), "size must be a whole number from 1 to 262, got 2000"),
        (lambda: Embedding.fit("x", np.eye(4), 4), "size must be at most the rank of the centred matrix, 3, got 4"),
        (lambda: Embedding.fit("x", np.ones((4, 2)), 1), "size must be at most the rank of the centred matrix, 0"),
        (lambda: Features([]), "columns must be a list of at least one column, got []"),
        (lambda: Features(Numeric("x")), "columns must be a list of at least one column, got Numeric("),
        (lambda: Features(["x"]), "columns must be of the kinds Numeric, Categorical, Hashed, Embedding, got 'x' at"),
        (lambda: Features([Numeric("x"), Hashed("x")]), "columns must have distinct names, got 'x' twice"),
        (lambda: Features([Numeric("x")], id_column="x"), "id_column must be a column that is not encoded, got 'x'"),
        (lambda: Features([Numeric("x")], id_column=3), "id_column must be text"),
        (lambda: Features([Numeric("x")], ignored="y"), "ignored must be a list of names of columns, got 'y'"),
        (lambda: Features([Numeric("x")], ignored=["x"]), "ignored must hold columns that are not in use, each once"),
        (lambda: Features([Numeric("x")], ignored=["y", "y"]), "ignored must hold columns that are not in use, each"),
        (lambda: Features([Numeric("x")], notes=["x"]), "notes must be a dict from columns to sentences, got ['x']"),
        (lambda: Features([Numeric("x")], notes={"y": "z"}), "notes must hold the columns 'x', got 'y'"),
        (lambda: Features([Numeric("x")], notes={"x": 1}), "notes['x'] must be text that is not empty, got 1"),
    ],
)
def test_schemas_are_checked(make, message):
    with pytest.raises(ValueError, match=starts(message)):
        make()


@pytest.mark.parametrize(
    ("interactions", "message"),
    [
        ("ab", "interactions must be a list of pairs or triples of names of columns, got 'ab'"),
        (["ab"], "interactions must be pairs or triples of names of columns, got 'ab' at [0]"),
        ([["a"]], "interactions must be pairs or triples of names of columns, got ['a'] at [0]"),
        ([["a", "c"]], "interactions[0] must hold the columns 'a', 'b', got 'c'"),
        ([["a", []]], "interactions[0] must hold the columns 'a', 'b', got []"),
        ([["a", "a"]], "interactions must be of different columns, each once, got ('a', 'a') at [0]"),
        ([["a", "b"], ["b", "a"]], "interactions must be of different columns, each once, got ('b', 'a') at [1]"),
    ],
)
def test_interactions_are_checked(interactions, message):
    with pytest.raises(ValueError, match=starts(message)):
        Features([Numeric("a"), Numeric("b")], interactions=interactions)


def test_the_number_of_outputs_has_a_limit():
    columns = [Hashed(name, size=300) for name in "abc"]
    Features(columns[:1])
    with pytest.raises(
        ValueError, match=r"^columns and interactions must have at most 65,536 outputs in all, got 27,0"
    ):
        Features(columns, interactions=[("a", "b", "c")])
