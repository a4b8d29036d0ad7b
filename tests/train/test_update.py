"""Whole updates on a tiny model: they move what they should, publish what they made, and say what happened."""

import json
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from patchgym.errors import DivergenceError
from patchgym.policy.chat import ChatEncoder
from patchgym.policy.models import load_model, read_checkpoint
from patchgym.records import Sampling, Trajectory
from patchgym.sandbox.bwrap import find_bwrap
from patchgym.train import RowSet, SftSettings, TokenRow, UpdateReport, grpo, sft
from patchgym.train.batch import make_batch
from patchgym.train.loading import load_adapted
from patchgym.train.losses import Predictions
from patchgym.train.objectives import PolicyGradient
from patchgym.train.packed import PackedRows, predict
from patchgym.train.trainer import schedule, train
from tests.records_for_tests import make_report, make_step, make_trajectory
from tests.train.tiny import (
    BAD,
    GOOD,
    PROMPT,
    RL,
    SEEN,
    answer_logprob,
    full_logprobs,
    graded,
    load,
    published,
    rewarded,
    sampled_steps,
)

pytestmark = pytest.mark.train

SL = SftSettings(learning_rate=3e-2, lora_rank=4, max_row_tokens=256, passes=12)


def demonstration() -> Trajectory:
    return make_trajectory(steps=[make_step(0), make_step(1)], report=make_report())


def said_logprob(path: Path, cache: Path) -> float:
    """What a sampler gives the demonstration's first answer with its end of turn, after its first prompt."""
    loaded = load_model(str(path), cache=cache)
    step = demonstration().steps[0]
    encoder = ChatEncoder(loaded.tokenizer)
    answer = encoder.encode_answer(step.message.content)
    with torch.no_grad():
        ids = [*encoder.encode(step.prompt), *answer]
        return full_logprobs(loaded.model, ids)[-len(answer) :].sum().item()


def test_one_update_favours_the_rewarded_action(
    pair: list[Trajectory], model_dir: Path, cache: Path, tmp_path: Path
) -> None:
    report = grpo(pair, start=str(model_dir), out=tmp_path, settings=RL, cache=cache, trained_on={})
    after = published(tmp_path, report)
    assert len(report.steps) == 1
    assert answer_logprob(after, cache, GOOD) > answer_logprob(model_dir, cache, GOOD) + 0.01
    assert answer_logprob(after, cache, BAD) < answer_logprob(model_dir, cache, BAD) - 0.01
    assert (report.gradient, report.why) == ("nonzero", "")
    assert report.steps[0].gradient_norm > 0
    assert report.steps[0].mean_ratio == pytest.approx(1.0, abs=1e-5)
    assert (report.rows_used, report.groups, report.trained_tokens, report.total_tokens) == (2, 1, 12, 26)
    assert report.sampler_gap is not None
    assert report.sampler_gap.largest < 1e-5
    assert set(report.sampler_gap.by_turn) == {0, 1}
    assert UpdateReport.from_line(report.to_line()) == report


