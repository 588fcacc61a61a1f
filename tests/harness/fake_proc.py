"""A FAKE /proc: made-up trees of engine processes."""

import os

from gdbext.engines.discover import discover

SPAWN = [
    "/usr/bin/python3",
    "-c",
    "from multiprocessing.spawn import spawn_main; spawn_main(tracker_fd=5, pipe_handle=7)",
    "--multiprocessing-fork",
]
TRACKER = ["/usr/bin/python3", "-c", "from multiprocessing.resource_tracker import main;main(4)"]
PYTHON = "/usr/bin/python3.11"
MIB = 1 << 20


class FakeProc:
    """Writes processes as /proc/PID/{stat,cmdline,status,environ,maps,fd,exe}."""

    def __init__(self, root):
        self.root = str(root)
        with open(os.path.join(self.root, "uptime"), "w") as f:
            f.write("10000.00 5000.00\n")
        self.next = 100

    def add(
        self,
        argv=(),
        title=None,
        pid=None,
        ppid=1,
        comm=None,
        exe=PYTHON,
        state="S",
        rss=300 * MIB,
        start=None,
        ns=None,
        environ=(),
        maps="",
        fds=(),
        status=0,
        pgrp=50,
        session=50,
        threads=9,
        uid=None,
        exits=False,
    ):
        if pid is None:
            pid, self.next = self.next, self.next + 1
        uid = os.geteuid() if uid is None else uid
        comm = comm if comm is not None else (title[:15] if title is not None else os.path.basename(exe)[:15])
        start = 100000 + pid if start is None else start
        fields = [state, ppid, pgrp, session, 0, -1, 4 * exits, 0, 0, 0, 0, 150, 50, 0, 0]
        fields += [20, 0, threads, 0, start, 1 << 32, rss // 4096] + [0] * 27 + [status, 0, 0]
        folder = os.path.join(self.root, str(pid))
        os.makedirs(os.path.join(folder, "fd"))
        cmdline = (
            title.encode("utf-8", "surrogateescape") + b"\0" * 60
            if title is not None
            else b"".join(a.encode() + b"\0" for a in argv)
        )
        for name, data in (
            ("stat", f"{pid} ({comm}) {' '.join(map(str, fields))}\n".encode("utf-8", "surrogateescape")),
            ("cmdline", b"" if state == "Z" or exits else cmdline),
            (
                "status",
                (
                    f"Name:\t{comm}\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\nNSpid:\t{pid}{''.join(f'{chr(9)}{n}' for n in ns or ())}\n"
                ).encode("utf-8", "surrogateescape"),
            ),
            ("environ", b"".join(f"{k}={v}".encode() + b"\0" for k, v in dict(environ).items())),
            ("maps", maps.encode()),
        ):
            with open(os.path.join(folder, name), "wb") as f:
                f.write(data)
        if exe and state != "Z" and not exits:
            os.symlink(exe, os.path.join(folder, "exe"))
        for number, to in enumerate(fds):
            os.symlink(to, os.path.join(folder, "fd", str(number)))
        return pid

    def table(self, **how):
        ranks, partial = discover(self.root, **how)
        return [(r.label, r.role, r.pid, r.ranks) for r in ranks]

    def ranks(self, **how):
        return discover(self.root, **how)[0]


def vllm(proc, tp=2, prefix="VLLM", **more):
    main = proc.add(["/usr/bin/python3", "run.py", "x"])
    proc.add(TRACKER, ppid=main)
    core = proc.add(title=f"{prefix}::EngineCore", ppid=main, **more)
    workers = [proc.add(title=f"{prefix}::Worker_TP{t}", ppid=core, **more) for t in range(tp)]
    return main, core, workers
