"""The engine's behaviour around its model: failures, cancellation, closing, swapping, and how little it reads."""

import subprocess
import sys
import time
from concurrent.futures import CancelledError, Future
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from patchgym.errors import EndpointError
from patchgym.policy.engine import Completion, Engine, Request
from tests.policy.tiny import END, forward_logprobs, tiny_network

pytestmark = pytest.mark.train

SECONDS = 30.0
ROOT = Path(__file__).resolve().parents[2]
NEVER: frozenset[int] = frozenset()


def request(ids: list[int], *, seed: int = 0, max_new: int = 8, temperature: float = 1.0) -> Request:
    return Request(tuple(ids), max_new, temperature, 1.0, seed)


def prompt(length: int, salt: int) -> list[int]:
    return [(at * 7 + salt * 31 + at * at) % 256 for at in range(length)]


class Watched(nn.Module):
    """A network that counts the tokens it reads, and fails when told to."""

    def __init__(self) -> None:
        super().__init__()
        self.network = tiny_network()
        self.steps: list[tuple[int, int]] = []
        self.failures: list[Exception] = []
        self.delay = 0.0

    def forward(self, ids_BT: Tensor, *rest: object, **options: object) -> Any:
        self.steps.append((ids_BT.shape[0], ids_BT.shape[1]))
        time.sleep(self.delay)
        if self.failures:
            raise self.failures.pop()
        return self.network(ids_BT, *rest, **options)

    @property
    def prefilled(self) -> int:
        return sum(rows * tokens for rows, tokens in self.steps if tokens > 1)


def wait(futures: "list[Future[Completion]]") -> list[Completion]:
    return [future.result(SECONDS) for future in futures]


def test_identical_prompts_are_read_once_and_a_next_turn_reads_only_what_is_new() -> None:
    model = Watched()
    engine = Engine(model, NEVER, max_batch=8)
    first = wait([engine.submit(request(prompt(100, 1), seed=seed)) for seed in range(6)])
    assert model.prefilled == 99
    assert len({done.ids for done in first}) > 1
    model.steps.clear()
    context = [*prompt(100, 1), *first[3].ids, *prompt(20, 2)]
    (second,) = wait([engine.submit(request(context))])
    # The last sampled id was never read, and the last id of the prompt is left to the first decode step.
    assert second.cached == 107
    assert model.prefilled == 20
    engine.close()


def test_prompts_with_a_common_start_share_it() -> None:
    model = Watched()
    engine = Engine(model, NEVER)
    model.delay = 0.05
    wait([engine.submit(request([*prompt(80, 1), *prompt(10, salt)])) for salt in range(4)])
    assert model.prefilled == 89 + 3 * 9
    engine.close()


def test_without_room_to_keep_anything_answers_stay_the_same() -> None:
    answers = []
    for kept in (0, 24_000):
        engine = Engine(tiny_network(), NEVER, kept_tokens=kept)
        (first,) = wait([engine.submit(request(prompt(50, 1)))])
        (second,) = wait([engine.submit(request([*prompt(50, 1), *first.ids, 5, 6, 7]))])
        assert second.cached == (0 if kept == 0 else 57)
        answers.append((first.ids, second.ids))
        engine.close()
    assert answers[0] == answers[1]


def test_the_oldest_kept_conversation_goes_first() -> None:
    engine = Engine(tiny_network(), NEVER, kept_tokens=130)
    contexts = []
    for salt in (1, 2, 3):
        (done,) = wait([engine.submit(request(prompt(50, salt)))])
        contexts.append([*prompt(50, salt), *done.ids, 9])
    cached = [wait([engine.submit(request(contexts[at], max_new=1))])[0].cached for at in (2, 1, 0)]
    assert cached[:2] == [57, 57]
    assert cached[2] < 50
    engine.close()


def test_what_a_row_at_work_holds_is_not_kept_twice() -> None:
    model = Watched()
    engine = Engine(model, NEVER, kept_tokens=130)
    contexts = []
    for salt in (1, 2):
        (done,) = wait([engine.submit(request(prompt(50, salt)))])
        contexts.append([*prompt(50, salt), *done.ids, 9])
    model.delay = 0.01
    second = engine.submit(request(contexts[1], max_new=400))
    wait([engine.submit(request(prompt(50, 3)))])
    assert wait([engine.submit(request(contexts[0], max_new=1))])[0].cached == 57
    assert not second.done()
    engine.close()


def test_rows_join_and_leave_a_batch_that_is_at_work() -> None:
    model = Watched()
    engine = Engine(model, NEVER, max_batch=3)
    sizes = [(3, 40), (30, 2), (17, 25), (60, 1), (9, 33), (25, 12), (80, 7)]
    futures = [
        engine.submit(request(prompt(length, salt), seed=salt, max_new=new)) for salt, (length, new) in enumerate(sizes)
    ]
    together = wait(futures)
    assert [len(done.ids) for done in together] == [new for _, new in sizes]
    assert max(rows for rows, _ in model.steps) == 3
    for salt, (length, new) in enumerate(sizes):
        alone = Engine(tiny_network(), NEVER, max_batch=1)
        (single,) = wait([alone.submit(request(prompt(length, salt), seed=salt, max_new=new))])
        assert single.ids == together[salt].ids
        assert single.logprobs == pytest.approx(together[salt].logprobs, abs=1e-4)
        alone.close()
    engine.close()


