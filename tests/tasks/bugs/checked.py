"""Every bug that operators can plant in a source."""

from collections.abc import Collection

from patchgym.tasks.bugs.mutation import Mutation, makes_bug, proposals


def mutations(source: str, operators: Collection[str] = (), *, max_function_lines: int = 0) -> list[Mutation]:
    """The proposals that leave a program, and another one."""
    proposed = proposals(source, operators, max_function_lines=max_function_lines)
    return [found for found in proposed if makes_bug(source.encode(), found)]
