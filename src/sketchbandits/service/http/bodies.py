"""JSON bodies: which kind a body is meant to be, and what is wrong with it in words."""

import contextlib
import functools
import json
import operator
import reprlib
from typing import Annotated, Any, NoReturn

from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from sketchbandits.service.bandits.requests import Refusal
from sketchbandits.service.http.responses import HttpRefusal
from sketchbandits.service.http.schemas import FIELDS

_SMALL = 4_096  # bytes of a body
_SHOWN = 80  # characters of a value that is refused
_short = reprlib.Repr()
_short.maxstring = _short.maxother = _short.maxlong = _SHOWN


class BodyType:
    """The kinds of body that an endpoint takes; where there are several, each has required fields of its own."""

    def __init__(self, kinds: tuple[type[BaseModel], ...]) -> None:
        self.kinds = kinds
        union = functools.reduce(operator.or_, kinds)
        first_that_fits: Any = Annotated[union, Field(union_mode="left_to_right")] if len(kinds) > 1 else union
        self._adapter: TypeAdapter[Any] = TypeAdapter(first_that_fits)
        shared = set.intersection(*(set(kind.model_fields) for kind in kinds)) if len(kinds) > 1 else set[str]()
        self._own = {kind: set(kind.model_fields) - shared for kind in kinds}

    def parse(self, body: bytes) -> Any:
        """The body as the first kind that fits, or a refusal in words."""
        if len(body) > _SMALL:
            with contextlib.suppress(ValueError, RecursionError):  # pydantic says what is wrong
                json.loads(body, object_pairs_hook=_few_fields)
        try:
            return self._adapter.validate_json(body)
        except ValidationError as error:
            first = _first(error)
            if first["type"] == "json_invalid":
                raise HttpRefusal(400, "bad_json", sentence(first)) from None
        self._refuse(body, first)

    def _refuse(self, body: bytes, first: Any) -> NoReturn:
        """Say what is wrong with the kind that the body is meant to be, as its fields show."""
        value = json.loads(body)
        if len(self.kinds) == 1 or not isinstance(value, dict):
            raise HttpRefusal(422, "bad_value", sentence(first))
        meant = [kind for kind in self.kinds if self._own[kind] & value.keys()]
        if len(meant) == 1:
            try:
                meant[0].model_validate_json(body)
            except ValidationError as error:
                raise HttpRefusal(422, "bad_value", sentence(_first(error))) from None
        given = ", ".join(_short.repr(name) for name in list(value)[:5]) or "none of them"
        raise HttpRefusal(422, "bad_value", f"the body must have {self._forms()}, and not both; got {given}")

    def _forms(self) -> str:
        """The required fields of each kind."""
        required = (
            [name for name, field in kind.model_fields.items() if field.is_required() and name in self._own[kind]]
            for kind in self.kinds
        )
        return ", or ".join(" and ".join(names) for names in required)


def _first(error: ValidationError) -> Any:
    return error.errors(include_url=False, include_context=False)[0]


def _few_fields(pairs: list[tuple[str, Any]]) -> None:
    """Refuse immediately what would otherwise be refused field by field, in seconds."""
    if len(pairs) > FIELDS:
        raise Refusal("bad_value", f"the body must have at most {FIELDS} fields in an object, got {len(pairs)}")


def sentence(entry: Any) -> str:
    """Where it is, what is allowed, what was given."""
    place = ".".join(str(part) for part in entry["loc"] if not str(part)[:1].isupper()) or "the body"
    given = _short.repr(entry["input"])  # a large value is never written out as a whole
    shown = given if len(given) <= _SHOWN else f"{given[: _SHOWN - 3]}..."
    wrong = entry["msg"].removeprefix("Value error, ")
    return f"{place}: {wrong[:1].lower()}{wrong[1:]}, got {shown}"
