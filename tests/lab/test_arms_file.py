"""Arms read from files: the formats agree, and every refusal names the argument, the place and what is allowed."""

import os
import pickle
import re
import shlex
import subprocess
import sys
import tracemalloc
from datetime import date

import numpy as np
import polars
import pytest

from sketchbandits.arms_file import ArmFile, read_arms

N, D = 7, 3
HEADER = "(rows are counted from 1 below the header)"
NAMELESS = "(rows are counted from 1, columns from 0)"
ROWS = "(rows are counted from 1)"


@pytest.fixture
def values():
    return np.random.default_rng(0).standard_normal((N, D)) * 10.0 ** np.arange(-8, 16, 8)


@pytest.fixture
def write(tmp_path):
    """Write a file of any of the three kinds and give its path."""

    def write(name, content):
        path = tmp_path / name
        if isinstance(content, str):
            path.write_bytes(content.encode())
        elif isinstance(content, bytes):
            path.write_bytes(content)
        elif isinstance(content, np.ndarray):
            np.save(path, content)
        elif name.endswith("csv"):
            content.write_csv(path)
        else:
            content.write_parquet(path)
        return path

    return write


def table(values, **more):
    return polars.DataFrame({**more, **{name: values[:, i] for i, name in enumerate("abc")}})


def refused(path, **options):
    """The one line with which a file is refused."""
    with pytest.raises(ValueError, match=r".") as caught:
        read_arms(path, **options)
    message = str(caught.value)
    assert type(caught.value) is ValueError
    assert "\n" not in message
    return message


def offer(path):
    """What a user is told to do about text, dates and missing values."""
    return f"; sketchbandits features {shlex.quote(str(path))} --out schema.json writes a schema that encodes it"


# --- what is read ---


def test_formats_agree_to_the_last_bit(write, values):
    ids = [f"x{i}" for i in range(N)]
    array = read_arms(write("arms.npy", values))
    for name in ("arms.csv", "arms.parquet"):
        file = read_arms(write(name, table(values, id=ids)), id_column="id")
        assert np.array_equal(file.arms, array.arms)
        assert file.ids == tuple(ids)
        assert file.features == ("a", "b", "c")
    assert np.array_equal(array.arms, values)
    assert array.ids == tuple(map(str, range(N)))
    assert array.features == ("0", "1", "2")


@pytest.mark.parametrize("name", ["arms.npy", "arms.csv", "arms.parquet"])
def test_arms_are_read_only_contiguous_float64(write, values, name):
    file = read_arms(write(name, values if name.endswith("npy") else table(values)))
    assert isinstance(file, ArmFile)
    assert file.arms.shape == (N, D)
    assert file.arms.dtype == np.float64
    assert file.arms.flags.c_contiguous and file.arms.flags.owndata and not file.arms.flags.writeable
    assert not isinstance(file.arms, np.memmap)
    with pytest.raises(AttributeError):
        file.ids = ()


def test_the_path_may_be_text_and_the_suffix_in_capitals(write, values):
    for name in ("ARMS.NPY", "Arms.Csv", "arms.PARQUET"):
        path = write(name.lower(), values if name.endswith("NPY") else table(values))
        os.rename(path, path.with_name(name))
        assert np.array_equal(read_arms(str(path.with_name(name))).arms, values)


@pytest.mark.parametrize("name", ["*.parquet", "[a].csv", "~.parquet", "id=3.parquet", "a=3/arms.parquet"])
def test_a_name_is_no_pattern(write, values, name, monkeypatch, tmp_path):
    (tmp_path / "a=3").mkdir()
    write("other.parquet", table(values + 1))
    write(name, table(values))
    monkeypatch.chdir(tmp_path)
    file = read_arms(name)
    assert np.array_equal(file.arms, values)
    assert file.features == ("a", "b", "c")


def test_a_npy_file_is_not_held_open(write, values):
    path = write("arms.npy", values)
    file = read_arms(path)
    write("arms.npy", values * 2)
    assert np.array_equal(file.arms, values)


@pytest.mark.parametrize("dtype", ["<f4", ">f4"])
def test_float32_stays_float32(write, values, dtype):
    file = read_arms(write("arms.npy", values.astype(dtype)))
    assert file.arms.dtype == np.float32
    assert np.array_equal(file.arms, values.astype(np.float32))
    assert not file.arms.flags.writeable


