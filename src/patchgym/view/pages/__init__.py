"""One function a page: from the run and the address to a template with its values."""

from collections.abc import Callable, Mapping

from patchgym.view.opened import OpenedRun
from patchgym.view.pages.attempt import attempt_page
from patchgym.view.pages.attempts import attempts_page
from patchgym.view.pages.compare import runs_page
from patchgym.view.pages.judged import checklist_page, data_page, opened_check, spotcheck_page
from patchgym.view.pages.overview import overview_page
from patchgym.view.pages.step import files_page, step_page, text_page
from patchgym.view.pages.tasks import task_page, tasks_page, workspace_page
from patchgym.view.pages.trees import tree_page, trees_page
from patchgym.view.query import Query
from patchgym.view.site import Site

Page = Callable[[Site, OpenedRun, Query], tuple[str, dict[str, object]]]

PAGES: Mapping[str, Page] = {
    "": overview_page,
    "attempts": attempts_page,
    "attempt": attempt_page,
    "step": step_page,
    "text": text_page,
    "files": files_page,
    "tasks": tasks_page,
    "task": task_page,
    "workspace": workspace_page,
    "trees": trees_page,
    "tree": tree_page,
    "checklist": checklist_page,
    "data": data_page,
    "spotcheck": spotcheck_page,
}
"""The pages of a run by their names in addresses."""

__all__ = ["PAGES", "Page", "opened_check", "runs_page"]
