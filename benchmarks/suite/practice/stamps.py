"""What a run depends on: a digest of the files behind a policy and its world, and the commit they come from."""

import functools
import hashlib
import subprocess
from collections.abc import Iterable
from pathlib import Path

from sketchbandits.lab.experiments.sources import PACKAGE
from suite.practice.contenders import CONTENDERS
from suite.practice.game import PEERS

SUITE = Path(__file__).parents[1]
_PLAYING = ("user_rounds.py", "environments/**/*.py")  # in src/sketchbandits: who asks and what is paid
_DRAWING = ("worlds.py", "practice/game.py")  # in benchmarks/suite
_PEERS = ("practice/peers.py", "practice/drivers/rounds_protocol.py")


@functools.cache
def digest(policy: str, films: str | None) -> str:
    """Of the policy's files, those that draw and play its world, and the films."""
    library, benchmark = [*_PLAYING], [*_DRAWING]
    if policy in PEERS:
        benchmark += [*_PEERS, str(PEERS[policy].driver.relative_to(SUITE))]
    else:
        library += CONTENDERS[policy].library
        benchmark += CONTENDERS[policy].benchmark
    hashed = hashlib.sha256(_bytes(PACKAGE, library) + _bytes(SUITE, benchmark))
    if films is not None:
        hashed.update(_bytes(Path(films), ("*.inter", "*.item", "*.user", "u.*")))
    return hashed.hexdigest()[:16]


def _bytes(folder: Path, globs: Iterable[str]) -> bytes:
    found = sorted({path for pattern in globs for path in folder.glob(pattern)})
    return b"".join(hashlib.sha256(path.read_bytes()).digest() for path in found)


@functools.cache
def commit() -> str:
    """The commit that is checked out, with "+" where tracked files differ from it; "unknown" without Git."""
    try:
        head = _git("rev-parse", "--short=12", "HEAD")
        return head + "+" * bool(_git("status", "--porcelain", "--untracked-files=no", "src", "benchmarks"))
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(SUITE.parents[1]), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
