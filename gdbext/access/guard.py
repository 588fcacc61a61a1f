"""The guard: a small process that outlives gdb. If gdb dies while it holds processes, the guard makes them run on.

`Guard` is gdb's side: it starts `python3 guard.py` and tells it, before every attach, what is about to be held. The other
side waits for the end of gdb (end of the socket, or gdb's pidfd). Then, for each process that is still held: as soon as the
kernel has taken the dead tracer away it stops the threads without a signal, clears debug registers, puts back the bytes of
breakpoints, lets go, and sends SIGCONT to a process that gdb's SIGSTOP left stopped, also one whose SIGSTOP is still on its
way. A process that stood in a group-stop before the attach is never resumed. Standard library only; no gdb.

A process with armed debug registers is in danger earlier: a trap that a dying gdb does not fetch any more (it is milliseconds from SIGKILL until
the kernel has freed gdb's memory and lets go of what it traced) becomes a SIGTRAP that ends it. So gdb's main thread holds a robust mutex that the
guard waits for: the kernel hands it over as the first thing of that end (kernel/exit.c, exit_mm), and the guard halts the armed threads at once.
"""

import ctypes
import errno
import mmap
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

if __name__ == "__main__":  # run as a script: this folder must not be searched first, its modules belong to a package
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from gdbext.access import ptrace
from gdbext.errors import GdbextError, NotFoundError

WATCH = 2.0  # seconds for which a released process is watched for a stop that was still on its way
BREAKPOINTS = {"x86_64": b"\xcc", "aarch64": b"\x00\x00\x20\xd4"}  # int3, brk #0
PIDFD_OPEN = 434
TGKILL = {"x86_64": 234, "aarch64": 131}
TRAP_BIT = 1 << signal.SIGTRAP - 1


# ---- gdb's side ------------------------------------------------------------------------------------------------------
def find_python():
    """A python3 (3.8 or newer) that can be started from here, gdb's own Python included; `NotFoundError` when there is none."""
    version = "python%d.%d" % sys.version_info[:2]
    names = [sys.executable] if os.path.basename(sys.executable or "").startswith("python") else []
    names += [os.path.join(p, "bin", version) for p in (sys.base_prefix, sys.prefix)]
    names += [shutil.which(n) for n in (version, "python3", "python")]
    probe = "import sys, ctypes; sys.exit(sys.version_info < (3, 8))"
    for path in dict.fromkeys(n for n in names if n and os.access(n, os.X_OK)):
        try:
            done = subprocess.run([path, "-S", "-E", "-c", probe], stdin=subprocess.DEVNULL, capture_output=True, timeout=10)
        except (OSError, subprocess.TimeoutExpired):
            continue
        if done.returncode == 0:
            return path
    raise NotFoundError("no python3 (3.8 or newer) found on PATH: install one")


class LivenessMutex:
    """A robust mutex in memory that gdb and the guard share; gdb's main thread holds it to its end."""

    ROBUST, SHARED = 1, 1  # pthread.h: PTHREAD_MUTEX_ROBUST, PTHREAD_PROCESS_SHARED
    ours = None  # this process's own: kept for good, since the C library keeps a list of what a thread holds

    def __init__(self, fd):
        self.fd, self.memory = fd, mmap.mmap(fd, mmap.PAGESIZE)
        self.mutex = ctypes.byref(ctypes.c_char.from_buffer(self.memory))

    @classmethod
    def held(cls):
        """The `LivenessMutex` of the calling thread; None where this system has none."""
        libc = ptrace._libc
        if cls.ours is None:
            try:
                fd = os.memfd_create("gdbext-guard")
                os.ftruncate(fd, mmap.PAGESIZE)
                life, kind = cls(fd), ctypes.create_string_buffer(64)
                (
                    libc.pthread_mutexattr_init(kind),
                    libc.pthread_mutexattr_setpshared(kind, cls.SHARED),
                    libc.pthread_mutexattr_setrobust(kind, cls.ROBUST),
                )
                if libc.pthread_mutex_init(life.mutex, kind) or libc.pthread_mutex_lock(life.mutex):
                    return None
                cls.ours = life
            except (OSError, AttributeError):
                return None
        return cls.ours

    def ended(self):
        """Waits for the end of the thread that holds it; False where that cannot be told."""
        return ptrace._libc.pthread_mutex_lock(self.mutex) == errno.EOWNERDEAD


