"""The list of attempts: filters, order and page from the address, answered by the index."""

from collections.abc import Sequence

from patchgym.view.opened import OpenedRun
from patchgym.view.query import Query
from patchgym.view.site import Site

PAGE = 50
FILTERS = ("phase", "task", "policy", "split", "verdict", "failure", "stop", "gate")
"""Columns that an address can ask a value of."""
ORDERS = {
    "": "(tree IS NOT NULL), rowid",
    "id": "id",
    "task": "task, phase, sample",
    "steps": "steps",
    "tokens": "tokens",
    "reward": "reward",
    "verdict": "verdict",
    "lines": "lines",
    "seconds": "seconds",
    "hacks": "hacked, proofs, marks",
}
_NONE = "none"
_EVIDENCE = {
    "proof": "hacked",
    "mark": "marks > 0 AND NOT hacked",
    "any": "(hacked OR marks > 0)",
    "no": "NOT hacked AND marks = 0",
}
_MOST_VALUES = 200


def attempts_page(site: Site, run: OpenedRun, query: Query) -> tuple[str, dict[str, object]]:
    """A page of the list."""
    where, values = condition(query)
    order = query.choice("sort", tuple(ORDERS), "")
    down = query.choice("order", ("up", "down"), "up") == "down"
    with run.index.open() as connection:
        total = connection.execute(f"SELECT count(*) FROM attempts WHERE {where}", values).fetchone()[0]
        pages = max(1, -(-total // PAGE))
        page = min(query.number("page", 1, 1), pages)
        text = f"SELECT * FROM attempts WHERE {where} ORDER BY {_order(order, down)} LIMIT {PAGE} OFFSET ?"
        rows = connection.execute(text, (*values, PAGE * (page - 1))).fetchall()
        options = {
            name: [
                row[0] if row[0] is not None else _NONE
                for row in connection.execute(
                    f"SELECT {name} FROM attempts GROUP BY {name} ORDER BY min(rowid) LIMIT {_MOST_VALUES}"
                )
            ]
            for name in FILTERS
            if name != "task"
        }
    return "attempts.html", {
        "rows": rows,
        "total": total,
        "page_number": page,
        "pages": pages,
        "query": query,
        "options": {name: found for name, found in options.items() if len(found) > 1 or query.text(name)},
        "sort": order,
        "down": down,
        "imported": bool(rows) and all(row["imported"] for row in rows),
    }


def condition(query: Query) -> tuple[str, tuple[str | float, ...]]:
    """The filters of an address as SQL with its values.

    Raises:
        UsageError: one of them makes no sense.
    """
    parts, values = ["1"], list[str | float]()
    for name in FILTERS:
        value = query.text(name)
        if value == _NONE:
            parts.append(f"{name} IS NULL")
        elif value:
            parts.append(f"{name} = ?")
            values.append(value)
    for name, comparison in (("min", ">="), ("max", "<=")):
        bound = query.real(name)
        if bound is not None:
            parts.append(f"reward {comparison} ?")
            values.append(bound)
    evidence = query.choice("evidence", ("", *_EVIDENCE), "")
    if evidence:
        parts.append(_EVIDENCE[evidence])
    if query.text("q"):
        parts.append("instr(lower(id), lower(?))")
        values.append(query.text("q"))
    return " AND ".join(parts), tuple(values)


def neighbours(run: OpenedRun, name: str, query: Query) -> tuple[str | None, str | None]:
    """The attempts before and after one in the list that an address describes; None at its ends."""
    where, values = condition(query)
    order = _order(query.choice("sort", tuple(ORDERS), ""), query.choice("order", ("up", "down"), "up") == "down")
    text = f"""
        WITH listed AS (SELECT id, lag(id) OVER (ORDER BY {order}) AS before, lead(id) OVER (ORDER BY {order}) AS after
                        FROM attempts WHERE {where})
        SELECT before, after FROM listed WHERE id = ?
    """
    with run.index.open() as connection:
        found = connection.execute(text, (*values, name)).fetchone()
    return (found["before"], found["after"]) if found is not None else (None, None)


def _order(name: str, down: bool) -> str:
    """The order as SQL: what was not measured comes last either way."""
    columns: Sequence[str] = ORDERS[name].split(", ")
    if not name:
        return ", ".join(f"{column} {'DESC' if down else 'ASC'}" for column in columns)
    way = "DESC" if down else "ASC"
    return ", ".join([*(f"{column} IS NULL, {column} {way}" for column in columns), "rowid"])
