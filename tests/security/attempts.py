"""What code in a sandbox may try. Each attempt is a Python script that says ``ESCAPED`` where it gets what it must not.

``{secret}`` stands for a file on the host that holds the word ``top secret``, ``{port}`` for a port that the host
listens on, ``{addresses}`` for the host's own addresses, ``{socket}`` and ``{abstract}`` for Unix sockets of the host,
``{pid}`` for the runner's process id, ``{other}`` for a file of another sandbox.
"""

PRELUDE = r"""
import ctypes, errno, glob, os, resource, signal, socket, stat, struct, sys, time
libc = ctypes.CDLL(None, use_errno=True)

def got(what="it"):
    print("ESCAPED:", what, flush=True)
    sys.exit(0)

def holds(path, word=b"top secret"):
    try:
        with open(path, "rb") as file:
            return word in file.read(1 << 20)
    except OSError:
        return False

def opens(path, flags=os.O_RDONLY):
    try:
        os.close(os.open(path, flags | os.O_NONBLOCK))
        return True
    except OSError:
        return False

def writes(path, data=b"1"):
    try:
        descriptor = os.open(path, os.O_WRONLY)
        os.write(descriptor, data)
        return True
    except OSError:
        return False

def writes_new(path):
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT))
        return True
    except OSError:
        return False

def works(name, *arguments):
    ctypes.set_errno(0)
    return getattr(libc, name)(*arguments) == 0
"""

READING = {
    "a host file by its path": "if holds('{secret}'): got()",
    "a host file by way of the first process": "if holds('/proc/1/root{secret}'): got()",
    "a host file by way of its own root": "if holds('/proc/self/root/../../../../../..{secret}'): got()",
    "a host file by a link in the workspace": "os.symlink('{secret}', 'link')\nif holds('link'): got()",
    "a host file by its descriptors": (
        "for fd in glob.glob('/proc/*/fd/*'):\n"
        "    if holds(fd): got(fd)\n"
        "    if os.path.isdir(fd) and holds(fd + '/../../../../..{secret}'): got(fd)"
    ),
    "the shadow file": "if opens('/etc/shadow'): got()",
    "the runner's variables": (
        "for name in glob.glob('/proc/[0-9]*/environ'):\n    if holds(name, b'PATCHGYM_TEST_SECRET'): got(name)"
    ),
    "the runner's memory": "if opens('/proc/{pid}/mem'): got()",
    "the processes of the host": (
        "for name in glob.glob('/proc/[0-9]*/cmdline'):\n    if holds(name, b'py' + b'test'): got(name)"
    ),
    "the files of another sandbox": (
        "for root, folders, files in os.walk('/'):\n"
        "    folders[:] = [f for f in folders if root != '/' or f not in ('proc', 'usr')]\n"
        "    if '{other}' in files: got(root)"
    ),
    "memory shared by the host": "if any('patchgym' in name for name in os.listdir('/dev/shm')): got()",
    "segments of System V": "if len(open('/proc/sysvipc/shm').readlines()) > 1: got()",
    "the kernel's log": "if opens('/dev/kmsg') or opens('/proc/kmsg'): got()",
    "the kernel's addresses": (
        "text = open('/proc/kallsyms').read(400) if opens('/proc/kallsyms') else ''\n"
        "if any(int(line.split()[0], 16) for line in text.splitlines()[:3]): got()"
    ),
    "the disks": "if any(opens(n) for n in glob.glob('/dev/sd*') + glob.glob('/dev/vd*') + ['/dev/mem']): got()",
}

