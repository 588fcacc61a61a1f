"""The process that gdb holds stopped, read through gdb. Also works where gdb talks to a gdbserver on another machine."""

import os
import re

import gdb

from ..errors import FaultError, GdbextError
from .base import Target
from .cli_gdb import command
from .model import Mapping, Thread
from .proc import ProcTarget, list_threads, parse_maps, read_proc
from .unwind import MASK, NUMBERS, PC

REGISTERS = {arch: names if PC[arch] in names else names + [PC[arch]] for arch, names in NUMBERS.items()}

_changes = [0]
pending_offsets = {}  # {(pid, frame address): byte offset}, set by a Python breakpoint that stops


def _changed(event=None):
    _changes[0] += 1  # nothing else may happen here: this runs at every stop


for _event in ("stop", "cont", "exited", "memory_changed", "register_changed", "inferior_call"):
    if hasattr(gdb.events, _event):
        getattr(gdb.events, _event).connect(_changed)


class selected:
    """Selects an inferior or thread for a `with` block and gives back what was selected before: inferior, thread and frame."""

    def __init__(self, inferior=None, thread=None):
        self.inferior, self.thread = inferior, thread

    def __enter__(self):
        self.was_inferior = gdb.selected_inferior()
        self.was_thread = gdb.selected_thread()
        try:
            self.was_frame = gdb.selected_frame() if self.was_thread else None
        except gdb.error:
            self.was_frame = None
        if self.inferior is not None and self.inferior != self.was_inferior:
            gdb.execute(command("inferior {}", self.inferior.num), to_string=True)
        if self.thread is not None and self.thread.is_valid():
            self.thread.switch()

    def __exit__(self, *error):
        if self.was_inferior.is_valid() and gdb.selected_inferior() != self.was_inferior:
            gdb.execute(command("inferior {}", self.was_inferior.num), to_string=True)
        if self.was_thread and self.was_thread.is_valid():  # not "is not None": the None of cuda-gdb 11.8 is another
            if gdb.selected_thread() != self.was_thread:
                self.was_thread.switch()
            if self.was_frame and self.was_frame.is_valid():
                self.was_frame.select()


def core_file(inferior):
    """The path of the core that is open in an inferior, or None when it is no core."""
    core = getattr(inferior, "corefile", None)  # gdb 18
    if core is not None:
        return core.filename
    found = re.search(r"^\s*[`'‘\"](.+?)['’\"], file type elf", _core_part(gdb.execute("info files", to_string=True)), re.M)
    return os.path.expanduser(found.group(1)) if found else None


def _core_part(text):
    head, found, rest = text.partition("Local core dump file:")
    return rest.split("\n\t0x", 1)[0] if found else ""


class GdbTarget(Target):
    """What a live process and a core have in common inside gdb: an inferior, its threads and registers."""

    def __init__(self, inferior, label=""):
        super().__init__()
        self.inferior, self.pid, self.label = inferior, inferior.pid, label

    @property
    def epoch(self):
        return _changes[0]

    def gdb_threads(self):
        """{tid: gdb.InferiorThread}"""
        return {th.ptid[1] or th.ptid[2]: th for th in self.inferior.threads() if th.is_valid()}

    def registers(self, thread):
        found = self.gdb_threads().get(thread.tid)
        if found is None:
            raise GdbextError(f"{self.describe()} has no thread {thread.tid}")
        if found.is_running():
            raise GdbextError(f"{self.describe()}: thread {thread.tid} is running")
        with selected(self.inferior, found):
            try:
                frame = gdb.newest_frame()
                return {name: int(frame.read_register(name)) & MASK for name in REGISTERS[self.arch]}
            except (gdb.error, ValueError) as e:
                why = (
                    "this cuda-gdb's Python is broken (its None is not Python's own, as in Debian's 11.8)"
                    if "should return gdb.UnwindInfo" in str(e)
                    else e
                )
                raise GdbextError(f"{self.describe()}: the registers of thread {thread.tid} cannot be read: {why}") from None


class LiveGdbTarget(GdbTarget):
    """An inferior that is a live process."""

    kind = "live"
    is_live = True

    def __init__(self, inferior, label=""):
        super().__init__(inferior, label)
        self._proc = ProcTarget(inferior.pid) if _is_local() else None
        self._stopped_at = None

    @property
    def is_stopped(self):
        if self._stopped_at != _changes[0]:  # asked for at every read: what stands still does so until gdb tells of a change
            stopped = not any(th.is_running() for th in self.inferior.threads() if th.is_valid())
            self._stopped_at = _changes[0] if stopped else None
        return self._stopped_at is not None

    @property
    def pending_offsets(self):
        return {address: offset for (pid, address), offset in pending_offsets.items() if pid == self.pid}

    @property
    def epoch(self):
        return _changes[0] if self.is_stopped else object()  # while it runs nothing that was read stays true

    def invalidate(self):
        super().invalidate()
        if self._proc is not None:
            self._proc.invalidate()  # what is read while the process runs comes from there

    def _read(self, address, size):
        if self._proc is not None and not self.is_stopped:
            return self._proc.read(address, size)
        try:
            return bytes(self.inferior.read_memory(address, size))
        except (gdb.MemoryError, gdb.error, OverflowError) as e:
            raise FaultError(address, size, "" if isinstance(e, gdb.MemoryError) else str(e)) from None

    def _mappings(self):
        if self._proc is not None:
            return parse_maps(read_proc(self.pid, "maps").decode("utf-8", "surrogateescape"))
        with selected(self.inferior):
            text = gdb.execute("info proc mappings", to_string=True)
        found = []
        for line in text.splitlines():
            parts = line.split(None, 5)
            if len(parts) >= 4 and parts[0].startswith("0x"):
                has_perms = len(parts) > 4 and set(parts[4]) <= set("rwxps-")
                path = (parts[5] if len(parts) > 5 else "") if has_perms else " ".join(parts[4:])
                found.append(
                    Mapping(int(parts[0], 16), int(parts[1], 16), parts[4] if has_perms else "", int(parts[3], 16), path)
                )
        if not found:
            raise GdbextError(f"{self.describe()}: gdb cannot tell its memory map")
        return found

    def _threads(self):
        known = self.gdb_threads()
        if self._proc is not None:
            return [th for th in list_threads(self.pid) if th.tid in known] or list_threads(self.pid)
        return [Thread(tid, th.name or "") for tid, th in sorted(known.items())]

    def argv(self):
        return self._need_local().argv()

    def environ(self):
        return self._need_local().environ()

    def root(self):
        return self._proc.root() if self._proc is not None else ""

    def deleted_file(self, path, base):
        return self._proc.deleted_file(path, base) if self._proc is not None else ""

    def _need_local(self):
        if self._proc is None:
            raise GdbextError(f"{self.describe()} is on another machine: its /proc cannot be read from here")
        return self._proc


def _is_local():
    connection = getattr(gdb.selected_inferior(), "connection", None)
    if connection is not None:
        return connection.type == "native"
    return "remote" not in gdb.execute("maint print target-stack", to_string=True)