def test_a_checkpoint_gives_the_trainers_log_probabilities_and_is_gone_on_with(
    pair: list[Trajectory], model_dir: Path, cache: Path, tmp_path: Path
) -> None:
    gentle = RL.model_copy(update={"learning_rate": 1e-3})
    first = grpo(pair, start=str(model_dir), out=tmp_path, settings=gentle, cache=cache, trained_on={})
    place = published(tmp_path, first)
    info = read_checkpoint(place)
    assert (info.algorithm, info.step, info.version, info.base) == ("dr_grpo", 1, first.version, str(model_dir))
    assert info.parent == first.parent
    config = json.loads((place / "adapter" / "adapter_config.json").read_text(encoding="utf-8"))
    assert (config["inference_mode"], config["r"], config["lora_alpha"], config["lora_dropout"]) == (True, 4, 8, 0.0)
    assert config["base_model_name_or_path"] == str(model_dir)
    resumed = load_adapted(str(place), gentle.model_copy(update={"lora_rank": 9}), cache)
    row = TokenRow((*PROMPT, *GOOD), (0,) * 4 + (1,) * 3, (0.0,) * 7, (0,) * 7, "t", "g")
    trainer_N = predict(resumed, PackedRows([row], 1024)).logprobs_N
    torch.testing.assert_close(trainer_N.sum().item(), answer_logprob(place, cache, GOOD), atol=1e-4, rtol=0)

    second = grpo(pair, start=str(place), out=tmp_path, settings=gentle, cache=cache, trained_on={})
    assert second.parent == first.version
    assert read_checkpoint(published(tmp_path, second)).step == 2
    assert second.trainable_parameters == first.trainable_parameters
    assert second.sampler_gap is not None  # its rows were sampled by the version before
    with torch.no_grad():
        moved = [full_logprobs(load(place, cache), [*PROMPT, *ids, *SEEN, *ids]) for ids in (GOOD, BAD)]
        first_turn = torch.cat([logprobs_T[3:6] for logprobs_T in moved])
    before = [value for one in pair if (tokens := one.steps[0].tokens) for value in tokens.logprobs or ()]
    gaps = (first_turn - torch.tensor(before)).abs()
    assert second.sampler_gap.by_turn[0] == pytest.approx(gaps.mean().item(), rel=1e-2)
    assert second.sampler_gap.largest >= gaps.max().item() - 1e-4


def test_imitation_makes_the_demonstrated_answer_likelier(model_dir: Path, cache: Path, tmp_path: Path) -> None:
    report = sft([demonstration()], start=str(model_dir), out=tmp_path, settings=SL, cache=cache, trained_on={})
    after = published(tmp_path, report)
    assert len(report.steps) == 12
    assert report.loss_first == pytest.approx(math.log(258), abs=0.5)
    assert report.loss_last is not None
    assert report.loss_last < 4.0
    assert said_logprob(after, cache) > said_logprob(model_dir, cache) + 20
    again = sft([demonstration()], start=str(after), out=tmp_path, settings=SL, cache=cache, trained_on={})
    assert again.loss_first is not None
    assert again.loss_first < report.loss_last


def test_the_policy_gradients_losses_are_clipped_as_set() -> None:
    row = TokenRow(
        (1, 2, 3, 4), (0, 1, 1, 1), (0.0, -1.0, -1.0, -1.0), (-1, 0, 0, 0), "t", "g", advantages=(0.0, 2.0, 2.0, 2.0)
    )
    logprobs_N = torch.tensor([1.0, 1.5, 0.5]).log() - 1.0
    objective = PolicyGradient(RL.model_copy(update={"clip_low": 0.2, "clip_high": 0.3}))
    losses_N, figures = objective.token_losses(make_batch([row]), Predictions(logprobs_N))
    torch.testing.assert_close(losses_N, torch.tensor([-2.0, -2.6, -1.0]))
    torch.testing.assert_close(figures["ratio"], torch.tensor([1.0, 1.5, 0.5]))
    assert figures["clipped_low"].tolist() == [0.0, 0.0, 0.0]
    assert figures["clipped_high"].tolist() == [0.0, 1.0, 0.0]
    assert objective.normaliser([row, row]) == 2 * RL.max_row_tokens


def test_groups_without_variance_publish_nothing_and_say_so(
    pair: list[Trajectory], model_dir: Path, cache: Path, tmp_path: Path
) -> None:
    flat = [rewarded(one, reward=0.3) for one in pair]
    report = grpo(flat, start=str(model_dir), out=tmp_path, settings=RL, cache=cache, trained_on={})
    assert (report.version, report.gradient, report.steps) == (None, "zero", ())
    assert "no group has variance" in report.why
    assert (report.groups, report.zero_variance_groups, report.left_out) == (1, 1, {"zero_variance": 2})
    assert report.flat_groups == ("g",)
    assert not list(tmp_path.iterdir())


