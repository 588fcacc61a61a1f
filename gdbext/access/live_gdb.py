"""A process that gdb has attached, read through gdb; also one on another machine, through a gdbserver."""

from __future__ import annotations

import contextlib
import os
import re
from typing import Any, Iterable

import gdb

from .. import log
from ..errors import FaultError, GdbextError
from . import readers
from .base import Target
from .cfi import MASK
from .cli_gdb import command
from .model import Mapping, Registers, Thread
from .proc import ProcTarget, list_threads
from .procfs import parse_maps, read_maps
from .unwind import NUMBERS, PC

REGISTERS = {arch: names if PC[arch] in names else names + [PC[arch]] for arch, names in NUMBERS.items()}

_changes = [0]
pending_offsets: dict[tuple[int, int], int] = {}  # {(pid, frame address): byte offset}, set by a Python breakpoint that stops


def _changed(event: Any = None) -> None:
    _changes[0] += 1  # nothing else may happen here: this runs at every stop


for _event in ("stop", "cont", "exited", "memory_changed", "register_changed", "inferior_call"):
    if hasattr(gdb.events, _event):
        getattr(gdb.events, _event).connect(_changed)


def select_inferior(inferior: Any) -> None:
    """Selects an inferior, and a thread of it where it has one.

    The thread is selected directly: gdb's `inferior N` prints its new selection even where its output is captured (gdb 12 to 18).
    """
    threads = inferior.threads()
    if threads:
        threads[0].switch()
    else:
        gdb.execute(command("inferior {}", inferior.num), to_string=True)


class selected:
    """Selects an inferior or thread for a `with` block. Afterwards it restores the selected inferior, thread and frame, and in
    cuda-gdb the thread of the GPU that was in focus."""

    def __init__(self, inferior: Any = None, thread: Any = None) -> None:
        self.inferior, self.thread = inferior, thread

    def __enter__(self) -> None:
        self.was_focus = _device_focus()
        self.was_inferior = gdb.selected_inferior()
        self.was_thread = gdb.selected_thread()
        self.was_frame: gdb.Frame | None = None
        with contextlib.suppress(gdb.error):
            self.was_frame = gdb.selected_frame() if self.was_thread else None
        if self.inferior is not None and self.inferior != self.was_inferior:
            select_inferior(self.inferior)
        if self.thread is not None and self.thread.is_valid():
            self.thread.switch()

    def __exit__(self, *error: object) -> None:
        if self.was_inferior.is_valid() and gdb.selected_inferior() != self.was_inferior:
            select_inferior(self.was_inferior)
        if self.was_thread and self.was_thread.is_valid():  # not "is not None": the None of cuda-gdb 11.8 is another
            if gdb.selected_thread() != self.was_thread:
                self.was_thread.switch()
            if self.was_focus:
                if _device_focus() != self.was_focus:
                    gdb.execute(command("cuda kernel {} block ({},{},{}) thread ({},{},{})", *self.was_focus), to_string=True)
            elif self.was_frame and self.was_frame.is_valid():
                self.was_frame.select()


def core_file(inferior: Any) -> str | None:
    """The path of the core that is open in an inferior, or None when it is no core."""
    core = getattr(inferior, "corefile", None)  # gdb 18
    if core is not None:
        return str(core.filename)
    found = re.search(r"^\s*[`'‘\"](.+?)['’\"], file type elf", _core_part(gdb.execute("info files", to_string=True)), re.M)
    return os.path.expanduser(found.group(1)) if found else None


def _device_focus() -> list[int]:
    """The kernel, block (x, y, z) and thread (x, y, z) that cuda-gdb has in focus; [] where the focus is on the host, and in any
    other gdb."""
    try:
        gdb.parameter("cuda break_on_launch")
        text = gdb.execute("cuda kernel block thread", to_string=True)
    except (gdb.error, RuntimeError):
        return []
    found = re.search(r"kernel (\d+), block \((\d+),(\d+),(\d+)\), thread \((\d+),(\d+),(\d+)\)", text)
    return [int(n) for n in found.groups()] if found else []


def _core_part(text: str) -> str:
    head, found, rest = text.partition("Local core dump file:")
    return rest.split("\n\t0x", 1)[0] if found else ""