class Guard:
    """Starts the guard process and talks to it. The only open end is this object's socket: its end is the signal."""

    def __init__(self):
        self._socket = None
        self._asked = 0
        self.pid = None

    def start(self):
        """Starts it where it does not run yet; `GdbextError` when it cannot be."""
        if self._socket is not None:
            return
        ours, theirs = socket.socketpair()  # both close-on-exec: nothing that gdb starts keeps an end open
        life = LivenessMutex.held()
        fds = [life.fd] if life else []
        try:
            # Its own session, so that Ctrl-C in gdb's terminal does not reach it; it forks once more, so gdb never waits for it.
            child = subprocess.Popen(
                [find_python(), "-S", "-E", os.path.abspath(__file__), *map(str, fds), str(os.getpid())],
                pass_fds=fds,
                stdin=theirs,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                cwd="/",
            )
            theirs.close()
            ours.settimeout(20)
            answer = ours.recv(64)
            child.wait()
            if not answer.startswith(b"ready "):
                raise GdbextError("the guard process did not start: processes will not be resumed if gdb is killed")
            self.pid = int(answer.split()[1])
        except (OSError, ValueError) as e:
            ours.close()
            raise GdbextError(f"the guard process did not start ({e}): processes will not be resumed if gdb is killed") from None
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        self._socket = ours

    def _tell(self, line):
        if self._socket is None:
            return
        try:
            self._socket.sendall(line.encode() + b"\n", socket.MSG_NOSIGNAL)
        except OSError:
            self._socket.close()
            self._socket = None
            raise GdbextError("the guard process is gone: processes will not be resumed if gdb is killed") from None

    def own(self, pid, was_stopped):
        """Say before an attach that `pid` is about to be held, and wait until the guard has seen which breakpoint bytes it has by then: what is
        planted later is gdb's."""
        self._asked += 1
        self._tell(f"own {pid} {ptrace.start_time(pid) or 0} {int(was_stopped)} {self._asked}")
        said, wanted = b"", b"seen %d\n" % self._asked
        try:
            while self._socket is not None and wanted not in said:  # an answer that an interrupt left unread may come first
                more = self._socket.recv(4096)
                if not more:
                    raise OSError
                said += more
        except OSError:
            self.end()
            raise GdbextError("the guard process does not answer: processes will not be resumed if gdb is killed") from None

    def resumed(self, pid):
        """The user let `pid` run: it need not be stopped again even if it was stopped before."""
        self._tell(f"ran {pid}")

    def armed(self, pid, yes=True):
        """Debug registers of `pid` are (not) set: its threads are halted as soon as gdb begins to end."""
        self._tell(f"armed {pid} {int(yes)}")

    def free(self, pid):
        """`pid` is detached."""
        self._tell(f"free {pid}")

    def end(self):
        """Nothing is held any more: the guard ends."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


# ---- making a process run on -----------------------------------------------------------------------------------------
def recovering():
    """Pids of guards whose gdb has died and that are still putting its processes in order (for `WATCH` seconds)."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                words = f.read().split(b"\0")[:-1]
        except OSError:
            continue
        if len(words) > 1 and words[-1].isdigit() and any(w.endswith(b"/gdbext/access/guard.py") for w in words[:-1]):
            owner = ptrace.status(int(words[-1]))
            if owner is None or owner["state"] in "ZX":
                found.append(int(pid))
    return found


def left_stopped(pid):
    """True where a SIGSTOP has stopped the process, or is on its way to one of its threads."""
    for tid in ptrace.tids(pid):
        s = ptrace.status(pid, tid)
        if s and not s["tracer"] and (s["state"] == "T" or s["pending"] & ptrace.SIGSTOP_BIT):
            return True
    return False


def restore_run_state(pid, start, was_stopped, seconds=WATCH):
    """Watches a released process for `seconds` and keeps it as it was before: running, or stopped. Returns the signals sent."""
    sent, deadline = 0, time.monotonic() + seconds
    pause = 0.002
    while time.monotonic() < deadline and ptrace.start_time(pid) == start and not ptrace.tracers(pid):
        stopped = left_stopped(pid)
        if stopped != was_stopped:
            if ptrace.tracers(pid):
                break  # somebody attaches now, and the stop that was seen is theirs
            try:
                os.kill(pid, signal.SIGSTOP if was_stopped else signal.SIGCONT)
                sent += 1
            except OSError:
                break
        time.sleep(pause)
        pause = min(0.05, pause * 1.3)
    return sent


