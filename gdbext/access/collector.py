"""The collector: copies what stacks and Python need out of a running process, in a pause of about a millisecond.

A process of its own, one for each rank, never inside gdb: `python3 -m gdbext.access.collector PID -o FILE`, or `collect(pid,
file)`, which starts that. Stop, copy, resume, think: before the stop the Python reader runs on the running process, only to
learn which pages it will want; during the stop registers, stacks and those pages are copied with few system calls and nothing
is followed; after it the reader runs on the copy. Pages that it then misses are added and the stop is made again; the last
round, on a process that changes too fast, walks during the stop, within a time limit. The threads are stopped without a
signal (ptrace.py), so if the collector is killed at any moment every thread runs on.
"""

import argparse
import bisect
import importlib
import json
import os
import shutil
import struct
import subprocess
import sys
import time

from ..errors import FaultError, GdbextError, NotFoundError
from . import ptrace, snapshot
from .base import PAGE, ReadLog, Target
from .guard import find_python
from .proc import ProcTarget, parse_maps, read_proc

ROUNDS = 4
REHEARSALS = 6  # before each of them at most
WALK_LIMIT = 0.2  # seconds that the last round may follow pointers while the process stands still
STACK_BYTES = 256 << 10  # of each thread's stack, from the stack pointer up
RED_ZONE = 128  # below it: System V ABI x86-64, 3.2.2
MAX_PAGES = 1 << 14
MAX_RUN = 256 << 20  # bytes copied as one piece
SPARE_DISK = 256 << 20  # bytes that a snapshot leaves free
LINK_MAPS = 4096


def _pages(address, size):
    return range(address & -PAGE, address + size, PAGE)


class _Recorder(ProcTarget):
    """The running process; `wanted` gathers the pages that a reader asks for. `deadline` (monotonic): after it every read
    faults."""

    def __init__(self, pid, wanted, deadline=None, limit=MAX_PAGES):
        super().__init__(pid)
        self.read_log = ReadLog(wanted)
        self.wanted, self.deadline, self.limit, self.copies = wanted, deadline, limit, {}

    def _read(self, address, size):
        if len(self.wanted) > self.limit or (self.deadline and time.monotonic() > self.deadline):
            raise FaultError(address, size, "enough for one snapshot")
        pages = _pages(address, size)
        data = super()._read(pages[0], PAGE * len(pages))  # where a byte can be read, all of its page can
        self.wanted.update(pages)
        if self.deadline:
            for i, page in enumerate(pages):
                self.copies[page] = data[i * PAGE : (i + 1) * PAGE]
        return data[address - pages[0] : address - pages[0] + size]


class _Copy(Target):
    """What was copied. Memory that cannot change (read-only mappings) still comes from the process; its log's `missed` gathers the rest."""

    kind = "snapshot"

    def __init__(self, live, memory, maps, tids):
        super().__init__()
        self.pid, self.arch = live.pid, live.arch
        self.live, self.memory, self.maps, self.tids, self.read_log = live, memory, maps, tids, ReadLog(of_copy=True)

    def _read(self, address, size):
        pages = _pages(address, size)
        missing = [p for p in pages if p not in self.memory]
        for page in missing:
            m = self.mapping_at(page)
            if m is None:
                raise FaultError(address, size)
            if "w" in m.perms:
                self.read_log.missed.add(page)
                continue
            self.memory[page] = self.live._read(page, PAGE)
        if any(p not in self.memory for p in missing):
            raise FaultError(address, size, "not copied")
        first = pages[0]
        return b"".join(self.memory[p] for p in pages)[address - first : address - first + size]

    def _mappings(self):
        return self.maps

    def _threads(self):
        wanted = set(self.tids)
        return [t for t in self.live.threads() if t.tid in wanted]

    def root(self):
        return self.live.root()

    def argv(self):
        return self.live.argv()


