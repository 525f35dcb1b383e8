"""An independent check of a service's log: reads the SQLite file itself and recomputes everything with slow twins.

    python benchmarks/service/checker.py STATE_OR_DB [--choices 2000]

Nothing of the service is imported, and policies only to load snapshots. It checks

- the chain of checksums and the numbering;
- that every decision is of arms that existed, were active and available, with the right probability, and explored as
  the seed demands;
- that every reward is of a decision of its bandit, for the arm decided, within its range, and the only one; that one
  which was taken back was there;
- that no number is used twice, and no idempotency key of an API key;
- that defaults came after the deadline and with its value;
- every logged bound, and as many choices as asked for, against the slow twins in `twins.py`;
- snapshots, where there are any, against the log.

It prints the first inconsistency, if there is one, and then exits with code 1.

A bandit plans the requests of a group at one time of the clock: its consecutive decisions and rewards with the same
time are a group, and its decisions know nothing of its rewards. What is not compared (after arms were freed of a policy
whose twin cannot follow that, or after a late retraction) is said in the summary.
"""

import argparse
import contextlib
import itertools
import json
import math
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
RETRACTED, BANDIT_DELETED, ARMS_FREED, KEYS_REQUIRED = range(7, 11)
KINDS = {1: range(1, 7), 2: range(1, 11)}  # by format
APPLICATION = 0x5342_4C47


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
        known = found[0] == APPLICATION and found[1] in KINDS
        require(known, f"the file is not a log of format {' or '.join(map(str, KINDS))}: {found}")
        chain, last = 0, 0
        for row in database.execute("SELECT seq, kind, decision, body, chain FROM events ORDER BY seq"):
            seq, kind, decision, body, claimed = row
            require(seq == last + 1, f"record {last + 1} is missing")
            typed = type(kind) is int and type(decision) in (int, type(None)) and type(body) is bytes
            require(typed, f"record {seq} is not of the types that a record has")
            head = struct.pack("<qqq", seq, kind, -1 if decision is None else decision)
            chain, last = zlib.crc32(body, zlib.crc32(head, chain)), seq
            require(chain == claimed, f"record {seq} does not fit the chain")
            require(kind in KINDS[found[1]], f"record {seq} is of no kind that there is: {kind}")
            require((decision is not None) == (kind in (REWARD, DEFAULT)), f"record {seq}: a decision is named or not")
            text, _, raw = body.partition(b"\n")
            yield Entry(seq, kind, decision, json.loads(text), raw)


def grouped(stream):
    """Runs of requests of one bandit that were planned together; anything else alone."""

    def mark(entry):
        together = entry.kind in (DECISION, REWARD)
        return (entry.data.get("bandit"), entry.data["t"]) if together else (entry.seq, None)

    for _, group in itertools.groupby(stream, mark):
        yield list(group)


class Checker:
    """The accounts of all bandits, kept from the log alone."""

    def __init__(self, every=1):
        self.accounts: dict[str, Account] = {}
        self.deleted: list[tuple[str, Account]] = []
        self.numbers, self.every = set(), every
        self.records = self.groups = self.snapshots = 0
        self.keys_required = False

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
        data, name = entry.data, entry.data.get("bandit")
        if entry.kind == KEYS_REQUIRED:
            require(not self.keys_required, "keys are required already")
            self.keys_required = True
        elif entry.kind == BANDIT:
            require(name not in self.accounts, f"bandit {name!r} is created a second time")
            self.accounts[name] = Account(data, _features(entry), self.every)
        elif entry.kind == ARMS_ADDED:
            self._account(entry).add(data["ids"], _features(entry))
        elif entry.kind == BANDIT_DELETED:
            self.deleted.append((name, self._account(entry)))
            del self.accounts[name]
        elif entry.kind == RETRACTED:
            self._account(entry).retract(data)
        else:
            change = {ARMS_REMOVED: Account.remove, ARMS_FREED: Account.free}[entry.kind]
            change(self._account(entry), data["arms"])

    def _account(self, entry):
        name = entry.data["bandit"]
        require(name in self.accounts, f"there is no bandit {name!r}")
        return self.accounts[name]

    def _requests(self, group):
        with named(group[0]):
            account = self._account(group[0])
        before = account.pending()
        for entry in group:
            with named(entry):
                if entry.kind == DECISION:
                    self._number(entry.data["n"], len(entry.data["arms"]))
                    account.decide(entry.data, entry.seq)
                else:
                    account.outcome(entry.decision, entry.data, default=entry.kind == DEFAULT)
        account.check_choices([entry for entry in group if entry.kind == DECISION], before)
        for entry in group:
            if entry.kind != DECISION:
                account.record(entry.data["arm"], entry.data["reward"])

    def _number(self, first, count):
        """Numbers may be left out, and bandits take them at the same time; none is used twice."""
        own = set(range(first, first + count))
        require(first >= 1 and not own & self.numbers, f"its numbers must be new, got {first} to {first + count - 1}")
        self.numbers |= own


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
        for folder, name in waiting.pop(checker.records, ()):
            compare(checker.accounts[name], name, folder)
            checker.snapshots += 1
        if checker.groups % 1_000 == 0:
            progress(checker.records, total)
    require(not waiting, f"a snapshot is of no commit that the log has: {sorted(waiting)}")
    return checker