def test_a_zero_gradient_names_its_cause(pair: list[Trajectory], model_dir: Path, cache: Path, tmp_path: Path) -> None:
    def why(trajectories: list[Trajectory]) -> str:
        report = grpo(trajectories, start=str(model_dir), out=tmp_path, settings=RL, cache=cache, trained_on={})
        assert (report.gradient, report.version) == ("zero", None)
        return report.why

    assert why([]) == "there were no trajectories"
    assert "2 x not_trusted" in why([rewarded(one, reward_trusted=False) for one in pair])
    steps = [
        step.model_copy(update={"tokens": step.tokens.model_copy(update={"mask": (0, 0, 0)})})
        for step in pair[0].steps
        if step.tokens
    ]
    assert "nothing_trainable" in why(
        [pair[0].model_copy(update={"steps": tuple(steps)}), pair[1].model_copy(update={"steps": tuple(steps)})]
    )
    far = [
        step.model_copy(update={"tokens": step.tokens.model_copy(update={"logprobs": (-20.0,) * 3})})
        for step in pair[0].steps
        if step.tokens
    ]
    apart = rewarded(pair[0], steps=tuple(far), in_baseline=False)
    assert "clipped" in why([apart, rewarded(pair[1], reward=0.5), rewarded(pair[1], reward=0.5, id="g.2")])


def test_no_gradient_moves_nothing_not_even_by_decay(model_dir: Path, cache: Path, tmp_path: Path) -> None:
    settings = RL.model_copy(update={"weight_decay": 0.5})
    model = load_adapted(str(model_dir), settings, cache)
    before = [part.detach().clone() for part in model.parameters()]
    row = TokenRow((1, 2, 3), (0, 0, 1), (0.0, 0.0, -5.0), (-1, -1, 0), "t", "g", advantages=(0.0, 0.0, 0.0))
    idle = replace(row, trainable=(0, 0, 0))
    report = train(RowSet(rows=(row, idle)), model, PolicyGradient(settings), settings, out=tmp_path, trained_on={})
    assert report.left_out == {"nothing_trainable": 1}
    assert (report.gradient, report.version, report.steps[0].gradient_norm) == ("zero", None, 0.0)
    assert all(torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True))


def test_the_same_seed_gives_the_same_bytes(
    pair: list[Trajectory], model_dir: Path, cache: Path, tmp_path: Path
) -> None:
    groups = [rewarded(one, group_id=f"{group}", id=f"{group}.{at}") for group in "abcd" for at, one in enumerate(pair)]

    def weights(place: str, seed: int) -> bytes:
        settings = RL.model_copy(update={"seed": seed, "rows_per_step": 2, "passes": 2, "learning_rate": 1e-3})
        report = grpo(groups, start=str(model_dir), out=tmp_path / place, settings=settings, cache=cache, trained_on={})
        assert len(report.steps) == 8
        return (published(tmp_path / place, report) / "adapter" / "adapter_model.safetensors").read_bytes()

    assert weights("a", 1) == weights("b", 1)
    assert weights("a", 1) != weights("c", 2)


def test_steps_follow_the_seed_and_keep_groups_together() -> None:
    rows = [
        TokenRow((1, at), (0, 1), (0.0, 0.0), (-1, 0), f"{group}.{at}", group) for group in "abcdef" for at in range(2)
    ]

    def order(seed: int) -> list[str]:
        steps = schedule(rows, RL.model_copy(update={"seed": seed, "rows_per_step": 4, "passes": 2}))
        assert [len(step) for step in steps] == [4, 4, 4] * 2
        names = [row.trajectory_id for step in steps for row in step]
        assert sorted(names[:12]) == sorted(names[12:]) == [row.trajectory_id for row in rows]
        assert [name[0] for name in names[::2]] == [name[0] for name in names[1::2]]
        return names

    assert order(1) == order(1)
    assert order(1) != order(2)
    assert order(1)[:12] != order(1)[12:]


