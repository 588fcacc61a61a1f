"""Reads the memory that llm-stacks will read of a process, its threads and their frames, so that a collector learns which pages a
copy needs. prefetch.py reads this first, and then the memory for locks, hangs and snapshots."""

from __future__ import annotations

from ..access import made_code
from ..access.base import Target
from ..cpython import kept_secrets as secrets
from ..errors import GdbextError
from . import ending
from .threads import ProcessView, distributed_label


def read(target: Target) -> str:
    """Reads it from `target`; returns the first error, or ''."""
    view, error = view_of(target)
    reads = target.read_log
    if view is None or reads is not None and reads.repeated:
        return error
    if reads is not None and reads.of_copy:
        return error
    try:
        if view.rt is not None:
            distributed_label(view.rt)
        ending.read(target, view.rt, view.threads)
    except GdbextError as e:
        return error or str(e)
    return error


def view_of(target: Target) -> tuple[ProcessView | None, str]:
    """-> (the view that every answer needs: threads, their frames and names, the GIL; the first error or ''). The view is None
    where the threads cannot be read."""
    made_code.read_small(target)
    try:
        view = ProcessView(target)
    except GdbextError as e:
        return None, str(e)
    error = next(iter(view.partial), "") or next(
        (r for th in view.threads if target.is_stopped for r in th.reasons if "cannot read" in r), ""
    )
    any(th.collects for th in view.threads)  # reads whether one collects garbage
    return view, error


def kept_secrets(target: Target) -> tuple[list[bytes], list[bytes], set[bytes], list[tuple[int, int, int]]]:
    """The program's own copies of its (command line, environment), other secrets, and the places of values that are left out."""
    return secrets.read(target)
