"""Schemas as JSON: they come back exactly, and whatever is wrong with the text is refused with its place."""

import contextlib
import json
import random
import stat

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sketchbandits.features import Categorical, Embedding, Features, Hashed, Numeric

names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=6)
limited = st.floats(-1e100, 1e100)
parts = st.one_of(
    st.builds(
        lambda m, d, g, o: lambda name: Numeric(name, m, d, g, o),
        limited,
        st.floats(1e-100, 1e100),
        st.booleans(),
        st.booleans(),
    ),
    st.builds(
        lambda v, o, g: lambda name: Categorical(name, v, o, g),
        st.lists(st.text(st.characters(codec="utf-8"), max_size=5), min_size=1, max_size=4, unique=True),
        st.booleans(),
        st.booleans(),
    ),
    st.builds(
        lambda s, seed, w, g: lambda name: Hashed(name, s, seed, w, g),
        st.integers(1, 9),
        st.integers(0, 2**64 - 1),
        st.booleans(),
        st.booleans(),
    ),
    st.builds(
        lambda k, seed, g: lambda name: Embedding.random(name, 5, k, seed, missing=g),
        st.integers(1, 5),
        st.integers(0, 2**64 - 1),
        st.booleans(),
    ),
    st.builds(
        lambda seed: lambda name: Embedding.fit(name, np.random.default_rng(seed).normal(size=(9, 4)), 2),
        st.integers(0, 99),
    ),
)


@st.composite
def schemas(draw):
    labels = draw(st.lists(names, min_size=2, max_size=6, unique=True))
    count = draw(st.integers(1, len(labels)))
    columns = [draw(parts)(label) for label in labels[:count]]
    rest = labels[count:]
    groups = [labels[:2]] if count > 1 and draw(st.booleans()) else []
    notes = {label: "why" for label in labels if draw(st.booleans())}
    id_column = rest[0] if rest else None
    return Features(columns, interactions=groups, id_column=id_column, ignored=rest[1:], notes=notes)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(schemas())
def test_a_schema_comes_back_exactly(features):
    twin = Features.from_json(features.to_json())
    assert twin == features and twin.notes == features.notes and twin.digest == features.digest
    assert twin.to_json() == features.to_json() and twin.names == features.names
    assert json.loads(features.to_json()) == features.to_dict()
    for ours, theirs in zip(features.columns, twin.columns, strict=True):
        assert repr(ours) == repr(theirs)


SCHEMA = Features(
    [
        Numeric("age", 40.5, 12.25, missing=True),
        Categorical("land", ["NL", "DE"]),
        Hashed("text", 8, words=True),
        Embedding.random("a", 4, 2, 7),
        Embedding.fit("b", np.random.default_rng(0).normal(size=(9, 3)), 2),
    ],
    interactions=[("age", "land")],
    id_column="id",
    ignored=["comment"],
    notes={"age": "in years"},
)


