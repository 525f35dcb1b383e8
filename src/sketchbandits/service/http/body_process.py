"""A large body, parsed and checked in a process of its own: ``python -m sketchbandits.service.http.body_process``.

It takes the name of a model, a line break and the body, and answers with one line of JSON: a refusal in the words of
`bodies`, or the body's fields without its arms and the shape of their matrix. The latter is followed by the ids, `IDS`
of them per line of JSON, and by the features, float64. `large_bodies` is the other side.
"""

import json
from collections.abc import Iterator

import numpy as np

from sketchbandits.service.bandits.requests import Refusal
from sketchbandits.service.children import Data, serve_parent
from sketchbandits.service.http.bodies import BodyType
from sketchbandits.service.http.large_bodies import IDS, MODELS
from sketchbandits.service.http.responses import HttpRefusal
from sketchbandits.service.http.tables import table_of

try:
    import resource
except ImportError:  # not on Windows, where the limit of time must do
    resource = None  # type: ignore[assignment]

MEMORY = 6 << 30  # bytes of address space; 64 MiB of one-digit numbers take 4 GiB


def limit_memory() -> None:
    """Let the process fail where it would take more memory than a body may."""
    if resource is not None:
        hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        least = MEMORY if hard == resource.RLIM_INFINITY else min(MEMORY, hard)
        resource.setrlimit(resource.RLIMIT_AS, (least, hard))


def answer(request: bytearray) -> Iterator[Data]:
    """The parts of the answer to a request."""
    try:
        end = request.index(b"\n")
        model = MODELS[request[:end].decode()]
        del request[: end + 1]
        body = BodyType((model,)).parse(bytes(request))
        request.clear()
        ids, features = table_of(body.arms)
    except Refusal as refusal:
        status = refusal.status if isinstance(refusal, HttpRefusal) else None
        yield _line({"status": status, "code": refusal.code, "message": refusal.message})
        return
    except MemoryError:
        yield _line({"status": 413, "code": "too_large", "message": f"the body must fit into {MEMORY >> 30} GiB"})
        return
    yield _line({"body": body.model_dump(exclude={"arms"}), "shape": features.shape})
    for start in range(0, len(ids), IDS):
        yield _line(ids[start : start + IDS])
    yield np.ascontiguousarray(features, "<f8").data


def _line(value: object) -> bytes:
    return json.dumps(value).encode() + b"\n"


if __name__ == "__main__":
    limit_memory()
    serve_parent(answer)
