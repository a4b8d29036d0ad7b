"""What holds for every test."""

import os
import signal


def pytest_configure() -> None:
    # A shell's background job ignores Ctrl-C, and so would everything that tests start and interrupt.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # Two of these processes fill two cores: threads of torch, here or in what tests start, would only wait for a core.
    if "PYTEST_XDIST_WORKER" in os.environ:
        os.environ.setdefault("OMP_NUM_THREADS", "1")
