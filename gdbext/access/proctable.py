"""The machine's processes as /proc shows them. None is stopped or attached.

One pass reads only `cmdline` and `stat` of each process. Everything else of a `Process` is read on demand, and the fields that
could not be read are remembered. Processes end meanwhile: those that are gone are left out quietly. Standard library only.
Layouts: proc(5) of the Linux manual, fields of /proc/PID/stat counted from `state`.
"""

from __future__ import annotations

import os
import re
from typing import Any, Callable, Iterator, TypeVar

from . import secrets
from .procfs import TICKS, parse_stat, state_of, status_field, uptime

T = TypeVar("T")

MAX_CMDLINE = 1 << 16  # a title or the head of an argv; longer ones are cut
MAX_FILE = 1 << 22
EXECNET = "import sys;exec(eval(sys.stdin.readline()))"  # how it starts a Python: pytest-xdist's workers
ROLES = {  # script or module -> what it is called, and a fork of it
    "gunicorn": ("gunicorn master", "gunicorn worker"),
    "celery": ("celery worker", "celery pool process"),
    "pytest": ("pytest", ""),
    "ipykernel_launcher": ("Jupyter kernel", ""),
    "ipykernel": ("Jupyter kernel", ""),
}
SPAWN_MAIN = "from multiprocessing.spawn import spawn_main"
_PYTHON = re.compile(r"\.?(python|pypy)[0-9.]*[a-z]{0,2}(-wrapped)?( \(deleted\))?")
_GPU = re.compile(r"/dev/nvidia([0-9]{1,3})")
_SEPARATE = "XWQ"  # interpreter options whose value may be the next word


def _slurp(path: str, limit: int) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        data = os.read(fd, limit)
        while data and len(data) < limit:  # /proc hands out short pieces
            more = os.read(fd, limit - len(data))
            if not more:
                break
            data += more
        return data
    finally:
        os.close(fd)


def is_python_name(name: str) -> bool:
    """Whether a file name (no folder) is that of a Python interpreter."""
    return _PYTHON.fullmatch(name) is not None


