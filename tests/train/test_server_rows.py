"""What a server sampled is what the trainer sees: whole rollouts through HTTP give rows without a sampler gap."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from patchgym.policy.models import load_model
from patchgym.records import Trajectory
from patchgym.reward import RewardSettings
from patchgym.rollout import Collector, Phase, PolicyOptions, RolloutSettings, TrainableSource, open_policy
from patchgym.rollout.policies import ServerSource
from patchgym.store import RunDirectory
from patchgym.train import PolicyGradientSettings, rows_from_trajectory
from patchgym.train.batch import make_batch
from patchgym.train.loading import load_adapted
from patchgym.train.packed import PackedRows, predict
from tests.policy.tiny import save_tiny_checkpoint, tiny_network, tiny_tokenizer
from tests.policy.vllm_server import FakeVllm, vllm_server
from tests.records_for_tests import make_manifest
from tests.workshop import calc_task, here, sandboxes

pytestmark = pytest.mark.train

LONG = 8192
SETTINGS = RolloutSettings(concurrency=2, max_tokens=10, protocol_errors=3)


@pytest.fixture(autouse=True)
def _own_surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATCHGYM_CACHE", str(tmp_path / "cache"))
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model with room for a whole task, as a directory."""
    folder = tmp_path_factory.mktemp("model") / "tiny"
    tiny_network(max_position_embeddings=LONG).save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture
def server() -> Iterator[FakeVllm]:
    """A server of that model."""
    with vllm_server(network=tiny_network(max_position_embeddings=LONG), context=LONG) as fake:
        yield fake


def rolled_out(folder: Path, source: TrainableSource, settings: RolloutSettings) -> list[Trajectory]:
    """Two trajectories of the calc task in a run of their own."""
    run = RunDirectory.open_for_writing(folder, make_manifest())
    try:
        task = calc_task(run.objects)
        with sandboxes(run.objects, folder) as factory:
            collector = Collector(run, factory, here, RewardSettings(), 7)
            asyncio.run(source.check())
            return asyncio.run(collector.collect(Phase("rollout", [task], 2), source, settings))
    finally:
        run.close()


def sampler_gap(trajectories: list[Trajectory], start: Path) -> float:
    """The largest difference in nats between what the trainer's model gives the sampled ids and what was recorded."""
    adapted = load_adapted(str(start), PolicyGradientSettings(lora_rank=4), None)
    largest = 0.0
    for trajectory in trajectories:
        made = rows_from_trajectory(trajectory, max_length=LONG)
        assert not made.left_out
        (row,) = made.rows
        assert row.trained == sum(step.usage.sampled_tokens for step in trajectory.steps if step.usage)
        said = predict(adapted, PackedRows([row], LONG))
        largest = max(largest, (said.logprobs_N - make_batch([row]).sampler_N).abs().max().item())
    return largest


@pytest.mark.parametrize(("mode", "temperature"), [("raw_logprobs", 1.0), ("processed_logprobs", 0.7)])
def test_rollouts_of_the_base_and_of_a_checkpoint_have_no_sampler_gap(
    server: FakeVllm, model: Path, tmp_path: Path, mode: str, temperature: float
) -> None:
    server.mode = mode
    checkpoint = save_tiny_checkpoint(tmp_path / "checkpoint", model)
    settings = SETTINGS.model_copy(update={"temperature": temperature})
    source = open_policy(f"vllm:{model}", PolicyOptions(base_url=server.url))
    assert isinstance(source, ServerSource)
    before = rolled_out(tmp_path / "before", source, settings)
    asyncio.run(source.use(checkpoint))
    after = rolled_out(tmp_path / "after", source, settings)
    asyncio.run(source.close())
    assert {step.policy_version for one in before for step in one.steps} == {load_model(str(model)).version}
    assert {step.policy_version for one in after for step in one.steps} == {"grpo-1-abc"}
    assert all(len(one.steps) >= 2 and not one.faults for one in (*before, *after))
    assert sampler_gap(before, model) < 1e-4
    assert sampler_gap(after, checkpoint) < 1e-4
    assert sampler_gap(after, model) > 0.1