@pytest.mark.parametrize("dtype", ["int8", "int64", "uint16", "float16", "longdouble", ">f8", "<i4"])
def test_other_numbers_become_float64(write, dtype):
    numbers = np.arange(N * D).reshape(N, D).astype(dtype)
    file = read_arms(write("arms.npy", numbers))
    assert file.arms.dtype == np.float64
    assert np.array_equal(file.arms, np.arange(N * D).reshape(N, D))


def test_a_fortran_array_is_not_transposed(write, values):
    file = read_arms(write("arms.npy", np.asfortranarray(values)))
    assert np.array_equal(file.arms, values)
    assert file.arms.flags.c_contiguous


def test_parquet_numbers_of_every_type(write):
    types = [polars.Int8, polars.UInt64, polars.Float32, polars.Decimal(10, 2), polars.Int64]
    frame = polars.DataFrame({str(t): polars.Series([1, 2, 3]).cast(t) for t in types})
    file = read_arms(write("arms.parquet", frame))
    assert file.arms.dtype == np.float64
    assert np.array_equal(file.arms, np.outer([1, 2, 3], np.ones(len(types))))


@pytest.mark.parametrize("name", ["arms.csv", "arms.parquet"])
def test_features_come_in_the_order_given_and_others_are_ignored(write, values, name):
    path = write(name, table(values, title=["text"] * N, hole=[None] + [1.0] * (N - 1)))
    file = read_arms(path, features=["c", "a"])
    assert file.features == ("c", "a")
    assert np.array_equal(file.arms, values[:, [2, 0]])
    assert file.ids == tuple(map(str, range(N)))
    assert np.array_equal(read_arms(path, features=("b",)).arms, values[:, [1]])


@pytest.mark.parametrize("name", ["arms.csv", "arms.parquet"])
def test_the_id_column_may_stand_anywhere_and_names_are_no_patterns(write, name):
    frame = polars.DataFrame({"^.*$": [1.0, 2.0], "id": ["p", "q"], "*": [3, 4]})
    file = read_arms(write(name, frame), id_column="id")
    assert file.features == ("^.*$", "*")
    assert file.ids == ("p", "q")
    assert np.array_equal(file.arms, [[1, 3], [2, 4]])
    assert np.array_equal(read_arms(write(name, frame), features=["*"]).arms, [[3], [4]])


def test_csv_ids_are_kept_as_written(write):
    file = read_arms(write("arms.csv", "sku,a,b\n007,1,2\n7,3,4\n1.50,5,6\ntrue,7,8\nnan,9,10\n"), id_column="sku")
    assert file.ids == ("007", "7", "1.50", "true", "nan")
    assert file.features == ("a", "b")


@pytest.mark.parametrize(
    ("ids", "texts"),
    [
        ([10, 7], ("10", "7")),
        ([1.5, 2.0], ("1.5", "2.0")),
        ([" p", "p"], (" p", "p")),
        ([date(2026, 1, 2), date(2026, 1, 3)], ("2026-01-02", "2026-01-03")),
        (polars.Series(["p", "q"], dtype=polars.Categorical), ("p", "q")),
    ],
)
def test_parquet_ids_become_text(write, ids, texts):
    path = write("arms.parquet", polars.DataFrame({"id": ids, "a": [1.0, 2.0], "b": [3.0, 4.0], "c": [5.0, 6.0]}))
    assert read_arms(path, id_column="id").ids == texts


# --- what a .csv file looks like ---


