"""What the commands about several processes at once share: which processes, and which of them this gdb holds."""

from __future__ import annotations

import os

from ..errors import GdbextError, NotFoundError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable

    from ..access.base import Target
    from .session import Session, What


def resolve_processes(session: Session, text: str) -> list[What]:
    """What `WHAT...` names, each process once: names separated by blanks or commas, or one file; nothing: what gdb has selected,
    else all engine processes. -> `[Rank, pid or core file]`"""
    if not text:
        pid = session.selected_pid()
        if pid is not None:
            return [next((r for r in session.ranks if r.pid == pid), pid)]
        session.ranks = []  # "all" means now, not when llm-ranks last looked
        try:
            return session.resolve("all")
        except NotFoundError:
            raise GdbextError("no engine process is running here: name pids, labels of llm-ranks, or snapshot files") from None
    words = [text] if os.path.isfile(text) else text.replace(",", " ").split()
    found = {}
    for word in words:
        if word == "all":
            session.ranks = []
        for one in session.resolve(word):
            found.setdefault(getattr(one, "pid", one), one)
    return list(found.values())


def attached_target(session: Session) -> Callable[[What], Target | None]:
    """A function that gives the Target of a process that this gdb holds stopped, None for any other."""

    def ask(one: What) -> Target | None:
        pid = getattr(one, "pid", one)
        return session.open(one) if session.inferior_of(pid) is not None else None

    return ask
