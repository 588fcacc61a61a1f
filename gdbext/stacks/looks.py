"""One look at several processes at about the same moment: each copied by a collector of its own and running on while it is read.

What gdb holds stopped, and what is a core already, is read where it is.
"""

import contextlib
import os
import tempfile

from ..access import collector, elf
from ..access.snapshot import CoreFileTarget
from ..errors import GdbextError

READER = "gdbext.stacks.rehearsal"
TIMEOUT = 60  # seconds for one collector on a starved machine; the process itself stands still for milliseconds


class Look:
    """One process: `label` ('' for a pid without one), `pid`, `rank` (the `Rank`, or None), `target` (None when it failed: `reason`
    says why), `pauses`: seconds it stood still, `partial`: what is missing in the copy."""

    def __init__(self, label, pid, rank=None):
        self.label, self.pid, self.rank = label, pid, rank
        self.target, self.reason, self.pauses, self.partial, self.file, self.bytes = None, "", [], [], "", 0

    @property
    def name(self):
        return self.label or (str(self.pid) if self.pid else os.path.basename(self.file))


def look_of(one):
    """The `Look`, not taken yet, of what `resolve` gives: a `Rank`, a pid or a core file."""
    if isinstance(one, str):
        look = Look("", None)
        look.file = one
        return look
    if isinstance(one, int):
        return Look("", one)
    return Look(one.label, one.pid, one)


def pauses(looks):
    """The contract's `pauses`."""
    return [{"pid": look.pid, "seconds": sum(look.pauses)} for look in looks if look.pauses]


def failed(looks):
    """The contract's `failed`."""
    return [{"label": look.label, "pid": look.pid, "reason": look.reason} for look in looks if look.target is None]


def take(looks, paths, words=(), heap=0, reader=READER, open_copies=True):
    """Fills `looks` in: `paths[i]` is where the i-th copy goes. Several collectors run at once, as many as there are processors."""
    waiting = [(look, path) for look, path in zip(looks, paths) if look.target is None and not look.reason]
    running = []
    try:
        while waiting or running:
            while waiting and len(running) < max(2, os.cpu_count() or 2):
                look, path = waiting.pop(0)
                running.append((look, collector.Running(look.pid, path, reader, look.label, words, heap)))
            look, work = running.pop(0)
            try:
                result = work.finish(TIMEOUT)
                look.pauses, look.partial, look.file, look.bytes = result.pauses, result.partial, result.file, result.bytes
                look.target = CoreFileTarget(result.file, look.label) if open_copies else True
            except GdbextError as e:
                look.reason = str(e)
    finally:
        for _, work in running:  # an interrupt: a collector that ends lets its process run on
            work.process.kill()
            work.process.communicate()


@contextlib.contextmanager
def taken(found, held=lambda one: None, words=()):
    """`[Look]` of what `resolve` gave. `held(one)`: the Target of a process that the debugger holds stopped, else None; `words`: what
    else is to be copied (`rehearsal.read`). The files are gone at the end of the `with` block; targets in hand stay readable."""
    looks = [look_of(one) for one in found]
    with tempfile.TemporaryDirectory(prefix="gdbext-") as folder:
        for look, one in zip(looks, found):
            try:
                look.target = CoreFileTarget(one) if isinstance(one, str) else held(one)
                if isinstance(one, str):
                    look.label, look.pid = look.target.label, look.target.pid
            except GdbextError as e:
                look.reason = str(e)
        paths = [os.path.join(folder, str(i)) for i in range(len(looks))]
        try:
            take(looks, paths, words)
            yield looks
        finally:
            for path in paths:
                elf.drop_cached(path)
