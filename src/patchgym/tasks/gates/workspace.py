"""An attack on a task's own workspace: does anything that the agent can read or reach hold the solution?

The search is a program of its own (``attack/``) and runs in the very sandbox that an agent would get, plus itself as a
read-only mount. What it looks for goes in through standard input, and nothing of it stays: the sandbox is closed
afterwards. What it cannot see: content that is encrypted, split or renamed word by word, archives inside archives more
than two deep, and files beyond the bounds on time and bytes, which it names.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from patchgym.content import ObjectStore
from patchgym.records import Task
from patchgym.sandbox import WORKSPACE, ExecResult, SandboxFactory
from patchgym.tasks.gates.findings import Finding, one_line
from patchgym.tasks.gates.solution import answer_of, fix_blocks, hidden_blocks, key_sources
from patchgym.testrun import Built, sandbox_spec

CHECK = "workspace"
_ATTACK = Path(__file__).with_name("attack")
_MOUNT = "/run/patchgym/search/attack"
_START = (
    "import sys, runpy; sys.path.insert(0, '/run/patchgym/search'); runpy.run_module('attack', run_name='__main__')"
)
_INDEX = ("pypi.org:443", "files.pythonhosted.org:443", "151.101.0.223:443")
_SYSTEM = "/usr"
_GRACE_SECONDS = 30.0
_GIT = "Leave .git, packs and bundles out of the workspace, or cut the history off at the base commit."
_OUT = "Keep network none, and pass no proxy or index settings into the sandbox."
_MENDS: Mapping[str, str] = {
    "fixed_source": "Remove that file from the workspace or the environment, or choose another bug.",
    "installed_source": "Install the metadata of the package alone, not its code.",
    "compiled_fix": "Remove compiled files: tests and imports make them anew.",
    "archive": "Remove that archive, or clear that cache.",
    "hidden_test": "Take the test out of everything that the agent can read, or do not count it as hidden.",
    "stale_result": "Remove the results of earlier runs.",
    "git_object": _GIT,
    "git_ref": _GIT,
    "git_tag": _GIT,
    "git_stash": _GIT,
    "git_reflog": _GIT,
    "git_unreachable": _GIT,
    "network": _OUT,
    "proxy": _OUT,
    "socket": _OUT,
}


_MACHINE = (
    "This machine's own Python has the package installed, and sandboxes show it: uninstall it there, run patchgym with "
    "an interpreter that lacks it, or make tasks of another package."
)


@dataclass(frozen=True)
class Bounds:
    """How much one attack may take: wall ``seconds`` and ``bytes`` read. What is left unsearched is a finding."""

    seconds: float = 60.0
    bytes: int = 512 * 1024**2


async def attack_workspace(
    task: Task, objects: ObjectStore, factory: SandboxFactory, built: Built, bounds: Bounds = Bounds()
) -> tuple[Finding, ...]:
    """What the attack finds in a fresh sandbox of ``task``; ``built`` is its environment. The fixed
    tree is written to ``objects``.

    Raises:
        SandboxError: the sandbox could not be made or was lost.
        PrerequisiteError: this machine cannot make such sandboxes.
        DataError: the task's objects are not in the store.
        PatchError: the gold patch does not parse or does not apply.
    """
    environment = str(built.folder.absolute()) if built.folder is not None else _SYSTEM
    request = json.dumps(_secrets(task, objects, environment, bounds)).encode()
    spec = sandbox_spec(task.workspace, task.environment, built)
    sandbox = await factory.create(replace(spec, mounts={**spec.mounts, _MOUNT: _ATTACK}))
    try:
        result = await sandbox.exec(
            ["python", "-I", "-S", "-B", "-c", _START],
            timeout_s=bounds.seconds + _GRACE_SECONDS,
            stdin=request,
            report=True,
        )
    finally:
        await sandbox.close()
    return _findings(task, result, environment)


def _secrets(task: Task, objects: ObjectStore, environment: str, bounds: Bounds) -> dict[str, object]:
    answer = answer_of(task, objects)
    distribution = task.environment.distribution
    return {
        "workspace": WORKSPACE,
        "skip": ["/run/patchgym"],
        "environment": environment,
        "package": distribution.name if distribution else task.source.repo.rpartition("/")[2],
        "seconds": bounds.seconds,
        "bytes": bounds.bytes,
        "fix": fix_blocks(answer),
        "tests": hidden_blocks(task, answer),
        "test_files": sorted(task.tests.hidden_files),
        "names": sorted(answer.new_names),
        "sources": key_sources(task, answer, objects),
        "commits": [task.source.fix_commit] if task.source.fix_commit else [],
        "index": _INDEX,
        "ports": [port for service in task.environment.services for port in service.ports],
    }


def _findings(task: Task, result: ExecResult, environment: str) -> tuple[Finding, ...]:
    found: list[Finding] = []
    unsearched = f"The search ended early ({result.ending}, exit code {result.exit_code})."
    for line in result.report.splitlines():
        match _record(line):
            case {"kind": str(kind), "path": str(path), "evidence": str(evidence)} if kind in _MENDS:
                own = path.startswith((f"{WORKSPACE}/", f"{environment}/"))
                installed = kind in ("fixed_source", "compiled_fix", "installed_source")
                mend = _MACHINE if installed and not own else _MENDS[kind]
                found.append(_finding(task, kind, path, evidence, mend))
            case {"done": {"stopped": str(stopped)}}:
                unsearched = stopped
            case _:
                unsearched = f"The search wrote something else: {line[:80]!r}."
    if unsearched:
        told = f"{unsearched} {result.stderr.decode('utf-8', 'replace')[-200:]}"
        mend = "Make the workspace smaller, or give the search more time and bytes."
        found.append(_finding(task, "unsearched", "", told, mend))
    return tuple(sorted(set(found), key=lambda one: (one.kind, one.where, one.evidence)))


def _finding(task: Task, kind: str, path: str, evidence: str, mend: str) -> Finding:
    return Finding(task=task.id, check=CHECK, kind=kind, where=one_line(path), evidence=one_line(evidence), mend=mend)


def _record(line: bytes) -> object:
    try:
        return json.loads(line)
    except ValueError:
        return None