@pytest.mark.parametrize("tokens", [1, 1000])
def test_the_gradient_is_that_of_the_formula_however_rows_are_batched(
    pair: list[Trajectory], model_dir: Path, cache: Path, tmp_path: Path, tokens: int
) -> None:
    """On rows of the model itself every ratio is 1, so the loss's gradient is that of -(sum of A log p) / tokens."""
    settings = RL.model_copy(update={"micro_batch_tokens": tokens, "normalise": "tokens"})
    report = grpo(pair, start=str(model_dir), out=tmp_path, settings=settings, cache=cache, trained_on={})
    model = load_adapted(str(model_dir), settings, cache)
    total = torch.zeros(())
    for answer, advantage in ((GOOD, 0.5), (BAD, -0.5)):
        logprobs_T = full_logprobs(model.peft_model, [*PROMPT, *answer, *SEEN, *answer])
        total = total - advantage * (logprobs_T[3:6].sum() + logprobs_T[9:12].sum()) / 12
    gradients = torch.autograd.grad(total, model.parameters())
    wanted = torch.stack([gradient.norm() for gradient in gradients]).norm().item()
    assert report.steps[0].gradient_norm == pytest.approx(wanted, rel=1e-4)


def test_divergence_from_the_start_is_held_back_by_kl(
    pair: list[Trajectory], model_dir: Path, cache: Path, tmp_path: Path
) -> None:
    def last_kl(weight: float) -> float:
        settings = RL.model_copy(update={"kl": weight, "passes": 4})
        report = grpo(pair, start=str(model_dir), out=tmp_path, settings=settings, cache=cache, trained_on={})
        assert report.steps[0].kl == pytest.approx(0.0, abs=1e-9)
        assert report.steps[-1].kl is not None
        return report.steps[-1].kl

    assert last_kl(10.0) < last_kl(1e-6)


def test_a_checkpoint_remembers_the_tasks_of_every_update_behind_it(
    pair: list[Trajectory], model_dir: Path, cache: Path, tmp_path: Path
) -> None:
    first = grpo(pair, start=str(model_dir), out=tmp_path, settings=RL, cache=cache, trained_on={"one": ("n1", "f2")})
    place = published(tmp_path, first)
    shown = [demonstration()]
    second = sft(shown, start=str(place), out=tmp_path, settings=SL, cache=cache, trained_on={"two": ("n3",)})
    assert read_checkpoint(published(tmp_path, second)).trained_on == {"one": ("n1", "f2"), "two": ("n3",)}


def test_a_time_limit_ends_the_update_between_steps(model_dir: Path, cache: Path, tmp_path: Path) -> None:
    settings = SL.model_copy(update={"passes": 500, "seconds": 0.2})
    seen: list[tuple[int, int]] = []
    report = sft(
        [demonstration()],
        start=str(model_dir),
        out=tmp_path,
        settings=settings,
        cache=cache,
        trained_on={},
        on_step=lambda done, total, figures: seen.append((done, total)),
    )
    assert 1 <= len(report.steps) < 500
    assert f"after {len(report.steps)} of 500 steps" in report.stopped_early
    assert published(tmp_path, report).is_dir()
    assert len(seen) == len(report.steps)
    assert seen[-1] == (report.trained_tokens, 500 * report.steps[0].trained_tokens)


def test_a_loss_that_is_not_finite_stops_and_names_the_rows(
    pair: list[Trajectory], model_dir: Path, cache: Path, tmp_path: Path
) -> None:
    far = [
        step.model_copy(update={"tokens": step.tokens.model_copy(update={"logprobs": (-999.0,) * 3})})
        for step in pair[1].steps
        if step.tokens
    ]
    with pytest.raises(DivergenceError, match=r"loss is inf.*g\.1"):
        grpo(
            [pair[0], rewarded(pair[1], steps=tuple(far))],
            start=str(model_dir),
            out=tmp_path,
            settings=RL,
            cache=cache,
            trained_on={},
        )
    assert not list(tmp_path.iterdir())


