"""Runs pytest inside a sandbox and reports each test through an inherited pipe. Stands alone: only the standard library
and the environment's own pytest.

It is started as a script from a read-only mount, without the workspace on the import path: pytest and its plug-ins are
imported first, from the environment, so that a ``pytest.py`` or a plug-in in the workspace cannot take their place.
Standard input carries one JSON object: ``root``, ``paths`` (import roots inside it), ``ids`` (exact test ids; none
means all that pytest collects), ``cover`` (source files whose lines are watched; mostly none), ``coverage`` (where
coverage.py lies), ``stressed`` (whether the last test runs first, on a clock that hastens), ``until_failure``
(whether to end with the first test that fails), ``tracebacks`` (of how many failures one is told; of the others only
what was raised), ``files`` (which to collect where no ids are given) and ``beside`` (``path``, ``module``,
``argument``: where a plug-in of ours lies and what it is told). The report is one JSON object a line: ``{"id",
"outcome", "text"}`` for each test, ``{"collect", "outcome", "text"}`` for each file that could not be collected,
``{"covered", "lines"}`` for each watched file (line to the tests that ran it, by their number in the order of their
reports), ``{"elsewhere"}`` for the tests that started processes, ``{"beside"}`` for what that plug-in says, and
``{"done": exit status}`` at the end.

For grading there is more, from scripts beside this one: ``guard`` (its ``seconds``) puts another process between this
one and the pipe, which lets the tests go on one by one (``guard.py``); ``canaries`` are planted among the tests
(``planted.py``); ``watch`` (the test files) has what decides watched (``watch.py``), and what was seen is sent as
``{"noted"}`` before the end.
"""

import importlib
import importlib.metadata
import importlib.util
import json
import os
import sys
import time
from typing import Any, Callable, Dict, List, Optional, Sequence, Set, TextIO, Tuple

TEXT_LIMIT = 4000
CHECKS = 2
HASTE = 20  # what a busy machine may take longer
NO_IMPORT = "ImportError while importing test module"
STARTS = frozenset(["subprocess.Popen", "os.posix_spawn", "os.fork", "os.forkpty", "os.exec", "os.system"])
RANK = ["passed", "xpassed", "xfailed", "skipped", "failed", "error"]


def outcome_of(report: Any) -> str:
    """The outcome that one phase (setup, call or teardown) of a test stands for. A subtest that is skipped or fails as
    expected says nothing of the test that it belongs to."""
    if not report.failed and hasattr(report, "context"):
        return "passed"
    expected_failure = hasattr(report, "wasxfail")
    if report.failed:
        return "failed" if report.when == "call" else "error"
    if report.skipped:
        return "xfailed" if expected_failure else "skipped"
    return "xpassed" if expected_failure and report.when == "call" else "passed"


class Reporter:
    """A pytest plug-in that keeps the wanted tests and writes what became of each."""

    def __init__(self, stream: TextIO, ids: Sequence[str], wanted: Dict[str, Any]) -> None:
        self.stream = stream
        self.stressed = bool(wanted.get("stressed"))
        self.tracebacks = int(wanted["tracebacks"])
        self.told = 0
        self.config: Any = None
        self.ids = frozenset(ids)
        self.phases: Dict[str, Tuple[str, str]] = {}
        self.numbers: Dict[str, int] = {}

    def send(self, **record: Any) -> None:
        """Write one line and push it out at once, so that a crash later loses nothing."""
        self.stream.write(json.dumps(record) + "\n")
        self.stream.flush()

    def pytest_configure(self, config: Any) -> None:
        """Keep hold of the options."""
        self.config = config

    def pytest_collection_modifyitems(self, config: Any, items: List[Any]) -> None:
        """Keep only the tests that were asked for, in the order that was."""
        if self.ids:
            left_out = [item for item in items if item.nodeid not in self.ids]
            items[:] = [item for item in items if item.nodeid in self.ids]
            config.hook.pytest_deselected(items=left_out)
        if self.stressed:
            items.reverse()

    def pytest_collectreport(self, report: Any) -> None:
        """A file that cannot be collected is an outcome of its own."""
        if report.failed:
            text = str(report.longreprtext)
            outcome = "import_error" if NO_IMPORT in text else "not_collected"
            self.send(collect=report.nodeid, outcome=outcome, text=text[-TEXT_LIMIT:])

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Gather a test's phases; the worst one counts and is sent when the test is over."""
        outcome = outcome_of(report)
        text = report.longreprtext if outcome in ("failed", "error") else ""
        self.told += bool(text)
        if self.told >= self.tracebacks and self.config is not None:
            self.config.option.tbstyle = "line"  # a traceback with sources costs pytest more than most tests: 30 ms
        kept, kept_text = self.phases.get(report.nodeid, ("passed", ""))
        if RANK.index(outcome) > RANK.index(kept):
            kept, kept_text = outcome, text
        self.phases[report.nodeid] = (kept, kept_text)
        if report.when == "teardown":
            self.numbers.setdefault(report.nodeid, len(self.numbers))
            self.send(id=report.nodeid, outcome=kept, text=kept_text[-TEXT_LIMIT:])


