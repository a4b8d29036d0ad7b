"""Asks the code of a workspace: makes calls and tells what comes of them, without any test around.

Standard input carries one JSON object: ``root``, ``paths`` (import roots inside it), ``tests`` (its test files),
``modules`` (to be imported once, before the calls), ``seconds`` (for each call) and ``calls`` (``{"id", "steps"}``).
The report is one line for each call, ``{"id", "told"}``, and ``{"done": calls}`` at the end. No expected value is in
this process. Each call runs in a fork: none sees what another one left behind, and one that hangs, leaves or is killed
ends alone.
"""

import contextlib
import gc
import importlib
import io
import json
import os
import sys
from typing import Any, Dict, List

from .calling import told_in_child, write_all
from .values import Places


def main() -> int:
    """Make the calls."""
    channel = int(os.environ.pop("PATCHGYM_REPORT_FD"))
    os.set_inheritable(channel, False)
    wanted = json.load(sys.stdin)
    roots = [os.path.normpath(os.path.join(wanted["root"], path)) for path in wanted["paths"]]
    os.environ["PYTHONPATH"] = os.pathsep.join(roots)
    sys.path[:0] = roots
    os.chdir(wanted["root"])
    imported(wanted["modules"])
    places = Places(wanted["root"], wanted["tests"])
    gc.freeze()  # what is never looked at again is never copied
    told: List[Dict[str, Any]] = wanted["calls"]
    for call in told:
        answer = told_in_child(call["steps"], places, wanted["seconds"])
        write_all(channel, json.dumps({"id": call["id"], "told": answer}).encode() + b"\n")
    write_all(channel, json.dumps({"done": len(told)}).encode() + b"\n")
    sys.stdout.flush()
    os._exit(0)


def imported(modules: List[str]) -> None:
    """Import what the calls need, once for all of them; one that cannot be imported fails the calls that need it."""
    for module in modules:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(Exception, SystemExit):
            importlib.import_module(module)
