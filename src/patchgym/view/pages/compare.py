"""The first page: the opened runs side by side, the settings in which they differ, their charts in one."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from pydantic import JsonValue

from patchgym.view.charts import Chart, Series, line_chart
from patchgym.view.failing import Failing, failing_run, failure_kinds
from patchgym.view.figures import Phase, Spread, Summary, phases, summary
from patchgym.view.opened import OpenedRun, Progress
from patchgym.view.site import Site

_MOST_SETTINGS = 60
_BESIDE = ("versions.", "config.tasks.gates.licences")


class RunLine(NamedTuple):
    """A run in the table of runs."""

    run: OpenedRun
    progress: Progress
    command: str
    policy: str
    figures: Summary
    created: str


def runs_page(site: Site, wanted: Sequence[str]) -> tuple[str, dict[str, object]]:
    """All runs, those in the charts that are wanted (where none is named, all)."""
    runs = [site.run(name) for name in wanted] if wanted else list(site.runs.values())
    measured = [(run, _phases(run)) for run in runs]
    names = list(dict.fromkeys(phase.name for _, found in measured for phase in found))
    sampled = [name for name in names if not name.startswith(("eval", "demonstrate"))]
    failures = [_failures(run) for run in runs]
    return "runs.html", {
        "lines": [_line(run) for run in site.runs.values()],
        "compared": [run.name for run in runs],
        "settings": differing({run.name: _settings(run) for run in runs}),
        "failures": failures,
        "kinds": failure_kinds(failures),
        "charts": _charts(measured, sampled, names),
    }


def _failures(run: OpenedRun) -> Failing:
    with run.index.open() as connection:
        return failing_run(connection, run.name)


def _phases(run: OpenedRun) -> list[Phase]:
    with run.index.open() as connection:
        return phases(connection)


def _charts(
    measured: Sequence[tuple[OpenedRun, Sequence[Phase]]], sampled: Sequence[str], names: Sequence[str]
) -> list[Chart]:
    def over(places: Sequence[str], value: Callable[[Phase], Spread | None]) -> list[Series]:
        found = []
        for run, of_run in measured:
            by_name = {phase.name: phase for phase in of_run}
            points = [value(by_name[place]) if place in by_name else None for place in places]
            found.append(Series(run.name, points))
        return found

    charts = [
        line_chart("Mean reward", sampled, over(sampled, lambda phase: phase.reward)),
        line_chart("Solved on held-out tasks", names, over(names, lambda phase: phase.solved_heldout), percent=True),
        line_chart("Steps an attempt", names, over(names, lambda phase: phase.steps)),
        line_chart(
            "Attempts with proof of hacking", sampled, over(sampled, lambda phase: phase.hacked_over), percent=True
        ),
        line_chart("Steps with a readable action", names, over(names, _readable), percent=True),
        line_chart("Solved on training tasks", sampled, over(sampled, lambda phase: phase.solved_train), percent=True),
    ]
    return [chart for chart in charts if chart is not None]


def _readable(phase: Phase) -> Spread | None:
    return Spread(phase.readable, None, None, phase.tasks) if phase.readable is not None else None


def _line(run: OpenedRun) -> RunLine:
    manifest = run.files.manifest
    policy = manifest.config.get("policy") if manifest is not None else None
    with run.index.open() as connection:
        figures = summary(connection)
    return RunLine(
        run=run,
        progress=run.progress(),
        command=manifest.command if manifest is not None else "?",
        policy=str(policy) if policy is not None else "–",
        figures=figures,
        created=f"{manifest.created_at:%Y-%m-%d %H:%M}" if manifest is not None else "–",
    )


def _settings(run: OpenedRun) -> dict[str, str]:
    manifest = run.files.manifest
    if manifest is None:
        return {}
    told: JsonValue = {"config": manifest.config, "versions": dict(manifest.versions)}
    found = dict(_flat(told, ""))
    found |= {"command": manifest.command, "seed": str(manifest.seed)}
    found["tasks"] = f"{len(manifest.task_hashes)} ({_digest(manifest.task_hashes)})"
    return found


def _digest(hashes: Mapping[str, str]) -> str:
    """A short name for a set of tasks: the same tasks have the same one."""
    return f"{sum(int(value[:12], 16) for value in hashes.values() if _hex(value[:12])) % 16**6:06x}"


def _hex(text: str) -> bool:
    return bool(text) and all(sign in "0123456789abcdef" for sign in text)


def _flat(value: JsonValue, name: str) -> list[tuple[str, str]]:
    if isinstance(value, dict):
        return [pair for key, inner in value.items() for pair in _flat(inner, f"{name}.{key}" if name else key)]
    return [(name, str(value))]


def differing(settings: Mapping[str, Mapping[str, str]]) -> list[tuple[str, list[str]]]:
    """The settings that are not the same in all runs, each with its value in every run: those first that all runs have,
    last the versions of libraries."""
    if len(settings) < 2:
        return []
    names = dict.fromkeys(name for found in settings.values() for name in found)
    rows = [(name, [found.get(name, "–") for found in settings.values()]) for name in names]
    apart = [row for row in rows if len(set(row[1])) > 1]
    apart.sort(key=lambda row: (row[0].startswith(_BESIDE), "–" in row[1]))
    return [(name.removeprefix("config."), values) for name, values in apart[:_MOST_SETTINGS]]
