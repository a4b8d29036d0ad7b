"""``patchgym traces schema``: what a trajectory is, for programs and for people."""

from typing import Any

import click

from patchgym.cli.console import show_json, show_line


@click.command()
@click.option("--fields", is_flag=True, help="Print every field with its type and meaning, as Markdown.")
def command(fields: bool) -> None:
    """Print the JSON Schema of a line of trajectories.jsonl."""
    from patchgym.records import Trajectory

    schema = Trajectory.model_json_schema(mode="serialization")
    if fields:
        show_line("\n".join(field_tables(schema)))
    else:
        show_json(schema)


def field_tables(schema: dict[str, Any]) -> list[str]:
    """A table for each record of a JSON Schema, the outermost first, in the order in which they are named."""
    lines: list[str] = []
    definitions = schema["$defs"]
    waiting, done = [schema], set()
    while waiting:
        record = waiting.pop(0)
        if record.get("title") in done or "properties" not in record:
            continue
        done.add(record["title"])
        lines += [f"## {record['title']}", "", _one_line(record.get("description", "")), ""]
        lines += ["| field | type | meaning |", "|---|---|---|"]
        for name, field in record["properties"].items():
            kinds, named = _kinds(field, definitions)
            waiting += [definitions[one] for one in named]
            lines.append(f"| `{name}` | {kinds} | {_one_line(field.get('description', ''))} |")
        lines.append("")
    return lines[:-1]


def _kinds(field: dict[str, Any], definitions: dict[str, Any]) -> tuple[str, list[str]]:
    """The type of a field in words, and the records that it names."""
    if "$ref" in field:
        name = field["$ref"].rpartition("/")[2]
        members = definitions[name].get("enum")
        return (", ".join(f"`{member}`" for member in members), []) if members else (name, [name])
    if "anyOf" in field:
        found = [_kinds(one, definitions) for one in field["anyOf"]]
        return " or ".join(kind for kind, _ in found), [name for _, names in found for name in names]
    if "enum" in field:
        return ", ".join(f"`{value}`" for value in field["enum"]), []
    if "const" in field:
        return f"`{field['const']}`", []
    if field.get("type") == "array":
        inner, named = _kinds(field.get("items", {}), definitions)
        return f"list of {inner}", named
    if field.get("type") == "object" and isinstance(field.get("additionalProperties"), dict):
        inner, named = _kinds(field["additionalProperties"], definitions)
        return f"map to {inner}", named
    return field.get("format", field.get("type", "JSON")).replace("null", "none"), []


def _one_line(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("``", "`")
