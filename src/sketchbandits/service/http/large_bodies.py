"""Large bodies with arms are parsed and checked by a child process (`body_process`), of which two run at a time.

Parsing 60 MB of JSON holds the interpreter's lock for seconds. What comes back are the body's own fields and a `Table`,
which this process only copies: nothing is checked twice, and the event loop goes on.
"""

import json
from typing import Any, BinaryIO

import numpy as np
from pydantic import BaseModel

from sketchbandits.service.bandits.requests import Refusal
from sketchbandits.service.children import ChildFailed, Children, read_exactly
from sketchbandits.service.http import schemas
from sketchbandits.service.http.responses import HttpRefusal
from sketchbandits.service.http.tables import Table

LARGE = 1 << 20  # bytes of a body from which a process is worth its start
MOST, SECONDS = 2, 60.0  # children at a time, and how long each may take
IDS = 1_000  # per line: reading them all in one call would hold the interpreter's lock
# What a child may be asked to check; it gets a name, never a path to import.
MODELS: dict[str, type[BaseModel]] = {"arms": schemas.ArmsRequest, "bandit": schemas.BanditRequest}
_NAMES = {model: name for name, model in MODELS.items()}


class LargeBodies:
    """Parses bodies in child processes until `stop`."""

    def __init__(self, *, seconds: float = SECONDS) -> None:
        self._children = Children("sketchbandits.service.http.body_process", most=MOST, seconds=seconds)

    @staticmethod
    def takes(models: tuple[type[BaseModel], ...], body: bytes) -> bool:
        """Whether a body is parsed here: a large one of a model with arms."""
        return len(body) > LARGE and len(models) == 1 and models[0] in _NAMES

    async def parse(self, model: type[BaseModel], body: bytes) -> Any:
        """The checked body, its arms a `Table`; refused in the words that parsing in this process would use."""
        name = _NAMES[model]
        try:
            found = await self._children.ask([name.encode() + b"\n", body], lambda stream: _read(model, stream))
        except ChildFailed as error:
            if self._children.stopped:
                raise Refusal("stopping", "the service is stopping: ask again shortly") from None
            message = f"the body could not be read ({error}): send fewer arms at a time, or ask again later"
            raise Refusal("busy", message) from None
        if isinstance(found, Refusal):
            raise found
        return found

    def stop(self) -> None:
        """End the children; their requests, and those that come later, are refused."""
        self._children.stop()


def _read(model: type[BaseModel], stream: BinaryIO) -> BaseModel | Refusal:
    """What a child has sent: bytes of our own program, of which only the lengths are checked."""
    head = json.loads(stream.readline())
    if "code" in head:
        if head["status"] is None:
            return Refusal(head["code"], head["message"])
        return HttpRefusal(head["status"], head["code"], head["message"])
    n, dim = head["shape"]
    ids: list[str] = []
    while len(ids) < n:
        ids += json.loads(stream.readline())
    features = np.empty((n, dim), "<f8")
    read_exactly(stream, features.data)
    return model.model_construct(**head["body"], arms=Table(tuple(ids), features))