def written_text_pages(pid):
    """`[(address, path, file offset)]` of the pages of executable, private, mapped files that the process has a copy of its
    own of.

    Source: Documentation/filesystems/proc.rst (smaps: Anonymous), Documentation/admin-guide/mm/pagemap.rst."""
    found, maps = [], []
    with open(f"/proc/{pid}/smaps", "rb") as f:
        for line in f:
            head = re.match(rb"([0-9a-f]+)-([0-9a-f]+) ..xp ([0-9a-f]+) (\S+) (\d+)\s+(/.*)", line)
            if head:
                current = (int(head[1], 16), int(head[2], 16), int(head[3], 16), int(head[5]), os.fsdecode(head[6]))
            elif re.match(rb"[0-9a-f]+-[0-9a-f]+ ", line):
                current = None
            elif current and re.match(rb"(Anonymous|Swap): +[1-9]", line) and current not in maps:
                maps.append(current)
    with open(f"/proc/{pid}/pagemap", "rb", buffering=0) as f:
        for start, end, offset, inode, path in maps:
            file = f"/proc/{pid}/root{path}"
            try:
                if os.stat(file).st_ino != inode:
                    continue  # another file by now: it says nothing of this process
            except OSError:
                continue
            entries = os.pread(f.fileno(), (end - start) // 4096 * 8, start // 4096 * 8)
            for i in range(0, len(entries), 8):
                entry = int.from_bytes(entries[i : i + 8], "little")
                if entry >> 62 and not entry >> 61 & 1:  # in memory or swap, and not the file's own page
                    found.append((start + i * 512, file, offset + i * 512))
    return found


def planted_breakpoints(pid):
    """`{address: the file's bytes}` where the process has a breakpoint instruction and the file has not."""
    trap = BREAKPOINTS.get(ptrace.MACHINE)
    if trap is None:
        return {}
    step, found = len(trap), {}
    pages = written_text_pages(pid)
    for (address, path, offset), data in zip(pages, ptrace.read_ranges(pid, [(a, 4096) for a, _, _ in pages])):
        with open(path, "rb") as f:
            f.seek(offset)
            original = f.read(4096)
        at = data.find(trap)
        while 0 <= at < len(original):
            if at % step == 0 and original[at : at + step] != trap:
                found[address + at] = original[at : at + step]
            at = data.find(trap, at + 1)
    return found


def stop_threads(pid, tracer, number=signal.SIGSTOP):
    """SIGSTOP for each thread of a process that `tracer`, on its way out, still holds: none runs into an armed register any more."""
    try:
        with open(f"/proc/{pid}/status", "rb", buffering=0) as f:
            ours = b"\nTracerPid:\t%d\n" % tracer in f.read(4096)  # no more than this: each microsecond counts
    except OSError:
        return
    if ours or not number:  # else it was let go in good order
        for tid in ptrace.tids(pid):
            ptrace._libc.syscall(TGKILL[ptrace.MACHINE], pid, tid, int(number))


def discard_sigtraps(pid, seconds=1.0):
    """Takes SIGTRAPs that wait for delivery away from an untraced process in a group-stop: they came of registers that are clear by now."""
    waiting = [t for t in ptrace.tids(pid) if (ptrace.status(pid, t) or {"pending": 0})["pending"] & TRAP_BIT]
    if not waiting:
        return 0
    dropped, deadline = 0, time.monotonic() + seconds
    for tid in waiting:
        ptrace.call(ptrace.SEIZE, tid)
    os.kill(pid, signal.SIGCONT)  # a signal is delivered to who runs
    while waiting and time.monotonic() < deadline:
        for tid in list(waiting):
            found, code = os.waitpid(tid, ptrace.WALL | os.WNOHANG)
            if not found:
                continue
            number = os.WSTOPSIG(code) if os.WIFSTOPPED(code) and not code >> 16 else 0
            dropped += number == signal.SIGTRAP
            done = number == signal.SIGTRAP or not os.WIFSTOPPED(code)
            if done:
                waiting.remove(tid)
            if os.WIFSTOPPED(code):
                ptrace.call(ptrace.DETACH if done else ptrace.CONT, tid, 0, 0 if done else number)
        time.sleep(0.0005)
    return dropped


def disarm(pid, known=()):
    """Clears debug registers and puts back breakpoint bytes of an untraced process, with its threads stopped for that moment.

    `known`: addresses of breakpoint bytes that were there before the attach; they stay. Returns (threads cleared, bytes
    restored)."""
    cleared = restored = 0
    with ptrace.Stopped(pid, 2.0) as stopped:
        for tid in stopped.threads:
            try:
                cleared += ptrace.clear_debug_registers(tid)
            except OSError:
                continue  # killed meanwhile
        planted = {a: b for a, b in planted_breakpoints(pid).items() if a not in known}
        if planted:
            with open(f"/proc/{pid}/mem", "r+b", buffering=0) as mem:
                for address, original in planted.items():
                    restored += os.pwrite(mem.fileno(), original, address) > 0
    deadline = time.monotonic() + 5
    while not stopped.release_stray() and time.monotonic() < deadline:
        time.sleep(0.01)
    return cleared, restored


def recover(held, tracer, gone):
    """Makes the processes of `held` (`{pid: [start, was_stopped, known]}`) run on after the death of `tracer`.

    `gone()` says whether the tracer has really ended: until then it may still hold them (writing a core file, say)."""
    released, tries = {}, {}
    while held:
        dead = gone()
        for pid, (start, was_stopped, known) in list(held.items()):
            if ptrace.start_time(pid) != start:
                del held[pid]
                continue
            by = ptrace.tracers(pid)
            if tracer in by:
                continue  # the kernel has not let it go yet
            if not by:
                try:
                    disarm(pid, known)
                    discard_sigtraps(pid)
                except (GdbextError, OSError):
                    tries[pid] = tries.get(pid, 0) + 1
                    if ptrace.tracers(pid) == {tracer} or tries[pid] < 200:
                        continue  # with a debug register armed it must not be resumed
            released[pid] = held.pop(pid)
        if held:
            time.sleep(0.001 if not dead else 0.01)
        for pid, (start, was_stopped, _) in released.items():
            restore_run_state(
                pid, start, was_stopped, 0.001
            )  # the first look at once: others may still be waiting for the tracer
    deadline = time.monotonic() + WATCH
    while released and time.monotonic() < deadline:
        for pid, (start, was_stopped, _) in list(released.items()):
            if ptrace.tracers(pid):
                del released[pid]  # another debugger has it
            restore_run_state(pid, start, was_stopped, 0.003)
        time.sleep(0.01)


# ---- the process -----------------------------------------------------------------------------------------------------
def _pidfd(pid):
    try:
        fd = ptrace._libc.syscall(PIDFD_OPEN, pid, 0)
    except (OSError, AttributeError):
        return -1
    return fd


def serve(channel, tracer, life=None):
    """Listens until `tracer` ends or closes the channel, then makes what it held run on. `life`: the `LivenessMutex` of `tracer`."""
    began = ptrace.start_time(tracer)
    held, armed, buffer, pidfd = {}, set(), b"", _pidfd(tracer)

    def gone():
        state = ptrace.status(tracer)
        return ptrace.start_time(tracer) != began or state is None or state["state"] in "ZX"

    def last_moments():
        try:
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))  # of this thread, where we may
        except OSError:
            pass
        stop_threads(os.getpid(), tracer, 0)  # what is done for the first time takes longer
        if life.ended():
            for pid in list(armed):
                stop_threads(pid, tracer)

    if life is not None and ptrace.MACHINE in TGKILL:
        threading.Thread(target=last_moments, daemon=True).start()
    poll = select.poll()
    poll.register(channel, select.POLLIN)
    if pidfd >= 0:
        poll.register(pidfd, select.POLLIN)
    while True:
        ready = dict(poll.poll(1000))
        if channel.fileno() in ready:
            data = channel.recv(65536)
            buffer += data
            *lines, buffer = buffer.split(b"\n")
            for line in lines:
                word, pid, *rest = line.decode().split()
                pid = int(pid)
                if word == "own":
                    held[pid] = [int(rest[0]), rest[1] == "1", ()]
                    try:
                        held[pid][2] = set(
                            planted_breakpoints(pid)
                        )  # a tracer's uprobes look the same: what is there already stays
                    except OSError:
                        pass  # gone, or not ours to read: the attach will say so
                    try:
                        channel.sendall(b"seen " + rest[2].encode() + b"\n")
                    except OSError:
                        break  # gdb has just died
                elif word == "free":
                    held.pop(pid, None)
                    armed.discard(pid)
                elif word == "armed":
                    (armed.add if rest[0] == "1" else armed.discard)(pid)
                elif word == "ran" and pid in held:
                    held[pid][1] = False
            if not data:
                break
        elif pidfd in ready or gone():  # somebody else may hold a copy of the socket
            break
    recover(held, tracer, gone)


def main():
    channel = socket.socket(fileno=os.dup(0))
    if os.fork():
        os._exit(0)
    os.setsid()
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGTSTP, signal.SIGTTOU, signal.SIGTTIN):
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    channel.sendall(b"ready %d" % os.getpid())
    life = LivenessMutex(int(sys.argv[1])) if len(sys.argv) > 2 else None
    serve(channel, int(sys.argv[-1]), life)


if __name__ == "__main__":
    main()
