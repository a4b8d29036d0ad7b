"""What a code base declares of itself, and reading the documents in which it does."""

import configparser
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Metadata:
    """What a code base declares. ``extras`` and ``groups`` map names to requirements; ``licences`` are the words in
    which it names its licence, best first, as they were found; ``packages`` are its packages or modules where it lists
    them; ``pytest`` the settings of pytest that have to do with where tests are."""

    name: str | None = None
    version: str | None = None
    requires_python: str | None = None
    dependencies: tuple[str, ...] = ()
    extras: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    entry_points: str = ""
    licences: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    pytest: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def read_toml(text: str) -> dict[str, Any]:
    """A TOML document as a mapping; empty where it does not parse."""
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError):
        return {}


def table(data: Any, *path: str) -> dict[str, Any]:
    """A table inside a TOML document; empty where there is none."""
    for name in path:
        data = data.get(name) if isinstance(data, dict) else None
    return data if isinstance(data, dict) else {}


def strings(value: Any) -> tuple[str, ...]:
    """The strings of a list, or a string alone; anything else is left out."""
    if isinstance(value, str):
        return (value,)
    return tuple(each for each in value if isinstance(each, str)) if isinstance(value, list | tuple) else ()


def string(value: Any) -> str | None:
    """A string that says something; None for anything else."""
    return value.strip() if isinstance(value, str) and value.strip() else None


def one_line(value: str) -> str:
    """A text of one line, or nothing: where a licence's name is asked for, some projects paste the licence."""
    text = value.strip()
    return text if len(text) <= 100 and "\n" not in text else ""


def read_ini(text: str) -> configparser.RawConfigParser:
    """An INI document; empty where it does not parse."""
    parser = configparser.RawConfigParser(strict=False, allow_no_value=True)
    try:
        parser.read_string(text)
    except configparser.Error:
        return configparser.RawConfigParser()
    return parser


def ini_lines(ini: configparser.RawConfigParser, section: str, option: str) -> tuple[str, ...]:
    """The lines of an option, without comments; none where it is not there."""
    lines = (ini.get(section, option, fallback="") or "").splitlines()
    return tuple(line.strip() for line in lines if line.strip() and not line.strip().startswith("#"))


def ini_options(ini: configparser.RawConfigParser, section: str) -> tuple[str, ...]:
    """The names of a section's options; none where it is not there."""
    return tuple(ini.options(section)) if ini.has_section(section) else ()
