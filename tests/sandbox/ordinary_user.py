"""What a sandbox does for an ordinary user; run as a program by ``test_users``. Prints what it saw as JSON."""

import asyncio
import json
import os
import sys
from pathlib import Path

from patchgym.content import ObjectStore, apply_patch
from patchgym.sandbox import NamespaceSandboxes, ResourceLimits, SandboxSpec

FORKS = """
import os, time
made = 0
try:
    for _ in range(200):
        if os.fork() == 0:
            time.sleep(1000)
        made += 1
except OSError:
    pass
print(made)
"""


async def main(folder: Path) -> dict[str, object]:
    """Take one sandbox through its life."""
    store = ObjectStore(folder / "objects")
    factory = NamespaceSandboxes(store, cache=folder / "cache", scratch=folder / "scratch")
    for name in ("a/one", "a/two", "b"):
        (folder / "plain" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "plain" / name).write_text(name)
    base = store.ingest(folder / "plain")
    (folder / "plain" / "b").unlink()
    tree = store.ingest(folder / "plain")
    limits = ResourceLimits(memory_bytes=200_000_000, processes=40)
    sandbox = await factory.create(SandboxSpec(tree=tree, base=base, limits=limits))
    seen: dict[str, object] = {"uid": os.getuid(), "starts_as_tree": await sandbox.snapshot() == tree}
    edit = "rm -r a; mkdir a; echo 3 > a/three; mkdir v; echo x > v/x; echo x > l; chmod 000 v l; sleep 1000 & exit 7"
    done = await sandbox.exec(["sh", "-c", edit])
    seen |= {"exit_code": done.exit_code, "limits_by": done.limits_by, "stderr": done.stderr.decode()}
    await sandbox.write("n/new", b"new")
    after = await sandbox.snapshot()
    seen["files"] = sorted(store.entries(after))
    seen["diff_leads_there"] = apply_patch(store, tree, await sandbox.diff()) == after
    twin = await sandbox.fork()
    seen["fork_is_equal"] = await twin.snapshot() == after
    seen["timed_out"] = (await twin.exec(["sleep", "1000"], timeout_s=0.2)).timed_out
    seen["identity"] = (await twin.exec(["id", "-u"])).stdout.decode().strip()
    seen["python"] = (await twin.exec(["sh", "-c", "command -v python3"])).exit_code == 0
    if seen["python"]:
        seen["forks"] = int((await twin.exec(["python3", "-c", FORKS])).stdout)
        bomb = await twin.exec(["python3", "-c", "x = [b'x' * 1_000_000 for _ in range(10_000)]"])
        seen["memory_bomb_exit_code"] = bomb.exit_code
    await twin.close()
    await sandbox.close()
    factory.close()
    seen["left"] = os.listdir(folder / "scratch")
    return seen


print(json.dumps(asyncio.run(main(Path(sys.argv[1])))))
