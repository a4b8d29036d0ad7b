"""Which groups are flat."""

from patchgym.train import PolicyGradientSettings, flat_groups
from tests.records_for_tests import make_report, make_trajectory


def test_groups_without_a_difference_are_flat_and_others_are_not() -> None:
    rewards = {"same": (0.3, 0.3), "apart": (0.0, 1.0), "near": (0.30, 0.32)}
    attempts = [
        make_trajectory(at, task_id=name, report=make_report(), reward=value)
        for name, values in rewards.items()
        for at, value in enumerate(values)
    ]
    attempts += [make_trajectory(at, task_id="lost") for at in range(2)]
    assert flat_groups(attempts, PolicyGradientSettings()) == {"round-1/same"}
    assert flat_groups(attempts, PolicyGradientSettings(algorithm="grpo")) == {"round-1/same", "round-1/near"}
    assert flat_groups(attempts, PolicyGradientSettings(algorithm="ppo")) == set()
