"""The gym: real episodes for whoever samples, graded and kept; what infrastructure loses is made again."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from patchgym.errors import ConfigError, UsageError
from patchgym.policy.chat import ChatEncoder
from patchgym.records import Trajectory
from patchgym.store import RunDirectory
from patchgym.trainers import Draw, Gym, GymSettings, episode_row
from tests.policy.tiny import END, tiny_tokenizer
from tests.trainers.gyms import GIVES_UP, SOLVES, Says, gyms

pytestmark = pytest.mark.train
ENCODER = ChatEncoder(tiny_tokenizer())


def attempt(gym: Gym, says: Says, draw: Draw | None = None, times: int = 1) -> list[Trajectory]:
    """Attempts at the training task, at once."""
    wanted = draw or Draw()

    async def all_of_them() -> list[Trajectory]:
        task = gym.task("calc-1", wanted)
        return await asyncio.gather(*(gym.attempt(task, wanted, "test", says.policy) for _ in range(times)))

    return asyncio.run(all_of_them())


def test_an_episode_is_played_in_a_sandbox_and_graded(tmp_path: Path) -> None:
    says = Says(ENCODER, SOLVES, GIVES_UP)
    with gyms(tmp_path) as gym:
        rewards = sorted(episode_row(one, filler=END).reward or 0.0 for one in attempt(gym, says, times=2))
    assert rewards[0] == 0.0
    assert rewards[1] > 0.9


def test_every_attempt_is_kept_in_the_run_directory(tmp_path: Path) -> None:
    with gyms(tmp_path) as gym:
        found = attempt(gym, Says(ENCODER, GIVES_UP), Draw(step=3), times=2)
    kept = RunDirectory.read(tmp_path / "run" / "worker-0")
    assert sorted(kept.ids) == sorted(one.id for one in found) == ["train-3.calc-1.0", "train-3.calc-1.1"]
    assert set(kept.tasks()) == {"calc-1", "calc-2"}


def test_a_lost_attempt_is_made_again(tmp_path: Path) -> None:
    with gyms(tmp_path) as gym:
        (found,) = attempt(gym, Says(ENCODER, SOLVES, lost=1))
        assert (found.status, found.sample_index) == ("completed", 1)
        assert gym.run.trajectory("train.calc-1.0").status == "infra_error"


def test_an_attempt_that_is_lost_to_the_end_has_no_reward_and_nothing_to_train(tmp_path: Path) -> None:
    with gyms(tmp_path, retries=1) as gym:
        (found,) = attempt(gym, Says(ENCODER, SOLVES, lost=9))
        assert len(gym.run.ids) == 2
    row = episode_row(found, filler=END)
    assert (row.reward, sum(row.mask)) == (None, 0)


def test_a_gym_that_is_opened_again_goes_on(tmp_path: Path) -> None:
    with gyms(tmp_path) as gym:
        attempt(gym, Says(ENCODER, GIVES_UP))
        settings = gym.settings
    again = Gym(settings)
    try:
        assert len(again.run.ids) == 1
        assert again._next("train", again.task("calc-1", Draw())) == 1
    finally:
        again.close()


def test_a_task_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with gyms(tmp_path) as gym, pytest.raises(UsageError, match="'calc-9'"):
        gym.task("calc-9", Draw())


def test_held_out_tasks_are_for_measuring(tmp_path: Path) -> None:
    with gyms(tmp_path) as gym:
        assert gym.task("calc-2", Draw(phase="eval")).split == "heldout"
        with pytest.raises(UsageError, match="held out"):
            gym.task("calc-2", Draw())


def test_held_out_tasks_can_be_allowed(tmp_path: Path) -> None:
    with gyms(tmp_path, heldout=True) as gym:
        assert gym.task("calc-2", Draw()).split == "heldout"


@pytest.mark.parametrize(
    ("changes", "error"), [({"sandbox": "process"}, UsageError), ({"sandbox": "moon"}, UsageError)]
)
def test_a_sandbox_that_isolates_nothing_must_be_called_unsafe(
    tmp_path: Path, changes: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error), gyms(tmp_path, **changes):
        pass


def test_other_settings_do_not_go_on_with_a_run(tmp_path: Path) -> None:
    with gyms(tmp_path) as gym:
        settings = gym.settings
    with pytest.raises(ConfigError, match="retries"):
        Gym(settings.model_copy(update={"retries": 7}))


def test_there_is_one_worker_of_a_name_at_a_time(tmp_path: Path) -> None:
    with gyms(tmp_path) as gym:
        with pytest.raises(UsageError):
            Gym(gym.settings)
        other = Gym(gym.settings, worker="1")
        other.close()


def test_a_task_set_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no task set"):
        Gym(GymSettings(taskset=str(tmp_path / "none"), out=str(tmp_path / "run")))
