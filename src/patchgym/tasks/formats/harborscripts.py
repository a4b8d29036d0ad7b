"""The scripts of an exported Harbor directory: what grades in the container, and what solves."""

import json
import shlex
from collections.abc import Mapping
from importlib.resources import files as package_files

from patchgym.content import Entry, ObjectStore
from patchgym.records import Task
from patchgym.tasks.formats.folders import File, Folder, text_file

_TEST = """\
#!/bin/bash
# Writes 1 to the reward file where every test in spec.json passes, else 0.
set -u
here="$(cd "$(dirname "${{BASH_SOURCE[0]}}")" && pwd)"
mkdir -p /logs/verifier
echo 0 > /logs/verifier/reward.txt
{activate}cd /
python -s -B "$here/grade.py" "$here" /logs/verifier/reward.txt
"""
_SOLVE = """\
#!/bin/bash
# Does what gold.patch says: files/ holds every file as the patch leaves it.
set -eu
here="$(cd "$(dirname "${{BASH_SOURCE[0]}}")" && pwd)"
cd {root}
{remove}{copy}"""
# The environments that images of SWE-bench, SWE-smith and R2E-Gym have their packages in.
_ACTIVATE = """\
if [ -f /opt/miniconda3/bin/activate ]; then source /opt/miniconda3/bin/activate testbed; fi
if [ -d {root}/.venv/bin ]; then PATH="{root}/.venv/bin:$PATH"; fi
"""


def grading_files(task: Task, objects: ObjectStore, pristine: Mapping[str, Entry], root: str) -> Folder:
    """``tests/``: the script, the program that it starts, patchgym's own test runner, what is asked, and the files that
    are laid over the workspace first (``pristine`` ones of the workspace, and the hidden ones)."""
    own = task.environment.image is None and task.environment.dockerfile is None
    laid = {path: File(entry.mode, objects.get(entry.id)) for path, entry in pristine.items()}
    hidden = {**task.tests.visible_files, **task.tests.hidden_files}
    laid |= {path: File(laid[path].mode if path in laid else 0o100644, objects.get(hidden[path])) for path in hidden}
    spec = {
        "root": root,
        "paths": list(task.environment.pythonpath),
        "ids": [*task.tests.fail_to_pass, *task.tests.pass_to_pass],
        "timeout_s": task.tests.timeout_s,
    }
    activate = "" if own else _ACTIVATE.format(root=root)
    return {
        "tests/test.sh": text_file(_TEST.format(activate=activate), run=True),
        "tests/grade.py": text_file(package_files("patchgym.tasks.formats").joinpath("grade.py").read_text("utf-8")),
        "tests/runner.py": text_file(package_files("patchgym.testrun").joinpath("runner.py").read_text("utf-8")),
        "tests/spec.json": text_file(json.dumps(spec, indent=1) + "\n"),
        **{f"tests/files/{path}": file for path, file in laid.items()},
    }


def solution_files(
    task: Task, objects: ObjectStore, before: Mapping[str, Entry], after: Mapping[str, Entry], root: str
) -> Folder:
    """``solution/``: the gold patch for people, and for the container, which may have no program that applies patches,
    the files as it leaves them."""
    changed = {path: entry for path, entry in after.items() if before.get(path) != entry}
    removed = sorted(before.keys() - after.keys())
    remove = f"rm -f -- {' '.join(shlex.quote(path) for path in removed)}\n" if removed else ""
    copy = 'cp -a --remove-destination "$here/files/." .\n' if changed else ""
    return {
        "solution/solve.sh": text_file(_SOLVE.format(root=shlex.quote(root), remove=remove, copy=copy), run=True),
        "solution/gold.patch": text_file(task.gold_patch),
        **{
            f"solution/files/{path}": File(entry.mode, objects.get(entry.id)) for path, entry in sorted(changed.items())
        },
    }
