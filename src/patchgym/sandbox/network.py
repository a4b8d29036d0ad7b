"""A network namespace that outlives the sandboxes in it."""

import fcntl
import os
import subprocess
from contextlib import ExitStack
from pathlib import Path

from patchgym.errors import SandboxError
from patchgym.sandbox.bwrap import first_process, status_file
from patchgym.sandbox.living import GET_USER_NAMESPACE
from patchgym.sandbox.prerequisites import refusal
from patchgym.sandbox.services import Network


class NamespaceNetwork(Network):
    """A ``bwrap`` that holds a network namespace, and the user namespace that owns it. ``namespaces`` are descriptors
    of both, in the order in which they are joined; ``enter`` is a command line that runs another program in them, with
    this machine's files before it."""

    def __init__(self, bwrap: Path, scratch: Path) -> None:
        """``scratch`` is the runner's scratch folder, by which a sweep knows whose this is. Blocking.

        Raises:
            SandboxError, PrerequisiteError: it cannot be made.
        """
        status = status_file()
        command = [str(bwrap), "--unshare-user", "--unshare-net", "--uid", "1000", "--gid", "1000"]
        command += ["--die-with-parent", "--new-session", "--dev-bind", "/", "/"]
        command += ["--setenv", "PATCHGYM_SCRATCH", f"{scratch}/network", "--json-status-fd", str(status), "--", "cat"]
        with ExitStack() as undo:
            undo.callback(os.close, status)
            try:
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    pass_fds=[status],
                    cwd="/",
                    start_new_session=True,
                    bufsize=0,
                )
            except OSError as error:
                raise SandboxError("Cannot start a network", why=str(error), mend="Raise ulimit -n or -u.") from error
            pid = self._holder(status)
        try:
            net = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
            user = fcntl.ioctl(net, GET_USER_NAMESPACE)
        except OSError as error:
            self._end()
            raise SandboxError("A network cannot be joined", why=str(error)) from error
        os.set_inheritable(user, False)
        self.namespaces: tuple[int, ...] = (user, net)
        joined = [f"--user=/proc/{pid}/ns/user", f"--net=/proc/{pid}/ns/net"]
        self.enter = ["nsenter", "--preserve-credentials", *joined, "--"]

    def close(self) -> None:
        """End it; the namespaces go with the last sandbox in them."""
        opened, self.namespaces = self.namespaces, ()
        for descriptor in opened:
            os.close(descriptor)
        if opened:
            self._end()

    def _holder(self, status: int) -> int:
        """The process in the namespaces, once it runs."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            process.stdin.write(b".")
            begun = process.stdout.read(1) == b"."
        except BrokenPipeError:
            begun = False
        if not begun:
            said = process.stderr.read().decode(errors="replace")
            self._end()
            raise refusal(said)
        return first_process(status)

    def _end(self) -> None:
        self._process.kill()
        self._process.communicate()
