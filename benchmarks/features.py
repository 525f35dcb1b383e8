"""What a schema costs: `vector` for one record, `transform` for tables; the table of docs/howto/features.md."""

import time
from itertools import cycle

import numpy as np
import polars as pl

from sketchbandits.features import Categorical, Embedding, Features, Hashed, Numeric

ROWS, REPEATS, CALLS = 20_000, 3, 5_000
COLUMNS = {
    "number": Numeric("number", mean=3.0, deviation=2.0),
    "logarithm": Numeric("logarithm", missing=True, log=True),
    "category": Categorical("category", [f"value {i}" for i in range(20)]),
    "value": Hashed("value"),
    "text": Hashed("text", size=64, words=True),
    "vector": Embedding.random("vector", 384, 16),
}
SCHEMAS = {
    "5 scalar columns": ["number", "logarithm", "category"],
    "10 words hashed": ["text"],
    "vector of 384 numbers": ["vector"],
    "all of these": list(COLUMNS),
}


def table(rng):
    words = rng.choice([f"word{i}" for i in range(1_000)], size=(ROWS, 10))
    return {
        "number": rng.normal(size=ROWS).tolist(),
        "logarithm": rng.lognormal(size=ROWS).tolist(),
        "category": [f"value {i}" for i in rng.integers(25, size=ROWS)],
        "value": [f"value {i}" for i in rng.integers(5_000, size=ROWS)],
        "text": [" ".join(row) for row in words],
        "vector": list(rng.normal(size=(ROWS, 384))),
    }


def seconds(action, calls):
    """The shortest mean time of a call over several runs."""
    action()  # compiles
    best = np.inf
    for _ in range(REPEATS):
        start = time.perf_counter()
        for _ in range(calls):
            action()
        best = min(best, (time.perf_counter() - start) / calls)
    return best


def measured(features, values):
    """Microseconds of `vector`, and thousands of rows per second of a polars frame and of a list of dicts."""
    columns = {column.name: values[column.name] for column in features.columns}
    records = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    frame, some = pl.DataFrame(columns), cycle(records)
    yield seconds(lambda: features.vector(next(some)), CALLS) * 1e6
    for rows in (frame, records):
        yield ROWS / seconds(lambda rows=rows: features.transform(rows), 1) / 1e3


def main() -> None:
    values = table(np.random.default_rng(0))
    values |= {"a": values["number"], "b": values["logarithm"]}
    print("| columns | outputs | vector, µs | transform of polars, thousand rows per second | of dicts |")
    print("|---|---|---|---|---|")
    for label, names in SCHEMAS.items():
        more = [Numeric("a"), Numeric("b")] if label.startswith("5") else []
        features = Features([*more, *(COLUMNS[name] for name in names)])
        one, frame, records = measured(features, values)
        print(f"| {label} | {features.dim} | {one:.1f} | {frame:,.0f} | {records:,.0f} |", flush=True)


if __name__ == "__main__":
    main()
