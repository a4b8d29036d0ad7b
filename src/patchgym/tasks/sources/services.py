"""The services that tests of packages need (``services.toml``)."""

import sys
import tomllib
from collections.abc import Mapping
from functools import lru_cache
from importlib import resources

from pydantic import Field

from patchgym.config import Settings, validated
from patchgym.errors import ConfigError
from patchgym.records import Service


class KnownService(Settings):
    """A service by the name of its programs' lock (a file in ``locks/``; empty for Python alone). ``files`` are files
    of this package; the rest as in ``patchgym.records.Service``."""

    lock: str
    command: tuple[str, ...]
    health: tuple[str, ...]
    setup: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    ports: tuple[int, ...]
    variables: dict[str, str] = Field(default_factory=dict)


@lru_cache(maxsize=1)
def known_services() -> Mapping[str, KnownService]:
    """Every service of ``services.toml``, by name."""
    data = tomllib.loads(_text("services.toml"))
    return {name: validated(KnownService, entry, f"services.toml [{name}]") for name, entry in data.items()}


def services_of(wanted: Mapping[str, Mapping[str, str]]) -> tuple[Service, ...]:
    """The services of these names, for the running interpreter's version, which every lock fits. Each name comes with
    variables that commands are told besides.

    Raises:
        ConfigError: there is no such service.
    """
    return tuple(_service(name, variables) for name, variables in wanted.items())


def _service(name: str, variables: Mapping[str, str]) -> Service:
    known = known_services().get(name)
    if known is None:
        raise ConfigError(f"There is no service {name!r}", why=f"Services: {', '.join(known_services())}.")
    return Service(
        name=name,
        command=known.command,
        health=known.health,
        setup=known.setup,
        files={file: _text(file) for file in known.files},
        python=f"{sys.version_info.major}.{sys.version_info.minor}",
        lock=_text(f"locks/{known.lock}.txt") if known.lock else "",
        ports=known.ports,
        variables={**known.variables, **variables},
    )


def _text(name: str) -> str:
    return resources.files("patchgym.tasks.sources").joinpath(name).read_text(encoding="utf-8")