@pytest.mark.parametrize("mark", [",", ";", "\t"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("bom", ["", "\ufeff"])
def test_csv_with_a_header(write, mark, end, bom):
    rows = [["id", "a", "b"], ["p", "1", "2.5"], ["q", "-3e2", "+.5"], ["r", "0", "7."]]
    path = write("arms.csv", bom + "".join(mark.join(row) + end for row in rows))
    file = read_arms(path, id_column="id")
    assert file.features == ("a", "b")
    assert file.ids == ("p", "q", "r")
    assert np.array_equal(file.arms, [[1, 2.5], [-300, 0.5], [0, 7]])


@pytest.mark.parametrize("mark", [",", ";", "\t"])
@pytest.mark.parametrize("bom", ["", "\ufeff"])
def test_csv_without_a_header(write, mark, bom):
    path = write("arms.csv", bom + mark.join("123") + "\n" + mark.join("456"))
    file = read_arms(path)
    assert file.features == ("0", "1", "2")
    assert file.ids == ("0", "1")
    assert np.array_equal(file.arms, [[1, 2, 3], [4, 5, 6]])
    file = read_arms(path, id_column="1", features=["2", "0"])
    assert file.features == ("2", "0")
    assert file.ids == ("2", "5")
    assert np.array_equal(file.arms, [[3, 1], [6, 4]])


def test_csv_with_equal_numbers_in_its_first_row(write):
    assert np.array_equal(read_arms(write("arms.csv", "1,1,1\n1,2,3\n")).arms, [[1, 1, 1], [1, 2, 3]])


@pytest.mark.parametrize("first", ["1_0,2_0", "a,2", ",1", "0x1,2", "'1',2"])
def test_a_first_row_that_is_not_all_numbers_is_a_header(write, first):
    file = read_arms(write("arms.csv", f"{first}\n3,4\n5,6\n8,9\n"))
    assert file.features == tuple(first.split(","))
    assert file.arms.shape == (3, 2)


def test_csv_quotes_and_spaces(write):
    text = '"a;b", c ,"d ""x""","two\nlines"\n"1", 2 ,3,4\n 5,"6 ",7,8\n9,10,11,12\n'
    file = read_arms(write("arms.csv", text))
    assert file.features == ("a;b", "c", 'd "x"', "two\nlines")
    assert np.array_equal(file.arms, np.arange(1, 13).reshape(3, 4))


def test_blank_lines_around_a_csv_are_no_arms(write):
    assert read_arms(write("arms.csv", "\n\r\na,b\n1,2\n3,4\n5,6\n\n\r\n\n")).arms.shape == (3, 2)
    assert read_arms(write("arms.csv", "\n1,2\n3,4\n5,6\n\n")).arms.shape == (3, 2)


def test_csv_of_one_column(write):
    assert np.array_equal(read_arms(write("arms.csv", "a\n1\n2\n")).arms, [[1], [2]])


def test_names_beyond_ascii(write):
    file = read_arms(write("ärme.csv", "größe;π\n1;2\n3;4\n5;6\n"), id_column="größe")
    assert (file.ids, file.features) == (("1", "3", "5"), ("π",))


def test_large_whole_numbers_are_rounded_like_python_does(write):
    text = "99999999999999999999999"
    assert read_arms(write("arms.csv", f"a,b\n{text},9007199254740993\n")).arms.tolist() == [[float(text), 2.0**53]]


# --- files that are refused ---


@pytest.mark.parametrize("name", ["arms.txt", "arms", "arms.npz", "arms.csv.gz", ".npy"])
def test_other_suffixes(tmp_path, name):
    path = tmp_path / name  # refused by its name, whether it is there or not
    assert refused(path) == f"arms must be a file that ends in .npy, .csv or .parquet, got {str(path)!r}"


@pytest.mark.parametrize("suffix", ["npy", "csv", "parquet"])
def test_files_that_cannot_be_opened_are_an_os_error(tmp_path, suffix):
    path = tmp_path / f"arms.{suffix}"
    with pytest.raises(FileNotFoundError):
        read_arms(path)
    path.mkdir()
    (path / "part.parquet").write_bytes(b"")
    with pytest.raises(IsADirectoryError):
        read_arms(path)


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may read everything")
@pytest.mark.parametrize("suffix", ["npy", "csv", "parquet"])
def test_files_that_may_not_be_read_are_an_os_error(tmp_path, suffix):
    path = tmp_path / f"arms.{suffix}"
    path.write_bytes(b"1,2\n")
    path.chmod(0)
    with pytest.raises(PermissionError):
        read_arms(path)


def test_a_disk_that_fails_is_no_damaged_file(write, values, monkeypatch):
    def fail(*_, **__):
        raise OSError(5, "Input/output error")

    path = write("arms.npy", values)
    monkeypatch.setattr(np, "load", fail)
    with pytest.raises(OSError, match="Input/output error"):
        read_arms(path)


class Trap:
    def __reduce__(self):
        return os.abort, ()


def npy_damages(path, values):
    np.save(path, values)
    whole = path.read_bytes()
    np.savez(path.with_suffix(".npz"), values)
    yield b""
    yield b"\x93NUMPY"
    yield b"neither an array nor a pickle"
    yield whole[:60]  # in the head
    yield whole[:-1]
    yield whole.replace(b"(7, 3)", b"(7, (3")
    yield whole.replace(b"(7, 3), ", b"(10**9,)")
    yield whole.replace(b"(7, 3), }         ", b"(700000000, 3000)}")  # never tries to get 16 TB
    yield whole.replace(b"<f8", b"zzz")
    yield pickle.dumps(Trap())
    yield path.with_suffix(".npz").read_bytes()
    yield path.with_suffix(".npz").read_bytes()[:50]


def parquet_damages(path, values):
    table(values).write_parquet(path)
    whole = path.read_bytes()
    yield b""
    yield b"PAR1"
    yield b"a,b\n1,2\n"
    yield whole[: len(whole) // 2]
    yield whole[:-1]
    yield whole[:4] + b"\xff" * 60 + whole[64:]
    yield whole[:-60] + b"\xff" * 40 + whole[-20:]


def csv_damages(path, values):
    yield b"a,b\n1,2\n3,4,5\n"
    yield b"1,2\n3,4,5\n"
    yield b'a,b\n"1,2\n3,4\n'
    yield b"a,b\r1,2\r3,4\r"  # line ends of long ago
    yield b"a,\xff\n1,2\n"
    yield b"a,b\n" + b"1,2\n" * 10_000 + b"\xff,2\n"
    yield "a,b\n1,2\n".encode("utf-16")
    yield b"a" * 200_000 + b",b\n1,2\n"
    yield np.random.default_rng(1).bytes(5000)


@pytest.mark.parametrize(
    ("name", "damages", "allowed"),
    [
        ("arms.npy", npy_damages, "a 2-D array of numbers in a .npy file as numpy.save writes it"),
        ("arms.csv", csv_damages, "a .csv file in UTF-8 with no row longer than the first and every quote closed"),
        ("arms.parquet", parquet_damages, "an intact .parquet file"),
    ],
)
def test_damaged_files(tmp_path, values, name, damages, allowed):
    path = tmp_path / name
    for content in damages(path, values):
        path.write_bytes(content)
        message = f"arms must be {allowed}, got {str(path)!r}, which is damaged or something else"
        assert refused(path) == message, content[:80]


def test_npy_never_loads_a_pickle(tmp_path):
    path = tmp_path / "arms.npy"
    np.save(path, np.array([[Trap()]], dtype=object), allow_pickle=True)
    assert refused(path).startswith("arms must be a 2-D array of numbers in a .npy file")


@pytest.mark.parametrize(
    ("array", "found"),
    [
        (np.zeros(4), "shape (4,)"),
        (np.zeros(()), "shape ()"),
        (np.zeros((2, 3, 4)), "shape (2, 3, 4)"),
        (np.zeros((0, 3)), "shape (0, 3)"),
        (np.zeros((3, 0)), "shape (3, 0)"),
        (np.zeros((2, 3), dtype=complex), "an array of complex128"),
        (np.array([["a", "b"]]), "an array of <U1"),
        (np.zeros((2, 3), dtype="M8[s]"), "an array of datetime64[s]"),
    ],
)
def test_npy_arrays_of_another_shape_or_kind(write, array, found):
    assert refused(write("arms.npy", array)) == f"arms must be a non-empty 2-D array of numbers, got {found}"


def test_npy_takes_no_column_names(write, values):
    path, why = write("arms.npy", values), "must be left out for a .npy file, which has no column names, got"
    assert refused(path, id_column="0") == f"id_column {why} '0'"
    assert refused(path, features=["1", "0"]) == f"features {why} ['1', '0']"
    assert refused(path, features=[]) == f"features {why} []"


@pytest.mark.parametrize("content", [b"", b"\n", b"\r\n\n", b"\xef\xbb\xbf", b"\xef\xbb\xbf\n"])
def test_empty_csv(write, content):
    path = write("arms.csv", content)
    assert refused(path) == f"arms must be a .csv file with a row for each arm, got the empty file {str(path)!r}"


def test_tables_without_arms_or_features(write):
    why = "arms must be a non-empty 2-D array of numbers, got shape"
    assert refused(write("arms.csv", "a,b\n")) == f"{why} (0, 2)"
    assert refused(write("arms.csv", "id,a,b"), id_column="id") == f"{why} (0, 2)"
    assert refused(write("arms.csv", "id\np\nq\n"), id_column="id") == f"{why} (2, 0)"
    empty = polars.DataFrame({"a": [], "b": []}, schema={"a": polars.Float64, "b": polars.Int64})
    assert refused(write("arms.parquet", empty)) == f"{why} (0, 2)"
    assert refused(write("arms.parquet", polars.DataFrame({"a": [1, 2, 3]})), id_column="a") == f"{why} (3, 0)"


# --- columns that are refused ---

ADVICE = ": name that column with id_column or choose features"


@pytest.mark.parametrize("name", ["arms.csv", "arms.parquet"])
def test_unknown_columns(write, values, name):
    path = write(name, table(values))
    assert refused(path, id_column="d") == "id_column must be one of the columns 'a', 'b', 'c', got 'd'"
    assert refused(path, features=["a", "d"]) == "features must be among the columns 'a', 'b', 'c', got 'd'"
    assert refused(path, features=["a", 1]) == "features must be among the columns 'a', 'b', 'c', got 1"
    repeated = "features must be distinct ones of the columns 'a', 'b', 'c', got 'b' 2 times"
    assert refused(path, features=["b", "a", "b"]) == repeated
    for given in ([], (), "abc", "a"):
        allowed = "a list of one or more of the columns 'a', 'b', 'c'"
        assert refused(path, features=given) == f"features must be {allowed}, got {given!r}"
    both = "features must be other columns than id_column, got 'b' for both"
    assert refused(path, features=["a", "b"], id_column="b") == both


def test_long_lists_of_columns_are_shortened(write):
    shown = ", ".join(f"'c{i}'" for i in range(10))
    for columns, more in ((10, ""), (11, " and 1 more"), (300, " and 290 more")):
        path = write("arms.csv", ",".join(f"c{i}" for i in range(columns)) + "\n")
        assert refused(path, id_column="x") == f"id_column must be one of the columns {shown}{more}, got 'x'"


def test_csv_columns_of_one_name(write):
    assert refused(write("arms.csv", "a,b, a\n1,2,3\n")) == "arms must have columns of distinct names, got 'a' 2 times"
    assert refused(write("arms.csv", "a,,,\n1,2,3\n")) == "arms must have columns of distinct names, got '' 3 times"


@pytest.mark.parametrize("cell", ["abc", "true", "False", "1_000", "1,5", "0x10", "2026-01-02", "NA", "1 2", "-"])
def test_csv_text(write, cell):
    path = write("arms.csv", f"a;b\n1;2\n;4\n{cell};5\n")  # a boolean among numbers is text as well
    found = f"{cell!r} in column 'a', row 3 {HEADER}"
    assert refused(path) == f"arms must be columns of numbers, got {found}{ADVICE}{offer(path)}"
    assert refused(path, features=["b", "a"]) == f"features must be columns of numbers, got {found}{offer(path)}"
    assert read_arms(path, features=["b"]).arms.shape == (3, 1)


def test_csv_text_in_a_file_without_a_header_and_long_text(write):
    found = f"'{'x' * 40}' in column '1', row 2 {NAMELESS}"
    path = write("arms.csv", f"1,2,3\n4,{'x' * 99},6\n")
    assert refused(path) == f"arms must be columns of numbers, got {found}{ADVICE}{offer(path)}"


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        (["1", "2", None], "String"),
        ([date(2026, 1, 2)] * 3, "Date"),
        ([[1.0], [2.0], [3.0]], "List(Float64)"),
        ([b"1", b"2", b"3"], "Binary"),
        (polars.Series([None] * 3, dtype=polars.List(polars.Int64)), "List(Int64)"),
    ],
)
def test_parquet_columns_that_are_not_numbers(write, cells, kind):
    path = write("arms.parquet", polars.DataFrame({"a": [1.0, 2.0, 3.0], "odd": cells}))
    found = f"column 'odd' of type {kind}"
    assert refused(path) == f"arms must be columns of numbers or booleans, got {found}{ADVICE}{offer(path)}"
    message = f"features must be columns of numbers or booleans, got {found}{offer(path)}"
    assert refused(path, features=["odd"]) == message
    assert read_arms(path, features=["a"]).arms.shape == (3, 1)


# --- booleans ---


def test_booleans_are_one_and_zero(write):
    expected = [[1.0, 2.0], [0.0, 3.0]]
    table = polars.DataFrame({"a": [True, False], "b": [2, 3]})
    assert read_arms(write("arms.parquet", table)).arms.tolist() == expected
    for text in ("a,b\ntrue,2\nfalse,3\n", "a,b\nTrue,2\nFALSE,3\n"):
        assert read_arms(write("arms.csv", text)).arms.tolist() == expected
    path = write("arms.csv", "a,b\ntrue,2\n,3\n")
    missing = f"arms must be finite numbers, got no value in column 'a', row 2 {HEADER}{offer(path)}"
    assert refused(path) == missing


def test_an_array_of_booleans(tmp_path):
    np.save(tmp_path / "arms.npy", np.array([[True, False], [False, True]]))
    file = read_arms(tmp_path / "arms.npy")
    assert file.arms.tolist() == [[1.0, 0.0], [0.0, 1.0]] and file.arms.dtype == np.float64


def test_integers_that_may_be_missing_and_are_not(write):
    table = polars.DataFrame(
        {"a": polars.Series([1, 2], dtype=polars.Int64), "b": polars.Series([3, 4], dtype=polars.UInt8)}
    )
    assert read_arms(write("arms.parquet", table)).arms.tolist() == [[1.0, 3.0], [2.0, 4.0]]


# --- values that are refused ---


@pytest.mark.parametrize("cell", ["", " ", '""', '" "'])
def test_csv_cells_without_a_value(write, cell):
    path = write("arms.csv", f"id,a,b\np,1,2\nq,3,{cell}\nr,5,6\n")
    message = f"arms must be finite numbers, got no value in column 'b', row 2 {HEADER}{offer(path)}"
    assert refused(path, id_column="id") == message
    assert refused(path, features=["b"]) == message
    path = write("arms.csv", f"1,2,3\n4,5,6\n7,{cell},9\n")
    message = f"arms must be finite numbers, got no value in column '1', row 3 {NAMELESS}{offer(path)}"
    assert refused(path) == message


def test_csv_rows_that_are_short_or_blank(write):
    for text in ("a,b\n1,2\n3\n5,6\n", "b,a\n1,2\n\n5,6\n"):
        path = write("arms.csv", text)
        message = f"arms must be finite numbers, got no value in column 'b', row 2 {HEADER}{offer(path)}"
        assert refused(path) == message
    message = f"arms must be finite numbers, got no value in column 'b', row 1 {HEADER}{offer(path)}"
    assert refused(write("arms.csv", "a,b\n1,\n2,\n3,\n")) == message


@pytest.mark.parametrize(
    ("holes", "kind"),
    [([1.0, None, None], "Float64"), ([3, None, 4], "Int64"), ([2.5, None, 1.0], "Float64"), ([True, None], "Boolean")],
)
def test_parquet_cells_without_a_value(write, holes, kind):
    path = write("arms.parquet", polars.DataFrame({"a": range(len(holes)), "b": holes}))
    place = f"column 'b' of type {kind}, row 2 {ROWS}"
    assert refused(path) == f"arms must be finite numbers, got no value in {place}{offer(path)}"


@pytest.mark.parametrize("dtype", [polars.Null, polars.Int8, polars.Float64])
def test_parquet_columns_without_any_value(write, dtype):
    path = write("arms.parquet", polars.DataFrame({"a": [1, 2], "b": polars.Series([None, None], dtype=dtype)}))
    place = f"column 'b' of type {dtype}, row 1 {ROWS}"
    assert refused(path) == f"arms must be finite numbers, got no value in {place}{offer(path)}"


@pytest.mark.parametrize(
    ("text", "value"), [("nan", np.nan), ("NaN", np.nan), ("inf", np.inf), ("-inf", -np.inf), ("1e400", np.inf)]
)
def test_values_that_are_not_finite(write, values, text, value):
    end = offer if np.isnan(value) else lambda path: ""
    path = write("arms.csv", f"a,b\n1,2\n3,{text}\n")
    assert refused(path) == f"arms must be finite numbers, got {value} in column 'b', row 2 {HEADER}{end(path)}"
    path = write("arms.csv", f"1,{text}\n3,4\n5,6\n")
    assert refused(path) == f"arms must be finite numbers, got {value} in column '1', row 1 {NAMELESS}{end(path)}"
    values[4, 1] = values[5, 0] = value
    path = write("arms.parquet", table(values))
    assert refused(path) == f"arms must be finite numbers, got {value} in column 'b', row 5 {ROWS}{end(path)}"
    for array in (values, values.astype(np.float32), np.asfortranarray(values)):
        path = write("arms.npy", array)
        assert refused(path) == f"arms must be finite numbers, got {value} in column '1', row 5 {NAMELESS}"


@pytest.mark.parametrize("size", [1e101, 1e-101])
@pytest.mark.parametrize("name", ["arms.npy", "arms.csv", "arms.parquet"])
def test_vectors_too_large_or_too_small(write, values, size, name):
    values[2] = [0, size, 0]
    path = write(name, values if name.endswith("npy") else table(values))
    assert re.fullmatch(r"arms must be vectors that are zero or whose largest entry is between .*", refused(path))


def test_arms_of_zeros_are_allowed(write, values):
    values[3] = 0
    assert np.array_equal(read_arms(write("arms.csv", table(values))).arms, values)


# --- ids that are refused ---


@pytest.mark.parametrize("cell", ["", " ", '""'])
def test_csv_ids_that_are_missing(write, cell):
    path = write("arms.csv", f"id,a,b\np,1,2\n{cell},3,4\n{cell},5,6\n")
    assert refused(path, id_column="id") == f"id_column must hold an id in every row, got none in row 2 {HEADER}"


@pytest.mark.parametrize("ids", [["p", "q", None], ["p", "q", ""], [1, 2, None], [1.0, 2.0, np.nan]])
def test_parquet_ids_that_are_missing(write, ids):
    path = write("arms.parquet", polars.DataFrame({"id": ids, "a": [1, 2, 3]}))
    assert refused(path, id_column="id") == f"id_column must hold an id in every row, got none in row 3 {ROWS}"


def test_ids_that_occur_twice(write):
    why = "id_column must hold every id once, got"
    path = write("arms.csv", "id,a,b\np,1,2\nq,3,4\nr,5,6\nq ,7,8\np,9,10\n")
    assert refused(path, id_column="id") == f"{why} 'p' in rows 1, 5 {HEADER}"
    path = write("arms.csv", "5,1,2\n6,3,4\n6,5,6\n")
    assert refused(path, id_column="0") == f"{why} '6' in rows 2, 3 {NAMELESS}"
    path = write("arms.parquet", polars.DataFrame({"id": [4, *[3] * 12], "a": np.arange(13.0)}))
    assert refused(path, id_column="id") == f"{why} '3' in rows 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 and 2 more {ROWS}"


@pytest.mark.parametrize(("ids", "kind"), [([[1], [2]], "List(Int64)"), ([b"p", b"\xff"], "Binary")])
def test_ids_that_are_no_text(write, ids, kind):
    path = write("arms.parquet", polars.DataFrame({"id": ids, "a": [1.0, 2.0]}))
    message = f"id_column must hold text or whole numbers, got 'id' of type {kind}"
    assert refused(path, id_column="id") == message


# --- cost ---


@pytest.mark.process
def test_polars_is_loaded_only_for_tables(write, values):
    code = (
        "import sys; from sketchbandits import arms_file as a; a.read_arms(sys.argv[1]); print('polars' in sys.modules)"
    )
    path = str(write("arms.npy", values))
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_a_large_table_takes_few_copies(write):
    values = np.random.default_rng(0).standard_normal((200_000, 11))
    path = write("arms.parquet", polars.DataFrame({f"c{i}": values[:, i] for i in range(11)}))
    tracemalloc.start()
    try:
        file = read_arms(path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert np.array_equal(file.arms, values)
    assert peak < 2.5 * values.nbytes + 40e6  # NumPy's share, with two hundred thousand ids: no Python object a cell
