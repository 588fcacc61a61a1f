"""The one family of expected failures. Each message is a single line: what failed, on what, what to do about it. A name out of a
process stands in it as it is: whoever shows a message escapes it (render.text.one_line)."""

from __future__ import annotations

NO_MORE = "pids.max of a control group or ulimit -u is reached"  # why there is no new process or thread

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable


class GdbextError(Exception):
    """An expected failure. Commands turn it into `gdb.GdbError`, `python -m gdbext` into exit status 1."""

    final = False  # whether `access.retry` has found that reading again does not help
    spent = 0.0  # seconds of the budget that `access.retry` spent on it
    status: int | None = None  # the exit status outside gdb, None for that of any error

    def __str__(self) -> str:
        return " ".join(super().__str__().splitlines())


class FaultError(GdbextError):
    """Memory that cannot be read: `address` and `size` in bytes say which."""

    def __init__(self, address: int, size: int, why: str = "") -> None:
        self.address, self.size = address, size
        super().__init__(f"cannot read {size} bytes at {address:#x}{': ' + why if why else ''}")


class AwayError(FaultError):
    """Memory that is mapped, and whose bytes did not arrive: nothing is wrong with the address."""


class LayoutError(GdbextError):
    """A structure that does not look as the layout says: refused by name, never guessed around."""


class ContradictionError(GdbextError):
    """Values of a running process that contradict one another each time they are read: they are no facts. Only a copy of one
    moment shows whether that is a fault of the process. `rest`: the answer where no copy can be made, if there is one."""

    final = True
    rest: object = None


class UnstoppableError(GdbextError):
    """A process that cannot be stopped here: another one traces it, a filter of system calls forbids it, or no process can be
    started that would stop it. It can still be read while it runs."""


class NotFoundError(GdbextError):
    """A name, process, symbol or file that is not there."""


class MissingError(NotFoundError):
    """As `NotFoundError`; `hint()`, what is near, ends the message, and is only worked out when somebody reads it: most are
    passed over."""

    def __init__(self, text: str, hint: Callable[[], str] = str) -> None:
        super().__init__(text)
        self._hint = hint

    def __str__(self) -> str:
        return f"{super().__str__()}{' '.join(self._hint().splitlines())}"
