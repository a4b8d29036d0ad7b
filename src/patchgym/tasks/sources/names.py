"""The lists of ``names.toml``."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources


@dataclass(frozen=True)
class Names:
    """``tools``: packages that development asks for and tests do without; ``aside``: folders that are neither sources
    nor tests; ``chores``: modules that build, check or release; ``departed``: modules that this Python no longer has;
    ``modules``: the package of a module that is not called like it."""

    tools: frozenset[str]
    aside: frozenset[str]
    chores: frozenset[str]
    departed: frozenset[str]
    modules: Mapping[str, str]


@lru_cache(maxsize=1)
def known_names() -> Names:
    """The lists, read once."""
    text = resources.files("patchgym.tasks.sources").joinpath("names.toml").read_text(encoding="utf-8")
    data = tomllib.loads(text)
    lists = {name: frozenset(data[name]) for name in ("tools", "aside", "chores", "departed")}
    return Names(**lists, modules=data["modules"])
