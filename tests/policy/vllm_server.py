"""A vLLM server on loopback: the answers of vLLM 0.32 as its source and ``vllm_recorded.json`` have them, from a model
of a few thousand weights. It remembers what it was asked, and misbehaves on demand."""

import copy
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import peft
import torch
from torch import Tensor

from patchgym.policy.models import quiet
from tests.policy.endpoint import Answer, say
from tests.policy.tiny import CONTEXT, END, tiny_network, tiny_tokenizer


@dataclass(frozen=True)
class Request:
    """One request as it came in."""

    path: str
    body: Any
    headers: dict[str, str]


@dataclass
class FakeVllm:
    """A server with one base model. What is set here holds from the next request on.

    ``mode`` is ``--logprobs-mode``; ``updating`` whether adapters may be loaded while it runs; ``forgets`` whether
    completions do not know them then; without ``validates_names`` the base answers for names that are not known;
    ``gate`` holds completions of adapters up until it is set; ``twist`` changes a completion before it is sent;
    ``instead`` holds answers that are given once each, by path, before the real ones.
    """

    url: str = ""
    base: str = "tiny"
    root: str = "/models/tiny"
    network: Any = field(default_factory=tiny_network)
    tokenizer: Any = field(default_factory=tiny_tokenizer)
    mode: str = "raw_logprobs"
    context: int = CONTEXT
    fingerprint: str | None = "vllm-0.32.0-0123abcd"
    lora: bool = True
    updating: bool = True
    max_lora_rank: int = 16
    lists_adapters: bool = True
    forgets: bool = False
    validates_names: bool = True
    twist: Callable[[dict[str, Any]], None] | None = None
    instead: dict[str, list[Answer]] = field(default_factory=dict)
    asked: list[Request] = field(default_factory=list)
    adapters: dict[str, tuple[str, Any]] = field(default_factory=dict)
    gate: threading.Event | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)

    def bodies(self, path: str) -> list[Any]:
        """The bodies of all requests to a path, in order."""
        return [one.body for one in self.asked if one.path == path]

    def sampled(self) -> list[Any]:
        """The bodies of all completions but those of handshakes."""
        return [sent for sent in self.bodies("/v1/completions") if not sent["logprobs"]]

    def wait_for(self, path: str, count: int) -> None:
        """Wait until a path was asked for that often."""
        for _ in range(1000):
            if len(self.bodies(path)) >= count:
                return
            time.sleep(0.01)
        raise AssertionError(f"{path} was asked for {len(self.bodies(path))} times")

    def restart(self, **changes: Any) -> None:
        """What another start does: adapters are gone, flags may be others."""
        self.adapters.clear()
        for name, value in changes.items():
            setattr(self, name, value)

    def answer(self, path: str, body: Any) -> Answer:
        """The answer to one request."""
        if self.instead.get(path):
            return self.instead[path].pop(0)
        match path:
            case "/v1/models":
                return say(200, {"object": "list", "data": self._cards()})
            case "/version":
                return say(200, {"version": "0.32.0"})
            case "/tokenize":
                ids = self.tokenizer.encode(body["prompt"], add_special_tokens=body["add_special_tokens"])
                return say(200, {"count": len(ids), "max_model_len": self.context, "tokens": ids, "token_strs": None})
            case "/v1/completions":
                return self._completed(body)
            case "/v1/load_lora_adapter" if self.updating:
                return self._loaded(body)
            case "/v1/unload_lora_adapter" if self.updating:
                return self._unloaded(body)
        return _refusal(404, "Not Found", "Not Found")

    def _cards(self) -> list[dict[str, Any]]:
        base = {"id": self.base, "object": "model", "root": self.root, "parent": None, "max_model_len": self.context}
        shown = self.adapters.items() if self.lists_adapters else ()
        return [
            base,
            *(
                {"id": name, "object": "model", "root": root, "parent": self.base, "max_model_len": None}
                for name, (root, _) in shown
            ),
        ]

    def _loaded(self, body: Any) -> Answer:
        name, path = body["lora_name"], Path(body["lora_path"])
        if name in self.adapters:
            return _refusal(400, "InvalidUserInput", f"The lora adapter '{name}' has already been loaded.")
        if not self.lora:
            return _refusal(500, "InternalServerError", "LoRA is not enabled. Use --enable-lora to enable LoRA.")
        if not path.is_dir():
            return _refusal(404, "NotFoundError", f"Loading lora {name} failed: No adapter found for {path}")
        rank = json.loads((path / "adapter_config.json").read_text())["r"]
        if rank > self.max_lora_rank:
            why = f"LoRA rank {rank} is greater than max_lora_rank {self.max_lora_rank}."
            return _refusal(500, "InternalServerError", f"Call to add_lora method failed: {why}")
        with quiet():
            adapted: Any = peft.PeftModel.from_pretrained(copy.deepcopy(self.network), str(path))
        self.adapters[name] = (str(path), adapted.merge_and_unload().eval())
        return say(200, f"Success: LoRA adapter '{name}' added successfully.")

    def _unloaded(self, body: Any) -> Answer:
        name = body["lora_name"]
        if name not in self.adapters:
            return _refusal(404, "NotFoundError", f"The lora adapter '{name}' cannot be found.")
        del self.adapters[name]
        return say(200, f"Success: LoRA adapter '{name}' removed successfully.")

    def _completed(self, body: Any) -> Answer:
        name, prompt = body["model"], body["prompt"]
        if not self.validates_names and name not in self.adapters:
            name = self.base
        if name != self.base and (self.forgets or name not in self.adapters):
            said = f"The model `{name}` does not exist. Valid aliases: {self.base}."
            return _refusal(404, "NotFoundError", said)
        if len(prompt) + 1 > self.context:
            said = (
                f"This model's maximum context length is {self.context} tokens. However, your prompt contains at least "
                f"{len(prompt)} input tokens."
            )
            return _refusal(400, "BadRequestError", said)
        network = self.network if name == self.base else self.adapters[name][1]
        if self.gate is not None and name != self.base:
            self.gate.wait(10)
        with self.lock:
            reply = self._reply(body, name, *self._drawn(network, body))
        if self.twist is not None:
            self.twist(reply)
        return say(200, reply)

    def _reply(self, body: Any, name: str, ids: list[int], rows: list[dict[int, float]]) -> dict[str, Any]:
        stopped = ids[-1] in (END, *body["stop_token_ids"])
        text = self.tokenizer.decode(ids[:-1] if stopped else ids, skip_special_tokens=body["skip_special_tokens"])
        names = [f"token_id:{one}" for one in ids]
        choice = {
            "index": 0,
            "text": text,
            "logprobs": {
                "text_offset": [0] * len(ids),
                "token_logprobs": [row[one] for one, row in zip(ids, rows, strict=True)],
                "tokens": names,
                "top_logprobs": [{f"token_id:{one}": value for one, value in row.items()} for row in rows],
            },
            "finish_reason": "stop" if stopped else "length",
            "stop_reason": ids[-1] if stopped else None,
            "token_ids": ids if body.get("return_token_ids") else None,
            "prompt_logprobs": None,
            "prompt_token_ids": body["prompt"] if body.get("return_token_ids") else None,
        }
        usage = {"prompt_tokens": len(body["prompt"]), "total_tokens": len(body["prompt"]) + len(ids)}
        return {
            "id": "cmpl-1",
            "object": "text_completion",
            "created": 1,
            "model": name,
            "choices": [choice],
            "system_fingerprint": self.fingerprint,
            "usage": {**usage, "completion_tokens": len(ids), "prompt_tokens_details": None},
        }

    def _drawn(self, network: Any, body: Any) -> tuple[list[int], list[dict[int, float]]]:
        """Ids, and for each the log-probabilities that are told of its place."""
        ids, rows = list(body["prompt"]), []
        generator = torch.Generator().manual_seed(body["seed"])
        for _ in range(min(body["max_tokens"], self.context - len(ids))):
            with torch.inference_mode():
                logits_V = network(input_ids=torch.tensor([ids]), use_cache=False).logits[0, -1].float()
            drawn_V = _processed(logits_V, body["temperature"], body["top_p"])
            if body["temperature"] == 0:
                token = int(drawn_V.argmax())
            else:
                token = int(torch.multinomial(drawn_V.exp(), 1, generator=generator))
            told_V = {
                "raw_logprobs": logits_V.log_softmax(-1),
                "processed_logprobs": drawn_V,
                "raw_logits": logits_V,
                "cooled_twice": (logits_V / (body["temperature"] or 1) ** 2).log_softmax(-1),
            }[self.mode]
            best = told_V.topk(body["logprobs"]).indices.tolist()
            rows.append({one: max(float(told_V[one]), -9999.0) for one in (token, *best)})
            ids.append(token)
            if token in (END, *body["stop_token_ids"]):
                break
        return ids[len(body["prompt"]) :], rows


