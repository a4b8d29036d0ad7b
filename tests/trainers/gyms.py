"""A task set on disk, samplers that say what a test wants, and the gym between them."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from patchgym.content import ObjectStore
from patchgym.errors import EndpointError
from patchgym.policy.chat import ChatEncoder
from patchgym.records import Sampling, TaskSetManifest
from patchgym.tasks.taskset import write_task_set
from patchgym.trainers import Generated, Gym, GymSettings, TokenLimits, TokenPolicy
from tests.workshop import calc_task, here, need_namespaces

FIX = """tool: edit_file
path: calc.py
old:
<<<
    if value > high:
        return low
>>>
new:
<<<
    if value > high:
        return high
>>>"""
SOLVES = (FIX, "tool: submit")
GIVES_UP = ("tool: read_file\npath: calc.py", "tool: submit")


def task_set(folder: Path) -> Path:
    """A set of a training task, ``calc-1``, and a held-out one, ``calc-2``."""
    objects = ObjectStore(folder / "objects")
    task = calc_task(objects)
    held = task.model_copy(update={"id": "calc-2", "split": "heldout"})
    path = folder / "tasks"
    path.mkdir()
    manifest = TaskSetManifest(name="tests", recipe={}, funnel={}, created_at=datetime.now(UTC))
    write_task_set(path, manifest, [task, held], objects)
    return path


@contextmanager
def gyms(folder: Path, **changes: Any) -> Iterator[Gym]:
    """A gym over that set."""
    need_namespaces()
    settings = {"taskset": str(task_set(folder)), "out": str(folder / "run"), **changes}
    gym = Gym(GymSettings.model_validate(settings), build=here)
    try:
        yield gym
    finally:
        gym.close()


class Says:
    """Samples the k-th text of a script at the k-th turn of a session, each id with a log-probability of its own."""

    version = "weights@1"

    def __init__(self, encoder: ChatEncoder, *scripts: Sequence[str], lost: int = 0) -> None:
        """The k-th session is the k-th of ``scripts``, the last for all that follow; the first ``lost`` are lost."""
        self._encoder, self._scripts, self._lost = encoder, scripts, lost
        self._turns: dict[str, int] = {}
        self.asked: list[tuple[str, tuple[int, ...]]] = []

    async def generate(self, session: str, ids: Sequence[int], sampling: Sampling) -> Generated:
        """The next text."""
        turn = self._turns[session] = self._turns.get(session, -1) + 1
        self.asked.append((session, tuple(ids)))
        number = list(self._turns).index(session)
        if turn == 1 and number < self._lost:
            raise EndpointError("the server went away")
        script = self._scripts[min(number, len(self._scripts) - 1)]
        said = tuple(self._encoder.encode_answer(script[min(turn, len(script) - 1)]))
        return Generated(said, tuple(logprob(token) for token in said), stopped=True)

    def policy(self, session: str) -> TokenPolicy:
        """The policy of an episode."""
        return TokenPolicy(self, self._encoder, session=session, vocabulary=258, limits=TokenLimits(100_000))


def logprob(token: int) -> float:
    """A log-probability that tells the id that it is of."""
    return -(token + 1) / 1000
