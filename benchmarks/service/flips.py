"""One bit of a service's files flipped, hundreds of times: nothing damaged may be used without a word.

    python benchmarks/service/flips.py [--flips 300] [--seed 0] [--only KIND] [--keep DIR]

A state folder is written as a killed service leaves it: two bandits, some thousand records, most in the log's file and
some in the write-ahead log, snapshots, API keys. Each flip is made on a fresh copy. Then the service starts in this
process, verifies its whole log, is sent every reward and every idempotency key again, decides and learns, stops, and
starts once more. What became of a flip:

- *harmless*: everything is as it was;
- *told*: so is what is left, and a note, a fault of the scrub or a refusal ``damaged`` says what is not;
- *refused*: the service does not start, and a sentence says why;
- *SILENT*: a state or an answer is another, or an acknowledged record is gone, without a word;
- *CRASH LOOP*: the service ends after a request, does not start with anything but a sentence, or the second start is
  worse than the first.

The exit code is 1 where anything is silent or loops.
"""

import argparse
import asyncio
import bisect
import collections
import itertools
import logging
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

from flip_attempt import attempt
from flip_state import damaged_copy, places, prepared

GOOD, BAD = ("harmless", "told", "refused"), ("SILENT", "CRASH LOOP")
SHARES = {  # of all flips, by kind of file
    "log": 28, "index": 16, "write-ahead log": 16, "snapshots": 14, "manifests": 12, "keys": 9, "clock": 5
}  # fmt: skip


def chosen(state, count, seed, kinds):
    """So many places to flip, by kind; every kind has its share, and every byte of a kind the same chance."""
    rng, found = random.Random(seed), places(state)
    ends = list(itertools.accumulate(SHARES[kind] for kind in kinds))
    for k in range(count):
        kind = kinds[bisect.bisect(ends, (k + 0.5) / count * ends[-1])]
        path, start, size = rng.choices(found[kind], [size for *_, size in found[kind]])[0]
        yield kind, path, start + rng.randrange(size), rng.randrange(8)


def show(counts, seconds):
    """A line for each kind of file."""
    print(f"{'file':16}" + "".join(f"{verdict:>12}" for verdict in (*GOOD, *BAD)))
    for kind in SHARES:
        print(f"{kind:16}" + "".join(f"{counts[kind, verdict]:12}" for verdict in (*GOOD, *BAD)))
    total = [sum(counts[kind, verdict] for kind in SHARES) for verdict in (*GOOD, *BAD)]
    print(f"{'all':16}" + "".join(f"{count:12}" for count in total) + f"   {seconds:.0f} s", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--flips", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=SHARES, action="append", metavar="KIND", help=f"of {', '.join(SHARES)}")
    parser.add_argument(
        "--keep", type=Path, metavar="DIR", help="a new folder for the copies that something bad befell"
    )
    options = parser.parse_args()
    logging.getLogger("sketchbandits.service").propagate = False
    counts, bad, started = collections.Counter(), [], time.monotonic()
    with tempfile.TemporaryDirectory(dir=_memory()) as text:
        folder = Path(text)
        truth = asyncio.run(prepared(folder / "state"))
        untouched = damaged_copy(truth.state, folder / "copy", None)
        if (control := attempt(untouched, truth)).kind != "harmless":
            sys.exit(f"without any flip: {control}")
        for k, (kind, path, byte, bit) in enumerate(
            chosen(truth.state, options.flips, options.seed, options.only or list(SHARES))
        ):
            verdict = attempt(damaged_copy(truth.state, folder / "copy", (path, byte, bit)), truth)
            counts[kind, verdict.kind] += 1
            if verdict.kind in BAD:
                bad.append(f"{kind}: bit {bit} of byte {byte} of {path}: {verdict.kind}: {verdict.why}")
                print(f"\r{bad[-1][:600]}", flush=True)
                if options.keep:
                    damaged_copy(truth.state, options.keep / str(k), (path, byte, bit))
            if sys.stderr.isatty():
                print(f"\r{k + 1} of {options.flips}", end="", file=sys.stderr, flush=True)
        shutil.rmtree(folder / "copy", ignore_errors=True)
    print(f"\r{truth.last} records, {len(truth.outcomes)} rewards, {len(truth.keyed)} idempotency keys")
    show(counts, time.monotonic() - started)
    sys.exit(1 if bad else 0)


def _memory():
    """A folder in memory, where there is one."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


if __name__ == "__main__":
    main()
