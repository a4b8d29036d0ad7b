"""``PKG-INFO``, ``requires.txt``, ``setup.cfg`` and the literals of ``setup.py``."""

import ast
import configparser
import re
from collections.abc import Iterable, Mapping
from email import message_from_string
from typing import Any

from patchgym.tasks.sources.metadata.model import Metadata, ini_lines, ini_options, one_line, string, strings, table


def of_pkg_info(text: str, requires: str) -> Metadata:
    """What an sdist's ``PKG-INFO`` says, with setuptools' ``requires.txt`` where it has no requirements itself."""
    if not text:
        return Metadata()
    headers = message_from_string(text)
    every = {name: tuple(str(value) for value in headers.get_all(name) or ()) for name in set(headers.keys())}
    first = {name: values[0].strip() for name, values in every.items() if values}
    runtime, extras = _split_extras(every.get("Requires-Dist", ()))
    if not every.get("Requires-Dist") and requires:  # older releases of setuptools tell it here alone
        runtime, extras = _of_requires_txt(requires)
    classifiers = [word for word in every.get("Classifier", ()) if word.startswith("License ::")]
    licences = [first.get("License-Expression", ""), one_line(first.get("License", "")), *classifiers]
    return Metadata(
        name=first.get("Name"),
        version=first.get("Version"),
        requires_python=first.get("Requires-Python"),
        dependencies=runtime,
        extras=extras,
        licences=tuple(word for word in licences if word and word != "UNKNOWN"),
    )


def _split_extras(requirements: Iterable[str]) -> tuple[tuple[str, ...], dict[str, tuple[str, ...]]]:
    """Requirements of a ``Requires-Dist`` list without and with ``extra == ...`` in their markers."""
    runtime: list[str] = []
    extras: dict[str, tuple[str, ...]] = {}
    for line in requirements:
        match = re.search(r"""\bextra\s*==\s*['"]([^'"]+)['"]""", line)
        if match is None:
            runtime.append(line)
            continue
        head, _, marker = line.partition(";")
        rest = re.sub(r"""\(?\s*(?:and\s+)?\bextra\s*==\s*['"][^'"]+['"]\s*(?:and\s+)?\)?""", " ", marker).strip()
        plain = f"{head.strip()} ; {rest}" if rest and rest.count("(") == rest.count(")") else head.strip()
        extras[match[1]] = (*extras.get(match[1], ()), plain)
    return tuple(runtime), extras


def _of_requires_txt(text: str) -> tuple[tuple[str, ...], dict[str, tuple[str, ...]]]:
    """setuptools' ``requires.txt``: requirements under ``[extra:marker]`` headings."""
    runtime: list[str] = []
    extras: dict[str, tuple[str, ...]] = {}
    extra = marker = ""
    for line in map(str.strip, text.splitlines()):
        if line.startswith("[") and line.endswith("]"):
            extra, _, marker = line[1:-1].partition(":")
        elif line:
            whole = f"{line} ; {marker}" if marker else line
            if extra:
                extras[extra] = (*extras.get(extra, ()), whole)
            else:
                runtime.append(whole)
    return tuple(runtime), extras


def of_setup_cfg(ini: configparser.RawConfigParser) -> Metadata:
    """What ``setup.cfg`` says."""

    def one(section: str, option: str) -> str | None:
        text = ini.get(section, option, fallback="").strip()
        return text if text and not text.startswith(("attr:", "file:")) and "\n" not in text else None

    extras = {
        name: ini_lines(ini, "options.extras_require", name) for name in ini_options(ini, "options.extras_require")
    }
    extras["tests_require"] = ini_lines(ini, "options", "tests_require")
    points = "".join(
        f"[{name}]\n" + "".join(f"{line}\n" for line in ini_lines(ini, "options.entry_points", name)) + "\n"
        for name in ini_options(ini, "options.entry_points")
    )
    listed = ini_lines(ini, "options", "py_modules") + ini_lines(ini, "options", "packages")
    licences = [one("metadata", "license") or "", *ini_lines(ini, "metadata", "classifiers")]
    return Metadata(
        name=one("metadata", "name"),
        version=one("metadata", "version"),
        requires_python=one("options", "python_requires"),
        dependencies=ini_lines(ini, "options", "install_requires"),
        extras={name: found for name, found in extras.items() if found},
        entry_points=points,
        licences=tuple(word for word in licences if word and (word == licences[0] or word.startswith("License ::"))),
        packages=tuple(word for word in listed if not word.startswith(("find", "attr"))),
    )


def setup_keywords(text: str) -> dict[str, Any]:
    """The keyword arguments of the ``setup()`` call in a ``setup.py`` that are literals, or names given a literal."""
    try:
        module = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return {}
    names: dict[str, Any] = {}
    found: dict[str, Any] = {}
    for node in ast.walk(module):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            names.setdefault(node.targets[0].id, _literal(node.value, {}))
    for node in ast.walk(module):
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == "setup":
            found.update({key.arg: _literal(key.value, names) for key in node.keywords if key.arg})
    return {name: value for name, value in found.items() if value is not None}


def _literal(node: ast.expr, names: Mapping[str, Any]) -> Any:
    if isinstance(node, ast.Name):
        return names.get(node.id)
    if isinstance(node, ast.Dict):
        pairs = [
            (_literal(key, names), _literal(value, names))
            for key, value in zip(node.keys, node.values, strict=True)
            if key
        ]
        return {key: value for key, value in pairs if isinstance(key, str) and value is not None}
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = _literal(node.left, names), _literal(node.right, names)
        return left + right if isinstance(left, list) and isinstance(right, list) else None
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return None


def of_setup_py(text: str) -> Metadata:
    """What the literals in the ``setup()`` call of ``setup.py`` say."""
    found = setup_keywords(text)
    extras = {str(name): strings(value) for name, value in table(found, "extras_require").items()}
    extras["tests_require"] = strings(found.get("tests_require"))
    points = "".join(
        f"[{name}]\n" + "".join(f"{line}\n" for line in strings(lines)) + "\n"
        for name, lines in table(found, "entry_points").items()
    )
    licences = [one_line(str(found.get("license", "")))]
    licences += [word for word in strings(found.get("classifiers")) if word.startswith("License ::")]
    return Metadata(
        name=string(found.get("name")),
        version=string(found.get("version")),
        requires_python=string(found.get("python_requires")),
        dependencies=strings(found.get("install_requires")),
        extras={name: wanted for name, wanted in extras.items() if wanted},
        entry_points=points,
        licences=tuple(word for word in licences if word),
        packages=strings(found.get("packages")) + strings(found.get("py_modules")),
    )