NETWORK = {
    "TCP to the host's loopback": "socket.create_connection(('127.0.0.1', {port}), 2); got()",
    "TCP to the host's addresses": (
        "for address in {addresses}:\n"
        "    try: socket.create_connection((address, {port}), 2); got(address)\n"
        "    except OSError: pass"
    ),
    "UDP to the host": (
        "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
        "for address in ['127.0.0.1', *{addresses}]:\n"
        "    try: s.sendto(b'ESCAPED', (address, {port}))\n"
        "    except OSError: pass"
    ),
    "a name of the internet": "socket.getaddrinfo('pypi.org', 443); got()",
    "a Unix socket by its path": "s = socket.socket(socket.AF_UNIX); s.connect('{socket}'); got()",
    "an abstract Unix socket": "s = socket.socket(socket.AF_UNIX); s.connect('\\0{abstract}'); got()",
    "the host's interfaces": "if [n for _, n in socket.if_nameindex()] != ['lo']: got(socket.if_nameindex())",
    "a new interface": (
        "s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)\n"
        "name = struct.pack('HH8s', 12, 3, b'evil0')\n"
        "kind = struct.pack('HH', 16, 18) + struct.pack('HH8s', 10, 1, b'dummy')[:12]\n"
        "body = struct.pack('BxHiII', 0, 0, 0, 0, 0) + name + kind\n"
        "s.send(struct.pack('IHHII', 16 + len(body), 16, 0x605, 1, 0) + body)\n"
        "s.settimeout(2); s.recv(4096)\n"
        "if len(socket.if_nameindex()) > 1: got()"
    ),
    "raw packets": "socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 3); got()",
    "raw IP": "socket.socket(socket.AF_INET, socket.SOCK_RAW, 1); got()",
    "sockets of virtual machines": "socket.socket(40, socket.SOCK_STREAM); got()",
    "the kernel's ciphers": "socket.socket(38, socket.SOCK_SEQPACKET); got()",
    "netlink beyond routes": "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12); got()",
    "the kernel's audit": "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 9); got()",
}

