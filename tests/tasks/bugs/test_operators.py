"""What each operator does, and what it leaves alone."""

import pytest

from patchgym.tasks.bugs.mutation import plant
from patchgym.tasks.bugs.operators import OPERATORS, REMOVAL, traits
from tests.tasks.bugs.checked import mutations

EXAMPLES = [
    ("arithmetic", "return a + b", "return a - b"),
    ("arithmetic", "a *= 3", "a += 3"),
    ("bool_operator", "return a and b", "return a or b"),
    ("bool_return", "return True", "return False"),
    ("boundary", "return a  <  b", "return a  <=  b"),
    ("comparison", "return a is not b", "return a is b"),
    ("comparison", "return a in b", "return a not in b"),
    ("constant", "return a[3:]", "return a[4:]"),
    ("constant", "return g(flag=True)", "return g(flag=False)"),
    ("dedent_statement", "if a:\n        g()\n        a.b = 1\n    return a", "g()\n    a.b = 1\n    return a"),
    ("drop_comparison", "return 0 < (a) <= b", "return 0 < (a)\n"),
    ("drop_comparison", "return 0 < (a) <= b", "return (a) <= b\n"),
    ("drop_condition", "return (a or 1) and b", "return (a or 1)\n"),
    ("drop_condition", "return (a or 1) and b", "return b\n"),
    ("drop_conversion", "return int(a + b) * 2", "return (a + b) * 2"),
    ("drop_copy", "return list(a)", "return a\n"),
    ("drop_copy", "return a.b.copy()", "return a.b\n"),
    ("drop_copy", "return a[:]", "return a\n"),
    ("drop_copy", "return copy.deepcopy(a)", "return a\n"),
    ("drop_default", "return a.get(b, 0)", "return a.get(b)"),
    ("drop_default", "return getattr(a, b, None)", "return getattr(a, b)"),
    ("drop_else", "if a:\n        g()\n    else:\n        h()\n    return a", "g()\n    return a"),
    ("drop_filter", "return [x for x in a if x if x > b]", "[x for x in a if x > b]"),
    ("drop_filter", "return [x for x in a if (x > b)]", "[x for x in a]"),
    ("drop_finally", "try:\n        g()\n    finally:\n        h()\n        k()", "finally:\n        pass\n"),
    (
        "drop_handler",
        "try:\n        g()\n    except A:\n        h()\n    except B:\n        k()",
        "g()\n    except B:\n",
    ),
    ("drop_keyword", "return g(a, key=b, reverse=True)", "return g(a, reverse=True)"),
    ("drop_keyword", "return g(a, key=(b))", "return g(a)"),
    ("drop_keyword", "return g(key=b)", "return g()"),
    ("drop_method", "return a.strip().lower()", "return a.lower()"),
    ("drop_not", "return g(not a)", "return g(a)"),
    ("drop_reraise", "try:\n        g()\n    except A:\n        h()\n        raise", "except A:\n        h()\n"),
    ("drop_reraise", "try:\n        g()\n    except A:\n        raise", "except A:\n        pass\n"),
    ("drop_star", "return g(a, *b, **c)", "return g(a, **c)"),
    ("drop_statement", "a = a.strip()\n    return a", "return a"),
    ("drop_super", "super().f(a)\n    return a", "):\n    return a"),
    ("drop_yield", "yield a\n    yield b", "):\n    yield b"),
    ("early_return", "for x in a:\n        g(x)\n    return b", "g(x)\n        return b\n"),
    ("elif_to_if", "if a:\n        g()\n    elif b:\n        h()", "    if b:\n"),
    ("enumerate_start", "return enumerate(a)", "return enumerate(a, 1)"),
    ("enumerate_start", "return enumerate(a, start=1)", "return enumerate(a, start=0)"),
    ("format_piece", "return f'{a!r} and {b:>{a}}'", "return f'{a} and {b:>{a}}'"),
    ("format_piece", "return f'{a!r} and {b:>{a}}'", "return f'{a!r} and {b}'"),
    ("iteration_order", "return reversed(a + b)", "return (a + b)"),
    ("iteration_order", "return sorted(a, key=b)", "return a\n"),
    ("length", "return len(a) * 2", "return (len(a) - 1) * 2"),
    ("loop_exit", "for x in a:\n        break", "for x in a:\n        continue"),
    ("loop_once", "while a:\n        a = g(a)", "    if a:\n"),
    ("narrow_except", "try:\n        g()\n    except (A, B):\n        g()", "except (A):"),
    ("narrow_isinstance", "return isinstance(a, (int, str))", "return isinstance(a, str)"),
    ("negate_condition", "return 1 if (not a) else 2", "return 1 if (a) else 2"),
    ("negate_condition", "while a > b:\n        g()", "while not (a > b):"),
    ("none_check", "return a is None", "return (not a)"),
    ("none_check", "return a is not None", "return a\n"),
    ("plain_assignment", "a += b", "a = b"),
    ("range_bounds", "return range(a)", "return range(1, a)"),
    ("range_bounds", "return range(a, b, 2)", "return range(a, b - 1, 2)"),
    ("remove_body", "'Text.'\n    a += 1\n    return a", "'Text.'\n    raise NotImplementedError\n"),
    ("remove_guard", "if a:  # why\n        return b\n    return a", "):\n    return a"),
    ("sibling_function", "return any(a)", "return all(a)"),
    ("sibling_function", "return math.floor(a)", "return math.ceil(a)"),
    ("sibling_method", "a.append(b)", "a.extend(b)"),
    ("sibling_method", "return a.endswith(b)", "return a.startswith(b)"),
    ("slice_edit", "return a[1:b]", "return a[1:]"),
    ("slice_edit", "return a[-1]", "return a[0]"),
    ("slice_step", "return a[::-1]", "return a[::1]"),
    ("string", "return a + 'xyz'", "return a + 'xy'"),
    ("swallow", "try:\n        g()\n    except A:\n        h()\n        return 1", "except A:\n        pass\n"),
    ("swap_arguments", "return g( a,  b )", "return g( b,  a )"),
    ("swap_arguments", "return g(a, ( 1, b ) )", "return g(( 1, b ), a )"),
    ("swap_branches", "return (a) if b else 2", "return 2 if b else (a)"),
    ("swap_keywords", "return g(x=a, y=b)", "return g(x=b, y=a)"),
    ("swap_operands", "return a - (b)", "return (b) - a"),
    ("swap_operands", "return a + '!'", "return '!' + a"),
    ("swap_statements", "a.append(1)\n    b.x = len(a)", "    b.x = len(a)\n    a.append(1)\n"),
    ("swap_targets", "x, y = a", "y, x = a"),
    ("swap_targets", "for x, y in a:\n        g()", "for y, x in a:"),
    ("wide_except", "try:\n        g()\n    except (A, B) as e:\n        g()", "except Exception as e:"),
    ("wrong_return", "return a, b", "return b, a"),
    ("wrong_return", "return a == b", "return not (a == b)"),
    ("wrong_return", "return g(a)", "return None"),
    ("wrong_variable", "return a.x + a", "return a.x + b"),
]
ALONE = [
    ("dedent_statement", "if a:\n        g()\n        return 1\n    return a"),  # what leaves the block stays in it
    ("drop_copy", "return list(x for x in a)"),
    ("drop_method", "return a.process()"),
    ("drop_statement", "super().f(a)\n    return a"),  # has an operator of its own
    ("early_return", "for x in a:\n        g(x)\n    else:\n        h()\n    return b"),
    ("loop_once", "while a:\n        if g(a):\n            break"),
    ("remove_body", "return a"),  # without a docstring nothing tells what to write
    ("remove_body", "'Text.'\n    raise NotImplementedError"),
    ("sibling_function", "return takewhile(a, b)"),
    ("swap_operands", "return a + b"),
    ("swap_operands", "return '%s' % a"),
    ("swap_statements", "a.append(1)\n    b.append(2)"),  # they commute
    ("swap_statements", "x = g(a)\n    a.append(x)"),  # the use of a name does not move before it is there
    ("wide_except", "try:\n        g()\n    except Exception:\n        g()"),
]