class Process:
    """One process.

    Read at once: `pid`, `comm`, `state` (the letter), `ppid`, `pgrp`, `session`, `threads`, and:

    * `rss`: bytes
    * `cpu`: seconds of user and system time; `reaped`: of the descendants that it has waited for
    * `age`: seconds or None
    * `started`: clock ticks after boot
    * `exits`: whether it has ended, or is on its way out: without its memory, but still its children's parent
    * `exit_status`: of zombies, as wait(2) gives it; 0 where it may not be seen
    * `cmdline`: raw bytes

    Read on demand: `argv, title, exe, environ, uid, user, ns_pids, gpus, maps`. `unreadable` names those that permissions hid.
    """

    def __init__(self, root: str, pid: int, stat: bytes, cmdline: bytes, uptime: float | None, has_gpus: bool = True) -> None:
        self.root, self.pid, self.cmdline, self.has_gpus = root, pid, cmdline, has_gpus
        self.unreadable: list[str] = []
        seen = parse_stat(stat)
        self.comm = seen.name.decode("utf-8", "surrogateescape")
        self.state, self.ppid, self.pgrp, self.session = seen.state, seen.parent, seen.group, seen.session
        if seen.state == "Z" and seen.threads > 1 and root == "/proc":  # only its main thread may have ended
            self.state = state_of(pid) or seen.state
        self.cpu, self.threads, self.started, self.rss = seen.cpu, seen.threads, seen.started, seen.resident
        self.reaped = seen.reaped
        self.age = None if uptime is None else max(0.0, uptime - self.started / TICKS)
        self.exit_status = seen.exit_status
        self.exits = seen.state in ("Z", "X") or seen.exits and seen.threads == 1
        self._lazy: dict[str, Any] = {}

    def __repr__(self) -> str:
        return f"Process({self.pid}, {self.comm!r})"

    def fate(self) -> str:
        """'' while the process runs, else words for an error that say what became of it."""
        try:
            started = parse_stat(_slurp(f"{self.root}/{self.pid}/stat", MAX_FILE)).started
        except (OSError, ValueError):
            return "has ended"
        return "" if started == self.started else "has ended, and its pid belongs to another process now"

    def _once(self, key: str, make: Callable[[], T]) -> T:
        if key not in self._lazy:
            self._lazy[key] = make()
        found: T = self._lazy[key]
        return found

    def _file(self, name: str, empty: bytes) -> bytes:
        """Bytes of /proc/PID/NAME; `empty` when the process is gone or the read is not permitted, which is noted."""
        try:
            return _slurp(f"{self.root}/{self.pid}/{name}", MAX_FILE)
        except PermissionError:
            self.unreadable.append(name)
        except OSError:
            pass  # gone, or a zombie without memory
        return empty

    # ---- command line --------------------------------------------------------------------------------------------
    @property
    def single(self) -> bool:
        """True when the command line is one string: a title (padded with NULs), or a program without arguments."""
        end = self.cmdline.find(b"\0")
        return bool(self.cmdline) and (end < 0 or not self.cmdline[end:].strip(b"\0"))

    @property
    def title(self) -> str:
        """The command line cut at the first NUL: the whole title of a process that titled itself, else argv[0]."""
        return self.cmdline.partition(b"\0")[0].decode("utf-8", "surrogateescape")

    @property
    def argv(self) -> list[str]:
        """The words of the command line; one word for a process that set its own title, none for a zombie or kernel thread."""
        if self.single:
            return [self.title]
        data = self.cmdline[:-1] if self.cmdline.endswith(b"\0") else self.cmdline
        return [a.decode("utf-8", "surrogateescape") for a in data.split(b"\0")] if data else []

    @property
    def command(self) -> str:
        """The title or the joined argv, for people; no secrets of it."""
        return secrets.shown(self.argv)

    @property
    def exe(self) -> str:
        """Path of the executable; '' when it cannot be read."""

        def read() -> str:
            try:
                return os.readlink(f"{self.root}/{self.pid}/exe")
            except PermissionError:
                self.unreadable.append("exe")
            except OSError:
                pass
            return ""

        return self._once("exe", read)

    @property
    def is_python(self) -> bool:
        """Whether the executable is a Python. Where the executable may not be read, the first word or the name decides."""
        exe = self.exe
        if exe:
            return is_python_name(os.path.basename(exe))
        if "exe" not in self.unreadable:
            return False
        first = self.argv[0] if not self.single and self.argv else self.comm
        return self.single or is_python_name(os.path.basename(first))

    def program(self) -> tuple[str, str, list[str]] | None:
        """The program that a Python runs: `("module"|"code"|"script", text, arguments)`. None when it is no Python or has no
        arguments."""
        words = self.argv
        if len(words) < 2 or self.single or not self.is_python:
            return None
        i = 1
        while i < len(words):
            word = words[i]
            if word == "--" or word == "-":
                i += 1
                break
            if not word.startswith("-"):
                break
            if not word.startswith("--"):
                for at, letter in enumerate(word[1:], 1):
                    if letter in "mc":
                        kind = "module" if letter == "m" else "code"
                        if word[at + 1 :]:
                            return kind, word[at + 1 :], words[i + 1 :]
                        return (kind, words[i + 1], words[i + 2 :]) if i + 1 < len(words) else None
                    if letter in _SEPARATE:
                        i += not word[at + 1 :]
                        break
            i += 1
        return ("script", words[i], words[i + 1 :]) if i < len(words) else None

    @property
    def called(self) -> str:
        """What people call it: `serve.py`, `-m vllm`, `gunicorn worker`, its own title, else its name."""
        found = self.program()
        if found is not None and found[0] == "code" and found[1].startswith(EXECNET):
            return "pytest worker" if re.search(rb"(^|[\0/])(pytest|py\.test)(\0|$)", self._parents_line) else "execnet worker"
        if found is not None and found[0] != "code" and found[1].rpartition("/")[2] in ROLES:
            first, forked = ROLES[found[1].rpartition("/")[2]]
            return forked if forked and self._parents_line == self.cmdline else first
        if found is None or found[0] == "code":
            return self.title if self.single and " " not in self.title.strip() and "/" not in self.title else self.comm
        return f"-m {found[1]}" if found[0] == "module" else os.path.basename(found[1])

    @property
    def _parents_line(self) -> bytes:
        def read() -> bytes:
            try:
                return _slurp(f"{self.root}/{self.ppid}/cmdline", MAX_FILE)
            except OSError:
                return b""  # it is gone

        return self._once("parent's line", read)

    @property
    def is_spawned(self) -> bool:
        """A multiprocessing child that was started by spawn or by the fork server, and has no title."""
        program = self.program()
        return program is not None and program[0] == "code" and program[1].startswith(SPAWN_MAIN)

    # ---- the rest ------------------------------------------------------------------------------------------------
    @property
    def environ(self) -> dict[str, str]:
        """The environment it was started with; setproctitle overwrites much of it (then the rest, or nothing, is here)."""

        def read() -> dict[str, str]:
            pairs = (
                e.decode("utf-8", "surrogateescape").partition("=") for e in self._file("environ", b"").split(b"\0") if b"=" in e
            )
            return {k: v for k, _, v in pairs}

        return self._once("environ", read)

    @property
    def uid(self) -> int | None:
        """The user that it runs as, None where /proc does not say."""

        def read() -> int | None:
            real = status_field(self._file("status", b""), b"Uid").split()
            return int(real[0]) if real else None

        return self._once("uid", read)

    @property
    def user(self) -> str:
        """The name of that user, its number where it has none here; ''."""
        import pwd

        try:
            return "" if self.uid is None else pwd.getpwuid(self.uid).pw_name
        except KeyError:
            return str(self.uid)

    @property
    def ns_pids(self) -> list[int]:
        """Its pid in every pid namespace, ours first and its own last."""

        def read() -> list[int]:
            return [int(n) for n in status_field(self._file("status", b""), b"NSpid").split()] or [self.pid]

        return self._once("ns_pids", read)

    @property
    def ns_pid(self) -> int:
        return self.ns_pids[-1]

    @property
    def gpus(self) -> list[int]:
        """Numbers of the NVIDIA devices that it has open; without any, those that CUDA_VISIBLE_DEVICES lists as numbers."""

        def read() -> list[int]:
            found = set()
            folder = f"{self.root}/{self.pid}/fd"
            try:
                names = os.listdir(folder) if self.has_gpus else []
            except PermissionError:
                self.unreadable.append("fd")
                names = []
            except OSError:
                names = []
            for name in names:
                try:
                    m = _GPU.fullmatch(os.readlink(f"{folder}/{name}"))
                except OSError:
                    continue
                if m:
                    found.add(int(m.group(1)))
            if not found:
                words = self.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
                found = {int(w) for w in words if re.fullmatch("[0-9]{1,3}", w.strip())}
            return sorted(found)

        return self._once("gpus", read)

    def maps(self) -> str:
        """The text of its memory map, '' when it cannot be read."""
        return self._once("maps", lambda: self._file("maps", b"").decode("utf-8", "surrogateescape"))


