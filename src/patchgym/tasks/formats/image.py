"""A container image for a task with files: a Dockerfile, and the files that it copies beside the workspace."""

import json
import re
import shlex

from patchgym.records import Environment, Task
from patchgym.tasks.formats.folders import Folder, text_file

LOCK = "requirements.lock"
_SITE = "site"


def dockerfile(task: Task, root: str, *, repository: bool = False) -> str:
    """The Dockerfile of an image that has ``workspace`` at ``root`` and what the task's environment locks, by hash.

    It starts from the official image of the environment's Python, or from the environment's own image, which has
    everything installed (hidden tests too: they are taken out). With ``repository``, the workspace becomes a git
    repository, or a commit of the one that is there.
    """
    environment = task.environment
    own = environment.image is not None
    slim = "" if repository else "-slim"  # only the full image has git
    lines = [
        f"FROM {environment.image or f'python:{environment.python}{slim}'}",
        "ENV TZ=UTC LC_ALL=C.UTF-8 PYTHONHASHSEED=0 PYTHONDONTWRITEBYTECODE=1",
    ]
    if not own and environment.lock.strip():
        install = "python -m pip install --no-cache-dir --no-deps --require-hashes"
        lines += [f"COPY {LOCK} /opt/patchgym/{LOCK}", f"RUN {install} -r /opt/patchgym/{LOCK}"]
    if not own and environment.distribution is not None:
        place = '"$(python -c "import sysconfig; print(sysconfig.get_path(\'purelib\'))")/"'
        lines += [f"COPY {_SITE}/ /opt/patchgym/{_SITE}/", f"RUN cp -r /opt/patchgym/{_SITE}/. {place}"]
    if not own:
        roots = ":".join(f"{root}/{path}".rstrip("/") for path in environment.pythonpath)
        lines.append(f"ENV PYTHONPATH={json.dumps(roots)}")
    lines += [f"COPY workspace/ {root}/", f"WORKDIR {root}"]
    removed = sorted(path for path in task.tests.hidden_files if path not in task.tests.visible_files)
    if own and removed:
        lines.append(f"RUN rm -f -- {' '.join(shlex.quote(path) for path in removed)}")
    if repository:
        who = "-c user.name=patchgym -c user.email=patchgym@localhost"
        add = "git add -A" if own else "git init -q && git add -A -f"
        lines.append(f"RUN {add} && git {who} commit -q --allow-empty -m 'The task'")
    return "\n".join(lines) + "\n"


def image_files(environment: Environment) -> Folder:
    """What the Dockerfile copies beside the workspace: the lock, and the metadata of the package under test."""
    files: Folder = {}
    if environment.image is not None:
        return files
    if environment.lock.strip():
        files[LOCK] = text_file(environment.lock)
    package = environment.distribution
    if package is not None:
        name = re.sub(r"[-_.]+", "_", package.name).lower()
        folder = f"{_SITE}/{name}-{package.version}.dist-info"
        metadata = f"Metadata-Version: 2.1\nName: {package.name}\nVersion: {package.version}\n"
        files[f"{folder}/METADATA"] = text_file(metadata)
        if package.entry_points:
            files[f"{folder}/entry_points.txt"] = text_file(package.entry_points)
    return files
