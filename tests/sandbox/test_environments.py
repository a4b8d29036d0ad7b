"""Locked environments, built by the real uv from an index on loopback."""

import io
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from patchgym.errors import BuildFailure, EnvironmentBuildError, OfflineError, PrerequisiteError
from patchgym.records import Distribution, Environment
from patchgym.sandbox.environments import build_environment, installed_pythons, lock_environment
from tests.sandbox.package_index import PackageIndex, make_wheel

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


def sdist_that_runs(command: str) -> bytes:
    """A source distribution whose build runs a command of this machine: a compiler, say."""
    backend = f"import subprocess\ndef build_wheel(*a, **k):\n    subprocess.run({command!r}.split(), check=True)\n"
    pyproject = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    pyproject += '[project]\nname = "ext"\nversion = "1.0"\n'
    info = "Metadata-Version: 2.2\nName: ext\nVersion: 1.0\n"
    files = {"backend.py": backend, "pyproject.toml": pyproject, "PKG-INFO": info, "ext.c": "#include <nosuch/lib.h>\n"}
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(f"ext-1.0/{name}")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    return out.getvalue()


@pytest.mark.parametrize(
    ("command", "kind"),
    [
        ("cc -c ext.c", BuildFailure.MISSING_SYSTEM_LIBRARY),
        ("no-such-arch-gcc -c ext.c", BuildFailure.COMPILER),
        ("false", BuildFailure.BUILD_BACKEND),
    ],
)
@pytest.mark.parametrize("columns", ["40", "200"])
def test_a_build_that_fails_says_what_it_lacks(
    index: PackageIndex,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    kind: BuildFailure,
    columns: str,
) -> None:
    monkeypatch.setenv("COLUMNS", columns)  # uv breaks its messages to that width
    if command.startswith("cc") and shutil.which("cc") is None:
        pytest.skip("LOUD SKIP: no C compiler here")
    index.add("ext", "ext-1.0.tar.gz", sdist_that_runs(command))
    lock = lock_environment(["ext"], PYTHON, builds=True)
    with pytest.raises(EnvironmentBuildError) as caught:
        build_environment(Environment(python=PYTHON, lock=lock), tmp_path / "cache")
    assert caught.value.kind is kind, caught.value.why


def test_nothing_is_built_unless_it_is_allowed(index: PackageIndex, tmp_path: Path) -> None:
    index.add("ext", "ext-1.0.tar.gz", sdist_that_runs(f"touch {tmp_path / 'ran'}"))
    with pytest.raises(EnvironmentBuildError) as caught:
        lock_environment(["ext"], PYTHON)
    assert caught.value.kind is BuildFailure.NEEDS_BUILD
    assert not (tmp_path / "ran").exists()


def test_a_lock_of_wheels_stays_one_of_wheels(index: PackageIndex, tmp_path: Path) -> None:
    index.add("ext", "ext-1.0-py3-none-any.whl", make_wheel("ext", "1.0", {"ext.py": ""}))
    index.add("ext", "ext-1.0.tar.gz", sdist_that_runs(f"touch {tmp_path / 'ran'}"))
    lock = lock_environment(["ext"], PYTHON)
    del index.files["ext"]["ext-1.0-py3-none-any.whl"]
    shutil.rmtree(tmp_path / "default-cache")
    with pytest.raises(EnvironmentBuildError):
        build_environment(Environment(python=PYTHON, lock=lock), tmp_path / "cache")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("requirements", "kind"),
    [
        (["tinydemo>5"], BuildFailure.RESOLVER),
        (["tinydemo<1", "tinydemo>=1"], BuildFailure.RESOLVER),
        (["nothing-of-that-name"], BuildFailure.RESOLVER),
    ],
)
def test_an_impossible_requirement_is_the_resolvers(
    index: PackageIndex, requirements: list[str], kind: BuildFailure
) -> None:
    with pytest.raises(EnvironmentBuildError) as caught:
        lock_environment(requirements, PYTHON)
    assert caught.value.kind is kind, caught.value.why


def test_the_kinds_of_a_bad_lock(index: PackageIndex, tmp_path: Path) -> None:
    mine = Environment(python=PYTHON, lock=index.lock, distribution=Distribution(name="tinydemo", version="1.0"))
    other = Environment(python=PYTHON, lock=index.lock.replace(index.sha256, "0" * 64))
    kinds = []
    for environment in (mine, other):
        with pytest.raises(EnvironmentBuildError) as caught:
            build_environment(environment, tmp_path / "cache")
        kinds.append(caught.value.kind)
    assert kinds == [BuildFailure.NEEDS_ITSELF, BuildFailure.HASH_MISMATCH]


def test_a_lock_is_as_the_index_was_on_a_day(index: PackageIndex) -> None:
    for version, day in (("1.0", "2024-03-01"), ("2.0", "2025-03-01")):
        wheel = make_wheel("dated", version, {"dated.py": ""})
        index.add("dated", f"dated-{version}-py3-none-any.whl", wheel, uploaded=f"{day}T12:00:00Z")
    assert "dated==1.0" in lock_environment(["dated"], PYTHON, exclude_newer="2024-12-31")
    assert "dated==1.0" in lock_environment(["dated"], PYTHON, exclude_newer="2024-03-01")
    assert "dated==2.0" in lock_environment(["dated"], PYTHON, exclude_newer="2025-03-01")
    with pytest.raises(EnvironmentBuildError) as caught:
        lock_environment(["dated"], PYTHON, exclude_newer="2023-12-31")
    assert caught.value.kind is BuildFailure.RESOLVER


def test_an_index_without_upload_times_cannot_be_asked_as_of_a_day(index: PackageIndex) -> None:
    with pytest.raises(EnvironmentBuildError) as caught:
        lock_environment(["tinydemo"], PYTHON, exclude_newer="2024-12-31")
    assert caught.value.kind is BuildFailure.NO_UPLOAD_TIMES


def test_the_running_python_comes_first() -> None:
    assert installed_pythons()[0] == PYTHON
    assert len(set(installed_pythons())) == len(installed_pythons())
