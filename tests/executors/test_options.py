"""``--executor`` and ``--worker`` on the command line."""

import subprocess
import sys
from collections.abc import Sequence

import click
import pytest
from click.testing import CliRunner

from patchgym.cli.executing import Afar, asked_afar, executor_options, refuse_afar
from patchgym.errors import ConfigError, UsageError
from patchgym.executors import Need
from patchgym.reward import RewardSettings
from patchgym.rollout import PolicyOptions, RolloutSettings
from patchgym.rollout.sent import AttemptSpec, attempt_spec


def asked(*arguments: str) -> Afar | None:
    """What a command with these arguments is asked for."""
    found: list[Afar | None] = []

    @click.command()
    @executor_options
    def command() -> None:
        found.append(asked_afar())

    done = CliRunner().invoke(command, list(arguments))
    if done.exception is not None:
        raise done.exception
    return found[0]


def test_work_is_done_here_unless_asked_for_elsewhere() -> None:
    assert asked() is None
    assert asked("--executor", "local") is None


def test_a_worker_takes_what_it_is_told_to_and_the_usual_of_the_rest() -> None:
    afar = asked("--executor", "ray", "--worker", "cpus=0.5", "--worker", "slots=7")
    assert afar is not None
    assert afar.settings.need(Need(memory_bytes=5, gpus=1.0)) == Need(0.5, 5, 1.0, 7)


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        (["--worker", "cpus=1"], UsageError, "--worker is for workers on a cluster"),
        (["--executor", "ray", "--worker", "cpu=1"], ConfigError, "Did you mean cpus?"),
        (["--executor", "ray", "--worker", "slots=0"], ConfigError, "slots"),
        (["--executor", "ray", "--worker", "slots"], UsageError, "has no value"),
    ],
)
def test_wrong_options_are_refused(arguments: Sequence[str], error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said.replace("?", r"\?")):
        asked(*arguments)


def test_what_is_done_here_alone_refuses_a_cluster() -> None:
    @click.command()
    @executor_options
    def command() -> None:
        refuse_afar("The exploit corpus")

    runner = CliRunner()
    assert runner.invoke(command, []).exception is None
    assert isinstance(runner.invoke(command, ["--executor", "ray"]).exception, UsageError)


def test_ray_that_is_not_installed_is_told_with_what_installs_it() -> None:
    code = "import sys\nsys.modules['ray'] = None\nfrom patchgym.executors.cluster import RayCluster\n"
    code += "from patchgym.errors import PrerequisiteError\n"
    code += "try:\n    RayCluster.connect('ray')\nexcept PrerequisiteError as error:\n    print(error.what, error.mend)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "Ray is not installed Run: pip install 'patchgym[ray]'"


def test_nothing_of_ray_is_loaded_for_local_work() -> None:
    code = "import sys, patchgym.executors, patchgym.rollout, patchgym.cli.rollout, patchgym.cli.bench\n"
    code += "print('ray' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def spec_of(policy: str) -> AttemptSpec:
    return attempt_spec(
        "rollout", policy, PolicyOptions(batch=9), RolloutSettings(), RewardSettings(), 7, sandbox="namespace", gpus=1.0
    )


@pytest.mark.parametrize("policy", ["golden", "scripted:absent.json", "noisy:2", "local:", "vllm:"])
def test_a_policy_that_there_is_not_is_refused_before_anything_is_sent(policy: str) -> None:
    with pytest.raises(UsageError):
        spec_of(policy)


def test_a_local_model_takes_a_gpu_and_as_many_episodes_as_it_samples_at_once() -> None:
    need = spec_of("local:somewhere").need
    assert (need.gpus, need.slots) == (1.0, 9)
    assert spec_of("openai:model").need.gpus == 0.0
