"""Recipes: one small settings model a command, filled from TOML and dotted overrides. Unknown keys fail."""

import difflib
import tomllib
import types
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError

from patchgym.errors import ConfigError, UsageError


class Settings(BaseModel):
    """Base of every settings model: frozen, and strict about its keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")


S = TypeVar("S", bound=Settings)


def recipe_names() -> list[str]:
    """Names of the recipes that travel in the package."""
    return sorted(path.name.removesuffix(".toml") for path in _embedded().iterdir() if path.name.endswith(".toml"))


def load_recipe(model: type[S], recipe: str | None, overrides: Sequence[str] = ()) -> S:
    """Settings from a recipe and ``key.inner=value`` overrides, which win.

    ``recipe`` is a path ending in ``.toml``, the name of an embedded recipe, or None for ``default``. Override values
    are TOML values; what is not valid TOML counts as a string.

    Raises:
        UsageError: no such recipe, or an override without ``=``.
        ConfigError: bad TOML, an unknown key (with the nearest known one), or a value of the wrong kind.
    """
    name = recipe or "default"
    try:
        data: dict[str, Any] = tomllib.loads(_recipe_text(name))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"Recipe {name} is not valid TOML", why=str(error)) from error
    _override(data, overrides)
    return validated(model, data, name)


def assigned(model: type[S], overrides: Sequence[str], name: str) -> S:
    """Settings with their defaults but for ``key.inner=value`` overrides; ``name`` is what messages call them.

    Raises:
        UsageError: an override without ``=``.
        ConfigError: as ``load_recipe``.
    """
    return filled(model, {}, overrides, name)


def filled(model: type[S], data: dict[str, Any], overrides: Sequence[str], name: str) -> S:
    """Settings from values as they come out of JSON and ``key.inner=value`` overrides, which win; ``name`` is what
    messages call them. ``data`` is changed.

    Raises:
        UsageError, ConfigError: as ``assigned``.
    """
    _override(data, overrides)
    return validated(model, data, name)


def _override(data: dict[str, Any], overrides: Sequence[str]) -> None:
    for override in overrides:
        key, equals, text = override.partition("=")
        if not equals or not key:
            raise UsageError(f"Override {override!r} has no value", mend="Write it as key.inner=value.")
        _put(data, key.split("."), _value(text), override)


def validated(model: type[S], data: dict[str, Any], name: str) -> S:
    """Check ``data`` against ``model``; ``name`` is the recipe's name in messages.

    Raises:
        ConfigError: an unknown key or a value of the wrong kind.
    """
    try:
        return model.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        place = [str(part) for part in first["loc"]]
        if first["type"] == "ordering":
            raise ConfigError(
                f"Recipe {name}: these rewards would put attempts in the wrong order",
                why=f"{first['msg']}.",
                mend="Lower second_layer, half or cap, and give no term a negative weight.",
            ) from error
        if first["type"] != "extra_forbidden":
            raise ConfigError(
                f"Recipe {name}: {'.'.join(place)}: {first['msg']}", why=f"It is {first['input']!r}."
            ) from error
        known = _keys_at(model, place[:-1])
        near = difflib.get_close_matches(place[-1], known, n=1, cutoff=0.5)
        raise ConfigError(
            f"Recipe {name} has an unknown key: {'.'.join(place)}",
            why=f"Keys there: {', '.join(known)}.",
            mend=f"Did you mean {'.'.join([*place[:-1], near[0]])}?" if near else "Remove it.",
        ) from error


def differing_keys(old: Any, new: Any, prefix: str = "") -> list[str]:
    """Dotted keys whose JSON values differ between two resolved configurations, sorted."""
    if isinstance(old, dict) and isinstance(new, dict):
        found: list[str] = []
        for key in sorted(old.keys() | new.keys()):
            found += differing_keys(old.get(key), new.get(key), f"{prefix}.{key}" if prefix else key)
        return found
    return [] if old == new else [prefix]


def _embedded() -> Any:
    return resources.files("patchgym") / "recipes"


def _recipe_text(name: str) -> str:
    if name.endswith(".toml"):
        path = Path(name)
        if not path.is_file():
            raise UsageError(f"There is no recipe file {name}", mend=f"Embedded recipes: {', '.join(recipe_names())}.")
        return path.read_text(encoding="utf-8")
    if name not in recipe_names():
        near = difflib.get_close_matches(name, recipe_names(), n=1)
        raise UsageError(
            f"There is no recipe named {name}",
            why=f"Embedded recipes: {', '.join(recipe_names())}.",
            mend=f"Did you mean {near[0]}?" if near else "A file of your own must end in .toml.",
        )
    text: str = (_embedded() / f"{name}.toml").read_text(encoding="utf-8")
    return text


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _put(data: dict[str, Any], keys: list[str], value: Any, override: str) -> None:
    for key in keys[:-1]:
        data = data.setdefault(key, {})
        if not isinstance(data, dict):
            raise ConfigError(f"Override {override!r} goes below {key}, which is a value, not a table")
    data[keys[-1]] = value


def _keys_at(model: type[BaseModel], place: Sequence[str]) -> list[str]:
    """Known keys of the settings model found by walking ``place`` down from ``model``."""
    for part in place:
        field = model.model_fields.get(part)
        inner = [kind for kind in _flat(field.annotation) if isinstance(kind, type)] if field else []
        models = [kind for kind in inner if issubclass(kind, BaseModel)]
        if not models:
            continue
        model = models[0]
    return sorted(model.model_fields)


def _flat(annotation: Any) -> list[Any]:
    if get_origin(annotation) in (Union, types.UnionType, tuple, list):
        return [kind for inner in get_args(annotation) for kind in _flat(inner)]
    return [annotation]
