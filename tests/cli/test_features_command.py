"""`sketchbandits features`, and schemas as ``--features`` of other commands."""

import json

import numpy as np
import polars
import pytest
from command_line import files_in, run

from sketchbandits.arms_file import SchemaFile, read_arms
from sketchbandits.features import Features
from sketchbandits.lab.advice import timing

TABLE = """sku,price,brand,zip,title,released,in_stock,rating
a1,3.5,acme,01234,Red shoes for running,2024-01-05,true,4.5
a2,4.5,bmw,12345,Blue shoes for walking,2024-02-05,FALSE,n/a
a3,,acme,99999,"Green, long coat",,true,3.5
a4,1000,zeta,00001,Coat of green wool,2024-03-01,true,4
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "items.csv").write_text(TABLE)
    made = run("features", "items.csv", "--id-column", "sku", "--ignore", "released", "--out", "s.json", cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    return tmp_path


def test_a_schema_is_shown_with_what_may_be_meant_otherwise(folder):
    code, stdout, stderr = run("features", "items.csv", cwd=folder)
    assert (code, stderr) == (0, "") and all(len(line) <= 80 for line in stdout.splitlines())
    said = " ".join(stdout.split())
    assert "price numeric 2 (x - 336) / 469.5; numbers, some missing" in said
    assert "in_stock categorical 3 one of 'true', 'false'" in said
    assert "'sku' differs in every row: if it names the rows, pass --id-column sku" in said.replace("! ", "")
    assert "The column 'released' holds dates as text" in said and "'zip' differs" not in said
    assert "'rating' is text because of cells such as 'n/a'; the other 3 of 4 are numbers." in said
    assert files_in(folder) == {"items.csv", "s.json"}


def test_the_file_is_the_schema_and_is_not_replaced_unless_forced(folder):
    before = (folder / "s.json").read_text()
    refused = run("features", "items.csv", "--out", "s.json", cwd=folder)
    assert refused.returncode == 2 and (folder / "s.json").read_text() == before
    assert refused.stderr == "--out must be a new file, or come with --force, got 's.json', which exists\n"
    assert Features.load(folder / "s.json").id_column == "sku"
    done = run("features", "items.csv", "--out", "s.json", "--force", cwd=folder)
    assert done.stdout.splitlines()[-1] == "Wrote s.json: pass it on as --features s.json"
    assert Features.load(folder / "s.json").id_column is None


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("missing.csv",), 1, "'missing.csv' must be a file that can be read"),
        (("s.json",), 2, "TABLE must be a table that ends in .csv or .parquet, got 's.json'"),
        (("items.csv", "--id-column", "name"), 2, "--id-column must be one of the columns 'sku'"),
        (("items.csv", "--ignore", "brend"), 2, "--ignore must hold the columns "),
        (("items.csv", "--out", "s.txt"), 2, "--out must end in .json, by which --features tells"),
        (("items.csv", "--out", "no/s.json"), 2, "--out must lie in a folder that exists, got 'no/s.json'"),
        (("infinite.csv",), 2, "TABLE must be a table that can be encoded: the column 'a' must hold a number"),
    ],
)
def test_refusals_of_features_are_one_line(folder, arguments, code, message):
    (folder / "infinite.csv").write_text("a,b\n1,2\ninf,3\n")
    refused = run("features", *arguments, cwd=folder)
    assert (refused.returncode, refused.stdout) == (code, "")
    (line,) = refused.stderr.splitlines()
    assert line.startswith(message)


def test_a_csv_and_a_parquet_file_are_encoded_alike_with_their_ids(folder):
    schema = SchemaFile.load(str(folder / "s.json"))
    found = read_arms(folder / "items.csv", features=schema)
    assert found.ids == ("a1", "a2", "a3", "a4") and found.features == schema.features.names
    frame = polars.read_csv(folder / "items.csv", schema_overrides={"zip": polars.String})
    frame = frame.with_columns(polars.col("in_stock").cast(polars.String).str.to_lowercase() == "true")
    frame.write_parquet(folder / "items.parquet")
    again = read_arms(folder / "items.parquet", features=schema)
    assert np.array_equal(again.arms, found.arms) and again.ids == found.ids
    assert np.array_equal(schema.features.transform(frame), found.arms)
    zips = schema.features.names.index("zip=00001")
    assert found.arms[:, zips].tolist() == [0.0, 0.0, 0.0, 1.0]
    assert read_arms(folder / "items.csv", features=schema, id_column="zip").ids[0] == "01234"
    assert not found.arms.flags.writeable


def test_rows_that_come_later_are_encoded_as_the_schema_says(folder):
    (folder / "later.csv").write_text(
        "zip,sku,price,brand,title,in_stock,rating\n00001,7,007,new,,TRUE,4.0\n,8,,zeta,x,,4.5\n"
    )
    schema = SchemaFile.load(str(folder / "s.json"))
    with pytest.raises(
        ValueError, match=r"^arms must be rows that '.*s.json' can encode: the column 'title' .* in row 1"
    ):
        read_arms(folder / "later.csv", features=schema)
    (folder / "later.csv").write_text((folder / "later.csv").read_text().replace("new,,", "new,hat,"))
    found = read_arms(folder / "later.csv", features=schema)
    value = dict(zip(found.features, found.arms.T.tolist(), strict=True))
    assert found.ids == ("7", "8")
    assert value["price"] == [pytest.approx((7.0 - 336.0) / 469.519, rel=1e-5), 0.0] and value["price is missing"] == [
        0,
        1,
    ]
    assert value["brand is other"] == [1, 0] and value["zip is missing"] == [0, 1] and value["in_stock=true"] == [1, 0]


def edited(folder, name, old, new):
    (folder / name).write_text(TABLE.replace(old, new))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("a2,4.5", "a2,cheap", "ARMS must be rows that 's.json' can encode: the column 'price' must hold numbers, got "
         "'cheap' in row 2 (rows are counted from 1 below the header)"),
        ("FALSE", "maybe", "ARMS must be rows that 's.json' can encode: the column 'in_stock' must hold one of 'true', "
         "'false', got 'maybe' of type str in row 2 (rows"),
        ("a2,", "a1,", "--id-column must hold every id once, got 'a1' in rows 1, 2"),
        ("a2,", ",", "--id-column must hold an id in every row, got none in row 2"),
        ("rating\n", "score\n", "ARMS must have the column 'rating', which 's.json' names, got only 'sku'"),
        ("released", "date", "ARMS must have columns that the schema knows, got 'date', which is new to 's.json': add"),
    ],
)  # fmt: skip
def test_tables_that_a_schema_does_not_fit(folder, old, new, message):
    edited(folder, "other.csv", old, new)
    refused = run("inspect", "other.csv", "--features", "s.json", cwd=folder)
    assert refused.returncode == 2
    assert refused.stderr.startswith(message) and refused.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x", "--features must be a schema as sketchbandits features writes it, got 'bad.json': text must be JSON"),
        ('{"version": 2}', "--features must be a schema as sketchbandits features writes it, got 'bad.json': version"),
        (None, "'bad.json' must be a file that can be read"),
    ],
)
def test_files_that_are_no_schema(folder, text, message):
    if text is not None:
        (folder / "bad.json").write_text(text)
    for command in (("inspect", "items.csv"), ("simulate", "--arms", "items.csv"), ("serve", "--arms", "items.csv")):
        refused = run(*command, "--features", "bad.json", cwd=folder)
        assert refused.returncode == (1 if text is None else 2) and refused.stderr.startswith(message)


def test_an_array_has_no_columns_for_a_schema(folder):
    np.save(folder / "items.npy", np.eye(3))
    refused = run("inspect", "items.npy", "--features", "s.json", cwd=folder)
    assert refused.stderr == ("--features must be left out for a .npy file, which has no column names, got 's.json'\n")


def test_inspect_names_the_features_of_the_schema(folder, monkeypatch):
    monkeypatch.setattr(timing, "round_microseconds", lambda policy, means, noise: 3.0)
    found = run("inspect", "items.csv", "--features", "s.json", "--sketch-sizes", "2", "--out", "out", cwd=folder)
    assert found.returncode == 0, found.stderr
    assert found.stdout.startswith("4 arms of ") and "Columns 'brand is other', 'brand is missing'" in found.stdout
    assert "HybridCSLB(arms, context_dim=...)" in found.stdout
    hybrid = json.loads((folder / "out/advice.json").read_text())["hybrid"]
    assert hybrid["call"] == "HybridCSLB(arms)" and hybrid["microseconds"] == 3.0
    assert [each["context_dim"] for each in hybrid["memory"]] == [None, 5, 20, 50]


@pytest.mark.process
def test_simulate_plays_what_the_schema_encodes_and_an_edited_schema_is_played_again(folder):
    words = ("simulate", "--arms", "items.csv", "--features", "s.json", "--policies", "hybrid,ucb1", "--rounds", "150")
    words += ("--runs", "1", "--jobs", "1", "--out", "out")
    assert run(*words, cwd=folder).returncode == 0
    first = polars.read_csv(folder / "out/summary.csv")["regret"].to_list()
    runs = (folder / "out/runs.jsonl").read_text().splitlines()
    assert len(runs) == 4 and "s.json" in (folder / "out/report.html").read_text()
    schema = json.loads((folder / "s.json").read_text())
    schema["notes"]["price"] = "in euros"
    (folder / "s.json").write_text(json.dumps(schema))
    assert run(*words, cwd=folder).returncode == 0
    assert polars.read_csv(folder / "out/summary.csv")["regret"].to_list() == first
    assert (folder / "out/runs.jsonl").read_text().splitlines() == runs
    schema["columns"] = [each for each in schema["columns"] if each["name"] != "brand"]
    schema["ignored"].append("brand")
    schema["notes"].pop("brand")
    (folder / "s.json").write_text(json.dumps(schema))
    assert run(*words, cwd=folder).returncode == 0
    assert polars.read_csv(folder / "out/summary.csv")["regret"].to_list() != first
