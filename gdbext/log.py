"""A log for whoever maintains the pack: why something reads "unknown", or is missing.

With GDBEXT_LOG=debug, or `-debug` on any command, each error that is passed over, each retry, each layout or candidate that is
not taken writes one line on standard error: `gdbext: ROOM/FILE.py:LINE FUNCTION: TEXT`. Off, a call costs one test of a flag.
"""

from __future__ import annotations

import contextlib
import os
import sys

from .errors import GdbextError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

MOST = 1000  # characters of one line's text
_state = {"on": os.environ.get("GDBEXT_LOG", "").lower() == "debug"}  # of the process: one log for all that runs in it
_ROOT = os.path.dirname(os.path.abspath(__file__)) + os.sep


def enabled() -> bool:
    """Whether lines are written."""
    return _state["on"]


def enable(on: bool = True) -> None:
    """Switches the log on or off, for `-debug`."""
    _state["on"] = on


def passed_over(error: BaseException, what: str = "") -> None:
    """Notes an expected error after which the caller goes on without what it asked for. `what`: what that was, for the log."""
    if _state["on"]:
        _write(sys._getframe(1), f"{what}: {error}" if what else str(error), error)


def note(text: str, *values: object) -> None:
    """Notes a decision: a retry, a layout or candidate that was refused, and why. `text % values` is the line."""
    if _state["on"]:
        _write(sys._getframe(1), text % values if values else text)


@contextlib.contextmanager
def passing_over(*kinds: type[BaseException], what: str = "") -> Iterator[None]:
    """`contextlib.suppress` that notes what it suppresses; without `kinds`: `GdbextError`."""
    kinds = kinds or (GdbextError,)
    try:
        yield
    except kinds as e:
        if _state["on"]:
            _write(sys._getframe(2), f"{what}: {e}" if what else str(e), e)


def _write(frame: FrameType, text: str, error: BaseException | None = None) -> None:
    from .render.text import escape

    code = frame.f_code
    place = code.co_filename[len(_ROOT) :] if code.co_filename.startswith(_ROOT) else os.path.basename(code.co_filename)
    kind = "" if error is None or isinstance(error, GdbextError) else f"{type(error).__name__}: "
    line = f"gdbext: {place}:{frame.f_lineno} {code.co_name}: {kind}{escape(text[:MOST])}\n"
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(line)
