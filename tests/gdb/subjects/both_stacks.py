"""Run in gdb by `source`: writes every thread's native stack, as gdb and as the pack have it, to $BOTH_STACKS: of this stop and
of the next ones, until there are $BOTH_STOPS (1 where it is not set)."""

import json
import os
import re
import subprocess

import gdb

from gdbext.session.gdb_session import GdbSession

KINDS = {gdb.NORMAL_FRAME: "normal", gdb.INLINE_FRAME: "inline", gdb.SIGTRAMP_FRAME: "signal"}
for name in ("TAILCALL_FRAME", "ARCH_FRAME", "DUMMY_FRAME"):
    KINDS[getattr(gdb, name)] = name


def start_of(frame):
    """Where gdb lets the frame's function begin."""
    function = frame.function()
    if function is not None:
        return int(function.value().address)
    found = re.match(r".+ \+ (\d+) in section|.+ in section", gdb.execute(f"info symbol {frame.pc():#x}", to_string=True))
    return frame.pc() - int(found[1] or 0) if found else None


def frames_of_gdb():
    """[[pc, kind, function, its start]] of the selected thread, innermost first."""
    found, frame = [], gdb.newest_frame()
    while frame is not None:
        found.append([frame.pc(), KINDS[frame.type()], frame.name() or "", start_of(frame)])
        frame = frame.older()
    return found


def walk():
    """Lets gdb say of every frame of the selected thread what it knows: of one that is there already it names the unwinder."""
    for _ in range(2):
        frame = gdb.newest_frame()
        while frame is not None:
            frame.type()
            frame = frame.older()


def unwinders():
    """{level: the unwinder that gdb took for the frame} of the selected thread; nothing but gdb's debug messages tells it."""
    gdb.execute("set debug frame on", to_string=True)
    try:
        messages = gdb.execute("python walk()", to_string=True)
    finally:
        gdb.execute("set debug frame off", to_string=True)
    return {int(level): name for level, name in re.findall(r'level=(\d+),type=\w+,unwinder="([^"]+)"', messages)}


def frames_of_pack(target, thread):
    found = []
    for f in target.unwind(thread):
        module = target.module_at(f.pc)
        place = f.pc - module.bias - bool(found) if module is not None else 0
        start = module.elf.function_and_start(place)[1] + module.bias if module is not None else None
        found.append([f.pc, f.function, f.reliable, start])
    return found


def stop():
    """What both have of the process as it stands."""
    target, said = GdbSession().target(), {}
    for thread in gdb.selected_inferior().threads():
        tid = thread.ptid[1] or thread.ptid[2]
        thread.switch()
        own = next(th for th in target.threads() if th.tid == tid)
        by, theirs = unwinders(), frames_of_gdb()
        theirs = [[*frame, by.get(level, "")] for level, frame in enumerate(theirs)]
        said[tid] = {"name": own.name, "gdb": theirs, "ours": frames_of_pack(target, own)}
    return {"threads": said, "doubts": target.doubts()}


gdb.execute("set backtrace past-main on")
gdb.execute("set backtrace past-entry on")
stops = [stop()]
while len(stops) < int(os.environ.get("BOTH_STOPS", "1")):
    with subprocess.Popen(["sh", "-c", f"sleep 0.3; kill -INT {gdb.selected_inferior().pid}"]):
        gdb.execute("continue", to_string=True)  # gdb keeps the SIGINT to itself
    stops.append(stop())
with open(os.environ["BOTH_STACKS"], "w") as f:
    json.dump(stops, f)
