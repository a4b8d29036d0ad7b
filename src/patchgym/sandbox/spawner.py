"""Starts commands inside living sandboxes, from outside. Stands alone: only the standard library.

The runner talks to one such process over a socket. Each message brings the descriptors of a socket and of the
namespaces of one sandbox, and is answered by a *keeper*: a child, forked ahead, that joins the namespaces, gives up
every privilege and serves commands over that socket, one at a time. A command is a message of JSON (in a memory file,
where it is long) with its streams and control groups; it is one more fork, born inside. The keeper itself never appears
inside: nothing there can see, stop or imitate it. It kills what a command leaves behind and tells how it ended.

A keeper says ``{"begun": pid}`` or ``{"refused": reason}`` or ``{"not_run": reason}``, each in a message, and at the
end ``{"exit": code}`` or ``{"signal": number}``, with ``kept``: processes that may go on. A message without descriptors
asks for the end of the command; when the socket closes (the sandbox ends, or the runner is gone) all of it is killed.
Neither this process nor a keeper can be dumped or traced by processes inside: the flag that forbids it holds until a
program is executed.
"""

import ctypes
import errno
import gc
import json
import os
import resource
import select
import signal
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

_MOST_BYTES, _MOST_DESCRIPTORS, _MOST_TOLD = 1 << 16, 32, 1000
_PATIENCE_S, _GRACE_S = 10.0, 1.0
_SET_PDEATHSIG, _SET_DUMPABLE, _CAPBSET_DROP, _SET_NO_NEW_PRIVS, _SET_SECCOMP, _CAP_AMBIENT = 1, 4, 24, 38, 22, 47
_FILTER, _CLEAR_ALL = 2, 4
_CAPABILITIES = 64
_TAKEN, _NO_MORE, _IN_A_FILE = b"t", b"n", b"@"
_CAPABILITY_VERSION = 0x20080522
_libc = ctypes.CDLL(None, use_errno=True)


class _Program(ctypes.Structure):
    """``struct sock_fprog``: a filter of system calls."""

    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def main() -> None:
    """Serve until the runner closes the socket, or is gone. A keeper is forked ahead of the sandbox that it will serve,
    so that no command waits for that."""
    control = socket.socket(fileno=int(sys.argv[1]))
    filter_ = bytes.fromhex(sys.argv[2])
    _call("prctl", _SET_DUMPABLE, 0, 0, 0, 0)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # keepers are nobody's concern
    gc.disable()
    gc.freeze()  # what is never looked at again is never copied for a fork
    taking, taken = os.pipe()
    server = os.getpid()
    while True:
        try:
            keeper = os.fork()
        except OSError as error:
            _refuse(control, f"fork: {error}")
            continue
        if keeper == 0:
            os.close(taking)
            _keep(control, taken, filter_, server)
        if not _is_taken(taking, keeper):
            _outlive_keepers()
            return


def _outlive_keepers() -> None:
    """Wait, not for long, for keepers that are about to end: else the runner would inherit them, where it is the first
    process of a container, and never clear them away."""
    until = time.monotonic() + _GRACE_S
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0] == 0 and time.monotonic() < until:
            time.sleep(0.001)


def _refuse(control: socket.socket, reason: str) -> None:
    data, descriptors, _, _ = socket.recv_fds(control, _MOST_BYTES, _MOST_DESCRIPTORS)
    if not data:
        sys.exit()
    _tell(descriptors[0], refused=reason)
    for descriptor in descriptors:
        os.close(descriptor)


def _is_taken(taking: int, keeper: int) -> bool:
    """Wait until the waiting keeper has a sandbox, or is gone; False where there will be no more sandboxes."""
    try:
        process = os.pidfd_open(keeper)
    except ProcessLookupError:  # it is gone already, but may have told
        return select.select([taking], [], [], 0)[0] == [] or os.read(taking, 1) == _TAKEN
    try:
        ready = select.select([taking, process], [], [])[0]
        return taking not in ready or os.read(taking, 1) == _TAKEN
    finally:
        os.close(process)


def _keep(control: socket.socket, taken: int, filter_: bytes, parent: int) -> None:
    """Wait for a sandbox, and serve its commands to its end. Does not return."""
    _die_with(parent)
    data, descriptors, _, _ = socket.recv_fds(control, _MOST_BYTES, _MOST_DESCRIPTORS)
    os.write(taken, _TAKEN if data else _NO_MORE)
    if not data:
        os._exit(0)
    os.close(taken)
    control.close()
    status, *namespaces = descriptors
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for namespace in namespaces:
            _call("setns", namespace, 0)
            os.close(namespace)
        _die_with(parent)  # joining a user namespace has undone it
        _seal(filter_)
        gc.freeze()
        requests = socket.socket(fileno=status)
        while True:
            data, descriptors, _, _ = socket.recv_fds(requests, _MOST_BYTES, _MOST_DESCRIPTORS)
            if not data:
                os._exit(0)
            if descriptors:  # else the end is wanted of a command that has ended
                _serve(requests, data, descriptors)
    except (OSError, ValueError) as error:
        _tell(status, refused=str(error))
    os._exit(1)


