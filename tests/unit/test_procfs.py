"""The parsers of /proc's files: what a program calls itself is no part of them, other bytes are refused, and no other module
parses such a file."""

import ast
import os
import re
import threading

import pytest

from gdbext.access import procfs, ptrace, readers
from gdbext.access.proc import list_threads
from gdbext.access.proctable import ProcTable
from gdbext.errors import GdbextError, NotFoundError

HOSTILE = ["a) R 1 2", "(((", ")))", "x\nState:\tT", "x\rKthread:\t1", "a\tb\nc", "\\012", "é) Z (é", " ", "\x0b) T"]
STAT = b"7 (%b) S 3 7 5 34816 7 64 0 0 0 0 150 50 0 0 20 0 9 0 4711 1000 12" + b" 0" * 28 + b"256\n"


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_is_no_part_of_the_fields(name):
    found = procfs.parse_stat(STAT % name.encode())
    assert found.name == name.encode() and found.state == "S" and found.parent == 3 and found.ticks == (150, 50)
    assert found.threads == 9 and found.started == 4711 and found.exits is False and found.resident == 12 * procfs.PAGE_BYTES


@pytest.mark.parametrize("name", HOSTILE)
def test_a_thread_with_a_hostile_name_is_read_by_every_reader(name):
    """In this process: a thread takes the name, and each reader is asked of it."""
    ready, end, tid = threading.Event(), threading.Event(), []

    def body():
        tid.append(threading.get_native_id())
        with open(f"/proc/self/task/{tid[0]}/comm", "wb") as f:
            f.write(name.encode()[:15])
        ready.set()
        end.wait(30)

    thread = threading.Thread(target=body)
    thread.start()
    try:
        assert ready.wait(30)
        pid, taken = os.getpid(), name.encode()[:15]
        stat = procfs.read_stat(pid, tid[0])
        assert stat.name == taken and stat.state in "SRD" and stat.started >= procfs.read_stat(pid).started
        state = ptrace.status(pid, tid[0])
        assert state["state"] in "SRD" and state["tgid"] == pid and state["kthread"] is False and state["tracer"] == 0
        assert ptrace.thread_state(pid, tid[0]) in "SRD"
        assert {t.tid: t.name for t in list_threads(pid)}[tid[0]] == taken.decode("utf-8", "replace")
        assert procfs.read_schedstat(pid, tid[0]).turns > 0
        assert procfs.status_field(procfs.read_proc(pid, f"task/{tid[0]}/status"), b"Tgid") == b"%d" % pid
        assert readers.of_process(tid[0]) == readers.of_process(pid) is not None
    finally:
        end.set()
        thread.join()


def test_what_a_thread_waits_in():
    assert procfs.parse_syscall(b"running\n") is None
    assert procfs.parse_syscall(b"-1 0x7ffc10 0x7f20\n") == procfs.Syscall(-1, (), 0x7FFC10, 0x7F20)
    found = procfs.parse_syscall(b"202 0x7f1 0x80 0x0 0x0 0x0 0xffffffff 0x7ffc10 0x7f20\n")
    assert found == procfs.Syscall(202, (0x7F1, 0x80, 0, 0, 0, 0xFFFFFFFF), 0x7FFC10, 0x7F20)
    raw = ptrace.known_registers(b"-1 0x7ffc10 0x7f20\n", "x86-64")
    assert raw == {"rsp": 0x7FFC10, "rip": 0x7F20} and ptrace.known_registers(b"running\n", "x86-64") == {}
    assert ptrace.known_registers(b"202 0x7f1 0x80 0x0 0x0 0x0 0x6 0x7ffc10 0x7f20", "aarch64")["x5"] == 6


INET = b"""  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000003 00:00000000 00000000  1000        0 4711 1 0 100 0 0 10 0
   1: 0100007F:1F90 0100007F:C350 01 00000000:00000010 00:00000000 00000000     0        0 0 1 0 20 4 30 10 -1
"""


