"""Ways to break code: each operator looks at one syntax node of a function and proposes small edits of it.

An operator is a plain function ``(node, place) -> edits`` under ``@looks_at(kinds of node)``. To add one, write it in
the module of its theme, enter it in ``OPERATORS``, and give it its figures in ``operators.toml``. What it must not
touch (docstrings, annotations, decorators, raise and assert statements) is kept from it by the walk in
``mutation.py``.
"""

import tomllib
from collections.abc import Mapping
from functools import lru_cache
from importlib import resources

from patchgym.config import Settings, validated
from patchgym.tasks.bugs.operators import calls, conditions, handlers, loops, statements, values
from patchgym.tasks.bugs.operators.base import Edit, Operator, Place
from patchgym.tasks.bugs.operators.removal import remove_body

__all__ = ["OPERATORS", "REMOVAL", "Edit", "Operator", "Place", "Traits", "operator_named", "traits"]

OPERATORS: Mapping[str, Operator] = {
    operator.name: operator
    for operator in sorted(
        (
            calls.drop_conversion,
            calls.drop_default,
            calls.drop_keyword,
            calls.drop_method,
            calls.drop_star,
            calls.drop_super,
            calls.sibling_function,
            calls.sibling_method,
            calls.swap_arguments,
            calls.swap_keywords,
            conditions.bool_operator,
            conditions.bool_return,
            conditions.boundary,
            conditions.comparison,
            conditions.drop_comparison,
            conditions.drop_condition,
            conditions.drop_else,
            conditions.drop_not,
            conditions.elif_to_if,
            conditions.narrow_isinstance,
            conditions.negate_condition,
            conditions.none_check,
            conditions.swap_branches,
            handlers.drop_finally,
            handlers.drop_handler,
            handlers.drop_reraise,
            handlers.narrow_except,
            handlers.swallow,
            handlers.wide_except,
            loops.drop_filter,
            loops.early_return,
            loops.enumerate_start,
            loops.iteration_order,
            loops.loop_exit,
            loops.loop_once,
            loops.range_bounds,
            statements.dedent_statement,
            statements.drop_statement,
            statements.drop_yield,
            statements.remove_guard,
            statements.swap_statements,
            statements.wrong_return,
            values.arithmetic,
            values.constant,
            values.default_argument,
            values.drop_copy,
            values.format_piece,
            values.length,
            values.plain_assignment,
            values.slice_edit,
            values.slice_step,
            values.string,
            values.swap_operands,
            values.swap_targets,
            values.wrong_variable,
        ),
        key=lambda operator: operator.name,
    )
}
"""The operators that plant one small bug, by name."""

REMOVAL: Operator = remove_body
"""Removes a whole function's body; no small bug, and so not among ``OPERATORS``."""


class Traits(Settings):
    """What is known of an operator before it is used: ``kill`` is the share of its bugs, on lines that tests cover,
    that fail at least two test functions; ``subtle`` how hard such a bug is to see (0 to 1)."""

    kill: float
    subtle: float


@lru_cache(maxsize=1)
def traits() -> Mapping[str, Traits]:
    """Every operator's traits (``operators.toml``), by name."""
    data = tomllib.loads(resources.files(__name__).joinpath("operators.toml").read_text(encoding="utf-8"))
    return {name: validated(Traits, entry, f"operators.toml [{name}]") for name, entry in data.items()}


def operator_named(name: str) -> Operator | None:
    """The operator of that name, the removal of bodies among them; None where there is none."""
    return REMOVAL if name == REMOVAL.name else OPERATORS.get(name)
