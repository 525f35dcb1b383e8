"""A large policy, built in a process of its own: ``python -m sketchbandits.service.bandits.policy_process``.

Building one of tens of thousands of arms is seconds of Python between calls of compiled code, which would share the
interpreter's lock with the event loop. The child saves the policy in a file, as `Policy.save` writes it; loading that
takes a twentieth of the time and arrives at the same bits. `build_elsewhere` is the parent's side.
"""

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np

from sketchbandits.kernels.linalg import Floats
from sketchbandits.policies.base import Policy
from sketchbandits.service.bandits.config import BanditConfig
from sketchbandits.service.children import Children, Data, serve_parent

LARGE = 100_000  # features from which a process is worth its start
MOST, SECONDS = 1, 600.0  # children at a time, and how long each may take


def builders() -> Children:
    """The children that build policies."""
    return Children("sketchbandits.service.bandits.policy_process", most=MOST, seconds=SECONDS)


async def build_elsewhere(children: Children, config: BanditConfig, features: Floats) -> Policy:
    """The policy of a configuration on these arms; raises what building it here would raise."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "policy.npz"
        # Every option: what a record leaves out, the child would take for that of an earlier version.
        head = {"config": config.filled().to_json(), "shape": features.shape, "path": str(path)}
        arms = np.ascontiguousarray(features, "<f8").data.cast("B")

        def read(stream: BinaryIO) -> Policy:
            refusal = json.loads(stream.readline())
            if refusal is not None:
                raise _Refused(refusal)
            return config.policy_type.load(path)

        try:
            return await children.ask([json.dumps(head).encode() + b"\n", arms], read)
        except _Refused as refusal:
            raise ValueError(str(refusal)) from None


class _Refused(Exception):
    """The child could not build the policy; the message says why."""


def answer(request: bytearray) -> Iterator[Data]:
    """One line: null once the policy is in its file, or the words of a refusal."""
    end = request.index(b"\n")
    head = json.loads(request[:end])
    features = np.frombuffer(request, "<f8", offset=end + 1).reshape(head["shape"]).astype(np.float64)
    try:
        BanditConfig.from_json(head["config"]).build(features).save(head["path"])
    except (ValueError, MemoryError) as error:
        yield json.dumps(str(error) or "arms and policy must fit into memory").encode() + b"\n"
        return
    yield b"null\n"


if __name__ == "__main__":
    serve_parent(answer)
