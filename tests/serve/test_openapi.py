"""The OpenAPI document is one, and what the server answers is as it says."""

import asyncio
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx2
import pytest

from patchgym.serve.openapi import openapi
from patchgym.serve.operations import OPERATIONS
from patchgym.serve.problems import KINDS
from tests.serve.serving import FIX, at_hand

WHY = "LOUD SKIP: openapi-spec-validator is not installed"


@pytest.mark.parametrize("tokens", [False, True])
def test_the_document_is_valid(tokens: bool) -> None:
    validator = pytest.importorskip("openapi_spec_validator", reason=WHY)
    validator.validate(openapi(tokens=tokens))


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
    pytest.importorskip("jsonschema", reason=WHY)

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
    import jsonschema

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
