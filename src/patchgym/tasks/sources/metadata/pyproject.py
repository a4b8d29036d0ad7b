"""``pyproject.toml``: the standard table, and those of Poetry, Flit, Hatch and PDM."""

from collections.abc import Mapping
from typing import Any

from patchgym.tasks.sources.metadata.model import Metadata, one_line, string, strings, table


def of_project(pyproject: Mapping[str, Any]) -> Metadata:
    """What the ``[project]`` table says, with the packages that setuptools or Hatch are told of."""
    project = table(pyproject, "project")
    licence = project.get("license")
    words = [licence if isinstance(licence, str) else table(project, "license").get("text", "")]
    words += [word for word in strings(project.get("classifiers")) if word.startswith("License ::")]
    listed = strings(table(pyproject, "tool", "setuptools").get("packages"))
    listed += strings(table(pyproject, "tool", "setuptools").get("py-modules"))
    listed += strings(table(pyproject, "tool", "hatch", "build", "targets", "wheel").get("packages"))
    return Metadata(
        name=string(project.get("name")),
        version=string(project.get("version")),
        requires_python=string(project.get("requires-python")),
        dependencies=strings(project.get("dependencies")),
        extras={name: strings(value) for name, value in table(project, "optional-dependencies").items()},
        entry_points=_entry_points(project),
        licences=tuple(word for word in map(one_line, map(str, words)) if word),
        packages=listed,
    )


def of_poetry(pyproject: Mapping[str, Any]) -> Metadata:
    """What Poetry's own tables say."""
    poetry = table(pyproject, "tool", "poetry")
    dependencies = dict(table(poetry, "dependencies"))
    python = string(dependencies.pop("python", None))
    groups = {name: _poetry_list(table(group, "dependencies")) for name, group in table(poetry, "group").items()}
    groups["dev"] = groups.get("dev", ()) + _poetry_list(table(poetry, "dev-dependencies"))
    packages = poetry.get("packages")
    listed = [each.get("include") for each in packages if isinstance(each, dict)] if isinstance(packages, list) else []
    return Metadata(
        name=string(poetry.get("name")),
        version=string(poetry.get("version")),
        requires_python=_poetry_range(python) if python else None,
        dependencies=_poetry_list(dependencies),
        groups={name: found for name, found in groups.items() if found},
        licences=strings(poetry.get("license")),
        packages=strings(listed),
    )


def _poetry_list(dependencies: Mapping[str, Any]) -> tuple[str, ...]:
    """Poetry's tables as plain requirements; optional ones and those from paths, URLs or git are left out."""
    found = []
    for name, wanted in dependencies.items():
        wanted = wanted[0] if isinstance(wanted, list) and wanted else wanted
        version = wanted if isinstance(wanted, str) else table({"w": wanted}, "w").get("version")
        if isinstance(wanted, dict) and (wanted.get("optional") or not isinstance(version, str)):
            continue
        marker = wanted.get("markers") if isinstance(wanted, dict) else None
        if isinstance(version, str):
            found.append(f"{name}{_poetry_range(version)}" + (f" ; {marker}" if isinstance(marker, str) else ""))
    return tuple(found)


def _poetry_range(wanted: str) -> str:
    """A caret, tilde or plain constraint of Poetry as a specifier; its upper bounds are dropped, since they forbid
    more than they know."""
    parts = []
    for part in wanted.split("||")[0].replace(" ", "").split(","):
        if part in ("", "*"):
            continue
        if part[0] in "^~" and part[:2] != "~=":
            parts.append(f">={part[1:]}")
        else:
            parts.append(part if part[0] in "<>=!~" else f"=={part}")
    return ",".join(parts)


def of_flit(pyproject: Mapping[str, Any]) -> Metadata:
    """What Flit's own tables say."""
    flit = table(pyproject, "tool", "flit", "metadata")
    module = string(flit.get("module")) or string(table(pyproject, "tool", "flit", "module").get("name"))
    extras = {name: strings(value) for name, value in table(flit, "requires-extra").items()}
    return Metadata(
        name=string(flit.get("dist-name")) or string(flit.get("module")),
        requires_python=string(flit.get("requires-python")),
        dependencies=strings(flit.get("requires")),
        extras=extras,
        licences=tuple(word for word in strings(flit.get("classifiers")) if word.startswith("License ::")),
        packages=(module,) if module else (),
    )


def dependency_groups(pyproject: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Requirements by group: the standard ``[dependency-groups]`` with what they include, PDM's and Hatch's own."""
    groups = table(pyproject, "dependency-groups")

    def expand(name: str, seen: frozenset[str]) -> tuple[str, ...]:
        found: list[str] = []
        entries = groups.get(name)
        for entry in entries if isinstance(entries, list) else ():
            inner = entry.get("include-group") if isinstance(entry, dict) else None
            if isinstance(inner, str) and inner not in seen:
                found += expand(inner, seen | {inner})
            elif isinstance(entry, str):
                found.append(entry)
        return tuple(found)

    found = {name: expand(name, frozenset({name})) for name in groups}
    for name, wanted in table(pyproject, "tool", "pdm", "dev-dependencies").items():
        found[name] = found.get(name, ()) + strings(wanted)
    for name, environment in table(pyproject, "tool", "hatch", "envs").items():
        group = {"default": "dev", "hatch-test": "test"}.get(name, name)
        for key in ("dependencies", "extra-dependencies"):
            found[group] = found.get(group, ()) + strings(table({"e": environment}, "e").get(key))
    return {name: wanted for name, wanted in found.items() if wanted}


def _entry_points(project: Mapping[str, Any]) -> str:
    groups = {"console_scripts": table(project, "scripts"), "gui_scripts": table(project, "gui-scripts")}
    groups.update({name: table(project, "entry-points", name) for name in table(project, "entry-points")})
    return "".join(
        f"[{name}]\n" + "".join(f"{key} = {value}\n" for key, value in points.items()) + "\n"
        for name, points in groups.items()
        if points
    )
