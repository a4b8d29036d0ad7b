"""Runs pytest inside a sandbox and reports each test through an inherited pipe. Stands alone: only the standard library
and the environment's own pytest.

It is started as a script from a read-only mount, without the workspace on the import path: pytest and its plug-ins are
imported first, from the environment, so that a ``pytest.py`` or a plug-in in the workspace cannot take their place.
Standard input carries one JSON object: ``root``, ``paths`` (import roots inside it), ``ids`` (exact test ids; none
means all that pytest collects), ``cover`` (source files whose lines are watched; mostly none), ``coverage`` (where
coverage.py lies), ``backwards`` (whether the last test runs first) and ``beside`` (``path``, ``module``, ``argument``:
where a plug-in of ours lies and what it is told). The report is one JSON object a line: ``{"beside"}`` for what that
plug-in says, ``{"id", "outcome", "text"}`` for each test, ``{"collect", "outcome", "text"}`` for each file that could
not be collected, ``{"covered", "lines"}`` for each watched file (line to the tests that ran it, by their number in the
order of their reports), and ``{"done": exit status}`` at the end.
"""

import importlib
import importlib.metadata
import json
import os
import sys
from typing import Any, Dict, List, Sequence, TextIO, Tuple

TEXT_LIMIT = 4000
NO_IMPORT = "ImportError while importing test module"
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

    def __init__(self, stream: TextIO, ids: Sequence[str], backwards: bool) -> None:
        self.stream = stream
        self.backwards = backwards
        self.ids = frozenset(ids)
        self.phases: Dict[str, Tuple[str, str]] = {}
        self.numbers: Dict[str, int] = {}

    def send(self, **record: Any) -> None:
        """Write one line and push it out at once, so that a crash later loses nothing."""
        self.stream.write(json.dumps(record) + "\n")
        self.stream.flush()

    def pytest_collection_modifyitems(self, config: Any, items: List[Any]) -> None:
        """Keep only the tests that were asked for, in the order that was."""
        if self.ids:
            left_out = [item for item in items if item.nodeid not in self.ids]
            items[:] = [item for item in items if item.nodeid in self.ids]
            config.hook.pytest_deselected(items=left_out)
        if self.backwards:
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
        kept, kept_text = self.phases.get(report.nodeid, ("passed", ""))
        if RANK.index(outcome) > RANK.index(kept):
            kept, kept_text = outcome, text
        self.phases[report.nodeid] = (kept, kept_text)
        if report.when == "teardown":
            self.numbers.setdefault(report.nodeid, len(self.numbers))
            self.send(id=report.nodeid, outcome=kept, text=kept_text[-TEXT_LIMIT:])


class Watch:
    """A pytest plug-in that knows which tests ran which lines, by coverage.py. It is imported from a mount of its own
    and only while it starts, so that the code under test cannot depend on it."""

    def __init__(self, root: str, files: Sequence[str], tool: str) -> None:
        os.environ["COVERAGE_CORE"] = "ctrace"  # contexts need it
        sys.path.insert(0, tool)
        try:
            import coverage
        finally:
            sys.path.remove(tool)
        self.root = root
        self.watched = coverage.Coverage(
            data_file=None, config_file=False, messages=False, include=[os.path.join(root, path) for path in files]
        )

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """From here on, lines are this test's."""
        self.watched.switch_context(nodeid)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """From here on, lines are nobody's."""
        self.watched.switch_context("")

    def send(self, reporter: Reporter) -> None:
        """Report what was seen."""
        data = self.watched.get_data()
        for path in sorted(data.measured_files()):
            lines = {
                line: sorted(reporter.numbers[test] for test in tests if test in reporter.numbers)
                for line, tests in data.contexts_by_lineno(path).items()
            }
            reporter.send(covered=os.path.relpath(path, self.root), lines={k: v for k, v in lines.items() if v})


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


def main() -> int:
    """Run the tests and return pytest's exit status."""
    channel = int(os.environ.pop("PATCHGYM_REPORT_FD"))
    os.set_inheritable(channel, False)
    wanted = json.load(sys.stdin)
    sys.path[:] = [path for path in sys.path if path != os.path.dirname(os.path.abspath(__file__))]

    import pytest

    plugins, later = loaded_plugins()
    beside = wanted.get("beside")
    module = loaded_beside(beside["path"], beside["module"]) if beside else None
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    roots = [os.path.normpath(os.path.join(wanted["root"], path)) for path in wanted["paths"]]
    os.environ["PYTHONPATH"] = os.pathsep.join(roots)
    sys.path[:0] = roots
    os.chdir(wanted["root"])
    for entry in later:
        plugins.append(entry.load())

    files = sorted({test.split("::", 1)[0] for test in wanted["ids"]})
    present = [path for path in files if os.path.isfile(path)]
    with open(channel, "w", encoding="utf-8", errors="backslashreplace") as stream:
        reporter = Reporter(stream, wanted["ids"], wanted.get("backwards", False))
        if files and not present:
            reporter.send(done=5)
            return 5
        options = ["-p", "no:cacheprovider", "--continue-on-collection-errors", "--tb=short", "-q"]
        options += ["-o", "addopts=", "--rootdir", wanted["root"]]
        watch = Watch(wanted["root"], wanted["cover"], wanted["coverage"]) if wanted.get("cover") else None
        if watch is not None:
            plugins.append(watch)
            watch.watched.start()
        if module is not None:
            plugins.append(module.plugin(beside["argument"], reporter.send))
        status = int(pytest.main([*options, *present], plugins=[*plugins, reporter]))
        if watch is not None:
            watch.watched.stop()
            watch.send(reporter)
        reporter.send(done=status)
    return status


if __name__ == "__main__":
    sys.exit(main())