def test_the_sockets_of_a_network_namespace():
    listens, served = procfs.parse_inet(INET)
    assert (listens.port, listens.remote_port, listens.state, listens.unread, listens.inode) == (8080, 0, "0A", 3, 4711)
    assert (served.remote_port, served.unread, served.user, served.inode) == (50000, 16, 0, 0) and listens.user == 1000
    assert procfs.parse_inet(b"") == procfs.parse_unix(b"") == []


def test_a_name_of_a_unix_socket_makes_no_row_of_its_own():
    """The kernel writes the name as it is, line breaks too."""
    row = b"ffff8881: 00000002 00000000 %s 0001 01 %d %s\n"
    forged = (row % (b"00010000", 7, b"/run/made-up")).strip()
    data = b"Num RefCount\n" + row % (b"00000000", 7, b"/run/a b\r\x0b") + row % (b"00010000", 8, b"@x\n" + forged)
    found = {one.inode: one for one in procfs.parse_unix(data)}
    assert set(found) == {8} and found[8].name == "@x" and found[8].flags == 0x10000
    (alone,) = procfs.parse_unix(b"head\n" + row % (b"00000000", 7, b"/run/a b"))
    assert alone.name == "/run/a b"


@pytest.mark.parametrize(
    "parse, data",
    [
        (procfs.parse_stat, b""),
        (procfs.parse_stat, b"7 (a"),
        (procfs.parse_stat, b"7 (a) S 1 2\n"),
        (procfs.parse_stat, STAT.replace(b") S", b") SS")),
        (procfs.parse_schedstat, b""),
        (procfs.parse_schedstat, b"1 2\n"),
        (procfs.parse_schedstat, b"1 x 3\n"),
        (procfs.parse_syscall, b""),
        (procfs.parse_syscall, b"1 2\n"),
        (procfs.parse_syscall, b"x 0x1 0x2\n"),
    ],
)
def test_other_bytes_are_refused(parse, data):
    with pytest.raises(ValueError):
        parse(data)


def test_the_readings_of_this_process():
    pid = os.getpid()
    assert procfs.read_stat(pid).parent == os.getppid() == ProcTable().processes[pid].ppid
    with open(os.devnull) as f:
        assert dict(procfs.descriptors(pid))[f.fileno()] == os.devnull
    assert pid in procfs.task_ids(pid) and procfs.cpu_of(pid) > 0 and procfs.resident_bytes(pid) > 1 << 20
    for read in (procfs.read_stat, procfs.task_ids, procfs.read_maps, lambda p: list(procfs.descriptors(p))):
        with pytest.raises(GdbextError):
            read(2**31 - 1)
    with pytest.raises(NotFoundError):
        procfs.read_syscall(2**31 - 1, 2**31 - 1)
    assert procfs.state_of(2**31 - 1) == "" and procfs.read_or_empty(2**31 - 1, "stat") == b""


@pytest.mark.sources
def test_no_other_module_parses_these_files():
    """Who splits behind the last parenthesis parses a `stat`; who names `schedstat` or `syscall` asks here."""
    parsers, seen = [], 0
    folder = os.path.dirname(os.path.dirname(procfs.__file__))
    for path in [os.path.join(at, name) for at, _, files in os.walk(folder) for name in files if name.endswith(".py")]:
        with open(path, encoding="utf-8") as f:
            text = f.read()
        seen += 1
        if path == procfs.__file__ or not re.search(r"schedstat|syscall\b|/maps\b|[\"/]stat\b", text):
            continue
        for function in [n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.FunctionDef)]:
            body = ast.get_source_segment(text, function)
            if re.search(r"""rpartition\(b?"\)|/(schedstat|syscall|maps)"[^\n]*\n?[^\n]*\n?[^\n]*split\(""", body):
                parsers.append(f"{os.path.relpath(path, folder)}: {function.name}")
    assert seen > 300 and not parsers
