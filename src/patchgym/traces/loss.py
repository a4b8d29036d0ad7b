"""Which parts of a trajectory a format does not hold."""

from collections.abc import Iterator, Sequence

from pydantic import BaseModel

from patchgym.records import Trajectory

_LEFT = frozenset({"schema_version", "origin"})


def lost_parts(old: Trajectory, back: Sequence[Trajectory]) -> set[str]:
    """The parts of a trajectory that do not come back the same, by dotted name (``steps.observation.exit_code``). One
    that says nothing is not lost, and of steps, one that any of them lost is. Of a trajectory that comes back as
    several, ``steps`` is lost: how they belong together."""
    if len(back) != 1:
        return {"steps"} | (set(_differing(old, back[0], "")) if back else set(told_parts(old)))
    return set(_differing(old, back[0], ""))


def told_parts(trajectory: Trajectory) -> set[str]:
    """Every part of a trajectory that says something, by dotted name."""
    return set(_told(trajectory, ""))


def is_held(part: str, held: frozenset[str]) -> bool:
    """Whether a part, or one that it is a part of, is among those that are held."""
    names = part.split(".")
    return any(".".join(names[:length]) in held for length in range(1, len(names) + 1))


def _differing(old: BaseModel, new: BaseModel, prefix: str) -> Iterator[str]:
    for name in type(old).model_fields:
        had, has = getattr(old, name), getattr(new, name)
        if had == has or not _says(had) or (not prefix and name in _LEFT):
            continue
        if isinstance(had, BaseModel) and isinstance(has, BaseModel):
            yield from _differing(had, has, f"{prefix}{name}.")
        elif _records(had) and isinstance(has, tuple) and len(had) == len(has):
            for one, other in zip(had, has, strict=True):
                yield from _differing(one, other, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


def _told(record: BaseModel, prefix: str) -> Iterator[str]:
    for name in type(record).model_fields:
        if _says(getattr(record, name)) and (prefix or name not in _LEFT):
            yield from _parts(getattr(record, name), f"{prefix}{name}")


def _parts(value: object, name: str) -> Iterator[str]:
    """A part by its name, or by those of its own parts where it is a record."""
    if isinstance(value, BaseModel):
        yield from _told(value, f"{name}.")
    elif _records(value) and isinstance(value, tuple):
        for record in value:
            yield from _told(record, f"{name}.")
    else:
        yield name


def _records(value: object) -> bool:
    return isinstance(value, tuple) and bool(value) and all(isinstance(item, BaseModel) for item in value)


def _says(value: object) -> bool:
    return value is not None and value not in ("", (), {})
