"""What a process holds that the next start of its engine may need: memory, shared memory, ports, device files.

Source: proc(5).
"""

from __future__ import annotations

import os
import re

from .. import log
from ..access.proc import read_proc, resident_bytes
from ..errors import GdbextError
from ..render.text import size
from ..stacks.system_calls import Files

SHOWN = 6
_DEVICES = re.compile(r"/dev/(nvidia\d+|dri/\w+|kfd|davinci\d+|accel\w*)$")


def of_process(pid: int) -> str:
    """In words; '' where nothing can be seen."""
    parts = []
    try:
        rss = resident_bytes(pid)
        if rss:
            parts.append(f"{size(rss)} of memory")
        maps = read_proc(pid, "maps").decode("utf-8", "replace")
        shared = sorted(set(re.findall(r"(/dev/shm/\S+)$", maps, re.M)))
        if shared:
            parts.append(f"shared memory {', '.join(shared[:SHOWN])}")
    except GdbextError as e:
        log.passed_over(e)
    files, ports, devices = Files(pid), set(), set()
    try:
        descriptors = [int(fd) for fd in os.listdir(f"/proc/{pid}/fd")]
    except OSError:
        descriptors = []
    for fd in descriptors:
        try:
            link = os.readlink(f"/proc/{pid}/fd/{fd}")
        except OSError:
            continue
        if _DEVICES.match(link):
            devices.add(link)
        elif link.startswith("socket:"):
            source = files.source(fd)
            if source.kind == "listener":
                ports.add(source.text.replace("connections to ", ""))
    if ports:
        parts.append(", ".join(sorted(ports)[:SHOWN]))
    if devices:
        parts.append(", ".join(sorted(devices)[:SHOWN]))
    return "; ".join(parts)