def test_rows_that_the_model_cannot_read_are_left_out(
    pair: list[Trajectory], model_dir: Path, cache: Path, tmp_path: Path
) -> None:
    model = load(model_dir, cache)
    long = graded(sampled_steps(model, [(PROMPT * 70, GOOD)]), 0.0, 2)
    foreign = [
        step.model_copy(update={"tokens": step.tokens.model_copy(update={"prompt_ids": (999,)})})
        for step in pair[1].steps
        if step.tokens
    ]
    settings = RL.model_copy(update={"max_row_tokens": 1000})
    report = grpo(
        [*pair, long, rewarded(pair[1], steps=tuple(foreign))],
        start=str(model_dir),
        out=tmp_path,
        settings=settings,
        cache=cache,
        trained_on={},
    )
    assert report.left_out == {"too_long": 1, "unknown_ids": 1}
    assert report.rows_used == 2


def test_rows_at_another_temperature_have_no_sampler_gap(model_dir: Path, cache: Path, tmp_path: Path) -> None:
    model = load(model_dir, cache)
    warm = [
        graded(sampled_steps(model, [(PROMPT, answer)], Sampling(temperature=0.5)), reward, at)
        for at, (answer, reward) in enumerate(((GOOD, 1.0), (BAD, 0.0)))
    ]
    report = grpo(warm, start=str(model_dir), out=tmp_path, settings=RL, cache=cache, trained_on={})
    assert report.sampler_gap is not None
    assert report.sampler_gap.largest < 1e-5


def test_an_interrupt_leaves_no_checkpoint(
    pair: list[Trajectory], model_dir: Path, cache: Path, tmp_path: Path
) -> None:
    def interrupt(done: int, total: int, figures: dict[str, float]) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        grpo(pair, start=str(model_dir), out=tmp_path, settings=RL, cache=cache, trained_on={}, on_step=interrupt)
    assert not list(tmp_path.iterdir())


def python(*lines: str, before: tuple[str, ...] = ()) -> str:
    """Standard output of a fresh interpreter."""
    command = [*before, sys.executable, "-c", "\n".join(lines)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_importing_the_package_does_not_import_torch() -> None:
    assert (
        python("import sys, patchgym.train", "print('torch' in sys.modules, 'peft' in sys.modules)") == "False False\n"
    )


def test_without_torch_it_says_what_to_install() -> None:
    printed = python(
        "import sys",
        "sys.modules['torch'] = None",
        "from pathlib import Path",
        "from patchgym.errors import PrerequisiteError",
        "from patchgym.train import PolicyGradientSettings, SftSettings, grpo, sft",
        "for update, settings in ((sft, SftSettings()), (grpo, PolicyGradientSettings())):",
        "    try: update([], start='m', out=Path('out'), settings=settings, trained_on={})",
        "    except PrerequisiteError as error: print(error.mend)",
    )
    assert printed == "Run: pip install 'patchgym[train]'\n" * 2


def test_a_full_disk_is_named_and_earlier_checkpoints_stay(model_dir: Path, cache: Path, tmp_path: Path) -> None:
    printed = python(
        "from pathlib import Path",
        "from patchgym.errors import StorageError",
        "from patchgym.train.checkpoint import publish_checkpoint",
        "from patchgym.train import SftSettings",
        "from patchgym.train.loading import load_adapted",
        f"out = Path({str(tmp_path)!r})",
        "for rank in (1, 64):",
        f"    model = load_adapted({str(model_dir)!r}, SftSettings(lora_rank=rank), Path({str(cache)!r}))",
        "    try: print(publish_checkpoint(model, out, algorithm='sft', metrics={}, trained_on={}).version[:6])",
        "    except StorageError as error: print(error.why)",
        "print([path.name[:6] for path in out.iterdir()])",
        before=(str(find_bwrap()), "--dev-bind", "/", "/", "--size", "100000", "--tmpfs", str(tmp_path)),
    )
    assert printed == "sft-1-\nThe disk is full.\n['sft-1-']\n"
