"""The OpenAPI 3.1 document, generated from the table of endpoints."""

from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from sketchbandits import __version__
from sketchbandits.service.http.answers import ErrorAnswer
from sketchbandits.service.http.endpoints import ENDPOINTS, Endpoint
from sketchbandits.service.keys import ADMIN

REFUSALS = {
    400: "The body is no JSON, the query has something unknown, or a service without keys is asked through a proxy.",
    401: "No key, a wrong one or a revoked one.",
    403: "The key's role does not suffice, or it is for other bandits.",
    404: "No such bandit, arm or decision.",
    409: "In conflict with what there is.",
    413: "The body is too large.",
    415: "The body is not application/json.",
    422: "A value that is not allowed.",
    429: "More requests per second than the key allows: nothing was done, ask again after Retry-After seconds.",
    503: "Too busy, storage refuses, or not ready: ask again after Retry-After seconds.",
}
_OF_BODIES = (400, 413, 415, 422)


def document() -> dict[str, Any]:
    """The whole document."""
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in ENDPOINTS:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint)
    paths["/metrics"] = {"get": _metrics()}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "sketchbandits",
            "version": __version__,
            "description": "Durable decisions of linear bandits.",
            "license": {"name": "BSD-3-Clause", "identifier": "BSD-3-Clause"},
        },
        "paths": paths,
        "components": {
            "schemas": _schemas(),
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }


def _schemas() -> dict[str, Any]:
    models: set[type[BaseModel]] = {ErrorAnswer}
    for endpoint in ENDPOINTS:
        models |= {*endpoint.bodies, *endpoint.answers.values()}
    ordered = sorted(models, key=lambda model: model.__name__)
    _, made = models_json_schema(
        [(model, "validation") for model in ordered], ref_template="#/components/schemas/{model}"
    )
    schemas: dict[str, Any] = made["$defs"]
    return schemas


def _operation(endpoint: Endpoint) -> dict[str, Any]:
    who = {None: "No key needed.", ADMIN: "For admins."}.get(endpoint.role, "For clients.")
    operation: dict[str, Any] = {
        "operationId": endpoint.name,
        "summary": endpoint.summary,
        "description": who,
        "parameters": _parameters(endpoint.query),
        "responses": _responses(endpoint),
    }
    if endpoint.role is not None:
        operation["security"] = [{"key": []}]
    if endpoint.bodies:
        operation["requestBody"] = {"required": True, "content": _content(*endpoint.bodies)}
    return operation


def _responses(endpoint: Endpoint) -> dict[str, Any]:
    refusals = {503, *endpoint.refusals, *(_OF_BODIES if endpoint.bodies else (400, 422))}
    if endpoint.role is not None:
        refusals |= {401, 403, 429}
    responses = {}
    for status in sorted({*endpoint.answers, *refusals}):
        models = [endpoint.answers[status]] if status in endpoint.answers else []
        models += [ErrorAnswer] if status in refusals else []
        text = REFUSALS.get(status, "Done.")
        responses[str(status)] = {"description": text, "content": _content(*models)}
    return responses


def _content(*models: type[BaseModel]) -> dict[str, Any]:
    references = [{"$ref": f"#/components/schemas/{model.__name__}"} for model in models]
    return {"application/json": {"schema": references[0] if len(references) == 1 else {"anyOf": references}}}


def _parameters(query: type[BaseModel]) -> list[dict[str, Any]]:
    schema = query.model_json_schema()
    required = schema.get("required", [])
    return [
        {"name": name, "in": "query", "required": name in required, "schema": entry}
        for name, entry in schema.get("properties", {}).items()
    ]


def _metrics() -> dict[str, Any]:
    refused = {
        str(status): {"description": REFUSALS[status], "content": _content(ErrorAnswer)}
        for status in (400, 401, 403, 429, 503)
    }
    text = {"text/plain": {"schema": {"type": "string"}}}
    return {
        "operationId": "metrics",
        "summary": "Numbers for Prometheus.",
        "description": "For clients.",
        "security": [{"key": []}],
        "parameters": [],
        "responses": {"200": {"description": "The text format.", "content": text}, **refused},
    }
