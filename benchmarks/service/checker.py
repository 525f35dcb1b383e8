"""An independent check of a service's log: reads the SQLite file itself and recomputes everything with slow twins.

    python benchmarks/service/checker.py STATE_OR_DB [--choices 2000]

Nothing of the service is imported, and policies only to load snapshots. It checks

- the chain of checksums and the numbering;
- that every decision is of arms that existed, were active and available, with the right probability, and explored as
  the seed demands;
- that every reward is of a decision of its bandit, for the arm decided, and the only one;
- that defaults came after the deadline and with its value;
- every logged bound, and as many choices as asked for, against the slow twins in `twins.py`;
- snapshots, where there are any, against the log.

It prints the first inconsistency, if there is one, and then exits with code 1.

A group of requests is committed together and planned at one time of the clock: consecutive decisions and rewards with
the same time are a group, and its decisions know nothing of its rewards.
"""

import argparse
import contextlib
import itertools
import json
import sqlite3
import struct
import sys
import zlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from accounts import Account, Inconsistent, require

from sketchbandits.policies.registry import POLICIES

BANDIT, ARMS_ADDED, ARMS_REMOVED, DECISION, REWARD, DEFAULT = range(1, 7)
APPLICATION, FORMAT = 0x5342_4C47, 1


class Entry(NamedTuple):
    """A record that fits the chain."""

    seq: int
    kind: int
    decision: int | None
    data: dict[str, Any]
    raw: bytes


