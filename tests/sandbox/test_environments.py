"""Locked environments, built by the real uv from an index on loopback."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from patchgym.errors import EnvironmentBuildError, OfflineError, PrerequisiteError
from patchgym.records import Distribution, Environment
from patchgym.sandbox.environments import build_environment, lock_environment
from tests.sandbox.package_index import PackageIndex

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
PACKAGE = Distribution(name="Under.Test", version="2.1", entry_points="[console_scripts]\nunder = under:main\n")


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PackageIndex]:
    """An index that pip, and so uv, is set up for; nothing of this machine's set-up is left."""
    for name in list(os.environ):
        if name.startswith(("PIP_", "UV_")):
            monkeypatch.delenv(name)
    served = PackageIndex(tmp_path / "index")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", served.url)
    monkeypatch.setenv("PATCHGYM_CACHE", str(tmp_path / "default-cache"))
    yield served
    served.switch_off()


def ask(built: Path, code: str) -> str:
    """What the environment's Python prints."""
    done = subprocess.run([built / "bin" / "python", "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_an_environment_has_the_lock_and_the_metadata_of_the_package_without_its_code(
    index: PackageIndex, tmp_path: Path
) -> None:
    built = build_environment(Environment(python=PYTHON, lock=index.lock, distribution=PACKAGE), tmp_path / "cache")
    assert built.parent == tmp_path / "cache" / "environments"
    assert len(built.name) == 24
    assert ask(built, "import tinydemo; print(tinydemo.ANSWER)") == "42"
    metadata = "from importlib.metadata import entry_points as e, version as v; "
    assert ask(built, metadata + "print(v('under-test'), e(name='under')[0].value)").startswith("2.1 under:main")
    assert (
        ask(built, "import importlib.util as u; print(u.find_spec('under'), u.find_spec('under_test'))") == "None None"
    )


def test_what_was_built_or_fetched_once_serves_without_network(index: PackageIndex, tmp_path: Path) -> None:
    environment = Environment(python=PYTHON, lock=index.lock)
    built = build_environment(environment, tmp_path / "cache")
    index.switch_off()
    assert build_environment(environment, tmp_path / "cache") == built
    shutil.rmtree(built)
    again = build_environment(environment, tmp_path / "cache")
    assert ask(again, "import tinydemo; print(tinydemo.ANSWER)") == "42"


def test_without_network_and_cache_it_says_so(index: PackageIndex, tmp_path: Path) -> None:
    index.switch_off()
    with pytest.raises(OfflineError) as caught:
        build_environment(Environment(python=PYTHON, lock=index.lock), tmp_path / "cache")
    assert caught.value.exit_code == 3
    assert "PIP_INDEX_URL" in caught.value.mend
    with pytest.raises(OfflineError):
        lock_environment(["tinydemo"], PYTHON)
    assert not list((tmp_path / "cache" / "environments").iterdir())


def test_a_wrong_hash_is_refused(index: PackageIndex, tmp_path: Path) -> None:
    lock = index.lock.replace(index.sha256, "0" * 64)
    with pytest.raises(EnvironmentBuildError, match="Hash mismatch"):
        build_environment(Environment(python=PYTHON, lock=lock), tmp_path / "cache")


def test_a_lock_that_cannot_be_had_is_no_network_fault(index: PackageIndex, tmp_path: Path) -> None:
    lock = index.lock.replace("==1.0", "==9.9")
    with pytest.raises(EnvironmentBuildError, match=r"9\.9"):
        build_environment(Environment(python=PYTHON, lock=lock), tmp_path / "cache")
    with pytest.raises(EnvironmentBuildError, match="tinydemo"):
        lock_environment(["tinydemo>5"], PYTHON)


def test_a_python_that_is_not_here_is_named(tmp_path: Path) -> None:
    with pytest.raises(PrerequisiteError, match=r"3\.99") as caught:
        build_environment(Environment(python="3.99", lock=""), tmp_path / "cache")
    assert type(caught.value) is PrerequisiteError


def test_a_lock_may_not_install_the_package_under_test(tmp_path: Path) -> None:
    environment = Environment(python=PYTHON, lock="under_test==2.1 --hash=sha256:00\n", distribution=PACKAGE)
    with pytest.raises(EnvironmentBuildError, match="the package under test"):
        build_environment(environment, tmp_path / "cache")


def test_requirements_become_a_lock_with_hashes_that_builds(index: PackageIndex, tmp_path: Path) -> None:
    lock = lock_environment(["tinydemo>=0.5"], PYTHON)
    assert "tinydemo==1.0" in lock
    assert index.sha256 in lock
    built = build_environment(Environment(python=PYTHON, lock=lock), tmp_path / "cache")
    assert ask(built, "import tinydemo; print(tinydemo.ANSWER)") == "42"


def test_threads_that_ask_at_once_get_one_environment(tmp_path: Path) -> None:
    environment = Environment(python=PYTHON, lock="", distribution=PACKAGE)
    with ThreadPoolExecutor(4) as pool:
        built = set(pool.map(lambda _: build_environment(environment, tmp_path / "cache"), range(4)))
    assert len(built) == 1
    assert not [path for path in (tmp_path / "cache" / "environments").iterdir() if path.name.startswith(".")]


def test_an_environment_whose_interpreter_is_gone_is_built_again(tmp_path: Path) -> None:
    environment = Environment(python=PYTHON, lock="")
    built = build_environment(environment, tmp_path / "cache")
    (built / "bin" / "python").unlink()
    (built / "bin" / "python").symlink_to(tmp_path / "gone")
    assert ask(build_environment(environment, tmp_path / "cache"), "print(1)") == "1"
