"""Names of tests."""


def function_of(test_id: str) -> tuple[str, str]:
    """The file and the qualified function name of a pytest id: ``a.py::C::test_x[1]`` is ``("a.py", "C.test_x")``."""
    path, _, inner = test_id.partition("::")
    return path, inner.partition("[")[0].replace("::", ".")