class GdbTarget(Target):
    """The common part of a live process and a core inside gdb: an inferior, its threads and registers."""

    def __init__(self, inferior: Any, label: str = "") -> None:
        super().__init__()
        self.inferior, self.pid, self.label = inferior, inferior.pid, label
        self.arch = "aarch64" if inferior.architecture().name().startswith("aarch64") else "x86-64"

    @property
    def epoch(self) -> object:
        """gdb's count of events that may have changed memory."""
        return _changes[0]

    def gdb_threads(self) -> dict[int, Any]:
        """{tid: gdb.InferiorThread}"""
        return {th.ptid[1] or th.ptid[2]: th for th in self.inferior.threads() if th.is_valid()}

    def registers(self, thread: Thread) -> Registers:
        """The registers of a stopped thread, from gdb; `GdbextError` for one that runs or is gone."""
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

    def __init__(self, inferior: Any, label: str = "") -> None:
        super().__init__(inferior, label)
        self._proc = ProcTarget(inferior.pid) if is_local(inferior) else None
        self._stopped_at: int | None = None

    @property
    def is_stopped(self) -> bool:  # type: ignore[override]
        """Whether all its threads are stopped. It is checked again only after gdb has reported a change."""
        if self._stopped_at != _changes[0]:
            stopped = not any(th.is_running() for th in self.inferior.threads() if th.is_valid())
            self._stopped_at = _changes[0] if stopped else None
        return self._stopped_at is not None

    @property
    def pending_offsets(self) -> dict[int, int]:
        """See `Target`: set by a Python breakpoint that stops."""
        return {address: offset for (pid, address), offset in pending_offsets.items() if pid == self.pid}

    @property
    def epoch(self) -> object:
        """gdb's count; a new value at each call while the process runs."""
        return _changes[0] if self.is_stopped else object()

    def invalidate(self) -> None:
        """Drops every cache, also that of the process while it runs."""
        super().invalidate()
        if self._proc is not None:
            self._proc.invalidate()

    def drop_pages(self) -> None:
        """See `Target`."""
        super().drop_pages()
        if self._proc is not None:
            self._proc.drop_pages()

    def refresh_pages(self) -> None:
        """See `Target`."""
        if self._proc is not None:
            self._proc.refresh_pages()
        super().drop_pages()

    def _read(self, address: int, size: int) -> bytes:
        if self._proc is not None and not self.is_stopped:
            return self._proc.read(address, size)
        if gdb.selected_inferior() == self.inferior:
            return self._read_through_gdb(address, size)
        # Up to gdb 13, inferior.read_memory reads the memory of the inferior that is selected, whichever it is called on.
        if self._proc is not None:
            try:
                return self._proc.read_now(address, size)
            except FaultError:
                raise
            except GdbextError as e:
                log.passed_over(e)  # its /proc is not ours to read, though gdb may trace it
        with selected(self.inferior):
            return self._read_through_gdb(address, size)

    def _read_through_gdb(self, address: int, size: int) -> bytes:
        try:
            return bytes(self.inferior.read_memory(address, size))
        except (gdb.MemoryError, gdb.error, OverflowError) as e:
            raise FaultError(address, size, "" if isinstance(e, gdb.MemoryError) else str(e)) from None

    def read_device(self, ranges: Iterable[tuple[int, int]]) -> list[bytes | None]:
        """As `Target.read_device`: cuda-gdb reads the memory that the selected process sees."""
        if gdb.selected_inferior() == self.inferior:
            return super().read_device(ranges)
        with selected(self.inferior):
            return super().read_device(ranges)

    def _mappings(self) -> list[Mapping]:
        if self._proc is not None:
            return parse_maps(read_maps(self._proc.pid)[0])
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
            raise GdbextError(f"{self.describe()}: gdb does not report its memory map")
        return found

    def _threads(self) -> list[Thread]:
        known = self.gdb_threads()
        if self._proc is not None:
            listed = list_threads(self._proc.pid)
            return [th for th in listed if th.tid in known] or listed
        return [Thread(tid, th.name or "") for tid, th in sorted(known.items())]

    def pid_here(self, number: int) -> int:
        """As `Target.pid_here`; of a process of another machine its own numbers."""
        return self._proc.pid_here(number) if self._proc is not None else number

    def argv(self) -> list[str]:
        """From /proc; `GdbextError` for a process of another machine."""
        return self._need_local().argv()

    def environ(self) -> dict[str, str]:
        """From /proc; `GdbextError` for a process of another machine."""
        return self._need_local().environ()

    def user(self) -> readers.User | None:
        """The process's own, where it is one of this machine."""
        return self._proc.user() if self._proc is not None else super().user()

    def root(self) -> str:
        """From /proc; '' for a process of another machine."""
        return self._proc.root() if self._proc is not None else ""

    def cwd(self) -> str:
        """From /proc; '' for a process of another machine."""
        return self._proc.cwd() if self._proc is not None else ""

    def deleted_file(self, path: str, base: int) -> str:
        """From /proc; '' for a process of another machine."""
        return self._proc.deleted_file(path, base) if self._proc is not None else ""

    def _need_local(self) -> ProcTarget:
        if self._proc is None:
            raise GdbextError(f"{self.describe()} is on another machine: its /proc cannot be read from here")
        return self._proc


def is_local(inferior: Any) -> bool:
    """Whether the process of an inferior runs on this machine, where its /proc can be read."""
    connection = getattr(inferior, "connection", None)
    if connection is not None:
        return "remote" not in connection.type  # "native"; cuda-gdb has a type of its own
    with selected(inferior):
        return "remote" not in gdb.execute("maint print target-stack", to_string=True)