def read_loader(target, auxv):
    """Reads the dynamic loader's list of libraries, which lets gdb name them in the snapshot. Source: System V ABI, glibc
    <link.h>."""
    try:
        aux = dict(struct.iter_unpack("<QQ", auxv[: len(auxv) // 16 * 16]))
        headers, size, count = aux[3], aux[4], aux[5]  # AT_PHDR, AT_PHENT, AT_PHNUM
        base = dynamic = None
        for i in range(min(count, 64)):
            kind, _, _, vaddr = struct.unpack_from("<IIQQ", target.read(headers + i * size, size))
            if kind == 6:  # PT_PHDR
                base = headers - vaddr
            elif kind == 2:  # PT_DYNAMIC
                dynamic = vaddr
        at = (base or 0) + dynamic
        for _ in range(256):
            tag, value = target.words(at, 2)
            if tag == 21:  # DT_DEBUG
                break
            if tag == 0:
                return
            at += 16
        version, link = target.words(value, 2)
        seen = set()
        while link and link not in seen and len(seen) < LINK_MAPS:
            seen.add(link)
            _, name, dyn, link_next = target.words(link, 4)
            target.cstring(name)
            target.read(dyn, 16)
            link = link_next
    except (GdbextError, KeyError, TypeError, struct.error):
        return  # a static program, or one that is just loading: gdb names fewer libraries, the stacks are there all the same


class Result:
    """`pid`, `file`, `bytes`; `pause`: seconds of all stops together; `pauses`: of each; `partial`: what is missing and why;
    `threads`: count."""

    def __init__(self, pid, file, size, pauses, partial, threads):
        self.pid, self.file, self.bytes, self.pauses, self.partial, self.threads = pid, file, size, pauses, partial, threads
        self.pause = sum(pauses)


class _Stop:
    """What one stop brought: raw `registers` by tid, `memory` by page, `maps` and their text, `seconds`."""

    def __init__(self):
        self.registers, self.memory, self.maps, self.text, self.seconds, self.stray = {}, {}, [], "", 0.0, None


def _stop_and_copy(pid, wanted, maps, timeout, walk=None):
    got = _Stop()
    buffer = ptrace.ReadBuffer(_runs(wanted))
    stopped = ptrace.Stopped(pid, timeout)
    arch = "aarch64" if ptrace.MACHINE == "aarch64" else "x86-64"
    sp_name = ptrace.STACK_POINTER[arch]
    ends = [(m.start, m.end) for m in maps if "w" in m.perms]
    with stopped:
        stacks = []
        for tid in stopped.threads:
            try:
                got.registers[tid] = raw = ptrace.general_registers(tid)
            except OSError:
                continue  # killed meanwhile
            registers = ptrace.decode_registers(raw, arch)
            if registers:
                low = registers[sp_name] - RED_ZONE & -PAGE
                end = next((e for s, e in ends if s <= registers[sp_name] < e), low + STACK_BYTES)
                stacks.append((low, min(end - low, STACK_BYTES)))
        tops = ptrace.ReadBuffer(stacks)
        tops.read(pid)
        buffer.read(pid)
        if walk:
            walk()
        raw = read_proc(pid, "maps")  # parsed later; read now, since a thread's stack may be new
    got.seconds = stopped.seconds
    got.text = raw.decode("utf-8", "surrogateescape")
    got.maps = parse_maps(got.text)
    got.stray = stopped
    for address, data in buffer.pieces() + tops.pieces():
        for i in range(0, len(data) - PAGE + 1, PAGE):
            got.memory[address + i] = data[i : i + PAGE]
    return got


def _runs(pages):
    """[(address, size)] of adjoining pages."""
    found = []
    for page in sorted(pages):
        if found and found[-1][0] + found[-1][1] == page and found[-1][1] < MAX_RUN:
            found[-1] = (found[-1][0], found[-1][1] + PAGE)
        else:
            found.append((page, PAGE))
    return found


def resident(pid, maps, limit):
    """The pages of private memory that are in use and not as in their file -> (set of page addresses, `[(Mapping, bytes left
    out)]`): what was written, and what the loader wrote before it made it read-only (vtables).

    Python's objects lie between everything else, so all of it is taken, small mappings first, up to `limit` bytes; what is then
    left out is big, and seldom Python's. Source: Documentation/admin-guide/mm/pagemap.rst."""
    pages, left, total = set(), [], 0
    private = [m for m in maps if "r" in m.perms and "p" in m.perms and not m.path.startswith(("/dev/", "[v"))]
    try:
        file = open(f"/proc/{pid}/pagemap", "rb", buffering=0)
    except OSError:
        return pages, [(m, m.end - m.start) for m in private]
    with file:
        for m in sorted(private, key=lambda m: m.end - m.start):
            used = []
            for at in range(m.start, m.end, PAGE << 16):
                count = min(1 << 16, (m.end - at) // PAGE)
                entries = memoryview(os.pread(file.fileno(), 8 * count, at // PAGE * 8)).cast("Q")
                # bits 63 and 62: in memory, in swap; 61: a page of the file, or shared
                used += [at + i * PAGE for i, entry in enumerate(entries) if entry >> 62 and not entry >> 61 & 1]
            if total + PAGE * len(used) > limit:
                left.append((m, PAGE * len(used)))
                continue
            total += PAGE * len(used)
            pages.update(used)
    return pages, left


def _thread_facts(target):
    return {str(t.tid): {"name": t.name, "state": t.state, "ns_tid": t.ns_tid} for t in target.threads()}


def _reader(name):
    """The function `read(target)` of a module by name: the buffer that knows what is to be read is above this one."""
    module = importlib.import_module(name)
    return module.read


def take(pid, path, reader, label="", timeout=1.0, words=(), heap=0):
    """Takes a snapshot of `pid` into `path` from this process (not from inside gdb: see `collect`). Returns `Result`.

    `reader`: the module whose `read(target, *words)` reads what the copy has to hold beside registers and stacks; `heap`: bytes
    of other private memory that are copied too, see `resident`."""
    read = _reader(reader)

    def read_python(target):
        return read(target, *words)

    state = ptrace.status(pid)
    if state is None:
        raise NotFoundError(f"process {pid} does not exist (any more)")
    if state["state"] in "ZX" or state["kthread"]:
        raise GdbextError(f"process {pid} has no memory: it is a zombie or a kernel thread")
    wanted, pauses, partial = set(), [], []
    auxv = read_proc(pid, "auxv")
    maps = parse_maps(read_proc(pid, "maps").decode("utf-8", "surrogateescape"))
    if not maps:
        raise GdbextError(f"process {pid} has no memory: it has just ended")
    live = _Recorder(pid, set())
    live._open()  # says who lacks which permission, before anything is stopped
    facts = _thread_facts(live)
    rehearsal = _Recorder(pid, wanted, limit=MAX_PAGES + heap // PAGE)
    read_loader(rehearsal, auxv)

    def rehearse():
        """Until it comes by nothing new: what a process that moves will want is learnt while it runs, not while it stands."""
        for _ in range(REHEARSALS):
            before = len(wanted)
            rehearsal.invalidate()
            read_python(rehearsal)
            if rehearsal.read_log.repeated and len(wanted) == before:
                break
            rehearsal.read_log.repeated = True

    rehearse()
    for m in maps:
        if m.path == "[vdso]":
            wanted.update(range(m.start, m.end, PAGE))
    heap_pages = set()
    if heap:
        heap_pages, left = resident(pid, maps, heap)
        partial += [f"{text_size(n)} at {m.start:#x} left out (-max-bytes)" for m, n in left if n > 1 << 20]
    need_disk(path, PAGE * (len(wanted) + len(heap_pages)))
    got = copy = None
    for round_ in range(ROUNDS):
        writable = _Writable(maps)
        pages = {p for p in wanted if p in writable} | heap_pages
        # What grows, a frame stack say, grows next door.
        pages |= {p + d for p in wanted for d in (-PAGE, PAGE) if p + d in writable}
        last = round_ == ROUNDS - 1
        walked = _Recorder(pid, set())

        def walk():
            walked.deadline = time.monotonic() + WALK_LIMIT
            read_python(walked)

        got = _stop_and_copy(pid, pages, maps, timeout, walk if last else None)
        pauses.append(got.seconds)
        memory, maps, text = got.memory, got.maps, got.text
        writable = _Writable(maps)
        if last:
            memory.update(walked.copies)
        copy = _Copy(live, memory, maps, got.registers)
        why = read_python(copy)
        read_loader(copy, auxv)
        got.stray.release_stray()
        if not copy.read_log.missed:
            break
        wanted |= copy.read_log.missed
        rehearse()
    if copy.read_log.missed:
        partial.append(
            f"{len(copy.read_log.missed)} pages that Python's state points to changed faster than they could be copied"
        )
    elif why:
        partial.append("Python: " + why)
    for page in wanted:  # read-only pages cannot change: no stop was needed for them
        if page not in memory and page not in writable:
            _add(memory, live, page)
    for m in maps:
        if m.offset == 0 and m.path.startswith("/") and "w" not in m.perms and "r" in m.perms:
            _add(memory, live, m.start)  # the file's head, with the build-id that tells which file it was
    lost = [t for t in ptrace.tids(pid) if t not in got.registers]
    if got.stray.stray:
        count = len(got.stray.stray)
        partial.append(f"{count} threads wait inside the kernel and did not stop within {timeout:g} s: no registers of them")
    elif lost and not got.registers:
        raise NotFoundError(f"process {pid} ended while it was copied")
    order = sorted(got.registers, key=lambda t: (t != pid, t))
    argv = live.argv()
    note = {
        "pid": pid,
        "label": label,
        "maps": text,
        "argv": argv,
        "threads": facts,
        "pauses": pauses,
        "time": time.time(),
        "partial": partial,
        "heap": bool(heap),
    }
    temporary = f"{path}.{os.getpid()}.tmp"
    try:
        need_disk(path, PAGE * len(memory))
        os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))  # memory holds secrets: the user's alone
        threads = [(t, got.registers[t]) for t in order]
        size = snapshot.write_core(temporary, live.arch, pid, threads, maps, memory, auxv, argv, note)
        os.replace(temporary, path)
    except OSError as e:
        raise GdbextError(f"{path}: {e.strerror}: name another file with -o") from None
    finally:
        if os.path.exists(temporary):
            os.unlink(temporary)
    deadline = time.monotonic() + 5
    while not got.stray.release_stray() and time.monotonic() < deadline:
        time.sleep(0.01)
    return Result(pid, path, size, pauses, partial, len(order))


def need_disk(path, size):
    """`GdbextError` where writing `size` bytes to `path` would fill the disk."""
    folder = os.path.dirname(os.path.abspath(path))
    try:
        free = shutil.disk_usage(folder).free
    except OSError as e:
        raise GdbextError(f"{path}: {e.strerror}: name another file with -o") from None
    if free < size + SPARE_DISK:
        raise GdbextError(
            f"{path}: the snapshot needs {text_size(size)} and {text_size(SPARE_DISK)} to spare, {text_size(free)} are free: "
            "name a file on another disk with -o, or give a smaller -max-bytes"
        )


def text_size(count):
    return f"{count / (1 << 20):.1f} MiB"


class _Writable:
    """`page in _Writable(maps)`: whether a page lies in writable memory."""

    def __init__(self, maps):
        self.spans = sorted((m.start, m.end) for m in maps if "w" in m.perms)
        self.starts = [s for s, _ in self.spans]

    def __contains__(self, page):
        i = bisect.bisect_right(self.starts, page) - 1
        return i >= 0 and page < self.spans[i][1]


def _add(memory, live, page):
    try:
        memory.setdefault(page, live._read(page, PAGE))
    except GdbextError:
        pass  # unmapped since


# ---- from a parent ---------------------------------------------------------------------------------------------------
class Running:
    """A collector process at work on `pid`. `finish()` waits for it."""

    def __init__(self, pid, path, reader, label="", words=(), heap=0):
        root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
        command = [find_python(), "-m", "gdbext.access.collector", str(pid), "-o", os.path.abspath(path), "--label", label]
        command += ["--reader", reader, "--heap", str(heap)] + [f"--word={w}" for w in words]
        env = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
        self.pid, self.path = pid, path
        self.process = subprocess.Popen(
            command, cwd=root, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def finish(self, timeout=60):
        """Its `Result`; `GdbextError` when it failed or did not end in `timeout` seconds (it is ended then, the process runs
        on)."""
        try:
            out, err = self.process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            raise GdbextError(f"process {self.pid}: the collector did not finish in {timeout} s; the process runs on") from None
        finally:
            if self.process.poll() is None:
                self.process.kill()
                self.process.communicate()
        try:
            answer = json.loads(out.splitlines()[-1])
        except (ValueError, IndexError):
            last = (err.strip().splitlines() or [f"exit status {self.process.returncode}"])[-1]
            raise GdbextError(f"process {self.pid}: the collector failed ({last}); the process runs on") from None
        if "error" in answer:
            raise GdbextError(answer["error"])
        return Result(self.pid, self.path, answer["bytes"], answer["pauses"], answer["partial"], answer["threads"])


def collect(pid, path, reader, label="", timeout=60, **options):
    """Starts a collector process for `pid`, waits for it (at most `timeout` seconds) and returns its `Result`. `options`: as for
    `Running`."""
    return Running(pid, path, reader, label, **options).finish(timeout)


def main(words=None):
    parser = argparse.ArgumentParser(
        prog="python3 -m gdbext.access.collector", description="Copy the stacks and the Python state of a running process."
    )
    parser.add_argument("pid", type=int)
    parser.add_argument("-o", "--output", required=True)
    parser.add_argument("--label", default="")
    parser.add_argument("--reader", required=True, help="the module that reads what the copy has to hold")
    parser.add_argument("--word", action="append", default=[], help="an argument of the reader")
    parser.add_argument("--heap", type=int, default=0, help="bytes of other private memory to copy at most")
    args = parser.parse_args(words)
    try:
        result = take(args.pid, args.output, args.reader, args.label, words=args.word, heap=args.heap)
    except GdbextError as e:
        print(json.dumps({"error": str(e)}))
        return 1
    print(json.dumps({name: getattr(result, name) for name in ("pid", "file", "bytes", "pauses", "partial", "threads")}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