def test_a_context_that_continues_a_row_at_work_copies_only_what_that_row_has_computed() -> None:
    ids, model = prompt(30, 1), Watched()
    other = Engine(model.network, NEVER)
    (whole,) = wait([other.submit(request(ids, max_new=60, temperature=0.0))])
    longer = request([*ids, *whole.ids[:50]], max_new=5, temperature=0.0)
    (expected,) = wait([other.submit(longer)])
    other.close()
    model.delay = 0.01
    engine = Engine(model, NEVER)
    at_work = engine.submit(request(ids, max_new=60, temperature=0.0))
    time.sleep(0.2)
    (done,) = wait([engine.submit(longer)])
    assert not at_work.done()
    assert 30 <= done.cached < 79
    assert done.ids == expected.ids
    assert done.logprobs == pytest.approx(expected.logprobs, abs=1e-4)
    engine.close()


def test_prompts_longer_than_one_stretch_are_read_in_several() -> None:
    network = tiny_network(max_position_embeddings=5000)
    engine = Engine(network, NEVER)
    ids = prompt(4500, 1)
    (done,) = wait([engine.submit(request(ids, max_new=1, temperature=0.0))])
    logprobs_TV = forward_logprobs(network, [*ids, done.ids[0]])
    assert done.ids[0] == int(logprobs_TV[-1].argmax())
    assert done.logprobs[0] == pytest.approx(float(logprobs_TV[-1].max()), abs=1e-4)
    engine.close()


@pytest.mark.parametrize("error", [RuntimeError("CUDA out of memory"), MemoryError("no memory")])
def test_a_failing_step_fails_the_rows_at_work_and_no_later_ones(error: Exception) -> None:
    model = Watched()
    engine = Engine(model, NEVER)
    wait([engine.submit(request(prompt(20, 1)))])
    model.failures.append(error)
    with pytest.raises(EndpointError, match="memory"):
        engine.submit(request(prompt(20, 1))).result(SECONDS)
    (done,) = wait([engine.submit(request(prompt(20, 1)))])
    assert done.cached == 0
    engine.close()


def test_logits_that_are_not_numbers_fail_the_request() -> None:
    network = tiny_network()
    network.lm_head.weight.fill_(torch.nan)
    engine = Engine(network, NEVER)
    with pytest.raises(EndpointError, match="not finite"):
        engine.submit(request(prompt(20, 1))).result(SECONDS)
    engine.close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_whatever_ends_the_thread_nobody_is_left_waiting() -> None:
    model = Watched()
    model.failures.append(KeyError("unforeseen"))
    model.delay = 0.2
    engine = Engine(model, NEVER, max_batch=1)
    futures = [engine.submit(request(prompt(20, salt))) for salt in range(3)]
    for future in futures:
        with pytest.raises(EndpointError):
            future.result(SECONDS)
    with pytest.raises(EndpointError, match="closed"):
        engine.submit(request([1, 2])).result(SECONDS)
    engine.close()


def test_closing_fails_what_is_not_finished() -> None:
    model = Watched()
    model.delay = 0.05
    engine = Engine(model, NEVER, max_batch=2)
    futures = [engine.submit(request(prompt(20, salt), max_new=10_000)) for salt in range(4)]
    time.sleep(0.2)
    engine.close()
    engine.close()
    for future in futures:
        with pytest.raises(EndpointError, match="closed"):
            future.result(SECONDS)


def test_an_interpreter_that_ends_in_the_middle_ends_cleanly() -> None:
    code = (
        "from tests.policy.test_engine import *\n"
        "engine = Engine(tiny_network(), NEVER)\nengine.submit(request(prompt(50, 1), max_new=400))\ntime.sleep(0.2)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, cwd=ROOT)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_cancelled_request_frees_its_row() -> None:
    model = Watched()
    model.delay = 0.01
    engine = Engine(model, NEVER, max_batch=1)
    endless = engine.submit(request(prompt(20, 1), max_new=10_000))
    waiting = engine.submit(request(prompt(20, 2), max_new=2))
    abandoned = engine.submit(request(prompt(20, 3), max_new=10_000))
    assert abandoned.cancel()
    time.sleep(0.1)
    assert endless.cancel()
    assert len(waiting.result(SECONDS).ids) == 2
    with pytest.raises(CancelledError):
        endless.result(0)
    engine.close()


def test_an_engine_that_rests_answers_what_was_asked_and_forgets_it() -> None:
    engine = Engine(Watched(), NEVER)
    first = engine.submit(request(prompt(30, 1)))
    engine.rest().result(SECONDS)
    assert first.done()
    again = engine.submit(request(prompt(30, 1))).result(SECONDS)
    assert again.ids == first.result().ids
    assert again.cached == 0
    engine.close()


def test_a_swap_waits_for_the_requests_before_it_and_forgets_what_the_old_model_knew() -> None:
    old, new = Watched(), Watched()
    new.network = tiny_network(num_hidden_layers=1)
    old.delay = 0.01
    engine = Engine(old, NEVER, max_batch=2)
    before = [engine.submit(request(prompt(30, 1), seed=seed, max_new=20)) for seed in range(3)]
    swapped = engine.swap(new, frozenset({END}))
    after = engine.submit(request(prompt(30, 1), max_new=4))
    swapped.result(SECONDS)
    assert all(future.done() for future in before)
    done = after.result(SECONDS)
    assert done.cached == 0
    assert sum(rows for rows, tokens in old.steps if tokens == 1) == 60
    assert len(new.steps) == 1 + len(done.ids)
    engine.close()
