"""Grades the workspace of a container: runs as ``python grade.py TESTS_FOLDER REWARD_FILE``. Stands alone: only the
standard library, and ``runner.py`` beside it.

What decides how tests are found and run is put back first: the files in ``files/``, and nothing of the kind beside
them. Outcomes come through a pipe; a line in it that the runner does not write, or a test that is not reported as
passed, is a 0. It runs under whatever Python the image has: annotations that an old one cannot evaluate are quoted.
"""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import threading
from typing import Any

HARNESS = frozenset(
    [
        "conftest.py",
        "pytest.ini",
        ".pytest.ini",
        "pytest.toml",
        ".pytest.toml",
        "tox.ini",
        "setup.cfg",
        "pyproject.toml",
        "sitecustomize.py",
        "usercustomize.py",
    ]
)
SUFFIXES = (".pth", ".pyc", ".pyo", ".egg-link")


def restore(files: str, root: str) -> None:
    """Lay ``files`` over ``root`` and remove what else could steer the tests."""
    wanted: set[str] = set()
    for folder, _, names in os.walk(files):
        wanted.update(os.path.relpath(os.path.join(folder, name), files) for name in names)
    for folder, _, names in os.walk(root):
        for name in names:
            path = os.path.join(folder, name)
            steers = name in HARNESS or name.endswith(SUFFIXES)
            if steers and os.path.relpath(path, root) not in wanted:
                os.unlink(path)
    for path in sorted(wanted):
        place = root
        for part in path.split("/")[:-1]:
            place = os.path.join(place, part)
            if os.path.islink(place) or os.path.isfile(place):
                os.unlink(place)
            if not os.path.isdir(place):
                os.mkdir(place)
        target = os.path.join(root, path)
        if os.path.isdir(target) and not os.path.islink(target):
            shutil.rmtree(target)
        elif os.path.lexists(target):
            os.unlink(target)
        shutil.copy(os.path.join(files, path), target, follow_symlinks=False)


def run(tests: str, spec: "dict[str, Any]") -> "tuple[list[str], bool]":
    """Run the tests that ``spec`` names; every line of the report, and whether they ended in time."""
    reading, writing = os.pipe()
    chunks: list[bytes] = []

    def read() -> None:
        with os.fdopen(reading, "rb") as stream:
            chunks.append(stream.read())

    reader = threading.Thread(target=read)
    reader.start()
    variables = {**os.environ, "PATCHGYM_REPORT_FD": str(writing), "PYTHONPATH": ""}
    command = [sys.executable, "-s", "-B", os.path.join(tests, "runner.py")]
    request = {"root": spec["root"], "paths": spec["paths"], "ids": spec["ids"], "tracebacks": 0}
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, pass_fds=[writing], env=variables, start_new_session=True
    )
    os.close(writing)
    try:
        process.communicate(json.dumps(request).encode(), timeout=spec["timeout_s"])
        in_time = True
    except subprocess.TimeoutExpired:
        in_time = False
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, 9)  # whatever the tests left running holds the pipe
    process.wait()
    reader.join(10)
    return b"".join(chunks).decode("utf-8", "backslashreplace").split("\n")[:-1], in_time


def passed(lines: "list[str]", ids: "set[str]") -> "set[str] | None":
    """The tests that the report says passed; None where it carries a line that the runner does not write."""
    found: dict[str, str] = {}
    done = False
    for line in lines:
        try:
            record = json.loads(line)
        except ValueError:
            return None
        keys = set(record) if isinstance(record, dict) else set()
        if done or (keys == {"id", "outcome", "text"} and (record["id"] not in ids or record["id"] in found)):
            return None
        if keys == {"id", "outcome", "text"}:
            found[record["id"]] = record["outcome"]
        elif keys == {"done"}:
            done = True
        elif keys != {"collect", "outcome", "text"}:
            return None
    return {test for test, outcome in found.items() if outcome == "passed"} if done else set()


def main(tests: str, reward: str) -> int:
    """Grade and write the reward; 0 where all went as it should, whatever the reward."""
    with open(os.path.join(tests, "spec.json"), encoding="utf-8") as stream:
        spec = json.load(stream)
    restore(os.path.join(tests, "files"), spec["root"])
    lines, in_time = run(tests, spec)
    good = passed(lines, set(spec["ids"]))
    solved = in_time and good is not None and set(spec["ids"]) <= good
    with open(reward, "w", encoding="utf-8") as stream:
        stream.write("1\n" if solved else "0\n")
    says = "the report was interfered with" if good is None else f"{len(good)} of {len(spec['ids'])} passed"
    print(says if in_time else f"{says}, and time ran out")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