CHANGING = {
    "the system": (
        "for name in ('/usr/evil', '/etc/evil', '/bin/evil', '/evil', '/dev/evil', '/proc/evil'):\n"
        "    if writes_new(name): got(name)"
    ),
    "the environment": "import sys\nif writes_new(sys.prefix + '/evil'): got()",
    "a program by a hard link": ("os.link('/usr/bin/env', 'env')\nif writes('env'): got()"),
    "a read-only mount": "if works('mount', None, b'/usr', None, 0x20 | 0x1000, None): got()",
    "a mount of its own": "if works('mount', b'none', b'/tmp', b'tmpfs', 0, None): got()",
    "an unmount": "if works('umount2', b'/etc', 2): got()",
    "its root": "if works('chroot', b'.'): got()",
    "its user namespace": "if works('unshare', 0x10000000): got()",
    "its mount namespace": "if works('unshare', 0x20000): got()",
    "the namespaces of the first process": (
        "for name in ('user', 'mnt', 'net', 'pid'):\n"
        "    try: descriptor = os.open('/proc/1/ns/' + name, os.O_RDONLY)\n"
        "    except OSError: continue\n"
        "    if works('setns', descriptor, 0): got(name)"
    ),
    "a device of its own": ("os.mknod('disk', 0o600 | stat.S_IFBLK, os.makedev(8, 0))\nif opens('disk'): got()"),
    "a character device of its own": (
        "os.mknod('mem', 0o600 | stat.S_IFCHR, os.makedev(1, 1))\nif opens('mem'): got()"
    ),
    "what a crash calls": "if writes('/proc/sys/kernel/core_pattern', b'|/bin/sh'): got()",
    "the kernel's settings": (
        "for name in ('vm/overcommit_memory', 'kernel/hostname', 'net/ipv4/ip_forward', 'kernel/randomize_va_space'):\n"
        "    if writes('/proc/sys/' + name, b'1'): got(name)"
    ),
    "the machine, by the magic key": "if writes('/proc/sysrq-trigger', b'h'): got()",
    "control groups": (
        "for name in glob.glob('/sys/fs/cgroup/**/*', recursive=True)[:2000]:\n"
        "    if os.access(name, os.W_OK) and os.path.isfile(name) and writes(name): got(name)"
    ),
    "kernel events": "if writes('/sys/kernel/uevent_helper', b'/bin/sh'): got()",
    "formats of programs": "if writes('/proc/sys/fs/binfmt_misc/register', b':x:M::x::/bin/sh:'): got()",
    "its user": (
        "who = 0 if os.getuid() else 1\n"
        "for call in (lambda: os.setuid(who), lambda: os.setgid(who), lambda: os.setresuid(who, who, who)):\n"
        "    try: call(); got()\n"
        "    except OSError: pass"
    ),
    "a setuid program of the system": (
        "import subprocess\n"
        "for program in glob.glob('/usr/bin/*') + glob.glob('/usr/sbin/*'):\n"
        "    try: mode = os.stat(program).st_mode\n"
        "    except OSError: continue\n"
        "    if mode & stat.S_ISUID and os.path.basename(program) in ('su', 'sudo', 'pkexec'):\n"
        "        done = subprocess.run([program, 'root', '-c', 'id -u'], capture_output=True, stdin=-3, timeout=5)\n"
        "        if done.stdout.strip() == b'0': got(program)"
    ),
    "a setuid program of its own": (
        "import shutil, subprocess\n"
        "shutil.copy('/usr/bin/id', 'id'); os.chmod('id', 0o6755)\n"
        "if subprocess.run(['./id', '-u'], capture_output=True).stdout.strip() != str(os.getuid()).encode(): got()"
    ),
    "capabilities": (
        "header = (ctypes.c_uint32 * 2)(0x20080522, 0)\n"
        "if works('capset', header, (ctypes.c_uint32 * 6)(*[0xffffffff] * 6)): got()"
    ),
    "capabilities by a file": (
        "import shutil\n"
        "shutil.copy('/usr/bin/id', 'capable')\n"
        "value = struct.pack('<IIIII', 0x2000001, 0xffffffff, 0, 0xffffffff, 0)\n"
        "os.setxattr('capable', 'security.capability', value)\n"
        "got()"
    ),
    "the clock": ("time.clock_settime(time.CLOCK_REALTIME, time.time() + 1000); got()"),
    "the host's name": "socket.sethostname('evil'); got()",
    "its priority": "os.setpriority(os.PRIO_PROCESS, 0, -10); got()",
    "its scheduling": "os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50)); got()",
    "its limits": (
        "for what in (resource.RLIMIT_FSIZE, resource.RLIMIT_CPU, resource.RLIMIT_CORE):\n"
        "    try: resource.setrlimit(what, (resource.RLIM_INFINITY, resource.RLIM_INFINITY)); got(what)\n"
        "    except (OSError, ValueError): pass"
    ),
}

SPYING = {
    "the first process, traced": "if libc.ptrace(16, 1, 0, 0) == 0: got()",
    "the first process, its memory read": "if opens('/proc/1/mem') or holds('/proc/1/maps', b'-'): got()",
    "the first process, its memory written": "if opens('/proc/1/mem', os.O_RDWR): got()",
    "the first process, its descriptors": (
        "for number in range(64):\n    if opens(f'/proc/1/fd/{number}', os.O_WRONLY): got(number)"
    ),
    "the first process, its program": "if opens('/proc/1/exe'): got()",
    "the first process, ended": (
        "for number in (9, 15, 19, 11, 1, 2):\n    os.kill(1, number)\n"
        "time.sleep(0.2)\n"
        "if not os.path.exists('/proc/1/stat'): got()"
    ),
    "the starter's descriptors": ("mine = set(os.listdir('/proc/self/fd'))\nif len(mine) > 4: got(mine)"),
    "a sibling's memory": (
        "child = os.fork()\n"
        "if child == 0: time.sleep(3); os._exit(0)\n"
        "buffer = ctypes.create_string_buffer(8)\n"
        "iov = struct.pack('QQ', ctypes.addressof(buffer), 8)\n"
        "if libc.process_vm_readv(child, iov, 1, iov, 1, 0) == 8: got()"
    ),
}
