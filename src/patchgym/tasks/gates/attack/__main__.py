"""Search a sandbox for the solution of its task and report what is found.

Standard input carries one JSON object (see ``secrets.Secrets``). Each finding goes as one JSON line to the descriptor
in ``PATCHGYM_REPORT_FD``: ``{"kind", "path", "evidence"}``, and at the end ``{"done": figures}``, whose ``stopped``
says what was left unsearched for want of time or bytes (empty for nothing).
"""

from __future__ import annotations

import json
import os
import sys
import time

from .archives import is_archive, look_inside
from .gitobjects import loose_object, pack_in
from .history import is_repository, look_into_pack, look_into_repository
from .leftovers import look_at_compiled, look_at_metadata, look_at_result
from .reach import look_around, look_at_socket
from .secrets import Report, Search, Secrets
from .walk import Found, Walk, is_socket, read

_FILE = 64 * 1024 * 1024


class Attack:
    """One search of one sandbox."""

    def __init__(self, secrets: Secrets, report: Report) -> None:
        self.deadline = time.monotonic() + secrets.seconds
        self.secrets = secrets
        self.search = Search(secrets, report)
        self.walk = Walk(secrets.workspace, secrets.skip, secrets.environment, self.deadline)
        self.stopped: list[str] = []
        self._key_names = {os.path.basename(path) for path in secrets.sources}
        self._test_files = {os.path.basename(path) for path in secrets.test_files}
        self._package = secrets.package.replace("-", "_").lower()

    def clock(self) -> bool:
        """Whether there is time and budget left; what is not searched for the want of it is noted."""
        if time.monotonic() > self.deadline:
            why = "time ran out"
        elif self.search.bytes > self.secrets.most_bytes:
            why = "too many bytes"
        else:
            return True
        if why not in self.stopped:
            self.stopped.append(why)
        return False

    def run(self) -> None:
        """Search everything within reach, within the bounds."""
        look_around(self.search)
        compiled = []
        for found in self.walk.every():
            if not self.clock():
                self.stopped[-1] += " at " + found.path
                break
            if found.is_socket:
                look_at_socket(found, self.search)
            elif found.path.endswith((".pyc", ".pyo")):
                compiled.append(found)
            else:
                self._file(found)
        for folder in self.walk.folders:
            look_at_metadata(folder, self.search)
            if is_repository(folder) and self.clock():
                look_into_repository(folder, self.search, self.clock)
        for found in compiled:  # last, for foreign bytecode may end the interpreter
            look_at_compiled(found, self.search)

    def _file(self, found: Found) -> None:
        name = os.path.basename(found.path)
        if found.deep:
            look_at_result(found, self.search)
        if not (found.deep or self._speaks(name)):
            return
        data = read(found.path, _FILE + 1)
        if len(data) > _FILE:
            self.stopped.append("too large: " + found.path)
        if not data and is_socket(found.path):  # one that is mounted looks like a file to a listing of its folder
            look_at_socket(found, self.search)
        elif is_archive(data[:512]):
            self.search.bytes += len(data)
            look_inside(data, found.path, self.search, self.clock)
        elif _in_repository(found.path):
            pass  # read with the repository
        elif pack_in(data) >= 0:
            look_into_pack(data, found.path, self.search, self.clock)
        else:
            kind, body = loose_object(data)
            self.search.look(body if kind else data, found.path, "git_object" if kind else None)

    def _speaks(self, name: str) -> bool:
        """Whether a file of the environment or the system may concern this task, by its name."""
        lower = name.lower().replace("-", "_")
        packed = lower.endswith(
            (".whl", ".zip", ".tar.gz", ".tgz", ".egg", ".bundle", ".pack", ".patch", ".diff", ".orig")
        )
        return (
            name in self._key_names
            or name in self._test_files
            or packed
            or (self._package in lower and lower.endswith((".py", ".patch", ".diff")))
        )


def _in_repository(path: str) -> bool:
    """Whether a file is an object or a pack of a git directory."""
    objects = os.path.dirname(os.path.dirname(path))
    return os.path.basename(objects) == "objects" and is_repository(os.path.dirname(objects))


def main() -> None:
    """Read the secrets, search, report."""
    channel = int(os.environ.pop("PATCHGYM_REPORT_FD"))
    os.set_inheritable(channel, False)
    attack = Attack(Secrets(json.load(sys.stdin)), Report(channel))
    started = time.monotonic()
    attack.run()
    attack.search.report.done(
        files=attack.walk.files,
        bytes=attack.search.bytes,
        seconds=round(time.monotonic() - started, 3),
        stopped="; ".join(filter(None, [*attack.stopped, attack.walk.stopped])),
    )


if __name__ == "__main__":
    main()
