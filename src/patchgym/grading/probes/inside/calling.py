"""Making the calls of a program and telling what comes of the last one, each program in a process of its own.

A program is a list of steps ``{"of": input, "args": [input, ...], "kwargs": {name: input}}``; an input may be the
result of an earlier step. What was told is ``{"result": told}`` or ``{"raised": class}``, with ``after`` (the
arguments that changed, by their place), ``printed``, ``files`` (what the call left in its folder) and ``signature`` of
the called function; or ``{"ended": how}`` where the process did not get so far.
"""

import contextlib
import io
import json
import os
import resource
import select
import signal
import sys
import time
import zlib
from types import CodeType
from typing import Any, Dict, Iterator, List

from .telling import Teller, TooLarge, text_of
from .values import MOST_ITEMS, Decoder, Places

MOST_PRINTED = 4000
MOST_BYTES = 1_000_000
MEMORY = 1024**3


def told_in_child(program: List[Any], places: Places, seconds: float) -> Dict[str, Any]:
    """What comes of a program, made in a fork of this process that cannot change it and lives at most so long."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        with leaving():
            os.close(reading)
            os.setsid()
            ballast = moved()
            told = json.dumps(made(program, places)).encode() + b"\n"
            del ballast
            write_all(writing, told if len(told) <= MOST_BYTES else b'{"ended": "large"}\n')
        os._exit(0)
    os.close(writing)
    try:
        return read_told(reading, seconds)
    finally:
        os.close(reading)
        with contextlib.suppress(OSError):
            os.killpg(pid, signal.SIGKILL)
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(OSError):
            os.waitpid(pid, 0)


def moved() -> List[Any]:
    """Objects of many sizes, some of them gone again, drawn at random: as long as they live, those made after them lie
    elsewhere than in another process. What comes of a call must not hang on where objects lie, as the order of a set
    of them does."""
    made = [((None,) * (size % 24 + 1), {size: size}, [size], Plain(), object()) for size in range(512)]
    return [one for one, dice in zip(made, os.urandom(len(made))) if dice % 2]


class Plain:
    """An object like most."""


@contextlib.contextmanager
def leaving() -> Iterator[None]:
    """Whatever happens inside, this process ends with it and writes nothing more."""
    try:
        yield
    finally:
        os._exit(1 if sys.exc_info()[0] is not None else 0)


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of it."""
    while data:
        data = data[os.write(descriptor, data) :]


def read_told(reading: int, seconds: float) -> Dict[str, Any]:
    """One line from a pipe, waited for at most so long."""
    end = time.monotonic() + seconds
    data = b""
    while b"\n" not in data:
        left = end - time.monotonic()
        if left <= 0 or not select.select([reading], [], [], left)[0]:
            return {"ended": "time"}
        more = os.read(reading, 65536)
        if not more or len(data) > MOST_BYTES:
            return {"ended": "early"}
        data += more
    try:
        told = json.loads(data[: data.index(b"\n")].decode("utf-8", "backslashreplace"))
    except ValueError:
        return {"ended": "early"}
    return told if isinstance(told, dict) else {"ended": "early"}


def made(program: List[Any], places: Places) -> Dict[str, Any]:
    """Make the calls of a program in this process, which is then of no more use, and tell the last one."""
    limited()
    folder = "/tmp/{}-{}".format(os.getpid(), time.monotonic_ns())
    os.mkdir(folder)
    os.chdir(folder)
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(io.StringIO()):
            told = told_of(program, places)
        if "ended" in told or "unmade" in told:
            return told
        return {**told, "printed": printed.getvalue()[:MOST_PRINTED], "files": left_in(folder)}
    except TooLarge:
        return {"ended": "large"}
    except MemoryError:
        return {"ended": "memory"}
    finally:
        with contextlib.suppress(OSError):
            os.chdir("/")
            os.rmdir(folder)  # what it holds goes with the sandbox


def limited() -> None:
    """Bound what one call may take; leave alone where that is not allowed."""
    for kind, most in ((resource.RLIMIT_DATA, MEMORY), (resource.RLIMIT_FSIZE, 16 * 1024**2)):
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(kind, (most, most))


def told_of(program: List[Any], places: Places) -> Dict[str, Any]:
    """The last call of a program, told."""
    results: List[Any] = []
    decoder = Decoder(results)
    for step in program[:-1]:
        try:
            _, function, args, kwargs = prepared(decoder, step)
            results.append(function(*args, **kwargs))
        except Exception:  # noqa: BLE001 -- a test may expect it; what needs its result fails by itself
            results.append(None)
    try:
        receiver, function, args, kwargs = prepared(decoder, program[-1])
    except Exception as error:  # noqa: BLE001 -- the candidate's classes may raise anything
        return {"unmade": type(error).__name__}
    told: Dict[str, Any] = {"signature": signature_of(function)}
    args_told = [receiver, *args] if receiver is not None else args
    before = [told_before(places, value) for value in args_told]
    told["before"] = digest([*before, *[told_before(places, kwargs[name]) for name in sorted(kwargs)]])
    try:
        told["result"] = Teller(places).tell(function(*args, **kwargs))
    except (TooLarge, MemoryError):
        raise
    except RecursionError:
        return {"ended": "recursion"}
    except BaseException as error:  # noqa: BLE001 -- also SystemExit: it is what the call comes to
        told["raised"] = Teller(places).name(type(error))
    told["after"] = {
        str(place): after
        for place, (value, old) in enumerate(zip(args_told, before))
        if old is not None and (after := told_before(places, value)) != old
    }
    return told


def prepared(decoder: Decoder, step: Dict[str, Any]) -> Any:
    """The receiver (None where there is none), the function and the arguments of a step."""
    of, receiver = step["of"], None
    if isinstance(of, list) and of[0] == "a":
        receiver = decoder.decode(of[1])
        function = getattr(receiver, of[2])
    else:
        function = decoder.decode(of)
    args = [decoder.decode(spec) for spec in step["args"]]
    return receiver, function, args, {name: decoder.decode(spec) for name, spec in step["kwargs"].items()}


def told_before(places: Places, value: Any) -> Any:
    """What an argument holds; None for what a call cannot change, or that is used up by looking."""
    teller = Teller(places)
    if isinstance(value, (type(None), int, float, str, bytes, type)) or teller.is_iterator(value):
        return None
    try:
        return teller.tell(value)
    except (TooLarge, Exception):  # noqa: BLE001 -- then nobody looks at it
        return None


def digest(told: Any) -> str:
    """A short name for something told."""
    return format(zlib.crc32(text_of(told).encode("utf-8", "surrogatepass")), "08x")


def signature_of(function: Any) -> List[str]:
    """The names of parameters and how they are passed; empty where there is no telling."""
    function = getattr(function, "__func__", function)
    code = getattr(getattr(function, "__wrapped__", function), "__code__", None)
    if not isinstance(code, CodeType):
        return []
    count = code.co_argcount + code.co_kwonlyargcount
    defaults = len(getattr(function, "__defaults__", None) or ())
    return [*code.co_varnames[:count], str(code.co_argcount), str(code.co_flags & 12), str(defaults)]


def left_in(folder: str) -> Dict[str, str]:
    """The files of a folder, by their digests."""
    found: Dict[str, str] = {}
    for root, _, names in os.walk(folder):
        for name in sorted(names)[:MOST_ITEMS]:
            path = os.path.join(root, name)
            try:
                with open(path, "rb") as stream:
                    found[os.path.relpath(path, folder)] = format(zlib.crc32(stream.read(MOST_BYTES)), "08x")
            except OSError:
                found[os.path.relpath(path, folder)] = "unreadable"
    return found
