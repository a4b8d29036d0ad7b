"""Code that tries to get out. Every attempt fails, the host stays as it was, and the next command works."""

import os
import secrets
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from patchgym.sandbox import ResourceLimits
from patchgym.sandbox.seccomp import _REFUSED
from tests.sandbox.box import Box, Boxes
from tests.security.attempts import CHANGING, NETWORK, PRELUDE, READING, SPYING

ATTEMPTS = {**READING, **NETWORK, **CHANGING, **SPYING}


@dataclass
class Host:
    """What attempts are after: a secret file, listeners, and what came to them."""

    words: dict[str, str]
    reached: list[bytes]


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    folder = tmp_path_factory.mktemp("host")
    (folder / "secret").write_text("top secret")
    abstract = f"patchgym-{secrets.token_hex(8)}"
    reached: list[bytes] = []
    stream, datagram = socket.create_server(("", 0)), socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    datagram.bind(("", stream.getsockname()[1]))
    unix, hidden = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
    unix.bind(str(folder / "socket"))
    hidden.bind(f"\0{abstract}")
    listeners = (stream, unix, hidden)
    for one in (unix, hidden):
        one.listen()

    def accept(one: socket.socket) -> None:
        try:
            while True:
                one.accept()
                reached.append(b"stream")
        except OSError:
            return

    def receive() -> None:
        try:
            while True:
                reached.append(datagram.recv(100))
        except OSError:
            return

    threads = [threading.Thread(target=accept, args=(one,), daemon=True) for one in listeners]
    threads.append(threading.Thread(target=receive, daemon=True))
    for thread in threads:
        thread.start()
    addresses = subprocess.run(["hostname", "-I"], capture_output=True, text=True, check=False).stdout.split()
    os.environ["PATCHGYM_TEST_SECRET"] = "top secret"
    yield Host(
        {
            "secret": str(folder / "secret"),
            "port": str(stream.getsockname()[1]),
            "addresses": repr([address for address in addresses if ":" not in address]),
            "socket": str(folder / "socket"),
            "abstract": abstract,
            "pid": str(os.getpid()),
        },
        reached,
    )
    del os.environ["PATCHGYM_TEST_SECRET"]
    for one in (*listeners, datagram):
        one.close()


@pytest.mark.parametrize("name", ATTEMPTS)
def test_an_attempt_fails(box: Box, boxes: Boxes, tree: str, host: Host, name: str) -> None:
    other = boxes.open(tree)
    marker = f"other-{secrets.token_hex(8)}"
    other.write(marker, b"mine")
    other.sh("echo x > /tmp/x")
    script = ATTEMPTS[name]
    for word, value in {**host.words, "other": marker}.items():
        script = script.replace(f"{{{word}}}", value)
    done = box.exec("python", "-c", f"{PRELUDE}\n{script}", timeout_s=30)
    assert b"ESCAPED" not in done.stdout, done
    assert b"SyntaxError" not in done.stderr, done.stderr.decode()
    assert b"NameError" not in done.stderr, done.stderr.decode()
    assert host.reached == []
    assert box.sh("echo fine").stdout == b"fine\n"
    assert other.read(marker) == b"mine"


@pytest.mark.parametrize("name", _REFUSED)
def test_a_refused_system_call_is_refused_whatever_it_is_given(box: Box, name: str) -> None:
    script = (
        "import ctypes, platform, sys; libc = ctypes.CDLL(None, use_errno=True);"
        f"number = {_REFUSED[name]!r}[platform.machine() == 'aarch64'];"
        "done = libc.syscall(number, 0, 0, 0, 0, 0, 0); print(done, ctypes.get_errno())"
    )
    assert box.exec("python", "-c", script).stdout == b"-1 1\n"


