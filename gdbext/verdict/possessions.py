"""What a process holds that the next start of its engine may need: memory, shared memory, ports, device files.

Source: proc(5).
"""

from __future__ import annotations

import re

from .. import log
from ..access.procfs import descriptors, parse_maps, read_maps, resident_bytes
from ..errors import GdbextError
from ..observe.system_calls import Files
from ..render.text import size

SHOWN = 6
_DEVICES = re.compile(r"/dev/(nvidia\d+|dri/\w+|kfd|davinci\d+|accel\w*)$")


def of_process(pid: int) -> str:
    """In words; '' where nothing can be seen."""
    parts = []
    try:
        rss = resident_bytes(pid)
        if rss:
            parts.append(f"{size(rss)} of memory")
        shared = sorted({m.path for m in parse_maps(read_maps(pid)[0]) if m.path.startswith("/dev/shm/")})
        if shared:
            parts.append(f"shared memory {', '.join(shared[:SHOWN])}")
    except GdbextError as e:
        log.passed_over(e)
    files, ports, devices = Files(pid), set(), set()
    with log.passing_over():
        for fd, link in descriptors(pid):
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