def snapshots(folder):
    """Each bandit of each snapshot, by the record up to which it was copied."""
    found = {}
    for path in folder.glob("*/*.json"):
        if path.parent.name.isdecimal() and not path.name.startswith("."):
            since = json.loads(path.read_text()).get("since", int(path.parent.name))  # version 0.1.0: all at once
            found.setdefault(since, []).append((path.parent, path.stem))
    return found


def compare(account, name, folder):
    """Counts and sums of a snapshot are exactly those of the log."""
    kept = json.loads((folder / f"{name}.json").read_text())
    policy = POLICIES[kept["config"]["policy"]].policy.load(folder / f"{name}.npz")
    for what, found, expected in (_parts if isinstance(kept["totals"], dict) else _old_parts)(account, kept, policy):
        require(found == expected, f"snapshot {folder.name}, bandit {name!r}: {what} are not those of the log")


def _parts(account, kept, policy):
    """What must be equal: its name, as the snapshot has it, as the log has it."""
    totals = kept["totals"]
    *numbers, reward_sum = totals["numbers"]
    yield "totals", numbers, [account.decisions, account.rewards, account.defaults, len(account.retracted)]
    among = math.fsum(abs(outcome.reward) for outcome in account.recorded.values())
    yield "totals", account.close(reward_sum, account.reward_sum, among), True
    for shown, expected in zip(totals["sums"], account.sums.tolist(), strict=True):
        yield "reward sums", account.close(shown, expected, among), True
    yield "outstanding decisions", kept["waiting"], [[n, *rest] for n, rest in account.waiting.items()]
    yield "arms", kept["ids"], account.ids
    yield "retractions", kept["retracted"], sorted(account.retracted)
    keys = [[by, key, record] for by, own in account.keys.items() for key, record in own.items()]
    yield "keys", sorted(kept["keys"]), sorted(keys)
    yield "counts", totals["counts"], account.counts.tolist()
    places = range(len(account.ids)) if kept["arm_at"] is None else kept["arm_at"]
    own = [(arm, count) for arm, count in zip(places, policy.counts.tolist(), strict=True) if arm >= 0]
    yield "the policy's arms", {arm for arm, _ in own}, set(range(len(account.ids))) - account.freed
    yield "the policy's counts", [count for _, count in own], [int(account.counts[arm]) for arm, _ in own]


def _old_parts(account, kept, policy):
    """The same of a snapshot of version 0.1.0."""
    yield "totals", kept["totals"], [account.decisions, account.rewards, account.defaults, account.reward_sum]
    yield "reward sums", kept["reward_sums"], account.sums.tolist()
    yield "outstanding decisions", kept["waiting"], [[n, *rest] for n, rest in account.waiting.items()]
    yield "arms", kept["ids"], account.ids
    yield "counts", policy.counts.tolist(), account.counts.tolist()


def summary(checker):
    """What was checked, in lines."""
    yield f"{checker.records:,} records in {checker.groups:,} groups: chain, numbering and every outcome fit"
    yield f"{checker.snapshots} bandits in snapshots are those of the log; {len(checker.deleted)} bandits were deleted"
    for name, a in checker.accounts.items():
        yield (
            f"{name} ({a.config['policy']}, {a.active.sum()} of {len(a.ids)} arms, {len(a.freed)} freed): "
            f"{a.decisions:,} decisions, {a.rewards:,} outcomes, {a.defaults:,} of them defaults, "
            f"{len(a.retracted)} retracted, {len(a.waiting):,} outstanding"
        )
        yield from (f"  {remark}" for remark in a.remarks)
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