class GuardedReporter(Reporter):
    """A reporter whose tests run when the guard says so; with canaries among them, and a watch."""

    def __init__(self, link: Any, ids: Sequence[str], wanted: Dict[str, Any]) -> None:
        planted = ["%s::%s" % (one["path"], one["name"]) for one in wanted["canaries"] if one["own"]]
        super().__init__(sys.stderr, [*ids, *planted], wanted)
        self.link = link
        self.wanted = list(ids)
        self.canaries = wanted["canaries"]
        self.thorough = bool(wanted.get("thorough"))
        self.called: Dict[str, bool] = {}
        self.seen: Any = None
        self.mix: Any = None
        self.kinds: Tuple[Any, Any] = (None, None)

    def send(self, **record: Any) -> None:
        """Write one line to the guard, with the word that it gave last."""
        if "id" in record:
            record["called"] = self.called.get(record["id"], False)
        self.link.send(record)

    def pytest_collection_finish(self, session: Any) -> None:
        """Plant the canaries, and say in which order the tests will run."""
        if self.mix is not None:
            session.items[:] = self.mix(session.items, self.canaries, *self.kinds)
        self.compare(True)
        self.send(collected=[item.nodeid for item in session.items])

    def pytest_runtest_logreport(self, report: Any) -> None:
        """As ever; and whether the test itself was called."""
        if report.when == "call":
            self.called[report.nodeid] = True
        super().pytest_runtest_logreport(report)

    def pytest_runtestloop(self, session: Any) -> bool:
        """Run each test when the guard says so, as pytest's own loop does."""
        for at, item in enumerate(session.items):
            self.link.ask()
            following = session.items[at + 1] if at + 1 < len(session.items) else None
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if session.shouldfail:
                raise session.Failed(session.shouldfail)
            if session.shouldstop:
                raise session.Interrupted(session.shouldstop)
            self.compare(self.thorough, len(session.items))
        self.link.ask()
        self.compare(True)
        return True

    def compare(self, surely: bool, tests: int = 1) -> None:
        """Look whether all is as it was: surely, or at a few moments of so many, drawn at random."""
        if self.seen is not None and (surely or int.from_bytes(os.urandom(4), "big") % max(1, tests // CHECKS) == 0):
            self.seen.compare()

    def pytest_collection(self, session: Any) -> None:
        """Before anything of the workspace but its conftests is imported."""
        if self.seen is not None:
            self.seen.keep_hooks(session.config.pluginmanager)

    def end(self, status: int) -> None:
        """The last words, also of a run that was interrupted or never came to its tests."""
        if not self.link.begun:
            self.send(collected=[])
        if self.link.answered:
            self.link.ask()
        for note in self.seen.all() if self.seen is not None else ():
            self.send(noted=note)
        self.send(done=status)


class Lines:
    """A pytest plug-in that knows which tests ran which lines, by coverage.py, and which started other processes, where
    no lines are seen. coverage.py is imported from a mount of its own and only while this starts, so that the code
    under test cannot depend on it."""

    def __init__(self, root: str, files: Sequence[str], tool: str) -> None:
        os.environ["COVERAGE_CORE"] = "ctrace"  # contexts need it
        sys.path.insert(0, tool)
        try:
            import coverage
        finally:
            sys.path.remove(tool)
        self.root = root
        self.current = ""
        self.elsewhere: Set[str] = set()
        sys.addaudithook(self.heard)
        self.watched = coverage.Coverage(
            data_file=None, config_file=False, messages=False, include=[os.path.join(root, path) for path in files]
        )

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """From here on, lines are this test's."""
        self.current = nodeid
        self.watched.switch_context(nodeid)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """From here on, lines are nobody's."""
        self.current = ""
        self.watched.switch_context("")

    def heard(self, event: str, args: Tuple[Any, ...]) -> None:
        """Keep in mind which test starts processes."""
        if event in STARTS and self.current:
            self.elsewhere.add(self.current)

    def send(self, reporter: Reporter) -> None:
        """Report what was seen."""
        data = self.watched.get_data()
        for path in sorted(data.measured_files()):
            lines = {
                line: sorted(reporter.numbers[test] for test in tests if test in reporter.numbers)
                for line, tests in data.contexts_by_lineno(path).items()
            }
            reporter.send(covered=os.path.relpath(path, self.root), lines={k: v for k, v in lines.items() if v})
        numbers = [reporter.numbers[test] for test in self.elsewhere if test in reporter.numbers]
        reporter.send(elsewhere=sorted(numbers))


def loaded_beside(path: str, module: str) -> Any:
    """A module of ours that lies beside this script; the folder is on the import path only meanwhile."""
    sys.path.insert(0, path)
    try:
        return importlib.import_module(module)
    finally:
        sys.path.remove(path)


def loaded_plugins() -> Tuple[List[Any], List[Any]]:
    """The environment's own pytest plug-ins, imported before the workspace can be; those that live in the workspace
    (a package that ships a plug-in under test) are left for later."""
    found: List[Any] = []
    later: List[Any] = []
    for entry in importlib.metadata.entry_points(group="pytest11"):
        try:
            found.append(entry.load())
        except ImportError:
            later.append(entry)
    return found, later


def hastened(clock: Callable[[], Any]) -> Callable[[], Any]:
    """A clock that shows the same now, and runs ``HASTE`` times as fast."""
    start = clock()
    return lambda: start + HASTE * (clock() - start)


def hasten() -> None:
    """Let the clocks that code reads run ``HASTE`` times as fast from here on: a test that holds a duration against a
    limit, or a real wait against a moment, then fails as it would on a machine that is busy enough. What waits for
    threads and processes has its clock already."""
    for module in ("subprocess", "threading", "queue"):
        importlib.import_module(module)
    for name in ("time", "monotonic", "perf_counter", "process_time"):
        for one in (name, name + "_ns"):
            setattr(time, one, hastened(getattr(time, one)))
    timer = sys.modules.get("timeit")
    if timer is not None:
        vars(timer)["default_timer"] = time.perf_counter


def script(name: str) -> Any:
    """A script beside this one, loaded under no name that the code under test could import or shadow."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), name + ".py")
    spec = importlib.util.spec_from_file_location("_patchgym_" + name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main() -> int:
    """Run the tests and return pytest's exit status."""
    channel = int(os.environ.pop("PATCHGYM_REPORT_FD"))
    os.set_inheritable(channel, False)
    wanted = json.load(sys.stdin)
    link = script("guard").parted(channel, wanted["guard"]) if wanted.get("guard") else None
    sys.path[:] = [path for path in sys.path if path != os.path.dirname(os.path.abspath(__file__))]

    import pytest

    plugins, later = loaded_plugins()
    aside = wanted.get("beside")
    module = loaded_beside(aside["path"], aside["module"]) if aside else None
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    os.chdir(wanted["root"])
    files = sorted({test.split("::", 1)[0] for test in wanted["ids"]}) or wanted.get("files", [])
    present = [path for path in files if os.path.isfile(path)]
    guarded: Optional[GuardedReporter] = None
    if link is not None:
        guarded = GuardedReporter(link, wanted["ids"], wanted)
        if wanted["canaries"] and present:
            planted = script("planted")
            present += planted.write(wanted["canaries"])
            guarded.mix, guarded.kinds = planted.mix, (pytest.Function, pytest.Module)
        if wanted.get("watch") is not None:
            own, private = [guarded, link], [link.reading, link.writing]
            guarded.seen = script("watch").Watch(wanted["root"], [*wanted["watch"], *present], own, private)
            guarded.seen.begin()
    roots = [os.path.normpath(os.path.join(wanted["root"], path)) for path in wanted["paths"]]
    os.environ["PYTHONPATH"] = os.pathsep.join(roots)
    sys.path[:0] = roots
    for entry in later:
        plugins.append(entry.load())
    if wanted.get("stressed"):
        hasten()
    if guarded is not None:
        if files and not present:
            guarded.end(5)
            return 5
        if module is not None:
            plugins.append(module.plugin(aside["argument"], guarded.send))
        status = run(wanted, present, [*plugins, guarded], None)
        guarded.end(status)
        return status
    with open(channel, "w", encoding="utf-8", errors="backslashreplace") as stream:
        reporter = Reporter(stream, wanted["ids"], wanted)
        if files and not present:
            reporter.send(done=5)
            return 5
        if module is not None:
            plugins.append(module.plugin(aside["argument"], reporter.send))
        lines = Lines(wanted["root"], wanted["cover"], wanted["coverage"]) if wanted.get("cover") else None
        status = run(wanted, present, [*plugins, reporter], lines)
        if lines is not None:
            lines.send(reporter)
        reporter.send(done=status)
    return status


def run(wanted: Dict[str, Any], present: List[str], plugins: List[Any], lines: Optional[Lines]) -> int:
    """Run pytest; its exit status."""
    import pytest

    options = ["-p", "no:cacheprovider", "--continue-on-collection-errors", "--tb=short", "-q"]
    options += ["-o", "addopts=", "--rootdir", wanted["root"]]
    options += ["--maxfail=1"] if wanted.get("until_failure") else []
    if lines is not None:
        plugins.append(lines)
        lines.watched.start()
    status = int(pytest.main([*options, *present], plugins=plugins))
    if lines is not None:
        lines.watched.stop()
    return status


if __name__ == "__main__":
    sys.exit(main())
