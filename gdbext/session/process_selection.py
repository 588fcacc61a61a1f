"""Which processes a command about several at once means."""

from __future__ import annotations

import os

from ..engines.processes import ProcessRef
from ..errors import GdbextError, NotFoundError
from .session import Session


def resolve_processes(session: Session, text: str) -> list[ProcessRef]:
    """Resolves `WHAT...`, each process once: names separated by blanks or commas, or one path of a file. Empty text means gdb's
    selected process, else all engine processes."""
    if not text:
        pid = session.selected_pid()
        if pid is not None:
            return [session.process(pid)]
        session.ranks = []  # "all" means now, not at the last llm-ranks
        try:
            return session.resolve("all")
        except NotFoundError:
            raise GdbextError(
                "no engine process is running here: name pids, labels of llm-ranks, or snapshots (./FILE)"
            ) from None
    words = [text] if "/" in text and os.path.isfile(os.path.expanduser(text)) else text.replace(",", " ").split()
    if "all" in words:
        session.ranks = []
    return session.resolve_each(words)