def _seal(filter_: bytes) -> None:
    """Give up every privilege, for this process and all that it starts."""
    for number in range(_CAPABILITIES):
        if _libc.prctl(_CAPBSET_DROP, number, 0, 0, 0) == -1:  # beyond the last that this kernel knows
            break
    _libc.prctl(_CAP_AMBIENT, _CLEAR_ALL, 0, 0, 0)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    _call("capset", header, (ctypes.c_uint32 * 6)())
    _call("prctl", _SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if filter_:
        program = _Program(len(filter_) // 8, filter_)
        _call("prctl", _SET_SECCOMP, _FILTER, ctypes.byref(program), 0, 0)


def _serve(requests: socket.socket, data: bytes, others: list[int]) -> None:
    """One command, from its start to the end of all that it left behind."""
    status = requests.fileno()
    if data == _IN_A_FILE:
        given, *others = others
        with open(given, "rb") as file:
            data = file.read()
    request = json.loads(data)
    streams, others = others[: request["streams"]], others[request["streams"] :]
    members, groups = others[: request["members"]], others[request["members"] :]
    keeper = os.getpid()
    child = os.fork()
    if child == 0:
        _become(request, status, streams, groups, keeper)
    for descriptor in (*streams, *groups):
        os.close(descriptor)
    _tell(status, begun=child)
    ended = os.pidfd_open(child)
    ready = select.poll()
    ready.register(ended, select.POLLIN)
    ready.register(status, select.POLLIN)
    wanted = all(descriptor != status for descriptor, _ in ready.poll())
    if not wanted:
        os.kill(child, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if any(os.pread(one, 1, 0) == b"" for one in members):
        kept = []  # its control group is empty
    else:
        kept = _clear(request["kept"], keep=request["keep"] and wanted)
    for descriptor in (ended, *members):
        os.close(descriptor)
    _tell(status, **({"signal": -code} if code < 0 else {"exit": code}), kept=kept)


def _become(request: dict[str, Any], status: int, streams: Sequence[int], groups: Sequence[int], keeper: int) -> None:
    """Become the command; when that fails, say so and end. Does not return."""
    try:
        os.setsid()
        for group in groups:
            os.write(group, b"0")
        for what, most in request["limits"]:
            resource.setrlimit(what, (most, most))
        status = _place(streams, status)
        variables = request["variables"]
        if len(streams) > 3:
            variables[request["channel"]] = "3"
        _die_with(keeper)
        for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        os.umask(0o022)
        os.chdir(request["cwd"])
        _execute([bytes.fromhex(part) for part in request["argv"]], variables)
    except (OSError, ValueError) as error:
        _tell(status, not_run=str(error)[:_MOST_TOLD])
    os._exit(127)


def _place(streams: Sequence[int], status: int) -> int:
    """Give the streams the numbers from 0 (the report channel, where there is one, is number 3) and close every other
    descriptor but that of the status, whose number comes back: the command does not inherit it."""
    beyond = _MOST_DESCRIPTORS * 4
    apart = [os.dup2(descriptor, beyond + at) for at, descriptor in enumerate((*streams, status))]
    for number, descriptor in enumerate(apart):
        os.dup2(descriptor, number)
    os.closerange(len(apart), 1 << 20)
    os.set_inheritable(len(streams), False)
    return len(streams)


def _execute(argv: list[bytes], variables: dict[str, str]) -> None:
    """``execvp`` by the command's own ``PATH``.

    Raises:
        OSError: there is no such program, or it cannot be executed.
    """
    refused = FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    folders = [b""] if b"/" in argv[0] else os.fsencode(variables.get("PATH", "")).split(b":")
    failed: OSError = refused
    for folder in folders:
        try:
            os.execve(os.path.join(folder, argv[0]), argv, variables)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            failed = error
    raise OSError(failed.errno, f"{os.fsdecode(argv[0])}: {failed.strerror}")


def _die_with(parent: int) -> None:
    """End when ``parent``, our parent, does."""
    _call("prctl", _SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() not in (parent, 0):
        os._exit(1)


def _clear(kept: list[list[int]], keep: bool) -> list[list[int]]:
    """Kill what is in the sandbox but its first process and what earlier commands were told to leave running; with
    ``keep``, nothing. What may go on, as process ids inside with their starting times."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if not keep:
                _kill_all(kept)
            os.write(writing, json.dumps(_living() if keep else [one for one in kept if one in _living()]).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with open(reading, "rb") as file:
        said = file.read()
    os.waitpid(child, 0)
    return list(json.loads(said)) if said else []


def _kill_all(kept: list[list[int]]) -> None:
    until = time.monotonic() + _PATIENCE_S
    while time.monotonic() < until:
        if kept:
            others = _strangers(kept)
            for process in others:
                try:
                    os.kill(process, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            if not others:
                return
        else:
            try:
                os.kill(-1, signal.SIGKILL)
            except ProcessLookupError:
                return
        time.sleep(0.0005)


def _living() -> list[list[int]]:
    """Every process here but the first and this one: its id, when it started, its parent."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) not in (1, os.getpid()):
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    fields = file.read().rpartition(b")")[2].split()
            except OSError:
                continue
            if fields[0] != b"Z":
                found.append([int(name), int(fields[19])])
    return found


def _strangers(kept: list[list[int]]) -> list[int]:
    """The processes that are neither kept nor descend from one that is."""
    living = _living()
    known = {process for process, started in living if [process, started] in kept}
    rest = [process for process, _ in living if process not in known]
    parents = {}
    for process in rest:
        try:
            with open(f"/proc/{process}/stat", "rb") as file:
                parents[process] = int(file.read().rpartition(b")")[2].split()[1])
        except OSError:
            continue
    while True:
        more = {process for process, parent in parents.items() if parent in known and process not in known}
        if not more:
            return [process for process in parents if process not in known]
        known |= more


def _tell(status: int, **said: object) -> None:
    with suppress(OSError):  # somebody may not listen any more
        os.write(status, json.dumps(said).encode())


def _call(name: str, *arguments: object) -> None:
    """A function of the C library that gives -1 when it fails.

    Raises:
        OSError: it failed.
    """
    if getattr(_libc, name)(*arguments) == -1:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


if __name__ == "__main__":
    main()
