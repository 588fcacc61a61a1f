"""Run in gdb by `source`: writes every thread's native stack of one stop, as gdb and as the pack have it, to $BOTH_STACKS."""

import json
import os
import re

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
    found, frame = [], gdb.newest_frame()
    while frame is not None:
        found.append([frame.pc(), KINDS[frame.type()], frame.name() or "", start_of(frame)])
        frame = frame.older()
    return found


def frames_of_pack(thread):
    found = []
    for f in target.unwind(thread):
        module = target.module_at(f.pc)
        place = f.pc - module.bias - bool(found) if module is not None else 0
        start = module.elf.function_and_start(place)[1] + module.bias if module is not None else None
        found.append([f.pc, f.function, f.reliable, start])
    return found


gdb.execute("set backtrace past-main on")
gdb.execute("set backtrace past-entry on")
target = GdbSession().target()
said = {}
for thread in gdb.selected_inferior().threads():
    tid = thread.ptid[1] or thread.ptid[2]
    thread.switch()
    own = next(th for th in target.threads() if th.tid == tid)
    said[tid] = {"name": own.name, "gdb": frames_of_gdb(), "ours": frames_of_pack(own)}
with open(os.environ["BOTH_STACKS"], "w") as f:
    json.dump({"threads": said, "doubts": target.doubts()}, f)
