"""What holds for every test."""

import signal


def pytest_configure() -> None:
    """A shell's background job ignores Ctrl-C, and so would everything that tests start and interrupt."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
