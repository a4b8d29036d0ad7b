"""A model endpoint on loopback that answers as scripted and remembers what it was asked."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = Callable[[BaseHTTPRequestHandler], None]


@dataclass
class FakeEndpoint:
    """``answers`` are given in turn, the last for ever; ``models`` is what ``/models`` lists, None where it is not."""

    url: str
    answers: list[Answer] = field(default_factory=list)
    models: list[str] | None = None
    asked: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    released: threading.Event = field(default_factory=threading.Event)


def say(status: int, body: bytes | str | dict[str, Any], **headers: str) -> Answer:
    """An answer of one piece; a dict is sent as JSON. Underscores in header names become hyphens."""
    data = json.dumps(body).encode() if isinstance(body, dict) else body.encode() if isinstance(body, str) else body

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        given = {"content-length": str(len(data))} | {name.replace("_", "-"): value for name, value in headers.items()}
        for name, value in given.items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(data)

    return answer


def completion(content: str | None = "hello", finish: str = "stop", **more: Any) -> dict[str, Any]:
    """A chat completion. Keys of ``more`` with ``choice_`` before them go into the choice, ``message_`` into the
    message."""
    message = {"role": "assistant", "content": content} | _part(more, "message_")
    choice = {"index": 0, "message": message, "finish_reason": finish} | _part(more, "choice_")
    usage = {"prompt_tokens": 11, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 5}}
    top = {key: value for key, value in more.items() if not key.startswith(("choice_", "message_"))}
    return {"id": "x", "object": "chat.completion", "model": "served", "choices": [choice], "usage": usage} | top


def _part(more: dict[str, Any], prefix: str) -> dict[str, Any]:
    return {key.removeprefix(prefix): value for key, value in more.items() if key.startswith(prefix)}


@contextmanager
def endpoint(*answers: Answer, models: list[str] | None = None) -> Iterator[FakeEndpoint]:
    """Serve on a free port until the block ends."""
    fake = FakeEndpoint(url="", answers=list(answers), models=models)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"  # connections are kept, as real servers do

        def do_GET(self) -> None:
            fake.headers.append({name.lower(): value for name, value in self.headers.items()})
            if self.path != "/v1/models" or fake.models is None:
                say(404, {"error": {"message": "nothing here"}})(self)
            else:
                say(200, {"object": "list", "data": [{"id": name, "object": "model"} for name in fake.models]})(self)

        def do_POST(self) -> None:
            fake.headers.append({name.lower(): value for name, value in self.headers.items()})
            self.asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
            fake.asked.append(self.asked)
            assert self.path == "/v1/chat/completions"
            (fake.answers.pop(0) if len(fake.answers) > 1 else fake.answers[0])(self)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    fake.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield fake
    finally:
        fake.released.set()
        server.shutdown()
        server.server_close()
        thread.join()
