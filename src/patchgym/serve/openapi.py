"""The OpenAPI 3.1 document, from the table of operations and the records."""

from collections.abc import Mapping
from importlib.metadata import version
from typing import Literal

from pydantic import JsonValue
from pydantic.json_schema import models_json_schema

from patchgym.records import Record
from patchgym.serve.operations import ALWAYS, OPERATIONS, Operation
from patchgym.serve.problems import KINDS, Problem

_REF = "#/components/schemas/{model}"
_RETRY: dict[str, JsonValue] = {
    "Retry-After": {"description": "Whole seconds to wait.", "schema": {"type": "integer"}, "required": False}
}


def openapi(*, tokens: bool) -> dict[str, JsonValue]:
    """The document; with ``tokens``, one is needed."""
    paths: dict[str, dict[str, JsonValue]] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation, tokens=tokens)
    components: dict[str, JsonValue] = {"schemas": _schemas()}
    if tokens:
        components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "patchgym serve",
            "version": version("patchgym"),
            "description": "Tasks, sandboxes and grading of coding agents.",
        },
        "paths": {path: dict(methods) for path, methods in paths.items()},
        "components": components,
    }


def refusals_of(operation: Operation, *, tokens: bool) -> list[str]:
    """The kinds of refusal that an operation can meet, by status."""
    always = ALWAYS if operation.name != "health" else ("other_origin", "wrong_host", "too_many", "closing")
    kinds = {*operation.refusals, *always, *(("unauthorized",) if tokens and not operation.open else ())}
    return sorted(kinds, key=lambda kind: (KINDS[kind].status, kind))


def _operation(operation: Operation, *, tokens: bool) -> dict[str, JsonValue]:
    made: dict[str, JsonValue] = {
        "operationId": operation.name,
        "summary": operation.told,
        "parameters": [
            {
                "name": parameter.name,
                "in": parameter.place,
                "required": parameter.place == "path",
                "description": parameter.told,
                "schema": {"type": parameter.kind},
            }
            for parameter in operation.parameters
        ],
        "responses": _responses(operation, tokens=tokens),
    }
    if operation.asks is not None:
        made["requestBody"] = {"required": True, "content": _content(operation.asks, "application/json")}
    if tokens:
        made["security"] = [] if operation.open else [{"token": []}]
    return made


def _responses(operation: Operation, *, tokens: bool) -> dict[str, JsonValue]:
    done: dict[str, JsonValue] = {
        "description": (operation.answers.__doc__ or "").split("\n\n")[0],
        "content": _content(operation.answers, "application/json"),
    }
    found: dict[str, list[str]] = {}
    for kind in refusals_of(operation, tokens=tokens):
        found.setdefault(str(KINDS[kind].status), []).append(f"{kind}: {KINDS[kind].title}.")
    refused: dict[str, JsonValue] = {
        status: {
            "description": " ".join(told),
            "content": _content(Problem, "application/problem+json"),
            **({"headers": _RETRY} if status in ("409", "429", "503") else {}),
        }
        for status, told in found.items()
    }
    return {str(operation.status): done, **refused}


def _content(model: type[Record], media_type: str) -> dict[str, JsonValue]:
    return {media_type: {"schema": {"$ref": _REF.format(model=model.__name__)}}}


def _schemas() -> dict[str, JsonValue]:
    asked = [operation.asks for operation in OPERATIONS if operation.asks is not None]
    answered = [operation.answers for operation in OPERATIONS]
    modes: Mapping[type[Record], Literal["validation", "serialization"]] = {
        **dict.fromkeys(asked, "validation"),
        **dict.fromkeys([*answered, Problem], "serialization"),
    }
    _, document = models_json_schema(list(modes.items()), ref_template=_REF)
    schemas: dict[str, JsonValue] = document["$defs"]
    return schemas