def is_fork(parent: str, child: str) -> bool:
    """Whether what two processes are called says that they run one program."""
    return bool(parent) and (parent == child or (parent, child) in ROLES.values())


def called(pid: int) -> str:
    """What people call a process, as `Process.called`; "" for one that is gone."""
    try:
        stat, cmdline = (_slurp(f"/proc/{pid}/{name}", MAX_FILE) for name in ("stat", "cmdline"))
        return Process("/proc", pid, stat, cmdline, None).called
    except (OSError, ValueError, IndexError):
        return ""


class ProcTable:
    """All processes that `root` shows. `processes`: by pid; `children`: pid -> `[Process]` by start; `reasons`: why some data was
    hidden."""

    def __init__(self, root: str = "/proc") -> None:
        self.root = root
        self.processes: dict[int, Process] = {}
        self.children: dict[int, list[Process]] = {}
        self.reasons: list[str] = []
        now = self._uptime()
        try:  # without the driver no process holds its device files, and thousands of links need not be read
            has_gpus = b"nvidia" in _slurp(f"{root}/devices", MAX_FILE)
        except OSError:
            has_gpus = True
        try:
            names = os.listdir(root)
        except OSError as e:
            self.reasons.append(f"{root} cannot be read: {e.strerror}")
            names = []
        denied = 0
        for name in names:
            if not name.isdigit():
                continue
            try:
                stat = _slurp(f"{root}/{name}/stat", MAX_CMDLINE)
                try:
                    cmdline = _slurp(f"{root}/{name}/cmdline", MAX_CMDLINE)
                except PermissionError:
                    cmdline, denied = b"", denied + 1
                process = Process(root, int(name), stat, cmdline, now, has_gpus)
            except PermissionError:
                denied += 1
                continue
            except (OSError, ValueError, IndexError):
                continue  # it has ended meanwhile
            self.processes[process.pid] = process
        if denied:
            self.reasons.append(f"{denied} processes may not be read")
        if root == "/proc" and names and "1" not in names:
            self.reasons.append("/proc hides other users' processes (hidepid): run as root to see them")
        for process in self.processes.values():
            self.children.setdefault(process.ppid, []).append(process)
        for group in self.children.values():
            group.sort(key=lambda p: (p.started, p.pid))

    def _uptime(self) -> float | None:
        try:
            if self.root == "/proc":
                return uptime()
            return float(_slurp(f"{self.root}/uptime", 256).split()[0])
        except (OSError, ValueError, IndexError):
            return None

    def get(self, pid: int) -> Process | None:
        return self.processes.get(pid)

    def parent(self, process: Process) -> Process | None:
        return self.processes.get(process.ppid)

    def __len__(self) -> int:
        return len(self.processes)

    def __iter__(self) -> Iterator[Process]:
        return iter(sorted(self.processes.values(), key=lambda p: p.pid))
