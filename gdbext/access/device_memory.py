"""A GPU's memory, as a debugger that sees the GPU (cuda-gdb) reads it, within bounds of bytes and time.

The memory holds the results of kernels that have run. Kernels that the program has launched may still have to run: `unfinished`
says so."""

from __future__ import annotations

import time
from typing import Callable

from ..errors import GdbextError

BYTES, SECONDS = 1 << 30, 30.0  # of one question; cuda-gdb's own speed is not known beforehand
STOP_BYTES, STOP_SECONDS = 1 << 28, 5.0  # of one stop of a breakpoint that reads values each time
PIECE = 1 << 24  # bytes between two checks of the clock


class DeviceMemory:
    """`read(address, size)` of a GPU's memory, for one process. `begin()` where a question begins."""

    def __init__(
        self,
        read: Callable[[int, int], bytes],
        unfinished: Callable[[], str] = lambda: "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read, self._look, self._clock = read, unfinished, clock
        self.begin()

    def begin(self, size: int = BYTES, seconds: float = SECONDS) -> None:
        """From now on at most `size` bytes are read, in at most `seconds` of reading."""
        self._size, self._seconds = size, seconds
        self._taken, self._spent = 0, 0.0
        self._why: str | None = None

    def read(self, address: int, size: int) -> bytes:
        """Exactly `size` bytes. `FaultError` where any of them cannot be read, `GdbextError` beyond the limits of one
        question."""
        parts = []
        for start in range(address, address + size, PIECE):
            piece = min(PIECE, address + size - start)
            if self._taken + piece > self._size or self._spent >= self._seconds:
                raise GdbextError(
                    f"{self._taken >> 20} MiB of the GPU's memory were read in {self._spent:.1f} s, and one question may read "
                    f"{self._size >> 20} MiB in {self._seconds:g} s: ask for less, as with -slice"
                )
            began = self._clock()
            parts.append(self._read(start, piece))
            self._spent += self._clock() - began
            self._taken += piece
        return b"".join(parts)

    @property
    def unfinished(self) -> str:
        """Why the values need not be the program's results: its work has not ended, or may not have. '' where it has. It is
        checked once for each question."""
        if self._why is None:
            self._why = self._look()
        return self._why
