"""How a peer plays rounds in a process of its own: messages of arrays on its standard input and output.

    python NAME_driver.py VARIANT

The first message describes the game (`Setup`); the answer has the peer's version. Each further message has some rounds:
contexts, what every arm would pay, and which arms are offered. The driver hands its player one round at a time, and of
the rewards only the chosen arm's. The answer has the arms that were chosen and the seconds spent in the player.
A message is its length in eight bytes, and an ``.npz`` of that length.
"""

import argparse
import io
import os
import sys
import time
from collections.abc import Callable, Mapping
from importlib.metadata import version
from typing import Any, BinaryIO, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


class Setup(NamedTuple):
    """The arms' features, the length of a context, what is known of rewards (deviation, range), and a seed."""

    arms: Floats
    context_dim: int
    noise: float
    lowest: float
    highest: float
    seed: int


class Player(Protocol):
    """A library at play. ``prepare(arm, reward)``, where it has one, is called off the clock before each update."""

    def select(self, context: Floats, offered: NDArray[np.int64]) -> int:
        """One of the offered arms."""

    def update(self, context: Floats, arm: int, reward: float) -> None:
        """Learn from this round."""


def send(stream: BinaryIO, **arrays: Any) -> None:
    """Write one message."""
    packed = io.BytesIO()
    np.savez(packed, **arrays)
    stream.write(packed.getbuffer().nbytes.to_bytes(8, "little"))
    stream.write(packed.getbuffer())
    stream.flush()


def receive(stream: BinaryIO) -> dict[str, Any] | None:
    """Read one message; None when the other side has closed."""
    header = stream.read(8)
    size = int.from_bytes(header, "little")
    packed = stream.read(size)
    if len(header) < 8 or len(packed) < size:
        return None
    with np.load(io.BytesIO(packed)) as arrays:
        return dict(arrays)


def play(player: Player, contexts: Floats, rewards: Floats, available: NDArray[np.bool_]) -> dict[str, Any]:
    """Some rounds: what was chosen, and the seconds that choices and updates took. ``available`` may have one row."""
    prepare: Callable[[int, float], None] = getattr(player, "prepare", lambda arm, reward: None)
    clock, chosen, seconds = time.perf_counter, np.empty(len(contexts), np.int64), 0.0
    everything = np.flatnonzero(available[0]) if len(available) == 1 else None
    for t, context in enumerate(contexts):
        offered = np.flatnonzero(available[t]) if everything is None else everything
        started = clock()
        arm = int(player.select(context, offered))
        seconds += clock() - started
        reward = float(rewards[t, arm])
        prepare(arm, reward)
        started = clock()
        player.update(context, arm, reward)
        seconds += clock() - started
        chosen[t] = arm
    return {"chosen": chosen, "seconds": seconds}


def main(package: str, variants: Mapping[str, Callable[[Setup], Player]]) -> None:
    """A driver's command line."""
    parser = argparse.ArgumentParser(description=f"Rounds of {package}.")
    parser.add_argument("variant", choices=list(variants))
    options = parser.parse_args()
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever a library prints goes to the log
    described = receive(sys.stdin.buffer)
    if described is None:
        return
    scalars = {name: described[name].item() for name in Setup._fields[1:]}
    player = variants[options.variant](Setup(described["arms"], **scalars))
    send(answers, version=version(package))
    while (rounds := receive(sys.stdin.buffer)) is not None:
        send(answers, **play(player, rounds["contexts"], rounds["rewards"], rounds["available"]))