def changed(path, value):
    document = json.loads(SCHEMA.to_json())
    at = document
    for step in path[:-1]:
        at = at[step]
    if value is KeyError:
        del at[path[-1]]
    else:
        at[path[-1]] = value
    return json.dumps(document)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (["version"], 2, "version must be 1, the only one that is known, got 2"),
        (["version"], True, "version must be 1, the only one that is known, got True"),
        (["version"], KeyError, "version must be 1, the only one that is known, got None"),
        (["colour"], 1, "'colour' must be left out: a schema has the fields version, columns, interactions, "),
        (["columns"], {}, "columns must be a list of objects, got {}"),
        (["columns"], [], "columns must be a list of at least one column, got []"),
        (["columns", 0], "age", "columns[0] must be an object with kind and name, got 'age'"),
        (["columns", 0, "kind"], "number", "columns[0].kind must be one of 'numeric', 'categorical', 'hashed', "),
        (["columns", 0, "kind"], [], "columns[0].kind must be one of 'numeric', 'categorical', 'hashed', 'embedding'"),
        (["columns", 0, "name"], KeyError, "columns[0].name must be text that is not empty, got None"),
        (["columns", 0, "scale"], 1, "columns[0].scale must be left out: numeric columns have name, mean, deviation,"),
        (["columns", 0, "deviation"], "12", "columns[0].deviation must be a number"),
        (["columns", 0, "missing"], None, "columns[0].missing must be True or False, got None"),
        (["columns", 1, "values"], "NL", "columns[1].values must be a list of 1 to 65,534 values, got 'NL'"),
        (["columns", 1, "values", 1], {}, "columns[1].values must be text, whole numbers or booleans, got {} at [1]"),
        (["columns", 2, "size"], 8.0, "columns[2].size must be a whole number"),
        (["columns", 3, "seed"], None, "columns[3].components must be given with mean, or else a seed, got none"),
        (
            ["columns", 4, "components"],
            "####",
            "columns[4].components must be float64 numbers, little-endian, in base6",
        ),
        (["columns", 4, "components"], "AAAA", "columns[4].components must be float64 numbers, little-endian, in base"),
        (
            ["columns", 4, "components"],
            [1.0],
            "columns[4].components must be float64 numbers, little-endian, in base64",
        ),
        (["columns", 4, "mean"], "//////////8=", "columns[4].mean must be"),
        (["columns", 4, "length"], 4, "columns[4].components must be rows of 4 numbers, got 6 in all"),
        (["columns", 1, "name"], "age", "columns must have distinct names, got 'age' twice"),
        (["interactions"], None, "interactions must be a list of pairs or triples"),
        (["interactions", 0, 1], "city", "interactions[0] must hold the columns 'age', 'land', 'text', 'a', 'b', got"),
        (["id_column"], 7, "id_column must be text that is not empty, got 7"),
        (["ignored"], "comment", "ignored must be a list of names of columns, got 'comment'"),
        (["notes"], [], "notes must be a dict from columns to sentences, got []"),
    ],
)
def test_what_is_wrong_is_refused_with_its_place(path, value, message):
    with pytest.raises(ValueError, match=r".") as caught:
        Features.from_json(changed(path, value))
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "text must be JSON: "),
        (b"{}", "text must be JSON as text, got b'{}'"),
        ("[" * 100_000, "text must be JSON, got brackets nested too deeply"),
        ("[]", "the schema must be an object with the fields version and columns, got []"),
        ('{"version": 1, "version": 1}', "text must be JSON: 'version' stands twice in one object"),
        ('{"version": NaN}', "text must be JSON: NaN is no number of JSON"),
        ('{"version": -Infinity}', "text must be JSON: -Infinity is no number of JSON"),
        ('{"version": ' + "9" * 5000 + "}", "text must be JSON: "),
    ],
)
def test_what_is_no_json_is_refused(text, message):
    with pytest.raises(ValueError, match=r".") as caught:
        Features.from_json(text)
    assert str(caught.value).startswith(message)


def test_fields_with_defaults_may_be_left_out():
    text = '{"version": 1, "columns": [{"kind": "numeric", "name": "x"}, {"kind": "hashed", "name": "y", "size": 4}]}'
    assert Features.from_json(text) == Features([Numeric("x"), Hashed("y", 4)])


def test_damaged_text_raises_nothing_but_value_errors():
    rng, text = random.Random(5), SCHEMA.to_json()
    refused = 0
    for _ in range(1_500):
        damaged = list(text)
        for _ in range(rng.randint(1, 3)):
            at = rng.randrange(len(damaged))
            damaged[at : at + rng.randint(0, 3)] = rng.choice(
                ['"', "{", "]", ",", "9", "-", "e", "null", "\\", "é", ""]
            )
        try:
            Features.from_json("".join(damaged))
        except ValueError:
            refused += 1
    assert refused > 700


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.data())
def test_replaced_values_raise_nothing_but_value_errors(data):
    document = json.loads(SCHEMA.to_json())
    anything = st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
        max_leaves=5,
    )
    at = document
    while True:
        key = data.draw(st.sampled_from(sorted(at)) if isinstance(at, dict) else st.integers(0, len(at) - 1))
        if not (isinstance(at[key], (dict, list)) and at[key]) or data.draw(st.booleans()):
            break
        at = at[key]
    at[key] = data.draw(anything)
    with contextlib.suppress(ValueError):
        Features.from_dict(document)


def test_files_are_replaced_whole(tmp_path, monkeypatch):
    path = tmp_path / "schema.json"
    SCHEMA.save(path)
    assert Features.load(path) == SCHEMA and path.read_text(encoding="utf-8") == SCHEMA.to_json()
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    other = Features([Numeric("x")])
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError("full")))
    with pytest.raises(OSError, match="full"):
        other.save(path)
    monkeypatch.undo()
    assert Features.load(path) == SCHEMA and list(tmp_path.iterdir()) == [path]
    with pytest.raises(FileNotFoundError, match=r"^path must lie in a folder that exists"):
        SCHEMA.save(tmp_path / "none" / "schema.json")
    path.write_bytes(b"\xff\xfe{}")
    with pytest.raises(ValueError, match=r"^path must be a file of JSON in UTF-8, got '.*schema\.json'"):
        Features.load(path)
    path.write_bytes(b"\xef\xbb\xbf" + SCHEMA.to_json().encode())  # as some editors write it
    assert Features.load(path) == SCHEMA


def test_the_digest_is_that_of_what_is_encoded():
    assert SCHEMA.digest == Features.from_dict({**SCHEMA.to_dict(), "notes": {}}).digest
    assert SCHEMA.digest != Features.from_dict({**SCHEMA.to_dict(), "ignored": []}).digest
    assert Features([Numeric("x")]).digest == "0fb1a87126de9a41"