def _processed(logits_V: Tensor, temperature: float, top_p: float) -> Tensor:
    """Log-probabilities after temperature and nucleus, written without a look at ``patchgym.policy.draw``."""
    logp_V = (logits_V / (temperature or 1.0)).log_softmax(-1)
    if top_p < 1 and temperature:
        order = logp_V.argsort(descending=True).tolist()
        kept, total = set[int](), 0.0
        for token in order:
            if total >= top_p:
                break
            kept.add(token)
            total += float(logp_V[token].exp())
        mask_V = torch.tensor([token in kept for token in range(len(logp_V))])
        logp_V = logp_V.masked_fill(~mask_V, -torch.inf).log_softmax(-1)
    return logp_V


def _refusal(status: int, kind: str, message: str) -> Answer:
    return say(status, {"error": {"message": message, "type": kind, "param": None, "code": status}})


@contextmanager
def vllm_server(**settings: Any) -> Iterator[FakeVllm]:
    """Serve on a free port until the block ends."""
    fake = FakeVllm(**settings)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._answer(None)

        def do_POST(self) -> None:
            self._answer(json.loads(self.rfile.read(int(self.headers["content-length"]))))

        def _answer(self, body: Any) -> None:
            headers = {name.lower(): value for name, value in self.headers.items()}
            fake.asked.append(Request(self.path, body, headers))
            fake.answer(self.path, body)(self)

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
        server.shutdown()
        server.server_close()
        thread.join()
