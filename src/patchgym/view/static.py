"""One self-contained page of a run: no server, no script, nothing loaded from anywhere.

It has a size: attempts are taken until their number or the page's bytes are reached, those that tell most first, and
the page says what it leaves out.
"""

import base64
import hashlib
from collections.abc import Sequence

from markupsafe import Markup

from patchgym.view.checklist import kept_checklists
from patchgym.view.failing import failing_phases, failure_kinds
from patchgym.view.figures import phases, reward_bins
from patchgym.view.opened import OpenedRun
from patchgym.view.pages.attempt import facts, step_line, tests_of
from patchgym.view.pages.judged import data_page
from patchgym.view.pages.overview import kept_evaluations, phase_charts, update_curves, update_line
from patchgym.view.pages.tasks import tasks_page
from patchgym.view.query import Query
from patchgym.view.site import Site, asset
from patchgym.view.text import cut

MOST_BYTES = 8_000_000
_STEPS = 60
_TESTS = 20
_TASKS = 400
_TELLING = """
    SELECT id FROM attempts
    ORDER BY hacked DESC, marks > 0 DESC,
             row_number() OVER (PARTITION BY solved, failure, phase ORDER BY rowid), rowid
    LIMIT ?
"""


def static_page(site: Site, run: OpenedRun, attempts: int, most_bytes: int = MOST_BYTES) -> str:
    """The page, with at most so many attempts whole: those with evidence of hacking, then some of each way to end in
    each phase.

    Raises:
        DataError: something that the page shows can no longer be read.
    """
    query = Query({})
    style = asset("style.css")
    with run.index.open() as connection:
        found, failed = phases(connection), failing_phases(connection)
        bins = reward_bins(connection)
        total = connection.execute("SELECT count(*) FROM attempts").fetchone()[0]
        names = [row[0] for row in connection.execute(_TELLING, (attempts,))]
    updates = run.updates()
    tasks = tasks_page(site, run, query)[1]
    parts = _attempts(site, run, names, most_bytes)
    values: dict[str, object] = {
        "style": Markup(style),  # ours, and without a character that would end the element
        "style_hash": base64.b64encode(hashlib.sha256(style.encode()).digest()).decode(),
        "phases": found,
        "charts": phase_charts(found, bins, failed),
        "failures": failed,
        "kinds": failure_kinds(failed),
        "curves": update_curves(updates),
        "updates": [update_line(name, report) for name, report in updates],
        "evaluations": kept_evaluations(run.files.evaluations()),
        "lists": kept_checklists(run.files),
        "problems": run.problems(20),
        **{name: value for name, value in data_page(site, run, query)[1].items() if name != "tasks"},
        "task_rows": tasks["rows"],
        "task_total": tasks["total"],
        "attempts": parts,
        "attempts_total": total,
        "steps_most": _STEPS,
    }
    return site.render("static.html", run, "static", values)


def _attempts(site: Site, run: OpenedRun, names: Sequence[str], room: int) -> list[Markup]:
    """Attempts as markup, as many as there is room for."""
    template = site.templates.get_template("static_attempt.html")
    found: list[Markup] = []
    for number, name in enumerate(names, start=1):
        one = run.trajectory(name)
        report = one.report
        html = template.render(
            {
                **facts(run, one),
                "number": number,
                "steps": [
                    (step_line(step), _shown(step.observation.shown if step.observation else ""))
                    for step in one.steps[:_STEPS]
                ],
                "more": max(0, len(one.steps) - _STEPS),
                "tests": [
                    line for line in tests_of(run, one) if line.part.startswith("to be") or line.outcome != "passed"
                ][:_TESTS],
                "log": cut(report.log, 2000).text if report is not None else "",
            }
        )
        room -= len(html.encode("utf-8"))
        if room < 0:
            break
        found.append(Markup(html))
    return found


def _shown(text: str) -> str:
    return cut(text, 1200).text