def test_another_machines_calls_are_refused(box: Box) -> None:
    """The numbers of 32-bit programs are others: a filter that does not look lets them through."""
    script = (
        "import ctypes, mmap, platform, sys\n"
        "if platform.machine() != 'x86_64': sys.exit(0)\n"
        "code = bytes.fromhex('b81a000000' '31db' '31c9' 'cd80' 'c3')\n"  # mov eax, 26 (ptrace); int 0x80; ret
        "memory = mmap.mmap(-1, 4096, prot=7); memory.write(code)\n"
        "call = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(memory)))\n"
        "print(call())\n"
    )
    done = box.exec("python", "-c", script)
    assert done.stdout in (b"-38\n", b"") or done.signal is not None


def test_x32_calls_are_refused(box: Box) -> None:
    script = (
        "import ctypes, platform, sys; libc = ctypes.CDLL(None, use_errno=True)\n"
        "if platform.machine() != 'x86_64': print('-1 38'); sys.exit(0)\n"
        "done = libc.syscall(0x40000000 | 521, 0, 0, 0, 0); print(done, ctypes.get_errno())"
    )
    done = box.exec("python", "-c", script)
    assert done.stdout == b"-1 38\n" or (done.stdout, done.signal) == (b"", signal.SIGSYS)


def test_what_honest_programs_need_is_not_refused(box: Box) -> None:
    script = """
import asyncio, concurrent.futures, multiprocessing, os, select, signal, socket, subprocess, tempfile, threading
threading.Thread(target=print, args=("thread",)).start()
print(subprocess.run(["echo", "process"], capture_output=True, text=True).stdout.strip())
with multiprocessing.Pool(2) as pool: print(sum(pool.map(abs, range(5))))
print(socket.getaddrinfo("localhost", 80)[0][4][0])
a, b = socket.socketpair(); a.send(b"x"); print(b.recv(1))
async def main():
    p = await asyncio.create_subprocess_exec("true"); print(await p.wait())
asyncio.run(main())
with tempfile.NamedTemporaryFile() as f: f.write(b"x"); os.fsync(f.fileno())
print(len(os.sched_getaffinity(0)) > 0, os.getloadavg() is not None, select.epoll() is not None)
signal.alarm(0); os.nice(1)
"""
    done = box.exec("python", "-c", script, timeout_s=60)
    assert done.exit_code == 0, done.stderr.decode()
    assert b"127.0.0.1" in done.stdout or b"::1" in done.stdout


def test_a_command_cannot_be_seized_while_it_starts(box: Box) -> None:
    watch = """
import os
def starting(name):
    return b"spawner" in open(f"/proc/{name}/cmdline", "rb").read()
while True:
    for name in os.listdir("/proc"):
        try:
            if name.isdigit() and starting(name):
                for part in ("mem", "exe", "fd/0", "environ", "maps"):
                    os.close(os.open(f"/proc/{name}/{part}", os.O_RDONLY if part != "mem" else os.O_RDWR))
                    if starting(name):  # still not the command itself, which is ours to open
                        open("ESCAPED", "a").write(part)
        except OSError:
            pass
"""
    box.write("watch.py", watch.encode())
    box.exec("sh", "-c", "python watch.py > /dev/null 2>&1 &", keep=True)
    for _ in range(40):
        box.exec("true")
    assert box.sh("test -e ESCAPED").exit_code == 1


def secret_and_box(box: Box, tmp_path: Path) -> Path:
    secret = tmp_path / "secret"
    secret.write_text("top secret")
    return secret


@pytest.mark.parametrize(
    "target", ["{secret}", "/proc/self/root{secret}", "../../../../../../..{secret}", "/proc/1/environ"]
)
def test_a_link_out_of_the_workspace_is_not_followed_from_outside(box: Box, tmp_path: Path, target: str) -> None:
    secret = secret_and_box(box, tmp_path)
    place = target.replace("{secret}", str(secret))
    box.exec("ln", "-s", place, "link")
    with pytest.raises(PermissionError):
        box.read("link")
    with pytest.raises(PermissionError):
        box.write("link", b"overwritten")
    assert secret.read_text() == "top secret"
    assert "top secret" not in box.diff()


