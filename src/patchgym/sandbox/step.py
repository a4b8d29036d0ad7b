"""What came of one command, whatever kind of sandbox ran it."""

from abc import ABC, abstractmethod
from pathlib import Path

from patchgym.content import ObjectStore
from patchgym.sandbox.capture import Capture
from patchgym.sandbox.protocol import Ending, ExecResult, ResourceLimits

CHANNEL = "PATCHGYM_REPORT_FD"
"""The variable that tells a command the number of its report channel."""
REPORT_BYTES = 64 * 1024**2


class Step(ABC):
    """One command. ``exit_code`` or ``signal`` says how it ended, ``ended_by`` what made us end it, ``not_run`` why it
    was never started."""

    def __init__(self, limits: ResourceLimits, folder: Path) -> None:
        """``folder`` takes what is longer than a stream's limit."""
        self.stdout, self.stderr = (
            Capture(limits.stream_bytes, limits.output_bytes, folder, self._drown) for _ in range(2)
        )
        self.ended_by: Ending | None = None
        self.exit_code: int | None = None
        self.signal: int | None = None
        self.not_run: str | None = None
        self.seconds = 0.0
        self._report = bytearray()

    @abstractmethod
    def kill(self, why: Ending | None = None) -> None:
        """End everything at once. Whoever waits for the end goes on when all of it is gone."""

    def result(self, objects: ObjectStore, limits_by: str) -> ExecResult:
        """All of it, once it has ended. What is too long to keep goes into ``objects``. Blocking.

        Raises:
            StorageError: the disk is full.
        """
        ending = self.ended_by or (Ending.EXITED if self.signal is None else Ending.SIGNALLED)
        if self.not_run is not None:
            ending = Ending.NOT_FOUND
            self.stderr.add(f"{self.not_run}\n".encode(errors="replace"))
        return ExecResult(
            ending=ending,
            exit_code=self.exit_code if ending is Ending.EXITED else None,
            signal=self.signal if ending is Ending.SIGNALLED else None,
            stdout=self.stdout.kept,
            stderr=self.stderr.kept,
            stdout_size=self.stdout.size,
            stderr_size=self.stderr.size,
            report=bytes(self._report),
            seconds=self.seconds,
            limits_by=limits_by,
            stdout_cut=self.stdout.cut(objects),
            stderr_cut=self.stderr.cut(objects),
        )

    @abstractmethod
    def _drown(self) -> None:
        """What happens when more comes than is taken."""

    def _take_report(self, data: bytes) -> None:
        self._report += data[: REPORT_BYTES - len(self._report)]
