"""Where pages are served."""

import socket

import pytest

from patchgym.errors import UsageError
from patchgym.view.serving import listen, new_token


def test_a_taken_port_is_told_in_words() -> None:
    with listen(0) as taken:
        with pytest.raises(UsageError, match="cannot be used") as caught:
            listen(taken.getsockname()[1])
        assert "Another program" in caught.value.why


def test_without_a_port_a_free_one_is_found() -> None:
    with listen(None) as first, listen(None) as second:
        assert first.getsockname()[1] != second.getsockname()[1]


def test_only_the_loopback_is_listened_to() -> None:
    with listen(0) as found:
        assert found.getsockname()[0] == "127.0.0.1"
        assert found.family is socket.AF_INET


def test_tokens_are_long_and_never_the_same() -> None:
    tokens = {new_token() for _ in range(100)}
    assert len(tokens) == 100
    assert min(map(len, tokens)) >= 32