def entries(path):
    """The records of a log in order; the first that does not fit is named."""
    with contextlib.closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as database:
        found = [database.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")]
        require(found == [APPLICATION, FORMAT], f"the file is not a log of format {FORMAT}: {found}")
        chain, last = 0, 0
        for row in database.execute("SELECT seq, kind, decision, body, chain FROM events ORDER BY seq"):
            seq, kind, decision, body, claimed = row
            require(seq == last + 1, f"record {last + 1} is missing")
            typed = type(kind) is int and type(decision) in (int, type(None)) and type(body) is bytes
            require(typed, f"record {seq} is not of the types that a record has")
            head = struct.pack("<qqq", seq, kind, -1 if decision is None else decision)
            chain, last = zlib.crc32(body, zlib.crc32(head, chain)), seq
            require(chain == claimed, f"record {seq} does not fit the chain")
            require(kind in range(1, 7), f"record {seq} is of no kind that there is: {kind}")
            require((decision is not None) == (kind in (REWARD, DEFAULT)), f"record {seq}: a decision is named or not")
            text, _, raw = body.partition(b"\n")
            yield Entry(seq, kind, decision, json.loads(text), raw)


def grouped(stream):
    """Runs of requests that were planned together; anything else alone."""

    def mark(entry):
        return (entry.data["t"], True) if entry.kind in (DECISION, REWARD) else (entry.seq, False)

    for _, group in itertools.groupby(stream, mark):
        yield list(group)


class Checker:
    """The accounts of all bandits, kept from the log alone."""

    def __init__(self, every=1):
        self.accounts: dict[str, Account] = {}
        self.next_number, self.every = 1, every
        self.records = self.groups = 0

    def take(self, group):
        """Check a group against everything before it."""
        self.groups += 1
        self.records = group[-1].seq
        if group[0].kind in (DECISION, REWARD, DEFAULT):
            self._requests(group)
            return
        (entry,) = group
        with named(entry):
            self._operation(entry)

    def _operation(self, entry):
        data, name = entry.data, entry.data["bandit"]
        if entry.kind == BANDIT:
            require(name not in self.accounts, f"bandit {name!r} is created a second time")
            self.accounts[name] = Account(data, _features(entry), self.every)
        elif entry.kind == ARMS_ADDED:
            self._account(entry).add(data["ids"], _features(entry))
        else:
            self._account(entry).remove(data["arms"])

    def _account(self, entry):
        name = entry.data["bandit"]
        require(name in self.accounts, f"bandit {name!r} was never created")
        return self.accounts[name]

    def _requests(self, group):
        decided = {}
        for entry in group:
            if entry.kind == DECISION:
                with named(entry):
                    decided.setdefault(self._account(entry), []).append(entry)
        before = {account: account.pending() for account in decided}
        for entry in group:
            with named(entry):
                if entry.kind == DECISION:
                    require(entry.data["n"] == self.next_number, f"its number must be {self.next_number}")
                    self.next_number += len(entry.data["arms"])
                    self._account(entry).decide(entry.data, entry.seq)
                else:
                    self._account(entry).outcome(entry.decision, entry.data, default=entry.kind == DEFAULT)
        for account, own in decided.items():
            account.check_choices(own, before[account])
        for entry in group:
            if entry.kind != DECISION:
                self._account(entry).record(entry.data["arm"], entry.data["reward"])


@contextlib.contextmanager
def named(entry):
    """Say which record is wrong."""
    try:
        yield
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise Inconsistent(f"record {entry.seq}: {type(error).__name__}: {error}") from error
    except Inconsistent as error:
        error.args = (f"record {entry.seq}: {error}",)
        raise


def _features(entry):
    rows, columns = entry.data["shape"]
    features = np.frombuffer(entry.raw, "<f8").reshape(rows, columns)
    require(np.isfinite(features).all(), "features must be finite")
    return features


def check(path, choices=2_000, progress=lambda done, total: None):
    """Check a log, and the snapshots next to it; returns the `Checker` with its accounts, or raises `Inconsistent`."""
    path = Path(path)
    file = path / "events.db" if path.is_dir() else path
    with contextlib.closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as database:
        total, decisions = database.execute("SELECT count(*), sum(kind = 4) FROM events").fetchone()
    checker = Checker(every=max(1, (decisions or 0) // choices))
    waiting = snapshots(file.parent / "snapshots")
    for group in grouped(entries(file)):
        checker.take(group)
        if checker.records in waiting:
            compare(checker, waiting.pop(checker.records))
        if checker.groups % 1_000 == 0:
            progress(checker.records, total)
    require(not waiting, f"a snapshot is of no commit that the log has: {[str(p) for p in waiting.values()]}")
    return checker


def snapshots(folder):
    """Snapshots by the record they are of."""
    return {int(path.name): path for path in folder.glob("*") if path.name.isdecimal()}


def compare(checker, folder):
    """Counts and sums of a snapshot are exactly those of the log."""
    for name, account in checker.accounts.items():
        kept = json.loads((folder / f"{name}.json").read_text())
        counts = POLICIES[kept["config"]["policy"]].policy.load(folder / f"{name}.npz").counts
        found = {
            "totals": kept["totals"],
            "reward sums": kept["reward_sums"],
            "outstanding decisions": kept["waiting"],
            "arms": kept["ids"],
            "counts": counts.tolist(),
        }
        expected = {
            "totals": [account.decisions, account.rewards, account.defaults, account.reward_sum],
            "reward sums": account.sums.tolist(),
            "outstanding decisions": [[n, *rest] for n, rest in account.waiting.items()],
            "arms": account.ids,
            "counts": account.counts.tolist(),
        }
        for what, value in expected.items():
            require(found[what] == value, f"snapshot {folder.name}, bandit {name!r}: {what} are not those of the log")


def summary(checker):
    """What was checked, in lines."""
    yield f"{checker.records:,} records in {checker.groups:,} groups: chain, numbering and every outcome fit"
    for name, a in checker.accounts.items():
        yield (
            f"{name} ({a.config['policy']}, {a.active.sum()} of {len(a.ids)} arms): {a.decisions:,} decisions, "
            f"{a.rewards:,} outcomes, {a.defaults:,} of them defaults, {len(a.waiting):,} outstanding"
        )
        if a.decisions and not a.bounds_compared:
            yield "  no slow twin for this policy and its options: bounds and choices were not compared"
        else:
            yield (
                f"  {a.bounds_compared:,} bounds equal the twin's (largest relative deviation {a.deviation:.0e}), "
                f"{a.choices_compared:,} choices; defaults at most {a.latest_default:.2f} s after the deadline"
            )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("path", type=Path, metavar="STATE_OR_DB")
    parser.add_argument("--choices", type=int, default=2_000, help="of linear policies: choices to recompute")
    options = parser.parse_args()

    def progress(done, total):
        print(f"\r{done:,} of {total:,} records", end="", file=sys.stderr, flush=True)

    try:
        checker = check(options.path, options.choices, progress if sys.stderr.isatty() else lambda done, total: None)
    except (Inconsistent, sqlite3.Error) as error:
        sys.exit(f"\rINCONSISTENT: {error}")
    print("\n".join(summary(checker)))
    print("consistent")


if __name__ == "__main__":
    main()