def test_links_that_change_under_our_hands_lead_nowhere(box: Box, tmp_path: Path) -> None:
    secret = secret_and_box(box, tmp_path)
    box.write("victim/file", b"plain")
    flip = f"""
while :; do
  mv victim v2 2>/dev/null; ln -sfn {secret.parent} victim; rm -f victim; mv v2 victim
  ln -sf {secret} victim/link; mv -f victim/link victim/file; echo plain > victim/new; mv -f victim/new victim/file
done
"""
    box.exec("sh", "-c", f"({flip}) > /dev/null 2>&1 &", keep=True)
    for number in range(300):
        if number % 10 == 0:
            assert "top secret" not in box.diff()
        with suppress(OSError):
            assert box.read("victim/file") in (b"plain", b"plain\n", b"")
        with suppress(OSError):
            box.write("victim/file", b"plain")
    assert secret.read_text() == "top secret"
    assert "top secret" not in box.diff()


@pytest.mark.parametrize("path", ["../outside", "/etc/evil", "a/../../outside", "/workspace/../outside", "x\0y"])
def test_a_path_that_leaves_the_workspace_is_refused(box: Box, path: str) -> None:
    with pytest.raises((PermissionError, FileNotFoundError)):
        box.write(path, b"x")
    with pytest.raises((PermissionError, FileNotFoundError)):
        box.read(path)


def test_a_pipe_in_the_place_of_a_file_does_not_hold_us(box: Box) -> None:
    box.out("rm README.md; mkfifo README.md pipe")
    for path in ("README.md", "pipe"):
        with pytest.raises(PermissionError):
            box.read(path)
    box.snapshot()


BOMBS = {
    "processes": "f() { f | f & }; f; sleep 100",
    "memory": "python -c 'x = [b\"x\" * 1000000 for _ in range(100000)]'",
    "memory shared": "head -c 10G /dev/zero > /dev/shm/x",
    "temporary files": "head -c 10G /dev/zero > /tmp/x",
    "one file": "head -c 10G /dev/zero > x",
    "output": "yes",
    "errors": "yes >&2",
    "descriptors": "python -c 'import os\nwhile True: os.dup(0)'",
    "zombies": "python -c 'import os\nwhile True:\n if os.fork() == 0: os._exit(0)'",
    "threads": (
        "python -c 'import threading, time\nwhile True: threading.Thread(target=time.sleep, args=(99,)).start()'"
    ),
    "signals": "trap '' TERM; while :; do kill -9 -1; kill -TERM -- -1; kill -STOP 1; done",
    "stops": "kill -STOP $$; sleep 100",
    "sessions": "for i in $(seq 50); do setsid sleep 100 & done; wait",
    "folders": "i=0; while :; do mkdir d; cd d; i=$((i+1)); test $i -gt 3000 && sleep 100; done",
    "names": "i=0; while :; do : > f$i; i=$((i+1)); test $i -gt 20000 && sleep 100; done",
    "a closed output": "exec >&- 2>&-; sleep 100",
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_ends_and_leaves_nothing(boxes: Boxes, tree: str, name: str) -> None:
    limits = ResourceLimits(
        memory_bytes=256 * 1024**2,
        processes=64,
        file_bytes=50_000_000,
        disk_bytes=200_000_000,
        stream_bytes=1000,
        output_bytes=5_000_000,
    )
    box = boxes.open(tree, limits=limits)
    marker = f"marker-{secrets.token_hex(8)}"
    done = box.exec("sh", "-c", f": {marker}\n{BOMBS[name]}", timeout_s=3)
    assert done.seconds < 20
    assert box.sh("echo fine").stdout == b"fine\n"
    assert int(box.out("ls -d /proc/[0-9]* | wc -l")) <= 5
    box.close()
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert marker not in listed
