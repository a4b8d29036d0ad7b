"""The system calls that a sandboxed command may not make, as a program for the kernel's filter.

Refused is what honest code of a repository has no use for and what has let code out of containers before: tracing and
reading other processes, mounts and namespaces, keys, kernel modules, eBPF, ``io_uring``, handles of files, and every
kind of socket but Unix, IPv4, IPv6 and routing netlink. Among the others is ``AF_VSOCK``, which no network namespace
holds back: in a virtual machine it reaches the host.
"""

import errno
import json
import platform
import struct
from collections.abc import Iterable

_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
# Numbers of Linux 6.x on x86-64 and on arm64, from its table of system calls.
_REFUSED = {
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "pidfd_getfd": (438, 438),
    "kcmp": (312, 272),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "setns": (308, 268),
    "unshare": (272, 97),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "fanotify_init": (300, 262),
    "fanotify_mark": (301, 263),
    "memfd_secret": (447, 447),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "acct": (163, 89),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "syslog": (103, 116),
    "vhangup": (153, 58),
    "lookup_dcookie": (212, 18),
    "nfsservctl": (180, 42),
}
_X86_REFUSED = {"iopl": 172, "ioperm": 173, "modify_ldt": 154, "uselib": 134, "ustat": 136, "sysfs": 139}
_CLONE, _CLONE3, _SOCKET, _IOCTL = (56, 220), (435, 435), (41, 198), (16, 29)
_NEW_NAMESPACES = 0x7E020000
_FAMILIES = (1, 2, 10)  # Unix, IPv4, IPv6
_NETLINK, _ROUTE = 16, 0
_TERMINAL = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX: put characters into a terminal's input
_X32 = 0x40000000

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
_ALLOW, _ERROR = 0x7FFF0000, 0x00050000

_Step = tuple[int, int, int, int]


def seccomp_filter(machine: str | None = None) -> bytes:
    """The filter as an array of ``struct sock_filter`` (8 bytes each), for ``machine`` (None: this one); empty for one
    whose numbers are not known here. A refused call fails with EPERM, a refused socket with EAFNOSUPPORT."""
    machine = machine or platform.machine()
    if machine not in _ARCHITECTURES:
        return b""
    at = list(_ARCHITECTURES).index(machine)
    steps: list[_Step] = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, _ARCHITECTURES[machine]),
        _fail(errno.ENOSYS),  # another machine's calls have other numbers
        (_LOAD, 0, 0, _NUMBER),
    ]
    refused = [numbers[at] for numbers in _REFUSED.values()]
    if machine == "x86_64":
        steps += [(_AT_LEAST, 0, 1, _X32), _fail(errno.ENOSYS)]
        refused += _X86_REFUSED.values()
    for number in refused:
        steps += _when(number, [_fail(errno.EPERM)])
    # The C library does without clone3, whose flags lie where a filter cannot look.
    steps += _when(_CLONE3[at], [_fail(errno.ENOSYS)])
    steps += _when(_CLONE[at], [_argument(0), (_ANY_BIT, 0, 1, _NEW_NAMESPACES), _fail(errno.EPERM), _pass()])
    steps += _when(_IOCTL[at], [_argument(1), *_each(_TERMINAL, _fail(errno.EPERM)), _pass()])
    steps += _when(_SOCKET[at], _sockets())
    return b"".join(struct.pack("HBBI", *step) for step in (*steps, _pass()))


def seccomp_profile() -> str:
    """The same refusals as a profile of the Open Container Initiative, for every machine."""

    def refuse(names: Iterable[str], number: int, *arguments: dict[str, object]) -> dict[str, object]:
        return {"names": list(names), "action": "SCMP_ACT_ERRNO", "errnoRet": number, "args": list(arguments)}

    def argument(index: int, operator: str, value: int, value_two: int = 0) -> dict[str, object]:
        return {"index": index, "op": f"SCMP_CMP_{operator}", "value": value, "valueTwo": value_two}

    rules = [refuse([*_REFUSED, *_X86_REFUSED], errno.EPERM), refuse(["clone3"], errno.ENOSYS)]
    bits = [1 << bit for bit in range(32) if _NEW_NAMESPACES >> bit & 1]
    rules += [refuse(["clone"], errno.EPERM, argument(0, "MASKED_EQ", bit, bit)) for bit in bits]
    rules += [refuse(["ioctl"], errno.EPERM, argument(1, "EQ", value)) for value in _TERMINAL]
    families = [family for family in range(_NETLINK) if family not in _FAMILIES]
    rules += [refuse(["socket"], errno.EAFNOSUPPORT, argument(0, "EQ", family)) for family in families]
    rules += [
        refuse(["socket"], errno.EAFNOSUPPORT, argument(0, "GT", _NETLINK)),
        refuse(["socket"], errno.EAFNOSUPPORT, argument(0, "EQ", _NETLINK), argument(2, "NE", _ROUTE)),
    ]
    return json.dumps({"defaultAction": "SCMP_ACT_ALLOW", "syscalls": rules})


def _sockets() -> list[_Step]:
    allowed: list[_Step] = [(_EQUAL, 0, 3, _NETLINK), _argument(2), (_EQUAL, 0, 1, _ROUTE), _pass()]
    return [_argument(0), *_each(_FAMILIES, _pass()), *allowed, _fail(errno.EAFNOSUPPORT)]


def _when(number: int, steps: list[_Step]) -> list[_Step]:
    """``steps``, which return, for one system call."""
    return [(_EQUAL, 0, len(steps), number), *steps]


def _each(values: Iterable[int], step: _Step) -> list[_Step]:
    """``step``, which returns, for each of some values."""
    return [part for value in values for part in ((_EQUAL, 0, 1, value), step)]


def _argument(number: int) -> _Step:
    """The lower half of an argument: all that the kernel looks at of these."""
    return (_LOAD, 0, 0, _ARGUMENTS + 8 * number)


def _fail(number: int) -> _Step:
    return (_RETURN, 0, 0, _ERROR | number)


def _pass() -> _Step:
    return (_RETURN, 0, 0, _ALLOW)
