"""Rows both ways: what a task holds by itself is written from it, and the rest of a row is kept in ``Task.foreign``.

``Foreign.fields`` of a row is ``{"columns": [names in their order], "values": {name: value}}``. ``values`` holds the
columns that the task has no place for, and the very form of those that it would write in another form. Such a kept
form is used again only while it still says what the task says: a task that was changed after its import never writes
what it was before.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pydantic import JsonValue

from patchgym.content import ObjectStore
from patchgym.records import Foreign, Task
from patchgym.tasks.formats.refused import Refused, Row, moment, moment_text, optional_text, strings

Agrees = Callable[[JsonValue, Task, ObjectStore], bool]


@dataclass(frozen=True)
class Column:
    """A column that a task holds by itself. ``write`` gives its value; ``agrees`` says whether another value says the
    same of the task."""

    name: str
    write: Callable[[Task, ObjectStore], JsonValue]
    agrees: Agrees

    def value(self, task: Task, objects: ObjectStore, kept: Mapping[str, JsonValue]) -> JsonValue:
        """The kept form where it still holds, else a new one."""
        if self.name in kept and self._holds(kept[self.name], task, objects):
            return kept[self.name]
        return self.write(task, objects)

    def _holds(self, value: JsonValue, task: Task, objects: ObjectStore) -> bool:
        try:
            return self.agrees(value, task, objects)
        except Refused:
            return False


def same(name: str, of: Callable[[Task], JsonValue]) -> Column:
    """A column with one form only."""
    return Column(name, lambda task, _: of(task), lambda value, task, _: value == of(task))


def maybe(name: str, of: Callable[[Task], str | None]) -> Column:
    """A text that a task may lack; null, an empty text and what is no text all say so."""
    return Column(name, lambda task, _: of(task) or "", lambda value, task, _: optional_text(value) == of(task))


def listed(name: str, of: Callable[[Task], Sequence[str]], form: Callable[[list[str]], JsonValue]) -> Column:
    """A list of texts, as a list or as the JSON text of one; ``form`` makes a new one."""
    return Column(
        name, lambda task, _: form(list(of(task))), lambda value, task, _: strings(value, name) == tuple(of(task))
    )


def created_at() -> Column:
    """The time at which a task's fix was made."""
    return Column(
        "created_at",
        lambda task, _: moment_text(task.source.created_at),
        lambda value, task, _: moment(value) == task.source.created_at,
    )


def keep(format_name: str, row: Row, task: Task, columns: Sequence[Column], objects: ObjectStore) -> Task:
    """The task with all of ``row`` that it does not hold by itself."""
    own = {column.name: column for column in columns}
    values = {name: value for name, value in row.items() if name not in own or own[name].write(task, objects) != value}
    fields: dict[str, JsonValue] = {"columns": list(row), "values": values}
    return task.model_copy(update={"foreign": Foreign(format=format_name, fields=fields)})


def write_row(
    format_name: str, task: Task, columns: Sequence[Column], default: Sequence[str], objects: ObjectStore
) -> dict[str, JsonValue]:
    """The row of a task: its own columns in their own order where it was imported from this format, else those of
    ``default``, which are empty where a task says nothing of them."""
    names, values = list(default), dict[str, JsonValue]()
    if task.foreign is not None and task.foreign.format == format_name:
        names, values = kept_parts(task.foreign)
    own = {column.name: column for column in columns}
    return {name: own[name].value(task, objects, values) if name in own else values.get(name, "") for name in names}


def kept_parts(foreign: Foreign) -> tuple[list[str], dict[str, JsonValue]]:
    """The columns' names and the kept values of an imported row."""
    names, values = foreign.fields.get("columns"), foreign.fields.get("values")
    return (
        [name for name in names if isinstance(name, str)] if isinstance(names, list) else [],
        values if isinstance(values, dict) else {},
    )
