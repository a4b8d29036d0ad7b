"""The OpenAPI document is one, and what the server answers is as it says."""

import asyncio
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import httpx2
import jsonschema
import pytest
from pydantic import BaseModel, ConfigDict, Field, JsonValue

from patchgym.serve.openapi import openapi
from patchgym.serve.operations import OPERATIONS
from patchgym.serve.problems import KINDS
from tests.serve.serving import FIX, at_hand


class _Closed(BaseModel):
    model_config = ConfigDict(extra="forbid")


class _Content(_Closed):
    schema_: dict[Literal["$ref"], str] = Field(alias="schema")


class _Header(_Closed):
    description: str
    required: bool
    schema_: dict[Literal["type"], str] = Field(alias="schema")


class _Parameter(_Closed):
    name: str
    place: Literal["path", "query"] = Field(alias="in")
    required: bool
    description: str
    schema_: dict[Literal["type"], Literal["string", "integer"]] = Field(alias="schema")


class _Response(_Closed):
    description: str = Field(min_length=1)
    content: dict[Literal["application/json", "application/problem+json"], _Content]
    headers: dict[str, _Header] = Field(default_factory=dict)


class _Body(_Closed):
    required: Literal[True]
    content: dict[Literal["application/json"], _Content]


class _Operation(_Closed):
    operationId: str
    summary: str
    parameters: list[_Parameter]
    responses: dict[str, _Response] = Field(min_length=1)
    requestBody: _Body | None = None
    security: list[dict[Literal["token"], list[str]]] | None = None


class _Components(_Closed):
    schemas: dict[str, dict[str, JsonValue]]
    securitySchemes: dict[Literal["token"], dict[str, str]] | None = None


class _Document(_Closed):
    """The part of OpenAPI 3.1 (spec.openapis.org/oas/v3.1.0) that is used, and nothing else."""

    openapi: Literal["3.1.0"]
    info: dict[Literal["title", "version", "description"], str]
    paths: dict[str, dict[Literal["get", "post", "delete"], _Operation]]
    components: _Components


@pytest.mark.parametrize("tokens", [False, True])
def test_the_document_is_openapi(tokens: bool) -> None:
    document = _Document.model_validate(openapi(tokens=tokens))
    names = [operation.operationId for methods in document.paths.values() for operation in methods.values()]
    assert sorted(names) == sorted({operation.name for operation in OPERATIONS})
    for schema in document.components.schemas.values():
        jsonschema.Draft202012Validator.check_schema(schema)
    for methods in document.paths.values():
        for operation in methods.values():
            assert all(re.fullmatch("[1-5][0-9][0-9]", status) for status in operation.responses)
            assert (operation.security is None) is not tokens


def test_every_reference_leads_somewhere_and_every_schema_is_used() -> None:
    document = openapi(tokens=True)
    components: Any = document["components"]
    named = set(re.findall(r"'#/components/schemas/(\w+)'", str(document)))
    assert named == set(components["schemas"])


def test_every_parameter_of_an_address_is_told() -> None:
    for operation in OPERATIONS:
        told = {parameter.name for parameter in operation.parameters if parameter.place == "path"}
        assert told == set(re.findall(r"{(\w+)}", operation.path))
        assert set(operation.refusals) <= set(KINDS)


def test_what_is_answered_is_as_the_document_says(tmp_path: Path) -> None:
    async def run() -> None:
        async with at_hand(tmp_path) as place, place.client() as client:
            document: Any = (await client.get("/openapi.json")).json()
            session = (await client.post("/sessions", json={"task": "calc-1"})).json()["session"]
            asked: list[tuple[str, str, Any]] = [
                ("GET", "/healthz", None),
                ("GET", "/tasks", None),
                ("GET", "/tasks/calc-1", None),
                ("GET", "/tasks/none", None),
                ("POST", "/sessions", {"task": "calc-1"}),
                ("POST", "/sessions", {"task": 7}),
                ("GET", f"/sessions/{session}", None),
                ("POST", f"/sessions/{session}/step", {"command": "ls; exit 2"}),
                ("POST", f"/sessions/{session}/step", {"tool": "dance"}),
                ("POST", f"/sessions/{session}/step", FIX),
                ("POST", f"/sessions/{session}/grade", None),
                ("POST", f"/sessions/{session}/step", {"command": "ls"}),
                ("GET", "/stats", None),
                ("DELETE", f"/sessions/{session}", None),
                ("DELETE", f"/sessions/{session}", None),
            ]
            for method, path, body in asked:
                _as_told(document, method, path, await client.request(method, path, json=body))

    asyncio.run(run())


def _as_told(document: Mapping[str, Any], method: str, path: str, answer: httpx2.Response) -> None:
    (place,) = (
        one
        for one in document["paths"]
        if re.fullmatch(re.sub(r"{\w+}", "[^/]+", one), path) and method.lower() in document["paths"][one]
    )
    told = document["paths"][place][method.lower()]["responses"][str(answer.status_code)]["content"]
    schema = told[answer.headers["content-type"]]["schema"]
    jsonschema.Draft202012Validator({**schema, "components": document["components"]}).validate(answer.json())


def test_the_page_needs_neither_network_nor_script(tmp_path: Path) -> None:
    async def run() -> tuple[str, str]:
        async with at_hand(tmp_path) as place, place.client() as client:
            answer = await client.get("/")
            return answer.text, answer.headers["content-security-policy"]

    page, policy = asyncio.run(run())
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "<script" not in page
    assert " style=" not in page
    assert not re.search(r"""(src|href)=["']?(https?:)?//""", page)
    for operation in OPERATIONS:
        assert f"{operation.method} {operation.path}" in page
    for kind in KINDS:
        assert f"<td>{kind}</td>" in page
