"""Reads everything that `pybt -all -locals` reads, so that a collector learns which pages a copy needs."""

from __future__ import annotations

from ..access.base import Target
from ..errors import GdbextError
from .callees import callee
from .reprs import SHORT, Repr
from .runtime import open_runtime


def read(target: Target) -> str:
    """Reads it from `target`. -> the first error, or ''. Never raises `GdbextError`: a copy can do without the parts that cannot
    be read."""
    try:
        rt = open_runtime(target)
        threads = rt.threads()
        rt.thread_names()
    except GdbextError as e:
        return str(e)
    error = ""
    for thread in threads:
        try:
            rt.gil(thread.interp)
            rt.thread_name(thread)
            for frame in rt.frames(thread):
                callee(frame)
                frame.function, frame.file, frame.line  # noqa: B018  (reading them is what it is for)
                for _, value in frame.locals():
                    if value is not None:
                        Repr(SHORT)(value)
        except GdbextError as e:
            error = error or str(e)
    return error