def mutants(body: str, operator: str) -> list[str]:
    """What the operator makes of a function of two parameters."""
    source = f"def f(a, b):\n    {body}\n"
    return [plant(source, found) for found in mutations(source, [operator])]


@pytest.mark.parametrize(("operator", "body", "expected"), EXAMPLES)
def test_each_operator_plants_its_bug(operator: str, body: str, expected: str) -> None:
    found = mutants(body, operator)
    assert any(expected in mutant for mutant in found), found


@pytest.mark.parametrize(("operator", "body"), ALONE)
def test_an_operator_leaves_alone_what_is_not_its_own(operator: str, body: str) -> None:
    assert mutants(body, operator) == []


def test_a_default_argument_changes_in_the_signature() -> None:
    source = "def f(a, b=True, *, c=1): return a\n"
    found = [plant(source, each) for each in mutations(source, ["default_argument"])]
    assert "def f(a, b=False, *, c=1): return a\n" in found
    assert "def f(a, b=True, *, c=2): return a\n" in found


def test_every_operator_has_an_example() -> None:
    assert {operator for operator, _, _ in EXAMPLES} | {"default_argument"} == {*OPERATORS, REMOVAL.name}


def test_every_operator_has_its_figures() -> None:
    assert traits().keys() == {*OPERATORS, REMOVAL.name}
    assert all(0 < each.kill < 1 and 0 < each.subtle < 1 for each in traits().values())


def test_the_removal_of_a_body_is_no_small_bug() -> None:
    source = "def f(a):\n    'Text.'\n    return a + 1\n"
    assert REMOVAL.name not in {found.operator for found in mutations(source)}
