"""Who is let in, and what is refused before anything is done."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from patchgym.errors import UsageError
from patchgym.serve.desk import Rules
from patchgym.serve.keys import Keys, read_keys
from patchgym.serve.serving import is_loopback, listen
from tests.serve.serving import ONE, TOKENS, Place, at_hand, busy, listening, opened, refused, until

JSON = {"content-type": "application/json"}


def asked(folder: Path, work: Callable[[Place, httpx2.AsyncClient], Awaitable[None]], **how: Any) -> None:
    async def run() -> None:
        async with at_hand(folder, **how) as place, place.client() as client:
            await work(place, client)

    asyncio.run(run())


@pytest.mark.parametrize(
    "header", [None, "", "Bearer", "Bearer x", f"Bearer {ONE}x", f"Basic {ONE}", ONE, "Bearer \xe9"]
)
def test_without_a_token_of_a_client_nothing_is_done(tmp_path: Path, header: str | None) -> None:
    async def work(place: Place, client: httpx2.AsyncClient) -> None:
        headers = [] if header is None else [(b"authorization", header.encode("latin-1"))]
        for method, path in (("GET", "/tasks"), ("GET", "/stats"), ("POST", "/sessions"), ("GET", "/nothing")):
            answer = await client.request(method, path, headers=headers)
            refused(answer, 401, "unauthorized")
            assert answer.headers["www-authenticate"] == "Bearer"

    asked(tmp_path, work, tokens=TOKENS)


def test_what_tells_nothing_needs_no_token(tmp_path: Path) -> None:
    async def work(place: Place, client: httpx2.AsyncClient) -> None:
        for path in ("/healthz", "/openapi.json", "/", "/style.css"):
            assert (await client.get(path)).status_code == 200

    asked(tmp_path, work, tokens=TOKENS)


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "10.0.0.1:8700", ""])
def test_without_tokens_another_host_is_refused(tmp_path: Path, host: str) -> None:
    async def work(place: Place, client: httpx2.AsyncClient) -> None:
        refused(await client.get("/tasks", headers={"host": host}), 421, "wrong_host")

    asked(tmp_path, work)


def test_pages_of_other_sites_are_refused(tmp_path: Path) -> None:
    async def work(place: Place, client: httpx2.AsyncClient) -> None:
        for origin in ("http://evil.example", "null"):
            answer = await client.post("/sessions", json={"task": "calc-1"}, headers={"origin": origin})
            refused(answer, 403, "other_origin")

    asked(tmp_path, work)


def test_addresses_and_methods_that_are_not_there_are_told(tmp_path: Path) -> None:
    async def work(place: Place, client: httpx2.AsyncClient) -> None:
        refused(await client.get("/nothing"), 404, "no_address")
        refused(await client.put("/tasks"), 405, "no_method")
        for limit in ("0", "101", "-1", "many", "9" * 5000, "²"):
            refused(await client.get("/tasks", params={"limit": limit}), 422, "invalid")

    asked(tmp_path, work)


@pytest.mark.parametrize(
    "body",
    [
        "",
        "{",
        "[]",
        "null",
        '{"task": 7}',
        '{"tusk": "calc-1"}',
        '{"task": "calc-1", "tools": "all"}',
        '{"task": "\\ud800"}',
        "[" * 100_000,
        '{"task": "calc-1", "sampling": {"temperature": NaN}}',
        '{"task": "calc-1", "sampling": {"top_p": -1}}',
        '{"task": "' + "x" * 301 + '"}',
        b"\xff\xfe",
    ],
)
def test_a_body_that_is_not_as_it_must_be_is_refused(tmp_path: Path, body: str | bytes) -> None:
    async def work(place: Place, client: httpx2.AsyncClient) -> None:
        refused(await client.post("/sessions", content=body, headers=JSON), 422, "invalid")

    asked(tmp_path, work)


@pytest.mark.parametrize(
    "body",
    [
        "{}",
        '{"tool": "submit", "command": "id"}',
        '{"command": "id", "arguments": {"x": 1}}',
        '{"tool": ""}',
        '{"tool": "read_file", "arguments": {"start": NaN}}',
        '{"tool": "read_file", "arguments": {"start": Infinity}}',
        '{"tool": "read_file", "arguments": {"start": ' + "9" * 5000 + "}}",
        '{"tool": "read_file", "arguments": ' + '{"a":' * 5000 + "1" + "}" * 5001,
        '{"tool": "submit", "usage": {"prompt_tokens": 1}}',
        '{"tool": "submit", "usage": {"prompt_tokens": 1, "sampled_tokens": -1000}}',
    ],
)
def test_an_action_that_is_none_is_refused_and_is_no_step(tmp_path: Path, body: str) -> None:
    async def work(place: Place, client: httpx2.AsyncClient) -> None:
        session = await opened(client)
        refused(await client.post(f"{session}/step", content=body, headers=JSON), 422, "invalid")
        assert (await client.get(session)).json()["turns"] == 0

    asked(tmp_path, work)


_ANY = st.binary(max_size=200) | st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=8,
).map(lambda value: json.dumps(value).encode())


def test_whatever_comes_is_refused_with_a_problem(tmp_path: Path) -> None:
    stack = AsyncExitStack()
    with asyncio.Runner() as runner:
        place = runner.run(stack.enter_async_context(at_hand(tmp_path)))

        async def sent(body: bytes) -> httpx2.Response:
            async with place.client() as client:
                return await client.post("/sessions", content=body, headers=JSON)

        @settings(max_examples=60, deadline=None)
        @given(_ANY)
        def each(body: bytes) -> None:
            refused(runner.run(sent(body)), 422, "invalid")

        each()
        runner.run(stack.aclose())


def test_a_body_that_is_too_large_is_refused_however_it_comes(tmp_path: Path) -> None:
    async def work(place: Place, client: httpx2.AsyncClient) -> None:
        async def pieces() -> Any:
            for _ in range(20):
                yield b"x" * 100

        refused(await client.post("/sessions", content=b"x" * 1001, headers=JSON), 413, "too_large")
        refused(await client.post("/sessions", content=pieces(), headers=JSON), 413, "too_large")
        refused(await client.post("/sessions", content=b"{}", headers={"content-type": "text/plain"}), 415, "not_json")

    asked(tmp_path, work, rules=Rules(body_bytes=1000))


def test_a_body_that_is_half_sent_is_not_waited_for(tmp_path: Path) -> None:
    async def run() -> bytes:
        async with listening(tmp_path, rules=Rules(body_seconds=0.5)) as place:
            reader, writer = await _connected(place)
            writer.write(
                b"POST /sessions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
                b'Content-Length: 100\r\n\r\n{"task":'
            )
            async with asyncio.timeout(30):
                return await reader.read()  # to the end: the server closes

    told = asyncio.run(run())
    assert told.startswith(b"HTTP/1.1 408")
    assert b"urn:patchgym:too_slow" in told


@pytest.mark.slow
def test_a_head_that_is_half_sent_is_not_waited_for(tmp_path: Path) -> None:
    async def run() -> None:
        async with listening(tmp_path) as place, asyncio.timeout(60):
            silent, _ = await _connected(place)
            dripping, writer = await _connected(place)
            for _ in range(5):
                writer.write(b"GET /tasks HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ")
                await asyncio.sleep(0.1)
            for reader in (silent, dripping):
                with suppress(ConnectionResetError):
                    assert await reader.read() == b""
            async with place.client() as client:
                assert (await client.get("/healthz")).status_code == 200

    asyncio.run(run())


def test_a_client_that_goes_away_in_the_middle_leaves_the_server_well(tmp_path: Path) -> None:
    async def run() -> None:
        async with listening(tmp_path) as place, place.client() as client:
            session = await opened(client)
            _, writer = await _connected(place)
            body = b'{"command": "sleep 1"}'
            head = f"POST {session}/step HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            writer.write(head.encode() + b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
            await writer.drain()
            await until(lambda: busy(client, session))
            writer.transport.abort()

            async def at_rest() -> bool:
                return not await busy(client, session)

            await until(at_rest)
            assert (await client.get(session)).json()["turns"] == 1
            assert (await client.post(f"{session}/grade")).json()["verdict"] == "unresolved"

    asyncio.run(run())


def test_requests_beyond_the_bound_are_refused_and_others_go_on(tmp_path: Path) -> None:
    async def work(place: Place, client: httpx2.AsyncClient) -> None:
        place.desk.requests += 2  # as if two were under way
        answer = await client.get("/healthz")
        refused(answer, 429, "too_many")
        assert answer.headers["retry-after"] == "1"
        place.desk.requests -= 2
        assert (await client.get("/healthz")).status_code == 200

    asked(tmp_path, work, rules=Rules(most_sessions=1, spare_requests=1))


async def _connected(place: Place) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, _, port = place.address.removeprefix("http://").rpartition(":")
    return await asyncio.open_connection(host, int(port))


def test_tokens_come_from_a_file_with_a_line_for_each_client(tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text(f"# ours\none {ONE}\n\ntrainer-2   {ONE}-2  # the other\n")
    keys = read_keys(tmp_path / "tokens", "not used when there is a file")
    assert keys.client(f"Bearer {ONE}") == "one"
    assert keys.client(f"bearer {ONE}-2") == "trainer-2"
    assert keys.client("Bearer not used when there is a file") is None
    assert read_keys(None, ONE).client(f"Bearer {ONE}") == "default"
    assert not read_keys(None, None)


@pytest.mark.parametrize("text", ["", "# none\n", "one\n", f"one {ONE} more\n", "one short\n", f"a {ONE}\na {ONE}2\n"])
def test_a_token_file_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "tokens").write_text(text)
    with pytest.raises(UsageError):
        read_keys(tmp_path / "tokens", None)
    with pytest.raises(UsageError):
        read_keys(tmp_path / "none", None)


def test_two_clients_cannot_share_a_token() -> None:
    with pytest.raises(UsageError, match="same token"):
        Keys({"a": ONE, "b": ONE})


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost"])
def test_what_only_this_machine_reaches_is_known(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "localhost.evil.example", ""])
def test_what_can_be_reached_from_elsewhere_is_known(host: str) -> None:
    assert not is_loopback(host)


def test_a_taken_port_is_told_in_words() -> None:
    with listen("127.0.0.1", 0) as taken, pytest.raises(UsageError, match="cannot be listened on"):
        listen("127.0.0.1", taken.getsockname()[1])
    with pytest.raises(UsageError, match="no address"):
        listen("999.1.1.1", 0)
