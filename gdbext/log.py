"""A log for whoever maintains the pack: why something reads "unknown", or is missing.

With GDBEXT_LOG=debug, or `-debug` on any command, each error that is passed over, each retry, each layout or candidate that is
not taken writes one line on standard error: `gdbext: ROOM/FILE.py:LINE FUNCTION: TEXT`. Off, a call costs one test of a flag.
"""

from __future__ import annotations

import os
import sys

from .errors import GdbextError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType, TracebackType

VARIABLE = "GDBEXT_LOG"
PREFIX = "gdbext: "
MOST = 1000  # characters of one line's text
_state = {"on": os.environ.get(VARIABLE, "").lower() == "debug"}  # of the process: one log for all that runs in it
_ROOT = os.path.dirname(os.path.abspath(__file__)) + os.sep


def enabled() -> bool:
    """Whether lines are written."""
    return _state["on"]


class during:
    """In this `with` block lines are written, also by child processes that it starts; `on` False: as before."""

    __slots__ = ("_before", "_on", "_variable")

    def __init__(self, on: bool) -> None:
        self._on, self._before, self._variable = on, _state["on"], os.environ.get(VARIABLE)

    def __enter__(self) -> None:
        if self._on and not self._before:
            _state["on"], os.environ[VARIABLE] = True, "debug"

    def __exit__(self, *_: object) -> None:
        if self._on and not self._before:
            _state["on"] = self._before
            if self._variable is None:
                del os.environ[VARIABLE]
            else:
                os.environ[VARIABLE] = self._variable


def passed_over(error: BaseException, what: str = "") -> None:
    """Notes an expected error after which the caller goes on without what it asked for. `what`: what that was, for the log."""
    if _state["on"]:
        _write(sys._getframe(1), f"{what}: {error}" if what else str(error), error)


def note(text: str, *values: object) -> None:
    """Notes a decision: a retry, a layout or candidate that was refused, and why. `text % values` is the line."""
    if _state["on"]:
        _write(sys._getframe(1), text % values if values else text)


class passing_over:  # as contextlib.suppress
    """`contextlib.suppress` that notes what it suppresses; without `kinds`: `GdbextError`."""

    __slots__ = ("_kinds", "_what")

    def __init__(self, *kinds: type[BaseException], what: str = "") -> None:
        self._kinds, self._what = kinds or (GdbextError,), what

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> bool:
        if error is None or not isinstance(error, self._kinds):
            return False
        if _state["on"]:
            _write(sys._getframe(1), f"{self._what}: {error}" if self._what else str(error), error)
        return True


def pass_on(said: str, wanted: bool = False) -> str:
    """`said`: what a child process wrote on its standard error. The log's lines in it are written on ours, where the log is on or
    `wanted`. -> the other lines."""
    if not (_state["on"] or wanted):
        return said
    lines = said.splitlines(True)
    ours = [line for line in lines if line.startswith(PREFIX) and ".py:" in line]
    _put("".join(ours))
    return "".join(line for line in lines if line not in ours)


def _write(frame: FrameType, text: str, error: BaseException | None = None) -> None:
    from .render.text import escape

    code = frame.f_code
    place = code.co_filename[len(_ROOT) :] if code.co_filename.startswith(_ROOT) else os.path.basename(code.co_filename)
    kind = "" if error is None or isinstance(error, GdbextError) else f"{type(error).__name__}: "
    _put(f"{PREFIX}{place}:{frame.f_lineno} {code.co_name}: {kind}{escape(text[:MOST])}\n")


def _put(lines: str) -> None:
    """On the descriptor itself: gdb's own stream pages what it gets, and only its main thread may write there."""
    try:
        os.write(2, lines.encode("utf-8", "backslashreplace"))
    except OSError:
        pass  # nobody reads it
