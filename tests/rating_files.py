"""Folders of ratings in both formats that `read_movielens` takes, for tests."""

from pathlib import Path

import numpy as np

TITLES = {"2": "Amélie (2001)", "10": "Été, L' (1998)", "9": "Plain (1990)", "77": "Unrated (1999)"}
# Out of order in time; user 5 rates item 10 twice, first in time first in the file, and item 9 twice the other way.
EVENTS = [
    ("5", "10", 4, 300),
    ("5", "2", 3, 100),
    ("12", "9", 1, 250),
    ("5", "10", 2, 400),
    ("12", "2", 5, 50),
    ("5", "9", 5, 350),
    ("5", "9", 3, 200),
    ("7", "31", 4, 100),
]


def write_grouplens(folder: Path, events=EVENTS, titles=TITLES) -> Path:
    (folder / "u.data").write_text("".join("\t".join(map(str, event)) + "\n" for event in events))
    lines = (f"{item}|{title}|01-Jan-1995||http://x|0|1\n" for item, title in titles.items())
    (folder / "u.item").write_bytes("".join(lines).encode("latin-1"))
    return folder


def write_recbole(folder: Path, events=EVENTS, titles=TITLES) -> Path:
    header = "user_id:token\titem_id:token\trating:float\ttimestamp:float\n"
    (folder / "any.inter").write_text(header + "".join("\t".join(map(str, event)) + "\n" for event in events))
    lines = (f"{item}\t{title}\t1995\n" for item, title in titles.items())
    text = "item_id:token\tmovie_title:token_seq\trelease_year:token\n" + "".join(lines)
    (folder / "any.item").write_text(text, encoding="utf-8")
    return folder


def random_events(n_users=23, n_items=13, n=190, seed=0):
    """Distinct pairs, ratings with taste in them, times that repeat and are out of order."""
    rng = np.random.default_rng(seed)
    pairs = rng.choice(n_users * n_items, size=n, replace=False)
    users, items = pairs // n_items, pairs % n_items
    taste = rng.normal(size=(n_users, 2)) @ rng.normal(size=(2, n_items))
    stars = np.clip(np.round(3 + taste[users, items] + rng.normal(scale=0.3, size=n)), 1, 5).astype(int)
    times = rng.integers(0, 100, size=n)
    return list(zip((users + 1).tolist(), (items + 1).tolist(), stars.tolist(), times.tolist(), strict=True))
