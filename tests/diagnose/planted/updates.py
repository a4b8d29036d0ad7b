"""Updates of a tiny model by ``patchgym train``, with and without something wrong in what they are made of."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from patchgym.records import Sampling, StepTokens, Trajectory
from patchgym.store import RunDirectory
from tests.records_for_tests import make_manifest
from tests.workshop import calc_task

if TYPE_CHECKING:
    from tests.diagnose.planted.faults import Bases

Change = Callable[[StepTokens], StepTokens]
_GROUPS = "abcd"
_USUAL: Mapping[str, object] = {
    "learning_rate": 1e-4,
    "lora_rank": 4,
    "max_row_tokens": 64,
    "rows_per_step": 2,
    "passes": 4,
}


def trained(
    path: Path,
    bases: "Bases",
    change: Change = lambda tokens: tokens,
    *,
    pause: bool = False,
    more: Sequence[str] = (),
    **settings: object,
) -> Path:
    """A run of ``patchgym train`` on attempts of a tiny model whose recorded ids are changed so; ``more`` are further
    arguments.

    Raises:
        PausedError: with ``pause``, where its steps go wrong.
    """
    attempts = path.with_name(f"{path.name}-attempts")
    if not attempts.is_dir():
        _write(attempts, [_changed(one, change) for one in _attempts(bases)])
    recipe = path.with_name(f"{path.name}.toml")
    algorithm = str(settings.get("algorithm", "dr_grpo"))
    table = "sft" if algorithm == "sft" else "grpo"
    values = {name: value for name, value in {**_USUAL, **settings}.items() if name != "algorithm"}
    lines = [f'start = "{bases.model}"', f'algorithm = "{algorithm}"', f"[{table}]"]
    lines += [f"{name} = {value}" for name, value in values.items()]
    recipe.write_text("\n".join([*lines, "[alarms]", f"pause = {str(pause).lower()}", ""]), encoding="utf-8")
    _train([str(recipe), "--run", str(attempts), "--out", str(path), "--json", *more], bases.cache)
    return path


def cut_logprobs(path: Path, bases: "Bases") -> Path:
    return trained(path, bases, lambda tokens: tokens.model_copy(update={"logprobs": (tokens.logprobs or ())[:-1]}))


def other_sampler(path: Path, bases: "Bases") -> Path:
    """The sampler's weights were others: its log-probs are off by half a nat this way or that."""

    def change(tokens: StepTokens) -> StepTokens:
        logprobs = tuple(min(0.0, value + (-1) ** at * 0.5) for at, value in enumerate(tokens.logprobs or ()))
        return tokens.model_copy(update={"logprobs": logprobs})

    return trained(path, bases, change)


def masked(path: Path, bases: "Bases") -> Path:
    return trained(path, bases, lambda tokens: tokens.model_copy(update={"mask": (0,) * len(tokens.sampled_ids)}))


def too_fast(path: Path, bases: "Bases", *, pause: bool = False, more: Sequence[str] = ()) -> Path:
    return trained(path, bases, pause=pause, more=more, learning_rate=0.1)


def imitated(path: Path, bases: "Bases") -> Path:
    return trained(path, bases, algorithm="sft", learning_rate=1e-3)


def _attempts(bases: "Bases") -> list[Trajectory]:
    from tests.train.tiny import BAD, GOOD, PROMPT, SEEN, graded, load, sampled_steps

    model = load(bases.model, bases.cache)
    made = []
    for group in _GROUPS:
        prompt = [*PROMPT, ord(group)]
        for at, (answer, reward) in enumerate(((GOOD, 1.0), (BAD, 0.0), ([*GOOD[:2], 33], 0.3))):
            steps = sampled_steps(model, [(prompt, answer), (SEEN, answer)], Sampling())
            made.append(graded(steps, reward, at, group).model_copy(update={"task_id": "calc-1"}))
    return made


def _changed(one: Trajectory, change: Change) -> Trajectory:
    steps = tuple(
        step.model_copy(update={"tokens": change(step.tokens)}) if step.tokens is not None else step
        for step in one.steps
    )
    return one.model_copy(update={"steps": steps})


def _write(path: Path, attempts: Sequence[Trajectory]) -> None:
    run = RunDirectory.open_for_writing(path, make_manifest(id=path.name))
    run.keep_tasks([calc_task(run.objects)])
    for one in attempts:
        run.append(one)
    run.close()


def _train(arguments: Sequence[str], cache: Path) -> None:
    from click.testing import CliRunner

    from patchgym.cli.train import command

    with _cache(cache):
        done = CliRunner().invoke(command, list(arguments))
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception


@contextmanager
def _cache(path: Path) -> Iterator[None]:
    old = os.environ.get("PATCHGYM_CACHE")
    os.environ["PATCHGYM_CACHE"] = str(path)
    try:
        yield
    finally:
        if old is None:
            del os.environ["PATCHGYM_CACHE"]
        else:
            os.environ["PATCHGYM_CACHE"] = old
