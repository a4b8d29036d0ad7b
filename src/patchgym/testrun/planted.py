"""Puts tests whose outcome the grader knows among the real ones. Runs inside a sandbox: only the standard library.

Some stand in files of their own beside the test files, which are there before anything is collected; the others are
made after collection, as functions of real test modules. Neither kind knows which of its tests must fail.
"""

import os
from typing import Any, Dict, List


def write(canaries: List[Dict[str, Any]]) -> List[str]:
    """Write the files of the canaries that have one of their own; their paths."""
    texts: Dict[str, str] = {}
    for canary in canaries:
        if canary["own"] and not os.path.lexists(canary["path"]):
            texts[canary["path"]] = texts.get(canary["path"], "") + canary["source"] + "\n\n"
    for path, text in texts.items():
        with open(path, "x", encoding="utf-8") as file:
            file.write(text)
    return sorted(texts)


def mix(items: List[Any], canaries: List[Dict[str, Any]], function: Any, module: Any) -> List[Any]:
    """All tests in their order, the canaries in between: at the share of the way (``at``) that each states, but never
    between two tests of one class or, those of a file of their own, of one module, whose fixtures would end early."""
    wanted = {(canary["path"], canary["name"]) for canary in canaries if canary["own"]}
    real = [item for item in items if key_of(item) not in wanted]
    own = {key_of(item): item for item in items if key_of(item) in wanted}
    hosts = [item.getparent(module) for item in real]
    known = [host for host in hosts if host is not None]
    placed: List[Any] = []
    for canary in canaries:
        place = nearest(places(real, canary["own"]), canary["at"], len(real))
        if canary["own"]:
            if (canary["path"], canary["name"]) in own:
                placed.append((place, own[canary["path"], canary["name"]]))
        elif known and hasattr(function, "from_parent"):
            host = hosts[min(place, len(hosts) - 1)]
            placed.append((place, plant(host if host is not None else known[0], canary, function)))
    for _, item in placed:
        item.repr_failure = briefly
    for item in real:  # so that nothing tells them apart by what they carry
        item.repr_failure = item.repr_failure
    ordered = list(real)
    for place, item in sorted(placed, key=lambda pair: pair[0], reverse=True):
        ordered.insert(place, item)
    return ordered


def briefly(failure: Any, *_: Any, **__: Any) -> str:
    """A failure in a line: to show the source around it costs more than the test."""
    return "%s: %s" % (failure.type.__name__, failure.value)


def key_of(item: Any) -> Any:
    """A test's file and name."""
    return item.nodeid.split("::", 1)[0], item.name


def places(items: List[Any], whole_modules: bool) -> List[int]:
    """Where something may stand between tests without ending a fixture early."""
    found = [0]
    for at in range(1, len(items)):
        before, after = items[at - 1].nodeid.split("::"), items[at].nodeid.split("::")
        same_class = len(before) > 2 and before[:2] == after[:2]
        if before[0] != after[0] or not (whole_modules or same_class):
            found.append(at)
    return [*found, len(items)]


def nearest(allowed: List[int], share: float, size: int) -> int:
    """The allowed place nearest to a share of the way."""
    return min(allowed, key=lambda place: abs(place - share * size))


def plant(host: Any, canary: Dict[str, Any], function: Any) -> Any:
    """A test made of a canary's source as if it stood in the module ``host``."""
    space = vars(host.obj)
    known = canary["name"] in space
    kept = space.get(canary["name"])
    exec(compile("\n" * canary["line"] + canary["source"], host.obj.__file__, "exec"), space)
    made = space.pop(canary["name"])
    if known:
        space[canary["name"]] = kept
    return function.from_parent(host, name=canary["name"], callobj=made)
