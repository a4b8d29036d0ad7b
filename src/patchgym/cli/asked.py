"""What every command that lets a policy work on a task set is asked for: its options, as one value."""

import functools
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import click
from pydantic import JsonValue

from patchgym.cli.workshop import sandbox_options
from patchgym.reward import RewardSettings
from patchgym.rollout import PolicyOptions, RolloutSettings
from patchgym.rollout.policies import KINDS


@dataclass(frozen=True)
class Asked:
    """The options of ``rollout``, ``search`` and ``eval``. ``split`` and ``ids`` choose the tasks."""

    policy: str
    out: Path
    samples: int
    split: str
    ids: tuple[str, ...]
    concurrency: int
    temperature: float
    max_tokens: int
    hopeless_after: int
    seed: int
    base_url: str | None
    tokenizer: str | None
    protocol: str
    as_json: bool

    @property
    def options(self) -> PolicyOptions:
        """How the policy is opened."""
        return PolicyOptions(self.base_url, self.protocol == "native", self.concurrency, self.tokenizer)

    @property
    def settings(self) -> RolloutSettings:
        """How it is sampled."""
        return RolloutSettings(
            concurrency=self.concurrency,
            temperature=self.temperature,
            max_tokens=self.max_tokens,
            hopeless_after=self.hopeless_after,
        )

    @property
    def rewards(self) -> RewardSettings:
        """How its attempts are rewarded; ``patchgym score`` tries another way."""
        return RewardSettings()

    def config(self, **more: JsonValue) -> dict[str, JsonValue]:
        """What a run's manifest keeps of it."""
        return {
            "policy": self.policy,
            "samples": self.samples,
            "base_url": self.base_url,
            "native_tools": self.options.native_tools,
            "rollout": self.settings.model_dump(mode="json"),
            "reward": self.rewards.model_dump(mode="json"),
            **({"tokenizer": self.tokenizer} if self.tokenizer is not None else {}),
            **more,
        }


def policy_options(
    *, split: str, temperature: float, policy: bool = True
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The options, with a command's own defaults; it gets them as ``asked``. Without ``policy`` none has to be named,
    and it may be empty."""
    options = (
        click.option("--policy", required=policy, default=None if policy else "", help=f"One of: {KINDS}."),
        click.option("--out", type=click.Path(path_type=Path), required=True, help="Run directory, new or to resume."),
        click.option("--samples", default=1, show_default=True, type=click.IntRange(1), help="Samples of each task."),
        click.option("--split", type=click.Choice(["all", "train", "heldout"]), default=split, show_default=True),
        click.option("--task", "ids", multiple=True, metavar="ID", help="Only this task; may be repeated."),
        click.option("--concurrency", default=16, show_default=True, type=click.IntRange(1), help="Episodes at once."),
        click.option("--temperature", default=temperature, show_default=True, type=click.FloatRange(0)),
        click.option("--max-tokens", default=512, show_default=True, type=click.IntRange(1), help="Of one message."),
        click.option(
            "--stop-loops",
            "hopeless_after",
            default=0,
            show_default=True,
            type=click.IntRange(0),
            metavar="K",
            help="End an episode that does the same in the same state K times in a row (0: never).",
        ),
        click.option("--seed", default=0, show_default=True),
        click.option(
            "--base-url",
            help="Where the server of vllm:MODEL or openai:MODEL is; several of one model: URL,URL. "
            "[default: $OPENAI_BASE_URL]",
        ),
        click.option("--tokenizer", metavar="DIR", help="Where the tokenizer of vllm:MODEL is, if MODEL is no path."),
        click.option(
            "--protocol",
            type=click.Choice(["native", "text"]),
            default="native",
            show_default=True,
            help="How openai:MODEL is told of tools: native tool calls or plain text.",
        ),
        click.option("--json", "as_json", is_flag=True, help="Print the result as JSON."),
    )

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def gathered(**values: Any) -> None:
            asked = Asked(**{field.name: values.pop(field.name) for field in fields(Asked)})
            command(asked=asked, **values)

        for option in reversed(options):
            gathered = option(gathered)
        return sandbox_options(gathered)

    return decorate
